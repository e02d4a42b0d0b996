//! Copies of sessions: forks, and imported archives.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::agents::{Choice, Resolver, Taken, rebind};
use mainspring_scheduler::services::blobs;
use mainspring_scheduler::services::skills::pin;
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::error::Code;
use mainspring_shared::id::SessionKey;
use mainspring_shared::list::{List, ListName};
use mainspring_shared::message::{Message, settled_len};
use mainspring_shared::session::fold::{self, Fold};
use mainspring_shared::session::projection::{Projection, ProjectionBuilder};
use mainspring_shared::store::{
    CreateOutcome, IdempotencyKey, ImportSession, NewSession, ReadMessages,
};
use mainspring_shared::tenant::{Binding, Outside};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::OwnedSemaphorePermit;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::archive::{self, Lists};
use super::choice::{AgentChoice, choice_schema};
use super::idempotency;
use super::problem::Problem;
use super::sessions::{answer_creation, too_slow};
use super::validate::Checks;
use crate::access::Caller;
use crate::codes::{BlobTooLarge, BlobUnavailable, Starts};
use crate::extract::{
    Chunks, Json, JsonBody, Key, NoQuery, Query, SessionPath, expect_kind, refuse_encoded, weigh,
};
use crate::router::Api;

/// Messages per read, since each may be long.
pub(super) const PAGE: u32 = 64;

/// Bytes of an archive's lines that are buffered before their messages are stored, at most an
/// eighth of the limit on all bodies.
const PAGE_BYTES: usize = 1 << 20;

/// The media type of an archive.
pub(super) const LINES: &str = "application/x-ndjson";

/// Options of a fork; all of them have defaults.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ForkBody {
    /// The last message to copy; by default the last one up to which every call has its result.
    seq: Option<i64>,
    /// Replaces the agent: by a spec, or by a published one as `NAME`, `NAME@VERSION` or `NAME@ALIAS`.
    #[schema(schema_with = choice_schema, required = false)]
    agent: Option<AgentChoice>,
    /// Replaces the values of the agent's variables.
    #[schema(value_type = Option<Object>)]
    variables: Option<Map<String, Value>>,
    /// Replaces the metadata. `forked_from` is set in either case.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
}

impl JsonBody for ForkBody {
    type Checked = Self;

    fn absent() -> Option<Self> {
        Some(Self::default())
    }

    // Its members are checked against the session that is copied.
    fn checked(self, _checks: &mut Checks) -> Self {
        self
    }
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(import))
        .routes(routes!(fork))
}

/// Creates a session with a copy of this transcript, up to a seq where every call has its result
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/fork",
    operation_id = "forkSession",
    params(Key),
    request_body = Option<ForkBody>,
    responses((status = 201, body = mainspring_shared::session::SessionView), Starts)
)]
pub(super) async fn fork(
    State(app): State<Arc<Api>>,
    caller: Caller,
    SessionPath(key): SessionPath,
    _: Query<NoQuery>,
    json: Json<ForkBody>,
) -> Result<Response, Problem> {
    let route = format!("POST /v1/sessions/{}/fork", key.session);
    let idempotency = json.idempotency(&route)?;
    let outcome = forked(&app, &caller, key, (json.value, idempotency)).await?;
    answer_creation(&app, key.tenant, outcome).await
}

impl ForkBody {
    /// A fork behind a message, with the agent of the session.
    pub(super) fn behind(seq: i64) -> Self {
        Self {
            seq: Some(seq),
            ..Self::default()
        }
    }
}

/// Forks a session.
pub(super) async fn forked(
    app: &Api,
    caller: &Caller,
    key: SessionKey,
    (body, idempotency): (ForkBody, Option<IdempotencyKey>),
) -> Result<CreateOutcome, Problem> {
    let source = app.store.get_session(key).await?;
    let source = source.ok_or_else(Error::session_not_found)?;
    // The number of pruned messages, and the last message.
    let (before, there) = (source.first_seq - 1, source.last_seq());
    let mut metadata = body.metadata.unwrap_or(source.metadata);
    let mut agents = Resolver::new(app, key.tenant, caller.allowed());
    agents.fill(&mut metadata, "")?;
    metadata.insert("forked_from".to_owned(), json!(key.session));
    let mut checks = Checks::new();
    match &body.agent {
        Some(AgentChoice(Choice::Inline(agent))) => checks.own_agent("/agent", agent),
        Some(AgentChoice(Choice::Named(_))) => {}
        None => checks.agent("/agent", &source.agent),
    }
    checks.metadata("/metadata", &metadata);
    if body.seq.is_some_and(|seq| !(before..=there).contains(&seq)) {
        checks.refuse("/seq", &format!("must be from {before} to {there}"));
    }
    checks.finish()?;
    let variables = body.variables;
    let agent = match body.agent {
        // The copy keeps the prompt that the session was shown.
        None if variables.is_none() => {
            agents.admit_pool(&source.agent, "/agent").await?;
            source.agent
        }
        None => {
            agents.admit_pool(&source.agent, "/agent").await?;
            let mut agent = source.agent;
            let before = agent.bound.take().unwrap_or_default();
            rebind(agent, before.agent, variables, &metadata)?
        }
        Some(AgentChoice(agent)) => {
            let taken = Taken {
                at: String::new(),
                agent,
                variables: variables.unwrap_or_default(),
            };
            let mut agent = agents.take(taken, &metadata, idempotency.as_ref()).await?;
            pin(app.store.as_ref(), key.tenant, &mut agent, "/agent").await?;
            agent
        }
    };
    let copy = app.new_session_key(key.tenant);
    agents
        .admit_new(&agent, &metadata, copy.session, idempotency.as_ref())
        .await?;
    app.boot_id()?;
    let folds = app.store.read_folds(key).await?;
    let last = body.seq.unwrap_or(there);
    let copied = copied(&agent, &fold::copies(folds.clone(), before, last));
    let mut copying = Copying::begin(app, copy, &agent, key, (before, copied))?;
    copying.read(last).await?;
    let settled = settled_len(&copying.kept);
    if body.seq.is_some() && settled < copying.kept.len() {
        let settled = before + copying.behind + settled as i64;
        return Err(Error::new(
            Code::SessionBusy,
            format!(
                "at seq {} a call has no result yet; the last place before is {settled}",
                copying.after
            ),
        )
        .into());
    }
    copying.kept.truncate(settled);
    blobs::hold_for_copy(app, copy, &copying.kept).await?;
    let lists = lists(app, key).await?;
    let last = before + copying.behind + settled as i64;
    let item = ImportSession {
        folds: fold::copies(folds, before, last),
        projections: copying.projections(),
        session: NewSession {
            key: copy,
            agent: agent.clone(),
            metadata,
            parent: None,
        },
        messages: copying.kept,
        todo: lists.todo,
        notes: lists.notes,
        idempotency,
        behind: copying.behind,
        more: false,
    };
    let outcome = app.store.import_session(item).await?;
    drop(copying.weight);
    Ok(outcome)
}

/// A session's to-do list and notes.
pub(super) async fn lists(app: &Api, key: SessionKey) -> Result<Lists, Error> {
    let todo = app.store.read_list(key.tenant, ListName::Todo(key.session));
    let notes = app
        .store
        .read_list(key.tenant, ListName::Notes(key.session));
    Ok(Lists {
        todo: todo.await?,
        notes: notes.await?,
    })
}

/// A transcript being copied into a fork. It is stored in pages, like an archive, so that only one
/// page is in memory: a transcript may be longer than any body.
struct Copying<'a> {
    app: &'a Api,
    copy: SessionKey,
    agent: &'a AgentSpec,
    source: SessionKey,
    /// The last message that was read.
    after: i64,
    /// Messages that were read but not stored.
    kept: Vec<Message>,
    /// Number of messages that were stored.
    behind: i64,
    /// Collects what is shown of its sends once they are old, if the agent shows digests.
    copied: Option<ProjectionBuilder>,
    weight: OwnedSemaphorePermit,
}

impl<'a> Copying<'a> {
    fn begin(
        app: &'a Api,
        copy: SessionKey,
        agent: &'a AgentSpec,
        source: SessionKey,
        (after, copied): (i64, Option<ProjectionBuilder>),
    ) -> Result<Self, Error> {
        Ok(Self {
            app,
            copy,
            agent,
            source,
            after,
            kept: Vec::new(),
            behind: 0,
            copied,
            weight: weigh(app, 0)?,
        })
    }

    /// What is shown of all sends once they are old, including those of the last messages.
    fn projections(&mut self) -> Vec<Projection> {
        let copied = self.copied.take().map(|mut copied| {
            copied.add(&self.kept, self.behind);
            copied.end()
        });
        copied.unwrap_or_default()
    }

    /// Reads up to an existing message.
    async fn read(&mut self, last: i64) -> Result<(), Error> {
        let page_bytes = page_bytes(self.app);
        let bytes_max = self.app.config.bodies_bytes_max;
        let mut limit = PAGE;
        while self.after < last {
            let page = ReadMessages {
                key: self.source,
                after: self.after,
                limit: limit.min(u32::try_from(last - self.after).unwrap_or(limit)),
            };
            let page = self.app.store.read_messages(page).await?;
            let Some(read) = page.last().map(|message| message.seq) else {
                // It was deleted or pruned in the meantime.
                return Err(Error::session_not_found());
            };
            let bytes = json_len(&page);
            if self.weight.num_permits() + bytes > bytes_max {
                if page.len() == 1 {
                    // It is too large ever to fit.
                    return Err(Error::too_large(bytes_max));
                }
                limit = (page.len() / 2) as u32;
                continue;
            }
            self.weight.merge(weigh(self.app, bytes)?);
            self.after = read;
            self.kept.extend(page);
            if self.weight.num_permits() >= page_bytes {
                self.store_page().await?;
            }
        }
        Ok(())
    }

    /// Stores what was read, except calls without results.
    async fn store_page(&mut self) -> Result<(), Error> {
        let open = self.kept.split_off(settled_len(&self.kept));
        let page = std::mem::replace(&mut self.kept, open);
        if page.is_empty() {
            return Ok(());
        }
        if let Some(copied) = &mut self.copied {
            copied.add(&page, self.behind);
        }
        self.behind += stage(self.app, self.copy, self.agent, page, self.behind).await?;
        if let Some(kept) = self.weight.split(json_len(&self.kept)) {
            self.weight = kept;
        }
        Ok(())
    }
}

/// Collects the projections of a copy with these folds, if its agent shows digests.
pub(super) fn copied(agent: &AgentSpec, folds: &[Fold]) -> Option<ProjectionBuilder> {
    let is_stored = agent.context.representation.is_stored();
    is_stored.then(|| ProjectionBuilder::new(fold::end(folds)))
}

fn json_len(messages: &[Message]) -> usize {
    serde_json::to_vec(messages).map_or(0, |json| json.len())
}

/// Bytes of messages that are buffered before they are stored.
fn page_bytes(app: &Api) -> usize {
    PAGE_BYTES.min(app.config.bodies_bytes_max / 8)
}

/// Stores a page of a session that comes into existence with its last page. Returns the number of
/// messages.
async fn stage(
    app: &Api,
    session: SessionKey,
    agent: &AgentSpec,
    messages: Vec<Message>,
    behind: i64,
) -> Result<i64, Error> {
    let count = messages.len() as i64;
    blobs::hold_for_copy(app, session, &messages).await?;
    let page = ImportSession {
        folds: Vec::new(),
        projections: Vec::new(),
        session: NewSession {
            key: session,
            agent: agent.clone(),
            metadata: Map::new(),
            parent: None,
        },
        messages,
        todo: List::default(),
        notes: List::default(),
        idempotency: None,
        behind,
        more: true,
    };
    match app.store.import_session(page).await? {
        CreateOutcome::Staged => Ok(count),
        CreateOutcome::Gone => Err(too_slow()),
        CreateOutcome::Created(_) | CreateOutcome::Replayed(_) | CreateOutcome::Mismatch => {
            Err(Error::internal())
        }
    }
}

/// Creates a session from an archive
#[utoipa::path(
    post,
    path = "/v1/sessions:import",
    operation_id = "importSession",
    params(Key),
    request_body(content = String, content_type = LINES),
    responses((status = 201, body = mainspring_shared::session::SessionView), Starts, BlobTooLarge, BlobUnavailable)
)]
pub(super) async fn import(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let are_lines =
        |essence: &str| [LINES, "application/ndjson", "application/jsonl"].contains(&essence);
    if headers.contains_key(CONTENT_TYPE) {
        expect_kind(&headers, &[], are_lines, LINES)?;
    }
    refuse_encoded(&headers)?;
    let key = idempotency::header(&headers)?;
    if caller.binding().is_some_and(Binding::names_agents) {
        // An archive brings its own agent, which the binding cannot allow.
        return Err(Error::outside(&Outside::Agent).into());
    }
    app.boot_id()?;
    // A top-level session without sends: nothing happens in it until someone sends to it.
    let session = app.new_session_key(caller.tenant);
    let agents = Resolver::new(&app, caller.tenant, caller.allowed());
    let mut importing = Importing::begin(&app, session, &agents)?;
    let mut chunks = Chunks::of(&app, body);
    while let Some(chunk) = chunks.next().await? {
        expect_kind(&headers, &chunk, are_lines, LINES)?;
        let carried = importing.take(&chunk).await?;
        if carried > 0 {
            chunks.go_on(&app, carried);
        }
    }
    importing.end().await?;
    let (mut item, _weight) = importing.finish(&caller, key)?;
    agents.fill(&mut item.session.metadata, "")?;
    agents.admit(&item.session)?;
    agents.admit_pool(&item.session.agent, "/agent").await?;
    blobs::hold_for_copy(&app, session, &item.messages).await?;
    let outcome = app.store.import_session(item).await?;
    answer_creation(&app, caller.tenant, outcome).await
}

/// An archive being imported. Its transcript is stored in pages, so that only one is in memory.
/// Faults are only known at the end, and nobody sees the session before that.
struct Importing<'a> {
    app: &'a Api,
    session: SessionKey,
    agents: &'a Resolver<'a>,
    /// Whether the agent was taken for what it is here.
    recognized: bool,
    reader: archive::Reader,
    /// The incomplete last line.
    line: Vec<u8>,
    hash: Sha256,
    /// Number of messages that were stored.
    behind: i64,
    /// Collects what is shown of its sends once they are old, if the agent shows digests and pages
    /// were stored.
    copied: Option<ProjectionBuilder>,
    weight: OwnedSemaphorePermit,
}

impl<'a> Importing<'a> {
    fn begin(app: &'a Api, session: SessionKey, agents: &'a Resolver<'a>) -> Result<Self, Error> {
        Ok(Self {
            app,
            session,
            agents,
            recognized: false,
            reader: archive::Reader::bounded(app.outside.blobs.bytes_max()),
            line: Vec::new(),
            hash: Sha256::new(),
            behind: 0,
            copied: None,
            weight: weigh(app, 0)?,
        })
    }

    /// Takes a chunk. Returns how many of the bytes so far, not counted before, were content of
    /// blobs.
    async fn take(&mut self, chunk: &[u8]) -> Result<usize, Error> {
        self.weight.merge(weigh(self.app, chunk.len())?);
        self.hash.update(chunk);
        let mut rest = chunk;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            self.reader.push(std::mem::take(&mut self.line));
            self.recognize().await?;
            self.store_blob().await?;
            self.store_page().await?;
        }
        self.line.extend_from_slice(rest);
        let kept = self.reader.kept_bytes() + self.line.len();
        if let Some(kept) = self.weight.split(kept) {
            self.weight = kept;
        }
        Ok(self.reader.carried())
    }

    /// Takes the last line if it has no line break.
    async fn end(&mut self) -> Result<(), Error> {
        if !self.line.is_empty() {
            self.reader.push(std::mem::take(&mut self.line));
            self.recognize().await?;
            self.store_blob().await?;
        }
        Ok(())
    }

    /// Takes the agent for what it is here, as soon as it is known.
    async fn recognize(&mut self) -> Result<(), Error> {
        if !self.recognized
            && let Some((agent, metadata)) = self.reader.agent()
        {
            self.agents.recognize(agent, metadata).await?;
            self.recognized = true;
        }
        Ok(())
    }

    /// Stores a completely received blob for the new session.
    async fn store_blob(&mut self) -> Result<(), Error> {
        let Some(content) = self.reader.blob() else {
            return Ok(());
        };
        let SessionKey { tenant, session } = self.session;
        let owner = Some(session.into());
        let (media_type, data) = (&content.media_type, content.data);
        self.app
            .outside
            .blobs
            .put(tenant, owner, media_type, data)
            .await?;
        Ok(())
    }

    async fn store_page(&mut self) -> Result<(), Error> {
        let Some((agent, folds, messages)) = self.reader.page(page_bytes(self.app)) else {
            return Ok(());
        };
        if self.behind == 0 {
            self.copied = copied(agent, folds);
        }
        if let Some(copied) = &mut self.copied {
            copied.add(&messages, self.behind);
        }
        self.behind += stage(self.app, self.session, agent, messages, self.behind).await?;
        Ok(())
    }

    /// Finishes the import, with the last page.
    fn finish(
        self,
        caller: &Caller,
        key: Option<&str>,
    ) -> Result<(ImportSession, OwnedSemaphorePermit), Error> {
        let hash = self.hash.finalize().into();
        let archive = self.reader.finish()?;
        let mut projections = self.copied;
        if self.behind == 0 {
            projections = copied(&archive.agent, &archive.folds);
        }
        let projections = projections.map(|mut copied| {
            copied.add(&archive.messages, self.behind);
            copied.end()
        });
        let item = ImportSession {
            folds: archive.folds,
            projections: projections.unwrap_or_default(),
            session: NewSession {
                key: self.session,
                agent: archive.agent,
                metadata: archive.metadata,
                parent: None,
            },
            messages: archive.messages,
            todo: archive.lists.todo,
            notes: archive.lists.notes,
            idempotency: key
                .map(|key| idempotency::key(caller, "POST /v1/sessions:import", key, hash)),
            behind: self.behind,
            more: false,
        };
        Ok((item, self.weight))
    }
}
