-- The status of an extraction's send; no row if the send or its session is gone.
SELECT s.status
FROM sends s
JOIN sessions c ON c.tenant = s.tenant AND c.session_id = s.session_id
WHERE s.tenant = $1 AND s.send_id = $2;
