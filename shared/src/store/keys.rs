//! Parameters of API keys.

use async_trait::async_trait;

use super::{IdempotencyKey, Page, Result};
use crate::id::{KeyId, TenantId};
use crate::tenant::{Binding, KeyLimits, KeyRecord, Scopes};
use crate::time::Timestamp;

/// The API keys of tenants.
#[async_trait]
pub trait Keys: Send + Sync {
    /// Creates an API key. With an idempotency key a repeat returns the key that the first request
    /// created, but the secret cannot be shown again.
    async fn create_key(
        &self,
        key: NewKey,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<CreateKeyOutcome>;

    /// Reads a key by the id in its token; `None` if it is unknown, or its tenant was deleted.
    async fn find_key(&self, id: KeyId) -> Result<Option<KeyRecord>>;

    /// Whether any tenant ever had a key, also if none is left.
    async fn had_keys(&self) -> Result<bool>;

    /// Lists a tenant's keys, newest first, revoked ones included.
    async fn list_keys(&self, query: ListKeys) -> Result<Page<KeyRecord>>;

    /// Replaces a key's secret; the previous one is accepted until the overlap ends. `None` if the
    /// tenant has no such live key.
    async fn rotate_key(&self, item: RotateKey) -> Result<Option<KeyRecord>>;

    /// Revokes a key; a repeat changes nothing. False if the tenant has no such key.
    async fn revoke_key(&self, tenant: TenantId, id: KeyId) -> Result<bool>;

    /// Records that keys were used now.
    async fn touch_keys(&self, ids: Vec<KeyId>) -> Result<()>;
}

/// The methods of [`Keys`], as passed on by [`store_methods`](crate::store_methods).
#[doc(hidden)]
#[macro_export]
macro_rules! keys_methods {
    ($apply:ident) => {
        $apply! { Keys:
            write create_key(
                key: $crate::store::NewKey,
                idempotency: Option<$crate::store::IdempotencyKey>
            ) -> $crate::store::CreateKeyOutcome;
            read find_key(id: $crate::id::KeyId) -> Option<$crate::tenant::KeyRecord>;
            read had_keys() -> bool;
            read list_keys(
                query: $crate::store::ListKeys
            ) -> $crate::store::Page<$crate::tenant::KeyRecord>;
            write rotate_key(item: $crate::store::RotateKey) -> Option<$crate::tenant::KeyRecord>;
            write revoke_key(tenant: $crate::id::TenantId, id: $crate::id::KeyId) -> bool;
            write touch_keys(ids: Vec<$crate::id::KeyId>) -> ();
        }
    };
}

/// A key to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// Its id.
    pub id: KeyId,
    /// The tenant that it acts for.
    pub tenant: TenantId,
    /// A label for people.
    pub name: String,
    /// What it allows.
    pub scopes: Scopes,
    /// What it is bound to.
    pub binding: Option<Binding>,
    /// Its limits, in addition to those of its tenant.
    pub limits: KeyLimits,
    /// SHA-256 of its secret.
    pub hash: [u8; 32],
    /// When it expires.
    pub expires_at: Option<Timestamp>,
}

impl NewKey {
    /// The key as created at this time.
    pub fn created(self, at: Timestamp) -> KeyRecord {
        KeyRecord {
            id: self.id,
            tenant: self.tenant,
            name: self.name,
            scopes: self.scopes,
            binding: self.binding,
            limits: self.limits,
            hash: self.hash,
            previous: None,
            created_at: at,
            expires_at: self.expires_at,
            revoked_at: None,
            last_used_at: None,
        }
    }
}

/// The outcome of creating a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateKeyOutcome {
    /// It was created.
    Created(KeyRecord),
    /// An earlier request with the same idempotency key created it.
    Replayed(KeyRecord),
    /// The tenant is unknown or deleted.
    NoTenant,
    /// The idempotency key was used with another request.
    Mismatch,
}

/// A query for keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListKeys {
    /// The tenant.
    pub tenant: TenantId,
    /// The last key of the previous page; `None` for the first page.
    pub before: Option<KeyId>,
    /// At most this many.
    pub limit: u32,
}

/// A new secret for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RotateKey {
    /// The tenant.
    pub tenant: TenantId,
    /// The key.
    pub id: KeyId,
    /// SHA-256 of the new secret.
    pub hash: [u8; 32],
    /// How long the previous secret is still accepted, in milliseconds.
    pub overlap_ms: i64,
}
