-- Deletes a tenant, whose number stays taken; revokes its keys; and removes what it published and
-- remembered.
-- Index: the primary keys.
WITH
    n AS (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now),
    k AS (
        UPDATE api_keys k SET revoked_at = n.now FROM n
        WHERE k.tenant = $2::integer AND k.revoked_at IS NULL
    ),
    m AS (DELETE FROM memories d WHERE d.tenant = $2::integer),
    mu AS (DELETE FROM memory_usage d WHERE d.tenant = $2::integer),
    me AS (UPDATE memory_erasures d SET erased_by = NULL WHERE d.tenant = $2::integer),
    e AS (DELETE FROM extractions d WHERE d.tenant = $2::integer),
    aa AS (DELETE FROM agent_aliases d WHERE d.tenant = $2::integer),
    av AS (DELETE FROM agent_versions d WHERE d.tenant = $2::integer),
    an AS (DELETE FROM agents_named d WHERE d.tenant = $2::integer),
    sb AS (DELETE FROM skill_faults d WHERE d.tenant = $2::integer),
    sf AS (DELETE FROM skill_files d WHERE d.tenant = $2::integer),
    sv AS (DELETE FROM skill_versions d WHERE d.tenant = $2::integer),
    sk AS (DELETE FROM skills d WHERE d.tenant = $2::integer),
    wh AS (DELETE FROM webhooks d WHERE d.tenant = $2::integer),
    we AS (DELETE FROM webhook_events d WHERE d.tenant = $2::integer),
    pa AS (DELETE FROM pauses d WHERE d.tenant = $2::integer),
    pk AS (DELETE FROM provider_keys d WHERE d.tenant = $2::integer),
    pw AS (DELETE FROM pause_waits d WHERE d.tenant = $2::integer),
    os AS (DELETE FROM open_sends d WHERE d.tenant = $2::integer),
    ks AS (DELETE FROM key_sends d WHERE d.tenant = $2::integer),
    sl AS (DELETE FROM seat_limits d WHERE d.tenant = $2::integer),
    se AS (DELETE FROM seats d WHERE d.tenant = $2::integer),
    ma AS (DELETE FROM money_aside d WHERE d.tenant = $2::integer),
    md AS (DELETE FROM money_days d WHERE d.tenant = $2::integer),
    ga AS (DELETE FROM agent_money_aside d WHERE d.tenant = $2::integer),
    gd AS (DELETE FROM agent_money_days d WHERE d.tenant = $2::integer)
UPDATE tenants t SET name = NULL, deleted_at = n.now FROM n WHERE t.tenant = $2::integer
