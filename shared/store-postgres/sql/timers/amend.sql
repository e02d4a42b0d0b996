-- Writes what a locked timer does and when.
-- Index: timers_pkey.
UPDATE timers SET target = $3::text, rule = $4::text
WHERE tenant = $1::integer AND timer_id = $2::uuid
