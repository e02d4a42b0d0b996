-- Reads every projection in order.
SELECT p.tenant, p.session_id, {p.projection}
FROM projections p
ORDER BY p.tenant, p.session_id, p.from_seq
