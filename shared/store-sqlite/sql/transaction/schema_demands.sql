-- What the schema demands of programs: the schema version of the oldest one that may use it, and
-- the lowest protocol that they speak.
SELECT oldest, protocol FROM schema_compatibility;
