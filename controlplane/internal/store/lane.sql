-- Statements that every operation shares: a lane's lock, what it shows, and how a Task in it ends or enters.
--
-- "(state = 'queued') IS TRUE" beside a key is on purpose: it keeps the planner from reading one of the small partial
-- indexes, which are full of dead entries under load, instead of the primary key.

-- name: lock
SELECT key, queue, namespace, kind, private, holder, last_seq, head, slipway.now() AS now
FROM slipway.lanes WHERE key = @lane
FOR NO KEY UPDATE;

-- name: lock_or_make
-- Locks the lanes that are there, sorted (the sort is below the locks, so that two transactions cannot meet
-- crosswise), then makes those that are not, sorted. One that another transaction makes meanwhile is in neither part;
-- the caller begins anew.
WITH wanted AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(CAST(@lanes AS jsonb)) AS x (key text, queue text, namespace text, kind text, private boolean, must boolean)),
found AS MATERIALIZED (
    SELECT l.key, l.queue, l.namespace, l.kind, l.private, l.holder, l.last_seq, l.head
    FROM slipway.lanes l WHERE l.key IN (SELECT key FROM wanted)
    ORDER BY l.key
    FOR NO KEY UPDATE),
made AS (
    INSERT INTO slipway.lanes (key, queue, namespace, kind, private)
    SELECT w.key, w.queue, w.namespace, w.kind, w.private FROM wanted w
    WHERE w.must AND w.key NOT IN (SELECT key FROM found)
    ORDER BY w.key
    ON CONFLICT (key) DO NOTHING
    RETURNING key, queue, namespace, kind, private, holder, last_seq, head)
SELECT *, slipway.now() AS now FROM found UNION ALL SELECT *, slipway.now() FROM made;

-- name: make
-- Sorted, so that two that make the same lanes wait for each other in one direction.
INSERT INTO slipway.lanes (key, queue, namespace, kind, private)
SELECT key, queue, namespace, kind, private
FROM jsonb_to_recordset(CAST(@lanes AS jsonb)) AS x (key text, queue text, namespace text, kind text, private boolean)
ORDER BY key
ON CONFLICT (key) DO NOTHING;

-- name: show
-- What the lane shows after its queued Tasks changed. Only while there is no holder: the release looks anew.
UPDATE slipway.lanes l SET
    head = h.key, queue = coalesce(h.queue, l.queue), namespace = coalesce(h.namespace, l.namespace),
    kind = coalesce(h.kind, l.kind),
    rank = CASE WHEN NOT h.held THEN m.rank END,
    ready_at = CASE WHEN h.run_at > slipway.now() THEN h.run_at END
FROM (SELECT key, last_seq FROM slipway.lanes WHERE key = @lane AND holder IS NULL) k
LEFT JOIN LATERAL (
    SELECT t.key, t.queue, t.namespace, t.kind, t.held, t.run_at FROM slipway.tasks t
    WHERE t.lane = k.key AND t.state = 'queued' AND t.seq >= k.last_seq ORDER BY t.seq LIMIT 1) h ON true
LEFT JOIN LATERAL (
    SELECT t.rank FROM slipway.tasks t
    WHERE t.lane = k.key AND t.state = 'queued' AND t.seq IS NOT NULL ORDER BY t.rank LIMIT 1) m ON true
WHERE l.key = k.key
RETURNING l.queue;

-- name: release
UPDATE slipway.lanes SET holder = NULL WHERE key = @lane AND holder = @task;

-- name: drop
-- A private lane goes with its one Task.
DELETE FROM slipway.lanes WHERE key = @lane AND private;

-- name: now
SELECT slipway.now() AS now;

-- name: silent
-- Of Tasks that are not tried again: the last Attempt that had started, where its handler was cut off without a word.
SELECT t.key, a.number, a.outcome, a.reason
FROM slipway.tasks t CROSS JOIN LATERAL (
    SELECT number, outcome, reason, silent FROM slipway.attempts
    WHERE task = t.key AND started_at IS NOT NULL AND finished_at IS NOT NULL ORDER BY number DESC LIMIT 1) a
WHERE t.key IN (SELECT CAST(jsonb_array_elements_text(CAST(@tasks AS jsonb)) AS bigint)) AND a.silent;

-- name: end_queued
-- Ends queued Tasks of one locked lane, and nudges whom that concerns: parent, dependents, own children.
WITH clock AS MATERIALIZED (SELECT slipway.stamp() AS at),
ended AS (
    UPDATE slipway.tasks t SET
        state = @state, outcome = @outcome, reason = @reason, ended_at = clock.at, outside = NULL,
        message = coalesce(CAST(@messages AS jsonb) ->> CAST(t.key AS text), @message),
        cancel_at = CASE WHEN @state = 'canceled' THEN coalesce(t.cancel_at, clock.at) ELSE t.cancel_at END,
        cancel_by = CASE WHEN @state = 'canceled' AND t.cancel_at IS NULL THEN @by ELSE t.cancel_by END
    FROM clock
    WHERE t.key IN (SELECT CAST(jsonb_array_elements_text(CAST(@tasks AS jsonb)) AS bigint)) AND (t.state = 'queued') IS TRUE
    RETURNING t.key, t.id, t.parent, t.children, t.message, t.spec ? 'objects' AS named, clock.at),
told AS (
    INSERT INTO slipway.nudges (task)
    SELECT n.task FROM (
        SELECT parent AS task FROM ended WHERE parent IS NOT NULL
        UNION SELECT d.task FROM slipway.deps d JOIN ended ON d.needs = ended.key
        UNION SELECT c.key FROM slipway.tasks c JOIN ended ON c.parent = ended.key WHERE ended.children > 0) n
    RETURNING task),
noted AS (
    INSERT INTO slipway.events (task, type, actor, at, data)
    SELECT key, @state, @by, at, jsonb_build_object('reason', CAST(@reason AS text), 'message', message) FROM ended)
SELECT (SELECT count(*) FROM ended) AS ended, (SELECT count(*) FROM told) AS nudged, (SELECT jsonb_agg(key) FROM ended WHERE named) AS named;

-- name: ask_stop
-- Asks the running Task of a locked lane to stop; only the first ask counts.
WITH clock AS MATERIALIZED (SELECT slipway.stamp() AS at),
asked AS (
    UPDATE slipway.tasks t SET cancel_at = clock.at, cancel_by = @by, stop = @why
    FROM clock WHERE t.key = @task AND (t.state = 'running') IS TRUE AND t.cancel_at IS NULL
    RETURNING t.key, t.children, clock.at),
stopped AS (
    UPDATE slipway.attempts a SET stop = @why, stop_note = @note, stop_at = asked.at
    FROM asked WHERE a.task = asked.key AND (a.finished_at IS NULL) IS TRUE AND a.stop = ''
    RETURNING a.id),
told AS (
    INSERT INTO slipway.nudges (task)
    SELECT n.key FROM (
        SELECT c.key FROM slipway.tasks c JOIN asked ON c.parent = asked.key
        WHERE asked.children > 0 AND c.state IN ('queued', 'running')
        UNION SELECT asked.key FROM asked WHERE asked.children > 0) n
    RETURNING task),
noted AS (
    INSERT INTO slipway.events (task, type, actor, at, data)
    SELECT key, 'cancel_requested', @by, at, jsonb_build_object('reason', CAST(@why AS text), 'message', CAST(@note AS text)) FROM asked)
SELECT (SELECT count(*) FROM asked) AS asked, (SELECT count(*) FROM told) AS nudged, (SELECT max(id) FROM stopped) AS attempt;

-- name: enter
-- A Task that stood outside gets its place at the lane's end, or in front of the others where it replaces.
UPDATE slipway.tasks t SET
    seq = coalesce(CAST(@front AS bigint), nextval('slipway.task_seq')), outside = NULL,
    eligible_at = c.at, rank = c.at + t.class * interval '120 seconds'
FROM (SELECT slipway.stamp() AS at) c
WHERE t.key = @task AND (t.state = 'queued' AND t.seq IS NULL) IS TRUE;

-- name: gate
UPDATE slipway.tasks SET outside = @outside WHERE key = @task AND (state = 'queued' AND seq IS NULL) IS TRUE AND outside <> @outside;

-- name: superseded
-- Who is in the way of a Task that replaces kinds.
SELECT t.key, t.id, t.state FROM slipway.tasks t
WHERE t.kind IN (SELECT jsonb_array_elements_text(CAST(@kinds AS jsonb)))
    AND t.lane = @lane AND t.state = 'queued' AND t.seq IS NOT NULL
UNION ALL
SELECT t.key, t.id, t.state FROM slipway.lanes l JOIN slipway.tasks t ON t.key = l.holder
WHERE l.key = @lane AND t.kind IN (SELECT jsonb_array_elements_text(CAST(@kinds AS jsonb)));

-- name: front
-- The place before the first queued Task, where there is one; room says whether it is still behind the last one run. A
-- Task in back-off is that last one: it holds the lane, and nothing goes before it.
SELECT t.seq - 1 AS seq, t.seq - 1 > l.last_seq AS room
FROM slipway.lanes l JOIN LATERAL (
    SELECT t.seq FROM slipway.tasks t WHERE t.lane = l.key AND t.state = 'queued' AND t.seq > l.last_seq
    ORDER BY t.seq LIMIT 1) t ON true
WHERE l.key = @lane;

-- name: event
INSERT INTO slipway.events (task, attempt, type, actor, at, data)
VALUES (@task, @attempt, @type, @actor, slipway.stamp(), CAST(@data AS jsonb));
