-- Skills by name. A row stays once there was one, as the lock of its name; listed says whether the name
-- means its hash.
CREATE TABLE skills (
    tenant     INT NOT NULL,
    name       VARCHAR(64) NOT NULL,
    hash       CHAR(64) NOT NULL,
    source     VARCHAR(16) NOT NULL CHECK (source IN ('uploaded', 'mounted')),
    listed     TINYINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Their versions, which never change; body is what the version says of itself, as JSON.
CREATE TABLE skill_versions (
    tenant     INT NOT NULL,
    name       VARCHAR(64) NOT NULL,
    hash       CHAR(64) NOT NULL,
    source     VARCHAR(16) NOT NULL CHECK (source IN ('uploaded', 'mounted')),
    body       LONGTEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, name, hash)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The versions' files.
CREATE TABLE skill_files (
    tenant  INT NOT NULL,
    name    VARCHAR(64) NOT NULL,
    hash    CHAR(64) NOT NULL,
    path    VARCHAR(255) NOT NULL,
    content LONGBLOB NOT NULL,
    PRIMARY KEY (tenant, name, hash, path)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Mounted skills that were left out; faults says why, as JSON.
CREATE TABLE skill_faults (
    tenant  INT NOT NULL,
    folder  VARCHAR(255) NOT NULL,
    faults  LONGTEXT NOT NULL,
    seen_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, folder)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
