-- Reads every fold in order.
SELECT f.tenant, f.session_id, {f.fold}
FROM folds f
ORDER BY f.tenant, f.session_id, f.n
