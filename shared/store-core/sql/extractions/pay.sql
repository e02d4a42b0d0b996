-- Stores the cost of a model call that is not a round of its send.
INSERT INTO usage_rows (tenant, session_id, send_id, round, attempt, model, "usage", at, purpose)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (tenant, send_id, round, attempt) DO NOTHING;
