-- Epochs of partitions: into how many parts the lanes that begin alike are cut.

-- name: keep
-- Locks those that are as wanted, and makes those that are not there. One that another transaction makes meanwhile is in
-- neither part, and looked at anew under its lock.
WITH wanted AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(CAST(@epochs AS jsonb)) AS x (lanes text, parts int)),
made AS (
    INSERT INTO slipway.epochs (lanes, parts)
    SELECT w.lanes, w.parts FROM wanted w
    WHERE NOT EXISTS (SELECT 1 FROM slipway.epochs e WHERE e.lanes = w.lanes)
    ORDER BY w.lanes
    ON CONFLICT (lanes) DO NOTHING
    RETURNING lanes),
found AS MATERIALIZED (
    SELECT e.lanes FROM slipway.epochs e
    WHERE (e.lanes, e.parts) IN (SELECT lanes, parts FROM wanted)
    ORDER BY e.lanes
    FOR SHARE)
SELECT lanes FROM found UNION ALL SELECT lanes FROM made;

-- name: lock
SELECT lanes, parts FROM slipway.epochs
WHERE lanes IN (SELECT jsonb_array_elements_text(CAST(@lanes AS jsonb)))
ORDER BY lanes
FOR NO KEY UPDATE;

-- name: open
-- One open Task of each epoch, in a later statement than the lock: first of those that are in a lane, then of those that
-- wait outside.
SELECT x.lanes, t.id
FROM jsonb_to_recordset(CAST(@epochs AS jsonb)) AS x (lanes text, parts int)
CROSS JOIN LATERAL (
    (SELECT coalesce(l.holder, l.head) AS key
     FROM generate_series(0, x.parts - 1) n JOIN slipway.lanes l ON l.key = x.lanes || n || '-of-' || x.parts
     WHERE coalesce(l.holder, l.head) IS NOT NULL LIMIT 1)
    UNION ALL
    (SELECT o.key FROM slipway.tasks o
     WHERE o.state = 'queued' AND o.namespace = split_part(split_part(x.lanes, ':', 2), '/', 1)
        AND starts_with(o.lane, x.lanes) AND o.lane LIKE '%-of-' || x.parts LIMIT 1)
    LIMIT 1) k
JOIN slipway.tasks t ON t.key = k.key;

-- name: turn
UPDATE slipway.epochs e SET parts = x.parts
FROM jsonb_to_recordset(CAST(@epochs AS jsonb)) AS x (lanes text, parts int)
WHERE e.lanes = x.lanes;
