-- Gives a lease back, if it holds; ready_since and all else stay.
UPDATE session_hot SET owner_boot = NULL, token = NULL
WHERE tenant = $1 AND session_id = $2 AND token = $3 AND owner_boot = $4;
