-- Reads every version of every agent.
SELECT a.tenant, a.session_id, a.spec
FROM agents a
ORDER BY a.tenant, a.session_id, a.version
