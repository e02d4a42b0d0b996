-- What calls have reserved in the accounts of agents.
SELECT a.tenant, a.holder, a.call_id, a.boot_id, a.day, a.amount, a.at
FROM agent_money_aside a ORDER BY a.tenant, a.call_id
