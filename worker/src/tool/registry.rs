//! The tools of a worker by name, and how an agent's list becomes what its model is offered.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, Isolation, RecallMode};
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::time::Clock;
use mainspring_shared::tool::schema::{self, Schema, SchemaFault};
use mainspring_shared::tool::{DeclaredTool, Published, Repeat, ToolEntry, preset};
use serde_json::Value;

use super::gathered::Gathered;
use super::isolation::{Cell, CellOwner, Isolator, NoCell};
use super::offer::{Executor, Offer, Offers};
use super::{Away, Effect, PerSend, Tool, ToolSource, ToolSpec, Traits};
use crate::checks::off_thread;

/// The tools of a worker.
#[derive(Debug, Default)]
pub struct Tools {
    /// As they are offered; the definition of a tool never changes.
    named: BTreeMap<String, Offer>,
    /// Sources of the tools that agents declare.
    sources: Vec<Arc<dyn ToolSource>>,
    schemas: Schemas,
    /// Tools that only other tools may call.
    internal: BTreeMap<String, Arc<dyn Tool>>,
    /// State kept for the calls of single sends.
    per_send: Vec<Arc<dyn PerSend>>,
    /// Names of tools whose calls reach no further than the system's own rows.
    own: BTreeSet<String>,
    /// Where all other tools of isolated agents run.
    isolator: Option<Arc<dyn Isolator>>,
    /// Missing tools that were already logged.
    missed: Mutex<BTreeSet<String>>,
}

/// How many missing tools are remembered as logged; further ones are logged each time.
const MISSED_MAX: usize = 1_024;

/// Compiled schemas of declared tools, by their JSON: most sends bring the same ones.
#[derive(Debug, Default)]
struct Schemas(Mutex<HashMap<String, Schema>>);

/// How many compiled schemas are kept: far more than one agent can have.
const SCHEMAS_MAX: usize = 1_024;

impl Schemas {
    async fn compile(&self, clock: &dyn Clock, parameters: &Value) -> Result<Schema, String> {
        let json = parameters.to_string();
        let known = |map: &mut HashMap<String, Schema>| map.get(&json).cloned();
        if let Some(schema) = self.0.lock().ok().and_then(|mut map| known(&mut map)) {
            return Ok(schema);
        }
        let schema = compile(clock, parameters).await?;
        if let Ok(mut map) = self.0.lock() {
            if map.len() >= SCHEMAS_MAX {
                map.clear();
            }
            map.insert(json, schema.clone());
        }
        Ok(schema)
    }

    async fn offer(
        &self,
        clock: &dyn Clock,
        tool: Arc<dyn Tool>,
        approval: bool,
    ) -> Result<Offer, String> {
        let schema = self.compile(clock, &tool.spec().parameters).await?;
        Ok(offer(tool, schema, approval))
    }
}

fn offer(tool: Arc<dyn Tool>, schema: Schema, approval: bool) -> Offer {
    Offer {
        schema,
        traits: tool.traits(),
        approval,
        spec: Arc::new(tool.spec()),
        place: Executor::Here(tool),
    }
}

/// Compiles a schema; an expensive one on a separate thread, so as not to block the runtime.
async fn compile(clock: &dyn Clock, json: &Value) -> Result<Schema, String> {
    let compiled = if schema::is_heavy(json) {
        let json = json.clone();
        off_thread(clock, move || Schema::compile(&json)).await
    } else {
        Some(Schema::compile(json))
    };
    match compiled {
        Some(Ok(schema)) => Ok(schema),
        Some(Err(fault)) => Err(said(&fault)),
        None => Err("the schema could not be compiled in time".to_owned()),
    }
}

fn said(fault: &SchemaFault) -> String {
    if fault.pointer.is_empty() {
        fault.detail.clone()
    } else {
        format!("{}: {}", fault.pointer, fault.detail)
    }
}

/// Why a tool cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolsError {
    /// The name is taken.
    #[error("there is a tool named {name:?} already")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// Its parameters are not a valid schema.
    #[error("the parameters of {name:?}: {detail}")]
    Parameters {
        /// The tool.
        name: String,
        /// What is wrong.
        detail: String,
    },
    /// The settings of the built-in tools are invalid.
    #[error("the built-in tools: {detail}")]
    Settings {
        /// What is wrong.
        detail: String,
    },
}

impl Tools {
    /// Adds a source of tools that agents declare.
    pub fn add_source(&mut self, source: Arc<dyn ToolSource>) {
        self.sources.push(source);
    }

    /// Sets where the tools of isolated agents run.
    pub fn isolate_with(&mut self, isolator: Arc<dyn Isolator>) {
        self.isolator = Some(isolator);
    }

    /// The one tool that a declaration stands for; `None` if no source knows it or it is
    /// unavailable. For an isolated agent it is made in the send's cell, or not at all.
    pub(crate) async fn made(
        &self,
        declared: &DeclaredTool,
        isolated: Option<(CellOwner, &AgentSpec)>,
    ) -> Option<Arc<dyn Tool>> {
        if let Some((owner, agent)) = isolated {
            let cell = self.isolator.as_ref()?.cell(owner, agent).await.ok()?;
            return cell.declared(declared).await?.ok()?.pop();
        }
        for source in &self.sources {
            if let Some(made) = source.tools(declared).await {
                return made.ok()?.pop();
            }
        }
        None
    }

    /// Registers state that is notified when a send leaves this worker.
    pub fn add_per_send(&mut self, kept: Arc<dyn PerSend>) {
        self.per_send.push(kept);
    }

    /// Notifies per-send state that a send has left this worker.
    pub fn left(&self, session: SessionKey, send: SendId) {
        for kept in &self.per_send {
            kept.left(session, send);
        }
    }

    /// Adds a tool that agents may name.
    pub fn insert(&mut self, tool: Arc<dyn Tool>) -> Result<(), ToolsError> {
        let spec = tool.spec();
        let schema = self.vacant(&spec)?;
        self.named.insert(spec.name, offer(tool, schema, false));
        Ok(())
    }

    /// Adds a tool that agents may name and whose calls reach no further than the system's own
    /// rows. It runs in this process for isolated agents, too.
    pub fn insert_own(&mut self, tool: Arc<dyn Tool>) -> Result<(), ToolsError> {
        let name = tool.spec().name;
        self.insert(tool)?;
        self.own.insert(name);
        Ok(())
    }

    /// Adds a tool that other tools call and no agent may name.
    pub fn insert_internal(&mut self, tool: Arc<dyn Tool>) {
        self.internal.insert(tool.spec().name, tool);
    }

    /// Adds a tool whose calls wait for someone else, with the effect that the kernel has for them.
    pub fn insert_outside(
        &mut self,
        spec: ToolSpec,
        on: WaitingOn,
        effect: Effect,
    ) -> Result<(), ToolsError> {
        let schema = self.vacant(&spec)?;
        let name = spec.name.clone();
        let mut offer = outside(spec, schema, on, None, false);
        offer.traits.effect = effect;
        self.named.insert(name, offer);
        Ok(())
    }

    /// Compiles the schema of a tool whose name must be free.
    fn vacant(&self, spec: &ToolSpec) -> Result<Schema, ToolsError> {
        let name = spec.name.clone();
        if self.named.contains_key(&name) {
            return Err(ToolsError::Duplicate { name });
        }
        let detail = |fault| said(&fault);
        let compiled = schema::parameters(&spec.parameters).map_err(detail);
        compiled.map_err(|detail| ToolsError::Parameters { name, detail })
    }

    /// The tool with this name, whether or not agents may name it.
    pub fn get(&self, name: &str) -> Option<Arc<dyn Tool>> {
        if let Some(tool) = self.internal.get(name) {
            return Some(tool.clone());
        }
        match &self.named.get(name)?.place {
            Executor::Here(tool) => Some(tool.clone()),
            Executor::Outside { .. } => None,
        }
    }

    /// What the kernel does for calls of this tool; nothing if this worker does not have it.
    pub fn effect(&self, name: &str) -> Effect {
        let offer = self.named.get(name);
        offer.map_or(Effect::None, |offer| offer.traits.effect)
    }

    /// The names that agents may use.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    /// The names that agents may use here, for clients that list them.
    pub(crate) fn published(&self) -> Published {
        let mut published = Published::default();
        for (name, offer) in &self.named {
            published.add(name.clone(), &offer.spec.description);
        }
        published.servers = self.servers().map(str::to_owned).collect();
        published
    }

    /// The MCP servers whose tools agents may use.
    pub fn servers(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().flat_map(|source| source.servers())
    }

    /// The tools that the model of a send is offered. For an isolated agent, tools that reach
    /// beyond the database are those of the send's cell, which is started if one is needed.
    pub async fn offers_of(
        &self,
        clock: &dyn Clock,
        (owner, agent): (CellOwner, &AgentSpec),
        only: Option<&[String]>,
    ) -> Result<Offers, NoCell> {
        if agent.isolation == Isolation::None || !self.reaches_out(agent) {
            return Ok(self.offers(clock, agent, only).await);
        }
        let isolator = self.isolator.as_ref().ok_or(NoCell::Unconfigured)?;
        let cell = isolator.cell(owner, agent).await?;
        Ok(self.gather(clock, agent, only, Some(cell)).await)
    }

    /// Whether a tool of the agent runs in this process and reaches beyond the database.
    fn reaches_out(&self, agent: &AgentSpec) -> bool {
        let one = |name: &str| {
            let offer = self.named.get(name).filter(|_| !self.own.contains(name));
            offer.is_some_and(|offer| matches!(offer.place, Executor::Here(_)))
        };
        let named = |name: &str| match preset(name) {
            Some(names) => names.iter().any(|name| one(name)),
            None => one(name),
        };
        agent.tools.iter().any(|entry| match entry {
            ToolEntry::Named(name) => named(name),
            ToolEntry::Declared(DeclaredTool::Worker(wanted)) => named(&wanted.name),
            ToolEntry::Declared(DeclaredTool::Http(_) | DeclaredTool::Mcp(_)) => true,
            ToolEntry::Declared(DeclaredTool::External(_)) => false,
        })
    }

    /// The tools that an agent's model is offered, in the order of the agent's list, narrowed to
    /// `only` if given. Tools that this worker lacks are left out: a call of one is answered with
    /// `tool.not_found`. The tools are made in this process even if the agent is isolated; to make
    /// calls, see [`offers_of`](Self::offers_of).
    pub async fn offers(
        &self,
        clock: &dyn Clock,
        agent: &AgentSpec,
        only: Option<&[String]>,
    ) -> Offers {
        self.gather(clock, agent, only, None).await
    }

    async fn gather(
        &self,
        clock: &dyn Clock,
        agent: &AgentSpec,
        only: Option<&[String]>,
        cell: Option<Arc<dyn Cell>>,
    ) -> Offers {
        let mut offers = Gathered {
            cell,
            ..Gathered::default()
        };
        for (place, entry) in agent.tools.iter().enumerate() {
            offers.place = place;
            match entry {
                ToolEntry::Named(name) => self.ours(&mut offers, name, false),
                ToolEntry::Declared(declared) => {
                    self.declared(clock, &mut offers, declared).await;
                }
            }
        }
        self.readers(&mut offers, agent);
        for only in [agent.allow.as_deref(), only].into_iter().flatten() {
            offers
                .list
                .retain(|offer| only.contains(&offer.spec.name) || offer.comes_with(agent));
            offers.missing.retain(|name| only.contains(name));
        }
        self.remembering(&mut offers, agent, only);
        for name in &offers.missing {
            self.miss(name);
        }
        offers.missing.append(&mut offers.away);
        Offers::new(offers.list, offers.names, offers.missing)
    }

    /// Adds the memory tools of an agent with memory. They come with the memory, which is granted
    /// separately: the agent's tool list does not narrow them, but the sender's does.
    fn remembering(&self, offers: &mut Gathered, agent: &AgentSpec, only: Option<&[String]>) {
        let memory = agent.memory.as_ref();
        if memory.is_none_or(|memory| memory.recall == RecallMode::Off) {
            (offers.list).retain(|offer| offer.traits.effect != Effect::Remember);
            return;
        }
        for (name, offer) in &self.named {
            let is_asked = only.is_none_or(|only| only.contains(name));
            let is_new = !offers.list.iter().any(|other| other.spec.name == *name);
            if offer.traits.effect == Effect::Remember && is_asked && is_new {
                offers.list.push(offer.clone());
            }
        }
    }

    /// Logs, once per name, that an agent names a tool that this worker lacks.
    fn miss(&self, name: &str) {
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        if missed.len() < MISSED_MAX && !missed.insert(name.to_owned()) {
            return;
        }
        tracing::warn!(
            tool.name = name,
            "an agent names a tool that this worker does not have; its model is told"
        );
    }

    /// Adds the tools that read skills and what the agent's context hides, which agents need not
    /// name.
    fn readers(&self, offers: &mut Gathered, agent: &AgentSpec) {
        offers.place = agent.tools.len();
        let readers = self.named.values();
        for offer in readers.filter(|offer| offer.comes_with(agent)) {
            if let Some(offer) = self.placed(offers, offer) {
                offers.add(offer);
            }
        }
    }

    /// The offer where its calls are made: in the cell, if there is one. `None` if it must not run
    /// here and the cell does not have it.
    fn placed(&self, offers: &Gathered, offer: &Offer) -> Option<Offer> {
        let Some(cell) = &offers.cell else {
            return Some(offer.clone());
        };
        let Executor::Here(_) = offer.place else {
            return Some(offer.clone());
        };
        match cell.named(&offer.spec.name) {
            Some(tool) => Some(Offer {
                traits: tool.traits(),
                place: Executor::Here(tool),
                ..offer.clone()
            }),
            None => self.own.contains(&offer.spec.name).then(|| offer.clone()),
        }
    }

    /// Adds a preset, or a tool of this worker.
    fn ours(&self, offers: &mut Gathered, name: &str, approval: bool) {
        match preset(name) {
            Some(names) => {
                // A preset stands for those of its tools that exist.
                let missing = offers.missing.len();
                for name in names {
                    self.named(offers, name, approval);
                }
                offers.missing.truncate(missing);
            }
            None => self.named(offers, name, approval),
        }
    }

    fn named(&self, offers: &mut Gathered, name: &str, approval: bool) {
        let offer = self.named.get(name);
        if let Some(offer) = offer.and_then(|offer| self.placed(offers, offer)) {
            // Answering a question is the decision, so no approval is needed.
            let is_question = matches!(offer.place, Executor::Outside { .. })
                && !offer.traits.effect.is_agents_work();
            let approval = (approval || offer.approval) && !is_question;
            offers.add(Offer { approval, ..offer });
        } else {
            offers.missing.push(name.to_owned());
        }
    }

    async fn declared(&self, clock: &dyn Clock, offers: &mut Gathered, declared: &DeclaredTool) {
        match declared {
            DeclaredTool::External(tool) => {
                let spec = ToolSpec {
                    name: tool.name.clone(),
                    description: tool.description.clone(),
                    parameters: tool.parameters.clone(),
                };
                let deadline = tool.deadline.map(|span| span.0);
                let schema = self.schemas.compile(clock, &spec.parameters).await;
                let traits = Traits::new(tool.repeat.unwrap_or(Repeat::Once));
                let offer = |schema| Offer {
                    traits,
                    ..outside(spec, schema, WaitingOn::Tool, deadline, tool.approval)
                };
                offers.add_valid(&tool.name, schema.map(offer));
            }
            DeclaredTool::Worker(wanted) => self.ours(offers, &wanted.name, wanted.approval),
            DeclaredTool::Http(tool) => self.sourced(clock, offers, declared, tool.approval).await,
            DeclaredTool::Mcp(tools) => {
                offers.server = Some(tools.server.clone());
                self.sourced(clock, offers, declared, tools.approval).await;
                offers.server = None;
            }
        }
    }

    /// Adds the tools of a source.
    async fn sourced(
        &self,
        clock: &dyn Clock,
        offers: &mut Gathered,
        declared: &DeclaredTool,
        approval: bool,
    ) {
        match self.source(offers.cell.as_ref(), declared).await {
            None => {
                tracing::warn!(
                    "an agent declares a tool of a kind that this worker has no source for"
                );
            }
            Some(Ok(tools)) => {
                for tool in tools {
                    let name = tool.spec().name;
                    offers.add_valid(&name, self.schemas.offer(clock, tool, approval).await);
                }
            }
            Some(Err(Away { which, why })) => {
                tracing::warn!(tools = which, why, "declared tools are unavailable");
                offers.away.push(which);
            }
        }
    }

    /// The tools that a declaration stands for: only those of the cell if there is one.
    async fn source(
        &self,
        cell: Option<&Arc<dyn Cell>>,
        declared: &DeclaredTool,
    ) -> Option<Result<Vec<Arc<dyn Tool>>, Away>> {
        if let Some(cell) = cell {
            return cell.declared(declared).await;
        }
        for source in &self.sources {
            let tools = source.tools(declared).await;
            if tools.is_some() {
                return tools;
            }
        }
        None
    }
}

/// The offer of a tool whose calls are made outside.
fn outside(
    spec: ToolSpec,
    schema: Schema,
    on: WaitingOn,
    deadline: Option<Duration>,
    approval: bool,
) -> Offer {
    Offer {
        spec: Arc::new(spec),
        schema,
        traits: Traits::new(Repeat::Keyed),
        approval,
        place: Executor::Outside { on, deadline },
    }
}
