-- Finish. The lane first; what decides is read in a later statement; then one statement ends the Attempt.

-- name: lock
SELECT l.key, l.queue, l.namespace, l.kind, l.private, l.holder, l.last_seq, l.head, slipway.now() AS now
FROM slipway.lanes l WHERE l.key = (SELECT lane FROM slipway.attempts WHERE id = @attempt)
FOR NO KEY UPDATE;

-- name: read
SELECT a.task, a.number, a.fence, a.stop, a.late, a.report, a.finished_at IS NOT NULL AS finished
FROM slipway.attempts a WHERE a.id = @attempt;

-- name: decide
-- Attempt and Task, in a later statement than the lane's lock.
SELECT a.number AS a_number, a.fence AS a_fence, a.stop AS a_stop, a.report AS a_report, a.finished_at IS NOT NULL AS a_finished,
    t.*, p.id AS parent_id, r.id AS retry_of_id
FROM slipway.attempts a JOIN slipway.tasks t ON t.key = a.task
LEFT JOIN slipway.tasks p ON p.key = t.parent LEFT JOIN slipway.tasks r ON r.key = t.retry_of
WHERE a.id = @attempt;

-- name: lost_in_a_row
-- How many Attempts of the Task up to this one were lost without another end between them. Those that waited for a quota
-- cost nothing and do not count.
SELECT count(*) AS n FROM slipway.attempts a JOIN slipway.attempts last ON last.task = a.task
WHERE last.id = @attempt AND a.reason NOT IN ('quota', 'name_taken') AND a.finished_at IS NOT NULL
    AND a.number > coalesce((SELECT max(b.number) FROM slipway.attempts b
        WHERE b.task = last.task AND b.finished_at IS NOT NULL AND b.outcome <> 'lost'), 0);

-- name: task
SELECT t.*, p.id AS parent_id, r.id AS retry_of_id FROM slipway.tasks t
LEFT JOIN slipway.tasks p ON p.key = t.parent LEFT JOIN slipway.tasks r ON r.key = t.retry_of
WHERE t.key = @task;

-- name: end
-- Ends the Attempt, moves its Task, hands on the lane, and nudges parent and dependents, all or nothing.
WITH clock AS MATERIALIZED (SELECT slipway.stamp() AS at),
attempt AS (
    UPDATE slipway.attempts a SET state = 'finished', outcome = @outcome, reason = @reason, message = @message, rule = @rule,
        silent = @silent, exit_code = @exit_code, evidence = CAST(@evidence AS jsonb), finished_at = clock.at, wait = '', wait_note = '', wait_until = NULL,
        beat_at = s.beat_at, progress = s.progress
    FROM clock LEFT JOIN slipway.leases s ON s.attempt = @attempt
    WHERE a.id = @attempt AND a.fence = @fence AND (a.finished_at IS NULL) IS TRUE AND (a.report IS NOT NULL) = @reported
    RETURNING a.id, a.task, a.number, a.report, clock.at),
lease AS (DELETE FROM slipway.leases WHERE attempt = (SELECT id FROM attempt)),
moved AS (
    UPDATE slipway.tasks t SET state = @state, outcome = @outcome, reason = @task_reason, message = @task_message,
        result = CASE WHEN @ended THEN attempt.report -> 'result' END,
        spent_retry = t.spent_retry + @spent_retry, spent_lost = t.spent_lost + @spent_lost,
        run_at = CASE WHEN @ended THEN t.run_at ELSE attempt.at + @delay * interval '1 second' END,
        eligible_at = CASE WHEN @ended THEN t.eligible_at ELSE attempt.at + @delay * interval '1 second' END,
        rank = CASE WHEN @ended THEN t.rank ELSE attempt.at + @delay * interval '1 second' + t.class * interval '120 seconds' END,
        ended_at = CASE WHEN @ended THEN attempt.at END
    FROM attempt WHERE t.key = attempt.task AND (t.state = 'running') IS TRUE
    RETURNING t.key, t.parent, t.run_at, t.rank, t.eligible_at, t.ended_at, t.result, t.queue, t.namespace, t.kind, t.held),
next AS (
    -- Who shows in the lane now: this Task again, or the next in order. Read before this statement's changes.
    SELECT m.key, m.queue, m.namespace, m.kind, m.held, m.run_at FROM moved m WHERE NOT @ended
    UNION ALL
    (SELECT t.key, t.queue, t.namespace, t.kind, t.held, t.run_at FROM slipway.tasks t
     WHERE t.lane = @lane AND t.state = 'queued' AND t.seq >= @last_seq AND @ended ORDER BY t.seq LIMIT 1)),
least AS (
    SELECT min(r.rank) AS rank FROM (
        SELECT m.rank FROM moved m WHERE NOT @ended
        UNION ALL
        (SELECT t.rank FROM slipway.tasks t WHERE t.lane = @lane AND t.state = 'queued' AND t.seq IS NOT NULL ORDER BY t.rank LIMIT 1)) r),
dropped AS (
    DELETE FROM slipway.lanes l USING moved WHERE l.key = @lane AND l.private AND @ended),
released AS (
    UPDATE slipway.lanes l SET holder = NULL, head = n.key,
        queue = coalesce(n.queue, l.queue), namespace = coalesce(n.namespace, l.namespace), kind = coalesce(n.kind, l.kind),
        rank = CASE WHEN NOT n.held THEN least.rank END,
        ready_at = CASE WHEN n.run_at > moved_at.at THEN n.run_at END
    FROM (SELECT at FROM attempt) moved_at LEFT JOIN next n ON true, least
    WHERE l.key = @lane AND NOT (l.private AND @ended)),
told AS (
    INSERT INTO slipway.nudges (task)
    SELECT n.task FROM (
        SELECT m.parent AS task FROM moved m WHERE m.parent IS NOT NULL
        UNION SELECT d.task FROM slipway.deps d JOIN moved m ON d.needs = m.key) n
    WHERE @ended
    RETURNING task),
noted AS (
    INSERT INTO slipway.events (task, attempt, type, actor, at, data)
    SELECT a.task, a.number, CASE WHEN @ended THEN @state ELSE 'requeued' END, @replica, a.at, jsonb_build_object(
        'outcome', CAST(@outcome AS text), 'reason', CAST(@task_reason AS text), 'attempt_reason', CAST(@reason AS text),
        'rule', CAST(@rule AS text), 'delay_seconds', CAST(@delay AS float8)) FROM attempt a)
SELECT m.run_at, m.eligible_at, m.ended_at, m.result, (SELECT count(*) FROM told) AS nudged,
    coalesce((SELECT queue FROM next), '') AS next_queue, (SELECT namespace FROM next) AS next_namespace,
    (SELECT least.rank FROM next, least WHERE NOT next.held) AS next_rank, m.queue
FROM moved m;
