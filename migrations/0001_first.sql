-- +goose Up

-- goose makes its own table with a zone-less column.
ALTER TABLE slipway.goose_db_version ALTER COLUMN tstamp TYPE timestamptz;

-- Database time decides. These two bodies are the only places that read a clock; tests replace both.
-- now():   STABLE, for decisions: one value within a statement, and usable as an index condition.
-- stamp(): VOLATILE, for stamps: taken after the lane's lock, so that intervals of one lane never overlap.
-- +goose StatementBegin
CREATE FUNCTION slipway.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS
$$ SELECT pg_catalog.statement_timestamp() $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION slipway.stamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
$$ SELECT pg_catalog.clock_timestamp() $$;
-- +goose StatementEnd

CREATE TABLE slipway.meta (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    instance    uuid    NOT NULL DEFAULT gen_random_uuid(),
    -- Runner session keys are an HMAC under this.
    session_key bytea   NOT NULL DEFAULT decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'),
    -- The lowest binary (by its own latest schema version) that may run on this schema.
    min_binary  int     NOT NULL
);
INSERT INTO slipway.meta (min_binary) VALUES (1);

CREATE SEQUENCE slipway.fences;
-- Steps of 1024 leave room in front of a lane's queued Tasks for those that replace others.
CREATE SEQUENCE slipway.task_seq AS bigint INCREMENT BY 1024 START WITH 1024;

CREATE TABLE slipway.queues (
    name          text PRIMARY KEY CHECK (name ~ '^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$'),
    cap           int  NOT NULL DEFAULT 50 CHECK (cap >= 0),
    ns_cap        int  NOT NULL DEFAULT 20 CHECK (ns_cap >= 0),
    max_queued    int  NOT NULL DEFAULT 10000 CHECK (max_queued >= 0), -- per namespace
    rate          float8 CHECK (rate > 0),                             -- launches a second; null: no limit
    burst         float8 NOT NULL DEFAULT 1 CHECK (burst >= 1),
    tokens        float8 NOT NULL DEFAULT 1,                           -- moved by the claim, under the row's lock
    refilled_at   timestamptz,
    paused        boolean NOT NULL DEFAULT false,
    draining      boolean NOT NULL DEFAULT false,
    note          text NOT NULL DEFAULT '',
    changed_by    text NOT NULL DEFAULT '',
    changed_at    timestamptz
) WITH (fillfactor = 50);
INSERT INTO slipway.queues (name) VALUES ('default'), ('volume'), ('branch'), ('backup'), ('observe'), ('maintenance'), ('pool'), ('handle'), ('claim');

-- What a lane shows is that of its head: queue, namespace, kind and rank. Only an idle lane with a head that may run
-- now is in the claim indexes: holder and ready_at are null, rank is not.
CREATE TABLE slipway.lanes (
    key       text PRIMARY KEY,
    queue     text NOT NULL,
    namespace text NOT NULL,
    kind      text NOT NULL,
    private   boolean NOT NULL DEFAULT false, -- made for one Task of mode parallel, removed with its end
    holder    bigint,                         -- key of the running Task
    fence     bigint NOT NULL DEFAULT 0,      -- of the last claim
    last_seq  bigint NOT NULL DEFAULT 0,      -- no queued Task stands below; where head lookups begin
    head      bigint,                         -- key of the first queued Task, kept while there is no holder
    rank      timestamptz,                    -- the least of its queued Tasks; null: no head, or a held one
    ready_at  timestamptz                     -- back-off of the head
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX lanes_turn  ON slipway.lanes (queue, namespace, rank) WHERE holder IS NULL AND ready_at IS NULL AND rank IS NOT NULL;
CREATE INDEX lanes_ready ON slipway.lanes (queue, ready_at) WHERE holder IS NULL AND ready_at IS NOT NULL;

CREATE TABLE slipway.tasks (
    key         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id          uuid   NOT NULL UNIQUE,
    seq         bigint,                 -- order in the lane, drawn under its lock; null: outside the lane
    outside     text CHECK (outside IN ('parent', 'dependency', 'delay')), -- why it is outside its lane
    lane        text   NOT NULL,
    queue       text   NOT NULL,
    namespace   text   NOT NULL,
    kind        text   NOT NULL,
    name        text   NOT NULL DEFAULT '',
    mode        text   NOT NULL CHECK (mode IN ('strict', 'latest', 'parallel')),
    class       smallint NOT NULL CHECK (class BETWEEN 0 AND 3),
    executor    text   NOT NULL,
    params      jsonb  NOT NULL,
    spec        jsonb  NOT NULL,
    labels      jsonb,
    state       text   NOT NULL CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'canceled')),
    outcome     text   NOT NULL DEFAULT '',
    reason      text   NOT NULL DEFAULT '',
    message     text   NOT NULL DEFAULT '',
    result      jsonb,
    run_at      timestamptz NOT NULL,
    eligible_at timestamptz NOT NULL,
    rank        timestamptz NOT NULL,   -- eligible_at + class x 120 s: ageing without a job
    queue_by    timestamptz,            -- queue deadline
    attempts    int    NOT NULL DEFAULT 0,
    spent_retry int    NOT NULL DEFAULT 0,
    spent_lost  int    NOT NULL DEFAULT 0,
    held        boolean NOT NULL DEFAULT false,
    parent      bigint,
    children    int    NOT NULL DEFAULT 0,
    retry_of    bigint,
    root        bigint,                 -- first Task of a chain of retries by hand
    replaces    text[],                 -- kinds that it replaces when it enters its lane
    run_if      text NOT NULL DEFAULT 'all_succeeded' CHECK (run_if IN ('all_succeeded', 'all_finished')),
    schedule    uuid,
    fire_at     timestamptz,
    stop        text   NOT NULL DEFAULT '', -- why it was asked to stop; decides how a composite ends
    cancel_at   timestamptz,
    cancel_by   text   NOT NULL DEFAULT '',
    created_by  text   NOT NULL,
    created_at  timestamptz NOT NULL,
    started_at  timestamptz,
    ended_at    timestamptz
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX tasks_order     ON slipway.tasks (lane, seq)  WHERE state = 'queued' AND seq IS NOT NULL;
CREATE INDEX tasks_rank      ON slipway.tasks (lane, rank) WHERE state = 'queued' AND seq IS NOT NULL;
CREATE INDEX tasks_due       ON slipway.tasks (run_at)     WHERE state = 'queued' AND outside = 'delay';
CREATE INDEX tasks_queue_by  ON slipway.tasks (queue_by)   WHERE state = 'queued' AND queue_by IS NOT NULL;
CREATE INDEX tasks_waiting   ON slipway.tasks (queue, namespace) WHERE state = 'queued';
CREATE INDEX tasks_composite ON slipway.tasks (started_at) WHERE state = 'running' AND children > 0;
CREATE INDEX tasks_parent    ON slipway.tasks (parent)     WHERE parent IS NOT NULL;
CREATE INDEX tasks_retry_of  ON slipway.tasks (retry_of)   WHERE retry_of IS NOT NULL;
CREATE UNIQUE INDEX tasks_fire ON slipway.tasks (schedule, fire_at) WHERE schedule IS NOT NULL;
CREATE INDEX tasks_newest    ON slipway.tasks (created_at DESC, key DESC);
CREATE INDEX tasks_namespace ON slipway.tasks (namespace, created_at DESC, key DESC);
CREATE INDEX tasks_kind      ON slipway.tasks (kind, created_at DESC, key DESC);
CREATE INDEX tasks_state     ON slipway.tasks (state, created_at DESC, key DESC);
CREATE INDEX tasks_lane      ON slipway.tasks (lane, created_at DESC, key DESC);

CREATE TABLE slipway.task_labels (
    kv         text NOT NULL, -- key=value
    created_at timestamptz NOT NULL,
    task       bigint NOT NULL REFERENCES slipway.tasks ON DELETE CASCADE
);
CREATE INDEX task_labels_find ON slipway.task_labels (kv, created_at DESC, task DESC);
CREATE INDEX task_labels_task ON slipway.task_labels (task);

CREATE TABLE slipway.deps (
    task  bigint NOT NULL REFERENCES slipway.tasks ON DELETE CASCADE,
    needs bigint NOT NULL,
    PRIMARY KEY (task, needs)
);
CREATE INDEX deps_needs ON slipway.deps (needs);

CREATE TABLE slipway.attempts (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task        bigint NOT NULL REFERENCES slipway.tasks ON DELETE CASCADE,
    number      int    NOT NULL,
    fence       bigint NOT NULL,
    lane        text   NOT NULL,
    queue       text   NOT NULL,
    namespace   text   NOT NULL,
    kind        text   NOT NULL,
    executor    text   NOT NULL,
    replica     text   NOT NULL,
    state       text   NOT NULL CHECK (state IN ('leased', 'launched', 'started', 'finished')),
    job_name    text   NOT NULL DEFAULT '',
    job_uid     text   NOT NULL DEFAULT '',
    pod_uid     text   NOT NULL DEFAULT '',
    pod_name    text   NOT NULL DEFAULT '',
    node        text   NOT NULL DEFAULT '',
    wait        text   NOT NULL DEFAULT '',
    wait_note   text   NOT NULL DEFAULT '',
    wait_until  timestamptz,
    stop        text   NOT NULL DEFAULT '',
    stop_note   text   NOT NULL DEFAULT '',
    stop_at     timestamptz,
    report      jsonb,
    late        boolean NOT NULL DEFAULT false,
    outcome     text   NOT NULL DEFAULT '',
    reason      text   NOT NULL DEFAULT '',
    message     text   NOT NULL DEFAULT '',
    rule        text   NOT NULL DEFAULT '',
    exit_code   int,
    evidence    jsonb,
    beat_at     timestamptz, -- last heartbeat and progress, kept from the lease at the end
    progress    jsonb,
    claimed_at  timestamptz NOT NULL,
    launched_at timestamptz,
    started_at  timestamptz,
    finished_at timestamptz,
    closed_at   timestamptz, -- its Job and pods are closed in the cluster
    UNIQUE (task, number)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX attempts_lane ON slipway.attempts (lane) WHERE finished_at IS NULL;
CREATE INDEX attempts_live   ON slipway.attempts (queue, namespace) WHERE finished_at IS NULL;
CREATE INDEX attempts_open   ON slipway.attempts (id) WHERE closed_at IS NULL;
CREATE INDEX attempts_closed ON slipway.attempts (namespace, closed_at) WHERE closed_at IS NOT NULL AND job_name <> '';

-- Narrow, without another index, so that a heartbeat is a HOT update.
CREATE TABLE slipway.leases (
    attempt     bigint PRIMARY KEY REFERENCES slipway.attempts ON DELETE CASCADE,
    lease_until timestamptz NOT NULL,
    beat_at     timestamptz NOT NULL,
    progress    jsonb
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- Every pod of an Attempt that was ever seen bound to a node.
CREATE TABLE slipway.attempt_pods (
    attempt bigint NOT NULL REFERENCES slipway.attempts ON DELETE CASCADE,
    uid     text NOT NULL,
    name    text NOT NULL,
    node    text NOT NULL,
    ended   boolean NOT NULL DEFAULT false,
    PRIMARY KEY (attempt, uid)
);

-- "Look at this Task": written with the end of another, removed by the transaction that looked. No unique key: an
-- insert never waits for another transaction here.
CREATE TABLE slipway.nudges (
    id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX nudges_task ON slipway.nudges (task);

CREATE TABLE slipway.idempotency (
    caller     text  NOT NULL,
    key        text  NOT NULL,
    hash       bytea NOT NULL,
    answer     jsonb NOT NULL, -- [{id, result}] in the order of the request's items
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (caller, key)
);
CREATE INDEX idempotency_expires ON slipway.idempotency (expires_at);

CREATE TABLE slipway.freezes (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace  text, -- null: every one
    queue      text, -- null: every one
    actor      text NOT NULL,
    reason     text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    ended_at   timestamptz,
    ended_by   text NOT NULL DEFAULT ''
);
CREATE INDEX freezes_live ON slipway.freezes (expires_at) WHERE ended_at IS NULL;

CREATE TABLE slipway.kind_switches (
    kind       text PRIMARY KEY,
    executor   text NOT NULL CHECK (executor IN ('job', 'inline', 'off')),
    actor      text NOT NULL,
    reason     text NOT NULL DEFAULT '',
    changed_at timestamptz NOT NULL
);

-- Who holds back which Task, and why; tasks.held is what the claim reads.
CREATE TABLE slipway.holds (
    task    bigint PRIMARY KEY REFERENCES slipway.tasks ON DELETE CASCADE,
    actor   text NOT NULL,
    reason  text NOT NULL DEFAULT '',
    held_at timestamptz NOT NULL
);

CREATE TABLE slipway.audit (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid      xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at       timestamptz NOT NULL,
    actor    text NOT NULL,
    verb     text NOT NULL,
    resource text NOT NULL,
    name     text NOT NULL,
    data     jsonb
);
CREATE INDEX audit_stream ON slipway.audit (xid, id);
CREATE INDEX audit_resource ON slipway.audit (resource, name, id DESC);

CREATE TABLE slipway.rollup_hour (
    hour      timestamptz NOT NULL,
    kind      text NOT NULL,
    queue     text NOT NULL,
    namespace text NOT NULL,
    outcome   text NOT NULL,
    tasks     bigint NOT NULL DEFAULT 0,
    seconds   float8 NOT NULL DEFAULT 0,
    PRIMARY KEY (hour, kind, queue, namespace, outcome)
);

-- Position in the stream is (xid, id) below pg_snapshot_xmin: an id alone misses what commits late.
CREATE SEQUENCE slipway.event_ids;
CREATE TABLE slipway.events (
    id      bigint NOT NULL DEFAULT nextval('slipway.event_ids'),
    xid     xid8   NOT NULL DEFAULT pg_current_xact_id(),
    task    bigint NOT NULL,
    attempt int    NOT NULL DEFAULT 0, -- its number; 0: the Task itself
    type    text   NOT NULL,
    actor   text   NOT NULL DEFAULT '',
    at      timestamptz NOT NULL,
    data    jsonb
) PARTITION BY RANGE (at);
CREATE INDEX events_stream ON slipway.events (xid, id);
CREATE INDEX events_task   ON slipway.events (task, xid, id);
CREATE TABLE slipway.events_default PARTITION OF slipway.events DEFAULT;

CREATE TABLE slipway.logs (
    attempt bigint NOT NULL,
    part    int    NOT NULL,
    at      timestamptz NOT NULL,
    bytes   bytea  NOT NULL -- gzip
) PARTITION BY RANGE (at);
CREATE INDEX logs_attempt ON slipway.logs (attempt, part);
CREATE TABLE slipway.logs_default PARTITION OF slipway.logs DEFAULT;

-- Makes the day partitions of events and logs from today on, in UTC. Rows that came before their partition did stand
-- in the default one and move when it is made.
-- +goose StatementBegin
CREATE FUNCTION slipway.make_partitions(ahead int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    parent text; child text; day date; made int := 0; lower_bound timestamptz; upper_bound timestamptz;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('slipway.make_partitions'));
    FOREACH parent IN ARRAY ARRAY['events', 'logs'] LOOP
        FOR i IN 0..ahead LOOP
            day := (slipway.now() AT TIME ZONE 'UTC')::date + i;
            child := parent || '_' || to_char(day, 'YYYYMMDD');
            CONTINUE WHEN to_regclass('slipway.' || child) IS NOT NULL;
            lower_bound := day::timestamp AT TIME ZONE 'UTC';
            upper_bound := (day + 1)::timestamp AT TIME ZONE 'UTC';
            EXECUTE format('CREATE TABLE slipway.%I (LIKE slipway.%I INCLUDING DEFAULTS)', child, parent);
            EXECUTE format('LOCK TABLE slipway.%I IN ACCESS EXCLUSIVE MODE', parent || '_default');
            EXECUTE format('WITH moved AS (DELETE FROM slipway.%I WHERE at >= $1 AND at < $2 RETURNING *) INSERT INTO slipway.%I SELECT * FROM moved',
                           parent || '_default', child) USING lower_bound, upper_bound;
            EXECUTE format('ALTER TABLE slipway.%I ATTACH PARTITION slipway.%I FOR VALUES FROM (%L) TO (%L)', parent, child,
                           lower_bound, upper_bound);
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;
-- +goose StatementEnd
SELECT slipway.make_partitions(3);
