-- Reads the asks of runs, in order.
-- Index: run_asks_pkey.
SELECT i.ord, a.ask_id, a.ask
FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS i (tenant, run_id, ord)
JOIN run_asks a ON a.tenant = i.tenant AND a.run_id = i.run_id
ORDER BY i.ord, a.ask_id
