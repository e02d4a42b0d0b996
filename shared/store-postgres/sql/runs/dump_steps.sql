-- Every advance of every run, in order.
SELECT t.tenant, t.run_id, t.n, t.at, t.boot, t.changes FROM run_steps t
ORDER BY t.tenant, t.run_id, t.n
