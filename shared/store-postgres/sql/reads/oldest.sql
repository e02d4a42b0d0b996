-- The version of the schema that the oldest program brings which works on this one.
SELECT min(c.oldest)::bigint AS oldest FROM schema_compatibility c
