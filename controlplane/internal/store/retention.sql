-- What is kept for so long and no longer. Every statement takes a batch, waits for no row that somebody has locked, and
-- leaves alone what is still needed.

-- name: oldest
-- Ended Tasks that are nobody's child, the oldest first, of one state: those that ended too long ago, and those made at or
-- before an instant. Nothing ends before it is made, so that the index bounds the search.
SELECT t.key, t.created_at FROM slipway.tasks t,
    (SELECT slipway.now() - CAST(@keep AS float8) * interval '1 second' AS ended, CAST(@made AS timestamptz) AS made) c
WHERE t.state = @state AND t.created_at <= GREATEST(c.ended, c.made) AND (t.created_at, t.key) > (CAST(@after_at AS timestamptz), CAST(@after AS bigint))
    AND t.parent IS NULL AND (t.ended_at < c.ended OR t.created_at <= c.made)
ORDER BY t.created_at, t.key LIMIT @limit;

-- name: beyond
-- Up to when Tasks were made that are too many, at most 100,000 of them: what is counted and passed over is bounded by that
-- and by @most. An estimate tells a table that is far too small.
WITH ended AS MATERIALIZED (
    SELECT count(*) AS n FROM (SELECT 1 FROM slipway.tasks t WHERE (t.state IN ('succeeded', 'failed', 'canceled')) IS TRUE LIMIT CAST(@most AS bigint) + 100000) x
    WHERE NOT (SELECT r.reltuples BETWEEN 0 AND 0.8 * CAST(@most AS bigint) FROM pg_class r WHERE r.oid = CAST('slipway.tasks' AS regclass)))
SELECT (SELECT t.created_at FROM slipway.tasks t WHERE (t.state IN ('succeeded', 'failed', 'canceled')) IS TRUE
    ORDER BY t.created_at, t.key OFFSET GREATEST(ended.n - CAST(@most AS bigint) - 1, 0) LIMIT 1) AS made
FROM ended WHERE ended.n > CAST(@most AS bigint);

-- name: trees
-- Tasks with all that are below them.
WITH RECURSIVE tree AS (
    SELECT CAST(k AS bigint) AS root, CAST(k AS bigint) AS key FROM jsonb_array_elements_text(CAST(@roots AS jsonb)) k
    UNION ALL
    SELECT t.root, c.key FROM tree t JOIN slipway.tasks c ON c.parent = t.key)
SELECT root, key FROM tree ORDER BY key;

-- name: lock
-- A submit that names one holds it by a key share, and keeps it.
SELECT key FROM slipway.tasks WHERE key IN (SELECT CAST(jsonb_array_elements_text(CAST(@keys AS jsonb)) AS bigint))
ORDER BY key FOR UPDATE SKIP LOCKED;

-- name: needed
-- In a later statement than their locks: trees of which something is not over, is waited for, or is what a schedule has
-- been well with last.
SELECT DISTINCT x.root FROM jsonb_to_recordset(CAST(@members AS jsonb)) AS x (root bigint, key bigint)
JOIN slipway.tasks t ON t.key = x.key
WHERE t.state IN ('queued', 'running')
    OR EXISTS (SELECT 1 FROM slipway.attempts a WHERE a.task = t.key AND a.closed_at IS NULL)
    OR EXISTS (SELECT 1 FROM slipway.deps d JOIN slipway.tasks n ON n.key = d.task WHERE d.needs = t.key AND n.state IN ('queued', 'running'))
    OR t.state = 'succeeded' AND t.schedule IS NOT NULL AND EXISTS (SELECT 1 FROM slipway.schedules s WHERE s.id = t.schedule)
        AND NOT EXISTS (SELECT 1 FROM slipway.tasks n WHERE n.schedule = t.schedule AND n.state = 'succeeded'
            AND (n.ended_at, n.key) > (t.ended_at, t.key));

-- name: remove
-- Attempts, labels, holds and what they waited for go with the rows.
WITH gone AS MATERIALIZED (SELECT CAST(jsonb_array_elements_text(CAST(@keys AS jsonb)) AS bigint) AS key),
tails AS (
    DELETE FROM slipway.logs WHERE attempt IN (SELECT a.id FROM slipway.attempts a JOIN gone g ON g.key = a.task)),
history AS (
    DELETE FROM slipway.events WHERE task IN (SELECT key FROM gone)),
told AS (
    DELETE FROM slipway.nudges WHERE task IN (SELECT key FROM gone))
DELETE FROM slipway.tasks WHERE key IN (SELECT key FROM gone) AND (state IN ('succeeded', 'failed', 'canceled')) IS TRUE;

-- name: fires
-- Lines of ledgers. How far a ledger reaches back is noted with its schedule, so that nothing is replayed that may have run.
WITH old AS MATERIALIZED (
    SELECT f.schedule, f.at FROM slipway.schedule_fires f
    WHERE f.noted_at < slipway.now() - CAST(@keep AS float8) * interval '1 second' LIMIT @limit),
mine AS MATERIALIZED (
    SELECT s.key FROM slipway.schedules s WHERE s.key IN (SELECT schedule FROM old) ORDER BY s.key FOR NO KEY UPDATE SKIP LOCKED),
gone AS (
    DELETE FROM slipway.schedule_fires f USING old o, mine m
    WHERE f.schedule = o.schedule AND f.at = o.at AND m.key = o.schedule RETURNING f.schedule, f.at),
noted AS (
    UPDATE slipway.schedules s SET ledger_from = GREATEST(s.ledger_from, g.at)
    FROM (SELECT schedule, max(at) AS at FROM gone GROUP BY schedule) g WHERE s.key = g.schedule)
SELECT count(*) AS n FROM gone;

-- name: keys
DELETE FROM slipway.idempotency i USING (
    SELECT caller, key FROM slipway.idempotency WHERE expires_at < slipway.now() ORDER BY expires_at LIMIT @limit
    FOR UPDATE SKIP LOCKED) x
WHERE i.caller = x.caller AND i.key = x.key;

-- name: make_days
SELECT slipway.make_partitions(3) AS n;

-- name: days
-- The days of events and logs, the newest first, with what each takes and what the newer ones of its table take with it.
SELECT d.parent, d.day, d.day + 1 <= CAST(slipway.now() AT TIME ZONE 'UTC' AS date) AS past,
    extract(epoch FROM slipway.now() - (CAST(d.day + 1 AS timestamp) AT TIME ZONE 'UTC')) AS age,
    CAST(sum(d.bytes) OVER (PARTITION BY d.parent ORDER BY d.day DESC) AS bigint) AS bytes
FROM (SELECT p.relname AS parent, to_date(right(c.relname, 8), 'YYYYMMDD') AS day, pg_total_relation_size(c.oid) AS bytes
    FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent JOIN pg_class c ON c.oid = i.inhrelid
    WHERE p.oid IN (CAST('slipway.events' AS regclass), CAST('slipway.logs' AS regclass)) AND c.relname ~ '^(events|logs)_[0-9]{8}$') d
ORDER BY d.parent, d.day DESC;

-- name: drop_day
SELECT slipway.drop_partition(@parent, CAST(@day AS date));

-- name: stray_events
-- What came on a day that had no part of its own.
DELETE FROM slipway.events_default e USING (
    SELECT x.id, x.xid FROM slipway.events_default x WHERE x.at < slipway.now() - CAST(@keep AS float8) * interval '1 second' LIMIT @limit) o
WHERE e.id = o.id AND e.xid = o.xid;

-- name: stray_logs
DELETE FROM slipway.logs_default l USING (
    SELECT x.attempt, x.part FROM slipway.logs_default x WHERE x.at < slipway.now() - CAST(@keep AS float8) * interval '1 second' LIMIT @limit) o
WHERE l.attempt = o.attempt AND l.part = o.part;
