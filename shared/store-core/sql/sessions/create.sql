-- Creates a session: its cold row, its agent's first version, its hot row.
INSERT INTO sessions (tenant, session_id, agent_version, agent_name, metadata, created_at, updated_at,
                      parent_session, parent_call, root_session, depth)
VALUES ($1, $2, 1, $3, $4, $5, $5, $8, $9, $10, $11);
INSERT INTO agents (tenant, session_id, version, spec) VALUES ($1, $2, 1, $6);
INSERT INTO session_hot (tenant, session_id, pool) VALUES ($1, $2, $7);
