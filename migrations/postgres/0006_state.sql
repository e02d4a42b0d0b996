-- Lists that agents keep: todo:SESSION, notes:SESSION, board:NAME.
CREATE TABLE lists (
    tenant  INTEGER NOT NULL,
    list    TEXT    COLLATE "C" NOT NULL,
    next_id BIGINT  NOT NULL CHECK (next_id >= 1),
    version BIGINT  NOT NULL CHECK (version >= 0),
    PRIMARY KEY (tenant, list)
);

-- One row per entry; body is the whole of it as JSON.
CREATE TABLE list_entries (
    tenant INTEGER NOT NULL,
    list   TEXT    COLLATE "C" NOT NULL,
    id     BIGINT  NOT NULL CHECK (id >= 1),
    body   TEXT    NOT NULL,
    PRIMARY KEY (tenant, list, id)
);

-- The calls that changed a list: a call that is repeated changes it once.
--   n  the list's version that the call made
CREATE TABLE list_writes (
    tenant   INTEGER NOT NULL,
    list     TEXT    COLLATE "C" NOT NULL,
    call_id  TEXT    COLLATE "C" NOT NULL,
    n        BIGINT  NOT NULL,
    entry_id BIGINT,
    evicted  BIGINT,
    PRIMARY KEY (tenant, list, call_id)
);
CREATE INDEX list_writes_n ON list_writes (tenant, list, n);
