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
