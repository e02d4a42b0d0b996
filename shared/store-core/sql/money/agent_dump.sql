-- What calls have reserved in the accounts of agents.
SELECT tenant, holder, call_id, boot_id, day, amount, at FROM agent_money_aside ORDER BY tenant, call_id;
