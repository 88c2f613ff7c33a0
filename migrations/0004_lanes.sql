-- +goose Up

-- How many later submits a Task of mode latest has absorbed.
ALTER TABLE slipway.tasks ADD COLUMN absorbed int NOT NULL DEFAULT 0;

-- Into how many parts the lanes of a partition are cut; lanes is what their keys begin with.
CREATE TABLE slipway.epochs (
    lanes text PRIMARY KEY,
    parts int  NOT NULL CHECK (parts BETWEEN 1 AND 9999)
);

-- Live Attempts of a queue by age: a count begins at the oldest that can be live, and leaves out the dead entries before
-- it, which a long transaction keeps.
CREATE INDEX attempts_line ON slipway.attempts (queue, id) INCLUDE (namespace) WHERE finished_at IS NULL;
DROP INDEX slipway.attempts_live;
