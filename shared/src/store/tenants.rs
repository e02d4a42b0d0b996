//! Parameters of tenants.

use async_trait::async_trait;

use super::{IdempotencyKey, Page, ReadySession, Result};
use crate::id::{KeyId, SendId, TenantId, first_id};
use crate::tenant::{Limits, Pools, Retention, Tenant};
use crate::time::Timestamp;
use crate::usage::Usage;
use uuid::Uuid;

/// How long a place is reserved for a send that does not exist yet, in milliseconds: longer than
/// any request takes to create it.
pub const PLACE_KEPT_MS: i64 = 60_000;

/// On average, one of this many sends that take a place also frees the places of ended sends, even
/// while there is room.
const FREED_EVERY: u128 = 256;

/// Whether taking places for these sends should first free those of ended sends. This keeps the
/// number of rows to count close to the number of open sends, however high the limit is.
pub fn frees_places(sends: impl IntoIterator<Item = Uuid>) -> bool {
    let mut sends = sends.into_iter();
    sends.any(|send| send.as_u128() % FREED_EVERY == 0)
}

/// Tenants.
#[async_trait]
pub trait Tenants: Send + Sync {
    /// Creates a tenant with the next number. The number of a deleted tenant is not used again.
    async fn create_tenant(
        &self,
        tenant: NewTenant,
        key: Option<IdempotencyKey>,
    ) -> Result<CreateTenantOutcome>;

    /// Reads a tenant; `None` if it is unknown or deleted.
    async fn get_tenant(&self, id: TenantId) -> Result<Option<Tenant>>;

    /// The tenant with this name, to act on its behalf; `None` if there is none, or it is being erased.
    async fn named_tenant(&self, name: String) -> Result<Option<TenantId>>;

    /// The pool restrictions of tenants that have any, by number.
    async fn tenant_pools(&self) -> Result<Vec<(TenantId, Pools)>>;

    /// Lists tenants by number.
    async fn list_tenants(&self, query: ListTenants) -> Result<Page<Tenant>>;

    /// Changes a tenant.
    async fn update_tenant(&self, id: TenantId, patch: TenantPatch) -> Result<UpdateTenantOutcome>;

    /// Deletes a tenant that has no sessions, no runs and no timers that may start any, with its
    /// memory, agents and skills, and revokes its keys.
    async fn delete_tenant(&self, id: TenantId) -> Result<DeleteTenantOutcome>;

    /// Takes places among the open sends of a tenant, or of one of its keys, for sends about to be
    /// accepted: for as many of the first of `sends` as `max` leaves room for. Returns how many
    /// have one.
    ///
    /// Never more than `max` have a place at one time, however many processes ask at once. A place
    /// is freed when its send has ended, or was not accepted within a minute. A repeat keeps its places.
    async fn reserve_sends(
        &self,
        tenant: TenantId,
        key: Option<KeyId>,
        sends: Vec<SendId>,
        max: u32,
    ) -> Result<u32>;

    /// Releases the places of sends that were not accepted.
    async fn release_sends(
        &self,
        tenant: TenantId,
        key: Option<KeyId>,
        sends: Vec<SendId>,
    ) -> Result<()>;

    /// Calls the sessions that wait for a seat and can have one, of one tenant or of all, in order,
    /// so that they become ready; returns those that were not called before. If a tenant's limits
    /// were lifted, all its waiting sessions are called. Nothing is lost if the caller does not
    /// hear of a call: the session stays ready.
    async fn call_seats(&self, tenant: Option<TenantId>) -> Result<CalledSeats>;

    /// The usage of sends with ids in a range. Ids start with the time, so a range of ids is a
    /// range of time.
    async fn tenant_usage(&self, query: TenantUsageQuery) -> Result<TenantUsage>;

    /// The first of a tenant's open sends from an id on; `None` if all have ended.
    async fn first_open_send(&self, tenant: TenantId, from: SendId) -> Result<Option<SendId>>;

    /// Total bytes of a tenant's blobs.
    async fn tenant_bytes(&self, tenant: TenantId) -> Result<u64>;
}

/// The methods of [`Tenants`], as passed on by [`store_methods`](crate::store_methods).
#[doc(hidden)]
#[macro_export]
macro_rules! tenants_methods {
    ($apply:ident) => {
        $apply! { Tenants:
            write create_tenant(
                tenant: $crate::store::NewTenant,
                key: Option<$crate::store::IdempotencyKey>
            ) -> $crate::store::CreateTenantOutcome;
            read get_tenant(id: $crate::id::TenantId) -> Option<$crate::tenant::Tenant>;
            read named_tenant(name: String) -> Option<$crate::id::TenantId>;
            read tenant_pools() -> Vec<($crate::id::TenantId, $crate::tenant::Pools)>;
            read list_tenants(
                query: $crate::store::ListTenants
            ) -> $crate::store::Page<$crate::tenant::Tenant>;
            write update_tenant(
                id: $crate::id::TenantId,
                patch: $crate::store::TenantPatch
            ) -> $crate::store::UpdateTenantOutcome;
            write delete_tenant(id: $crate::id::TenantId) -> $crate::store::DeleteTenantOutcome;
            write reserve_sends(
                tenant: $crate::id::TenantId,
                key: Option<$crate::id::KeyId>,
                sends: Vec<$crate::id::SendId>,
                max: u32
            ) -> u32;
            write release_sends(
                tenant: $crate::id::TenantId,
                key: Option<$crate::id::KeyId>,
                sends: Vec<$crate::id::SendId>
            ) -> ();
            write call_seats(
                tenant: Option<$crate::id::TenantId>
            ) -> $crate::store::CalledSeats;
            read tenant_usage(
                query: $crate::store::TenantUsageQuery
            ) -> $crate::store::TenantUsage;
            read first_open_send(
                tenant: $crate::id::TenantId,
                from: $crate::id::SendId
            ) -> Option<$crate::id::SendId>;
            read tenant_bytes(tenant: $crate::id::TenantId) -> u64;
        }
    };
}

/// A tenant to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTenant {
    /// Its name.
    pub name: String,
    /// Its limits.
    pub limits: Limits,
    /// Scheduling weight relative to other tenants, 1 to 1000.
    pub weight: u32,
    /// How long its data is kept.
    pub retention: Retention,
    /// The worker pools that it may use.
    pub pools: Pools,
}

/// The outcome of creating a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateTenantOutcome {
    /// It was created.
    Created(Tenant),
    /// The same request created it before; this is its current state.
    Replayed(Tenant),
    /// The same request created it before, and it has been deleted since.
    Gone,
    /// Another tenant has this name.
    NameTaken,
    /// The idempotency key was used with another request.
    Mismatch,
}

/// A query for tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListTenants {
    /// The last tenant of the previous page; `None` for the first page.
    pub after: Option<TenantId>,
    /// At most this many.
    pub limit: u32,
}

/// Changes of a tenant; absent fields are unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantPatch {
    /// Its name.
    pub name: Option<String>,
    /// Its limits.
    pub limits: Option<Limits>,
    /// Its weight.
    pub weight: Option<u32>,
    /// How long its data is kept.
    pub retention: Option<Retention>,
    /// The worker pools that it may use.
    pub pools: Option<Pools>,
}

/// The outcome of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpdateTenantOutcome {
    /// It was made.
    Updated(Box<Tenant>),
    /// Another tenant has this name.
    NameTaken,
    /// The tenant is unknown or deleted.
    NotFound,
}

/// The outcome of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteTenantOutcome {
    /// It is gone.
    Deleted,
    /// It has sessions, runs, or timers that have not ended.
    NotEmpty,
    /// It is unknown, or deleted already.
    NotFound,
}

/// The result of calling waiting sessions to seats.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CalledSeats {
    /// Called sessions to enqueue.
    pub enqueue: Vec<ReadySession>,
    /// Number of sessions that wait for a seat, including those just called.
    pub waiting: u64,
}

/// A query for usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantUsageQuery {
    /// The tenant.
    pub tenant: TenantId,
    /// The first id, inclusive.
    pub from: Uuid,
    /// The end of the range, exclusive.
    pub until: Uuid,
}

impl TenantUsageQuery {
    /// The usage of sends accepted from `from` on and before `until`; ids start with the time.
    pub fn accepted(tenant: TenantId, from: Timestamp, until: Timestamp) -> Self {
        Self {
            tenant,
            from: first_id(from),
            until: first_id(until),
        }
    }
}

/// The usage of sends.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TenantUsage {
    /// Number of sends.
    pub sends: u64,
    /// Number of model responses, including incomplete ones.
    pub calls: u64,
    /// Their usage.
    pub usage: Usage,
}
