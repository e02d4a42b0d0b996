-- Content by its hash. Rows elsewhere name it, the bytes are in blob_chunks or in another store.
--   generation  tells a blob from one with the same content that was deleted before
--   state       0 its bytes may be there, 1 they are, 2 they are about to go
--   used_at     when it was last put or held
CREATE TABLE blobs (
    tenant     INTEGER NOT NULL,
    sha256     BLOB NOT NULL,
    generation BLOB NOT NULL,
    state      INTEGER NOT NULL CHECK (state IN (0, 1, 2)),
    media_type TEXT NOT NULL,
    bytes      INTEGER NOT NULL CHECK (bytes >= 0),
    created_at INTEGER NOT NULL,
    used_at    INTEGER NOT NULL,
    PRIMARY KEY (tenant, sha256)
) STRICT, WITHOUT ROWID;

-- What a blob is kept for.
--   kind  0 a session, 1 a timer, 2 a run
CREATE TABLE blob_holds (
    tenant  INTEGER NOT NULL,
    sha256  BLOB NOT NULL,
    kind    INTEGER NOT NULL CHECK (kind IN (0, 1, 2)),
    owner   BLOB NOT NULL,
    held_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, sha256, kind, owner)
) STRICT, WITHOUT ROWID;

-- The bytes of blobs, where the database keeps them.
CREATE TABLE blob_chunks (
    tenant     INTEGER NOT NULL,
    sha256     BLOB NOT NULL,
    generation BLOB NOT NULL,
    n          INTEGER NOT NULL CHECK (n >= 0),
    data       BLOB NOT NULL,
    PRIMARY KEY (tenant, sha256, generation, n)
) STRICT;
