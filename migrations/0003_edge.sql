-- +goose Up

-- The namespace that a change is about, for readers who may see one namespace only. Empty: it is about all of them, or a
-- replica of version 2 wrote it, and only readers of everything see it.
ALTER TABLE slipway.audit ADD COLUMN namespace text NOT NULL DEFAULT '';
UPDATE slipway.audit a SET namespace = coalesce(a.after ->> 'namespace', a.before ->> 'namespace',
    (SELECT t.namespace FROM slipway.tasks t WHERE CAST(t.id AS text) = a.name), '')
WHERE a.resource = 'tasks' AND a.verb <> 'batch';
UPDATE slipway.audit SET namespace = split_part(name, '/', 1) WHERE resource = 'freezes' AND verb = 'freeze';
CREATE INDEX audit_namespace ON slipway.audit (namespace, id DESC);
CREATE INDEX audit_actor     ON slipway.audit (actor, id DESC);
CREATE INDEX audit_at        ON slipway.audit USING brin (at);
