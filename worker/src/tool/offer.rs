//! The tools that a model is offered in one send.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, Delegation};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::StartedSend;
use mainspring_shared::time::Clock;
use mainspring_shared::tool::Question;
use mainspring_shared::tool::schema::Schema;
use serde_json::{Map, Value};

use super::{Effect, Skills, Tool, ToolSpec, Traits};
use crate::checks::off_thread;

/// An offered tool.
#[derive(Debug, Clone)]
pub struct Offer {
    /// What the model is told.
    pub spec: Arc<ToolSpec>,
    /// The schema that its arguments must match.
    pub schema: Schema,
    /// The tool's properties.
    pub traits: Traits,
    /// Whether a person must approve each call.
    pub approval: bool,
    /// Where its calls are made.
    pub place: Executor,
}

/// Where the calls of a tool are made.
#[derive(Debug, Clone)]
pub enum Executor {
    /// In this worker.
    Here(Arc<dyn Tool>),
    /// Outside: the call is a row until its result arrives.
    Outside {
        /// What it waits for.
        on: WaitingOn,
        /// How long it waits.
        deadline: Option<Duration>,
    },
}

/// All offered tools, in order.
#[derive(Debug, Clone, Default)]
pub struct Offers {
    list: Arc<[Offer]>,
    missing: Arc<[String]>,
    /// Whether the model is only shown them, and may call none.
    is_barred: bool,
    /// The places of their entries in the agent's list, by name.
    places: Arc<BTreeMap<String, usize>>,
}

impl Offers {
    /// Offers with the places of their entries in the agent's list, and what is missing of it.
    pub fn new(list: Vec<Offer>, places: BTreeMap<String, usize>, missing: Vec<String>) -> Self {
        Self {
            list: list.into(),
            missing: missing.into(),
            is_barred: false,
            places: Arc::new(places),
        }
    }

    /// These offers for a send that may call no tools: its model is shown them, since earlier messages
    /// may be about them, and calls of them are refused as if they did not exist.
    #[must_use]
    pub(crate) fn barred(self) -> Self {
        Self {
            is_barred: true,
            ..self
        }
    }

    /// What is wrong with the tool choice of a send in this round, given these offers.
    pub(crate) fn choice_fault(&self, send: &StartedSend, round: i32) -> Option<String> {
        let choice = send.agent.tool_choice.as_ref()?;
        let choice = choice.in_round(round.unsigned_abs());
        choice.fault(self.list.iter().map(|offer| offer.spec.name.as_str()))
    }

    /// The tools that the agent names and the worker lacks, as a sentence for its model.
    pub fn missing(&self) -> Option<String> {
        let names = self.missing.join(", ");
        (!names.is_empty()).then(|| format!("These tools of yours are not available now: {names}."))
    }

    /// The tool with this name, if it may be called.
    pub fn get(&self, name: &str) -> Option<&Offer> {
        let mut callable = self.list.iter().filter(|_| !self.is_barred);
        callable.find(|offer| offer.spec.name == name)
    }

    /// All offered tools.
    pub fn list(&self) -> &[Offer] {
        &self.list
    }

    /// What a send with these offers delegates to the agents that it starts.
    pub fn delegation(&self, send: &StartedSend) -> Delegation {
        let granted = self.list.iter().filter_map(|offer| {
            let name = &offer.spec.name;
            Some((name.clone(), *self.places.get(name)?))
        });
        Delegation::new(&send.agent, &send.record.options, granted)
    }

    /// The skills of the agent that has these offers, for its calls.
    pub fn skills(&self, agent: &AgentSpec) -> Skills {
        Skills {
            of_agent: agent.skills.clone().into(),
            in_workspace: self.list.iter().any(|offer| offer.traits.in_workspace),
        }
    }

    /// The specs of all offered tools, for the model.
    pub fn specs(&self) -> Vec<Arc<ToolSpec>> {
        self.list.iter().map(|offer| offer.spec.clone()).collect()
    }

    /// The names of the tools that may be called, for a model that asked for another one; `None` if
    /// there are none.
    pub fn names(&self) -> Option<String> {
        let callable = self.list.iter().filter(|_| !self.is_barred);
        let names: Vec<&str> = callable.map(|o| o.spec.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }
}

impl Offer {
    /// The question that a call of the tool asks a person, if it asks one.
    pub(crate) fn question(&self, arguments: &Value) -> Option<Question> {
        let asks = self.traits.effect == Effect::AskPerson;
        asks.then(|| Question::read(arguments))?
    }

    /// Whether it comes with something else that the agent has: skills bring the tool that reads
    /// them, and a context that hides results or sends brings the tool that reads those. Tool lists
    /// cannot remove it.
    pub fn comes_with(&self, agent: &AgentSpec) -> bool {
        match self.traits.effect {
            Effect::ReadSkills => !agent.skills.is_empty(),
            Effect::ReadBack => agent.context.hides(),
            Effect::None
            | Effect::Recall
            | Effect::RecallTodo
            | Effect::Remember
            | Effect::Delegate
            | Effect::StartRun
            | Effect::PassTurn
            | Effect::AskPerson => false,
        }
    }

    /// Checks arguments; if they are wrong, returns a message for the model.
    pub async fn arguments(
        &self,
        clock: &dyn Clock,
        given: &Value,
    ) -> Result<Map<String, Value>, String> {
        if self.schema.is_small_for(given) {
            return self.checked(given);
        }
        let (offer, given) = (self.clone(), given.clone());
        let checked = off_thread(clock, move || offer.checked(&given)).await;
        checked.unwrap_or_else(|| {
            let name = &self.spec.name;
            Err(format!(
                "the arguments of {name} could not be checked in time"
            ))
        })
    }

    /// The same, on this thread.
    pub fn checked(&self, given: &Value) -> Result<Map<String, Value>, String> {
        let name = &self.spec.name;
        let Value::Object(arguments) = given else {
            return Err(match given {
                Value::String(text) => match serde_json::from_str::<Value>(text) {
                    Err(error) => format!("the arguments of {name} are not JSON: {error}"),
                    Ok(Value::Object(_)) => format!(
                        "the arguments of {name} are a string that contains JSON: they were encoded \
                         twice; give the object itself"
                    ),
                    Ok(_) => format!("the arguments of {name} are not an object"),
                },
                _ => format!("the arguments of {name} are not an object"),
            });
        };
        let faults = self.schema.faults(given);
        if faults.is_empty() {
            return Ok(arguments.clone());
        }
        Err(format!(
            "the arguments of {name} do not fit its schema: {}",
            faults.join("; ")
        ))
    }
}
