//! What clients send of what was said before: found in the session that has it, or stored in a new one.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::blobs;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::list::List;
use mainspring_shared::message::{
    Arguments, ContentPart, Message, Role, ToolCall, copies, settled_len,
};
use mainspring_shared::session::SessionRecord;
use mainspring_shared::store::{
    CreateOutcome, ImportSession, ListSessions, NewSession, ReadMessages,
};
use mainspring_shared::time::Timestamp;

use super::given::{Given, Line, lines_of};
use super::turn::{OPENING, sees};
use super::view::functions;
use crate::access::Caller;
use crate::copies::copied;
use crate::router::Api;

/// How many sessions with the same first words are compared, the newest first.
const CANDIDATES: u32 = 20;

/// Messages per read.
const PAGE: u32 = 64;

/// Maximum number of messages of a session that is compared.
const MESSAGES_MAX: i64 = 2_000;

/// How many messages of a session are read, about.
const READ_MAX: usize = 10_000;

/// The session whose transcript says just this.
pub(super) async fn find(
    app: &Api,
    caller: &Caller,
    opening: &str,
    said: &[Line],
) -> Result<Option<SessionKey>, Error> {
    let mut metadata = BTreeMap::from([(OPENING.to_owned(), opening.to_owned())]);
    if let Some(binding) = caller.binding() {
        metadata.extend(binding.metadata.clone());
    }
    let wanted = ListSessions {
        tenant: caller.tenant,
        status: None,
        agent: None,
        metadata,
        before: None,
        limit: CANDIDATES,
    };
    for session in app.store.list_sessions(wanted).await?.data {
        // Each line is at least one message.
        let is_short = session.messages < said.len() as i64;
        if is_short || !sees(caller, &session) {
            continue;
        }
        if stored(app, &session)
            .await?
            .is_some_and(|stored| stored == said)
        {
            return Ok(Some(session.key));
        }
    }
    Ok(None)
}

/// What a session's transcript says; none if that is too long to compare, or was pruned.
pub(super) async fn stored(app: &Api, session: &SessionRecord) -> Result<Option<Vec<Line>>, Error> {
    if session.messages > MESSAGES_MAX || session.first_seq > 1 {
        return Ok(None);
    }
    let transcript = Transcript::read(app, session).await?;
    let is_shown = |message: &Message, name: &str| transcript.shows(message, name);
    Ok(Some(lines_of(&transcript.messages, is_shown)))
}

/// The messages of a session, with the calls in them that clients see.
#[derive(Debug)]
pub(super) struct Transcript {
    pub(super) messages: Vec<Message>,
    /// The functions of each send that calls any.
    functions: BTreeMap<SendId, Option<BTreeSet<String>>>,
}

impl Transcript {
    /// The oldest messages of a session.
    pub(super) async fn read(app: &Api, session: &SessionRecord) -> Result<Self, Error> {
        let mut messages: Vec<Message> = Vec::new();
        loop {
            let after = messages.last().map_or(0, |message| message.seq);
            let page = ReadMessages {
                key: session.key,
                after,
                limit: PAGE,
            };
            let page = app.store.read_messages(page).await?;
            let is_last = page.len() < PAGE as usize;
            messages.extend(page);
            if is_last || messages.len() >= READ_MAX {
                break;
            }
        }
        let mut functions_of = BTreeMap::new();
        let calling = messages.iter().filter(|it| !it.tool_calls.is_empty());
        for message in calling {
            if let Entry::Vacant(entry) = functions_of.entry(message.send_id) {
                let tenant = session.key.tenant;
                let send = app.watch.read_send(tenant, message.send_id).await?;
                let agent = send.map(|send| send.options.agent_in(session.agent.clone()));
                // The calls of a copied message were told by a client, or were copied with what it could see of
                // them.
                entry.insert(agent.map(|agent| functions(&agent)));
            }
        }
        Ok(Self {
            messages,
            functions: functions_of,
        })
    }

    /// Whether clients see the calls of this function in this message.
    pub(super) fn shows(&self, message: &Message, name: &str) -> bool {
        let known = self.functions.get(&message.send_id);
        let known = known.and_then(Option::as_ref);
        known.is_none_or(|functions| functions.contains(name))
    }
}

/// Creates a session in which this was said.
pub(super) async fn import(
    app: &Api,
    session: NewSession,
    given: &[Given],
) -> Result<SessionKey, Error> {
    let key = session.key;
    let first = SendId(app.entropy.ordered_id());
    let messages = messages(app, key, (given, "/input"), first).await?;
    let projections = copied(&session.agent, &[]).map(|mut copied| {
        copied.add(&messages, 0);
        copied.end()
    });
    app.boot_id()?;
    let item = ImportSession {
        session,
        messages,
        folds: Vec::new(),
        projections: projections.unwrap_or_default(),
        todo: List::default(),
        notes: List::default(),
        idempotency: None,
        behind: 0,
        more: false,
    };
    match app.store.import_session(item).await? {
        CreateOutcome::Created(record) => Ok(record.key),
        CreateOutcome::Replayed(_)
        | CreateOutcome::Mismatch
        | CreateOutcome::Staged
        | CreateOutcome::Gone => Err(Error::internal()),
    }
}

/// The messages that say this, for a session that keeps their blobs.
pub(super) async fn messages(
    app: &Api,
    key: SessionKey,
    (given, at): (&[Given], &str),
    first: SendId,
) -> Result<Vec<Message>, Error> {
    let mut messages = transcript(app, given, first, app.database_time().await);
    let owner = key.session.into();
    for message in &mut messages {
        let parts = &mut message.content;
        blobs::prepare_parts(app, key.tenant, owner, parts, at).await?;
    }
    let messages = copies(messages);
    if settled_len(&messages) < messages.len() {
        let detail = "has a call without its result before what the user says";
        return Err(Error::invalid(at, detail));
    }
    blobs::hold_for_copy(app, key, &messages).await?;
    Ok(messages)
}

/// The messages that say this. What follows one input is one send's, of which the first is given.
fn transcript(app: &Api, given: &[Given], first: SendId, now: Timestamp) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    let mut names = BTreeMap::new();
    let mut send = first;
    let mut round = 0;
    for one in given {
        let (role, content, calls, answered) = match one {
            Given::System(_) => continue,
            Given::User(parts) => {
                if messages.last().is_some_and(|last| last.role != Role::User) {
                    send = SendId(app.entropy.ordered_id());
                    round = 0;
                }
                (Role::User, parts.clone(), Vec::new(), None)
            }
            Given::Assistant { text, calls } => {
                let calls = calls.iter().map(|call| {
                    names.insert(call.id.clone(), call.name.clone());
                    ToolCall::new(
                        call.id.clone(),
                        call.name.clone(),
                        Arguments::read(&call.arguments),
                    )
                });
                let text = (!text.is_empty()).then(|| ContentPart::text(text.clone()));
                if messages.last().is_some_and(|last| last.role == Role::Tool) {
                    round += 1;
                }
                (
                    Role::Assistant,
                    text.into_iter().collect(),
                    calls.collect(),
                    None,
                )
            }
            Given::Output { call, parts, .. } => {
                (Role::Tool, parts.clone(), Vec::new(), Some(call.clone()))
            }
        };
        messages.push(Message {
            seq: messages.len() as i64 + 1,
            send_id: send,
            role,
            content,
            tool_calls: calls,
            name: answered.as_ref().and_then(|call| names.get(call).cloned()),
            tool_call_id: answered,
            failed: false,
            round,
            created_at: now,
            asked_at_seq: None,
            epoch: 0,
        });
    }
    messages
}
