-- Removes rows of a tenant that is erased, at most $2 of each table, and says how many. Only its own rows are read: the
-- primary keys begin with the tenant, but for those of the memory and of asks, which have an index that does.
WITH
    d_timers AS (DELETE FROM timers d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM timers r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_timer_occurrences AS (DELETE FROM timer_occurrences d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM timer_occurrences r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_runs AS (DELETE FROM runs d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM runs r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_run_nodes AS (DELETE FROM run_nodes d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM run_nodes r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_run_asks AS (DELETE FROM run_asks d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM run_asks r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_run_steps AS (DELETE FROM run_steps d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM run_steps r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_webhooks AS (DELETE FROM webhooks d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM webhooks r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_webhook_events AS (DELETE FROM webhook_events d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM webhook_events r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_webhook_deliveries AS (DELETE FROM webhook_deliveries d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM webhook_deliveries r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_extractions AS (DELETE FROM extractions d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM extractions r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_api_keys AS (DELETE FROM api_keys d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM api_keys r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_sessions AS (DELETE FROM sessions d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM sessions r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_agents AS (DELETE FROM agents d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM agents r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_session_hot AS (DELETE FROM session_hot d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM session_hot r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_sends AS (DELETE FROM sends d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM sends r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_messages AS (DELETE FROM messages d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM messages r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_steps AS (DELETE FROM steps d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM steps r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_tool_calls AS (DELETE FROM tool_calls d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM tool_calls r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_usage_rows AS (DELETE FROM usage_rows d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM usage_rows r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_idempotency_keys AS (DELETE FROM idempotency_keys d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM idempotency_keys r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_inbox AS (DELETE FROM inbox d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM inbox r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_lists AS (DELETE FROM lists d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM lists r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_list_entries AS (DELETE FROM list_entries d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM list_entries r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_list_writes AS (DELETE FROM list_writes d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM list_writes r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_retired_steps AS (DELETE FROM retired_steps d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM retired_steps r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_erasures AS (DELETE FROM erasures d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM erasures r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_agents_named AS (DELETE FROM agents_named d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM agents_named r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_agent_versions AS (DELETE FROM agent_versions d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM agent_versions r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_agent_aliases AS (DELETE FROM agent_aliases d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM agent_aliases r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_skills AS (DELETE FROM skills d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM skills r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_skill_versions AS (DELETE FROM skill_versions d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM skill_versions r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_skill_files AS (DELETE FROM skill_files d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM skill_files r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_skill_faults AS (DELETE FROM skill_faults d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM skill_faults r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_memories AS (DELETE FROM memories d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM memories r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_memory_erasures AS (DELETE FROM memory_erasures d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM memory_erasures r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_folds AS (DELETE FROM folds d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM folds r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_blob_holds AS (DELETE FROM blob_holds d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM blob_holds r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_projections AS (DELETE FROM projections d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM projections r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_pauses AS (DELETE FROM pauses d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM pauses r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_pause_waits AS (DELETE FROM pause_waits d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM pause_waits r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_open_sends AS (DELETE FROM open_sends d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM open_sends r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_memory_usage AS (DELETE FROM memory_usage d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM memory_usage r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1),
    d_seats AS (DELETE FROM seats d WHERE d.ctid = ANY (ARRAY(SELECT r.ctid FROM seats r WHERE r.tenant = $1::integer LIMIT $2::bigint)) RETURNING 1)
SELECT x.kind, x.count FROM (
    SELECT 'timers' AS kind, (SELECT count(*) FROM d_timers) AS count
    UNION ALL SELECT 'timer_occurrences' AS kind, (SELECT count(*) FROM d_timer_occurrences) AS count
    UNION ALL SELECT 'runs' AS kind, (SELECT count(*) FROM d_runs) AS count
    UNION ALL SELECT 'run_nodes' AS kind, (SELECT count(*) FROM d_run_nodes) AS count
    UNION ALL SELECT 'run_asks' AS kind, (SELECT count(*) FROM d_run_asks) AS count
    UNION ALL SELECT 'run_steps' AS kind, (SELECT count(*) FROM d_run_steps) AS count
    UNION ALL SELECT 'webhooks' AS kind, (SELECT count(*) FROM d_webhooks) AS count
    UNION ALL SELECT 'webhook_events' AS kind, (SELECT count(*) FROM d_webhook_events) AS count
    UNION ALL SELECT 'webhook_deliveries' AS kind, (SELECT count(*) FROM d_webhook_deliveries) AS count
    UNION ALL SELECT 'extractions' AS kind, (SELECT count(*) FROM d_extractions) AS count
    UNION ALL SELECT 'api_keys' AS kind, (SELECT count(*) FROM d_api_keys) AS count
    UNION ALL SELECT 'sessions' AS kind, (SELECT count(*) FROM d_sessions) AS count
    UNION ALL SELECT 'agents' AS kind, (SELECT count(*) FROM d_agents) AS count
    UNION ALL SELECT 'session_hot' AS kind, (SELECT count(*) FROM d_session_hot) AS count
    UNION ALL SELECT 'sends' AS kind, (SELECT count(*) FROM d_sends) AS count
    UNION ALL SELECT 'messages' AS kind, (SELECT count(*) FROM d_messages) AS count
    UNION ALL SELECT 'steps' AS kind, (SELECT count(*) FROM d_steps) AS count
    UNION ALL SELECT 'tool_calls' AS kind, (SELECT count(*) FROM d_tool_calls) AS count
    UNION ALL SELECT 'usage_rows' AS kind, (SELECT count(*) FROM d_usage_rows) AS count
    UNION ALL SELECT 'idempotency_keys' AS kind, (SELECT count(*) FROM d_idempotency_keys) AS count
    UNION ALL SELECT 'inbox' AS kind, (SELECT count(*) FROM d_inbox) AS count
    UNION ALL SELECT 'lists' AS kind, (SELECT count(*) FROM d_lists) AS count
    UNION ALL SELECT 'list_entries' AS kind, (SELECT count(*) FROM d_list_entries) AS count
    UNION ALL SELECT 'list_writes' AS kind, (SELECT count(*) FROM d_list_writes) AS count
    UNION ALL SELECT 'retired_steps' AS kind, (SELECT count(*) FROM d_retired_steps) AS count
    UNION ALL SELECT 'erasures' AS kind, (SELECT count(*) FROM d_erasures) AS count
    UNION ALL SELECT 'agents_named' AS kind, (SELECT count(*) FROM d_agents_named) AS count
    UNION ALL SELECT 'agent_versions' AS kind, (SELECT count(*) FROM d_agent_versions) AS count
    UNION ALL SELECT 'agent_aliases' AS kind, (SELECT count(*) FROM d_agent_aliases) AS count
    UNION ALL SELECT 'skills' AS kind, (SELECT count(*) FROM d_skills) AS count
    UNION ALL SELECT 'skill_versions' AS kind, (SELECT count(*) FROM d_skill_versions) AS count
    UNION ALL SELECT 'skill_files' AS kind, (SELECT count(*) FROM d_skill_files) AS count
    UNION ALL SELECT 'skill_faults' AS kind, (SELECT count(*) FROM d_skill_faults) AS count
    UNION ALL SELECT 'memories' AS kind, (SELECT count(*) FROM d_memories) AS count
    UNION ALL SELECT 'memory_erasures' AS kind, (SELECT count(*) FROM d_memory_erasures) AS count
    UNION ALL SELECT 'folds' AS kind, (SELECT count(*) FROM d_folds) AS count
    UNION ALL SELECT 'blob_holds' AS kind, (SELECT count(*) FROM d_blob_holds) AS count
    UNION ALL SELECT 'projections' AS kind, (SELECT count(*) FROM d_projections) AS count
    UNION ALL SELECT 'pauses' AS kind, (SELECT count(*) FROM d_pauses) AS count
    UNION ALL SELECT 'pause_waits' AS kind, (SELECT count(*) FROM d_pause_waits) AS count
    UNION ALL SELECT 'open_sends' AS kind, (SELECT count(*) FROM d_open_sends) AS count
    UNION ALL SELECT 'memory_usage' AS kind, (SELECT count(*) FROM d_memory_usage) AS count
    UNION ALL SELECT 'seats' AS kind, (SELECT count(*) FROM d_seats) AS count
) x WHERE x.count > 0
