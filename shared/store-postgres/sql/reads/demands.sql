-- What the schema demands of programs: the version that the oldest of them brings, and what they speak at least.
SELECT c.oldest, c.protocol::bigint AS protocol FROM schema_compatibility c
