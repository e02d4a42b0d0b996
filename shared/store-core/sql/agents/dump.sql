-- Every version of every agent.
SELECT tenant, session_id, spec FROM agents ORDER BY tenant, session_id, version;
