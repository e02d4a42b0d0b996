-- What calls have reserved.
SELECT a.tenant, a.call_id, a.boot_id, a.day, a.amount, a.at FROM money_aside a ORDER BY a.tenant, a.call_id
