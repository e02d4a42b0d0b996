-- Reserves money and tokens of a tenant's agents for calls. Index: agent_money_aside_pkey.
INSERT INTO agent_money_aside (tenant, call_id, holder, boot_id, day, amount, tokens, at)
SELECT $1::integer, e.call_id, e.holder, e.boot_id, $2::bigint, e.amount, e.tokens, e.at
FROM unnest($3::uuid[], $4::uuid[], $5::bigint[], $6::bigint[], $7::bigint[], $8::uuid[])
    AS e (call_id, boot_id, amount, tokens, at, holder)
