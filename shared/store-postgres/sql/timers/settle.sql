-- Writes locked timers after a change, and stores the fates of their occurrences, whose key rejects
-- a second fate.
-- Index: timers_pkey.
WITH occurred AS (
    INSERT INTO timer_occurrences (tenant, timer_id, n, due_at, fate, send_id, fired_at, manual)
    SELECT o.tenant, o.timer_id, o.n, o.due_at, o.fate, o.send_id, o.fired_at, o.manual
    FROM unnest(
        $12::integer[], $13::uuid[], $14::bigint[], $15::bigint[], $16::text[], $17::uuid[],
        $18::bigint[], $19::boolean[]
    ) AS o (tenant, timer_id, n, due_at, fate, send_id, fired_at, manual)
)
UPDATE timers t SET
    status = i.status, next_n = i.next_n, due_at = i.due_at, fire_at = i.fire_at,
    failures = i.failures, failure = i.failure, last_send = i.last_send,
    last_fired_at = i.last_fired_at, ended_at = i.ended_at, updated_at = $20::bigint
FROM unnest(
    $1::integer[], $2::uuid[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::integer[],
    $8::text[], $9::uuid[], $10::bigint[], $11::bigint[]
) AS i (
    tenant, timer_id, status, next_n, due_at, fire_at, failures, failure, last_send, last_fired_at,
    ended_at
)
WHERE t.tenant = i.tenant AND t.timer_id = i.timer_id
