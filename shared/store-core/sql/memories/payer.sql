-- Whether a send and its session exist to pay for something; neither is removed until the
-- transaction ends.
SELECT s.send_id
FROM sends s
JOIN sessions c ON c.tenant = s.tenant AND c.session_id = s.session_id
WHERE s.tenant = $1 AND s.session_id = $2 AND s.send_id = $3
{share};
