-- Claim, in statements of their own (DESIGN 4.5): a statement that waits for a lock cannot count what was committed
-- while it waited.

-- name: queue
-- Plain FOR UPDATE: a claimer that skipped the locked row would lose the wake-up that called it.
SELECT name, cap, ns_cap, paused, draining, coalesce(rate, 0) AS rate, burst, tokens, refilled_at
FROM slipway.queues WHERE name = @queue
FOR UPDATE;

-- name: room
SELECT slipway.now() AS now, live.n AS live, coalesce(live.oldest, (SELECT last_value FROM slipway.attempts_id_seq)) AS oldest,
    EXISTS (SELECT 1 FROM slipway.freezes WHERE ended_at IS NULL AND expires_at > slipway.now()
        AND namespace IS NULL AND (queue IS NULL OR queue = @queue)) AS frozen,
    (SELECT jsonb_agg(namespace) FROM slipway.freezes WHERE ended_at IS NULL AND expires_at > slipway.now()
        AND namespace IS NOT NULL AND (queue IS NULL OR queue = @queue)) AS frozen_namespaces,
    (SELECT jsonb_object_agg(kind, percent) FROM slipway.kind_switches WHERE executor = 'off') AS off_kinds,
    (SELECT min(ready_at) FROM slipway.lanes WHERE queue = @queue AND holder IS NULL AND ready_at IS NOT NULL) AS ready_at,
    of.lineage
FROM (SELECT pg_postmaster_start_time() || '/' || CAST('slipway.fences'::regclass AS oid) AS lineage) of
CROSS JOIN LATERAL (SELECT count(*) AS n, min(id) AS oldest FROM slipway.attempts
    WHERE queue = @queue AND id >= CASE WHEN of.lineage = @lineage THEN CAST(@live_from AS bigint) ELSE 0 END AND finished_at IS NULL) live;

-- name: ready
-- Lanes whose head's back-off is over are claimable again.
UPDATE slipway.lanes SET ready_at = NULL
WHERE key IN (
    SELECT key FROM slipway.lanes WHERE queue = @queue AND holder IS NULL AND ready_at <= slipway.now()
    ORDER BY ready_at LIMIT 500
    FOR NO KEY UPDATE SKIP LOCKED);

-- name: lanes
-- The namespaces with something ready (a loose index scan), the most urgent lanes of each, and of these in turn: what
-- a namespace has running counts as turns it had. A lane that is locked is left out: who holds it wakes us after.
-- Where it is known at which rank the ready lanes of each namespace begin, only those are looked at, from there on.
WITH RECURSIVE walked AS (
    (SELECT namespace FROM slipway.lanes
     WHERE CAST(@least AS jsonb) IS NULL AND queue = @queue AND holder IS NULL AND ready_at IS NULL AND rank IS NOT NULL
     ORDER BY namespace LIMIT 1)
    UNION ALL
    SELECT (SELECT l.namespace FROM slipway.lanes l
            WHERE l.queue = @queue AND l.holder IS NULL AND l.ready_at IS NULL AND l.rank IS NOT NULL
                AND l.namespace > s.namespace ORDER BY l.namespace LIMIT 1)
    FROM walked s WHERE s.namespace IS NOT NULL),
spaces AS (
    SELECT namespace, CAST('-infinity' AS timestamptz) AS least FROM walked WHERE namespace IS NOT NULL
    UNION ALL
    SELECT key, CAST(value AS timestamptz) FROM jsonb_each_text(CAST(@least AS jsonb))),
live AS (
    SELECT namespace, count(*) AS n FROM slipway.attempts
    WHERE queue = @queue AND id >= @live_from AND finished_at IS NULL GROUP BY namespace),
room AS MATERIALIZED (
    SELECT s.namespace, s.least, coalesce(live.n, 0) AS live, LEAST(CAST(@want AS int), CAST(@ns_cap AS int) - coalesce(live.n, 0)) AS free
    FROM spaces s LEFT JOIN live USING (namespace)
    WHERE s.namespace NOT IN (SELECT jsonb_array_elements_text(CAST(@frozen AS jsonb)))),
top AS MATERIALIZED (
    SELECT room.namespace, room.free, top.key, top.rank,
        room.live + row_number() OVER (PARTITION BY room.namespace ORDER BY top.rank) AS turn
    FROM room CROSS JOIN LATERAL (
        SELECT l.key, l.rank FROM slipway.lanes l
        WHERE l.queue = @queue AND l.namespace = room.namespace AND l.rank >= room.least AND l.holder IS NULL AND l.ready_at IS NULL
            AND l.rank IS NOT NULL
            AND CASE WHEN CAST(@off AS jsonb) ->> l.kind IS NULL THEN true
                ELSE slipway.lane_part(l.key) >= CAST(CAST(@off AS jsonb) ->> l.kind AS int) END
            AND (CAST(@mode AS int) = 0 OR (CAST(@mode AS int) = 1) = EXISTS (
                SELECT 1 FROM slipway.tasks h LEFT JOIN slipway.kind_switches k ON k.kind = h.kind AND slipway.lane_part(h.lane) < k.percent
                WHERE h.key = l.head AND CAST(h.spec ->> 'inline_ok' AS boolean)
                    AND h.kind IN (SELECT jsonb_array_elements_text(CAST(@inline AS jsonb)))
                    AND (CAST(@mode AS int) = 1 OR coalesce(k.executor, h.executor) = 'inline'
                        OR h.namespace IN (SELECT jsonb_array_elements_text(CAST(@fallback AS jsonb))))))
        ORDER BY l.rank LIMIT GREATEST(room.free, 1)) top),
candidates AS MATERIALIZED (SELECT key FROM top WHERE free > 0 ORDER BY turn, rank LIMIT @want),
taken AS (
    -- By key alone, whatever the planner thinks of the table's size.
    SELECT l.key, l.namespace, l.kind FROM slipway.lanes l
    WHERE l.key = ANY (ARRAY(SELECT key FROM candidates))
        AND (l.queue = @queue AND l.holder IS NULL AND l.ready_at IS NULL AND l.rank IS NOT NULL) IS TRUE
    FOR NO KEY UPDATE SKIP LOCKED)
SELECT coalesce((SELECT jsonb_agg(jsonb_build_object('key', key, 'namespace', namespace, 'kind', kind)) FROM taken), '[]') AS lanes,
    (SELECT count(*) FROM candidates) AS candidates, (SELECT count(*) FROM taken) AS taken,
    EXISTS (SELECT 1 FROM room WHERE free <= 0) AS capped,
    (SELECT jsonb_object_agg(f.namespace, f.rank) FROM (SELECT namespace, min(rank) AS rank FROM top GROUP BY namespace) f) AS firsts;

-- name: heads
-- The heads, read in a later statement than the lanes' locks. A composite Task becomes running without an Attempt. What may
-- run inline here does so where it is to, or where its namespace takes no Jobs.
WITH clock AS MATERIALIZED (SELECT slipway.stamp() AS at),
picked AS (
    SELECT * FROM jsonb_to_recordset(CAST(@lanes AS jsonb)) AS x (key text, namespace text, kind text)),
heads AS MATERIALIZED (
    SELECT h.*, x.fell, CASE WHEN x.may AND x.wants = 'inline' OR x.fell THEN 'inline' ELSE 'job' END AS run_by FROM picked p
    CROSS JOIN LATERAL (SELECT key, last_seq FROM slipway.lanes WHERE key = p.key LIMIT 1) l
    CROSS JOIN LATERAL (
        SELECT t.* FROM slipway.tasks t
        WHERE t.lane = l.key AND t.state = 'queued' AND t.seq >= l.last_seq ORDER BY t.seq LIMIT 1) h
    LEFT JOIN slipway.kind_switches k ON k.kind = h.kind AND slipway.lane_part(h.lane) < k.percent
    CROSS JOIN LATERAL (SELECT coalesce(k.executor, h.executor) AS wants, coalesce(CAST(h.spec ->> 'inline_ok' AS boolean), false)
        AND h.kind IN (SELECT jsonb_array_elements_text(CAST(@inline AS jsonb))) AS may) w
    CROSS JOIN LATERAL (SELECT w.wants, w.may, w.may AND w.wants = 'job' AND (CAST(@mode AS int) = 1
        OR h.namespace IN (SELECT jsonb_array_elements_text(CAST(@fallback AS jsonb)))) AS fell) x, clock
    WHERE h.queue = @queue AND h.namespace = p.namespace AND h.kind = p.kind AND NOT h.held AND h.run_at <= clock.at
        AND h.min_binary <= slipway.session_version()
        AND x.wants <> 'off' AND (x.may OR CAST(@mode AS int) <> 1)),
placed AS (SELECT heads.*, row_number() OVER (PARTITION BY run_by ORDER BY seq) AS place FROM heads),
fenced AS MATERIALIZED (SELECT placed.*, nextval('slipway.fences') AS fence FROM placed
    WHERE run_by = 'job' OR place <= CAST(@inline_room AS int) ORDER BY seq),
running AS (
    UPDATE slipway.tasks t SET state = 'running', queue_by = NULL, started_at = coalesce(t.started_at, clock.at),
        attempts = t.attempts + CASE WHEN t.children = 0 THEN 1 ELSE 0 END
    FROM fenced f, clock WHERE t.key = f.key AND (t.state = 'queued') IS TRUE),
made AS (
    INSERT INTO slipway.attempts (task, number, fence, lane, queue, namespace, kind, executor, replica, state, claimed_at, min_binary, wait_until)
    SELECT f.key, f.attempts + 1, f.fence, f.lane, f.queue, f.namespace, f.kind, f.run_by, @replica, 'leased', clock.at, f.min_binary,
        CASE WHEN f.min_binary > 0 THEN timestamptz '9999-12-31' END
    FROM fenced f, clock WHERE f.children = 0
    RETURNING id, task, number, fence, executor, claimed_at),
held AS (
    UPDATE slipway.lanes l SET holder = f.key, fence = f.fence, last_seq = f.seq, head = NULL
    FROM fenced f WHERE l.key = f.lane),
noted AS (
    INSERT INTO slipway.events (task, attempt, type, actor, at, data)
    SELECT f.key, coalesce(m.number, 0), 'claimed', @replica, clock.at,
        CASE WHEN m.id IS NOT NULL THEN jsonb_build_object('attempt', m.id, 'fence', m.fence) ||
            CASE WHEN f.run_by = 'inline' THEN jsonb_build_object('executor', 'inline', 'fallback', f.fell) ELSE '{}' END END
    FROM fenced f LEFT JOIN made m ON m.task = f.key, clock),
told AS (
    -- The parent too: all its children may have ended before.
    INSERT INTO slipway.nudges (task)
    SELECT c.key FROM slipway.tasks c JOIN fenced f ON c.parent = f.key WHERE f.children > 0
    UNION ALL
    SELECT f.key FROM fenced f WHERE f.children > 0)
SELECT f.key, f.id, f.seq, f.lane, f.queue, f.namespace, f.kind, f.name, f.mode, f.class, f.executor, f.params, f.spec, f.labels,
    'running' AS state, f.outcome, f.reason, f.message, f.run_at, f.eligible_at, f.rank,
    f.attempts + CASE WHEN f.children = 0 THEN 1 ELSE 0 END AS attempts, f.spent_retry, f.spent_lost, f.held, f.children, f.absorbed,
    f.parent, p.id AS parent_id, f.retry_of, r.id AS retry_of_id, f.run_if, f.created_by, f.created_at,
    coalesce(f.started_at, clock.at) AS started_at,
    m.id AS attempt_id, m.number, f.fence, m.executor AS run_by, m.claimed_at
FROM fenced f CROSS JOIN clock LEFT JOIN made m ON m.task = f.key
LEFT JOIN slipway.tasks p ON p.key = f.parent LEFT JOIN slipway.tasks r ON r.key = f.retry_of
ORDER BY f.seq;

-- name: spend
UPDATE slipway.queues SET tokens = @tokens, refilled_at = @now WHERE name = @queue;
