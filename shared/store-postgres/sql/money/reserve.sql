-- Reserves money and tokens for calls. Index: money_aside_pkey.
INSERT INTO money_aside (tenant, call_id, boot_id, day, amount, tokens, at)
SELECT $1::integer, e.call_id, e.boot_id, $2::bigint, e.amount, e.tokens, e.at
FROM unnest($3::uuid[], $4::uuid[], $5::bigint[], $6::bigint[], $7::bigint[])
    AS e (call_id, boot_id, amount, tokens, at)
