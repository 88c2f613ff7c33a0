-- Upkeep of lanes: comparing them with their Tasks, setting one right, taking one from its holder, sweeping idle ones.

-- name: compare
-- What lanes show, beside what their Tasks say, in one statement: one moment. Lanes are those after a key, or the given
-- ones alone.
WITH RECURSIVE waiting AS (
    (SELECT t.lane FROM slipway.tasks t
     WHERE CAST(@only AS jsonb) IS NULL AND t.state = 'queued' AND t.seq IS NOT NULL AND t.lane > @after ORDER BY t.lane LIMIT 1)
    UNION ALL
    SELECT (SELECT t.lane FROM slipway.tasks t
            WHERE t.state = 'queued' AND t.seq IS NOT NULL AND t.lane > w.lane ORDER BY t.lane LIMIT 1)
    FROM waiting w WHERE w.lane IS NOT NULL),
running AS MATERIALIZED (SELECT t.key, t.id, t.lane FROM slipway.tasks t WHERE t.state = 'running'),
keys AS MATERIALIZED (
    SELECT key FROM (
        (SELECT l.key FROM slipway.lanes l WHERE CAST(@only AS jsonb) IS NULL AND l.key > @after ORDER BY l.key LIMIT @limit)
        UNION (SELECT w.lane FROM waiting w WHERE w.lane IS NOT NULL LIMIT @limit)
        UNION (SELECT r.lane FROM running r WHERE CAST(@only AS jsonb) IS NULL AND r.lane > @after)
        UNION (SELECT jsonb_array_elements_text(CAST(@only AS jsonb)))) k
    ORDER BY key LIMIT @limit),
beside AS MATERIALIZED (
    SELECT k.key, l.key IS NOT NULL AS there, coalesce(l.private, false) AS private,
        l.queue, l.namespace, l.kind, l.holder, l.fence, l.last_seq, l.head, l.rank, l.ready_at,
        r.key AS runs, r.id AS runs_id, a.fence AS live_fence,
        h.key AS first, h.id AS first_id, h.seq, h.queue AS h_queue, h.namespace AS h_namespace, h.kind AS h_kind,
        CASE WHEN NOT h.held THEN m.rank END AS least, CASE WHEN h.run_at > slipway.now() THEN h.run_at END AS ready,
        l.private AND NOT EXISTS (SELECT 1 FROM slipway.tasks t WHERE t.lane = l.key AND t.state IN ('queued', 'running')) AS left_over
    FROM keys k
    LEFT JOIN LATERAL (SELECT * FROM slipway.lanes WHERE key = k.key LIMIT 1) l ON true
    LEFT JOIN LATERAL (SELECT x.key, x.id FROM running x WHERE x.lane = k.key ORDER BY x.key LIMIT 1) r ON true
    LEFT JOIN LATERAL (SELECT x.fence FROM slipway.attempts x WHERE x.lane = k.key AND x.finished_at IS NULL LIMIT 1) a ON true
    LEFT JOIN LATERAL (
        SELECT t.key, t.id, t.seq, t.queue, t.namespace, t.kind, t.held, t.run_at FROM slipway.tasks t
        WHERE t.lane = k.key AND t.state = 'queued' AND t.seq IS NOT NULL ORDER BY t.seq LIMIT 1) h ON true
    LEFT JOIN LATERAL (
        SELECT t.rank FROM slipway.tasks t
        WHERE t.lane = k.key AND t.state = 'queued' AND t.seq IS NOT NULL ORDER BY t.rank LIMIT 1) m ON true),
differences AS (
    SELECT b.key, d.field, coalesce(d.shown, '') AS shown, coalesce(d.derived, '') AS derived
    FROM beside b
    LEFT JOIN slipway.tasks hold ON hold.key = b.holder LEFT JOIN slipway.tasks head ON head.key = b.head
    CROSS JOIN LATERAL (VALUES
        ('row', 'none', 'needed', NOT b.there AND (b.runs IS NOT NULL OR b.first IS NOT NULL)),
        ('row', 'there', 'none', b.left_over),
        ('holder', coalesce(CAST(hold.id AS text), CAST(b.holder AS text)), CAST(b.runs_id AS text),
            b.there AND b.holder IS DISTINCT FROM b.runs),
        ('fence', CAST(b.fence AS text), CAST(b.live_fence AS text), b.there AND b.fence <> b.live_fence),
        ('last_seq', CAST(b.last_seq AS text), CAST(b.seq AS text), b.there AND b.seq < b.last_seq),
        ('head', coalesce(CAST(head.id AS text), CAST(b.head AS text)), CAST(b.first_id AS text),
            b.there AND b.runs IS NULL AND b.head IS DISTINCT FROM b.first),
        ('queue', b.queue, b.h_queue, b.there AND b.runs IS NULL AND b.queue <> b.h_queue),
        ('namespace', b.namespace, b.h_namespace, b.there AND b.runs IS NULL AND b.namespace <> b.h_namespace),
        ('kind', b.kind, b.h_kind, b.there AND b.runs IS NULL AND b.kind <> b.h_kind),
        ('rank', CAST(b.rank AS text), CAST(b.least AS text), b.there AND b.runs IS NULL AND b.rank IS DISTINCT FROM b.least),
        ('ready_at', CAST(b.ready_at AS text), CAST(b.ready AS text), b.there AND b.runs IS NULL AND b.first IS NOT NULL
            AND CASE WHEN b.ready IS NULL THEN b.ready_at > slipway.now() ELSE b.ready_at IS DISTINCT FROM b.ready END)
        ) d (field, shown, derived, differs)
    WHERE d.differs)
SELECT (SELECT count(*) FROM keys) AS checked, coalesce((SELECT max(key) FROM keys), '') AS last,
    (SELECT jsonb_agg(jsonb_build_object('lane', d.key, 'field', d.field, 'shown', d.shown, 'derived', d.derived) ORDER BY d.key, d.field)
        FROM differences d) AS differences;

-- name: set_right
-- What lane/show leaves alone. In a later statement than the lane's lock.
UPDATE slipway.lanes l SET
    holder = r.key, fence = GREATEST(l.fence, a.fence), last_seq = LEAST(l.last_seq, h.seq), head = CASE WHEN r.key IS NULL THEN l.head END
FROM (SELECT 1) one
LEFT JOIN LATERAL (SELECT t.key FROM slipway.tasks t WHERE t.lane = @lane AND t.state = 'running' ORDER BY t.key LIMIT 1) r ON true
LEFT JOIN LATERAL (SELECT x.fence FROM slipway.attempts x WHERE x.lane = @lane AND x.finished_at IS NULL LIMIT 1) a ON true
LEFT JOIN LATERAL (
    SELECT t.seq FROM slipway.tasks t WHERE t.lane = @lane AND t.state = 'queued' AND t.seq IS NOT NULL ORDER BY t.seq LIMIT 1) h ON true
WHERE l.key = @lane;

-- name: left_over
-- A private lane whose Task has ended.
DELETE FROM slipway.lanes l WHERE l.key = @lane AND l.private
    AND NOT EXISTS (SELECT 1 FROM slipway.tasks t WHERE t.lane = @lane AND t.state IN ('queued', 'running'));

-- name: live
SELECT id FROM slipway.attempts WHERE lane = @lane AND finished_at IS NULL;

-- name: mark
SELECT slipway.now() AS now, last_value AS fence FROM slipway.fences;

-- name: idle
-- Idle lanes among the next ones by key. One that is locked is in use.
WITH seen AS MATERIALIZED (
    SELECT key, private, holder, head, rank, fence FROM slipway.lanes WHERE key > @after ORDER BY key LIMIT @limit),
idle AS MATERIALIZED (
    SELECT l.key FROM slipway.lanes l
    WHERE l.key = ANY (ARRAY(SELECT key FROM seen WHERE NOT private AND holder IS NULL AND head IS NULL AND rank IS NULL AND fence <= @fence))
        AND (l.holder IS NULL AND l.head IS NULL AND l.rank IS NULL AND l.fence <= @fence) IS TRUE
    ORDER BY l.key
    FOR NO KEY UPDATE SKIP LOCKED)
SELECT (SELECT count(*) FROM seen) AS seen, coalesce((SELECT max(key) FROM seen), '') AS last, (SELECT jsonb_agg(key) FROM idle) AS idle;

-- name: sweep
-- In a later statement than their locks: nothing runs or waits in them.
DELETE FROM slipway.lanes l
WHERE l.key = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST(@lanes AS jsonb))))
    AND NOT EXISTS (SELECT 1 FROM slipway.tasks t WHERE t.lane = l.key AND t.state = 'queued' AND t.seq IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM slipway.attempts a WHERE a.lane = l.key AND a.finished_at IS NULL);
