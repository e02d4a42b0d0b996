-- Runs of workflows: their nodes, what is asked of them, and what happened.

--   spec        canonical JSON, with everything that the run needs
--   owner_boot  the scheduler that keeps it in memory; it may be dead
--   step        advances so far. With owner_boot it is the fence: an advance names the step that it
--               follows, so that whoever remembers an older one changes nothing
--   alarm_at    when someone has to look at it, from its creation on
CREATE TABLE runs (
    tenant      INTEGER NOT NULL,
    run_id      BLOB    NOT NULL,
    name        TEXT    NOT NULL,
    status      TEXT    NOT NULL
                CHECK (status IN ('queued', 'running', 'waiting', 'completed', 'failed', 'cancelled')),
    spec        TEXT    NOT NULL,
    dsl_version INTEGER NOT NULL,
    input       TEXT    NOT NULL,
    options     TEXT    NOT NULL,
    session_id  BLOB,
    reports_to  TEXT,
    depth       INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    result      TEXT,
    error       TEXT,
    usage       TEXT    NOT NULL,
    counts      TEXT    NOT NULL,
    alarm_at    INTEGER,
    owner_boot  BLOB,
    step        INTEGER NOT NULL DEFAULT 0,
    created_at  INTEGER NOT NULL,
    started_at  INTEGER,
    finished_at INTEGER,
    PRIMARY KEY (tenant, run_id),
    CHECK ((finished_at IS NOT NULL) = (status IN ('completed', 'failed', 'cancelled')))
) STRICT;
CREATE INDEX runs_alarm ON runs (alarm_at) WHERE alarm_at IS NOT NULL;
CREATE INDEX runs_session ON runs (tenant, session_id, run_id) WHERE session_id IS NOT NULL;

--   node  the record as JSON; what is looked for stands in columns, too
CREATE TABLE run_nodes (
    tenant  INTEGER NOT NULL,
    run_id  BLOB    NOT NULL,
    path    TEXT    NOT NULL,
    n       INTEGER NOT NULL,
    state   TEXT    NOT NULL,
    node    TEXT    NOT NULL,
    PRIMARY KEY (tenant, run_id, path)
) STRICT;
CREATE UNIQUE INDEX run_nodes_order ON run_nodes (tenant, run_id, n);

-- What someone wants of a run, until an advance has taken it.
CREATE TABLE run_asks (
    ask_id     INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant     INTEGER NOT NULL,
    run_id     BLOB    NOT NULL,
    ask        TEXT    NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX run_asks_run ON run_asks (tenant, run_id, ask_id);

-- One row per advance: the log of the run's events.
CREATE TABLE run_steps (
    tenant  INTEGER NOT NULL,
    run_id  BLOB    NOT NULL,
    n       INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    boot    BLOB    NOT NULL,
    changes TEXT    NOT NULL,
    PRIMARY KEY (tenant, run_id, n)
) STRICT;

-- Set on the send that a leaf's attempt is. Its row is the leaf's row in the journal: it is news for
-- its run from its end on until an advance has noted it in reported_at.
ALTER TABLE sends ADD COLUMN run_id BLOB;
ALTER TABLE sends ADD COLUMN run_path TEXT;
ALTER TABLE sends ADD COLUMN run_attempt INTEGER;
CREATE INDEX sends_run_ended ON sends (tenant, run_id)
    WHERE run_id IS NOT NULL AND finished_at IS NOT NULL AND reported_at IS NULL;
