-- What MySQL says differently about the rows of a tenant that is erased: it limits a deletion itself, and not in a subquery.

-- name: tenant_rows/timers
-- At most $2 rows of the tenant $1.
DELETE FROM timers WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/timer_occurrences
-- At most $2 rows of the tenant $1.
DELETE FROM timer_occurrences WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/runs
-- At most $2 rows of the tenant $1.
DELETE FROM runs WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/run_nodes
-- At most $2 rows of the tenant $1.
DELETE FROM run_nodes WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/run_asks
-- At most $2 rows of the tenant $1.
DELETE FROM run_asks WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/run_steps
-- At most $2 rows of the tenant $1.
DELETE FROM run_steps WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/webhooks
-- At most $2 rows of the tenant $1.
DELETE FROM webhooks WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/webhook_events
-- At most $2 rows of the tenant $1.
DELETE FROM webhook_events WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/webhook_deliveries
-- At most $2 rows of the tenant $1.
DELETE FROM webhook_deliveries WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/extractions
-- At most $2 rows of the tenant $1.
DELETE FROM extractions WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/api_keys
-- At most $2 rows of the tenant $1.
DELETE FROM api_keys WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/sessions
-- At most $2 rows of the tenant $1.
DELETE FROM sessions WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/agents
-- At most $2 rows of the tenant $1.
DELETE FROM agents WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/session_hot
-- At most $2 rows of the tenant $1.
DELETE FROM session_hot WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/sends
-- At most $2 rows of the tenant $1.
DELETE FROM sends WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/messages
-- At most $2 rows of the tenant $1.
DELETE FROM messages WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/steps
-- At most $2 rows of the tenant $1.
DELETE FROM steps WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/tool_calls
-- At most $2 rows of the tenant $1.
DELETE FROM tool_calls WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/usage_rows
-- At most $2 rows of the tenant $1.
DELETE FROM usage_rows WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/idempotency_keys
-- At most $2 rows of the tenant $1.
DELETE FROM idempotency_keys WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/inbox
-- At most $2 rows of the tenant $1.
DELETE FROM inbox WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/lists
-- At most $2 rows of the tenant $1.
DELETE FROM lists WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/list_entries
-- At most $2 rows of the tenant $1.
DELETE FROM list_entries WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/list_writes
-- At most $2 rows of the tenant $1.
DELETE FROM list_writes WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/retired_steps
-- At most $2 rows of the tenant $1.
DELETE FROM retired_steps WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/erasures
-- At most $2 rows of the tenant $1.
DELETE FROM erasures WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/agents_named
-- At most $2 rows of the tenant $1.
DELETE FROM agents_named WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/agent_versions
-- At most $2 rows of the tenant $1.
DELETE FROM agent_versions WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/agent_aliases
-- At most $2 rows of the tenant $1.
DELETE FROM agent_aliases WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/skills
-- At most $2 rows of the tenant $1.
DELETE FROM skills WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/skill_versions
-- At most $2 rows of the tenant $1.
DELETE FROM skill_versions WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/skill_files
-- At most $2 rows of the tenant $1.
DELETE FROM skill_files WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/skill_faults
-- At most $2 rows of the tenant $1.
DELETE FROM skill_faults WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/memories
-- At most $2 rows of the tenant $1.
DELETE FROM memories WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/memory_erasures
-- At most $2 rows of the tenant $1.
DELETE FROM memory_erasures WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/folds
-- At most $2 rows of the tenant $1.
DELETE FROM folds WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/blob_holds
-- At most $2 rows of the tenant $1.
DELETE FROM blob_holds WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/projections
-- At most $2 rows of the tenant $1.
DELETE FROM projections WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/pauses
-- At most $2 rows of the tenant $1.
DELETE FROM pauses WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/pause_waits
-- At most $2 rows of the tenant $1.
DELETE FROM pause_waits WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/open_sends
-- At most $2 rows of the tenant $1.
DELETE FROM open_sends WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/memory_usage
-- At most $2 rows of the tenant $1.
DELETE FROM memory_usage WHERE tenant = $1 LIMIT $2;

-- name: tenant_rows/seats
-- At most $2 rows of the tenant $1.
DELETE FROM seats WHERE tenant = $1 LIMIT $2;
