-- Every ask.
SELECT tenant, run_id, ask FROM run_asks ORDER BY ask_id;
