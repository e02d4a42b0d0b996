//! The tenant's own keys for model providers.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use mainspring_shared::provider_key::{
    PROVIDERS_MAX, ProviderKeyRecord, check_key, check_provider, hint,
};
use mainspring_shared::store::{ListProviderKeys, SetProviderKey};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::secret;
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::codes::{ProviderKeyNoSeal, ProviderKeyNotFound, ProviderKeyTooMany};
use crate::extract::{Json, JsonBody, Limit, NoQuery, Nothing, Query};
use crate::openapi::form;
use crate::problem::Problem;
use crate::respond::{self, Begin, List};
use crate::router::Api;
use crate::validate::Checks;

/// A key for a provider. The key itself is never shown.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = ProviderKey)]
pub(super) struct ProviderKeyView {
    /// The provider's name in the configuration of workers.
    provider: String,
    /// The key's last characters; empty for a short key.
    hint: String,
    /// When it was set.
    #[schema(value_type = String, format = DateTime)]
    set_at: Timestamp,
}

impl From<ProviderKeyRecord> for ProviderKeyView {
    fn from(record: ProviderKeyRecord) -> Self {
        Self {
            provider: record.provider,
            hint: record.hint,
            set_at: record.set_at,
        }
    }
}

/// A key to set. It is stored sealed, and never shown again.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProviderKeyBody {
    /// The key as the provider gave it: visible ASCII characters.
    #[schema(max_length = 4096, format = Password, write_only)]
    key: String,
}

impl std::fmt::Debug for ProviderKeyBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderKeyBody").finish_non_exhaustive()
    }
}

impl JsonBody for ProviderKeyBody {
    type Checked = Self;

    fn checked(self, checks: &mut Checks) -> Self {
        if let Err(why) = check_key(&self.key) {
            checks.refuse("/key", &why);
        }
        self
    }
}

/// The provider that a path names.
#[derive(Debug, Clone)]
pub(super) struct ProviderPath(String);

impl<S: Send + Sync> FromRequestParts<S> for ProviderPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let name = path.map_err(|_| no_key())?.0;
        Ok(Self(name))
    }
}

fn no_key() -> Error {
    Error::new(
        Code::ProviderKeyNotFound,
        "the tenant has no key for this provider",
    )
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(set, delete))
}

/// Which keys, by the providers' names.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ProviderKeysQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The `next_cursor` of the page before.
    #[serde(default)]
    #[param(value_type = Option<form::ProviderName>, inline)]
    cursor: Option<String>,
}

/// The providers for which the tenant has its own key
#[utoipa::path(
    get,
    path = "/v1/provider-keys",
    operation_id = "listProviderKeys",
    params(ProviderKeysQuery),
    responses((status = 200, body = List<ProviderKeyView>))
)]
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<ProviderKeysQuery>,
) -> Result<Response, Problem> {
    let begin = Begin {
        cursor: query.cursor,
        limit: query.limit.0,
    };
    let read = async |after: Option<String>, limit: u32| {
        let query = ListProviderKeys {
            tenant: caller.tenant,
            after,
            limit,
        };
        keys(&app, query).await
    };
    respond::page(
        &app,
        begin,
        read,
        |it| it.provider.clone(),
        ProviderKeyView::from,
    )
    .await
}

/// A page of keys for providers, without the tenant's secrets, which stand among them.
async fn keys(app: &Api, query: ListProviderKeys) -> Result<(Vec<ProviderKeyRecord>, bool), Error> {
    let ListProviderKeys { tenant, limit, .. } = query;
    let mut page = app.store.list_provider_keys(query).await?;
    let is_secret = |key: &ProviderKeyRecord| secret::name_of(&key.provider).is_some();
    if let Some(at) = page.data.iter().position(is_secret) {
        page.data.truncate(at);
        let query = ListProviderKeys {
            tenant,
            after: Some(secret::last_row()),
            limit: limit.saturating_sub(u32::try_from(at).unwrap_or(limit)),
        };
        let behind = app.store.list_provider_keys(query).await?;
        page.data.extend(behind.data);
        page.more = behind.more;
    }
    Ok((page.data, page.more))
}

/// Sets the tenant's key for a provider, in the place of the one before
///
/// Model calls of the tenant are made with it within ten seconds. A repeat sets it again.
#[utoipa::path(
    put,
    path = "/v1/provider-keys/{provider}",
    operation_id = "setProviderKey",
    request_body = ProviderKeyBody,
    responses((status = 200, body = ProviderKeyView), ProviderKeyNoSeal, ProviderKeyTooMany)
)]
pub(super) async fn set(
    State(app): State<Arc<Api>>,
    caller: Caller,
    ProviderPath(provider): ProviderPath,
    _: Query<NoQuery>,
    Json { value: body, .. }: Json<ProviderKeyBody>,
) -> Result<Response, Problem> {
    check_provider(&provider)
        .map_err(|why| Error::invalid("/provider", format!("the path {why}")))?;
    let tenant = caller.tenant;
    let query = ListProviderKeys {
        tenant,
        after: None,
        limit: PROVIDERS_MAX,
    };
    let (kept, _) = keys(&app, query).await?;
    let is_full = kept.len() >= PROVIDERS_MAX as usize;
    if is_full && kept.iter().all(|key| key.provider != provider) {
        let detail = format!("a tenant has keys for at most {PROVIDERS_MAX} providers");
        return Err(Error::new(Code::ProviderKeyTooMany, detail).into());
    }
    let entropy = app.entropy.as_ref();
    let sealed = app
        .outside
        .webhooks
        .seal_provider_key(entropy, tenant, &provider, &body.key)?;
    let item = SetProviderKey {
        tenant,
        provider,
        sealed,
        hint: hint(&body.key),
    };
    let record = app.store.set_provider_key(item).await?;
    respond::json(StatusCode::OK, &ProviderKeyView::from(record))
}

/// Removes the tenant's key for a provider: its calls are made with the operator's again
#[utoipa::path(
    delete,
    path = "/v1/provider-keys/{provider}",
    operation_id = "deleteProviderKey",
    responses((status = 204), ProviderKeyNotFound)
)]
pub(super) async fn delete(
    State(app): State<Arc<Api>>,
    caller: Caller,
    ProviderPath(provider): ProviderPath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    // The tenant's secrets are stored with its keys, under names that no provider has.
    check_provider(&provider).map_err(|_| no_key())?;
    let deleted = app.store.delete_provider_key(caller.tenant, provider);
    if !deleted.await? {
        return Err(no_key().into());
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
