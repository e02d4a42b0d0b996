-- Stores a list whose row is locked or new: writes its counters and the changed entries, and
-- removes the deleted ones. No id is in both sets.
-- Index: the primary keys.
WITH
    c AS (
        INSERT INTO list_entries AS e (tenant, list, id, body)
        SELECT $1::integer, $2::text, n.id, n.body
        FROM UNNEST($5::bigint[], $6::text[]) AS n (id, body)
        ON CONFLICT (tenant, list, id) DO UPDATE SET body = excluded.body
    ),
    g AS (
        DELETE FROM list_entries d
        WHERE d.tenant = $1::integer AND d.list = $2::text AND d.id = ANY ($7::bigint[])
    )
INSERT INTO lists AS l (tenant, list, next_id, version)
VALUES ($1::integer, $2::text, $3::bigint, $4::bigint)
ON CONFLICT (tenant, list) DO UPDATE SET next_id = excluded.next_id, version = excluded.version
