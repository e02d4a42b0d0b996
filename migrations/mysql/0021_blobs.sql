-- Content by its hash. Rows elsewhere name it, the bytes are in blob_chunks or in another store.
--   generation  tells a blob from one with the same content that was deleted before
--   state       0 its bytes may be there, 1 they are, 2 they are about to go
--   used_at     when it was last put or held
CREATE TABLE blobs (
    tenant     INT NOT NULL,
    sha256     BINARY(32) NOT NULL,
    generation BINARY(16) NOT NULL,
    state      SMALLINT NOT NULL CHECK (state IN (0, 1, 2)),
    media_type VARCHAR(255) NOT NULL,
    bytes      BIGINT NOT NULL CHECK (bytes >= 0),
    created_at BIGINT NOT NULL,
    used_at    BIGINT NOT NULL,
    PRIMARY KEY (tenant, sha256)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What a blob is kept for.
--   kind  0 a session, 1 a timer, 2 a run
CREATE TABLE blob_holds (
    tenant  INT NOT NULL,
    sha256  BINARY(32) NOT NULL,
    kind    SMALLINT NOT NULL CHECK (kind IN (0, 1, 2)),
    owner   BINARY(16) NOT NULL,
    held_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, sha256, kind, owner)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The bytes of blobs, where the database keeps them.
CREATE TABLE blob_chunks (
    tenant     INT NOT NULL,
    sha256     BINARY(32) NOT NULL,
    generation BINARY(16) NOT NULL,
    n          INT NOT NULL CHECK (n >= 0),
    data       LONGBLOB NOT NULL,
    PRIMARY KEY (tenant, sha256, generation, n)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
