-- Adds $3 to the number of removed steps of a session.
INSERT INTO retired_steps (tenant, session_id, steps) VALUES ($1, $2, $3)
ON CONFLICT (tenant, session_id) DO UPDATE SET steps = retired_steps.steps + excluded.steps;
