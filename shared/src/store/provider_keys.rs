//! Parameters of the keys that tenants bring for model providers.

use async_trait::async_trait;

use super::{Page, Result};
use crate::id::TenantId;
use crate::provider_key::ProviderKeyRecord;

/// Keys that tenants bring for model providers. The store never sees one: they come sealed.
#[async_trait]
pub trait ProviderKeys: Send + Sync {
    /// Sets a tenant's key for a provider, in the place of the one before. A repeat sets it again.
    async fn set_provider_key(&self, item: SetProviderKey) -> Result<ProviderKeyRecord>;

    /// A tenant's key for a provider; none where it brought none.
    async fn find_provider_key(
        &self,
        tenant: TenantId,
        provider: String,
    ) -> Result<Option<ProviderKeyRecord>>;

    /// A tenant's keys by the providers' names.
    async fn list_provider_keys(&self, query: ListProviderKeys) -> Result<Page<ProviderKeyRecord>>;

    /// Removes a tenant's key. False where there is none.
    async fn delete_provider_key(&self, tenant: TenantId, provider: String) -> Result<bool>;
}

/// The methods of [`ProviderKeys`] as [`store_methods`](crate::store_methods) hands them over.
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
    /// Whose.
    pub tenant: TenantId,
    /// The provider's name.
    pub provider: String,
    /// The key, sealed for [`seal_context`](crate::provider_key::seal_context).
    pub sealed: String,
    /// What its owner sees of it.
    pub hint: String,
}

/// Which keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListProviderKeys {
    /// Whose.
    pub tenant: TenantId,
    /// The last provider of the page before; none for the first page.
    pub after: Option<String>,
    /// At most this many.
    pub limit: u32,
}
