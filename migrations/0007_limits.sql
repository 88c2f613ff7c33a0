-- +goose Up

-- How many bytes of storage the volume claims of a namespace may ask for, together; without a row there is no limit. A
-- submit that wants more locks the row, so that no two of them count on the same room. A replica before this version knows
-- no limits and reserves nothing: set them once all are of this one.
CREATE TABLE slipway.limits (
    namespace  text PRIMARY KEY,
    storage    bigint NOT NULL CHECK (storage >= 0),
    changed_by text   NOT NULL DEFAULT '',
    changed_at timestamptz NOT NULL DEFAULT slipway.now()
);

-- What Tasks will make claims ask for at least, limit or none. A row holds as long as its Task is open, whatever ends that,
-- so that none has to be given back; those of ended Tasks are swept, at the latest with their Tasks.
CREATE TABLE slipway.reservations (
    task      bigint PRIMARY KEY REFERENCES slipway.tasks ON DELETE CASCADE,
    namespace text   NOT NULL,
    claim     text   NOT NULL,
    bytes     bigint NOT NULL CHECK (bytes > 0)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX reservations_namespace ON slipway.reservations (namespace);

-- Whether the handler of an Attempt was cut off without a word of its own: what it had begun may go on, and the end of a
-- Task that is not tried again says so.
ALTER TABLE slipway.attempts ADD COLUMN silent boolean NOT NULL DEFAULT false;
