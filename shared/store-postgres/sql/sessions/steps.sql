-- Reads steps of a session.
-- Index: steps_pkey.
SELECT {t.step}
FROM steps t
WHERE t.tenant = $1::integer AND t.session_id = $2::uuid AND t.n > $3::bigint
ORDER BY t.n
LIMIT $4::bigint
