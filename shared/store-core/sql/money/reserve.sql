-- Reserves money and tokens for the call $2. By the primary key.
INSERT INTO money_aside (tenant, call_id, boot_id, day, amount, tokens, at) VALUES ($1, $2, $3, $4, $5, $6, $7);
