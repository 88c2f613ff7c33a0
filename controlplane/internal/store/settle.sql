-- Settle: what the end of one Task means for others. Each nudged Task is looked at in a transaction of its own, under
-- its own lane's lock; a child never locks its parent.

-- name: nudged
SELECT task FROM slipway.nudges GROUP BY task ORDER BY min(id) LIMIT @limit;

-- name: unnudge
-- Only what is seen here: a nudge that commits later stays for another look.
DELETE FROM slipway.nudges WHERE task = @task;

-- name: due
SELECT key FROM slipway.tasks WHERE state = 'queued' AND outside = 'delay' AND run_at <= slipway.now()
ORDER BY run_at LIMIT @limit;

-- name: expired
SELECT key FROM slipway.tasks WHERE state = 'queued' AND queue_by <= slipway.now() ORDER BY queue_by LIMIT @limit;

-- name: overrun
-- Composites whose run deadline, counted from the claim, is over.
SELECT key FROM slipway.tasks
WHERE state = 'running' AND children > 0 AND cancel_at IS NULL
    AND started_at + CAST(spec ->> 'run_deadline' AS float8) * interval '1 second' <= slipway.now()
    AND CAST(spec ->> 'run_deadline' AS float8) > 0
ORDER BY started_at LIMIT @limit;

-- name: facts
-- Everything that decides, in a later statement than the lane's lock.
SELECT t.key, t.id, t.state, t.children, t.cancel_at, t.seq IS NULL AND t.state = 'queued' AS is_outside, t.outside, t.run_if, t.stop,
    t.run_at <= slipway.now() AS due, t.queue_by <= slipway.now() AS expired,
    array_to_json(t.replaces) AS replaces,
    p.state AS parent_state, p.cancel_at AS parent_cancel_at, p.id AS parent_id, p.cancel_by AS parent_cancel_by,
    o.open_needs,
    (SELECT n.id FROM slipway.deps d JOIN slipway.tasks n ON n.key = d.needs
        WHERE d.task = t.key AND n.state IN ('failed', 'canceled') ORDER BY n.key LIMIT 1) AS bad_need,
    o.open_need, c.open_children, c.succeeded, c.failed, c.canceled,
    (SELECT b.id FROM slipway.tasks b WHERE b.parent = t.key AND b.state IN ('failed', 'canceled') ORDER BY b.key LIMIT 1) AS bad_child,
    h.id AS holder_id, x.actor AS held_by
FROM slipway.tasks t
LEFT JOIN slipway.tasks p ON p.key = t.parent
CROSS JOIN LATERAL (
    SELECT count(*) AS open_needs, (array_agg(n.id ORDER BY n.key))[1] AS open_need
    FROM slipway.deps d JOIN slipway.tasks n ON n.key = d.needs WHERE d.task = t.key AND n.state IN ('queued', 'running')) o
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE c.state IN ('queued', 'running')) AS open_children,
        count(*) FILTER (WHERE c.state = 'succeeded') AS succeeded,
        count(*) FILTER (WHERE c.state = 'failed') AS failed,
        count(*) FILTER (WHERE c.state = 'canceled') AS canceled
    FROM slipway.tasks c WHERE c.parent = t.key) c
LEFT JOIN slipway.lanes l ON l.key = t.lane LEFT JOIN slipway.tasks h ON h.key = l.holder
LEFT JOIN slipway.holds x ON x.task = t.key
WHERE t.key = @task;

-- name: end_parent
-- A composite Task ends, with its dependents nudged. Its lane is released by lane/release.
WITH clock AS MATERIALIZED (SELECT slipway.stamp() AS at),
ended AS (
    UPDATE slipway.tasks t SET state = @state, outcome = @outcome, reason = @reason, message = @message, ended_at = clock.at
    FROM clock WHERE t.key = @task AND (t.state = 'running' AND t.children > 0) IS TRUE
    RETURNING t.key, t.parent, t.spec ? 'objects' AS named, clock.at),
told AS (
    INSERT INTO slipway.nudges (task)
    SELECT n.task FROM (
        SELECT parent AS task FROM ended WHERE parent IS NOT NULL
        UNION SELECT d.task FROM slipway.deps d JOIN ended ON d.needs = ended.key) n
    RETURNING task),
noted AS (
    INSERT INTO slipway.events (task, type, actor, at, data)
    SELECT key, @state, @replica, at, jsonb_build_object('reason', CAST(@reason AS text), 'message', CAST(@message AS text)) FROM ended)
SELECT (SELECT count(*) FROM ended) AS ended, (SELECT count(*) FROM told) AS nudged, (SELECT jsonb_agg(key) FROM ended WHERE named) AS named;
