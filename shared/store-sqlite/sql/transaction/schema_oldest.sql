-- The version of the schema that the oldest program brings which works on this one.
SELECT min(oldest) FROM schema_compatibility;
