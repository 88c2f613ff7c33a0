-- +goose Up

-- What is to run again and again. Users write the first part, by revision; the firing writes the last, and neither
-- touches the columns of the other. No CHECK repeats the rules of expressions: what is put here behind the API's back is
-- marked broken by the firing, with a reason. Durations are seconds; 0: none.
CREATE TABLE slipway.schedules (
    key           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id            uuid   NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    namespace     text   NOT NULL,
    name          text   NOT NULL,
    description   text   NOT NULL DEFAULT '',
    owner         text   NOT NULL DEFAULT '',
    labels        jsonb  NOT NULL DEFAULT '{}',
    cron          text   NOT NULL DEFAULT '',     -- or every
    every         float8 NOT NULL DEFAULT 0,
    zone          text   NOT NULL DEFAULT 'UTC',
    template      jsonb  NOT NULL,                -- the submit that each fire is
    missed        text   NOT NULL DEFAULT 'latest' CHECK (missed IN ('skip', 'latest', 'all', 'within')),
    up_to         int    NOT NULL DEFAULT 0,      -- of `all`
    within        float8 NOT NULL DEFAULT 0,      -- of `within`
    overlap       text   NOT NULL DEFAULT 'forbid' CHECK (overlap IN ('forbid', 'allow', 'replace', 'queue')),
    start_window  float8 NOT NULL DEFAULT 0,      -- a fire that is later than this is missed
    spread        float8 NOT NULL DEFAULT 0,
    blackouts     jsonb  NOT NULL DEFAULT '[]',
    calendars     jsonb  NOT NULL DEFAULT '[]',   -- names: of its namespace, else of all
    expect_within float8 NOT NULL DEFAULT 0,      -- unhealthy without a success for so long
    enabled       boolean NOT NULL DEFAULT true,
    enabled_at    timestamptz NOT NULL DEFAULT slipway.now(), -- nothing is made up for before it
    anchor_at     timestamptz NOT NULL DEFAULT slipway.now(), -- every counts from here
    rights        jsonb  NOT NULL DEFAULT '{}',   -- who changed it last: each fire needs that user's rights
    revision      bigint NOT NULL DEFAULT 1,
    created_by    text   NOT NULL DEFAULT '',
    created_at    timestamptz NOT NULL DEFAULT slipway.now(),
    changed_by    text   NOT NULL DEFAULT '',
    changed_at    timestamptz NOT NULL DEFAULT slipway.now(),

    considered_at timestamptz NOT NULL DEFAULT slipway.now(), -- every instant up to here has been decided
    next_at       timestamptz DEFAULT slipway.now(),          -- look at it then; null: never
    broken        text   NOT NULL DEFAULT '',                 -- why it cannot fire
    waits         text   NOT NULL DEFAULT '',                 -- why nothing fires before next_at, where that is to be said
    last_fire_at  timestamptz,
    last_task     uuid,
    ledger_from   timestamptz,                                -- instants before it are in no ledger any more; null: all are
    UNIQUE (namespace, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX schedules_due ON slipway.schedules (next_at) WHERE next_at IS NOT NULL;

-- What became of each instant.
CREATE TABLE slipway.schedule_fires (
    schedule bigint NOT NULL REFERENCES slipway.schedules ON DELETE CASCADE,
    at       timestamptz NOT NULL,          -- the nominal instant
    nominal  text   NOT NULL DEFAULT '',    -- its wall times, with offset and zone
    source   text   NOT NULL DEFAULT 'schedule' CHECK (source IN ('schedule', 'manual', 'backfill')),
    outcome  text   NOT NULL,
    why      text   NOT NULL DEFAULT '',
    task     uuid,
    noted_at timestamptz NOT NULL,
    PRIMARY KEY (schedule, at)
);
CREATE INDEX schedule_fires_noted ON slipway.schedule_fires USING brin (noted_at);

-- Times in which nothing is to fire.
CREATE TABLE slipway.calendars (
    namespace  text  NOT NULL,              -- empty: for all of them
    name       text  NOT NULL,
    windows    jsonb NOT NULL,
    for_all    boolean NOT NULL DEFAULT false, -- also for schedules that do not name it
    note       text  NOT NULL DEFAULT '',
    revision   bigint NOT NULL DEFAULT 1,
    changed_by text  NOT NULL DEFAULT '',
    changed_at timestamptz NOT NULL DEFAULT slipway.now(),
    PRIMARY KEY (namespace, name)
);

CREATE INDEX tasks_fired_live ON slipway.tasks (schedule) WHERE schedule IS NOT NULL AND state IN ('queued', 'running');
CREATE INDEX tasks_fired_well ON slipway.tasks (schedule, ended_at DESC) WHERE schedule IS NOT NULL AND state = 'succeeded';

-- Whole days of events or logs go at once. Waiting for a lock holds up whoever comes after, so that it is short; where it
-- was not to be had, the next run tries again.
-- +goose StatementBegin
CREATE FUNCTION slipway.drop_partition(parent text, day date) RETURNS void LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
BEGIN
    IF parent NOT IN ('events', 'logs') THEN
        RAISE EXCEPTION 'drop a day of %: it is kept in no days', parent;
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS slipway.%I', parent || '_' || to_char(day, 'YYYYMMDD'));
END $$;
-- +goose StatementEnd
ALTER FUNCTION slipway.make_partitions(int) SET lock_timeout = '500ms';
SELECT slipway.make_partitions(3);
