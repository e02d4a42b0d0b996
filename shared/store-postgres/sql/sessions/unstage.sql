-- Ends the staging of a session whose messages are all stored: its hot row makes room for the real
-- one, and it is not to be removed any more.
-- Index: erasures_pkey, session_hot_pkey.
WITH kept AS (
    DELETE FROM erasures e WHERE e.tenant = $1::integer AND e.session_id = $2::uuid
)
DELETE FROM session_hot h WHERE h.tenant = $1::integer AND h.session_id = $2::uuid AND h.lifecycle = 2
