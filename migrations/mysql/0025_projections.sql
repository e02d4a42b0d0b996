-- Projections: what sends that have ended are shown as once they are old, where their agents show digests.
-- Computed from the messages; one that is missing, or of another version, is computed again.
CREATE TABLE projections (
    tenant     INT        NOT NULL,
    session_id BINARY(16) NOT NULL,
    from_seq   BIGINT     NOT NULL,
    to_seq     BIGINT     NOT NULL,
    send_id    BINARY(16) NOT NULL,
    version    INT        NOT NULL,
    digest     LONGTEXT   NOT NULL,
    PRIMARY KEY (tenant, session_id, from_seq),
    CHECK (to_seq >= from_seq)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
