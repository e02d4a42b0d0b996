-- Projections: what sends that have ended are shown as once they are old, where their agents show digests.
-- Computed from the messages; one that is missing, or of another version, is computed again.
CREATE TABLE projections (
    tenant     INTEGER NOT NULL,
    session_id UUID    NOT NULL,
    from_seq   BIGINT  NOT NULL,
    to_seq     BIGINT  NOT NULL,
    send_id    UUID    NOT NULL,
    version    INTEGER NOT NULL,
    digest     TEXT    NOT NULL,
    PRIMARY KEY (tenant, session_id, from_seq),
    CHECK (to_seq >= from_seq)
);
