-- What vectors for the memory cost that no send pays for: those of entries that were written through the
-- API, of sends that are gone, and of previews. One row per call.
CREATE TABLE memory_usage (
    tenant  INT          NOT NULL,
    call_id BINARY(16)   NOT NULL,
    model   VARCHAR(700) NOT NULL,
    `usage` LONGTEXT     NOT NULL,
    PRIMARY KEY (tenant, call_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Who asked for an erasure; unknown for those of before.
ALTER TABLE memory_erasures ADD COLUMN erased_by VARCHAR(700);
