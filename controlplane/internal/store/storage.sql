-- Limits of storage, and what Tasks have reserved of them.

-- name: limits
-- Without a lock, and when: before the cluster is asked what the claims have.
SELECT namespace, storage, slipway.now() AS at FROM slipway.limits
WHERE namespace IN (SELECT jsonb_array_elements_text(CAST(@namespaces AS jsonb)));

-- name: lock
-- Sorted, before all lanes.
SELECT namespace, storage, slipway.now() AS at FROM slipway.limits
WHERE namespace IN (SELECT jsonb_array_elements_text(CAST(@namespaces AS jsonb)))
ORDER BY namespace
FOR NO KEY UPDATE;

-- name: wishes
-- What counts beside the claims as they were read: the wishes of open Tasks, and of those whose last Attempt may have
-- changed a claim since. In a later statement than the limit's lock.
SELECT r.claim, max(r.bytes) AS bytes
FROM slipway.reservations r JOIN slipway.tasks t ON t.key = r.task
WHERE r.namespace = @namespace AND (t.state IN ('queued', 'running')
    OR EXISTS (SELECT 1 FROM slipway.attempts a WHERE a.task = t.key AND a.finished_at >= @since))
GROUP BY r.claim;

-- name: sweep
-- Nobody who read the claims that long ago is let in.
DELETE FROM slipway.reservations r USING slipway.tasks t
WHERE r.namespace = @namespace AND t.key = r.task AND t.ended_at < slipway.now() - @seconds * interval '1 second';

-- name: reserve
INSERT INTO slipway.reservations (task, namespace, claim, bytes)
SELECT x.task, x.namespace, x.claim, x.bytes
FROM jsonb_to_recordset(CAST(@all AS jsonb)) AS x (task bigint, namespace text, claim text, bytes bigint)
ON CONFLICT (task) DO UPDATE SET claim = excluded.claim, bytes = excluded.bytes;

-- name: open
SELECT t.id AS task, r.claim, r.bytes
FROM slipway.reservations r JOIN slipway.tasks t ON t.key = r.task
WHERE r.namespace = @namespace AND t.state IN ('queued', 'running')
ORDER BY r.task;

-- name: set
INSERT INTO slipway.limits (namespace, storage, changed_by, changed_at)
VALUES (@namespace, @storage, @actor, slipway.stamp())
ON CONFLICT (namespace) DO UPDATE SET storage = excluded.storage, changed_by = excluded.changed_by, changed_at = excluded.changed_at;

-- name: unset
DELETE FROM slipway.limits WHERE namespace = @namespace;
