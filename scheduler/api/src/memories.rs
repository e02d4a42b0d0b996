//! The memory of agents: entries by namespace, and the erasure of a namespace.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::forgetting;
use mainspring_shared::error::Code;
use mainspring_shared::id::{ErasureId, MemoryId, TenantId};
use mainspring_shared::memory::{METADATA_BYTES_MAX, MemoryEntry, Namespace, TEXT_CHARS_MAX};
use mainspring_shared::store::{
    ChangeMemory, Erasure, ListErasures, ListMemories, NewMemory, SaveMemory, SaveMemoryOutcome,
    SearchMemories,
};
use mainspring_shared::tenant::{Binding, Narrowed};
use mainspring_shared::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::Problem;
use super::respond::{self, Begin, List};
use super::validate::Checks;
use crate::access::{Caller, refuse_held};
use crate::codes::{MemoryNotFound, TenantHeld};
use crate::extract::{
    Json, JsonBody, Key, Limit, NoQuery, Nothing, Query, cursor, given, parameter, text,
};
use crate::openapi::form;
use crate::router::Api;

const ROUTE: &str = "POST /v1/memories";

/// The entry that a path names.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemoryPath(MemoryId);

impl<S: Send + Sync> axum::extract::FromRequestParts<S> for MemoryPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let id = path.ok().and_then(|Path(text)| text.parse().ok());
        Ok(Self(id.ok_or_else(not_found)?))
    }
}

pub(crate) fn not_found() -> Error {
    Error::new(Code::MemoryNotFound, "no entry of the memory has this id")
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(list, create, erase))
        .routes(routes!(erasures))
        .routes(routes!(show, change, remove))
}

/// An entry to enter.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewMemoryBody {
    /// Its namespace: a path like `user/42`.
    namespace: String,
    /// What is remembered.
    text: String,
    /// The writer's data: an object, at most 8 KiB of JSON.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
    /// When it is forgotten by itself.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
}

/// An entry to create, without its identity.
#[derive(Debug)]
pub(super) struct NewEntry {
    namespace: Option<Namespace>,
    text: String,
    metadata: Map<String, Value>,
    expires_at: Option<Timestamp>,
}

impl JsonBody for NewMemoryBody {
    type Checked = NewEntry;

    fn checked(self, checks: &mut Checks) -> NewEntry {
        let namespace = self.namespace.parse();
        if let Err(fault) = &namespace {
            checks.refuse("/namespace", &format!("cannot be read: {fault}"));
        }
        check_text(checks, &self.text);
        let metadata = self.metadata.unwrap_or_default();
        check_metadata(checks, &metadata);
        NewEntry {
            namespace: namespace.ok(),
            text: self.text,
            metadata,
            expires_at: self.expires_at,
        }
    }
}

fn check_text(checks: &mut Checks, text: &str) {
    if text.trim().is_empty() || text.chars().count() > TEXT_CHARS_MAX {
        let detail = format!("must have 1 to {TEXT_CHARS_MAX} characters");
        checks.refuse("/text", &detail);
    }
    if text.contains('\0') {
        checks.refuse("/text", "must not contain U+0000");
    }
}

fn check_metadata(checks: &mut Checks, metadata: &Map<String, Value>) {
    checks.metadata("/metadata", metadata);
    // Metadata is JSON already, so this cannot fail.
    let bytes = serde_json::to_vec(metadata).map_or(0, |json| json.len());
    if bytes > METADATA_BYTES_MAX {
        let detail = format!("must have at most {METADATA_BYTES_MAX} bytes of JSON");
        checks.refuse("/metadata", &detail);
    }
}

/// Changes of an entry; absent members stay as they are.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MemoryChangeBody {
    /// Replaces the text.
    #[serde(default)]
    text: Option<String>,
    /// Replaces the metadata.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
    /// Replaces the time at which it is forgotten by itself; null keeps it for good.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, format = DateTime)]
    #[expect(clippy::option_option, reason = "null is not the same as absent")]
    expires_at: Option<Option<Timestamp>>,
}

impl JsonBody for MemoryChangeBody {
    type Checked = Self;

    fn checked(self, checks: &mut Checks) -> Self {
        if let Some(text) = &self.text {
            check_text(checks, text);
        }
        if let Some(metadata) = &self.metadata {
            check_metadata(checks, metadata);
        }
        self
    }
}

/// Enters an entry
#[utoipa::path(
    post,
    path = "/v1/memories",
    operation_id = "createMemory",
    params(Key),
    request_body = NewMemoryBody,
    responses((status = 201, body = MemoryEntry))
)]
pub(super) async fn create(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
    json: Json<NewMemoryBody>,
) -> Result<Response, Problem> {
    let idempotency = json.idempotency(ROUTE)?;
    let new = json.value;
    let namespace = new.namespace.ok_or_else(Error::internal)?;
    if caller
        .binding()
        .is_some_and(|binding| !binding.covers(&namespace))
    {
        return Err(Error::new(
            Code::AuthBinding,
            "the namespace must be the API key's own (its binding) or one below it",
        )
        .into());
    }
    let item = SaveMemory {
        tenant: caller.tenant,
        entry: NewMemory {
            id: MemoryId(app.entropy.ordered_id()),
            namespace,
            text: new.text,
            metadata: new.metadata,
            source: None,
            expires_at: new.expires_at,
        },
        idempotency,
    };
    match app.store.save_memory(item).await? {
        SaveMemoryOutcome::Saved(entry) => created(&entry),
        SaveMemoryOutcome::Known(entry) => {
            let mut response = created(&entry)?;
            respond::mark_replayed(&mut response);
            Ok(response)
        }
        SaveMemoryOutcome::Gone => Err(not_found().into()),
        SaveMemoryOutcome::Mismatch => Err(Error::mismatch().into()),
    }
}

fn created(entry: &MemoryEntry) -> Result<Response, Problem> {
    let path = format!("/v1/memories/{}", entry.id);
    respond::created(StatusCode::CREATED, &path, entry)
}

/// Which entries.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct MemoriesQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The `next_cursor` of the page before.
    #[serde(default, deserialize_with = "cursor")]
    #[param(value_type = Option<form::MemoryId>, inline)]
    cursor: Option<MemoryId>,
    /// This namespace and all below it: a path like `user/42`. Needed to search and to erase.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<form::Namespace>, inline)]
    namespace: Option<Namespace>,
    /// What to look for, in plain words: the entries that fit it best, the best first.
    q: Option<String>,
}

/// Entries, newest first; with `q` the best matching ones of a namespace, best first
#[utoipa::path(
    get,
    path = "/v1/memories",
    operation_id = "listMemories",
    params(MemoriesQuery),
    responses((status = 200, body = List<MemoryEntry>))
)]
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(mut query): Query<MemoriesQuery>,
) -> Result<Response, Problem> {
    if query.q.is_some() && query.namespace.is_none() {
        let detail = "is required with q: the namespace to search";
        return Err(parameter("namespace", detail).into());
    }
    let Some(narrowed) = narrow(&caller, query.namespace) else {
        return respond::json(StatusCode::OK, &List::<MemoryEntry>::whole(Vec::new()));
    };
    query.namespace = narrowed.into_inner();
    if let Some(words) = &query.q {
        return search(&app, caller.tenant, &query, words).await;
    }
    let begin = Begin {
        cursor: query.cursor,
        limit: query.limit.0,
    };
    let read = async |before: Option<MemoryId>, limit: u32| {
        let query = ListMemories {
            tenant: caller.tenant,
            namespace: query.namespace.clone(),
            before,
            limit,
        };
        let page = app.store.list_memories(query).await?;
        Ok((page.data, page.more))
    };
    respond::page(&app, begin, read, |entry| entry.id, |entry| entry).await
}

/// The part of a namespace that the caller may see: none if it lies outside its binding.
fn narrow(caller: &Caller, asked: Option<Namespace>) -> Option<Narrowed> {
    match caller.binding() {
        Some(binding) => binding.narrow(asked),
        None => Binding::default().narrow(asked),
    }
}

async fn search(
    app: &App,
    tenant: TenantId,
    query: &MemoriesQuery,
    words: &str,
) -> Result<Response, Problem> {
    let namespace = query.namespace.clone().ok_or_else(Error::internal)?;
    if query.cursor.is_some() {
        return Err(parameter("cursor", "cannot be combined with q").into());
    }
    let question = SearchMemories::new(tenant, namespace, words, query.limit.0);
    let found = app.store.search_memories(question).await?;
    respond::json(StatusCode::OK, &List::whole(found))
}

/// An entry
#[utoipa::path(
    get,
    path = "/v1/memories/{id}",
    operation_id = "getMemory",
    responses((status = 200, body = MemoryEntry), MemoryNotFound)
)]
pub(super) async fn show(
    State(app): State<Arc<Api>>,
    caller: Caller,
    MemoryPath(id): MemoryPath,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let found = app.store.get_memory(caller.tenant, id).await?;
    respond::json(StatusCode::OK, &found.ok_or_else(not_found)?)
}

/// Replaces the text, the metadata or the end of an entry
#[utoipa::path(
    patch,
    path = "/v1/memories/{id}",
    operation_id = "changeMemory",
    request_body = MemoryChangeBody,
    responses((status = 200, body = MemoryEntry), MemoryNotFound)
)]
pub(super) async fn change(
    State(app): State<Arc<Api>>,
    caller: Caller,
    MemoryPath(id): MemoryPath,
    _: Query<NoQuery>,
    Json { value: body, .. }: Json<MemoryChangeBody>,
) -> Result<Response, Problem> {
    let MemoryChangeBody {
        text,
        metadata,
        expires_at,
    } = body;
    let changed = if text.is_none() && metadata.is_none() && expires_at.is_none() {
        // Nothing changes, not even the time of the last change.
        app.store.get_memory(caller.tenant, id).await?
    } else {
        let item = ChangeMemory {
            tenant: caller.tenant,
            id,
            text,
            metadata,
            expires_at,
            source: None,
        };
        app.store.change_memory(item).await?
    };
    respond::json(StatusCode::OK, &changed.ok_or_else(not_found)?)
}

/// Deletes an entry
#[utoipa::path(
    delete,
    path = "/v1/memories/{id}",
    operation_id = "deleteMemory",
    responses((status = 204), MemoryNotFound, TenantHeld)
)]
pub(super) async fn remove(
    State(app): State<Arc<Api>>,
    caller: Caller,
    MemoryPath(id): MemoryPath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    refuse_held(&app, caller.tenant).await?;
    if !app.store.delete_memory(caller.tenant, None, id).await? {
        return Err(not_found().into());
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// What to erase.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EraseQuery {
    /// This namespace and all below it: a path like `user/42`. Needed to search and to erase.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<form::Namespace>, inline)]
    namespace: Option<Namespace>,
}

/// What an erasure did.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct ErasedView {
    /// Entries that were deleted.
    deleted: u64,
}

/// Erases a namespace with all below it; what remains is a record of when and how many, without names
#[utoipa::path(
    delete,
    path = "/v1/memories",
    operation_id = "eraseMemories",
    params(EraseQuery),
    responses((status = 200, body = ErasedView), TenantHeld)
)]
pub(super) async fn erase(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<EraseQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let Some(namespace) = query.namespace else {
        return Err(parameter("namespace", "is required: the namespace to erase").into());
    };
    let narrowed = narrow(&caller, Some(namespace)).and_then(Narrowed::into_inner);
    let Some(namespace) = narrowed else {
        return respond::json(StatusCode::OK, &ErasedView { deleted: 0 });
    };
    refuse_held(&app, caller.tenant).await?;
    let deleted = forgetting::erase(&app, caller.tenant, namespace, caller.name()).await?;
    respond::json(StatusCode::OK, &ErasedView { deleted })
}

/// Which erasures.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ErasuresQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The `next_cursor` of the page before.
    #[serde(default, deserialize_with = "cursor")]
    #[param(value_type = Option<form::ErasureId>, inline)]
    cursor: Option<ErasureId>,
    /// Only those of exactly this namespace.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<form::Namespace>, inline)]
    namespace: Option<Namespace>,
}

/// Erasures of namespaces, newest first: when, by whom and how many, without names or texts
#[utoipa::path(
    get,
    path = "/v1/memories/erasures",
    operation_id = "listErasures",
    params(ErasuresQuery),
    responses((status = 200, body = List<Erasure>))
)]
pub(super) async fn erasures(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<ErasuresQuery>,
) -> Result<Response, Problem> {
    // The records contain no names, so without a namespace it is unknown which of them lie inside.
    let is_outside = |binding: &Binding| match &query.namespace {
        Some(namespace) => !binding.covers(namespace),
        None => binding.namespace.is_some(),
    };
    if caller.binding().is_some_and(is_outside) {
        return respond::json(StatusCode::OK, &List::<Erasure>::whole(Vec::new()));
    }
    let begin = Begin {
        cursor: query.cursor,
        limit: query.limit.0,
    };
    let read = async |before: Option<ErasureId>, limit: u32| {
        let query = ListErasures {
            tenant: caller.tenant,
            fingerprint: query.namespace.as_ref().map(forgetting::fingerprint),
            before,
            limit,
        };
        let page = app.store.list_erasures(query).await?;
        Ok((page.data, page.more))
    };
    respond::page(&app, begin, read, |erasure| erasure.id, |erasure| erasure).await
}
