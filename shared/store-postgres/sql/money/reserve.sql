-- Sets money aside for calls. Index: money_aside_pkey.
INSERT INTO money_aside (tenant, call_id, boot_id, day, amount, at)
SELECT $1::integer, e.call_id, e.boot_id, $2::bigint, e.amount, $3::bigint
FROM unnest($4::uuid[], $5::uuid[], $6::bigint[]) AS e (call_id, boot_id, amount)
