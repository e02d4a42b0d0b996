-- Skills by name. A row stays once there was one, as the lock of its name; listed says whether the name
-- means its hash.
CREATE TABLE skills (
    tenant     INTEGER NOT NULL,
    name       TEXT NOT NULL,
    hash       TEXT NOT NULL,
    source     TEXT NOT NULL CHECK (source IN ('uploaded', 'mounted')),
    listed     INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

-- Their versions, which never change; body is what the version says of itself, as JSON.
CREATE TABLE skill_versions (
    tenant     INTEGER NOT NULL,
    name       TEXT NOT NULL,
    hash       TEXT NOT NULL,
    source     TEXT NOT NULL CHECK (source IN ('uploaded', 'mounted')),
    body       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, name, hash)
) STRICT, WITHOUT ROWID;

-- The versions' files.
CREATE TABLE skill_files (
    tenant  INTEGER NOT NULL,
    name    TEXT NOT NULL,
    hash    TEXT NOT NULL,
    path    TEXT NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (tenant, name, hash, path)
) STRICT;

-- Mounted skills that were left out; faults says why, as JSON.
CREATE TABLE skill_faults (
    tenant  INTEGER NOT NULL,
    folder  TEXT NOT NULL,
    faults  TEXT NOT NULL,
    seen_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, folder)
) STRICT, WITHOUT ROWID;
