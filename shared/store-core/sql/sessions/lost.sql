-- The running send of a session counts a model call that may have been begun, if the lease holds.
UPDATE sends SET attempts = attempts + 1
WHERE tenant = $1 AND session_id = $2 AND status = 'running' AND EXISTS (
    SELECT 1 FROM session_hot h
    WHERE h.tenant = $1 AND h.session_id = $2 AND h.token = $3 AND h.owner_boot = $4
);
