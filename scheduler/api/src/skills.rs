//! Skills.

mod body;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use mainspring_shared::id::TenantId;
use mainspring_shared::skill::{
    BrokenSkill, SkillFault, SkillFile, SkillHash, SkillRecord, SkillRef, SkillSource,
};
use mainspring_shared::store::{ListSkills, PublishSkill, PublishSkillOutcome, SkillVersion};
use mainspring_shared::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) use self::body::{ARCHIVE, SkillBody};

use super::problem::Problem;
use super::respond;
use crate::access::Caller;
use crate::codes::{SkillInvalid, SkillNotFound};
use crate::extract::{Json, Key, Limit, NoQuery, Nothing, Query};
use crate::openapi::form;
use crate::router::Api;

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(list, publish))
        .routes(routes!(show, remove))
        .routes(routes!(file))
}

/// A version of a skill.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct SkillView {
    /// Its name.
    name: String,
    /// The SHA-256 of its content: the version.
    #[schema(value_type = String)]
    hash: SkillHash,
    /// What it is for and when to use it.
    description: String,
    /// Where the version came from.
    source: SkillSource,
    /// Its licence.
    #[serde(skip_serializing_if = "Option::is_none")]
    license: Option<String>,
    /// Its requirements on the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    compatibility: Option<String>,
    /// Its author's data.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    metadata: Option<Value>,
    /// The tools that it asks for: text, or a list. Information only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    allowed_tools: Option<Value>,
    /// Its files in the byte order of their paths.
    files: Vec<SkillFile>,
    /// Deviations from the format that were accepted.
    warnings: Vec<String>,
    /// All versions of the name, newest first, at most a hundred; in answers that show one skill.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    versions: Vec<VersionView>,
    /// When the version was stored.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

impl From<SkillRecord> for SkillView {
    fn from(record: SkillRecord) -> Self {
        let manifest = record.manifest;
        Self {
            name: record.name,
            hash: record.hash,
            description: manifest.description,
            source: record.source,
            license: manifest.license,
            compatibility: manifest.compatibility,
            metadata: manifest.metadata,
            allowed_tools: manifest.allowed_tools,
            files: manifest.files,
            warnings: manifest.warnings,
            versions: Vec::new(),
            created_at: record.created_at,
        }
    }
}

/// A version in a list of versions.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = SkillVersion)]
pub(super) struct VersionView {
    /// The version.
    #[schema(value_type = String)]
    hash: SkillHash,
    /// Where it came from.
    source: SkillSource,
    /// When it was stored.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

impl From<SkillVersion> for VersionView {
    fn from(version: SkillVersion) -> Self {
        Self {
            hash: version.hash,
            source: version.source,
            created_at: version.created_at,
        }
    }
}

/// A skill in a list: what its name means now.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct SkillSummary {
    /// Its name.
    name: String,
    /// Its current version.
    #[schema(value_type = String)]
    hash: SkillHash,
    /// What it is for and when to use it.
    description: String,
    /// Where the version came from.
    source: SkillSource,
    /// The number of its files.
    files: usize,
    /// Their length together.
    bytes: u64,
    /// When the version was stored.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

impl From<SkillRecord> for SkillSummary {
    fn from(record: SkillRecord) -> Self {
        let files = &record.manifest.files;
        Self {
            files: files.len(),
            bytes: files.iter().map(|file| file.bytes).sum(),
            name: record.name,
            hash: record.hash,
            description: record.manifest.description,
            source: record.source,
            created_at: record.created_at,
        }
    }
}

/// A mounted skill that was left out.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = SkillWarning)]
pub(super) struct BrokenView {
    /// The folder that it is in.
    name: String,
    /// Why.
    errors: Vec<SkillFault>,
    /// When a process last said so.
    #[schema(value_type = String, format = DateTime)]
    seen_at: Timestamp,
}

impl From<BrokenSkill> for BrokenView {
    fn from(broken: BrokenSkill) -> Self {
        Self {
            name: broken.folder,
            errors: broken.faults,
            seen_at: broken.seen_at,
        }
    }
}

/// Skills by name.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct SkillList {
    data: Vec<SkillSummary>,
    /// The `cursor` of the next page; null at the end.
    next_cursor: Option<String>,
    /// The mounted skills that were left out, and why.
    warnings: Vec<BrokenView>,
}

/// Which skills.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct SkillsQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The `next_cursor` of the page before.
    #[param(value_type = Option<form::SkillName>, inline)]
    cursor: Option<String>,
}

/// Which part of a skill goes.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RemoveQuery {
    /// Whether its versions and their files go, too, even from sessions that have them.
    #[serde(default, deserialize_with = "crate::extract::text")]
    #[param(default = false)]
    versions: Option<bool>,
}

/// Publishes a skill: 201, or 200 if this version is known
#[utoipa::path(
    post,
    path = "/v1/skills",
    operation_id = "publishSkill",
    params(Key),
    request_body = SkillBody,
    responses((status = 200, body = SkillView), (status = 201, body = SkillView), SkillInvalid)
)]
pub(super) async fn publish(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let (skill, idempotency) = body::read(&app, &caller, &headers, body).await?;
    let skill = Arc::new(skill);
    let item = PublishSkill {
        tenant: caller.tenant,
        skill: skill.clone(),
        source: SkillSource::Uploaded,
        idempotency,
    };
    let outcome = app.store.publish_skill(item).await?;
    let (status, replayed) = match outcome {
        PublishSkillOutcome::Published { created: true, .. } => (StatusCode::CREATED, false),
        PublishSkillOutcome::Published { created: false, .. } => (StatusCode::OK, false),
        PublishSkillOutcome::Replayed => (StatusCode::CREATED, true),
        PublishSkillOutcome::Mismatch => return Err(Error::mismatch().into()),
    };
    let version = SkillRef {
        name: skill.name.clone(),
        hash: Some(skill.hash),
    };
    let view = SkillView::from(find(&app, caller.tenant, version).await?);
    let path = format!("/v1/skills/{}", view.name);
    let mut response = respond::created(status, &path, &view)?;
    if replayed {
        respond::mark_replayed(&mut response);
    }
    Ok(response)
}

/// Skills by name
#[utoipa::path(
    get,
    path = "/v1/skills",
    operation_id = "listSkills",
    params(SkillsQuery),
    responses((status = 200, body = SkillList))
)]
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<SkillsQuery>,
) -> Result<Response, Problem> {
    let wanted = ListSkills {
        tenant: caller.tenant,
        after: query.cursor,
        limit: query.limit.0,
    };
    let page = app.store.list_skills(wanted).await?;
    let broken = app.store.broken_skills(caller.tenant).await?;
    let last = page.data.last().filter(|_| page.more);
    let view = SkillList {
        next_cursor: last.map(|record| record.name.clone()),
        data: page.data.into_iter().map(SkillSummary::from).collect(),
        warnings: broken.into_iter().map(BrokenView::from).collect(),
    };
    respond::json(StatusCode::OK, &view)
}

/// A skill: `NAME` means its current version, `NAME@HASH` that version
#[utoipa::path(
    get,
    path = "/v1/skills/{name}",
    operation_id = "getSkill",
    responses((status = 200, body = SkillView), SkillNotFound)
)]
pub(super) async fn show(
    State(app): State<Arc<Api>>,
    caller: Caller,
    SkillPath(name): SkillPath<String>,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let record = find(&app, caller.tenant, reference(&name)?).await?;
    let versions = app
        .store
        .skill_versions(caller.tenant, record.name.clone())
        .await?;
    let view = SkillView {
        versions: versions.into_iter().map(VersionView::from).collect(),
        ..SkillView::from(record)
    };
    respond::json(StatusCode::OK, &view)
}

/// Takes a skill from the list; sessions keep the version that they have
#[utoipa::path(
    delete,
    path = "/v1/skills/{name}",
    operation_id = "deleteSkill",
    params(RemoveQuery),
    responses((status = 204), SkillNotFound)
)]
pub(super) async fn remove(
    State(app): State<Arc<Api>>,
    caller: Caller,
    SkillPath(name): SkillPath<String>,
    Query(query): Query<RemoveQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let versions = query.versions.unwrap_or(false);
    // No check of the name: folders of mounted skills that were left out may have other names.
    let removed = app
        .store
        .remove_skill(caller.tenant, name, versions)
        .await?;
    if removed {
        Ok(StatusCode::NO_CONTENT.into_response())
    } else {
        Err(not_found().into())
    }
}

/// The content of a file of a skill
#[utoipa::path(
    get,
    path = "/v1/skills/{name}/files/{*path}",
    operation_id = "getSkillFile",
    responses((status = 200, body = String), SkillNotFound)
)]
pub(super) async fn file(
    State(app): State<Arc<Api>>,
    caller: Caller,
    SkillPath((name, path)): SkillPath<(String, String)>,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let record = find(&app, caller.tenant, reference(&name)?).await?;
    let read =
        app.store
            .read_skill_files(caller.tenant, record.name, record.hash, vec![path.clone()]);
    let mut files: BTreeMap<String, Vec<u8>> = read.await?;
    let content = files.remove(&path).ok_or_else(not_found)?;
    let kind = match std::str::from_utf8(&content) {
        Ok(_) => "text/plain; charset=utf-8",
        Err(_) => "application/octet-stream",
    };
    let mut response = Response::new(Body::from(content));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    // A skill's file must never be interpreted as a page of this origin.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// The parameters of a path. Malformed ones count as unknown names.
#[derive(Debug)]
pub(super) struct SkillPath<T>(T);

impl<T, S> FromRequestParts<S> for SkillPath<T>
where
    T: serde::de::DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        let Path(path) = path.map_err(|_| not_found())?;
        Ok(Self(path))
    }
}

async fn find(app: &App, tenant: TenantId, wanted: SkillRef) -> Result<SkillRecord, Error> {
    let found = app.store.find_skills(tenant, vec![wanted]).await?;
    found.into_iter().next().flatten().ok_or_else(not_found)
}

/// The reference in a path. A malformed one counts as an unknown name.
fn reference(text: &str) -> Result<SkillRef, Error> {
    text.parse().map_err(|_| not_found())
}

fn not_found() -> Error {
    Error::new(
        Code::SkillNotFound,
        "no skill has this name and version, or it has no such file",
    )
}
