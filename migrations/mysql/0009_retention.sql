-- Steps of a session that went with sends that nobody needs any more: the others keep their numbers.
CREATE TABLE retired_steps (
    tenant     INT        NOT NULL,
    session_id BINARY(16) NOT NULL,
    steps      BIGINT     NOT NULL CHECK (steps > 0),
    PRIMARY KEY (tenant, session_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
