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

-- A roll has replicas of two versions at once, and one that does not know a field of a Task's spec would launch it
-- without. So a Task is run by replicas at least as new as the one that took it in. A session says its version in the
-- setting slipway.binary; those before 3 say nothing. The default stamps what a session takes in.
CREATE FUNCTION slipway.session_version() RETURNS int LANGUAGE sql STABLE PARALLEL SAFE AS
$$ SELECT coalesce(CAST(nullif(current_setting('slipway.binary', true), '') AS int), 0) $$;
ALTER TABLE slipway.tasks ADD COLUMN min_binary int NOT NULL DEFAULT slipway.session_version();
-- That of its Task. Where it is not 0, wait_until stays far ahead, so that no replica before 3 launches what is overdue;
-- again_at is when to try again.
ALTER TABLE slipway.attempts
    ADD COLUMN min_binary int NOT NULL DEFAULT 0,
    ADD COLUMN again_at   timestamptz;

-- +goose StatementBegin
CREATE FUNCTION slipway.refuse_older() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    needs int;
BEGIN
    SELECT t.min_binary INTO needs FROM slipway.tasks t WHERE t.key = NEW.task;
    IF needs > slipway.session_version() THEN
        RAISE EXCEPTION 'a replica of schema version % runs no task that one of version % took in: it is to be replaced',
            slipway.session_version(), needs USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
-- Replicas of this version never meet them: their claims choose, and what they see of others they may end.
CREATE TRIGGER attempts_claim BEFORE INSERT ON slipway.attempts FOR EACH ROW
    WHEN (slipway.session_version() < 3) EXECUTE FUNCTION slipway.refuse_older();
CREATE TRIGGER attempts_end BEFORE UPDATE OF finished_at ON slipway.attempts FOR EACH ROW
    WHEN (slipway.session_version() < NEW.min_binary) EXECUTE FUNCTION slipway.refuse_older();
