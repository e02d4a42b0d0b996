-- Every ask, in order.
SELECT a.tenant, a.run_id, a.ask FROM run_asks a ORDER BY a.tenant, a.run_id, a.ask_id
