-- A page of ready sessions after ($2, $3, $4), whoever owns them, with the tokens of those that the
-- boot owns, by session_hot_ready.
SELECT tenant, session_id, ready_since, CASE WHEN owner_boot = $1 THEN token END AS token
FROM session_hot
WHERE ready_since >= $2 AND (ready_since, tenant, session_id) > ($2, $3, $4)
ORDER BY ready_since, tenant, session_id
LIMIT $5;
