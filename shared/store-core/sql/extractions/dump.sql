-- Every extraction.
SELECT tenant, session_id, send_id, attempts FROM extractions ORDER BY tenant, session_id, send_id;
