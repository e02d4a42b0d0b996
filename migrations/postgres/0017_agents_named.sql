-- Agents by name. The row of a name is what publishers lock; version is the number of the newest one.
CREATE TABLE agents_named (
    tenant      INTEGER NOT NULL,
    name        TEXT    COLLATE "C" NOT NULL,
    version     INTEGER NOT NULL CHECK (version >= 0),
    created_at  BIGINT  NOT NULL,
    updated_at  BIGINT  NOT NULL,
    archived_at BIGINT,
    PRIMARY KEY (tenant, name)
);

-- Their versions, numbered from 1. They never change; hash is SHA-256 of the spec's canonical JSON.
CREATE TABLE agent_versions (
    tenant     INTEGER NOT NULL,
    name       TEXT    COLLATE "C" NOT NULL,
    n          INTEGER NOT NULL CHECK (n >= 1),
    spec       TEXT    NOT NULL,
    hash       TEXT    NOT NULL,
    created_at BIGINT  NOT NULL,
    PRIMARY KEY (tenant, name, n)
);

-- Names for versions, which can be moved.
CREATE TABLE agent_aliases (
    tenant  INTEGER NOT NULL,
    name    TEXT    COLLATE "C" NOT NULL,
    alias   TEXT    COLLATE "C" NOT NULL,
    version INTEGER NOT NULL CHECK (version >= 1),
    PRIMARY KEY (tenant, name, alias)
);
