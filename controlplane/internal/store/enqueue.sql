-- Enqueue. Order of locks: idempotency rows (remember), epochs of partitions, lanes (lane/lock, lane/lock_many), tasks.

-- name: remember
-- Sorted, so that two batches with the same keys cannot meet crosswise.
INSERT INTO slipway.idempotency (caller, key, hash, answer, expires_at)
SELECT @caller, x.key, decode(x.hash, 'hex'), x.answer, slipway.now() + interval '7 days'
FROM jsonb_to_recordset(CAST(@keys AS jsonb)) AS x (key text, hash text, answer jsonb)
ORDER BY x.key
ON CONFLICT (caller, key) DO NOTHING
RETURNING key;

-- name: recall
SELECT i.key, encode(i.hash, 'hex') AS hash, i.answer,
    i.expires_at <= slipway.now() OR EXISTS (
        SELECT 1 FROM jsonb_array_elements(i.answer) e
        WHERE NOT EXISTS (SELECT 1 FROM slipway.tasks t WHERE t.id = CAST(e ->> 'id' AS uuid))) AS over
FROM slipway.idempotency i
WHERE i.caller = @caller AND i.key IN (SELECT jsonb_array_elements_text(CAST(@keys AS jsonb)))
ORDER BY i.key;

-- name: forget
DELETE FROM slipway.idempotency WHERE caller = @caller
    AND (key, answer) IN (SELECT x.key, x.answer FROM jsonb_to_recordset(CAST(@keys AS jsonb)) AS x (key text, answer jsonb));

-- name: lock_sources
-- The ended Tasks that a retry of many repeats, each of them once.
SELECT key FROM slipway.tasks
WHERE id IN (SELECT CAST(jsonb_array_elements_text(CAST(@ids AS jsonb)) AS uuid))
ORDER BY key
FOR NO KEY UPDATE;

-- name: again
-- Which of them were submitted again before, and as what: a retry of it, or what has overtaken it in its lane. In a later
-- statement than their lock.
SELECT s.id AS source, x.id AS task
FROM slipway.tasks s CROSS JOIN LATERAL (
    (SELECT r.id FROM slipway.tasks r WHERE r.retry_of = s.key ORDER BY r.key LIMIT 1)
    UNION ALL
    (SELECT n.id FROM slipway.tasks n WHERE s.mode = 'latest' AND n.lane = s.lane AND n.kind = s.kind AND n.key > s.key
     ORDER BY n.created_at DESC, n.key DESC LIMIT 1)
    LIMIT 1) x
WHERE s.id IN (SELECT CAST(jsonb_array_elements_text(CAST(@ids AS jsonb)) AS uuid));

-- name: children
SELECT c.id FROM slipway.tasks p JOIN slipway.tasks c ON c.parent = p.key WHERE p.id = CAST(@parent AS uuid) ORDER BY c.key;

-- name: answer
UPDATE slipway.idempotency i SET answer = x.answer
FROM jsonb_to_recordset(CAST(@keys AS jsonb)) AS x (key text, answer jsonb)
WHERE i.caller = @caller AND i.key = x.key;

-- name: needs
-- The Tasks named in `after`, and the Tasks that are repeated by hand.
-- The lock is against their deletion alone.
SELECT key, id, lane, mode, queue, namespace, kind, state, coalesce(root, key) AS root FROM slipway.tasks
WHERE id IN (SELECT CAST(jsonb_array_elements_text(CAST(@ids AS jsonb)) AS uuid))
ORDER BY key
FOR KEY SHARE;

-- name: standing
-- What is in the lanes, in a later statement than their lock.
SELECT l.key AS lane,
    ht.id AS holder_id, tail.key AS tail, tail.id AS tail_id, tail.kind AS tail_kind, tail.mode AS tail_mode,
    tail.children AS tail_children, first.id AS first_id
FROM slipway.lanes l
LEFT JOIN slipway.tasks ht ON ht.key = l.holder
LEFT JOIN LATERAL (
    SELECT t.key, t.id, t.kind, t.mode, t.children FROM slipway.tasks t
    WHERE t.lane = l.key AND t.state = 'queued' AND t.seq >= l.last_seq ORDER BY t.seq DESC LIMIT 1) tail ON true
LEFT JOIN LATERAL (
    SELECT t.id FROM slipway.tasks t
    WHERE t.lane = l.key AND t.state = 'queued' AND t.seq >= l.last_seq ORDER BY t.seq LIMIT 1) first ON true
WHERE l.key IN (SELECT jsonb_array_elements_text(CAST(@lanes AS jsonb)));

-- name: absorb
-- A newer submit of mode latest takes the place of the lane's queued tail: its parameters, its queue deadline, the more
-- urgent class.
WITH clock AS MATERIALIZED (SELECT slipway.stamp() AS at),
changed AS (
    UPDATE slipway.tasks t SET
        params = x.params, spec = x.spec, name = x.name, class = LEAST(t.class, x.class), run_at = clock.at,
        absorbed = t.absorbed + x.absorbed, spent_retry = 0, spent_lost = 0, min_binary = GREATEST(t.min_binary, slipway.session_version()),
        rank = LEAST(t.eligible_at, clock.at) + LEAST(t.class, x.class) * interval '120 seconds',
        eligible_at = LEAST(t.eligible_at, clock.at),
        queue_by = CASE WHEN CAST(x.spec ->> 'queue_deadline' AS float8) > 0
            THEN clock.at + CAST(x.spec ->> 'queue_deadline' AS float8) * interval '1 second' END
    FROM jsonb_to_recordset(CAST(@items AS jsonb)) AS x (task bigint, params jsonb, spec jsonb, name text, class smallint, absorbed int), clock
    WHERE t.key = x.task AND (t.state = 'queued') IS TRUE
    RETURNING t.key),
noted AS (
    INSERT INTO slipway.events (task, type, actor, at, data)
    SELECT e.task, 'coalesced', @by, clock.at, NULL
    FROM jsonb_to_recordset(CAST(@events AS jsonb)) AS e (task bigint), clock)
SELECT count(*) AS n FROM changed;

-- name: insert
WITH clock AS MATERIALIZED (SELECT slipway.stamp() AS at),
given AS MATERIALIZED (
    SELECT nextval('slipway.tasks_key_seq') AS key, x.*
    FROM (SELECT * FROM jsonb_to_recordset(CAST(@items AS jsonb)) AS x (
        ord int, id uuid, lane text, queue text, namespace text, kind text, name text, mode text, class smallint,
        executor text, params jsonb, spec jsonb, labels jsonb, outside text, run_at timestamptz, delay float8,
        queue_in float8, parent_id uuid, children int, retry_of bigint, root bigint, replaces jsonb, run_if text,
        schedule uuid, fire_at timestamptz, front bigint, absorbed int, by text) ORDER BY ord) x),
placed AS MATERIALIZED (
    -- In order of the batch, after the lanes' locks: seq is the lane's order.
    SELECT g.*, coalesce(g.lane, 'task:' || g.key) AS in_lane, g.lane IS NULL AS private,
        CASE WHEN g.outside IS NULL THEN coalesce(g.front, nextval('slipway.task_seq')) END AS seq,
        coalesce(g.run_at, clock.at + g.delay * interval '1 second') AS due, clock.at
    FROM (SELECT * FROM given ORDER BY ord) g, clock),
ranked AS MATERIALIZED (
    SELECT p.*, GREATEST(p.due, p.at) AS eligible_at, GREATEST(p.due, p.at) + p.class * interval '120 seconds' AS rank
    FROM placed p),
tasks AS (
    INSERT INTO slipway.tasks (key, id, seq, outside, lane, queue, namespace, kind, name, mode, class, executor, params, spec,
        labels, state, run_at, eligible_at, rank, queue_by, parent, children, retry_of, root, replaces, run_if, schedule, fire_at,
        absorbed, created_by, created_at)
    OVERRIDING SYSTEM VALUE
    SELECT r.key, r.id, r.seq, r.outside, r.in_lane, r.queue, r.namespace, r.kind, r.name, r.mode, r.class, r.executor, r.params,
        r.spec, r.labels, 'queued', r.due, r.eligible_at, r.rank,
        CASE WHEN r.queue_in > 0 THEN GREATEST(r.due, r.at) + r.queue_in * interval '1 second' END,
        p.key, r.children, r.retry_of, r.root,
        CASE WHEN r.replaces IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text(r.replaces)) END,
        r.run_if, r.schedule, r.fire_at, r.absorbed, coalesce(nullif(r.by, ''), @by), r.at
    FROM ranked r LEFT JOIN given p ON p.id = r.parent_id
    ORDER BY r.ord),
private AS (
    INSERT INTO slipway.lanes (key, queue, namespace, kind, private, head, rank)
    SELECT in_lane, queue, namespace, kind, true, CASE WHEN seq IS NOT NULL THEN key END, CASE WHEN seq IS NOT NULL THEN rank END
    FROM ranked WHERE ranked.private),
shown AS (
    UPDATE slipway.lanes l SET
        head = coalesce(l.head, f.key),
        queue = CASE WHEN l.head IS NULL THEN f.queue ELSE l.queue END,
        namespace = CASE WHEN l.head IS NULL THEN f.namespace ELSE l.namespace END,
        kind = CASE WHEN l.head IS NULL THEN f.kind ELSE l.kind END,
        rank = CASE WHEN l.head IS NULL THEN f.least WHEN l.rank IS NOT NULL THEN LEAST(l.rank, f.least) END
    FROM (
        SELECT DISTINCT ON (r.lane) r.lane, r.key, r.queue, r.namespace, r.kind, min(r.rank) OVER (PARTITION BY r.lane) AS least
        FROM ranked r WHERE NOT r.private AND r.seq IS NOT NULL ORDER BY r.lane, r.seq) f
    WHERE l.key = f.lane AND l.holder IS NULL),
labelled AS (
    INSERT INTO slipway.task_labels (kv, created_at, task)
    SELECT e.key || '=' || e.value, r.at, r.key FROM ranked r, jsonb_each_text(r.labels) e),
noted AS (
    INSERT INTO slipway.events (task, type, actor, at, data)
    SELECT r.key, e.type, coalesce(nullif(r.by, ''), @by), r.at, NULL
    FROM ranked r CROSS JOIN LATERAL (
        SELECT 'submitted' AS type UNION ALL SELECT 'coalesced' FROM generate_series(1, r.absorbed)) e),
audited AS (
    INSERT INTO slipway.audit (at, actor, peer, request, verb, resource, name, namespace, after)
    SELECT clock.at, @by, x.peer, x.request, x.verb, 'tasks', x.name, x.namespace, x.after
    FROM jsonb_to_recordset(CAST(@audit AS jsonb)) AS x (peer text, request text, verb text, name text, namespace text, after jsonb), clock),
needing AS (
    INSERT INTO slipway.deps (task, needs)
    SELECT r.key, coalesce(d.needs_key, n.key)
    FROM jsonb_to_recordset(CAST(@deps AS jsonb)) AS d (ord int, needs_key bigint, needs_id uuid)
    JOIN ranked r ON r.ord = d.ord LEFT JOIN given n ON n.id = d.needs_id),
told AS (
    INSERT INTO slipway.nudges (task)
    SELECT r.key FROM ranked r JOIN jsonb_array_elements_text(CAST(@nudge AS jsonb)) AS o (ord) ON CAST(o.ord AS int) = r.ord)
SELECT ord, key, coalesce(seq, 0) AS seq, in_lane AS lane, due AS run_at, eligible_at, at FROM ranked ORDER BY ord;
