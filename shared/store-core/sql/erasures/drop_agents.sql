-- Removes the first versions of the agent, at most $3.
DELETE FROM agents
WHERE tenant = $1 AND session_id = $2 AND version IN (
    SELECT version FROM agents
    WHERE tenant = $1 AND session_id = $2
    ORDER BY version
    LIMIT $3
);
