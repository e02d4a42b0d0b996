-- Tenants. A deleted one keeps its row, so that its number is not used again, without its name.
CREATE TABLE tenants (
    tenant     INT          NOT NULL PRIMARY KEY CHECK (tenant > 0),
    name       VARCHAR(100) UNIQUE,
    limits     LONGTEXT     NOT NULL,
    created_at BIGINT       NOT NULL,
    deleted_at BIGINT,
    CHECK ((name IS NULL) = (deleted_at IS NOT NULL))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Whoever serves alone uses this one.
INSERT INTO tenants (tenant, name, limits, created_at)
VALUES (1, 'default', '{}', CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED));

-- API keys. `hash` is SHA-256 of the secret, which is stored nowhere.
--   previous_hash   the secret before the last rotation, accepted before previous_until
CREATE TABLE api_keys (
    tenant         INT          NOT NULL,
    key_id         BINARY(16)   NOT NULL,
    name           VARCHAR(100) NOT NULL,
    scopes         VARCHAR(200) NOT NULL,
    hash           BINARY(32)   NOT NULL,
    previous_hash  BINARY(32),
    previous_until BIGINT,
    created_at     BIGINT       NOT NULL,
    expires_at     BIGINT,
    revoked_at     BIGINT,
    last_used_at   BIGINT,
    PRIMARY KEY (tenant, key_id),
    -- A token names its key, not its tenant.
    UNIQUE KEY api_keys_id (key_id),
    CHECK ((previous_hash IS NULL) = (previous_until IS NULL))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
