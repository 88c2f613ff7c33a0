-- Writes on behalf of an Attempt: guarded by (attempt, fence) and "not finished"; no lane's lock is needed, the row's
-- own is enough.

-- name: launched
UPDATE slipway.attempts SET state = CASE WHEN state = 'leased' THEN 'launched' ELSE state END,
    job_name = @job_name, job_uid = @job_uid, launched_at = coalesce(launched_at, slipway.stamp()),
    wait = '', wait_note = '', wait_until = NULL
WHERE id = @attempt AND fence = @fence AND (finished_at IS NULL) IS TRUE;

-- name: launched_late
-- What was launched may end before that is recorded. Its Job is named all the same: people look for its log.
UPDATE slipway.attempts SET job_name = @job_name, job_uid = @job_uid
WHERE id = @attempt AND fence = @fence AND finished_at IS NOT NULL AND job_name = '';

-- name: waiting
-- Once it has started it waits for nothing but its own end. wait_until is for replicas before version 3, and only where
-- they may launch it.
UPDATE slipway.attempts a SET wait = @wait, wait_note = @note, again_at = c.again,
    wait_until = CASE WHEN a.min_binary = 0 THEN c.again ELSE a.wait_until END
FROM (SELECT slipway.stamp() + @again * interval '1 second' AS again) c
WHERE a.id = @attempt AND a.fence = @fence
    AND (a.finished_at IS NULL AND (a.state IN ('leased', 'launched') OR CAST(@wait AS text) = 'stopping')) IS TRUE;

-- name: start
-- The first pod wins, also before the launch was recorded; an Attempt that was asked to stop starts nothing. A replica that
-- runs it inline stands where a pod would: also for one that was claimed for a Job, as long as none is known of.
WITH won AS (
    UPDATE slipway.attempts a SET state = 'started', pod_uid = @pod_uid, pod_name = @pod_name, node = @node, started_at = c.at,
        wait = '', wait_note = '', wait_until = NULL,
        executor = CASE WHEN CAST(@inline AS boolean) THEN 'inline' ELSE a.executor END,
        replica = CASE WHEN CAST(@inline AS boolean) THEN @replica ELSE a.replica END -- it may have been another's claim
    FROM (SELECT slipway.stamp() AS at) c
    WHERE a.id = @attempt AND a.fence = @fence AND (a.finished_at IS NULL) IS TRUE AND a.stop = '' AND a.pod_uid = ''
        AND CASE WHEN CAST(@inline AS boolean) THEN a.state = 'leased' ELSE a.executor <> 'inline' END
    RETURNING a.id, a.task, a.number, a.started_at),
leased AS (
    INSERT INTO slipway.leases (attempt, lease_until, beat_at)
    SELECT id, started_at + @lease * interval '1 second', started_at FROM won
    ON CONFLICT (attempt) DO NOTHING),
noted AS (
    INSERT INTO slipway.events (task, attempt, type, actor, at, data)
    SELECT task, number, 'started', @replica, started_at, CASE WHEN CAST(@inline AS boolean) THEN jsonb_build_object('executor', 'inline')
        ELSE jsonb_build_object('pod', CAST(@pod_name AS text), 'node', CAST(@node AS text)) END FROM won)
SELECT id FROM won;

-- name: standing
SELECT fence, finished_at IS NOT NULL AS finished, stop, pod_uid, report FROM slipway.attempts WHERE id = @attempt;

-- name: report
UPDATE slipway.attempts a SET report = jsonb_set(CAST(@report AS jsonb), '{at}', to_jsonb(c.at)), late = a.stop <> ''
FROM (SELECT slipway.stamp() AS at) c
WHERE a.id = @attempt AND a.fence = @fence AND (a.finished_at IS NULL) IS TRUE AND a.pod_uid = @pod_uid AND a.report IS NULL;

-- name: stop
WITH stopped AS (
    UPDATE slipway.attempts a SET stop = @why, stop_note = @note, stop_at = c.at
    FROM (SELECT slipway.stamp() AS at) c
    WHERE a.id = @attempt AND a.fence = @fence AND (a.finished_at IS NULL) IS TRUE AND a.stop = ''
    RETURNING a.task, a.number, c.at)
INSERT INTO slipway.events (task, attempt, type, actor, at, data)
SELECT task, number, 'stop', @replica, at, jsonb_build_object('why', CAST(@why AS text), 'note', CAST(@note AS text)) FROM stopped;

-- name: see_pod
INSERT INTO slipway.attempt_pods AS p (attempt, uid, name, node, ended)
SELECT id, @uid, @name, @node, @ended FROM slipway.attempts WHERE id = @attempt
ON CONFLICT (attempt, uid) DO UPDATE SET node = CASE WHEN excluded.node <> '' THEN excluded.node ELSE p.node END,
    ended = p.ended OR excluded.ended
WHERE p.ended < excluded.ended OR p.node <> excluded.node;

-- name: outlived
INSERT INTO slipway.attempt_pods AS p (attempt, uid, name, node, ended)
SELECT id, pod_uid, replica, '', true FROM slipway.attempts
WHERE finished_at IS NULL AND state = 'started' AND executor = 'inline' AND starts_with(pod_uid, @ours) AND NOT starts_with(pod_uid, @but)
ON CONFLICT (attempt, uid) DO UPDATE SET ended = true
RETURNING attempt;

-- name: closed
UPDATE slipway.attempts SET closed_at = slipway.stamp() WHERE id = @attempt AND finished_at IS NOT NULL AND closed_at IS NULL;

-- name: beats
-- One write for many heartbeats. Who is not in the answer had a stale fence.
WITH said AS (
    SELECT x.*, a.stop <> '' OR t.cancel_at IS NOT NULL AS cancel,
        CAST(t.spec ->> 'run_deadline' AS float8) - extract(epoch FROM slipway.now() - a.started_at) AS left_seconds
    FROM jsonb_to_recordset(CAST(@beats AS jsonb)) AS x (attempt bigint, fence bigint, pod_uid text, progress jsonb)
    JOIN slipway.attempts a ON a.id = x.attempt AND a.fence = x.fence AND a.pod_uid = x.pod_uid AND (a.finished_at IS NULL) IS TRUE
    JOIN slipway.tasks t ON t.key = a.task),
stored AS (
    UPDATE slipway.leases l SET beat_at = c.at, lease_until = c.at + @lease * interval '1 second',
        progress = coalesce(s.progress, l.progress)
    FROM (SELECT * FROM said ORDER BY attempt) s, (SELECT slipway.stamp() AS at) c
    WHERE l.attempt = s.attempt
    RETURNING l.attempt)
SELECT s.attempt, s.fence, s.pod_uid, s.cancel, coalesce(s.left_seconds, 0) AS left_seconds
FROM said s JOIN stored USING (attempt);

-- name: keep_log
INSERT INTO slipway.logs (attempt, part, at, bytes) VALUES (@attempt, @part, slipway.stamp(), @bytes);

-- name: keep_late_log
INSERT INTO slipway.logs (attempt, part, at, bytes)
SELECT CAST(@attempt AS bigint), 0, slipway.stamp(), @bytes
WHERE NOT EXISTS (SELECT 1 FROM slipway.logs WHERE attempt = @attempt);

-- name: log
SELECT bytes FROM slipway.logs WHERE attempt = @attempt ORDER BY part DESC, at DESC LIMIT 1;

-- name: read
SELECT a.*, t.id AS task_id, coalesce(l.beat_at, a.beat_at) AS beat_at, coalesce(l.progress, a.progress) AS progress,
    (SELECT jsonb_agg(jsonb_build_object('UID', p.uid, 'Name', p.name, 'Node', p.node, 'Ended', p.ended) ORDER BY p.uid)
        FROM slipway.attempt_pods p WHERE p.attempt = a.id) AS pods
FROM slipway.attempts a JOIN slipway.tasks t ON t.key = a.task LEFT JOIN slipway.leases l ON l.attempt = a.id
WHERE a.id = @attempt;

-- name: of_task
SELECT a.*, t.id AS task_id, coalesce(l.beat_at, a.beat_at) AS beat_at, coalesce(l.progress, a.progress) AS progress,
    (SELECT jsonb_agg(jsonb_build_object('UID', p.uid, 'Name', p.name, 'Node', p.node, 'Ended', p.ended) ORDER BY p.uid)
        FROM slipway.attempt_pods p WHERE p.attempt = a.id) AS pods
FROM slipway.attempts a JOIN slipway.tasks t ON t.key = a.task LEFT JOIN slipway.leases l ON l.attempt = a.id
WHERE t.id = CAST(@id AS uuid) ORDER BY a.number DESC LIMIT @limit;

-- name: latest
SELECT a.*, t.id AS task_id, coalesce(l.beat_at, a.beat_at) AS beat_at, coalesce(l.progress, a.progress) AS progress,
    (SELECT jsonb_agg(jsonb_build_object('UID', p.uid, 'Name', p.name, 'Node', p.node, 'Ended', p.ended) ORDER BY p.uid)
        FROM slipway.attempt_pods p WHERE p.attempt = a.id) AS pods
FROM slipway.tasks t JOIN slipway.attempts a ON a.task = t.key AND a.number = t.attempts LEFT JOIN slipway.leases l ON l.attempt = a.id
WHERE t.id IN (SELECT CAST(jsonb_array_elements_text(CAST(@ids AS jsonb)) AS uuid));

-- name: overdue
-- Live Attempts are few: caps bound them.
SELECT id FROM slipway.attempts
WHERE state = 'leased' AND finished_at IS NULL AND claimed_at < slipway.now() - @age * interval '1 second'
    AND min_binary <= slipway.session_version()
    AND coalesce(CASE WHEN min_binary = 0 THEN wait_until ELSE again_at END, '-infinity') <= slipway.now()
ORDER BY claimed_at LIMIT @limit;

-- name: known
SELECT id, fence, finished_at IS NULL AS open, closed_at IS NOT NULL AS closed FROM slipway.attempts
WHERE id IN (SELECT CAST(jsonb_array_elements_text(CAST(@ids AS jsonb)) AS bigint));

-- name: prove_alone
SELECT pg_advisory_xact_lock(hashtext('slipway.fences'));

-- name: prove
-- Every later fence is larger than @above. The lineage is the server's run and the sequence itself: a database that was
-- restored, or whose standby took over, shows another. What is drawn between the reading and the writing of the
-- sequence is less than @under_way.
SELECT f.was, f.lineage, CASE WHEN f.lineage = @lineage AND (@doubted OR f.was < @above)
    THEN setval('slipway.fences', GREATEST(f.was, CAST(@above AS bigint)) + @under_way) END AS raised
FROM (SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS was,
    pg_postmaster_start_time() || '/' || CAST('slipway.fences'::regclass AS oid) AS lineage FROM slipway.fences) f;

-- name: prove_ids
-- Ids of Attempts are moved along: they name Jobs, and one that was forgotten may still stand. A claim draws one of each,
-- so that no id was ever larger than its fence.
SELECT setval('slipway.attempts_id_seq', GREATEST(a.last_value, f.last_value)) FROM slipway.attempts_id_seq a, slipway.fences f;

-- name: lineage
SELECT pg_postmaster_start_time() || '/' || CAST('slipway.fences'::regclass AS oid) AS lineage;
