-- Skills by name. A row stays once there was one, as the lock of its name; listed says whether the name
-- means its hash.
CREATE TABLE skills (
    tenant     INTEGER NOT NULL,
    name       TEXT COLLATE "C" NOT NULL,
    hash       TEXT NOT NULL,
    source     TEXT NOT NULL CHECK (source IN ('uploaded', 'mounted')),
    listed     BOOLEAN NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- Their versions, which never change; body is what the version says of itself, as JSON.
CREATE TABLE skill_versions (
    tenant     INTEGER NOT NULL,
    name       TEXT COLLATE "C" NOT NULL,
    hash       TEXT NOT NULL,
    source     TEXT NOT NULL CHECK (source IN ('uploaded', 'mounted')),
    body       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, name, hash)
);

-- The versions' files.
CREATE TABLE skill_files (
    tenant  INTEGER NOT NULL,
    name    TEXT COLLATE "C" NOT NULL,
    hash    TEXT NOT NULL,
    path    TEXT COLLATE "C" NOT NULL,
    content BYTEA NOT NULL,
    PRIMARY KEY (tenant, name, hash, path)
);

-- Mounted skills that were left out; faults says why, as JSON.
CREATE TABLE skill_faults (
    tenant  INTEGER NOT NULL,
    folder  TEXT COLLATE "C" NOT NULL,
    faults  TEXT NOT NULL,
    seen_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, folder)
);
