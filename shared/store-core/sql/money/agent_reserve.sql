-- Reserves money and tokens of the agent $2 for the call $3. By the primary key.
INSERT INTO agent_money_aside (tenant, holder, call_id, boot_id, day, amount, tokens, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8);
