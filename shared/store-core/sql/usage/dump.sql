-- Every usage row, by session.
SELECT tenant, session_id, send_id, round, attempt, "usage"
FROM usage_rows
ORDER BY tenant, session_id, send_id, round, attempt;
