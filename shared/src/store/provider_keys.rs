//! Parameters of the keys that tenants bring for model providers.

use async_trait::async_trait;

use super::{Page, Result};
use crate::id::TenantId;
use crate::provider_key::ProviderKeyRecord;

/// Keys that tenants bring for model providers. They are sealed; the store never sees one in the clear.
#[async_trait]
pub trait ProviderKeys: Send + Sync {
    /// Sets or replaces a tenant's key for a provider. A repeat sets it again.
    async fn set_provider_key(&self, item: SetProviderKey) -> Result<ProviderKeyRecord>;

    /// A tenant's key for a provider, if it has one.
    async fn find_provider_key(
        &self,
        tenant: TenantId,
        provider: String,
    ) -> Result<Option<ProviderKeyRecord>>;

    /// A tenant's keys, by provider name.
    async fn list_provider_keys(&self, query: ListProviderKeys) -> Result<Page<ProviderKeyRecord>>;

    /// Removes a tenant's key. False if there is none.
    async fn delete_provider_key(&self, tenant: TenantId, provider: String) -> Result<bool>;
}

/// The methods of [`ProviderKeys`], as passed on by [`store_methods`](crate::store_methods).
#[doc(hidden)]
#[macro_export]
macro_rules! provider_keys_methods {
    ($apply:ident) => {
        $apply! { ProviderKeys:
            write set_provider_key(
                item: $crate::store::SetProviderKey
            ) -> $crate::provider_key::ProviderKeyRecord;
            read find_provider_key(
                tenant: $crate::id::TenantId,
                provider: String
            ) -> Option<$crate::provider_key::ProviderKeyRecord>;
            read list_provider_keys(
                query: $crate::store::ListProviderKeys
            ) -> $crate::store::Page<$crate::provider_key::ProviderKeyRecord>;
            write delete_provider_key(tenant: $crate::id::TenantId, provider: String) -> bool;
        }
    };
}

/// A key to set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetProviderKey {
    /// The tenant.
    pub tenant: TenantId,
    /// The provider's name.
    pub provider: String,
    /// The key, sealed for [`seal_context`](crate::provider_key::seal_context).
    pub sealed: String,
    /// The part of it that its owner may see.
    pub hint: String,
}

/// A query for keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListProviderKeys {
    /// The tenant.
    pub tenant: TenantId,
    /// The last provider of the previous page; `None` for the first page.
    pub after: Option<String>,
    /// At most this many.
    pub limit: u32,
}
