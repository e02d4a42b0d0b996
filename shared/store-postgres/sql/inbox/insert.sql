-- Stores items of sessions whose hot rows are locked.
INSERT INTO inbox (
    tenant, session_id, item_id, n, kind, mode, send_id, content, fate, seq, created_at, settled_at
)
SELECT
    i.tenant, i.session_id, i.item_id, i.n, i.kind, i.mode, i.send_id, i.content, i.fate, NULL,
    $1::bigint, CASE WHEN i.fate <> 'pending' THEN $1::bigint END
FROM unnest(
    $2::integer[], $3::uuid[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::uuid[],
    $9::text[], $10::text[]
) AS i (tenant, session_id, item_id, n, kind, mode, send_id, content, fate)
