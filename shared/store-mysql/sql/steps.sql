-- What MySQL says differently about steps.

-- name: steps/retired
-- Counts steps of a session that went.
INSERT INTO retired_steps (tenant, session_id, steps) VALUES ($1, $2, $3)
ON DUPLICATE KEY UPDATE steps = steps + VALUES(steps);

-- name: steps/spoke
-- Whether a step of a send stored messages.
SELECT EXISTS (
    SELECT 1 FROM steps
    WHERE tenant = $1 AND session_id = $2 AND n >= $4 AND send_id = $3
      AND JSON_VALUE(refs, '$.first_seq') IS NOT NULL
);
