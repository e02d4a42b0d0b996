-- Keys that tenants bring for model providers, sealed under a key of the operator's that is not in the database.
--   provider  the name that the workers' configuration gives it
--   hint      the last characters, to tell keys apart
CREATE TABLE provider_keys (
    tenant   INT          NOT NULL,
    provider VARCHAR(100) NOT NULL,
    sealed   TEXT         NOT NULL,
    hint     VARCHAR(16)  NOT NULL,
    set_at   BIGINT       NOT NULL,
    PRIMARY KEY (tenant, provider)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
