-- Reads a page of what a boot owns, oldest first. The page consists of ready sessions of any owner,
-- so that it costs the same however many are waiting; only those of the boot have a `token`.
-- Index: session_hot_ready.
SELECT h.tenant, h.session_id, h.ready_since, CASE WHEN h.owner_boot = $1::uuid THEN h.token END AS token
FROM session_hot h
WHERE h.ready_since IS NOT NULL
  AND (h.ready_since, h.tenant, h.session_id) > ($2::bigint, $3::integer, $4::uuid)
ORDER BY h.ready_since, h.tenant, h.session_id
LIMIT $5::bigint
