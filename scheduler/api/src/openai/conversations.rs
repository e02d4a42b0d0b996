//! Conversations: sessions in OpenAI's form.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use mainspring_scheduler::deleting;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::agents::{Choice, Resolver, Taken};
use mainspring_shared::error::Code;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::session::SessionRecord;
use mainspring_shared::store::{
    AppendCopies, CopiesOutcome, CreateOutcome, RefuseReason, SessionPatch, UpdateOutcome,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::given::{self, Given, Item};
use super::history::{self, Transcript};
use super::pages::{ItemsQuery, Params, page};
use super::{ids, items, once, references, settings};
use crate::access::{Caller, refuse_held};
use crate::bodies::SessionAsk;
use crate::codes::{SessionNotFound, Starts, TenantHeld};
use crate::extract::{Json, JsonBody, NoQuery, Nothing, Query};
use crate::idempotency;
use crate::problem::Problem;
use crate::respond;
use crate::router::Api;
use crate::validate::Checks;

/// Maximum number of items that are added at once.
const ADDED_MAX: usize = 100;

/// The routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(create))
        .routes(routes!(show, change, remove))
        .routes(routes!(list, add))
        .routes(routes!(item))
}

/// The session of the conversation that a path names.
#[derive(Debug)]
pub(super) struct ConversationPath(SessionRecord);

impl FromRequestParts<Arc<Api>> for ConversationPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<Api>) -> Result<Self, Problem> {
        let path = Path::<Vec<(String, String)>>::from_request_parts(parts, app).await;
        let text = path
            .ok()
            .and_then(|Path(path)| Some(path.into_iter().next()?.1));
        let session = text
            .and_then(|text| ids::session(&text))
            .ok_or_else(unknown)?;
        let caller = Caller::from_request_parts(parts, app).await?;
        let tenant = caller.tenant;
        let found = app
            .store
            .get_session(SessionKey { tenant, session })
            .await?;
        let found = found.ok_or_else(unknown)?;
        let agents = Resolver::new(app, tenant, caller.allowed());
        agents.see(&found).map_err(|_| unknown())?;
        Ok(Self(found))
    }
}

fn unknown() -> Error {
    Error::new(Code::SessionNotFound, "no conversation has this id")
}

/// A conversation to create.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = OpenAiConversationBody)]
pub(super) struct ConversationBody {
    /// What was said in it.
    #[schema(value_type = Option<Vec<Object>>)]
    items: Option<Vec<Value>>,
    /// The creator's data: at most 16 texts.
    #[schema(value_type = Option<Object>)]
    metadata: Option<BTreeMap<String, String>>,
}

impl JsonBody for ConversationBody {
    type Checked = (Vec<Item>, Map<String, Value>);

    fn absent() -> Option<Self> {
        Some(Self::default())
    }

    fn checked(self, checks: &mut Checks) -> Self::Checked {
        let given = given::items(checks, &self.items.unwrap_or_default(), "/items");
        let metadata = settings::metadata(checks, self.metadata);
        (given, object(metadata))
    }
}

fn object(metadata: BTreeMap<String, String>) -> Map<String, Value> {
    metadata
        .into_iter()
        .map(|(name, text)| (name, Value::String(text)))
        .collect()
}

fn shown(session: &SessionRecord) -> Value {
    let metadata = session
        .metadata
        .iter()
        .filter(|(_, value)| value.is_string());
    let metadata: Map<String, Value> = metadata
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    json!({
        "id": ids::conversation(session.key.session), "object": "conversation",
        "created_at": session.created_at.0 / 1_000, "metadata": metadata,
    })
}

/// Creates a conversation: a session in OpenAI's form
#[utoipa::path(
    post,
    path = "/v1/conversations",
    operation_id = "createOpenAiConversation",
    request_body = Option<ConversationBody>,
    responses((status = 200, body = Value), Starts)
)]
pub(super) async fn create(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
    json: Json<ConversationBody>,
) -> Result<Response, Problem> {
    let key = json.idempotency("POST /v1/conversations")?;
    let (items, metadata) = json.value;
    let given = references::resolved(&app, &caller, items).await?;
    let mut agents = Resolver::new(&app, caller.tenant, caller.allowed());
    let ask = SessionAsk {
        taken: Taken {
            at: String::new(),
            agent: Choice::Inline(Box::default()),
            variables: Map::new(),
        },
        metadata,
        name: None,
    };
    let session = ask.new_session(&mut agents, &app, key.as_ref()).await?;
    app.boot_id()?;
    let session = if given.is_empty() {
        match app.acceptor.create((session, key)).await? {
            CreateOutcome::Created(record) => record.key,
            CreateOutcome::Replayed(session) => SessionKey {
                tenant: caller.tenant,
                session,
            },
            CreateOutcome::Mismatch => return Err(Error::mismatch().into()),
            CreateOutcome::Gone | CreateOutcome::Staged => return Err(Error::internal().into()),
        }
    } else {
        history::import(&app, session, &given).await?
    };
    let found = app.store.get_session(session).await?.ok_or_else(unknown)?;
    respond::json(StatusCode::OK, &shown(&found))
}

/// A conversation
#[utoipa::path(
    get,
    path = "/v1/conversations/{id}",
    operation_id = "getOpenAiConversation",
    responses((status = 200, body = Value), SessionNotFound)
)]
pub(super) async fn show(
    ConversationPath(session): ConversationPath,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    respond::json(StatusCode::OK, &shown(&session))
}

/// Changes of a conversation.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = OpenAiConversationChangeBody)]
pub(super) struct ChangeBody {
    /// Replaces the texts among its metadata.
    #[schema(value_type = Object)]
    metadata: Option<BTreeMap<String, String>>,
}

impl JsonBody for ChangeBody {
    type Checked = BTreeMap<String, String>;

    fn checked(self, checks: &mut Checks) -> Self::Checked {
        settings::metadata(checks, self.metadata)
    }
}

/// Replaces the metadata of a conversation
#[utoipa::path(
    post,
    path = "/v1/conversations/{id}",
    operation_id = "changeOpenAiConversation",
    request_body = ChangeBody,
    responses((status = 200, body = Value), SessionNotFound)
)]
pub(super) async fn change(
    State(app): State<Arc<Api>>,
    caller: Caller,
    ConversationPath(session): ConversationPath,
    _: Query<NoQuery>,
    json: Json<ChangeBody>,
) -> Result<Response, Problem> {
    let mut metadata = object(json.value);
    let kept = session
        .metadata
        .into_iter()
        .filter(|(_, value)| !value.is_string());
    metadata.extend(kept);
    let agents = Resolver::new(&app, caller.tenant, caller.allowed());
    agents.fill(&mut metadata, "")?;
    agents.admit_as(&session.agent, &metadata, session.key.session)?;
    let patch = SessionPatch {
        agent: None,
        metadata: Some(metadata),
        closed: None,
    };
    match app.store.update_session(session.key, patch).await? {
        UpdateOutcome::Updated(record) => respond::json(StatusCode::OK, &shown(&record)),
        UpdateOutcome::NotFound => Err(unknown().into()),
    }
}

/// Deletes a conversation with all that was said in it
#[utoipa::path(
    delete,
    path = "/v1/conversations/{id}",
    operation_id = "deleteOpenAiConversation",
    responses((status = 200, body = Value), SessionNotFound, TenantHeld)
)]
pub(super) async fn remove(
    State(app): State<Arc<Api>>,
    ConversationPath(session): ConversationPath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    refuse_held(&app, session.key.tenant).await?;
    deleting::delete(&app, app.boot_id()?, session.key).await?;
    let id = ids::conversation(session.key.session);
    respond::json(
        StatusCode::OK,
        &json!({ "id": id, "object": "conversation.deleted", "deleted": true }),
    )
}

/// What was said in a conversation
#[utoipa::path(
    get,
    path = "/v1/conversations/{id}/items",
    operation_id = "listOpenAiItems",
    params(ItemsQuery),
    responses((status = 200, body = Value), SessionNotFound)
)]
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    ConversationPath(session): ConversationPath,
    params: Params,
) -> Result<Response, Problem> {
    let query = ItemsQuery::read(params)?;
    respond::json(StatusCode::OK, &page(said(&app, &session).await?, &query)?)
}

/// Items to add to a conversation.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = OpenAiItemsBody)]
pub(super) struct ItemsBody {
    /// What was said, at most 100 items.
    #[schema(value_type = Vec<Object>)]
    items: Vec<Value>,
}

impl JsonBody for ItemsBody {
    type Checked = Vec<Item>;

    fn checked(self, checks: &mut Checks) -> Vec<Item> {
        if !(1..=ADDED_MAX).contains(&self.items.len()) {
            checks.refuse("/items", &format!("must have 1 to {ADDED_MAX} items"));
        }
        let items = given::items(checks, &self.items, "/items");
        let is_system = |item: &Item| matches!(item, Item::Said(Given::System(_)));
        if items.iter().any(is_system) {
            let detail = "cannot have instructions: these are part of each response";
            checks.refuse("/items", detail);
        }
        items
    }
}

/// Adds what was said elsewhere to a conversation, without an answer
#[utoipa::path(
    post,
    path = "/v1/conversations/{id}/items",
    operation_id = "addOpenAiItems",
    request_body = ItemsBody,
    responses((status = 200, body = Value), Starts)
)]
pub(super) async fn add(
    State(app): State<Arc<Api>>,
    caller: Caller,
    ConversationPath(session): ConversationPath,
    params: Params,
    json: Json<ItemsBody>,
) -> Result<Response, Problem> {
    params.end()?;
    let route = format!("POST /v1/conversations/{}/items", session.key.session);
    let request_key = json.idempotency(&route)?.map(|known| known.key);
    let again = once::is_repeat(json.headers());
    let hash = idempotency::body_hash(&json.whole)?;
    let given = references::resolved(&app, &caller, json.value).await?;
    let at = (&given[..], "/items");
    let key = session.key;
    let first = SendId(app.entropy.ordered_id());
    let mut messages = history::messages(&app, key, at, first).await?;
    if messages.is_empty() {
        return Err(Error::invalid("/items", "say nothing").into());
    }
    // A repeat finds what the request has added to what was there at that time.
    let count = messages.len() as i64;
    let place = match (&request_key, again) {
        (Some(_), _) => 0,
        (None, true) => session.messages - count,
        (None, false) => session.messages,
    };
    let request = (caller.name(), route, request_key, hash, place);
    let name = given::hex(format!("{request:?}").as_bytes());
    let name: SendId = format!("{}{}", SendId::PREFIX, &name[..32])
        .parse()
        .map_err(|_| Error::internal())?;
    for message in messages.iter_mut().filter(|it| it.send_id == first) {
        message.send_id = name;
    }
    let first_seq = match app
        .store
        .append_copies(AppendCopies { key, messages })
        .await?
    {
        CopiesOutcome::Appended { first_seq } => first_seq,
        CopiesOutcome::NotFound => return Err(unknown().into()),
        CopiesOutcome::Closed => return Err(Error::from(RefuseReason::SessionClosed).into()),
        CopiesOutcome::Busy => {
            let detail = "the conversation waits for a response";
            return Err(Error::new(Code::SessionBusy, detail).into());
        }
    };
    let transcript = Transcript::read(&app, &session).await?;
    let added = first_seq..first_seq + count;
    let messages = transcript.messages.iter();
    let messages = messages.filter(|message| added.contains(&message.seq));
    let items: Vec<Value> = messages
        .flat_map(|it| items::of_message(it, |name| transcript.shows(it, name)))
        .collect();
    respond::json(StatusCode::OK, &page(items, &ItemsQuery::all())?)
}

/// Something that was said in a conversation
#[utoipa::path(
    get,
    path = "/v1/conversations/{id}/items/{item_id}",
    operation_id = "getOpenAiItem",
    responses((status = 200, body = Value), SessionNotFound)
)]
pub(super) async fn item(
    State(app): State<Arc<Api>>,
    ConversationPath(session): ConversationPath,
    Path((_, id)): Path<(String, String)>,
    params: Params,
) -> Result<Response, Problem> {
    params.end()?;
    let all = said(&app, &session).await?;
    let found = all.into_iter().find(|item| item["id"] == id.as_str());
    let found = found.ok_or_else(|| {
        Error::new(
            Code::SessionNotFound,
            "no item of the conversation has this id",
        )
    })?;
    respond::json(StatusCode::OK, &found)
}

/// The items of a conversation, from the oldest on.
async fn said(app: &Api, session: &SessionRecord) -> Result<Vec<Value>, Error> {
    let transcript = Transcript::read(app, session).await?;
    let messages = transcript.messages.iter();
    let said = messages.flat_map(|it| items::of_message(it, |name| transcript.shows(it, name)));
    Ok(said.collect())
}
