-- +goose Up

-- A switch takes hold of the first so many of a hundred equal parts of the lanes; a Task of mode parallel is a lane of its own.
ALTER TABLE slipway.kind_switches ADD COLUMN percent smallint NOT NULL DEFAULT 100 CHECK (percent BETWEEN 1 AND 100);
-- Which part a lane is in, 0 to 99: the same on every server and version.
CREATE FUNCTION slipway.lane_part(lane text) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS
$$ SELECT CAST(CAST(CAST('x' || substr(md5(lane), 1, 8) AS bit(32)) AS bigint) % 100 AS int) $$;

-- A replica before this version knows no inline Attempt: what it claims it launches as a Job, so that is what it gets.
-- +goose StatementBegin
CREATE FUNCTION slipway.as_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.executor := 'job';
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER attempts_as_job BEFORE INSERT ON slipway.attempts FOR EACH ROW
    WHEN (NEW.executor = 'inline' AND slipway.session_version() < 5) EXECUTE FUNCTION slipway.as_job();
