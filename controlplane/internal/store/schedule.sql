-- Schedules. Order of locks: schedule rows come before everything that a submit locks (enqueue.sql). The firing takes many
-- and waits for none of them; everything else takes one.

-- name: now
-- In a later statement than the lock.
SELECT slipway.now() AS now;

-- name: create
INSERT INTO slipway.schedules (id, namespace, name, description, owner, labels, cron, every, zone, template, missed, up_to, within,
    overlap, start_window, spread, blackouts, calendars, expect_within, enabled, enabled_at, anchor_at, rights, created_by, created_at,
    changed_by, changed_at, considered_at, next_at)
SELECT CAST(@id AS uuid), @namespace, @name, x.description, x.owner, x.labels, x.cron, x.every, x.zone, x.template, x.missed, x.up_to,
    x.within, x.overlap, x.start_window, x.spread, x.blackouts, x.calendars, x.expect_within, x.enabled, c.at, c.at,
    CAST(@rights AS jsonb), @by, c.at, @by, c.at, c.at, NULL
FROM (SELECT slipway.stamp() AS at) c, jsonb_to_record(CAST(@columns AS jsonb)) AS x (description text, owner text, labels jsonb, cron text,
    every float8, zone text, template jsonb, missed text, up_to int, within float8, overlap text, start_window float8,
    spread float8, blackouts jsonb, calendars jsonb, expect_within float8, enabled boolean);

-- name: due
-- What is to be looked at, for the rights that its fires need; nothing is locked.
SELECT id, namespace, name, template, rights, revision FROM slipway.schedules
WHERE next_at <= slipway.now() ORDER BY next_at, key LIMIT @limit;

-- name: lock_due
SELECT * FROM slipway.schedules WHERE next_at <= slipway.now() AND (@any OR id IN (SELECT CAST(jsonb_array_elements_text(CAST(@ids AS jsonb)) AS uuid)))
ORDER BY next_at, key LIMIT @limit
FOR NO KEY UPDATE SKIP LOCKED;

-- name: lock
SELECT * FROM slipway.schedules WHERE id = @id FOR NO KEY UPDATE;

-- name: wait
-- Seconds until the next one is due; what is due already is with another replica, or waits for rights.
SELECT coalesce(extract(epoch FROM min(next_at) - slipway.now()), -1) AS seconds
FROM slipway.schedules WHERE next_at > slipway.now();

-- name: live
-- The Tasks of schedules that have not ended, in a later statement than the schedules' lock.
SELECT t.schedule, t.id FROM slipway.tasks t
WHERE t.schedule IN (SELECT CAST(jsonb_array_elements_text(CAST(@ids AS jsonb)) AS uuid)) AND t.state IN ('queued', 'running')
ORDER BY t.key;

-- name: done
SELECT fire_at AS at FROM slipway.tasks WHERE schedule = CAST(@id AS uuid) AND fire_at >= @from AND fire_at < @to
UNION
SELECT f.at FROM slipway.schedule_fires f JOIN slipway.schedules s ON s.key = f.schedule
WHERE s.id = CAST(@id AS uuid) AND f.task IS NOT NULL AND f.at >= @from AND f.at < @to;

-- name: calendars
SELECT namespace, name, windows, for_all, note, revision, changed_by, changed_at FROM slipway.calendars
WHERE namespace = '' OR namespace IN (SELECT jsonb_array_elements_text(CAST(@namespaces AS jsonb)))
ORDER BY namespace, name;

-- name: note
-- One row for each instant. What was decided once stays, unless a backfill makes up for it.
INSERT INTO slipway.schedule_fires AS f (schedule, at, nominal, source, outcome, why, task, noted_at)
SELECT x.schedule, x.at, x.nominal, x.source, x.outcome, x.why, x.task, slipway.stamp()
FROM jsonb_to_recordset(CAST(@fires AS jsonb)) AS x (schedule bigint, at timestamptz, nominal text, source text, outcome text, why text, task uuid)
ORDER BY x.schedule, x.at
ON CONFLICT (schedule, at) DO UPDATE SET source = excluded.source, outcome = excluded.outcome, why = excluded.why, task = excluded.task,
    noted_at = excluded.noted_at
WHERE f.task IS NULL AND excluded.task IS NOT NULL;

-- name: advance
-- What the firing writes, and nothing of what users do.
UPDATE slipway.schedules s SET
    considered_at = GREATEST(s.considered_at, x.considered),
    next_at = CASE WHEN x.keep THEN s.next_at ELSE x.next END,
    broken = CASE WHEN x.keep THEN s.broken ELSE x.broken END,
    waits = CASE WHEN x.keep THEN s.waits ELSE x.waits END,
    last_fire_at = coalesce(x.fired, s.last_fire_at),
    last_task = coalesce(x.task, s.last_task)
FROM jsonb_to_recordset(CAST(@states AS jsonb)) AS x (key bigint, keep boolean, considered timestamptz, next timestamptz, broken text, waits text,
    fired timestamptz, task uuid)
WHERE s.key = x.key;

-- name: superseded
-- Tasks that a later fire of a schedule that replaces has overtaken, and that nobody has asked to stop.
SELECT t.id FROM slipway.schedules s JOIN slipway.tasks t ON t.schedule = s.id
WHERE s.overlap = 'replace' AND t.state IN ('queued', 'running') AND t.cancel_at IS NULL
    AND s.id IN (SELECT l.schedule FROM slipway.tasks l WHERE l.schedule IS NOT NULL AND l.state IN ('queued', 'running')
        GROUP BY l.schedule HAVING count(*) > 1)
    AND EXISTS (SELECT 1 FROM slipway.tasks n WHERE n.schedule = s.id AND n.state IN ('queued', 'running') AND n.key > t.key)
ORDER BY t.key LIMIT @limit;

-- name: succeeded
SELECT t.schedule, max(t.ended_at) AS at FROM slipway.schedules s CROSS JOIN LATERAL (
    SELECT n.schedule, n.ended_at FROM slipway.tasks n WHERE n.schedule = s.id AND n.state = 'succeeded' ORDER BY n.ended_at DESC LIMIT 1) t
WHERE s.id IN (SELECT CAST(jsonb_array_elements_text(CAST(@ids AS jsonb)) AS uuid))
GROUP BY t.schedule;

-- name: health
SELECT count(*) AS total, count(*) FILTER (WHERE s.broken <> '') AS broken, count(*) FILTER (WHERE s.enabled AND s.expect_within > 0
    AND extract(epoch FROM slipway.now() - GREATEST(s.enabled_at, (
        SELECT t.ended_at FROM slipway.tasks t WHERE t.schedule = s.id AND t.state = 'succeeded' ORDER BY t.ended_at DESC LIMIT 1)))
        > s.expect_within) AS late
FROM slipway.schedules s;

-- name: promised
-- Schedules of which a success is expected, with what a scrape tells of each.
SELECT s.namespace, s.name, s.next_at, t.ended_at AS last_success_at, s.enabled AND extract(epoch FROM slipway.now() - GREATEST(s.enabled_at, t.ended_at)) > s.expect_within AS overdue
FROM slipway.schedules s LEFT JOIN LATERAL (
    SELECT n.ended_at FROM slipway.tasks n WHERE n.schedule = s.id AND n.state = 'succeeded' ORDER BY n.ended_at DESC LIMIT 1) t ON true
WHERE s.expect_within > 0 ORDER BY s.key LIMIT @limit;

-- name: look_again
-- The schedules that a calendar may hold back are looked at anew. An empty namespace is all of them.
UPDATE slipway.schedules SET next_at = slipway.now()
WHERE enabled AND (next_at IS NOT NULL OR broken <> '') AND (@namespace = '' OR namespace = @namespace) AND (@all OR calendars @> jsonb_build_array(CAST(@name AS text)));

-- name: set_calendar
INSERT INTO slipway.calendars AS c (namespace, name, windows, for_all, note, changed_by, changed_at)
VALUES (@namespace, @name, CAST(@windows AS jsonb), @for_all, @note, @by, slipway.stamp())
ON CONFLICT (namespace, name) DO UPDATE SET windows = excluded.windows, for_all = excluded.for_all, note = excluded.note,
    changed_by = excluded.changed_by, changed_at = excluded.changed_at, revision = c.revision + 1;

-- name: drop_calendar
DELETE FROM slipway.calendars WHERE namespace = @namespace AND name = @name;

-- name: calendar_user
-- A schedule that would lose the calendar which it names.
SELECT s.namespace || '/' || s.name AS name FROM slipway.schedules s
WHERE s.calendars @> jsonb_build_array(CAST(@name AS text)) AND (s.namespace = @namespace OR @namespace = '' AND NOT EXISTS (
    SELECT 1 FROM slipway.calendars c WHERE c.namespace = s.namespace AND c.name = @name))
ORDER BY 1 LIMIT 1;
