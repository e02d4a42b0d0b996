-- Inserts an entry, without a vector; does nothing if its id exists.
-- Index: the primary key.
INSERT INTO memories (
    tenant, memory_id, namespace, text, metadata, source, words, created_at, updated_at, embed_at,
    expires_at
)
VALUES (
    $1::integer, $2::uuid, $3::text, $4::text, $5::text, $6::text, $7::text, $8::bigint, $8::bigint,
    $8::bigint, $9::bigint
)
ON CONFLICT (tenant, memory_id) DO NOTHING
