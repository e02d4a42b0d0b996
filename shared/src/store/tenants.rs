//! Parameters of tenants.

use async_trait::async_trait;

use super::{IdempotencyKey, Page, ReadySession, Result};
use crate::id::{KeyId, SendId, TenantId};
use crate::tenant::{Limits, Pools, Retention, Tenant};
use crate::time::Timestamp;
use crate::usage::Usage;
use uuid::Uuid;

/// How long a place is kept for a send that does not exist yet, in milliseconds: longer than any request takes to
/// make it.
pub const PLACE_KEPT_MS: i64 = 60_000;

/// One of so many sends that take a place frees the places of those that have ended, also while there is room.
const FREED_EVERY: u128 = 256;

/// Whether whoever takes places for these sends frees those of sends that have ended first. What is counted each time
/// stays so about as much as is open, however high the limit is.
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

    /// Reads a tenant; none where it is unknown or deleted.
    async fn get_tenant(&self, id: TenantId) -> Result<Option<Tenant>>;

    /// The tenant with this name, to act for it; none where no tenant has it, or that one is being erased.
    async fn named_tenant(&self, name: String) -> Result<Option<TenantId>>;

    /// What tenants say of pools, of those that say anything; by number.
    async fn tenant_pools(&self) -> Result<Vec<(TenantId, Pools)>>;

    /// Lists tenants by number.
    async fn list_tenants(&self, query: ListTenants) -> Result<Page<Tenant>>;

    /// Changes a tenant.
    async fn update_tenant(&self, id: TenantId, patch: TenantPatch) -> Result<UpdateTenantOutcome>;

    /// Deletes a tenant that has neither sessions nor runs nor timers that may start some, with its
    /// memory, its agents and its skills, and revokes its keys.
    async fn delete_tenant(&self, id: TenantId) -> Result<DeleteTenantOutcome>;

    /// Takes places among the open sends of a tenant, or among those of one of its keys, for sends that are about to be
    /// accepted: as many of the first of `sends` as `max` leaves room for; returns how many have one. Never more than
    /// `max` have one at a time, however many processes ask at once. A place is free again once its send has ended, or
    /// was not accepted within a minute. A repeat keeps the places that it has.
    async fn reserve_sends(
        &self,
        tenant: TenantId,
        key: Option<KeyId>,
        sends: Vec<SendId>,
        max: u32,
    ) -> Result<u32>;

    /// Gives places back of sends that were not accepted.
    async fn release_sends(
        &self,
        tenant: TenantId,
        key: Option<KeyId>,
        sends: Vec<SendId>,
    ) -> Result<()>;

    /// Calls the sessions that wait for a seat and can have one, of one tenant or of all, in their order, so that
    /// they are found ready; returns those that were not called before. A tenant whose limits were lifted calls all
    /// of them when they are. Nothing is lost where a call is not heard of: who was called stays ready.
    async fn call_seats(&self, tenant: Option<TenantId>) -> Result<CalledSeats>;

    /// What the sends cost whose ids lie in a range. Ids begin with the time, so a range of them is a span of
    /// time.
    async fn tenant_usage(&self, query: TenantUsageQuery) -> Result<TenantUsage>;

    /// The first of a tenant's open sends from an id on; none where all have ended.
    async fn first_open_send(&self, tenant: TenantId, from: SendId) -> Result<Option<SendId>>;

    /// Bytes of the blobs of a tenant.
    async fn tenant_bytes(&self, tenant: TenantId) -> Result<u64>;
}

/// The methods of [`Tenants`] as [`store_methods`](crate::store_methods) hands them over.
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
    /// What it may use.
    pub limits: Limits,
    /// Scheduling weight relative to other tenants, 1 to 1000.
    pub weight: u32,
    /// For how long what it has is kept.
    pub retention: Retention,
    /// Worker pools that it may name.
    pub pools: Pools,
}

/// What became of a new tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateTenantOutcome {
    /// It was created.
    Created(Tenant),
    /// The same request created it before; it is as it is now.
    Replayed(Tenant),
    /// The same request created it before, and it was deleted since.
    Gone,
    /// Another tenant has this name.
    NameTaken,
    /// The idempotency key was used with another request.
    Mismatch,
}

/// Which tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListTenants {
    /// The last of the page before; none for the first page.
    pub after: Option<TenantId>,
    /// At most this many.
    pub limit: u32,
}

/// Changes of a tenant; what is absent stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantPatch {
    /// Its name.
    pub name: Option<String>,
    /// What it may use.
    pub limits: Option<Limits>,
    /// Its weight.
    pub weight: Option<u32>,
    /// For how long what it has is kept.
    pub retention: Option<Retention>,
    /// Worker pools that it may name.
    pub pools: Option<Pools>,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpdateTenantOutcome {
    /// It was made.
    Updated(Box<Tenant>),
    /// Another tenant has this name.
    NameTaken,
    /// The tenant is unknown or deleted.
    NotFound,
}

/// What became of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteTenantOutcome {
    /// It is gone.
    Deleted,
    /// It has sessions, runs, or timers that have not ended.
    NotEmpty,
    /// It is unknown, or deleted already.
    NotFound,
}

/// Who was called to a seat.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CalledSeats {
    /// To be enqueued.
    pub enqueue: Vec<ReadySession>,
    /// Sessions that wait for a seat, those that were called included.
    pub waiting: u64,
}

/// Which usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantUsageQuery {
    /// Whose.
    pub tenant: TenantId,
    /// The first id.
    pub from: Uuid,
    /// The id behind the last one.
    pub until: Uuid,
}

impl TenantUsageQuery {
    /// That of the sends that were accepted from a time on, and before another one: ids begin with the time.
    pub fn accepted(tenant: TenantId, from: Timestamp, until: Timestamp) -> Self {
        Self {
            tenant,
            from: Self::first_id(from),
            until: Self::first_id(until),
        }
    }

    /// The first id of a time: those of earlier ones are smaller.
    pub fn first_id(at: Timestamp) -> Uuid {
        Uuid::from_u128(u128::from(at.0.max(0).unsigned_abs()) << 80)
    }
}

/// What sends cost.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TenantUsage {
    /// The sends.
    pub sends: u64,
    /// Model responses, incomplete ones too.
    pub calls: u64,
    /// What they cost.
    pub usage: Usage,
}
