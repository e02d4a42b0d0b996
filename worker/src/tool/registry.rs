//! The tools that a worker has, by name, and how an agent's list becomes what its model is offered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::tool::schema::{self, Schema};
use mainspring_shared::tool::{DeclaredTool, Repeat, ToolEntry};

use super::offer::{Offer, Offers, Place};
use super::{Tool, ToolSpec, Traits};
use crate::tools::{self, http, mcp};

/// The tools that a worker has.
#[derive(Debug, Default)]
pub struct Tools {
    named: BTreeMap<String, Arc<dyn Tool>>,
    http: http::Caller,
    mcp: mcp::Pool,
}

/// A tool that cannot be entered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolsError {
    /// The name is taken.
    #[error("there is a tool named {name:?} already")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// The schema of its arguments is none.
    #[error("the parameters of {name:?}: {detail}")]
    Parameters {
        /// The tool.
        name: String,
        /// What is wrong.
        detail: String,
    },
    /// The settings of the built-in tools ask for what cannot be.
    #[error("the built-in tools: {detail}")]
    Settings {
        /// What cannot be.
        detail: String,
    },
}

impl Tools {
    /// No tools but those that agents declare: over HTTP by this caller, and of these MCP servers.
    pub fn new(http: http::Caller, mcp: mcp::Pool) -> Self {
        Self {
            named: BTreeMap::new(),
            http,
            mcp,
        }
    }

    /// Enters a tool that agents may name.
    pub fn insert(&mut self, tool: Arc<dyn Tool>) -> Result<(), ToolsError> {
        let ToolSpec {
            name, parameters, ..
        } = tool.spec();
        if let Err(detail) = schema::check_parameters(&parameters) {
            return Err(ToolsError::Parameters { name, detail });
        }
        if self.named.contains_key(&name) || tools::RESERVED.contains(&name.as_str()) {
            return Err(ToolsError::Duplicate { name });
        }
        self.named.insert(name, tool);
        Ok(())
    }

    /// The names that agents may use.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    /// What an agent's model is offered, in the order of the agent's list; narrowed to `only`,
    /// where given. What a list names and this worker lacks is left out: a call of it is answered
    /// `tool.not_found`.
    pub(crate) async fn offers(&self, agent: &AgentSpec, only: Option<&[String]>) -> Offers {
        let mut offers = Gathered::default();
        for entry in &agent.tools {
            match entry {
                ToolEntry::Named(name) => match tools::preset(name) {
                    Some(names) => {
                        for name in names {
                            self.named(&mut offers, name);
                        }
                    }
                    None => self.named(&mut offers, name),
                },
                ToolEntry::Declared(declared) => self.declared(&mut offers, declared).await,
            }
        }
        for only in [agent.allow.as_deref(), only].into_iter().flatten() {
            offers.list.retain(|offer| only.contains(&offer.spec.name));
        }
        Offers::new(offers.list)
    }

    fn named(&self, offers: &mut Gathered, name: &str) {
        if let Some(offer) = tools::outside(name) {
            offers.add(Some(offer));
        } else if let Some(tool) = self.named.get(name) {
            offers.add_tool(tool.clone(), false);
        } else {
            tracing::debug!(tool.name = name, "an agent names a tool that is not here");
        }
    }

    async fn declared(&self, offers: &mut Gathered, declared: &DeclaredTool) {
        match declared {
            DeclaredTool::Http(tool) => {
                offers.add_tool(self.http.tool(tool), tool.approval);
            }
            DeclaredTool::External(tool) => {
                let spec = ToolSpec {
                    name: tool.name.clone(),
                    description: tool.description.clone(),
                    parameters: tool.parameters.clone(),
                };
                let deadline = tool.deadline.map(|span| span.0);
                offers.add(outside(spec, WaitingOn::Tool, deadline, tool.approval));
            }
            DeclaredTool::Mcp(wanted) => match self.mcp.tools(wanted).await {
                Ok(tools) => {
                    for tool in tools {
                        offers.add_tool(tool, wanted.approval);
                    }
                }
                Err(error) => {
                    tracing::warn!(mcp.server = wanted.server, %error, "no tools of this server");
                }
            },
        }
    }
}

/// An offer of something that is done outside.
pub(crate) fn outside(
    spec: ToolSpec,
    on: WaitingOn,
    deadline: Option<Duration>,
    approval: bool,
) -> Option<Offer> {
    let schema = Schema::compile(&spec.parameters).ok()?;
    Some(Offer {
        spec,
        schema,
        traits: Traits::new(Repeat::Keyed),
        approval,
        place: Place::Outside { on, deadline },
    })
}

/// Offers under way: the first of a name counts.
#[derive(Debug, Default)]
struct Gathered {
    names: BTreeSet<String>,
    list: Vec<Offer>,
}

impl Gathered {
    fn add_tool(&mut self, tool: Arc<dyn Tool>, approval: bool) {
        let spec = tool.spec();
        let offer = Schema::compile(&spec.parameters).map(|schema| Offer {
            schema,
            traits: tool.traits(),
            approval,
            place: Place::Here(tool),
            spec,
        });
        self.add(offer.ok());
    }

    fn add(&mut self, offer: Option<Offer>) {
        if let Some(offer) = offer
            && self.names.insert(offer.spec.name.clone())
        {
            self.list.push(offer);
        }
    }
}
