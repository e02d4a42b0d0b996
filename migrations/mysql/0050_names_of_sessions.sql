-- Names that callers gave to their sessions, by which they find or create them. A name is free again once its session
-- is deleted.
CREATE TABLE session_names (
    tenant     INT          NOT NULL,
    name       VARCHAR(255) NOT NULL,
    session_id BINARY(16)   NOT NULL,
    PRIMARY KEY (tenant, name),
    UNIQUE KEY session_names_session (tenant, session_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
