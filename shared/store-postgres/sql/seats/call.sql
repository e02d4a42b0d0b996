-- Records that sessions in a tenant's line were called; they count as ready from now on.
-- Index: seats_pkey.
UPDATE seats w SET
    called_at = coalesce(
        w.called_at, $1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    )
WHERE w.tenant = $2::integer AND w.session_id = ANY ($3::uuid[]) AND w.waits_since IS NOT NULL
