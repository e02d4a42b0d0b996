-- Every extraction.
SELECT e.tenant, e.session_id, e.send_id, e.attempts
FROM extractions e
ORDER BY e.tenant, e.session_id, e.send_id
