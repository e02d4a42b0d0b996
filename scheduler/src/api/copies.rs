//! Sessions from sessions: forks, archives, and archives read back.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use futures::stream::try_unfold;
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::error::Code;
use mainspring_shared::id::{SessionKey, TenantId};
use mainspring_shared::list::{List, ListName};
use mainspring_shared::message::{Message, settled_len};
use mainspring_shared::store::{CreateOutcome, ImportSession, NewSession, ReadMessages};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::OwnedSemaphorePermit;

use super::archive::{self, Lists, Writer};
use super::extract::{
    Chunks, Params, SessionPath, Weight, expect_kind, maybe_json_body, parse, weigh,
};
use super::gate::Place;
use super::idempotency;
use super::problem::Problem;
use super::sessions::{answer_creation, too_slow};
use super::validate::{Checks, object};
use crate::app::App;

/// Messages read at once: each may be long.
const PAGE: u32 = 64;

/// Bytes of an archive's lines that are kept before their messages are stored, at most an eighth of what
/// all bodies may have.
const PAGE_BYTES: usize = 1 << 20;

/// What an archive is called on the wire.
pub(super) const LINES: &str = "application/x-ndjson";

/// Where and as what a session is forked; everything has a default.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ForkBody {
    /// The last message to copy; by default the last one up to which every call has its result.
    seq: Option<i64>,
    /// Replaces the agent.
    #[serde(default, deserialize_with = "object")]
    agent: Option<AgentSpec>,
    /// Replaces the metadata. `forked_from` is set in either case.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
}

/// `POST /v1/sessions/{id}/fork`
pub(super) async fn fork(
    State(app): State<Arc<App>>,
    SessionPath(key): SessionPath,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    params.finish()?;
    let json = maybe_json_body(&app, &headers, body).await?;
    let route = format!("POST /v1/sessions/{}/fork", key.session);
    let idempotency = idempotency::of_request(&headers, &route, &json)?;
    let body: ForkBody = if json.trim_ascii().is_empty() {
        ForkBody::default()
    } else {
        parse(&json, "")?
    };
    let source = app.store.get_session(key).await?;
    let source = source.ok_or_else(Problem::session_not_found)?;
    // What stands before the first message: nothing, or what was pruned.
    let (before, there) = (source.first_seq - 1, source.last_seq());
    let agent = body.agent.unwrap_or(source.agent);
    let mut metadata = body.metadata.unwrap_or(source.metadata);
    metadata.insert("forked_from".to_owned(), json!(key.session));
    let mut checks = Checks::new();
    checks.agent("/agent", &agent);
    checks.metadata("/metadata", &metadata);
    if body.seq.is_some_and(|seq| !(before..=there).contains(&seq)) {
        checks.refuse("/seq", &format!("must be from {before} to {there}"));
    }
    checks.finish()?;
    let (mut messages, weight) = transcript(&app, key, before, body.seq.unwrap_or(there)).await?;
    let settled = settled_len(&messages);
    if body.seq.is_some() && settled < messages.len() {
        let seq = before + messages.len() as i64;
        let settled = before + settled as i64;
        return Err(Problem::new(
            Code::SessionBusy,
            format!("at seq {seq} a call has no result yet; the last place before is {settled}"),
        ));
    }
    messages.truncate(settled);
    let session = NewSession {
        key: app.new_session_key(key.tenant),
        agent,
        metadata,
        parent: None,
    };
    let lists = lists(&app, key).await?;
    let answer = store(&app, session, messages, lists, idempotency).await;
    drop(weight);
    answer
}

/// What a session has to do, and its notes.
async fn lists(app: &App, key: SessionKey) -> Result<Lists, Problem> {
    let todo = app.store.read_list(key.tenant, ListName::Todo(key.session));
    let notes = app
        .store
        .read_list(key.tenant, ListName::Notes(key.session));
    Ok(Lists {
        todo: todo.await?,
        notes: notes.await?,
    })
}

/// The messages of a session behind `before` up to `last`, which are all there, and their part of the
/// bytes that all bodies may have: a transcript may be longer than any body.
async fn transcript(
    app: &App,
    key: SessionKey,
    before: i64,
    last: i64,
) -> Result<(Vec<Message>, Weight), Problem> {
    let mut messages: Vec<Message> = Vec::new();
    let mut weight = weigh(app, 0)?;
    loop {
        let after = before + messages.len() as i64;
        let limit = PAGE.min(u32::try_from(last - after).unwrap_or(PAGE));
        if limit == 0 {
            return Ok((messages, Some(weight)));
        }
        let page = app.store.read_messages(ReadMessages { key, after, limit });
        let page = page.await?;
        if page.is_empty() {
            // It was deleted, or pruned, meanwhile.
            return Err(Problem::session_not_found());
        }
        let bytes = serde_json::to_vec(&page).map_or(0, |json| json.len());
        if weight.num_permits() + bytes > app.config.bodies_bytes_max {
            // There can never be room for it.
            return Err(Problem::too_large(app.config.bodies_bytes_max));
        }
        weight.merge(weigh(app, bytes)?);
        messages.extend(page);
    }
}

async fn store(
    app: &App,
    session: NewSession,
    messages: Vec<Message>,
    lists: Lists,
    idempotency: Option<mainspring_shared::store::IdempotencyKey>,
) -> Result<Response, Problem> {
    app.boot_id()?;
    let item = ImportSession {
        session,
        messages,
        todo: lists.todo,
        notes: lists.notes,
        idempotency,
        behind: 0,
        more: false,
    };
    let outcome = app.store.import_session(None, item).await?;
    answer_creation(app, outcome).await
}

/// `POST /v1/sessions:import`
pub(super) async fn import(
    State(app): State<Arc<App>>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    params.finish()?;
    let are_lines =
        |essence: &str| [LINES, "application/ndjson", "application/jsonl"].contains(&essence);
    if headers.contains_key(CONTENT_TYPE) {
        expect_kind(&headers, &[], are_lines, LINES)?;
    }
    let key = idempotency::header(&headers)?;
    app.boot_id()?;
    // A root without sends: nothing of it acts before someone sends to it.
    let session = app.new_session_key(TenantId::DEFAULT);
    let mut importing = Importing::begin(&app, session)?;
    let mut chunks = Chunks::of(&app, &headers, body)?;
    while let Some(chunk) = chunks.next().await? {
        expect_kind(&headers, &chunk, are_lines, LINES)?;
        importing.take(&chunk).await?;
    }
    let (item, _weight) = importing.finish(key)?;
    let outcome = app.store.import_session(None, item).await?;
    answer_creation(&app, outcome).await
}

/// An archive on its way in. A transcript is stored in pages, so that only one is in memory; what is
/// wrong with it is known at the end, and nobody sees the session before.
struct Importing<'a> {
    app: &'a App,
    session: SessionKey,
    reader: archive::Reader,
    /// The begin of a line.
    line: Vec<u8>,
    hash: Sha256,
    /// Messages that were stored.
    behind: i64,
    weight: OwnedSemaphorePermit,
}

impl<'a> Importing<'a> {
    fn begin(app: &'a App, session: SessionKey) -> Result<Self, Problem> {
        Ok(Self {
            app,
            session,
            reader: archive::Reader::default(),
            line: Vec::new(),
            hash: Sha256::new(),
            behind: 0,
            weight: weigh(app, 0)?,
        })
    }

    async fn take(&mut self, chunk: &[u8]) -> Result<(), Problem> {
        self.weight.merge(weigh(self.app, chunk.len())?);
        self.hash.update(chunk);
        let mut rest = chunk;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            self.reader.push(std::mem::take(&mut self.line));
            self.store_page().await?;
        }
        self.line.extend_from_slice(rest);
        let kept = self.reader.kept_bytes() + self.line.len();
        if let Some(kept) = self.weight.split(kept) {
            self.weight = kept;
        }
        Ok(())
    }

    async fn store_page(&mut self) -> Result<(), Problem> {
        let page_bytes = PAGE_BYTES.min(self.app.config.bodies_bytes_max / 8);
        let Some((agent, messages)) = self.reader.page(page_bytes) else {
            return Ok(());
        };
        let count = messages.len() as i64;
        let page = ImportSession {
            session: NewSession {
                key: self.session,
                agent: agent.clone(),
                metadata: Map::new(),
                parent: None,
            },
            messages,
            todo: List::default(),
            notes: List::default(),
            idempotency: None,
            behind: self.behind,
            more: true,
        };
        match self.app.store.import_session(None, page).await? {
            CreateOutcome::Staged => self.behind += count,
            CreateOutcome::Gone => return Err(too_slow()),
            CreateOutcome::Created(_) | CreateOutcome::Replayed(_) | CreateOutcome::Mismatch => {
                return Err(Problem::internal());
            }
        }
        Ok(())
    }

    /// The last page.
    fn finish(
        mut self,
        key: Option<&str>,
    ) -> Result<(ImportSession, OwnedSemaphorePermit), Problem> {
        if !self.line.is_empty() {
            self.reader.push(self.line);
        }
        let hash = self.hash.finalize().into();
        let archive = self.reader.finish()?;
        let item = ImportSession {
            session: NewSession {
                key: self.session,
                agent: archive.agent,
                metadata: archive.metadata,
                parent: None,
            },
            messages: archive.messages,
            todo: archive.lists.todo,
            notes: archive.lists.notes,
            idempotency: key.map(|key| idempotency::key("POST /v1/sessions:import", key, hash)),
            behind: self.behind,
            more: false,
        };
        Ok((item, self.weight))
    }
}

/// `GET /v1/sessions/{id}/export`
pub(super) async fn export(
    State(app): State<Arc<App>>,
    SessionPath(key): SessionPath,
    params: Params,
    Extension(place): Extension<Place>,
) -> Result<Response, Problem> {
    params.finish()?;
    let session = app.store.get_session(key).await?;
    let session = session.ok_or_else(Problem::session_not_found)?;
    let mut writer = Writer::default();
    let (left, before) = (session.messages, session.first_seq - 1);
    let lists = lists(&app, key).await?;
    let header = writer.header(session, lists);
    let header = header.map_err(|_| Problem::internal())?;
    let exporting = Exporting {
        app,
        _place: place,
        key,
        writer,
        left,
        before,
        after: before,
        held: Vec::new(),
        piece: Some(header),
    };
    let pieces = try_unfold(Some(exporting), async |exporting| match exporting {
        Some(exporting) => exporting.next().await,
        None => Ok(None),
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(LINES));
    let name = format!("attachment; filename=\"{}.jsonl\"", key.session);
    if let Ok(name) = HeaderValue::try_from(name) {
        headers.insert(CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

/// An archive on its way. It ends where every call has its result, so that it can be imported.
struct Exporting {
    app: Arc<App>,
    _place: Place,
    key: SessionKey,
    writer: Writer,
    /// Messages to read: those that there were when it began.
    left: i64,
    /// What was pruned: an archive is numbered from 1.
    before: i64,
    after: i64,
    /// Messages with a call whose result was not read yet.
    held: Vec<Message>,
    /// What goes out before more is read.
    piece: Option<Vec<u8>>,
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

impl Exporting {
    /// The next piece, and what comes behind it. A failure breaks the answer off: without its last
    /// line, nobody takes it for whole.
    async fn next(mut self) -> Result<Option<(Bytes, Option<Self>)>, Failed> {
        if let Some(piece) = self.piece.take() {
            return Ok(Some((piece.into(), Some(self))));
        }
        while self.left > 0 {
            let query = ReadMessages {
                key: self.key,
                after: self.after,
                limit: PAGE.min(u32::try_from(self.left).unwrap_or(PAGE)),
            };
            let page = self.app.store.read_messages(query).await?;
            if page.is_empty() {
                return Err("the session was deleted meanwhile".into());
            }
            self.left -= page.len() as i64;
            self.after += page.len() as i64;
            let numbered = page.into_iter().map(|message| Message {
                seq: message.seq - self.before,
                ..message
            });
            self.held.extend(numbered);
            let behind = self.held.split_off(settled_len(&self.held));
            let settled = std::mem::replace(&mut self.held, behind);
            if !settled.is_empty() {
                let lines = self.writer.messages(&settled)?;
                return Ok(Some((lines.into(), Some(self))));
            }
        }
        Ok(Some((self.writer.footer()?.into(), None)))
    }
}
