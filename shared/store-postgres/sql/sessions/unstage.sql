-- Makes room for a session whose messages are all there: it is no longer to be removed.
-- Index: erasures_pkey, session_hot_pkey.
WITH kept AS (
    DELETE FROM erasures e WHERE e.tenant = $1::integer AND e.session_id = $2::uuid
)
DELETE FROM session_hot h WHERE h.tenant = $1::integer AND h.session_id = $2::uuid AND h.lifecycle = 2
