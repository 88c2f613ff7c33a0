-- +goose Up

-- Who changed what, written with the change. One row per request: a batch is named after its first Task. The column data
-- stays for replicas of version 1, which write it and nothing else.
ALTER TABLE slipway.audit
    ADD COLUMN peer    text NOT NULL DEFAULT '', -- address that the request came from
    ADD COLUMN request text NOT NULL DEFAULT '', -- its id
    ADD COLUMN before  jsonb,
    ADD COLUMN after   jsonb;
