//! The shapes of the bodies of sessions and sends.

use std::fmt;
use std::marker::PhantomData;

use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::accept::new_session;
use mainspring_scheduler::services::agents::{
    Allowed, Choice, OptionsAsk, Resolver, Taken, rebind,
};
use mainspring_scheduler::services::skills::pin;
use mainspring_shared::agent::{AgentQuery, ModelOptions, Priority, ReasoningEffort, ToolChoice};
use mainspring_shared::budget::Budget;
use mainspring_shared::id::SessionKey;
use mainspring_shared::message::ContentPart;
use mainspring_shared::store::{IdempotencyKey, NewSession, SessionPatch};
use mainspring_shared::time::Span;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::choice::{AgentChoice, choice_schema};
use super::input::{Input, input_schema};
use super::validate::Checks;
use crate::extract::JsonBody;

/// A session to create.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewSessionBody {
    /// Its agent: a spec, or a published one as `NAME`, `NAME@VERSION` or `NAME@ALIAS`. A name alone is its
    /// newest version.
    #[schema(schema_with = choice_schema, required = false)]
    pub(super) agent: Option<AgentChoice>,
    /// Values of the variables that the agent's prompt declares.
    #[schema(value_type = Option<Object>)]
    pub(super) variables: Option<Map<String, Value>>,
    /// The creator's data: an object, at most 16 KiB of JSON.
    #[schema(value_type = Option<Object>)]
    pub(super) metadata: Option<Map<String, Value>>,
    /// The caller's own name for the session, 1 to 255 visible ASCII characters. The tenant has one session with it,
    /// which is returned as it is if it exists; the name is free again once that is deleted.
    pub(super) key: Option<String>,
}

impl JsonBody for NewSessionBody {
    type Checked = SessionAsk;

    // Everything about a session has a default, so an empty body is valid.
    fn absent() -> Option<Self> {
        Some(Self::default())
    }

    fn checked(self, checks: &mut Checks) -> Self::Checked {
        checks.session("", self)
    }
}

/// A session to create, checked: its agent and its metadata.
#[derive(Debug)]
pub(super) struct SessionAsk {
    pub(super) taken: Taken,
    pub(super) metadata: Map<String, Value>,
    /// The caller's own name for it.
    pub(super) name: Option<String>,
}

impl SessionAsk {
    /// Builds the session, with its agent resolved to the current version.
    pub(super) async fn new_session(
        mut self,
        agents: &mut Resolver<'_>,
        app: &App,
        key: Option<&IdempotencyKey>,
    ) -> Result<NewSession, Error> {
        agents.fill(&mut self.metadata, &self.taken.at)?;
        let agent = agents.take(self.taken, &self.metadata, key).await?;
        let session = new_session(app, agents.tenant(), agent, self.metadata);
        let (agent, metadata) = (&session.agent, &session.metadata);
        agents
            .admit_new(agent, metadata, session.key.session, key)
            .await?;
        Ok(session)
    }
}

/// The target of a send: the fields of a new session, or the id of an existing one.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SendSession {
    /// The agent of a new session: a spec, or a published one as `NAME`, `NAME@VERSION` or `NAME@ALIAS`.
    #[schema(schema_with = choice_schema, required = false)]
    pub(super) agent: Option<AgentChoice>,
    /// Values of the variables that the new session's agent declares.
    #[schema(value_type = Option<Object>)]
    pub(super) variables: Option<Map<String, Value>>,
    /// The data of a new session.
    #[schema(value_type = Option<Object>)]
    pub(super) metadata: Option<Map<String, Value>>,
    /// A session that exists; excludes the others.
    pub(super) session_id: Option<String>,
}

/// Changes of a session; absent members stay as they are.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionChangeBody {
    /// Replaces the agent: by a spec, or by a published one as `NAME`, `NAME@VERSION` or `NAME@ALIAS`.
    #[schema(schema_with = choice_schema, required = false)]
    pub(super) agent: Option<AgentChoice>,
    /// Replaces the values of the agent's variables. If absent, previous values are kept as far as a new agent declares
    /// them.
    #[schema(value_type = Option<Object>)]
    pub(super) variables: Option<Map<String, Value>>,
    /// Replaces the metadata. The agent's prompt stays as it was made, unless the agent or its variables are
    /// given too.
    #[schema(value_type = Option<Object>)]
    pub(super) metadata: Option<Map<String, Value>>,
    /// Closes the session for new sends, or reopens it.
    pub(super) closed: Option<bool>,
}

impl JsonBody for SessionChangeBody {
    type Checked = SessionChange;

    fn checked(self, checks: &mut Checks) -> SessionChange {
        if let Some(AgentChoice(Choice::Inline(agent))) = &self.agent {
            checks.own_agent("/agent", agent);
        }
        if let Some(metadata) = &self.metadata {
            checks.metadata("/metadata", metadata);
        }
        SessionChange {
            agent: self.agent.map(|AgentChoice(choice)| choice),
            variables: self.variables,
            metadata: self.metadata,
            closed: self.closed,
        }
    }
}

/// Changes of a session, checked.
#[derive(Debug)]
pub(super) struct SessionChange {
    agent: Option<Choice>,
    variables: Option<Map<String, Value>>,
    metadata: Option<Map<String, Value>>,
    closed: Option<bool>,
}

impl SessionChange {
    /// The patch to store. The agent is bound to the metadata and values that the session has at
    /// the time of this call, and its skills are resolved to their current versions.
    pub(super) async fn patch(
        mut self,
        app: &App,
        key: SessionKey,
        allowed: Allowed<'_>,
    ) -> Result<SessionPatch, Error> {
        let binding = allowed.binding;
        let mut agents = Resolver::new(app, key.tenant, allowed);
        if let Some(metadata) = &mut self.metadata {
            agents.fill(metadata, "")?;
        }
        let mut agent = None;
        let rebinds = self.agent.is_some() || self.variables.is_some();
        if rebinds || (binding.is_some() && self.metadata.is_some()) {
            let found = app.store.get_session(key).await?;
            let mut found = found.ok_or_else(Error::session_not_found)?;
            let metadata = self.metadata.as_ref().unwrap_or(&found.metadata);
            let mut becomes = if rebinds {
                let before = found.agent.bound.take().unwrap_or_default();
                match self.agent {
                    Some(choice) => {
                        agents
                            .replace(choice, self.variables, before.variables, metadata)
                            .await?
                    }
                    None => rebind(found.agent, before.agent, self.variables, metadata)?,
                }
            } else {
                found.agent
            };
            agents.admit_as(&becomes, metadata, key.session)?;
            if rebinds {
                pin(app.store.as_ref(), key.tenant, &mut becomes, "/agent").await?;
            }
            // The agent and the metadata were checked together, so they are stored together:
            // changing only one of them could move the session out of the binding.
            let is_pair = binding.is_some_and(|binding| binding.namespace.is_some());
            agent = (rebinds || is_pair).then_some(becomes);
            if is_pair && self.metadata.is_none() {
                self.metadata = Some(found.metadata);
            }
        }
        Ok(SessionPatch {
            agent,
            metadata: self.metadata,
            closed: self.closed,
        })
    }
}

/// A send to a session in the path.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SendBody {
    /// The user's words: a text, or text parts.
    #[schema(schema_with = input_schema)]
    pub(super) input: Input,
    /// The options of the send.
    #[serde(default, deserialize_with = "object")]
    pub(super) options: Option<Options>,
}

impl JsonBody for SendBody {
    type Checked = (Vec<ContentPart>, OptionsAsk);

    fn checked(self, checks: &mut Checks) -> Self::Checked {
        checks.input(&self.input);
        (self.input.0, checks.options(self.options))
    }
}

/// A send to a session that exists or is created with it.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SendAnywhereBody {
    /// The user's words: a text, or text parts.
    #[schema(schema_with = input_schema)]
    pub(super) input: Input,
    /// The options of the send.
    #[serde(default, deserialize_with = "object")]
    pub(super) options: Option<Options>,
    /// The session; a new one with nothing set when neither member names one.
    #[serde(default, deserialize_with = "object")]
    pub(super) session: Option<SendSession>,
    /// A session that exists.
    pub(super) session_id: Option<String>,
    /// Idempotency key of this item. Only in a batch; otherwise it is a header.
    pub(super) idempotency_key: Option<String>,
}

/// Sends to accept in one request.
#[derive(Debug, utoipa::ToSchema)]
#[expect(
    dead_code,
    reason = "only its schema is used: the items are parsed one by one"
)]
pub(super) struct BatchBody {
    /// At most 1000.
    sends: Vec<SendAnywhereBody>,
}

/// The options of a send.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SendOptions)]
#[expect(
    clippy::struct_field_names,
    reason = "they are the names of the API's members"
)]
pub(super) struct Options {
    /// A published agent for this send only, instead of its session's: `NAME`, `NAME@VERSION` or `NAME@ALIAS`. A plain
    /// name is its newest version when the send is accepted.
    #[schema(value_type = Option<String>)]
    pub(super) agent: Option<AgentQuery>,
    /// Values of the variables that the prompt of `agent` declares.
    #[schema(value_type = Option<Object>)]
    pub(super) variables: Option<Map<String, Value>>,
    /// Replaces the agent's model.
    pub(super) model: Option<String>,
    /// Replaces the agent's system prompt.
    pub(super) system_prompt: Option<String>,
    /// Narrows the agent's tools to those with these names.
    pub(super) tools: Option<Vec<String>>,
    /// Replaces the agent's limit on rounds.
    pub(super) max_rounds: Option<u32>,
    /// The budget of this send, with everything that it causes.
    pub(super) budget: Option<Budget>,
    /// The schema of the answer: a JSON Schema, or `{name, schema, strict}`; `{"type": "json_object"}` for any JSON
    /// object. Replaces the agent's.
    #[schema(value_type = Option<Object>)]
    pub(super) output_schema: Option<Value>,
    /// Replaces the agent's limit on the tokens of one answer.
    pub(super) max_tokens: Option<u32>,
    /// Replaces the agent's.
    pub(super) temperature: Option<f64>,
    /// Replaces the agent's.
    pub(super) top_p: Option<f64>,
    /// Replaces the agent's.
    pub(super) reasoning_effort: Option<ReasoningEffort>,
    /// Replaces the agent's: whether the model must call tools. `required` and a tool's name apply to the first round
    /// of the send; `none` to all.
    pub(super) tool_choice: Option<ToolChoice>,
    /// Replaces the agent's: whether one answer may have several calls.
    pub(super) parallel_tool_calls: Option<bool>,
    /// Further members of model requests: an object of at most 16 KiB of JSON. Replaces the agent's.
    #[schema(value_type = Option<Object>)]
    pub(super) model_options: Option<ModelOptions>,
    /// What you note about it: at most 16 KiB of JSON, which no model is shown. Lists of sends can be filtered by it. A
    /// message that joins a send that is there keeps none.
    #[schema(value_type = Option<Object>)]
    pub(super) metadata: Option<Map<String, Value>>,
    /// `high` (the default) or `low`; a number from -100 to 100 is read as `low` below 0.
    #[schema(value_type = Option<String>)]
    pub(super) priority: Option<PriorityText>,
    /// From acceptance to the end.
    #[schema(value_type = Option<String>)]
    pub(super) deadline: Option<Span>,
    /// From acceptance until it has a position in the session.
    #[schema(value_type = Option<String>)]
    pub(super) delay: Option<Span>,
    /// `enqueue` (the default), `coalesce`, `steer`, `interrupt` or `reject`.
    #[schema(value_type = Option<String>)]
    pub(super) on_busy: Option<String>,
}

/// Deserializes a member that is an object or null. By default, serde would also accept a list with
/// the values of its members in order.
pub(super) fn object<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Members<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_unit<E>(self) -> Result<Option<T>, E> {
            Ok(None)
        }

        fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Option<T>, A::Error> {
            T::deserialize(MapAccessDeserializer::new(members)).map(Some)
        }
    }

    deserializer.deserialize_any(Members(PhantomData))
}

/// A priority as a word or a number.
#[derive(Debug, Clone, Copy)]
pub(super) struct PriorityText(pub(super) Priority);

impl<'de> Deserialize<'de> for PriorityText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Word;

        impl Word {
            fn of<E: serde::de::Error>(number: i64) -> Result<PriorityText, E> {
                match number {
                    0..=100 => Ok(PriorityText(Priority::High)),
                    -100..0 => Ok(PriorityText(Priority::Low)),
                    _ => Err(E::custom("a priority is from -100 to 100")),
                }
            }
        }

        impl Visitor<'_> for Word {
            type Value = PriorityText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`high`, `low` or a number from -100 to 100")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<PriorityText, E> {
                match text {
                    "high" => Ok(PriorityText(Priority::High)),
                    "low" => Ok(PriorityText(Priority::Low)),
                    _ => Err(E::custom("a priority is `high` or `low`")),
                }
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<PriorityText, E> {
                Self::of(number)
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<PriorityText, E> {
                Self::of(i64::try_from(number).unwrap_or(i64::MAX))
            }
        }

        deserializer.deserialize_any(Word)
    }
}
