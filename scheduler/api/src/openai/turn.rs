//! What a request of this API starts: a send in a new session or an existing one, or an answer to the calls that a send
//! waits for. Sends are resolved, limited, made idempotent and stored by what serves native requests.

use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::accept::submit;
use mainspring_scheduler::services::agents::{AgentAsk, Choice, OptionsAsk, Resolver, Taken};
use mainspring_scheduler::services::blobs;
use mainspring_scheduler::services::deliver::{Delivery, ITEMS_MAX, deliver};
use mainspring_scheduler::services::skills::{pin, pin_item};
use mainspring_shared::agent::{AgentQuery, AgentSpec, OnBusy, SendOptions};
use mainspring_shared::error::Code;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::inbox::ItemKind;
use mainspring_shared::session::SessionRecord;
use mainspring_shared::step::StepKind;
use mainspring_shared::store::{AcceptSend, CreateOutcome, DeliverItem, ListSends, Target};
use serde_json::{Map, Value, json};

use super::given::{Given, Item, Line, Told, lines, opening};
use super::history;
use super::ids::{self, ResponseId};
use super::once::Once;
use super::references;
use super::view::Source;
use crate::access::{Caller, Needs};
use crate::bodies::SessionAsk;
use crate::calls::{Posted, ResultBody, posted};
use crate::copies::{ForkBody, forked};
use crate::problem::Problem;
use crate::router::Api;

/// The member of a session's metadata by which it is found when a client sends what was said in it.
pub(super) const OPENING: &str = "openai_opening";

const NOT_WAITING: &str = "the send does not wait for these results yet, or not any more";

/// Who is to answer.
#[derive(Debug)]
pub(super) enum Answerer {
    /// A published agent.
    Named(AgentQuery),
    /// A provider's model, as an agent of this request.
    Model(Box<AgentSpec>),
}

impl Answerer {
    /// What tells sessions apart that begin with the same words.
    fn name(&self) -> String {
        match self {
            Self::Named(query) => query.name.to_string(),
            Self::Model(_) => String::new(),
        }
    }

    fn choice(&self) -> Choice {
        match self {
            Self::Named(query) => Choice::Named(query.clone()),
            Self::Model(spec) => Choice::Inline(spec.clone()),
        }
    }
}

/// Where a request continues.
#[derive(Debug)]
pub(super) enum To {
    /// Nowhere: what was said before is in the request, if anything was.
    Fresh,
    /// In a conversation.
    Conversation(String),
    /// Behind a response.
    Behind(String),
}

/// How a request is answered.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mode {
    /// With the whole answer.
    Wait,
    /// At once; the answer is read later.
    Later,
    /// With a stream.
    Stream { include_usage: bool },
}

/// A request, checked.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) answerer: Answerer,
    pub(super) options: SendOptions,
    pub(super) items: Vec<Item>,
    pub(super) to: To,
    pub(super) mode: Mode,
}

/// A request whose items were found.
#[derive(Debug)]
struct Ask {
    answerer: Answerer,
    options: SendOptions,
    told: Told,
    to: To,
}

/// Starts what a request asks for.
pub(super) async fn start(
    app: &Api,
    caller: &Caller,
    asked: Asked,
    once: Once,
) -> Result<ResponseId, Problem> {
    let given = references::resolved(app, caller, asked.items).await?;
    let is_ours = |call: &str| ResponseId::behind_call(call).is_some();
    let ask = Ask {
        answerer: asked.answerer,
        options: asked.options,
        told: Told::of(given, is_ours),
        to: asked.to,
    };
    if !ask.told.outputs.is_empty() {
        return answer(app, caller, ask).await;
    }
    if ask.told.input.is_empty() {
        return Err(Error::invalid("/input", "must end with what the user says").into());
    }
    let continued = match &ask.to {
        To::Conversation(text) => {
            let session = ids::session(text).ok_or_else(no_conversation)?;
            Some(SessionKey {
                tenant: caller.tenant,
                session,
            })
        }
        To::Behind(text) => Some(behind(app, caller, (text, &once)).await?),
        To::Fresh => None,
    };
    if let Some(key) = continued {
        if !ask.told.history.is_empty() {
            let detail = "must only have what is new: the conversation has what was said before";
            return Err(Error::invalid("/input", detail).into());
        }
        let mut agents = Resolver::new(app, caller.tenant, caller.allowed());
        let item = to_existing(app, &mut agents, &ask, key).await?;
        return Ok(once.accept(app, caller, item).await?);
    }
    if ask.told.history.is_empty() || once.is_known(app, caller).await? {
        let item = to_new(app, caller, &ask).await?;
        return Ok(once.accept(app, caller, item).await?);
    }
    with_history(app, caller, &ask, once).await
}

/// Accepts a send.
pub(super) async fn accept(
    app: &Api,
    caller: &Caller,
    item: AcceptSend,
) -> Result<(ResponseId, bool), Error> {
    let submitted = submit(app, item, (), None, caller.limited_sends()).await?;
    Ok((ResponseId::new(submitted.send.id, 0), submitted.replayed))
}

fn no_conversation() -> Error {
    Error::new(Code::SessionNotFound, "no conversation has this id").at("/conversation")
}

/// A send to a session that is created with it.
async fn to_new(app: &Api, caller: &Caller, ask: &Ask) -> Result<AcceptSend, Error> {
    let mut agents = Resolver::new(app, caller.tenant, caller.allowed());
    let session = new_session(ask);
    let session = session.new_session(&mut agents, app, None).await?;
    knows_model(app, ask, &session.agent).await?;
    let (agent, metadata) = (&session.agent, &session.metadata);
    let options = OptionsAsk {
        options: ask.options.clone(),
        agent: None,
    };
    let options = agents
        .options_with(options, session.key.session, agent, metadata, None)
        .await?;
    agents
        .admit_prices(&options, (session.key, Some(agent)), None)
        .await?;
    let mut item = item(app, Target::New(Box::new(session)), ask, options);
    blobs::prepare_send(app, &mut item, "").await?;
    pin_item(app.store.as_ref(), &mut item, "/agent").await?;
    Ok(item)
}

/// The session that a request without a conversation gets.
fn new_session(ask: &Ask) -> SessionAsk {
    let mut said = lines(&ask.told.history);
    said.extend(lines(&[Given::User(ask.told.input.clone())]));
    let mut metadata = Map::new();
    if let Some(digest) = opening(&ask.answerer.name(), &said) {
        metadata.insert(OPENING.to_owned(), json!(digest));
    }
    SessionAsk {
        taken: Taken {
            at: String::new(),
            agent: ask.answerer.choice(),
            variables: Map::new(),
        },
        metadata,
        name: None,
    }
}

fn item(app: &Api, target: Target, ask: &Ask, options: SendOptions) -> AcceptSend {
    AcceptSend {
        id: SendId(app.entropy.ordered_id()),
        target,
        input: ask.told.input.clone(),
        options,
        reports_to: None,
        run: None,
        idempotency: None,
        queued_max: app.config.queued_max,
        keeper: None,
    }
}

/// A send to a session that exists. The agent of the request serves this send only.
async fn to_existing(
    app: &Api,
    agents: &mut Resolver<'_>,
    ask: &Ask,
    key: SessionKey,
) -> Result<AcceptSend, Error> {
    let found = app
        .store
        .get_session(key)
        .await?
        .ok_or_else(no_conversation)?;
    agents.see(&found)?;
    let mut options = ask.options.clone();
    // A client that repeats a turn of a busy conversation would get two answers to one question.
    options.on_busy = OnBusy::Reject;
    let mut asked = OptionsAsk {
        options,
        agent: None,
    };
    let mut own = None;
    match &ask.answerer {
        Answerer::Named(query) => {
            let version = agents.find(query).await?.reference();
            // The session may have it already.
            if found.agent.reference() != Some(&version) {
                asked.agent = Some(AgentAsk {
                    at: String::new(),
                    agent: query.clone(),
                    variables: Map::new(),
                });
            }
        }
        Answerer::Model(spec) => {
            let taken = Taken {
                at: String::new(),
                agent: Choice::Inline(spec.clone()),
                variables: Map::new(),
            };
            let agent = agents.take(taken, &found.metadata, None).await?;
            knows_model(app, ask, &agent).await?;
            own = (agent != found.agent).then(|| Box::new(agent));
        }
    }
    let mut options = agents
        .options_with(asked, key.session, &found.agent, &found.metadata, None)
        .await?;
    if own.is_some() {
        options.agent = own;
    }
    agents
        .admit_prices(&options, (key, Some(&found.agent)), None)
        .await?;
    let mut item = item(app, Target::Existing(key), ask, options);
    blobs::prepare_send(app, &mut item, "").await?;
    Ok(item)
}

/// Refuses a model of a provider that no worker has.
async fn knows_model(app: &Api, ask: &Ask, agent: &AgentSpec) -> Result<(), Error> {
    if let Answerer::Named(_) = ask.answerer {
        return Ok(());
    }
    let missing = app.acceptor.missing_tools(app, agent).await;
    match missing
        .into_iter()
        .find(|fault| fault.pointer.ends_with("/model"))
    {
        Some(fault) => Err(Error::new(Code::AgentNotFound, fault.detail).at("/agent/model")),
        None => Ok(()),
    }
}

/// The session in which a request continues behind a response: that of the response if nothing follows it yet,
/// otherwise a fork.
async fn behind(
    app: &Api,
    caller: &Caller,
    (text, once): (&str, &Once),
) -> Result<SessionKey, Problem> {
    let source = Source::find(app, caller, ResponseId::parse(text))
        .await
        .map_err(|error| error.at("/previous_response_id"))?;
    let key = source.send.key;
    if once.is_known(app, caller).await? {
        return Ok(key);
    }
    if !source.send.status.is_final() {
        return Err(unfinished(app, &source).await?.into());
    }
    let newest = ListSends {
        tenant: caller.tenant,
        session: Some(key.session),
        status: None,
        before: None,
        limit: 1,
    };
    let newest = app.store.list_sends(newest).await?;
    if newest
        .data
        .first()
        .is_none_or(|send| send.id == source.send.id)
    {
        return Ok(key);
    }
    let last = last_message(app, &source).await?;
    let last =
        last.ok_or_else(|| Error::invalid("/previous_response_id", "has no messages any more"))?;
    match forked(app, caller, key, (ForkBody::behind(last), None)).await? {
        CreateOutcome::Created(record) => Ok(record.key),
        CreateOutcome::Replayed(_)
        | CreateOutcome::Mismatch
        | CreateOutcome::Staged
        | CreateOutcome::Gone => Err(Error::internal().into()),
    }
}

/// Why nothing can follow a response yet.
async fn unfinished(app: &Api, source: &Source) -> Result<Error, Error> {
    let calls = app
        .store
        .read_round(source.send.key, source.send.id, source.send.rounds - 1)
        .await?;
    let open = calls
        .into_iter()
        .find(|call| call.waits_on.is_some() && call.result.is_none());
    Ok(match open {
        Some(call) => Error::invalid(
            "/input",
            format!("No tool output found for function call {}.", call.call_id),
        ),
        None => Error::new(Code::SessionBusy, "the response has not ended yet"),
    })
}

/// The last message that a send wrote.
async fn last_message(app: &Api, source: &Source) -> Result<Option<i64>, Error> {
    let mut after = source.send.first_step - 1;
    let mut last = None;
    loop {
        let steps = app.store.read_steps(source.send.key, after, 64).await?;
        let Some(end) = steps.last() else {
            return Ok(last);
        };
        after = end.n;
        for step in steps.iter().filter(|step| step.send_id == source.send.id) {
            if let Some(first) = step.refs.first_seq.filter(|_| step.refs.messages > 0) {
                last = Some(first + i64::from(step.refs.messages) - 1);
            }
            if step.kind == StepKind::Finished {
                return Ok(last);
            }
        }
    }
}

/// Answers the calls that a send waits for: it goes on, as another response.
async fn answer(app: &Api, caller: &Caller, ask: Ask) -> Result<ResponseId, Problem> {
    Needs::of(&axum::http::Method::POST, "/v1/sessions/{id}/tool-results").check(caller)?;
    let (first, _, at) = &ask.told.outputs[0];
    let unknown = |at: &str| {
        Error::new(Code::CallNotFound, "no call has this id").at(&format!("{at}/call_id"))
    };
    let id = ResponseId::behind_call(first).ok_or_else(|| unknown(at))?;
    for (call, _, at) in &ask.told.outputs {
        if ResponseId::behind_call(call) != Some(id) {
            let detail = "is not a call of the same response as the others";
            return Err(Error::invalid(format!("{at}/call_id"), detail).into());
        }
    }
    let source = Source::find(app, caller, Some(id))
        .await
        .map_err(|error| match error.code() {
            Code::SendNotFound => unknown(at),
            _ => error,
        })?;
    if !fits(app, &ask, &source).await? {
        let detail = "is a result of a call that was not made in this conversation";
        return Err(Error::invalid(at.clone(), detail).into());
    }
    let calls = app
        .store
        .read_round(source.send.key, id.send, id.round - 1)
        .await?;
    let mut open = calls
        .iter()
        .filter(|call| call.waits_on.is_some() && call.result.is_none());
    let given = |name: &str| ask.told.outputs.iter().any(|(call, ..)| call == name);
    if let Some(call) = open.find(|call| !given(&call.call_id)) {
        let detail = format!("No tool output found for function call {}.", call.call_id);
        return Err(Error::invalid("/input", detail).into());
    }
    if !ask.told.input.is_empty() {
        add(app, &source, &ask.told).await?;
    }
    let results = ask.told.outputs.into_iter();
    let results = results.map(|(call, parts, _)| ResultBody::of_parts(call, parts));
    let outcome = posted(app, source.send.key, results.collect()).await?;
    if outcome
        .results
        .iter()
        .any(|result| !matches!(result.status, Posted::Accepted | Posted::AlreadySettled))
    {
        return Err(Error::new(Code::SessionBusy, NOT_WAITING).into());
    }
    Ok(id)
}

/// Whether results of calls come with the history of the send that made these.
async fn fits(app: &Api, ask: &Ask, source: &Source) -> Result<bool, Error> {
    let said: Vec<Line> = lines(&ask.told.history);
    let before = match &ask.to {
        To::Conversation(text) => {
            return Ok(ids::session(text) == Some(source.session.key.session));
        }
        To::Behind(text) => Some(text),
        To::Fresh => None,
    };
    if said.is_empty() && before.is_none() {
        return Ok(true);
    }
    let Some(text) = before else {
        let stored = history::stored(app, &source.session).await?;
        return Ok(stored.is_some_and(|stored| stored.starts_with(&said)));
    };
    let id = source.id;
    if ResponseId::parse(text).is_some_and(|it| it.send == id.send && it.round < id.round) {
        return Ok(true);
    }
    // Or behind the response that the send continues, with all that was said since.
    let note = source.send.options.openai.as_deref();
    if note.and_then(|note| note.previous.as_ref()) != Some(text) {
        return Ok(false);
    }
    let stored = history::stored(app, &source.session).await?;
    Ok(stored.is_some_and(|stored| stored.ends_with(&said)))
}

/// Adds what the user says to a send that waits for its calls: it is told with their results. A repeat adds nothing.
async fn add(app: &Api, source: &Source, told: &Told) -> Result<(), Error> {
    let key = source.send.key;
    let mut content = told.input.clone();
    blobs::prepare_parts(app, key.tenant, key.session.into(), &mut content, "/input").await?;
    let item = DeliverItem {
        key,
        item_id: format!("itm_{}", told.name()),
        kind: ItemKind::Message,
        mode: OnBusy::Steer,
        content,
        idempotency: None,
        items_max: ITEMS_MAX,
    };
    let delivered = deliver(app, vec![item]).await.pop();
    match delivered.ok_or_else(Error::internal)?? {
        Some(Delivery::Delivered(send, _) | Delivery::Replayed(send)) if send == source.send.id => {
            Ok(())
        }
        Some(_) | None => Err(Error::new(Code::SessionBusy, NOT_WAITING)),
    }
}

/// Continues where a client's history ends: in the session that has it, or else in a new one that gets it.
async fn with_history(
    app: &Api,
    caller: &Caller,
    ask: &Ask,
    once: Once,
) -> Result<ResponseId, Problem> {
    let session = new_session(ask);
    let said = lines(&ask.told.history);
    let mut agents = Resolver::new(app, caller.tenant, caller.allowed());
    if let Some(Value::String(digest)) = session.metadata.get(OPENING)
        && let Some(found) = history::find(app, caller, digest, &said).await?
    {
        let item = to_existing(app, &mut agents, ask, found).await?;
        match once.accept(app, caller, item).await {
            // Two requests continue the same history: the other one has the session.
            Err(error) if error.code() == Code::SessionBusy => {}
            outcome => return Ok(outcome?),
        }
    }
    let mut session = session.new_session(&mut agents, app, None).await?;
    knows_model(app, ask, &session.agent).await?;
    pin(
        app.store.as_ref(),
        caller.tenant,
        &mut session.agent,
        "/agent",
    )
    .await?;
    let key = history::import(app, session, &ask.told.history).await?;
    let item = to_existing(app, &mut agents, ask, key).await?;
    Ok(once.accept(app, caller, item).await?)
}

/// Whether a session is one that the caller may see.
pub(super) fn sees(caller: &Caller, session: &SessionRecord) -> bool {
    caller
        .binding()
        .is_none_or(|binding| binding.holds(session))
}
