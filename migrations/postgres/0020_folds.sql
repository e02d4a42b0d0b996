-- Folds: texts that stand for parts of a transcript which the model is not shown any more. Written once
-- but for covered_by.
--   n           the session's context_version from its attachment on
--   covered_by  the fold that stands for its messages, too; null while it is shown
CREATE TABLE folds (
    tenant        INTEGER NOT NULL,
    session_id    UUID    NOT NULL,
    n             BIGINT  NOT NULL CHECK (n >= 1),
    from_seq      BIGINT  NOT NULL,
    to_seq        BIGINT  NOT NULL,
    level         INTEGER NOT NULL CHECK (level >= 0),
    kind          TEXT    NOT NULL CHECK (kind IN ('summary', 'agentic', 'projection', 'http', 'custom')),
    text          TEXT    NOT NULL,
    model         TEXT,
    tokens_before BIGINT  NOT NULL,
    tokens_after  BIGINT  NOT NULL,
    send_id       UUID    NOT NULL,
    created_at    BIGINT  NOT NULL,
    covered_by    BIGINT ,
    PRIMARY KEY (tenant, session_id, n),
    CHECK (to_seq >= from_seq),
    CHECK (covered_by > n)
);
CREATE INDEX folds_shown ON folds (tenant, session_id, from_seq) WHERE covered_by IS NULL;
