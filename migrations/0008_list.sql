-- +goose Up

-- What ended badly is looked for by its reason and by its namespace. It is few among many: without these a list walked
-- through all Tasks, or all of the namespace.
CREATE INDEX tasks_reason ON slipway.tasks (reason, created_at DESC, key DESC) WHERE reason <> '';
CREATE INDEX tasks_ended_badly ON slipway.tasks (namespace, state, created_at DESC, key DESC) WHERE state IN ('failed', 'canceled');
