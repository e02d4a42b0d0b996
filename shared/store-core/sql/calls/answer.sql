-- Stores a call as an answer from outside left it.
UPDATE tool_calls
SET waits_on = $3, approval = $4, deadline_at = $5, asked = $6, result = $7, settled_at = $8, claim = $9,
    claimed_until = $10, claim_n = $11
WHERE tenant = $1 AND call_id = $2;
