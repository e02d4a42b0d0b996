-- Folds: texts that stand for parts of a transcript which the model is not shown any more. Written once
-- but for covered_by.
--   n           the session's context_version from its attachment on
--   covered_by  the fold that stands for its messages, too; null while it is shown
CREATE TABLE folds (
    tenant        INT         NOT NULL,
    session_id    BINARY(16)  NOT NULL,
    n             BIGINT      NOT NULL CHECK (n >= 1),
    from_seq      BIGINT      NOT NULL,
    to_seq        BIGINT      NOT NULL,
    level         INT         NOT NULL CHECK (level >= 0),
    kind          VARCHAR(16) NOT NULL CHECK (kind IN ('summary', 'agentic', 'projection', 'http', 'custom')),
    text          LONGTEXT    NOT NULL,
    model         VARCHAR(700),
    tokens_before BIGINT      NOT NULL,
    tokens_after  BIGINT      NOT NULL,
    send_id       BINARY(16)  NOT NULL,
    created_at    BIGINT      NOT NULL,
    covered_by    BIGINT,
    PRIMARY KEY (tenant, session_id, n),
    KEY folds_shown (tenant, session_id, covered_by, from_seq),
    CHECK (to_seq >= from_seq),
    CHECK (covered_by > n)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
