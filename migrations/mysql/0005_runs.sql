-- Runs of workflows: their nodes, what is asked of them, and what happened.

--   spec        canonical JSON, with everything that the run needs
--   owner_boot  the scheduler that keeps it in memory; it may be dead
--   step        advances so far. With owner_boot it is the fence: an advance names the step that it
--               follows, so that whoever remembers an older one changes nothing
--   alarm_at    when someone has to look at it, from its creation on
CREATE TABLE runs (
    tenant      INT          NOT NULL,
    run_id      BINARY(16)   NOT NULL,
    name        VARCHAR(700) NOT NULL,
    status      VARCHAR(16)  NOT NULL
                CHECK (status IN ('queued', 'running', 'waiting', 'completed', 'failed', 'cancelled')),
    spec        LONGTEXT     NOT NULL,
    dsl_version INT          NOT NULL,
    input       LONGTEXT     NOT NULL,
    options     LONGTEXT     NOT NULL,
    session_id  BINARY(16),
    reports_to  VARCHAR(255),
    depth       INT          NOT NULL,
    attempt     INT          NOT NULL,
    result      LONGTEXT,
    error       LONGTEXT,
    `usage`     LONGTEXT     NOT NULL,
    counts      LONGTEXT     NOT NULL,
    alarm_at    BIGINT,
    owner_boot  BINARY(16),
    step        BIGINT       NOT NULL DEFAULT 0,
    created_at  BIGINT       NOT NULL,
    started_at  BIGINT,
    finished_at BIGINT,
    PRIMARY KEY (tenant, run_id),
    KEY runs_alarm (alarm_at),
    KEY runs_session (tenant, session_id, run_id),
    CHECK ((finished_at IS NOT NULL) = (status IN ('completed', 'failed', 'cancelled')))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

--   node  the record as JSON; what is looked for stands in columns, too
CREATE TABLE run_nodes (
    tenant INT          NOT NULL,
    run_id BINARY(16)   NOT NULL,
    path   VARCHAR(700) NOT NULL,
    n      BIGINT       NOT NULL,
    state  VARCHAR(32)  NOT NULL,
    node   LONGTEXT     NOT NULL,
    PRIMARY KEY (tenant, run_id, path),
    UNIQUE KEY run_nodes_order (tenant, run_id, n)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What someone wants of a run, until an advance has taken it.
CREATE TABLE run_asks (
    ask_id     BIGINT     NOT NULL AUTO_INCREMENT PRIMARY KEY,
    tenant     INT        NOT NULL,
    run_id     BINARY(16) NOT NULL,
    ask        LONGTEXT   NOT NULL,
    created_at BIGINT     NOT NULL,
    KEY run_asks_run (tenant, run_id, ask_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row per advance: the log of the run's events.
CREATE TABLE run_steps (
    tenant  INT        NOT NULL,
    run_id  BINARY(16) NOT NULL,
    n       BIGINT     NOT NULL,
    at      BIGINT     NOT NULL,
    boot    BINARY(16) NOT NULL,
    changes LONGTEXT   NOT NULL,
    PRIMARY KEY (tenant, run_id, n)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Set on the send that a leaf's attempt is. Its row is the leaf's row in the journal: it is news for
-- its run, and news_of names that, from its end on until an advance has noted it in reported_at.
ALTER TABLE sends
    ADD COLUMN run_id BINARY(16),
    ADD COLUMN run_path VARCHAR(700),
    ADD COLUMN run_attempt INT,
    ADD COLUMN news_of BINARY(16) AS (
        CASE WHEN finished_at IS NOT NULL AND reported_at IS NULL THEN run_id END
    ) VIRTUAL,
    ADD KEY sends_run_ended (news_of, tenant, finished_at),
    ADD KEY sends_of_run (tenant, run_id, finished_at);
