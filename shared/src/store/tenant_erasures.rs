//! Parameters of the erasure of tenants.

use async_trait::async_trait;

use super::Result;
use crate::id::TenantId;
use crate::tenant::TenantErasure;

/// Maximum number of rows per table that one step of an erasure removes; takes a few milliseconds.
pub const ROWS_ERASED_AT_ONCE: u32 = 500;

/// The erasure of tenants with all their data. A tenant being erased still exists, so that its data
/// has an owner, but nothing can act on its behalf.
#[async_trait]
pub trait TenantErasures: Send + Sync {
    /// Begins to erase a tenant: its keys are revoked, and no new ones can be created. A repeat
    /// changes nothing. The caller must not pass the default tenant.
    async fn begin_tenant_erasure(&self, tenant: TenantId) -> Result<BeginErasureOutcome>;

    /// The state of a tenant's erasure, even after it has ended.
    async fn tenant_erasure(&self, tenant: TenantId) -> Result<Option<TenantErasure>>;

    /// Tenants whose erasure has begun and not ended, by number.
    async fn erasing_tenants(&self) -> Result<Vec<TenantId>>;

    /// Removes at most `limit` rows of a tenant being erased from each table, and releases its
    /// blobs. Its sessions must have been deleted before. The erasure ends when nothing has been
    /// found for [`ERASED_MS_MIN`](super::ERASED_MS_MIN), so that transactions that were about to
    /// write for it have ended. `None` if no erasure is in progress.
    async fn erase_tenant_rows(
        &self,
        tenant: TenantId,
        limit: u32,
    ) -> Result<Option<TenantErasure>>;

    /// Records what blocks an erasure; `None` clears it.
    async fn note_tenant_erasure(&self, tenant: TenantId, failed: Option<String>) -> Result<()>;
}

/// Passes the tables whose rows an erasure removes to a macro, each with its primary key. Other
/// rows with a tenant's number are removed with its bytes (`blobs`, `blob_chunks`) or with its name
/// (`seat_limits`).
#[macro_export]
macro_rules! tenant_tables {
    ($apply:ident) => {
        $apply! {
            "timers" by "tenant, timer_id",
            "timer_occurrences" by "tenant, timer_id, n",
            "runs" by "tenant, run_id",
            "run_nodes" by "tenant, run_id, path",
            "run_asks" by "ask_id",
            "run_steps" by "tenant, run_id, n",
            "webhooks" by "tenant, webhook_id",
            "webhook_events" by "tenant, source, n",
            "webhook_deliveries" by "tenant, webhook_id, event_id",
            "extractions" by "tenant, send_id",
            "api_keys" by "tenant, key_id",
            "sessions" by "tenant, session_id",
            "agents" by "tenant, session_id, version",
            "session_hot" by "tenant, session_id",
            "session_names" by "tenant, name",
            "sends" by "tenant, send_id",
            "messages" by "tenant, session_id, seq",
            "steps" by "tenant, session_id, n",
            "tool_calls" by "tenant, call_id",
            "usage_rows" by "tenant, send_id, round, attempt",
            "idempotency_keys" by "tenant, route, \"key\"",
            "inbox" by "tenant, session_id, item_id",
            "lists" by "tenant, \"list\"",
            "list_entries" by "tenant, \"list\", id",
            "list_writes" by "tenant, \"list\", call_id",
            "retired_steps" by "tenant, session_id",
            "erasures" by "tenant, session_id",
            "agents_named" by "tenant, name",
            "agent_versions" by "tenant, name, n",
            "agent_aliases" by "tenant, name, alias",
            "skills" by "tenant, name",
            "skill_versions" by "tenant, name, hash",
            "skill_files" by "tenant, name, hash, path",
            "skill_faults" by "tenant, folder",
            "memories" by "n",
            "memory_erasures" by "tenant, erasure_id",
            "folds" by "tenant, session_id, n",
            "blob_holds" by "tenant, sha256, kind, owner",
            "projections" by "tenant, session_id, from_seq",
            "pauses" by "tenant, kind, name",
            "pause_waits" by "tenant, send_id",
            "provider_keys" by "tenant, provider",
            "open_sends" by "tenant, send_id",
            "key_sends" by "tenant, key_id, send_id",
            "memory_usage" by "tenant, call_id",
            "seats" by "tenant, session_id",
            "money_aside" by "tenant, call_id",
            "money_days" by "tenant, day",
            "agent_money_aside" by "tenant, call_id",
            "agent_money_days" by "tenant, holder, day",
        }
    };
}

macro_rules! counts {
    ($($table:literal by $key:literal),+ $(,)?) => {
        concat!(
            "SELECT 'blobs' AS kind, count(*) AS count FROM blobs WHERE tenant = $1\n",
            "UNION ALL SELECT 'blob_chunks', count(*) FROM blob_chunks WHERE tenant = $1\n",
            "UNION ALL SELECT 'seat_limits', count(*) FROM seat_limits WHERE tenant = $1",
            $("\nUNION ALL SELECT '", $table, "', count(*) FROM ", $table, " WHERE tenant = $1"),+
        )
    };
}

/// Counts the rows of the tenant `$1`, as rows of `kind` and `count`; valid in every dialect.
pub const COUNT_TENANT_ROWS: &str = crate::tenant_tables!(counts);

/// The methods of [`TenantErasures`], as passed on by [`store_methods`](crate::store_methods).
#[doc(hidden)]
#[macro_export]
macro_rules! tenant_erasures_methods {
    ($apply:ident) => {
        $apply! { TenantErasures:
            write begin_tenant_erasure(
                tenant: $crate::id::TenantId
            ) -> $crate::store::BeginErasureOutcome;
            read tenant_erasure(
                tenant: $crate::id::TenantId
            ) -> Option<$crate::tenant::TenantErasure>;
            read erasing_tenants() -> Vec<$crate::id::TenantId>;
            write erase_tenant_rows(
                tenant: $crate::id::TenantId,
                limit: u32
            ) -> Option<$crate::tenant::TenantErasure>;
            write note_tenant_erasure(
                tenant: $crate::id::TenantId,
                failed: Option<String>
            ) -> ();
        }
    };
}

/// The outcome of beginning to erase a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BeginErasureOutcome {
    /// It is being erased.
    Begun(TenantErasure),
    /// It is under a hold, so nothing was removed.
    Held,
    /// It is unknown or deleted.
    NotFound,
}
