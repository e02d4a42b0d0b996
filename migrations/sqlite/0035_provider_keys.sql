-- Keys that tenants bring for model providers, sealed under a key of the operator's that is not in the database.
--   provider  the name that the workers' configuration gives it
--   hint      the last characters, to tell keys apart
CREATE TABLE provider_keys (
    tenant   INTEGER NOT NULL,
    provider TEXT    NOT NULL,
    sealed   TEXT    NOT NULL,
    hint     TEXT    NOT NULL,
    set_at   INTEGER NOT NULL,
    PRIMARY KEY (tenant, provider)
) STRICT;
