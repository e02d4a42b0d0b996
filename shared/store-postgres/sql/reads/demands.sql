-- What the schema demands of programs: the schema version of the oldest one that may use it, and
-- the lowest protocol that they speak.
SELECT c.oldest, c.protocol::bigint AS protocol FROM schema_compatibility c
