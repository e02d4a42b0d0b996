//! What an agent passes on to the agents that it starts: children, and the leaves of its runs.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    AgentName, AgentQuery, AgentSpec, Bound, ContextSpec, Isolation, MemorySpec, NotesSpec,
    Recovery, SendOptions,
};
use crate::skill::AgentSkill;
use crate::stored::Extra;
use crate::tool::{DeclaredTool, McpTools, ToolEntry, WorkerTool, preset};

/// The tools and settings of one send that the agents it starts inherit. Tools are passed on as
/// declared, with their URLs, schemas, pools and approvals, never as bare names: heirs can only
/// narrow them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Delegation {
    /// The agent's list of tools.
    tools: Vec<ToolEntry>,
    /// The tools on offer in the send, by name, with the index of the entry in `tools` that offers it.
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
    /// The published agent that pays for model calls of agents defined inline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payer: Option<AgentName>,
}

/// Why an entry of a tool list is not granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotGranted {
    /// No tool of this name is on offer.
    #[error("the caller has no tool {0:?}")]
    Unknown(String),
    /// The name is granted, but refers to a different tool.
    #[error("{0:?} is already a different tool of the caller and cannot be redeclared")]
    Other(String),
}

impl Delegation {
    /// What a send of this agent passes on. `granted` are the tools on offer in it: each name with
    /// the index of its entry in the agent's list.
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

    /// Sets the memory that is granted to heirs.
    #[must_use]
    pub fn with_memory(self, memory: Option<MemorySpec>) -> Self {
        Self { memory, ..self }
    }

    /// The names that are on offer.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.granted.keys().map(String::as_str)
    }

    /// The heir's agent: with the inherited settings, and those of the tools that are wanted, or
    /// all if `wanted` is `None`. A redeclared tool remains the granted one; the redeclaration can
    /// add an approval, but not remove one.
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
        // Of two entries with the same name, the first one wins.
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

    /// The skills that are passed on.
    pub fn skills(&self) -> &[AgentSkill] {
        &self.skills
    }

    /// Whether a published agent may be started.
    pub fn allows(&self, agent: &AgentQuery) -> bool {
        self.agents.iter().any(|own| own.covers(agent))
    }

    /// A published agent as started here: without any tool, published agent or board that its
    /// starter does not have, on the same workers, and at least as isolated.
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
            // Its own namespace could be chosen by metadata that a model writes.
            memory: heir.memory,
            board: heir.board,
            pool: heir.pool,
            isolation: agent.isolation.stricter(heir.isolation),
            ..agent
        }
    }

    /// Checks whether an heir may have this entry in its tool list.
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

    /// The tool names that an agent started earlier may use in a send started now: those that it
    /// has exactly as granted here, or more strictly guarded.
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

    /// The granted names that an entry refers to.
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

    /// Whether an entry of another agent's list offers a tool of this name. Only an MCP server
    /// knows its tools' names: an entry for a server may offer anything that starts with its
    /// prefix, unless this agent has the same entry and gets the name from elsewhere.
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

/// Whether `wanted` includes its server's tool that is known by this name.
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

    /// Its name in messages.
    fn label(&self) -> &str {
        match self {
            Self::Named(name) => name,
            Self::Declared(DeclaredTool::Http(tool)) => &tool.name,
            Self::Declared(DeclaredTool::External(tool)) => &tool.name,
            Self::Declared(DeclaredTool::Mcp(tools)) => &tools.server,
            Self::Declared(DeclaredTool::Worker(tool)) => &tool.name,
        }
    }

    /// Whether a call through `other` reaches the same target as a call through this entry. A bare
    /// name refers to whatever this entry is.
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

    /// The entry for only this one of its tools, requiring approval.
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
