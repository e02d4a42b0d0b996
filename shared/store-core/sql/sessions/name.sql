-- Gives the name $2 to the session $3.
INSERT INTO session_names (tenant, name, session_id) VALUES ($1, $2, $3);
