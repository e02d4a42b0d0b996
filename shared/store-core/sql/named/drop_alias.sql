-- Removes an alias of an agent whose row is locked.
DELETE FROM agent_aliases WHERE tenant = $1 AND name = $2 AND alias = $3;
