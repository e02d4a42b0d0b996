-- Every projection, by session.
SELECT tenant, session_id, {projection}
FROM projections
ORDER BY tenant, session_id, from_seq;
