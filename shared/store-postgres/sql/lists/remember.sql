-- Remembers what a call did to the list, and forgets the writes up to the n-th.
-- Index: the primary key; list_writes_n.
WITH f AS (
    DELETE FROM list_writes d
    WHERE d.tenant = $1::integer AND d.list = $2::text AND d.n <= $7::bigint
)
INSERT INTO list_writes (tenant, list, call_id, n, entry_id, evicted)
VALUES ($1::integer, $2::text, $3::text, $4::bigint, $5::bigint, $6::bigint)
