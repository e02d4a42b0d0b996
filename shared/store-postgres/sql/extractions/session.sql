-- Keeps the session of an extraction from being deleted until the transaction ends; no row if it
-- was deleted.
-- Index: sessions_pkey.
SELECT s.session_id
FROM sessions s
WHERE s.tenant = $1::integer AND s.session_id = $2::uuid
FOR KEY SHARE
