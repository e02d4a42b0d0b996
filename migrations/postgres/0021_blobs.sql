-- Content by its hash. Rows elsewhere name it, the bytes are in blob_chunks or in another store.
--   generation  tells a blob from one with the same content that was deleted before
--   state       0 its bytes may be there, 1 they are, 2 they are about to go
--   used_at     when it was last put or held
CREATE TABLE blobs (
    tenant     INTEGER NOT NULL,
    sha256     BYTEA NOT NULL,
    generation UUID NOT NULL,
    state      SMALLINT NOT NULL CHECK (state IN (0, 1, 2)),
    media_type TEXT COLLATE "C" NOT NULL,
    bytes      BIGINT NOT NULL CHECK (bytes >= 0),
    created_at BIGINT NOT NULL,
    used_at    BIGINT NOT NULL,
    PRIMARY KEY (tenant, sha256)
);

-- What a blob is kept for.
--   kind  0 a session, 1 a timer, 2 a run
CREATE TABLE blob_holds (
    tenant  INTEGER NOT NULL,
    sha256  BYTEA NOT NULL,
    kind    SMALLINT NOT NULL CHECK (kind IN (0, 1, 2)),
    owner   UUID NOT NULL,
    held_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, sha256, kind, owner)
);

-- The bytes of blobs, where the database keeps them.
CREATE TABLE blob_chunks (
    tenant     INTEGER NOT NULL,
    sha256     BYTEA NOT NULL,
    generation UUID NOT NULL,
    n          INTEGER NOT NULL CHECK (n >= 0),
    data       BYTEA NOT NULL,
    PRIMARY KEY (tenant, sha256, generation, n)
);
