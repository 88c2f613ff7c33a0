-- Foresee: what stands between a queued Task and its start. Nothing here is locked.

-- name: service
-- How long recent Attempts took, from claim to end: of the newest 5,000, what ended within a day, 200 of each queue and
-- kind. What was canceled, or waited for a quota, tells nothing.
SELECT queue, kind, jsonb_agg(seconds) AS seconds FROM (
    SELECT a.queue, a.kind, extract(epoch FROM a.finished_at - a.claimed_at) AS seconds,
        row_number() OVER (PARTITION BY a.queue, a.kind ORDER BY a.id DESC) AS n
    FROM (SELECT id, queue, kind, claimed_at, finished_at, outcome, reason FROM slipway.attempts ORDER BY id DESC LIMIT 5000) a
    WHERE a.finished_at > slipway.now() - interval '1 day' AND a.outcome <> 'canceled' AND a.reason NOT IN ('quota', 'name_taken')) x
WHERE n <= 200
GROUP BY queue, kind;

-- name: queue
SELECT cap, ns_cap, coalesce(rate, 0) AS rate, tokens, refilled_at, slipway.now() AS now FROM slipway.queues WHERE name = @queue;

-- name: live
-- Attempts at work in the queue, and who holds the Task's lane.
SELECT a.lane, a.namespace, a.kind, extract(epoch FROM slipway.now() - a.claimed_at) AS age, false AS free, false AS composite
FROM slipway.attempts a WHERE a.queue = @queue AND a.finished_at IS NULL
UNION ALL
SELECT t.lane, t.namespace, t.kind, extract(epoch FROM slipway.now() - t.started_at), true, t.children > 0
FROM slipway.lanes l JOIN slipway.tasks t ON t.key = l.holder
WHERE l.key = @lane AND NOT EXISTS (
    SELECT 1 FROM slipway.attempts a WHERE a.lane = l.key AND a.queue = @queue AND a.finished_at IS NULL);

-- name: waiting
-- What waits in the queue's lanes, and in the Task's own.
WITH lanes AS MATERIALIZED (
    (SELECT key FROM slipway.lanes WHERE queue = @queue AND holder IS NULL AND ready_at IS NULL AND rank IS NOT NULL LIMIT @most)
    UNION
    (SELECT key FROM slipway.lanes WHERE queue = @queue AND holder IS NULL AND ready_at IS NOT NULL LIMIT @most)
    UNION
    SELECT lane FROM slipway.attempts WHERE queue = @queue AND finished_at IS NULL
    UNION
    SELECT CAST(@lane AS text))
SELECT t.key, t.lane, t.namespace, t.kind, t.rank, t.children,
    GREATEST(CAST(extract(epoch FROM t.run_at - slipway.now()) AS float8), 0) AS delay
FROM lanes x CROSS JOIN LATERAL (
    SELECT q.* FROM slipway.tasks q WHERE q.lane = x.key AND q.state = 'queued' AND q.seq IS NOT NULL ORDER BY q.seq LIMIT 100) t
ORDER BY t.lane, t.seq LIMIT @most;
