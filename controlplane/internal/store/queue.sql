-- Queues, freezes, switches and holds.

-- name: waiting
SELECT q.max_queued, (
    SELECT count(*) FROM (
        SELECT 1 FROM slipway.tasks t WHERE t.queue = q.name AND t.namespace = @namespace AND t.state = 'queued'
        LIMIT q.max_queued + 1) few) AS waiting
FROM slipway.queues q WHERE q.name = @queue;

-- name: list
SELECT q.name, q.cap, q.ns_cap, q.max_queued, coalesce(q.rate, 0) AS rate, q.burst, q.paused, q.draining, q.note,
    (SELECT count(*) FROM (SELECT 1 FROM slipway.tasks t WHERE t.queue = q.name AND t.state = 'queued' LIMIT 10001) few) AS queued,
    (SELECT count(*) FROM slipway.attempts a WHERE a.queue = q.name AND a.finished_at IS NULL) AS running
FROM slipway.queues q ORDER BY q.name;

-- name: set
INSERT INTO slipway.queues AS q (name, cap, ns_cap, max_queued, rate, burst, paused, draining, note, changed_by, changed_at)
VALUES (@name, @cap, @ns_cap, @max_queued, @rate, @burst, @paused, @draining, @note, @actor, slipway.stamp())
ON CONFLICT (name) DO UPDATE SET cap = excluded.cap, ns_cap = excluded.ns_cap, max_queued = excluded.max_queued,
    rate = excluded.rate, burst = excluded.burst, tokens = LEAST(q.tokens, excluded.burst), paused = excluded.paused,
    draining = excluded.draining, note = excluded.note, changed_by = excluded.changed_by, changed_at = excluded.changed_at;

-- name: lock
-- The claim locks it in the same way.
SELECT name, cap, ns_cap, max_queued, coalesce(rate, 0) AS rate, burst, paused, draining, note
FROM slipway.queues WHERE name = @name
FOR UPDATE;

-- name: limits
-- What a namespace may use of each queue, and what it uses.
SELECT q.name, q.cap, q.ns_cap, q.max_queued,
    (SELECT count(*) FROM (SELECT 1 FROM slipway.tasks t WHERE t.queue = q.name AND t.namespace = @namespace AND t.state = 'queued'
        LIMIT q.max_queued + 1) few) AS queued,
    (SELECT count(*) FROM slipway.attempts a WHERE a.queue = q.name AND a.namespace = @namespace AND a.finished_at IS NULL) AS running
FROM slipway.queues q ORDER BY q.name;

-- name: lane
SELECT l.key, l.queue, l.namespace, l.kind, l.fence, h.id AS holder_id, f.id AS head_id,
    (SELECT count(*) FROM (SELECT 1 FROM slipway.tasks t WHERE t.lane = l.key AND t.state = 'queued' AND t.seq IS NOT NULL LIMIT 10001) few) AS queued
FROM slipway.lanes l LEFT JOIN slipway.tasks h ON h.key = l.holder
LEFT JOIN LATERAL (
    SELECT t.id FROM slipway.tasks t
    WHERE t.lane = l.key AND t.state = 'queued' AND t.seq >= l.last_seq ORDER BY t.seq LIMIT 1) f ON true
WHERE l.key = @lane;

-- name: line
SELECT t.id, t.kind, t.class, t.mode, t.absorbed, t.held, t.created_at FROM slipway.tasks t
WHERE t.lane = @lane AND t.state = 'queued' AND t.seq IS NOT NULL ORDER BY t.seq LIMIT @limit;

-- name: audit
INSERT INTO slipway.audit (at, actor, peer, request, verb, resource, name, namespace, before, after)
VALUES (slipway.stamp(), @actor, @peer, @request, @verb, @resource, @name, @namespace, CAST(@before AS jsonb), CAST(@after AS jsonb));

-- name: freeze
INSERT INTO slipway.freezes (namespace, queue, actor, reason, created_at, expires_at)
SELECT nullif(@namespace, ''), nullif(@queue, ''), @actor, @reason, c.at, c.at + @seconds * interval '1 second'
FROM (SELECT slipway.stamp() AS at) c
RETURNING id, created_at, expires_at;

-- name: thaw
UPDATE slipway.freezes SET ended_at = slipway.stamp(), ended_by = @actor
WHERE id = @id AND ended_at IS NULL AND expires_at > slipway.now()
RETURNING coalesce(namespace, '') AS namespace;

-- name: freezes
SELECT id, coalesce(namespace, '') AS namespace, coalesce(queue, '') AS queue, actor, reason, created_at, expires_at
FROM slipway.freezes WHERE ended_at IS NULL AND expires_at > slipway.now() ORDER BY id;

-- name: switch
INSERT INTO slipway.kind_switches (kind, executor, percent, actor, reason, changed_at)
VALUES (@kind, @executor, @percent, @actor, @reason, slipway.stamp())
ON CONFLICT (kind) DO UPDATE SET executor = excluded.executor, percent = excluded.percent, actor = excluded.actor, reason = excluded.reason,
    changed_at = excluded.changed_at;

-- name: switches
SELECT kind, executor, percent, actor, reason, changed_at FROM slipway.kind_switches ORDER BY kind;

-- name: switched
SELECT executor, percent, reason FROM slipway.kind_switches WHERE kind = @kind FOR UPDATE;

-- name: unswitch
DELETE FROM slipway.kind_switches WHERE kind = @kind;

-- name: hold
INSERT INTO slipway.holds (task, actor, reason, held_at) VALUES (@task, @actor, @reason, slipway.stamp())
ON CONFLICT (task) DO NOTHING;

-- name: unhold
DELETE FROM slipway.holds WHERE task = @task;

-- name: held
UPDATE slipway.tasks SET held = @held WHERE key = @task AND state IN ('queued', 'running') AND held <> @held;
