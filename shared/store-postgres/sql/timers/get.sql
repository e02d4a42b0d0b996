-- Reads timers by id.
-- Index: timers_pkey.
SELECT
    i.ord, {t.timer}
FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS i (tenant, timer_id, ord)
JOIN timers t ON t.tenant = i.tenant AND t.timer_id = i.timer_id
