-- Counts $3 steps of a session that went.
INSERT INTO retired_steps (tenant, session_id, steps) VALUES ($1, $2, $3)
ON CONFLICT (tenant, session_id) DO UPDATE SET steps = retired_steps.steps + excluded.steps;
