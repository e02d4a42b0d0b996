-- Removes an ask that an advance took into account.
DELETE FROM run_asks WHERE ask_id = $1;
