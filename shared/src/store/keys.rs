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
    /// created; its secret is nowhere any more.
    async fn create_key(
        &self,
        key: NewKey,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<CreateKeyOutcome>;

    /// Reads a key by what its token names; none where it is unknown, or its tenant was deleted.
    async fn find_key(&self, id: KeyId) -> Result<Option<KeyRecord>>;

    /// Lists a tenant's keys, newest first, revoked ones included.
    async fn list_keys(&self, query: ListKeys) -> Result<Page<KeyRecord>>;

    /// Replaces a key's secret; the one before is accepted until the overlap ends. None where the
    /// tenant has no such key that is live.
    async fn rotate_key(&self, item: RotateKey) -> Result<Option<KeyRecord>>;

    /// Revokes a key; a repeat changes nothing. False where the tenant has no such key.
    async fn revoke_key(&self, tenant: TenantId, id: KeyId) -> Result<bool>;

    /// Notes that keys were used now.
    async fn touch_keys(&self, ids: Vec<KeyId>) -> Result<()>;
}

/// The methods of [`Keys`] as [`store_methods`](crate::store_methods) hands them over.
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
    /// From when on it is refused.
    pub expires_at: Option<Timestamp>,
}

impl NewKey {
    /// The key as it is when it is created at this time.
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

/// What became of a new key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateKeyOutcome {
    /// It was created.
    Created(KeyRecord),
    /// The same request created it before.
    Replayed(KeyRecord),
    /// The tenant is unknown or deleted.
    NoTenant,
    /// The idempotency key was used with another request.
    Mismatch,
}

/// Which keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListKeys {
    /// The tenant's.
    pub tenant: TenantId,
    /// The last of the page before; none for the first page.
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
    /// How long the secret before is accepted, in milliseconds.
    pub overlap_ms: i64,
}
