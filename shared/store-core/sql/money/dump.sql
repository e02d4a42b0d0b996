-- What calls have reserved.
SELECT tenant, call_id, boot_id, day, amount, at FROM money_aside ORDER BY tenant, call_id;
