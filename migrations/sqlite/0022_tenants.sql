-- Tenants. A deleted one keeps its row, so that its number is not used again, without its name.
CREATE TABLE tenants (
    tenant     INTEGER PRIMARY KEY CHECK (tenant > 0),
    name       TEXT UNIQUE,
    limits     TEXT    NOT NULL DEFAULT '{}',
    created_at INTEGER NOT NULL,
    deleted_at INTEGER,
    CHECK ((name IS NULL) = (deleted_at IS NOT NULL))
) STRICT;
-- Whoever serves alone uses this one.
INSERT INTO tenants (tenant, name, created_at)
VALUES (1, 'default', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER));
-- API keys. `hash` is SHA-256 of the secret, which is stored nowhere.
--   previous_hash   the secret before the last rotation, accepted before previous_until
CREATE TABLE api_keys (
    tenant         INTEGER NOT NULL,
    key_id         BLOB    NOT NULL,
    name           TEXT    NOT NULL,
    scopes         TEXT    NOT NULL,
    hash           BLOB    NOT NULL CHECK (length(hash) = 32),
    previous_hash  BLOB    CHECK (length(previous_hash) = 32),
    previous_until INTEGER,
    created_at     INTEGER NOT NULL,
    expires_at     INTEGER,
    revoked_at     INTEGER,
    last_used_at   INTEGER,
    PRIMARY KEY (tenant, key_id),
    CHECK ((previous_hash IS NULL) = (previous_until IS NULL))
) STRICT, WITHOUT ROWID;
-- A token names its key, not its tenant.
CREATE UNIQUE INDEX api_keys_id ON api_keys (key_id);
