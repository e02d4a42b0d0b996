-- Sessions, sends, transcripts, steps, and who may write them.
-- Times are whole milliseconds since the Unix epoch, UTC. Ids are UUIDs of 16 bytes. JSON is TEXT.
-- Narrow tables are clustered by their key (WITHOUT ROWID); tables with long texts are not.

-- One row per life of a process. Sessions point here with owner_boot, so one renewal per process
-- keeps the leases of all its sessions.
CREATE TABLE boots (
    boot_id     BLOB    NOT NULL PRIMARY KEY,
    role        TEXT    NOT NULL CHECK (role IN ('scheduler', 'worker')),
    name        TEXT    NOT NULL,
    pool        TEXT    NOT NULL,
    concurrency INTEGER NOT NULL,
    in_flight   INTEGER NOT NULL DEFAULT 0,
    started_at  INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    dead_at     INTEGER
) STRICT, WITHOUT ROWID;

-- The cold half of a session. A deleted one has no row here.
CREATE TABLE sessions (
    tenant        INTEGER NOT NULL,
    session_id    BLOB    NOT NULL,
    agent_version INTEGER NOT NULL,
    agent_name    TEXT,
    metadata      TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    PRIMARY KEY (tenant, session_id)
) STRICT;

-- Every version of a session's agent: a send keeps the one that it started with.
CREATE TABLE agents (
    tenant     INTEGER NOT NULL,
    session_id BLOB    NOT NULL,
    version    INTEGER NOT NULL,
    spec       TEXT    NOT NULL,
    PRIMARY KEY (tenant, session_id, version)
) STRICT;

-- The hot half: what every accept, claim and completion touches.
--   ready_since  set while the session has work that can go on, whether owned or not
--   pending      queued sends that have their place
--   lifecycle    0 open, 1 closed, 2 deleted (the row stays, so that the epoch is never reused)
CREATE TABLE session_hot (
    tenant        INTEGER NOT NULL,
    session_id    BLOB    NOT NULL,
    owner_boot    BLOB,
    token         BLOB,
    epoch         INTEGER NOT NULL DEFAULT 0,
    next_seq      INTEGER NOT NULL DEFAULT 1,
    next_position INTEGER NOT NULL DEFAULT 1,
    next_step     INTEGER NOT NULL DEFAULT 1,
    pending       INTEGER NOT NULL DEFAULT 0,
    signals       INTEGER NOT NULL DEFAULT 0,
    ready_since   INTEGER,
    lifecycle     INTEGER NOT NULL DEFAULT 0,
    pool          TEXT    NOT NULL,
    priority      INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, session_id),
    CHECK ((owner_boot IS NULL) = (token IS NULL)),
    CHECK (pending >= 0)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_hot_ready ON session_hot (ready_since, tenant, session_id) WHERE ready_since IS NOT NULL;
CREATE INDEX session_hot_signals ON session_hot (owner_boot) WHERE signals <> 0;

CREATE TABLE sends (
    tenant           INTEGER NOT NULL,
    send_id          BLOB    NOT NULL,
    session_id       BLOB    NOT NULL,
    position         INTEGER,
    status           TEXT    NOT NULL
                     CHECK (status IN ('queued', 'running', 'waiting', 'completed', 'failed', 'cancelled')),
    waiting_on       TEXT,
    stop_reason      TEXT,
    input            TEXT    NOT NULL,
    options          TEXT    NOT NULL,
    agent_version    INTEGER,
    output_text      TEXT,
    output           TEXT,
    error            TEXT,
    usage            TEXT,
    rounds           INTEGER NOT NULL DEFAULT 0,
    attempts         INTEGER NOT NULL DEFAULT 0,
    crashes          INTEGER NOT NULL DEFAULT 0,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    deadline_at      INTEGER,
    alarm_at         INTEGER,
    first_step       INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    started_at       INTEGER,
    finished_at      INTEGER,
    PRIMARY KEY (tenant, send_id),
    CHECK ((finished_at IS NOT NULL) = (status IN ('completed', 'failed', 'cancelled'))),
    CHECK ((finished_at IS NOT NULL) = (stop_reason IS NOT NULL)),
    CHECK ((status = 'waiting') = (waiting_on IS NOT NULL)),
    CHECK ((status = 'failed') = (error IS NOT NULL)),
    CHECK (finished_at IS NULL OR alarm_at IS NULL)
) STRICT;
-- The open sends of a session in order: its head is the first.
CREATE UNIQUE INDEX sends_open ON sends (tenant, session_id, position) WHERE finished_at IS NULL;
CREATE INDEX sends_alarm ON sends (alarm_at, send_id) WHERE alarm_at IS NOT NULL;
-- For lists of one session's sends.
CREATE INDEX sends_session ON sends (tenant, session_id, send_id);

-- Written once, never changed. asked_at_seq: on a tool's message, the assistant's message that
-- asked; a window never starts between the two.
CREATE TABLE messages (
    tenant       INTEGER NOT NULL,
    session_id   BLOB    NOT NULL,
    seq          INTEGER NOT NULL,
    send_id      BLOB    NOT NULL,
    role         TEXT    NOT NULL CHECK (role IN ('user', 'assistant', 'tool')),
    content      TEXT    NOT NULL,
    tool_calls   TEXT,
    tool_call_id TEXT,
    name         TEXT,
    round        INTEGER NOT NULL,
    asked_at_seq INTEGER,
    epoch        INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (tenant, session_id, seq)
) STRICT;

-- One row per committed domain step: the audit's evidence and the event log at once.
-- epoch is 0 for steps that need no grant.
CREATE TABLE steps (
    tenant     INTEGER NOT NULL,
    session_id BLOB    NOT NULL,
    n          INTEGER NOT NULL,
    send_id    BLOB    NOT NULL,
    kind       TEXT    NOT NULL,
    epoch      INTEGER NOT NULL,
    boot       BLOB    NOT NULL,
    at         INTEGER NOT NULL,
    refs       TEXT    NOT NULL,
    PRIMARY KEY (tenant, session_id, n)
) STRICT, WITHOUT ROWID;

-- One row per tool call, from the transaction that stored the request.
CREATE TABLE tool_calls (
    tenant     INTEGER NOT NULL,
    session_id BLOB    NOT NULL,
    call_id    TEXT    NOT NULL,
    send_id    BLOB    NOT NULL,
    round      INTEGER NOT NULL,
    place      INTEGER NOT NULL,
    name       TEXT    NOT NULL,
    arguments  TEXT    NOT NULL,
    result     TEXT,
    failed     INTEGER NOT NULL DEFAULT 0,
    settled_at INTEGER,
    PRIMARY KEY (tenant, session_id, call_id)
) STRICT;

-- One row per model response.
CREATE TABLE usage_rows (
    tenant     INTEGER NOT NULL,
    session_id BLOB    NOT NULL,
    send_id    BLOB    NOT NULL,
    round      INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    model      TEXT    NOT NULL,
    usage      TEXT    NOT NULL,
    at         INTEGER NOT NULL,
    PRIMARY KEY (tenant, send_id, round, attempt)
) STRICT, WITHOUT ROWID;

-- What makes a repeated request harmless; written in the transaction of what it names.
CREATE TABLE idempotency_keys (
    tenant     INTEGER NOT NULL,
    route      TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    body_hash  BLOB    NOT NULL,
    resource   BLOB    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, route, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);
