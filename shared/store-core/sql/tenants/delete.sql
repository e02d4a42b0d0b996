-- Deletes a tenant, whose number stays taken; revokes its keys; and removes what it published and
-- remembered.
UPDATE tenants SET name = NULL, deleted_at = $2 WHERE tenant = $1;
UPDATE api_keys SET revoked_at = $2 WHERE tenant = $1 AND revoked_at IS NULL;
DELETE FROM memories WHERE tenant = $1;
DELETE FROM memory_usage WHERE tenant = $1;
UPDATE memory_erasures SET erased_by = NULL WHERE tenant = $1;
DELETE FROM extractions WHERE tenant = $1;
DELETE FROM agent_aliases WHERE tenant = $1;
DELETE FROM agent_versions WHERE tenant = $1;
DELETE FROM agents_named WHERE tenant = $1;
DELETE FROM skill_faults WHERE tenant = $1;
DELETE FROM skill_files WHERE tenant = $1;
DELETE FROM skill_versions WHERE tenant = $1;
DELETE FROM skills WHERE tenant = $1;
DELETE FROM webhooks WHERE tenant = $1;
DELETE FROM webhook_events WHERE tenant = $1;
DELETE FROM webhook_deliveries WHERE tenant = $1 AND due_at IS NOT NULL;
DELETE FROM pauses WHERE tenant = $1;
DELETE FROM provider_keys WHERE tenant = $1;
DELETE FROM pause_waits WHERE tenant = $1;
DELETE FROM open_sends WHERE tenant = $1;
DELETE FROM key_sends WHERE tenant = $1;
DELETE FROM seat_limits WHERE tenant = $1;
DELETE FROM seats WHERE tenant = $1;
DELETE FROM money_aside WHERE tenant = $1;
DELETE FROM money_days WHERE tenant = $1;
DELETE FROM agent_money_aside WHERE tenant = $1;
DELETE FROM agent_money_days WHERE tenant = $1;
