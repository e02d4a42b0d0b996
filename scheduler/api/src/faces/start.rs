//! A message for a published agent, as a send.

use std::collections::BTreeMap;

use axum::http::Method;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::accept::{Submitted, submit};
use mainspring_scheduler::services::agents::{AgentAsk, Choice, OptionsAsk, Resolver, Taken};
use mainspring_scheduler::services::blobs;
use mainspring_scheduler::services::pressure::Work;
use mainspring_scheduler::services::skills::{pin, pin_item};
use mainspring_shared::agent::{AgentQuery, AgentSpec, Pick, SendOptions};
use mainspring_shared::id::{SendId, SessionId, SessionKey};
use mainspring_shared::message::ContentPart;
use mainspring_shared::store::{
    AcceptSend, CreateOutcome, IdempotencyKey, ListSessions, NewSession, Target,
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::access::{Caller, Needs};
use crate::archive::hex;
use crate::bodies::SessionAsk;
use crate::idempotency;
use crate::input::Input;
use crate::router::Api;
use crate::validate::Checks;

/// What is said to an agent.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) agent: AgentQuery,
    /// Values of the variables that its prompt declares, if it is not the session's agent yet.
    pub(crate) variables: Map<String, Value>,
    pub(crate) to: To,
    pub(crate) input: Vec<ContentPart>,
    pub(crate) options: SendOptions,
    pub(crate) once: Option<IdempotencyKey>,
}

/// Where it is said.
#[derive(Debug)]
pub(crate) enum To {
    /// In a session of its own.
    New,
    /// In a session that exists.
    Session(SessionId),
    /// In the session that the client calls by a name of its own, which is made if there is none.
    Named {
        /// The member of its metadata that has the name.
        member: &'static str,
        name: String,
    },
}

/// The session that a name means: the id of one, or what a client calls one.
pub(crate) fn session_named(member: &'static str, name: &str) -> To {
    match name.parse() {
        Ok(session) => To::Session(session),
        Err(_) => To::Named {
            member,
            name: name.to_owned(),
        },
    }
}

/// Says it.
pub(crate) async fn start(
    app: &Api,
    caller: &Caller,
    message: Message,
) -> Result<Submitted, Error> {
    Needs::of(&Method::POST, "/v1/sends").check(caller)?;
    if app.acceptor.refuses(Work::Single) {
        return Err(Error::shed(Work::Single));
    }
    let input = Input(message.input);
    let mut checks = Checks::new();
    checks.input(&input);
    checks.finish()?;
    let mut agents = Resolver::new(app, caller.tenant, caller.allowed());
    let once = message.once;
    let session = match message.to {
        To::New => None,
        To::Session(session) => Some(SessionKey {
            tenant: caller.tenant,
            session,
        }),
        To::Named { member, name } => {
            let found = find(app, caller, member, &name).await?;
            Some(if let Some(key) = found {
                key
            } else {
                let metadata = Map::from_iter([(member.to_owned(), json!(name))]);
                let session = made(
                    &mut agents,
                    app,
                    &message.agent,
                    message.variables.clone(),
                    metadata,
                );
                create(app, caller, session.await?, member, &name).await?
            })
        }
    };
    let (target, options) = if let Some(key) = session {
        let agent = (message.agent, message.variables);
        let options = inside(
            app,
            &mut agents,
            key,
            agent,
            (message.options, once.as_ref()),
        );
        (Target::Existing(key), options.await?)
    } else {
        let new = made(
            &mut agents,
            app,
            &message.agent,
            message.variables,
            Map::new(),
        )
        .await?;
        let asked = OptionsAsk {
            options: message.options,
            agent: None,
        };
        let (agent, metadata) = (&new.agent, &new.metadata);
        let options = agents
            .options_with(asked, new.key.session, agent, metadata, once.as_ref())
            .await?;
        agents
            .admit_prices(&options, (new.key, Some(agent)), once.as_ref())
            .await?;
        (Target::New(Box::new(new)), options)
    };
    let mut item = AcceptSend {
        id: SendId(app.entropy.ordered_id()),
        target,
        input: input.0,
        options,
        reports_to: None,
        run: None,
        idempotency: once,
        queued_max: app.config.queued_max,
        keeper: None,
    };
    blobs::prepare_send(app, &mut item, "").await?;
    pin_item(app.store.as_ref(), &mut item, "/agent").await?;
    submit(app, item, (), None, caller.limited_sends()).await
}

/// A session to create for an agent.
async fn made(
    agents: &mut Resolver<'_>,
    app: &Api,
    agent: &AgentQuery,
    variables: Map<String, Value>,
    metadata: Map<String, Value>,
) -> Result<NewSession, Error> {
    let mut checks = Checks::new();
    checks.metadata("/metadata", &metadata);
    checks.finish()?;
    let ask = SessionAsk {
        taken: Taken {
            at: String::new(),
            agent: Choice::Named(agent.clone()),
            variables,
        },
        metadata,
        name: None,
    };
    ask.new_session(agents, app, None).await
}

/// The options of a send to a session that exists.
async fn inside(
    app: &Api,
    agents: &mut Resolver<'_>,
    key: SessionKey,
    (agent, variables): (AgentQuery, Map<String, Value>),
    (options, once): (SendOptions, Option<&IdempotencyKey>),
) -> Result<SendOptions, Error> {
    let found = app.store.get_session(key).await?;
    let found = found.ok_or_else(Error::session_not_found)?;
    agents.see(&found)?;
    let other = !serves(agents, &agent, &found.agent).await?;
    let asked = OptionsAsk {
        options,
        agent: other.then(|| AgentAsk {
            at: String::new(),
            agent,
            variables,
        }),
    };
    let options = agents
        .options_with(asked, key.session, &found.agent, &found.metadata, once)
        .await?;
    agents
        .admit_prices(&options, (key, Some(&found.agent)), once)
        .await?;
    Ok(options)
}

/// Whether an agent that is asked for is the one that a session has. A session keeps the version that it began with,
/// unless another one is named.
async fn serves(
    agents: &mut Resolver<'_>,
    asked: &AgentQuery,
    own: &AgentSpec,
) -> Result<bool, Error> {
    let Some(own) = own.reference() else {
        return Ok(false);
    };
    if own.name != asked.name {
        return Ok(false);
    }
    match &asked.pick {
        Pick::Newest => Ok(true),
        Pick::Version(n) => Ok(*n == own.version),
        Pick::Alias(_) => Ok(agents.find(asked).await?.n == own.version),
    }
}

/// The newest session with this name that the caller sees.
pub(crate) async fn find(
    app: &Api,
    caller: &Caller,
    member: &str,
    name: &str,
) -> Result<Option<SessionKey>, Error> {
    let wanted = ListSessions {
        tenant: caller.tenant,
        status: None,
        agent: None,
        metadata: BTreeMap::from([(member.to_owned(), name.to_owned())]),
        before: None,
        limit: 20,
    };
    let found = app.store.list_sessions(wanted).await?.data;
    let mut found = found.into_iter().filter(|session| {
        let binding = caller.binding();
        binding.is_none_or(|binding| binding.holds(session))
    });
    Ok(found.next().map(|session| session.key))
}

/// Creates the session with this name, or finds the one that another request created at the same moment.
async fn create(
    app: &Api,
    caller: &Caller,
    mut session: NewSession,
    member: &str,
    name: &str,
) -> Result<SessionKey, Error> {
    let tenant = caller.tenant;
    pin(app.store.as_ref(), tenant, &mut session.agent, "/agent").await?;
    let once = once(caller, &format!("POST session {member}"), name);
    app.boot_id()?;
    match app.acceptor.create((session, Some(once))).await? {
        CreateOutcome::Created(record) => Ok(record.key),
        CreateOutcome::Replayed(session) => Ok(SessionKey { tenant, session }),
        CreateOutcome::Mismatch | CreateOutcome::Staged | CreateOutcome::Gone => {
            Err(Error::internal())
        }
    }
}

/// The idempotency key for what a client names itself. Whatever else a repeat says, it is the same.
pub(crate) fn once(caller: &Caller, route: &str, name: &str) -> IdempotencyKey {
    let hash: [u8; 32] = Sha256::digest(name.as_bytes()).into();
    idempotency::key(caller, route, &hex(&hash), hash)
}
