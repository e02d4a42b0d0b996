-- What a session spent whose hot row is locked.
-- Index: session_hot_pkey.
SELECT spent FROM session_hot WHERE tenant = $1 AND session_id = $2
