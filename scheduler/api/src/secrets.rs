//! The tenant's secrets, which its HTTP tools may send to the hosts of each.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use mainspring_shared::provider_key::ProviderKeyRecord;
use mainspring_shared::store::{ListProviderKeys, SetProviderKey};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::secret::{
    self, HOSTS_MAX, Held, SECRETS_MAX, check_value, is_name, origin,
};
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::codes::{SecretNoSeal, SecretNotFound, SecretTooMany};
use crate::extract::{Json, JsonBody, Limit, NoQuery, Nothing, Query};
use crate::openapi::form;
use crate::problem::Problem;
use crate::respond::{self, Begin, List};
use crate::router::Api;
use crate::validate::Checks;

/// A secret, without its value, which is never shown.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Secret)]
pub(super) struct SecretView {
    /// The name that tools use.
    name: String,
    /// The origins that it may be sent to; empty if the server has lost the key that it was sealed with.
    hosts: Vec<String>,
    /// When it was set.
    #[schema(value_type = String, format = DateTime)]
    set_at: Timestamp,
}

impl SecretView {
    fn of(app: &Api, record: &ProviderKeyRecord) -> Self {
        let name = secret::name_of(&record.provider)
            .unwrap_or_default()
            .to_owned();
        let webhooks = &app.outside.webhooks;
        Self {
            hosts: webhooks.secret_hosts(record.tenant, &name, &record.sealed),
            name,
            set_at: record.set_at,
        }
    }
}

/// A secret to set. It is stored sealed, and never shown again.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SecretBody {
    /// The value: visible ASCII characters and blanks.
    #[schema(min_length = 8, max_length = 4096, format = Password, write_only)]
    value: String,
    /// Where it may be sent: hosts like `api.example`, which stands for `https://api.example`, or origins like
    /// `https://api.example:8443`. For a client of OAuth also that of the authorization server.
    #[schema(min_items = 1, max_items = 20)]
    hosts: Vec<String>,
}

impl std::fmt::Debug for SecretBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretBody").finish_non_exhaustive()
    }
}

impl JsonBody for SecretBody {
    type Checked = Held;

    fn checked(self, checks: &mut Checks) -> Held {
        if let Err(why) = check_value(&self.value) {
            checks.refuse("/value", &why);
        }
        if self.hosts.is_empty() || self.hosts.len() > HOSTS_MAX {
            checks.refuse("/hosts", &format!("must have 1 to {HOSTS_MAX} hosts"));
        }
        let mut hosts = Vec::new();
        for (place, host) in self.hosts.iter().take(HOSTS_MAX).enumerate() {
            match origin(host) {
                Ok(origin) => hosts.push(origin),
                Err(why) => checks.refuse(&format!("/hosts/{place}"), &why),
            }
        }
        hosts.sort();
        hosts.dedup();
        Held {
            value: self.value,
            hosts,
        }
    }
}

/// The secret that a path names.
#[derive(Debug, Clone)]
pub(super) struct SecretPath(String);

impl<S: Send + Sync> FromRequestParts<S> for SecretPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let name = path.map_err(|_| no_secret())?.0;
        Ok(Self(name))
    }
}

fn no_secret() -> Error {
    Error::new(
        Code::SecretNotFound,
        "the tenant has no secret of this name",
    )
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(get, set, delete))
}

/// Which secrets, by their names.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct SecretsQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The `next_cursor` of the page before.
    #[serde(default)]
    #[param(value_type = Option<form::SecretName>, inline)]
    cursor: Option<String>,
}

/// The tenant's secrets, without their values
#[utoipa::path(
    get,
    path = "/v1/secrets",
    operation_id = "listSecrets",
    params(SecretsQuery),
    responses((status = 200, body = List<SecretView>))
)]
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<SecretsQuery>,
) -> Result<Response, Problem> {
    let begin = Begin {
        cursor: query.cursor,
        limit: query.limit.0,
    };
    let read = async |after: Option<String>, limit: u32| {
        let query = ListProviderKeys {
            tenant: caller.tenant,
            after: Some(secret::row(&after.unwrap_or_default())),
            limit,
        };
        let mut page = app.store.list_provider_keys(query).await?;
        let all = page.data.len();
        page.data
            .retain(|key| secret::name_of(&key.provider).is_some());
        // What follows the last secret are keys for providers.
        let more = page.more && page.data.len() == all;
        Ok((page.data, more))
    };
    let name = |record: &ProviderKeyRecord| {
        secret::name_of(&record.provider)
            .unwrap_or_default()
            .to_owned()
    };
    respond::page(&app, begin, read, name, |record| {
        SecretView::of(&app, &record)
    })
    .await
}

/// A secret, without its value
#[utoipa::path(
    get,
    path = "/v1/secrets/{name}",
    operation_id = "getSecret",
    responses((status = 200, body = SecretView), SecretNotFound)
)]
pub(super) async fn get(
    State(app): State<Arc<Api>>,
    caller: Caller,
    SecretPath(name): SecretPath,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let found = app
        .store
        .find_provider_key(caller.tenant, secret::row(&name));
    let record = found.await?.ok_or_else(no_secret)?;
    respond::json(StatusCode::OK, &SecretView::of(&app, &record))
}

/// Sets a secret, in the place of the one before
///
/// Tools use it within ten seconds; the process of an isolated agent keeps those that its send began with. A repeat sets
/// it again.
#[utoipa::path(
    put,
    path = "/v1/secrets/{name}",
    operation_id = "setSecret",
    request_body = SecretBody,
    responses((status = 200, body = SecretView), SecretNoSeal, SecretTooMany)
)]
pub(super) async fn set(
    State(app): State<Arc<Api>>,
    caller: Caller,
    SecretPath(name): SecretPath,
    _: Query<NoQuery>,
    Json { value: held, .. }: Json<SecretBody>,
) -> Result<Response, Problem> {
    if !is_name(&name) {
        let why = "the path must name a secret: 1 to 64 letters, digits, `_`, `-` or `.`";
        return Err(Error::invalid("/name", why.to_owned()).into());
    }
    let tenant = caller.tenant;
    let row = secret::row(&name);
    let query = ListProviderKeys {
        tenant,
        after: Some(secret::row("")),
        limit: SECRETS_MAX,
    };
    let kept = app.store.list_provider_keys(query).await?.data;
    let kept = || {
        kept.iter()
            .filter(|key| secret::name_of(&key.provider).is_some())
    };
    let is_full = kept().count() >= SECRETS_MAX as usize;
    if is_full && kept().all(|key| key.provider != row) {
        let detail = format!("a tenant has at most {SECRETS_MAX} secrets");
        return Err(Error::new(Code::SecretTooMany, detail).into());
    }
    let entropy = app.entropy.as_ref();
    let webhooks = &app.outside.webhooks;
    let item = SetProviderKey {
        tenant,
        sealed: webhooks.seal_secret(entropy, tenant, &name, &held)?,
        provider: row,
        // Of a secret nothing is shown.
        hint: String::new(),
    };
    let record = app.store.set_provider_key(item).await?;
    respond::json(StatusCode::OK, &SecretView::of(&app, &record))
}

/// Removes a secret: tools that name it are not called any more
///
/// That is so within ten seconds; the process of an isolated agent keeps those that its send began with.
#[utoipa::path(
    delete,
    path = "/v1/secrets/{name}",
    operation_id = "deleteSecret",
    responses((status = 204), SecretNotFound)
)]
pub(super) async fn delete(
    State(app): State<Arc<Api>>,
    caller: Caller,
    SecretPath(name): SecretPath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let deleted = app
        .store
        .delete_provider_key(caller.tenant, secret::row(&name));
    if !deleted.await? {
        return Err(no_secret().into());
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
