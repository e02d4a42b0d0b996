-- Creates a run, which is due at once.
INSERT INTO runs (tenant, run_id, name, status, spec, dsl_version, input, options, session_id,
                  reports_to, depth, attempt, "usage", counts, alarm_at, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16);
