//! Parameters of the erasure of tenants.

use async_trait::async_trait;

use super::Result;
use crate::id::TenantId;
use crate::tenant::TenantErasure;

/// Rows of each table that one step of an erasure removes: a transaction of some milliseconds.
pub const ROWS_ERASED_AT_ONCE: u32 = 500;

/// The erasure of tenants with everything that they have. A tenant that is being erased still exists, so that what it has
/// belongs to someone, but nothing acts for it any more.
#[async_trait]
pub trait TenantErasures: Send + Sync {
    /// Begins to erase a tenant: its keys are revoked, and no new ones are made. A repeat changes nothing. Whoever calls
    /// it does not do so for the default tenant.
    async fn begin_tenant_erasure(&self, tenant: TenantId) -> Result<BeginErasureOutcome>;

    /// How far the erasure of a tenant is, also once it has ended.
    async fn tenant_erasure(&self, tenant: TenantId) -> Result<Option<TenantErasure>>;

    /// Tenants whose erasure was begun and has not ended, by number.
    async fn erasing_tenants(&self) -> Result<Vec<TenantId>>;

    /// Removes at most `limit` rows from each table of a tenant that is being erased, and lets its blobs go. Its sessions
    /// were deleted before. Ends the erasure when nothing was found for [`ERASED_MS_MIN`](super::ERASED_MS_MIN): whoever
    /// was about to write something for it is done by then. None where no erasure is under way.
    async fn erase_tenant_rows(
        &self,
        tenant: TenantId,
        limit: u32,
    ) -> Result<Option<TenantErasure>>;

    /// Notes what stands in the way of an erasure; nothing does any longer where there is no text.
    async fn note_tenant_erasure(&self, tenant: TenantId, failed: Option<String>) -> Result<()>;
}

/// Hands the tables whose rows an erasure removes to a macro, each with its primary key. What else is kept by a tenant's
/// number goes with its bytes (`blobs`, `blob_chunks`) or with its name (`seat_limits`).
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

/// Counts what is stored of the tenant `$1`: rows of `kind` and `count`, in every dialect.
pub const COUNT_TENANT_ROWS: &str = crate::tenant_tables!(counts);

/// The methods of [`TenantErasures`] as [`store_methods`](crate::store_methods) hands them over.
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

/// What became of the wish to erase a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BeginErasureOutcome {
    /// It is being erased.
    Begun(TenantErasure),
    /// Nothing of it is removed while it is held.
    Held,
    /// It is unknown, or deleted.
    NotFound,
}
