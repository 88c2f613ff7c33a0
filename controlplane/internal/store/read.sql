-- Reads.

-- name: tasks
SELECT t.*, p.id AS parent_id, r.id AS retry_of_id, o.id AS root_id FROM slipway.tasks t
LEFT JOIN slipway.tasks p ON p.key = t.parent LEFT JOIN slipway.tasks r ON r.key = t.retry_of
LEFT JOIN slipway.tasks o ON o.key = t.root
WHERE t.id IN (SELECT CAST(jsonb_array_elements_text(CAST(@ids AS jsonb)) AS uuid));

-- name: named
SELECT t.id, t.namespace, t.kind
FROM jsonb_array_elements_text(CAST(@ids AS jsonb)) WITH ORDINALITY AS x (id, ord)
JOIN slipway.tasks t ON t.id = CAST(x.id AS uuid) ORDER BY x.ord;

-- name: task_of_attempt
SELECT t.*, p.id AS parent_id, r.id AS retry_of_id, slipway.now() AS now FROM slipway.attempts a JOIN slipway.tasks t ON t.key = a.task
LEFT JOIN slipway.tasks p ON p.key = t.parent LEFT JOIN slipway.tasks r ON r.key = t.retry_of
WHERE a.id = @attempt;

-- name: views
-- What Tasks that have not ended wait for.
SELECT t.key, slipway.now() AS now, t.outside, l.holder = t.key AS holds, h.id AS holder_id,
    EXISTS (SELECT 1 FROM slipway.attempts s WHERE s.lane = t.lane AND s.finished_at IS NULL AND (s.stop <> '' OR s.wait = 'stopping')) AS stopping,
    (SELECT f.id FROM slipway.tasks f WHERE f.lane = t.lane AND f.state = 'queued' AND f.seq IS NOT NULL ORDER BY f.seq LIMIT 1) AS head_id,
    (SELECT jsonb_agg(n.id ORDER BY n.key) FROM slipway.deps d JOIN slipway.tasks n ON n.key = d.needs
        WHERE d.task = t.key AND n.state IN ('queued', 'running')) AS needs,
    q.paused OR q.draining AS paused, q.note AS queue_note, coalesce(q.rate, 0) AS rate, q.cap, q.ns_cap,
    (SELECT count(*) FROM slipway.attempts a WHERE a.queue = t.queue AND a.finished_at IS NULL) AS live,
    (SELECT count(*) FROM slipway.attempts a WHERE a.queue = t.queue AND a.namespace = t.namespace AND a.finished_at IS NULL) AS ns_live,
    (SELECT f.actor || ': ' || f.reason FROM slipway.freezes f WHERE f.ended_at IS NULL AND f.expires_at > slipway.now()
        AND (f.namespace IS NULL OR f.namespace = t.namespace) AND (f.queue IS NULL OR f.queue = t.queue) LIMIT 1) AS frozen,
    (SELECT x.actor || ': ' || x.reason FROM slipway.holds x WHERE x.task = t.key) AS held_by,
    coalesce(k.executor, t.executor) = 'off' AS kind_off, k.actor || CASE WHEN k.reason <> '' THEN ': ' || k.reason ELSE '' END AS switched_by,
    q.tokens, q.refilled_at
FROM slipway.tasks t LEFT JOIN slipway.lanes l ON l.key = t.lane LEFT JOIN slipway.tasks h ON h.key = l.holder AND h.key <> t.key
LEFT JOIN slipway.queues q ON q.name = t.queue
LEFT JOIN slipway.kind_switches k ON k.kind = t.kind AND slipway.lane_part(t.lane) < k.percent
WHERE t.key IN (SELECT CAST(jsonb_array_elements_text(CAST(@tasks AS jsonb)) AS bigint));

-- name: needs
SELECT d.task, n.id, t.run_if FROM slipway.deps d JOIN slipway.tasks n ON n.key = d.needs JOIN slipway.tasks t ON t.key = d.task
WHERE d.task IN (SELECT CAST(jsonb_array_elements_text(CAST(@tasks AS jsonb)) AS bigint))
ORDER BY d.task, d.needs;

-- name: events
SELECT e.xid || '-' || e.id AS position, t.id AS task_id, e.attempt, e.type, e.actor, e.at, e.data
FROM slipway.events e JOIN slipway.tasks t ON t.key = e.task
WHERE t.id = CAST(@id AS uuid) AND (e.xid, e.id) > (CAST(CAST(@xid AS text) AS xid8), CAST(@after AS bigint))
    AND e.xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY e.xid, e.id LIMIT @limit;

-- name: children
SELECT t.*, @parent_id AS parent_id FROM slipway.tasks t WHERE t.parent = @parent ORDER BY t.key;
