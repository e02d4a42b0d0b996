-- Runs of workflows: their nodes, what is asked of them, and what happened.

--   spec        canonical JSON, with everything that the run needs
--   owner_boot  the scheduler that keeps it in memory; it may be dead
--   step        advances so far. With owner_boot it is the fence: an advance names the step that it
--               follows, so that whoever remembers an older one changes nothing
--   alarm_at    when someone has to look at it, from its creation on
CREATE TABLE runs (
    tenant      INTEGER NOT NULL,
    run_id      UUID    NOT NULL,
    name        TEXT    NOT NULL,
    status      TEXT    NOT NULL
                CHECK (status IN ('queued', 'running', 'waiting', 'completed', 'failed', 'cancelled')),
    spec        TEXT    NOT NULL,
    dsl_version INTEGER NOT NULL,
    input       TEXT    NOT NULL,
    options     TEXT    NOT NULL,
    session_id  UUID,
    reports_to  TEXT    COLLATE "C",
    depth       INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    result      TEXT,
    error       TEXT,
    usage       TEXT    NOT NULL,
    counts      TEXT    NOT NULL,
    alarm_at    BIGINT,
    owner_boot  UUID,
    step        BIGINT  NOT NULL DEFAULT 0,
    created_at  BIGINT  NOT NULL,
    started_at  BIGINT,
    finished_at BIGINT,
    PRIMARY KEY (tenant, run_id),
    CHECK ((finished_at IS NOT NULL) = (status IN ('completed', 'failed', 'cancelled')))
) WITH (fillfactor = 50);
CREATE INDEX runs_alarm ON runs (alarm_at) WHERE alarm_at IS NOT NULL;
CREATE INDEX runs_session ON runs (tenant, session_id, run_id) WHERE session_id IS NOT NULL;

--   node  the record as JSON; what is looked for stands in columns, too
CREATE TABLE run_nodes (
    tenant  INTEGER NOT NULL,
    run_id  UUID    NOT NULL,
    path    TEXT    COLLATE "C" NOT NULL,
    n       BIGINT  NOT NULL,
    state   TEXT    NOT NULL,
    node    TEXT    NOT NULL,
    PRIMARY KEY (tenant, run_id, path)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX run_nodes_order ON run_nodes (tenant, run_id, n);

-- What someone wants of a run, until an advance has taken it.
CREATE TABLE run_asks (
    ask_id     BIGINT  GENERATED ALWAYS AS IDENTITY,
    tenant     INTEGER NOT NULL,
    run_id     UUID    NOT NULL,
    ask        TEXT    NOT NULL,
    created_at BIGINT  NOT NULL,
    PRIMARY KEY (tenant, run_id, ask_id)
);

-- One row per advance: the log of the run's events.
CREATE TABLE run_steps (
    tenant  INTEGER NOT NULL,
    run_id  UUID    NOT NULL,
    n       BIGINT  NOT NULL,
    at      BIGINT  NOT NULL,
    boot    UUID    NOT NULL,
    changes TEXT    NOT NULL,
    PRIMARY KEY (tenant, run_id, n)
);

-- Set on the send that a leaf's attempt is. Its row is the leaf's row in the journal: it is news for
-- its run from its end on until an advance has noted it in reported_at.
ALTER TABLE sends
    ADD COLUMN run_id      UUID,
    ADD COLUMN run_path    TEXT COLLATE "C",
    ADD COLUMN run_attempt INTEGER;
CREATE INDEX sends_run_ended ON sends (tenant, run_id)
    WHERE run_id IS NOT NULL AND finished_at IS NOT NULL AND reported_at IS NULL;
