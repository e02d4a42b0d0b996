-- Where the send of an extraction stands; no row when it is gone, or its session is.
SELECT s.status
FROM sends s
JOIN sessions c ON c.tenant = s.tenant AND c.session_id = s.session_id
WHERE s.tenant = $1 AND s.send_id = $2;
