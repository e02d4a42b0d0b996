-- Locks the agent until the transaction ends.
SELECT version FROM agents_named WHERE tenant = $1 AND name = $2 {lock};
