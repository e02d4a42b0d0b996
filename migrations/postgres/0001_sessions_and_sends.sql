-- Sessions, sends, transcripts, steps, and who may write them.
-- Times are whole milliseconds since the Unix epoch, UTC. JSON that no statement looks into is TEXT.

-- One row per life of a process. Sessions point here with owner_boot, so one renewal per process
-- keeps the leases of all its sessions.
CREATE TABLE boots (
    boot_id     UUID    PRIMARY KEY,
    role        TEXT    NOT NULL CHECK (role IN ('scheduler', 'worker')),
    name        TEXT    NOT NULL,
    pool        TEXT    NOT NULL,
    concurrency INTEGER NOT NULL,
    in_flight   INTEGER NOT NULL DEFAULT 0,
    started_at  BIGINT  NOT NULL,
    lease_until BIGINT  NOT NULL,
    dead_at     BIGINT
) WITH (fillfactor = 50);
-- On a column that never changes, so that renewals stay heap-only.
CREATE INDEX boots_live ON boots (boot_id) WHERE dead_at IS NULL;

-- The cold half of a session. A deleted one has no row here.
CREATE TABLE sessions (
    tenant        INTEGER NOT NULL,
    session_id    UUID    NOT NULL,
    agent_version INTEGER NOT NULL,
    agent_name    TEXT,
    metadata      JSONB   NOT NULL,
    created_at    BIGINT  NOT NULL,
    updated_at    BIGINT  NOT NULL,
    PRIMARY KEY (tenant, session_id)
);
CREATE INDEX sessions_metadata ON sessions USING gin (metadata jsonb_path_ops);

-- Every version of a session's agent: a send keeps the one that it started with.
CREATE TABLE agents (
    tenant     INTEGER NOT NULL,
    session_id UUID    NOT NULL,
    version    INTEGER NOT NULL,
    spec       TEXT    NOT NULL,
    PRIMARY KEY (tenant, session_id, version)
);

-- The hot half: what every accept, claim and completion touches. Half-full pages and indexes on
-- nothing but ready_since and signals keep most updates heap-only.
--   ready_since  set while the session has work that can go on, whether owned or not
--   pending      queued sends that have their place
--   active       what the send at the head does: 0 none has begun, 1 it runs, 2 it waits. A
--                statement that waited for this row's lock sees it fresh, but not yet the sends
--                that were committed meanwhile, so whatever follows from them stands here too
--   lifecycle    0 open, 1 closed, 2 deleted (the row stays, so that the epoch is never reused)
CREATE TABLE session_hot (
    tenant        INTEGER  NOT NULL,
    session_id    UUID     NOT NULL,
    owner_boot    UUID,
    token         UUID,
    epoch         BIGINT   NOT NULL DEFAULT 0,
    next_seq      BIGINT   NOT NULL DEFAULT 1,
    next_position BIGINT   NOT NULL DEFAULT 1,
    next_step     BIGINT   NOT NULL DEFAULT 1,
    pending       BIGINT   NOT NULL DEFAULT 0,
    active        SMALLINT NOT NULL DEFAULT 0,
    signals       INTEGER  NOT NULL DEFAULT 0,
    ready_since   BIGINT,
    lifecycle     SMALLINT NOT NULL DEFAULT 0,
    pool          TEXT     NOT NULL,
    priority      SMALLINT NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, session_id),
    CHECK ((owner_boot IS NULL) = (token IS NULL)),
    CHECK (pending >= 0),
    CHECK (active BETWEEN 0 AND 2),
    CHECK (ready_since IS NULL OR pending > 0 OR active > 0)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 1
);
CREATE INDEX session_hot_ready ON session_hot (ready_since, tenant, session_id) WHERE ready_since IS NOT NULL;
-- Not on owner_boot: a column of any index, partial ones included, makes its updates full ones.
CREATE INDEX session_hot_signals ON session_hot (tenant, session_id) WHERE signals <> 0;

CREATE TABLE sends (
    tenant           INTEGER  NOT NULL,
    send_id          UUID     NOT NULL,
    session_id       UUID     NOT NULL,
    position         BIGINT,
    status           TEXT     NOT NULL
                     CHECK (status IN ('queued', 'running', 'waiting', 'completed', 'failed', 'cancelled')),
    waiting_on       TEXT,
    stop_reason      TEXT,
    input            TEXT     NOT NULL,
    options          TEXT     NOT NULL,
    agent_version    INTEGER,
    output_text      TEXT,
    output           TEXT,
    error            TEXT,
    usage            TEXT,
    rounds           INTEGER  NOT NULL DEFAULT 0,
    attempts         INTEGER  NOT NULL DEFAULT 0,
    crashes          INTEGER  NOT NULL DEFAULT 0,
    cancel_requested BOOLEAN  NOT NULL DEFAULT FALSE,
    deadline_at      BIGINT,
    alarm_at         BIGINT,
    first_step       BIGINT   NOT NULL,
    created_at       BIGINT   NOT NULL,
    started_at       BIGINT,
    finished_at      BIGINT,
    PRIMARY KEY (tenant, send_id),
    CHECK ((finished_at IS NOT NULL) = (status IN ('completed', 'failed', 'cancelled'))),
    CHECK ((finished_at IS NOT NULL) = (stop_reason IS NOT NULL)),
    CHECK ((status = 'waiting') = (waiting_on IS NOT NULL)),
    CHECK ((status = 'failed') = (error IS NOT NULL)),
    CHECK (finished_at IS NULL OR alarm_at IS NULL)
    -- Half-full pages keep the start of every send heap-only.
) WITH (fillfactor = 50);
-- The open sends of a session in order: its head is the first.
CREATE UNIQUE INDEX sends_open ON sends (tenant, session_id, position) WHERE finished_at IS NULL;
CREATE INDEX sends_alarm ON sends (alarm_at) WHERE alarm_at IS NOT NULL;
-- For lists of one session's sends. Without the tenant in front, so that no plan can take it for a
-- lookup by tenant and send, which is the primary key's.
CREATE INDEX sends_session ON sends (session_id, send_id);

-- Written once, never changed. asked_at_seq: on a tool's message, the assistant's message that
-- asked; a window never starts between the two.
CREATE TABLE messages (
    tenant       INTEGER NOT NULL,
    session_id   UUID    NOT NULL,
    seq          BIGINT  NOT NULL,
    send_id      UUID    NOT NULL,
    role         TEXT    NOT NULL CHECK (role IN ('user', 'assistant', 'tool')),
    content      TEXT    NOT NULL,
    tool_calls   TEXT,
    tool_call_id TEXT,
    name         TEXT,
    round        INTEGER NOT NULL,
    asked_at_seq BIGINT,
    epoch        BIGINT  NOT NULL,
    created_at   BIGINT  NOT NULL,
    PRIMARY KEY (tenant, session_id, seq)
);

-- One row per committed domain step: the audit's evidence and the event log at once.
-- epoch is 0 for steps that need no grant.
CREATE TABLE steps (
    tenant     INTEGER NOT NULL,
    session_id UUID    NOT NULL,
    n          BIGINT  NOT NULL,
    send_id    UUID    NOT NULL,
    kind       TEXT    NOT NULL,
    epoch      BIGINT  NOT NULL,
    boot       UUID    NOT NULL,
    at         BIGINT  NOT NULL,
    refs       TEXT    NOT NULL,
    PRIMARY KEY (tenant, session_id, n)
);

-- One row per tool call, from the transaction that stored the request.
CREATE TABLE tool_calls (
    tenant     INTEGER NOT NULL,
    session_id UUID    NOT NULL,
    call_id    TEXT    NOT NULL,
    send_id    UUID    NOT NULL,
    round      INTEGER NOT NULL,
    place      INTEGER NOT NULL,
    name       TEXT    NOT NULL,
    arguments  TEXT    NOT NULL,
    result     TEXT,
    failed     BOOLEAN NOT NULL DEFAULT FALSE,
    settled_at BIGINT,
    PRIMARY KEY (tenant, session_id, call_id)
);

-- One row per model response.
CREATE TABLE usage_rows (
    tenant     INTEGER NOT NULL,
    session_id UUID    NOT NULL,
    send_id    UUID    NOT NULL,
    round      INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    model      TEXT    NOT NULL,
    usage      TEXT    NOT NULL,
    at         BIGINT  NOT NULL,
    PRIMARY KEY (tenant, send_id, round, attempt)
);

-- What makes a repeated request harmless; written in the transaction of what it names.
CREATE TABLE idempotency_keys (
    tenant     INTEGER NOT NULL,
    route      TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    body_hash  BYTEA   NOT NULL,
    resource   UUID    NOT NULL,
    created_at BIGINT  NOT NULL,
    PRIMARY KEY (tenant, route, key)
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);
