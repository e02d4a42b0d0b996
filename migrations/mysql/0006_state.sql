-- Lists that agents keep: todo:SESSION, notes:SESSION, board:NAME.
CREATE TABLE lists (
    tenant  INT          NOT NULL,
    list    VARCHAR(255) NOT NULL,
    next_id BIGINT       NOT NULL CHECK (next_id >= 1),
    version BIGINT       NOT NULL CHECK (version >= 0),
    PRIMARY KEY (tenant, list)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row per entry; body is the whole of it as JSON.
CREATE TABLE list_entries (
    tenant INT          NOT NULL,
    list   VARCHAR(255) NOT NULL,
    id     BIGINT       NOT NULL CHECK (id >= 1),
    body   LONGTEXT     NOT NULL,
    PRIMARY KEY (tenant, list, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The calls that changed a list: a call that is repeated changes it once.
--   n  the list's version that the call made
CREATE TABLE list_writes (
    tenant   INT          NOT NULL,
    list     VARCHAR(255) NOT NULL,
    call_id  VARCHAR(255) NOT NULL,
    n        BIGINT       NOT NULL,
    entry_id BIGINT,
    evicted  BIGINT,
    PRIMARY KEY (tenant, list, call_id),
    KEY list_writes_n (tenant, list, n)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
