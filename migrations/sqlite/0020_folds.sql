-- Folds: texts that stand for parts of a transcript which the model is not shown any more. Written once
-- but for covered_by.
--   n           the session's context_version from its attachment on
--   covered_by  the fold that stands for its messages, too; null while it is shown
CREATE TABLE folds (
    tenant        INTEGER NOT NULL,
    session_id    BLOB    NOT NULL,
    n             INTEGER NOT NULL CHECK (n >= 1),
    from_seq      INTEGER NOT NULL,
    to_seq        INTEGER NOT NULL,
    level         INTEGER NOT NULL CHECK (level >= 0),
    kind          TEXT    NOT NULL CHECK (kind IN ('summary', 'agentic', 'projection', 'http', 'custom')),
    text          TEXT    NOT NULL,
    model         TEXT,
    tokens_before INTEGER NOT NULL,
    tokens_after  INTEGER NOT NULL,
    send_id       BLOB    NOT NULL,
    created_at    INTEGER NOT NULL,
    covered_by    INTEGER,
    PRIMARY KEY (tenant, session_id, n),
    CHECK (to_seq >= from_seq),
    CHECK (covered_by > n)
) STRICT;
CREATE INDEX folds_shown ON folds (tenant, session_id, from_seq) WHERE covered_by IS NULL;
