-- Writes what locked timers do and when.
-- Index: timers_pkey.
UPDATE timers t SET target = i.target, rule = i.rule
FROM unnest($1::integer[], $2::uuid[], $3::text[], $4::text[]) AS i (tenant, timer_id, target, rule)
WHERE t.tenant = i.tenant AND t.timer_id = i.timer_id
