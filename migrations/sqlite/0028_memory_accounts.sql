-- What vectors for the memory cost that no send pays for: those of entries that were written through the
-- API, of sends that are gone, and of previews. One row per call.
CREATE TABLE memory_usage (
    tenant  INTEGER NOT NULL,
    call_id BLOB    NOT NULL,
    model   TEXT    NOT NULL,
    usage   TEXT    NOT NULL,
    PRIMARY KEY (tenant, call_id)
) STRICT, WITHOUT ROWID;

-- Who asked for an erasure; unknown for those of before.
ALTER TABLE memory_erasures ADD COLUMN erased_by TEXT;
