-- Sessions, sends, transcripts, steps, and who may write them.
-- Times are whole milliseconds since the Unix epoch, UTC. Ids are UUIDs of 16 bytes. JSON is LONGTEXT:
-- it is read back byte by byte. Text compares by its bytes. MySQL has no partial indexes: where the
-- other databases index live rows only, a nullable column leads the key here.

-- One row per life of a process. Sessions point here with owner_boot, so one renewal per process
-- keeps the leases of all its sessions.
CREATE TABLE boots (
    boot_id     BINARY(16)   NOT NULL PRIMARY KEY,
    role        VARCHAR(16)  NOT NULL CHECK (role IN ('scheduler', 'worker')),
    name        VARCHAR(700) NOT NULL,
    pool        VARCHAR(255) NOT NULL,
    concurrency INT          NOT NULL,
    in_flight   INT          NOT NULL DEFAULT 0,
    started_at  BIGINT       NOT NULL,
    lease_until BIGINT       NOT NULL,
    dead_at     BIGINT
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The cold half of a session. A deleted one has no row here.
CREATE TABLE sessions (
    tenant        INT        NOT NULL,
    session_id    BINARY(16) NOT NULL,
    agent_version INT        NOT NULL,
    agent_name    VARCHAR(255),
    metadata      LONGTEXT   NOT NULL,
    created_at    BIGINT     NOT NULL,
    updated_at    BIGINT     NOT NULL,
    PRIMARY KEY (tenant, session_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Every version of a session's agent: a send keeps the one that it started with.
CREATE TABLE agents (
    tenant     INT        NOT NULL,
    session_id BINARY(16) NOT NULL,
    version    INT        NOT NULL,
    spec       LONGTEXT   NOT NULL,
    PRIMARY KEY (tenant, session_id, version)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The hot half: what every accept, claim and completion touches, and what they lock first.
--   ready_since  set while the session has work that can go on, whether owned or not
--   pending      queued sends that have their place
--   lifecycle    0 open, 1 closed, 2 deleted (the row stays, so that the epoch is never reused)
CREATE TABLE session_hot (
    tenant        INT          NOT NULL,
    session_id    BINARY(16)   NOT NULL,
    owner_boot    BINARY(16),
    token         BINARY(16),
    epoch         BIGINT       NOT NULL DEFAULT 0,
    next_seq      BIGINT       NOT NULL DEFAULT 1,
    next_position BIGINT       NOT NULL DEFAULT 1,
    next_step     BIGINT       NOT NULL DEFAULT 1,
    pending       BIGINT       NOT NULL DEFAULT 0,
    signals       INT          NOT NULL DEFAULT 0,
    ready_since   BIGINT,
    lifecycle     SMALLINT     NOT NULL DEFAULT 0,
    pool          VARCHAR(255) NOT NULL,
    priority      INT          NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, session_id),
    KEY session_hot_ready (ready_since, tenant, session_id),
    KEY session_hot_owner (owner_boot),
    CHECK ((owner_boot IS NULL) = (token IS NULL)),
    CHECK (pending >= 0)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- sends_open: the open sends of a session in order; finished_at is null in them, and its head is the
-- first that has a position.
CREATE TABLE sends (
    tenant           INT         NOT NULL,
    send_id          BINARY(16)  NOT NULL,
    session_id       BINARY(16)  NOT NULL,
    position         BIGINT,
    status           VARCHAR(16) NOT NULL
                     CHECK (status IN ('queued', 'running', 'waiting', 'completed', 'failed', 'cancelled')),
    waiting_on       VARCHAR(32),
    stop_reason      VARCHAR(64),
    input            LONGTEXT    NOT NULL,
    options          LONGTEXT    NOT NULL,
    agent_version    INT,
    output_text      LONGTEXT,
    output           LONGTEXT,
    error            LONGTEXT,
    `usage`          LONGTEXT,
    rounds           INT         NOT NULL DEFAULT 0,
    attempts         INT         NOT NULL DEFAULT 0,
    crashes          INT         NOT NULL DEFAULT 0,
    cancel_requested TINYINT     NOT NULL DEFAULT 0,
    deadline_at      BIGINT,
    alarm_at         BIGINT,
    first_step       BIGINT      NOT NULL,
    created_at       BIGINT      NOT NULL,
    started_at       BIGINT,
    finished_at      BIGINT,
    PRIMARY KEY (tenant, send_id),
    KEY sends_open (tenant, session_id, finished_at, position),
    KEY sends_alarm (alarm_at, send_id),
    KEY sends_session (tenant, session_id, send_id),
    CHECK ((finished_at IS NOT NULL) = (status IN ('completed', 'failed', 'cancelled'))),
    CHECK ((finished_at IS NOT NULL) = (stop_reason IS NOT NULL)),
    CHECK ((status = 'waiting') = (waiting_on IS NOT NULL)),
    CHECK ((status = 'failed') = (error IS NOT NULL)),
    CHECK (finished_at IS NULL OR alarm_at IS NULL)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Written once, never changed. asked_at_seq: on a tool's message, the assistant's message that
-- asked; a window never starts between the two.
CREATE TABLE messages (
    tenant       INT         NOT NULL,
    session_id   BINARY(16)  NOT NULL,
    seq          BIGINT      NOT NULL,
    send_id      BINARY(16)  NOT NULL,
    role         VARCHAR(16) NOT NULL CHECK (role IN ('user', 'assistant', 'tool')),
    content      LONGTEXT    NOT NULL,
    tool_calls   LONGTEXT,
    tool_call_id VARCHAR(255),
    name         VARCHAR(255),
    round        INT         NOT NULL,
    asked_at_seq BIGINT,
    epoch        BIGINT      NOT NULL,
    created_at   BIGINT      NOT NULL,
    PRIMARY KEY (tenant, session_id, seq)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row per committed domain step: the audit's evidence and the event log at once.
-- epoch is 0 for steps that need no grant.
CREATE TABLE steps (
    tenant     INT         NOT NULL,
    session_id BINARY(16)  NOT NULL,
    n          BIGINT      NOT NULL,
    send_id    BINARY(16)  NOT NULL,
    kind       VARCHAR(32) NOT NULL,
    epoch      BIGINT      NOT NULL,
    boot       BINARY(16)  NOT NULL,
    at         BIGINT      NOT NULL,
    refs       LONGTEXT    NOT NULL,
    PRIMARY KEY (tenant, session_id, n)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row per model response.
CREATE TABLE usage_rows (
    tenant     INT          NOT NULL,
    session_id BINARY(16)   NOT NULL,
    send_id    BINARY(16)   NOT NULL,
    round      INT          NOT NULL,
    attempt    INT          NOT NULL,
    model      VARCHAR(700) NOT NULL,
    `usage`    LONGTEXT     NOT NULL,
    at         BIGINT       NOT NULL,
    PRIMARY KEY (tenant, send_id, round, attempt)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What makes a repeated request harmless; written in the transaction of what it names.
CREATE TABLE idempotency_keys (
    tenant     INT           NOT NULL,
    route      VARCHAR(128)  NOT NULL,
    `key`      VARCHAR(512)  NOT NULL,
    body_hash  VARBINARY(64) NOT NULL,
    resource   BINARY(16)    NOT NULL,
    created_at BIGINT        NOT NULL,
    PRIMARY KEY (tenant, route, `key`),
    KEY idempotency_keys_age (created_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
