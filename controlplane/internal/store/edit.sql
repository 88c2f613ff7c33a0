-- What people change of a stored Task. Everything but the deletion runs under the lane's lock.

-- name: read
-- In a later statement than the lane's lock.
SELECT key, id, state, attempts, coalesce(seq, 0) AS seq, coalesce(outside, '') AS outside, class, run_at, held, slipway.now() AS now
FROM slipway.tasks WHERE key = @task;

-- name: change
-- leave takes a Task out of its lane: its first run_at lies ahead again. fresh moves since when it could run.
UPDATE slipway.tasks t SET
    class = CAST(@class AS smallint), run_at = c.due,
    seq = CASE WHEN CAST(@leave AS boolean) THEN NULL ELSE t.seq END,
    outside = CASE WHEN CAST(@leave AS boolean) THEN 'delay' ELSE t.outside END,
    eligible_at = CASE WHEN CAST(@fresh AS boolean) THEN GREATEST(c.due, c.at) ELSE t.eligible_at END,
    rank = CASE WHEN CAST(@fresh AS boolean) THEN GREATEST(c.due, c.at) ELSE t.eligible_at END + CAST(@class AS smallint) * interval '120 seconds',
    queue_by = CASE WHEN CAST(@fresh AS boolean) AND t.queue_by IS NOT NULL
        THEN GREATEST(c.due, c.at) + CAST(t.spec ->> 'queue_deadline' AS float8) * interval '1 second' ELSE t.queue_by END
FROM (SELECT at, coalesce(CAST(@run_at AS timestamptz), at) AS due FROM (SELECT slipway.stamp() AS at) s) c
WHERE t.key = @task AND (t.state = 'queued') IS TRUE;

-- name: nudge
INSERT INTO slipway.nudges (task) VALUES (@task);

-- name: lock_ended
-- No lane is locked with it: an ended Task stands in none. A submit that names it holds it by a key share.
SELECT key, id, state, kind, namespace, name, lane, parent, created_by FROM slipway.tasks WHERE id = @id
FOR UPDATE;

-- name: in_the_way
SELECT x.why, x.id, x.state FROM (
    SELECT 'dependent' AS why, n.id, n.state, n.key FROM slipway.deps d JOIN slipway.tasks n ON n.key = d.task
    WHERE d.needs = @task AND n.state IN ('queued', 'running')
    UNION ALL
    SELECT 'child', c.id, c.state, c.key FROM slipway.tasks c WHERE c.parent = @task AND c.state IN ('queued', 'running')
    UNION ALL
    SELECT 'parent', p.id, p.state, p.key FROM slipway.tasks t JOIN slipway.tasks p ON p.key = t.parent
    WHERE t.key = @task AND p.state IN ('queued', 'running')
    UNION ALL
    SELECT 'closing', t.id, t.state, t.key FROM slipway.tasks t
    WHERE t.key = @task AND EXISTS (SELECT 1 FROM slipway.attempts a WHERE a.task = t.key AND a.closed_at IS NULL)) x
ORDER BY x.why = 'closing', x.key LIMIT 1;

-- name: delete
-- Attempts, labels, holds and what it waited for go with the row.
WITH tails AS (
    DELETE FROM slipway.logs WHERE attempt IN (SELECT id FROM slipway.attempts WHERE task = @task)),
history AS (
    DELETE FROM slipway.events WHERE task = @task),
told AS (
    DELETE FROM slipway.nudges WHERE task = @task)
DELETE FROM slipway.tasks WHERE key = @task AND (state IN ('succeeded', 'failed', 'canceled')) IS TRUE;
