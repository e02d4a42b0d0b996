//! The cells of isolated agents: one child per send, which makes every call that reaches beyond the
//! database.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::time::Clock;
use mainspring_shared::tool::{DeclaredTool, Repeat};
use tokio_util::sync::CancellationToken;

use super::frame::{FromChild, WireTool};
use super::outside::{Outside, WireCell};
use super::process::Question;
use super::{CallNotMade, ChildRole, Isolated, Jail, START_WAIT};
use crate::http::Caller;
use crate::skills::{self, Shelf, WithSkillFiles};
use crate::web::{self, WebSettings};
use mainspring_worker::tool::{
    Away, Cell, CellOwner, Invocation, Isolator, NoCell, Output, Tool, ToolError, ToolSpec, Traits,
};

/// State that the cells of a worker share.
#[derive(Debug)]
pub(crate) struct Cells {
    pub(crate) jail: Arc<Jail>,
    /// The worker's tools that run in cells, by name.
    pub(crate) named: BTreeMap<String, Arc<dyn Tool>>,
    /// The tool that places skill files, if there is a workspace.
    pub(crate) placing: Option<Arc<dyn Tool>>,
    pub(crate) shelf: Option<Arc<Shelf>>,
    pub(crate) outside: Outside,
    /// Describes HTTP tools; makes no calls.
    pub(crate) caller: Caller,
    /// How pages of the web are read.
    pub(crate) web: Option<WebSettings>,
    /// Memory limit in bytes of each process of a cell.
    pub(crate) memory: u64,
}

/// Gives sends their cells.
#[derive(Debug)]
pub(crate) struct Isolating {
    pub(crate) cells: Arc<Cells>,
    pub(crate) clock: Arc<dyn Clock>,
}

#[async_trait]
impl Isolator for Isolating {
    async fn cell(&self, owner: CellOwner, agent: &AgentSpec) -> Result<Arc<dyn Cell>, NoCell> {
        let cells = self.cells.clone();
        let refused = |detail: &str| NoCell::Start {
            detail: detail.to_owned(),
        };
        let tenant = owner.session.tenant;
        let secrets = cells.outside.caller.vault.of_agent(agent, tenant).await;
        let secrets = secrets.map_err(|why| refused(&why))?;
        let own = (tenant, secrets);
        let mut wire = WireCell::of(&cells.outside, agent, own, cells.memory);
        if agent.tools.iter().any(|entry| entry.is_named(web::FETCH)) {
            wire.web.clone_from(&cells.web);
        }
        let wire = Arc::new(wire);
        let stop = CancellationToken::new();
        let child = tokio::select! {
            child = cells.jail.child(owner, &stop, Some(&wire)) => child,
            () = self.clock.sleep(START_WAIT) => {
                return Err(NoCell::Busy);
            }
        };
        let child = child.map_err(|error| match error {
            CallNotMade::Reply(error) => refused(&error.to_string()),
            CallNotMade::NoStart => refused("the worker's log says why"),
        })?;
        if !child.begun().await {
            return Err(refused(
                "it ended before it began; the worker's log says why",
            ));
        }
        Ok(Arc::new(SendCell { cells, owner, wire }))
    }
}

/// The cell of one send.
#[derive(Debug)]
struct SendCell {
    cells: Arc<Cells>,
    owner: CellOwner,
    wire: Arc<WireCell>,
}

impl SendCell {
    fn isolated(&self, inner: Arc<dyn Tool>, declared: Option<&DeclaredTool>) -> Arc<dyn Tool> {
        Arc::new(Isolated {
            inner,
            jail: self.cells.jail.clone(),
            role: ChildRole::Cell {
                wire: self.wire.clone(),
                declared: declared.cloned().map(Box::new),
            },
        })
    }

    /// The shelf, with its files placed from within the cell.
    fn shelf(&self) -> Option<Arc<Shelf>> {
        let placing = self.cells.placing.clone()?;
        let shelf = self.cells.shelf.as_ref()?;
        Some(Arc::new(shelf.placed_by(self.isolated(placing, None))))
    }

    /// Asks the child which tools an entry stands for.
    async fn listed(&self, declared: &DeclaredTool) -> Result<Vec<WireTool>, (String, String)> {
        let which = || match declared {
            DeclaredTool::Mcp(wanted) => format!("those of the MCP server {}", wanted.server),
            DeclaredTool::Http(_) | DeclaredTool::External(_) | DeclaredTool::Worker(_) => {
                "tools of another kind".to_owned()
            }
        };
        let stop = CancellationToken::new();
        let question = || Question::List(declared);
        let asked = self
            .cells
            .jail
            .ask(self.owner, &stop, Some(&self.wire), question);
        let (_child, mut asked) = asked.await.map_err(|why| (which(), why.to_string()))?;
        match asked.answer().await {
            Some(FromChild::Listed { tools, .. }) => Ok(tools),
            Some(FromChild::Away { which, why, .. }) => Err((which, why)),
            Some(_) => Err((which(), "the process answers something else".to_owned())),
            None => Err((which(), "the process ended".to_owned())),
        }
    }
}

#[async_trait]
impl Cell for SendCell {
    fn named(&self, name: &str) -> Option<Arc<dyn Tool>> {
        let shelf = self.shelf();
        if name == skills::READ {
            return shelf.map(|shelf| skills::reader(&shelf));
        }
        let inner = self.isolated(self.cells.named.get(name)?.clone(), None);
        Some(match shelf {
            Some(shelf) => Arc::new(WithSkillFiles { inner, shelf }),
            None => inner,
        })
    }

    async fn declared(&self, declared: &DeclaredTool) -> Option<Result<Vec<Arc<dyn Tool>>, Away>> {
        match declared {
            DeclaredTool::Http(tool) => {
                let inner = self.cells.caller.tool(tool);
                Some(Ok(vec![self.isolated(inner, Some(declared))]))
            }
            DeclaredTool::Mcp(_) => {
                let made = |tool| self.isolated(Arc::new(Described::of(tool)), Some(declared));
                let listed = self.listed(declared).await;
                let tools = listed.map(|tools| tools.into_iter().map(made).collect());
                Some(tools.map_err(|(which, why)| Away { which, why }))
            }
            DeclaredTool::External(_) | DeclaredTool::Worker(_) => None,
        }
    }
}

/// A tool that only the child has.
#[derive(Debug)]
struct Described {
    spec: ToolSpec,
    traits: Traits,
}

impl Described {
    fn of(tool: WireTool) -> Self {
        Self {
            spec: ToolSpec {
                name: tool.name,
                description: tool.description,
                parameters: tool.parameters,
            },
            traits: Traits {
                timeout: tool.timeout,
                ..Traits::new(tool.repeat)
            },
        }
    }
}

/// A tool's description, as its worker needs it.
pub(super) fn described(tool: &dyn Tool) -> WireTool {
    let (spec, traits) = (tool.spec(), tool.traits());
    let repeat: Repeat = traits.repeat;
    WireTool {
        name: spec.name,
        description: spec.description,
        parameters: spec.parameters,
        repeat,
        timeout: traits.timeout,
    }
}

#[async_trait]
impl Tool for Described {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn traits(&self) -> Traits {
        self.traits
    }

    async fn call(&self, _: Invocation) -> Result<Output, ToolError> {
        Err(ToolError::reply("the tool is in another process"))
    }
}
