//! What an agent hands on to the agents that it starts: children, and the leaves of its runs.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    AgentName, AgentQuery, AgentSpec, Bound, ContextSpec, Isolation, MemorySpec, NotesSpec,
    Recovery, SendOptions,
};
use crate::skill::AgentSkill;
use crate::stored::Extra;
use crate::tool::{DeclaredTool, McpTools, ToolEntry, WorkerTool, preset};

/// The tools and settings of one send, as those inherit them that it starts. Tools travel as they
/// are declared, with their URLs, schemas, pools and approvals, never as bare names: whoever
/// inherits can only narrow them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Delegation {
    /// The agent's list of tools.
    tools: Vec<ToolEntry>,
    /// What is on offer in the send, by name: the place of the entry in `tools` that offers it.
    granted: BTreeMap<String, usize>,
    /// The published agents that may be started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    agents: Vec<AgentQuery>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    fallback: Vec<String>,
    #[serde(default)]
    context: ContextSpec,
    #[serde(default)]
    recovery: Recovery,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    notes: Option<NotesSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    board: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    #[serde(default, skip_serializing_if = "Isolation::is_none")]
    isolation: Isolation,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    skills: Vec<AgentSkill>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory: Option<MemorySpec>,
    /// The published agent that the model calls of agents defined inline count for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payer: Option<AgentName>,
}

/// Why an entry of a list of tools is not granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotGranted {
    /// Nothing of this name is on offer.
    #[error("the caller has no tool {0:?}")]
    Unknown(String),
    /// The name is granted, and means something else.
    #[error("{0:?} is already a different tool of the caller and cannot be redeclared")]
    Other(String),
}

impl Delegation {
    /// What a send of this agent hands on. `granted` says what it is offered: each name with the
    /// place of its entry in the agent's list.
    pub fn new(
        agent: &AgentSpec,
        options: &SendOptions,
        granted: impl IntoIterator<Item = (String, usize)>,
    ) -> Self {
        let granted = granted.into_iter();
        let granted = granted.filter(|(_, entry)| *entry < agent.tools.len());
        Self {
            granted: granted.collect(),
            tools: agent.tools.clone(),
            agents: agent.allow_agents.clone(),
            model: options.model.clone().or_else(|| agent.model.clone()),
            fallback: agent.fallback.clone(),
            context: agent.context.clone(),
            recovery: agent.recovery,
            notes: agent.notes.clone(),
            board: agent.board.clone(),
            pool: agent.pool.clone(),
            isolation: agent.isolation,
            skills: agent.skills.clone(),
            memory: None,
            payer: agent.payer().cloned(),
        }
    }

    /// The same, with the memory that is granted to whoever inherits.
    #[must_use]
    pub fn with_memory(self, memory: Option<MemorySpec>) -> Self {
        Self { memory, ..self }
    }

    /// The names that are on offer.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.granted.keys().map(String::as_str)
    }

    /// The agent of whoever inherits: with these of the tools, all of them when none are named, and
    /// with the settings that are inherited. A tool that is declared again stays the one that was
    /// granted; it may ask for approval where the granted one does not, never the other way round.
    #[must_use]
    pub fn heir(&self, wanted: Option<&[ToolEntry]>) -> AgentSpec {
        let mut allow = BTreeSet::new();
        let mut guarded: BTreeMap<usize, Vec<ToolEntry>> = BTreeMap::new();
        match wanted {
            None => allow.extend(self.names().map(str::to_owned)),
            Some(wanted) => {
                for entry in wanted {
                    for name in self.meant(entry) {
                        let Some(own) = self.entry(name) else {
                            continue;
                        };
                        if entry.approval() && !own.approval() {
                            let place = self.granted[name];
                            guarded.entry(place).or_default().push(own.guarded(name));
                        }
                        allow.insert(name.to_owned());
                    }
                }
            }
        }
        let used: BTreeSet<usize> = allow.iter().map(|name| self.granted[name]).collect();
        // Of two entries with one name the first counts.
        let tools = used.into_iter().flat_map(|place| {
            let own = std::iter::once(self.tools[place].clone());
            guarded
                .remove(&place)
                .unwrap_or_default()
                .into_iter()
                .chain(own)
        });
        AgentSpec {
            tools: tools.collect(),
            allow: Some(allow.into_iter().collect()),
            allow_agents: self.agents.clone(),
            model: self.model.clone(),
            fallback: self.fallback.clone(),
            context: self.context.clone(),
            recovery: self.recovery,
            notes: self.notes.clone(),
            board: self.board.clone(),
            pool: self.pool.clone(),
            isolation: self.isolation,
            skills: self.skills.clone(),
            memory: self.memory.clone(),
            bound: self.payer.clone().map(|payer| {
                Box::new(Bound {
                    payer: Some(payer),
                    ..Bound::default()
                })
            }),
            ..AgentSpec::default()
        }
    }

    /// The skills that are handed on.
    pub fn skills(&self) -> &[AgentSkill] {
        &self.skills
    }

    /// Whether a published agent may be started.
    pub fn allows(&self, agent: &AgentQuery) -> bool {
        self.agents.iter().any(|own| own.covers(agent))
    }

    /// A published agent as it is started here: with no tool, no published agent and no board that
    /// whoever starts it does not have, on the same workers, and isolated at least as much.
    #[must_use]
    pub fn narrow(&self, agent: AgentSpec) -> AgentSpec {
        let heir = self.heir(Some(&agent.tools));
        let mut allow = heir.allow.unwrap_or_default();
        if let Some(own) = &agent.allow {
            allow.retain(|name| own.contains(name));
        }
        let mut agents = agent.allow_agents;
        agents.retain(|own| self.allows(own));
        AgentSpec {
            tools: heir.tools,
            allow: Some(allow),
            allow_agents: agents,
            model: agent.model.or(heir.model),
            notes: agent.notes.or(heir.notes),
            // Its own would be named by metadata that a model writes.
            memory: heir.memory,
            board: heir.board,
            pool: heir.pool,
            isolation: agent.isolation.stricter(heir.isolation),
            ..agent
        }
    }

    /// Why whoever inherits cannot have this entry in its list.
    pub fn check(&self, entry: &ToolEntry) -> Result<(), NotGranted> {
        let meant = self.meant(entry);
        if meant.is_empty() {
            return Err(NotGranted::Unknown(entry.label().to_owned()));
        }
        let differs = meant.iter().find(|name| {
            let own = self.entry(name);
            own.is_some_and(|own| !own.reaches_as(entry))
        });
        match differs {
            Some(name) => Err(NotGranted::Other((*name).to_owned())),
            None => Ok(()),
        }
    }

    /// The names that an agent which was started before may use in a send that is started now: those
    /// that it has as they are granted here, or guarded better.
    pub fn narrowed(&self, agent: &AgentSpec) -> Vec<String> {
        let kept = self.granted.iter().filter(|(name, place)| {
            let own = &self.tools[**place];
            let theirs = agent.tools.iter().find(|entry| self.offers(entry, name));
            let fits = |theirs: &ToolEntry| {
                theirs.reaches_as(own)
                    && own.reaches_as(theirs)
                    && (theirs.approval() || !own.approval())
            };
            theirs.is_some_and(fits)
        });
        kept.map(|(name, _)| name.clone()).collect()
    }

    fn entry(&self, name: &str) -> Option<&ToolEntry> {
        self.tools.get(*self.granted.get(name)?)
    }

    /// The granted names that an entry means.
    fn meant(&self, entry: &ToolEntry) -> Vec<&str> {
        let granted = |name: &str| self.granted.get_key_value(name);
        let one = |name| granted(name).map(|(name, _)| name.as_str());
        match entry {
            ToolEntry::Named(name)
            | ToolEntry::Declared(DeclaredTool::Worker(WorkerTool { name, .. })) => {
                match preset(name) {
                    Some(names) => names.iter().filter_map(|name| one(name)).collect(),
                    None => one(name).into_iter().collect(),
                }
            }
            ToolEntry::Declared(DeclaredTool::Http(tool)) => one(&tool.name).into_iter().collect(),
            ToolEntry::Declared(DeclaredTool::External(tool)) => {
                one(&tool.name).into_iter().collect()
            }
            ToolEntry::Declared(DeclaredTool::Mcp(wanted)) => {
                let names = self.granted.iter().filter(|(name, place)| {
                    matches!(&self.tools[**place], ToolEntry::Declared(DeclaredTool::Mcp(own))
                        if own.server == wanted.server && named_in(wanted, &own.prefix, name))
                });
                names.map(|(name, _)| name.as_str()).collect()
            }
        }
    }

    /// Whether an entry of another agent's list offers something of this name. Only the server knows
    /// the names of its tools: an entry for one may offer whatever begins with its prefix, unless
    /// this agent has the same entry and takes the name from elsewhere.
    fn offers(&self, entry: &ToolEntry, name: &str) -> bool {
        match entry {
            ToolEntry::Named(own)
            | ToolEntry::Declared(DeclaredTool::Worker(WorkerTool { name: own, .. })) => {
                preset(own).map_or(own == name, |names| names.contains(&name))
            }
            ToolEntry::Declared(DeclaredTool::Http(tool)) => tool.name == name,
            ToolEntry::Declared(DeclaredTool::External(tool)) => tool.name == name,
            ToolEntry::Declared(DeclaredTool::Mcp(tools)) => {
                let same = |own: &ToolEntry| {
                    matches!(own, ToolEntry::Declared(DeclaredTool::Mcp(own))
                        if own.server == tools.server && own.prefix == tools.prefix)
                };
                let from_there = self.entry(name).is_some_and(same);
                from_there || (name.starts_with(&tools.prefix) && !self.tools.iter().any(same))
            }
        }
    }
}

/// Whether `wanted` names the tool of its server that is known under this name.
fn named_in(wanted: &McpTools, prefix: &str, name: &str) -> bool {
    let remote = name.strip_prefix(prefix).unwrap_or(name);
    let names = wanted.tools.as_ref();
    names.is_none_or(|names| names.iter().any(|one| one == remote))
}

impl ToolEntry {
    /// Whether a person has to approve each call.
    fn approval(&self) -> bool {
        match self {
            Self::Named(_) => false,
            Self::Declared(DeclaredTool::Http(tool)) => tool.approval,
            Self::Declared(DeclaredTool::External(tool)) => tool.approval,
            Self::Declared(DeclaredTool::Mcp(tools)) => tools.approval,
            Self::Declared(DeclaredTool::Worker(tool)) => tool.approval,
        }
    }

    /// What people call it by.
    fn label(&self) -> &str {
        match self {
            Self::Named(name) => name,
            Self::Declared(DeclaredTool::Http(tool)) => &tool.name,
            Self::Declared(DeclaredTool::External(tool)) => &tool.name,
            Self::Declared(DeclaredTool::Mcp(tools)) => &tools.server,
            Self::Declared(DeclaredTool::Worker(tool)) => &tool.name,
        }
    }

    /// Whether a call through `other` reaches what a call through this one reaches. A name alone
    /// means whatever this is.
    fn reaches_as(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Named(_) | Self::Declared(DeclaredTool::Worker(_)))
            | (
                Self::Declared(DeclaredTool::External(_)),
                Self::Declared(DeclaredTool::External(_)),
            ) => true,
            (
                Self::Declared(DeclaredTool::Http(own)),
                Self::Declared(DeclaredTool::Http(other)),
            ) => own.url == other.url,
            (Self::Declared(DeclaredTool::Mcp(own)), Self::Declared(DeclaredTool::Mcp(other))) => {
                own.server == other.server
            }
            (_, Self::Declared(_)) => false,
        }
    }

    /// The entry for this one of its tools, with approval.
    fn guarded(&self, name: &str) -> Self {
        let mut guarded = self.clone();
        match &mut guarded {
            Self::Named(_) => {
                guarded = Self::Declared(DeclaredTool::Worker(WorkerTool {
                    name: name.to_owned(),
                    approval: true,
                    pool: None,
                    extra: Extra::default(),
                }));
            }
            Self::Declared(DeclaredTool::Http(tool)) => tool.approval = true,
            Self::Declared(DeclaredTool::External(tool)) => tool.approval = true,
            Self::Declared(DeclaredTool::Mcp(tools)) => tools.approval = true,
            Self::Declared(DeclaredTool::Worker(tool)) => {
                name.clone_into(&mut tool.name);
                tool.approval = true;
            }
        }
        guarded
    }
}

#[cfg(test)]
mod tests;
