//! API keys of the caller's tenant.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use mainspring_shared::id::{KeyId, TenantId};
use mainspring_shared::store::{CreateKeyOutcome, ListKeys, NewKey, RotateKey};
use mainspring_shared::tenant::{
    AGENTS_MAX, Binding, KeyLimits, KeyRecord, PAIRS_MAX, SESSIONS_MAX, Scope, Scopes, Secret,
    Token,
};
use mainspring_shared::time::{Span, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{name, requests_per_second, sends};
use crate::access::{Caller, no_tenant};
use crate::bodies::object;
use crate::codes::KeyNotFound;
use crate::extract::{Json, JsonBody, Key, Limit, NoQuery, Nothing, Query, cursor};
use crate::openapi::form;
use crate::problem::Problem;
use crate::respond::{self, Begin, List};
use crate::router::Api;
use crate::validate::Checks;

/// How long the previous secret is accepted after a rotation, unless the request says otherwise:
/// time for clients to deploy the new one.
const OVERLAP_DEFAULT: Duration = Duration::from_hours(24);

const OVERLAP_MAX: Duration = Duration::from_hours(24 * 30);

/// An API key.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = ApiKey)]
pub(super) struct KeyView {
    /// Its id.
    #[schema(value_type = String)]
    id: KeyId,
    /// The tenant that it acts for.
    tenant: String,
    /// A label for people.
    name: String,
    /// What it allows; `admin` includes the others, except `operate`.
    #[schema(value_type = Vec<Scope>)]
    scopes: Scopes,
    /// The part of its tenant that it sees and changes; all of it if null.
    binding: Option<Binding>,
    /// Its limits, in addition to those of its tenant.
    limits: KeyLimits,
    /// The prefix of its token.
    prefix: String,
    /// The token. Only in the response that creates or rotates it, and not in a repeated one
    /// (`Idempotency-Replayed`): it is stored nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// From when on it is refused; never if null.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    /// When it was revoked.
    #[schema(value_type = Option<String>, format = DateTime)]
    revoked_at: Option<Timestamp>,
    /// When it was last used, to the minute.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_used_at: Option<Timestamp>,
    /// Until when the secret before the last rotation is accepted.
    #[schema(value_type = Option<String>, format = DateTime)]
    previous_until: Option<Timestamp>,
}

impl From<KeyRecord> for KeyView {
    fn from(record: KeyRecord) -> Self {
        Self {
            id: record.id,
            tenant: record.tenant.to_string(),
            name: record.name,
            scopes: record.scopes,
            binding: record.binding,
            limits: record.limits,
            prefix: format!("msk_{}", record.id.0.as_simple()),
            key: None,
            created_at: record.created_at,
            expires_at: record.expires_at,
            revoked_at: record.revoked_at,
            last_used_at: record.last_used_at,
            previous_until: record.previous.map(|(until, _)| until),
        }
    }
}

/// A key to create, for the caller's tenant.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewKeyBody {
    /// A label for people, at most 100 characters; if absent, the scopes joined with `+`, like `read+send`.
    name: Option<String>,
    /// What it allows, at least one.
    scopes: Vec<Scope>,
    /// The part of the tenant that it sees and changes; all of it if absent. Such a key cannot be an administrator's.
    #[serde(default, deserialize_with = "object")]
    binding: Option<Binding>,
    /// Its limits, in addition to those of its tenant; none when absent.
    #[serde(default)]
    limits: KeyLimits,
    /// From when on it is refused; never if absent.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    /// The tenant, for operators; the caller's if absent.
    tenant: Option<String>,
}

impl JsonBody for NewKeyBody {
    type Checked = Self;

    fn checked(self, checks: &mut Checks) -> Self {
        if let Some(text) = &self.name {
            name(checks, "/name", text);
        }
        if self.scopes.is_empty() {
            checks.refuse("/scopes", "must have at least one");
        }
        if let Some(binding) = &self.binding {
            check_binding(checks, binding);
            if self.scopes.contains(&Scope::Operate) {
                checks.refuse("/scopes", "must not combine operate with a binding");
            }
            if self.scopes.contains(&Scope::Admin) {
                let detail = "must not combine admin with a binding: admin keys can create \
                              unbound keys";
                checks.refuse("/scopes", detail);
            }
        }
        requests_per_second(checks, self.limits.requests_per_second);
        sends(checks, "sends_open", self.limits.sends_open);
        self
    }
}

fn check_binding(checks: &mut Checks, binding: &Binding) {
    if binding.is_empty() {
        checks.refuse("/binding", "must bind the key to something");
    }
    if binding.agents.len() > AGENTS_MAX {
        let detail = format!("must have at most {AGENTS_MAX}");
        checks.refuse("/binding/agents", &detail);
    }
    if binding.metadata.len() > PAIRS_MAX {
        let detail = format!("must have at most {PAIRS_MAX} members");
        checks.refuse("/binding/metadata", &detail);
    }
    if binding.sessions.len() > SESSIONS_MAX {
        let detail = format!("must have at most {SESSIONS_MAX}");
        checks.refuse("/binding/sessions", &detail);
    }
    let pairs = binding.metadata.iter();
    let pairs = pairs.map(|(name, text)| (name.clone(), Value::String(text.clone())));
    checks.metadata("/binding/metadata", &pairs.collect());
}

/// How a key is rotated.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RotateBody {
    /// How long the secret before is still accepted; `24h` if absent, at most `30d`.
    #[schema(value_type = Option<String>)]
    overlap: Option<Span>,
}

impl JsonBody for RotateBody {
    type Checked = Duration;

    fn absent() -> Option<Self> {
        Some(Self::default())
    }

    fn checked(self, checks: &mut Checks) -> Duration {
        let overlap = self.overlap.map_or(OVERLAP_DEFAULT, |span| span.0);
        if overlap > OVERLAP_MAX {
            checks.refuse("/overlap", "must be at most 30d");
        }
        overlap
    }
}

/// The key that a path names.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyPath(KeyId);

impl<S: Send + Sync> FromRequestParts<S> for KeyPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let id = path.ok().and_then(|Path(text)| text.parse().ok());
        Ok(Self(id.ok_or_else(no_key)?))
    }
}

fn no_key() -> Error {
    Error::new(Code::KeyNotFound, "the tenant has no API key with this id")
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, revoke))
        .routes(routes!(rotate))
}

/// A new secret.
fn secret(app: &App) -> Secret {
    Secret::new([app.entropy.random_id(), app.entropy.random_id()])
}

/// Creates an API key; its token is in this response only
#[utoipa::path(
    post,
    path = "/v1/keys",
    operation_id = "createKey",
    params(Key),
    request_body = NewKeyBody,
    responses((status = 201, body = KeyView))
)]
pub(super) async fn create(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
    json: Json<NewKeyBody>,
) -> Result<Response, Problem> {
    let idempotency = json.idempotency("POST /v1/keys")?;
    let body = json.value;
    let tenant = caller.tenant_for(body.tenant.as_deref())?;
    if body.scopes.contains(&Scope::Operate) {
        caller.require_operator()?;
        if tenant != TenantId::DEFAULT {
            let detail = "operate is only for keys of the first tenant, ten_1";
            return Err(Error::invalid("/scopes", detail).into());
        }
    }
    let token = Token {
        id: KeyId(app.entropy.ordered_id()),
        secret: secret(&app),
    };
    let scopes = Scopes(body.scopes.into_iter().collect());
    let name = body
        .name
        .unwrap_or_else(|| scopes.to_text().replace(' ', "+"));
    let new = NewKey {
        id: token.id,
        tenant,
        name,
        scopes,
        binding: body.binding,
        limits: body.limits,
        hash: token.secret.hash(),
        expires_at: body.expires_at,
    };
    match app.store.create_key(new, idempotency).await? {
        CreateKeyOutcome::Created(record) => answer_created(&caller, record, Some(&token)),
        CreateKeyOutcome::Replayed(record) => {
            let mut response = answer_created(&caller, record, None)?;
            respond::mark_replayed(&mut response);
            Ok(response)
        }
        CreateKeyOutcome::NoTenant => Err(no_tenant().into()),
        CreateKeyOutcome::Mismatch => Err(Error::mismatch().into()),
    }
}

fn answer_created(
    caller: &Caller,
    record: KeyRecord,
    token: Option<&Token>,
) -> Result<Response, Problem> {
    let path = format!("/v1/keys/{}", record.id);
    let is_own = record.tenant == caller.tenant;
    let view = KeyView {
        key: token.map(Token::reveal),
        ..KeyView::from(record)
    };
    if is_own {
        respond::created(StatusCode::CREATED, &path, &view)
    } else {
        // No location: an operator who names a tenant in the body can only see its keys while
        // acting for that tenant.
        respond::json(StatusCode::CREATED, &view)
    }
}

/// Which keys, newest first.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct KeysQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The `next_cursor` of the page before.
    #[serde(default, deserialize_with = "cursor")]
    #[param(value_type = Option<form::KeyId>, inline)]
    cursor: Option<KeyId>,
}

/// The tenant's API keys, newest first, revoked ones included
#[utoipa::path(
    get,
    path = "/v1/keys",
    operation_id = "listKeys",
    params(KeysQuery),
    responses((status = 200, body = List<KeyView>))
)]
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<KeysQuery>,
) -> Result<Response, Problem> {
    let begin = Begin {
        cursor: query.cursor,
        limit: query.limit.0,
    };
    let read = async |before: Option<KeyId>, limit: u32| {
        let query = ListKeys {
            tenant: caller.tenant,
            before,
            limit,
        };
        let page = app.store.list_keys(query).await?;
        Ok((page.data, page.more))
    };
    respond::page(&app, begin, read, |key| key.id, KeyView::from).await
}

/// An API key, revoked or not
#[utoipa::path(
    get,
    path = "/v1/keys/{id}",
    operation_id = "getKey",
    responses((status = 200, body = KeyView), KeyNotFound)
)]
pub(super) async fn show(
    State(app): State<Arc<Api>>,
    caller: Caller,
    KeyPath(id): KeyPath,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let found = found(&app, &caller, id).await?;
    respond::json(StatusCode::OK, &KeyView::from(found))
}

/// A key of the caller's tenant.
async fn found(app: &App, caller: &Caller, id: KeyId) -> Result<KeyRecord, Error> {
    let found = app.store.find_key(id).await?;
    let found = found.filter(|key| key.tenant == caller.tenant);
    found.ok_or_else(no_key)
}

/// Fails unless there is such a key that the caller may change: only operators change operators'
/// keys. A key's scopes never change, so this remains true.
async fn admit_change(app: &App, caller: &Caller, id: KeyId) -> Result<(), Error> {
    if found(app, caller, id).await?.scopes.operate() {
        caller.require_operator()?;
    }
    Ok(())
}

/// Replaces a key's secret; the new token is in this response only
#[utoipa::path(
    post,
    path = "/v1/keys/{id}/rotate",
    operation_id = "rotateKey",
    request_body = Option<RotateBody>,
    responses((status = 200, body = KeyView), KeyNotFound)
)]
pub(super) async fn rotate(
    State(app): State<Arc<Api>>,
    caller: Caller,
    KeyPath(id): KeyPath,
    _: Query<NoQuery>,
    Json { value: overlap, .. }: Json<RotateBody>,
) -> Result<Response, Problem> {
    admit_change(&app, &caller, id).await?;
    let token = Token {
        id,
        secret: secret(&app),
    };
    let item = RotateKey {
        tenant: caller.tenant,
        id,
        hash: token.secret.hash(),
        overlap_ms: overlap.as_millis() as i64,
    };
    let rotated = app.store.rotate_key(item).await?.ok_or_else(no_key)?;
    let view = KeyView {
        key: Some(token.reveal()),
        ..KeyView::from(rotated)
    };
    respond::json(StatusCode::OK, &view)
}

/// Revokes a key: it is refused everywhere within seconds, and streams under it end
#[utoipa::path(
    delete,
    path = "/v1/keys/{id}",
    operation_id = "revokeKey",
    responses((status = 204), KeyNotFound)
)]
pub(super) async fn revoke(
    State(app): State<Arc<Api>>,
    caller: Caller,
    KeyPath(id): KeyPath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    admit_change(&app, &caller, id).await?;
    if !app.store.revoke_key(caller.tenant, id).await? {
        return Err(no_key().into());
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
