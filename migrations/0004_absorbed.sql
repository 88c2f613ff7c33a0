-- +goose Up

-- How many later submits a Task of mode latest has absorbed.
ALTER TABLE slipway.tasks ADD COLUMN absorbed int NOT NULL DEFAULT 0;
