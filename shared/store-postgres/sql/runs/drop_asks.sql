-- Removes asks that advances took into account.
-- Index: run_asks_pkey.
DELETE FROM run_asks a
USING unnest($1::integer[], $2::uuid[], $3::bigint[]) AS i (tenant, run_id, ask_id)
WHERE a.tenant = i.tenant AND a.run_id = i.run_id AND a.ask_id = i.ask_id
