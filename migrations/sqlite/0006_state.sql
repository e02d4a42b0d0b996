-- Lists that agents keep: todo:SESSION, notes:SESSION, board:NAME.
CREATE TABLE lists (
    tenant  INTEGER NOT NULL,
    list    TEXT    NOT NULL,
    next_id INTEGER NOT NULL CHECK (next_id >= 1),
    version INTEGER NOT NULL CHECK (version >= 0),
    PRIMARY KEY (tenant, list)
) STRICT, WITHOUT ROWID;

-- One row per entry; body is the whole of it as JSON.
CREATE TABLE list_entries (
    tenant INTEGER NOT NULL,
    list   TEXT    NOT NULL,
    id     INTEGER NOT NULL CHECK (id >= 1),
    body   TEXT    NOT NULL,
    PRIMARY KEY (tenant, list, id)
) STRICT;

-- The calls that changed a list: a call that is repeated changes it once.
--   n  the list's version that the call made
CREATE TABLE list_writes (
    tenant   INTEGER NOT NULL,
    list     TEXT    NOT NULL,
    call_id  TEXT    NOT NULL,
    n        INTEGER NOT NULL,
    entry_id INTEGER,
    evicted  INTEGER,
    PRIMARY KEY (tenant, list, call_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX list_writes_n ON list_writes (tenant, list, n);
