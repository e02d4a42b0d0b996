-- Which database a tenant is on, where an installation has several. Rows are on the home alone, one for each tenant that is
-- or was somewhere else; a tenant without a row is at home. Only Postgres takes several, so that there are none here.
--   place    the name of its database
--   other    while it moves: where it goes to, or came from
--   version  counts all changes, so that whoever has read some asks for what is new
--   began    the version under which the last move began: what the databases know it by
CREATE TABLE placements (
    tenant     INT          PRIMARY KEY,
    place      VARCHAR(100) NOT NULL,
    other      VARCHAR(100),
    phase      VARCHAR(16)  NOT NULL CHECK (phase IN ('settled', 'copying', 'arrived', 'erasing')),
    version    BIGINT       NOT NULL UNIQUE,
    began      BIGINT       NOT NULL,
    changed_at BIGINT       NOT NULL,
    CHECK ((other IS NULL) = (phase = 'settled'))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
-- The tenants that are not on this database, or not yet. Whatever is written for them here is refused.
--   version   under which the move began
--   arriving  whether its rows are being copied to here
CREATE TABLE tenants_away (
    tenant   INT     PRIMARY KEY,
    version  BIGINT  NOT NULL,
    arriving BOOLEAN NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
