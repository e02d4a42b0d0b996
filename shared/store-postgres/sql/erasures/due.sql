-- Deleted sessions whose erasure is due.
-- Index: erasures_due.
SELECT e.tenant, e.session_id, e.due_at
FROM erasures e
WHERE e.due_at <= coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
  AND (e.due_at, e.tenant, e.session_id) > ($2::bigint, $3::integer, $4::uuid)
ORDER BY e.due_at, e.tenant, e.session_id
LIMIT $5::bigint
