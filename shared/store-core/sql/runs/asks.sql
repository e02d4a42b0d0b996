-- The asks of a run, in order.
SELECT ask_id, ask FROM run_asks
WHERE tenant = $1 AND run_id = $2
ORDER BY ask_id;
