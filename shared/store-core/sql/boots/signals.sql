-- The signals raised for a boot's sessions, by session_hot_signals.
SELECT tenant, session_id, signals
FROM session_hot
WHERE owner_boot = $1 AND signals <> 0
ORDER BY tenant, session_id;
