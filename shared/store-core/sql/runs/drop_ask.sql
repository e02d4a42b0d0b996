-- An advance took an ask into account.
DELETE FROM run_asks WHERE ask_id = $1;
