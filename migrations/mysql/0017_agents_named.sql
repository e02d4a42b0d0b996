-- Agents by name. The row of a name is what publishers lock; version is the number of the newest one.
CREATE TABLE agents_named (
    tenant      INT NOT NULL,
    name        VARCHAR(64) NOT NULL,
    version     INT NOT NULL CHECK (version >= 0),
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    archived_at BIGINT,
    PRIMARY KEY (tenant, name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Their versions, numbered from 1. They never change; hash is SHA-256 of the spec's canonical JSON.
CREATE TABLE agent_versions (
    tenant     INT NOT NULL,
    name       VARCHAR(64) NOT NULL,
    n          INT NOT NULL CHECK (n >= 1),
    spec       LONGTEXT NOT NULL,
    hash       VARCHAR(64) NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, name, n)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Names for versions, which can be moved.
CREATE TABLE agent_aliases (
    tenant  INT NOT NULL,
    name    VARCHAR(64) NOT NULL,
    alias   VARCHAR(64) NOT NULL,
    version INT NOT NULL CHECK (version >= 1),
    PRIMARY KEY (tenant, name, alias)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
