//! The child's side: runs calls of the workspace tools until its input ends.

use std::collections::BTreeMap;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use mainspring_shared::error::Code;
use mainspring_shared::id::BootId;
use mainspring_shared::memory::Account;
use mainspring_shared::stored;
use mainspring_shared::time::Clock;
use mainspring_shared::tool::DeclaredTool;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::cell::described;
use super::frame::{Begin, FromChild, ToChild, line, next_line};
use crate::builtin::register;
use crate::http::Caller;
use crate::mcp::Pool;
use crate::settings::{Settings, WorkspaceSettings};
use mainspring_worker::tool::{
    Away, Inquiring, Invocation, Output, Skills, Tool, ToolError, ToolSource, Tools,
};

/// A question in progress, which resolves to its answer.
type Work = BoxFuture<'static, (u64, FromChild)>;

/// What a child runs calls with.
#[derive(Debug)]
struct Kit {
    tools: Tools,
    http: Option<Caller>,
    servers: Pool,
}

/// Runs calls that arrive over `input` and answers over `output`, until the input ends, which it
/// does with the worker, however that ends. Fails if the input makes no sense. In the child of an
/// isolated agent, `confine` limits the memory first.
pub async fn run(
    input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
    clock: Arc<dyn Clock>,
    confine: impl FnOnce(u64) -> io::Result<()>,
) -> io::Result<()> {
    let (mut input, mut held) = (BufReader::new(input), Vec::new());
    let Some(first) = next_line(&mut input, &mut held).await? else {
        return Ok(());
    };
    let begin: Begin = serde_json::from_slice(&first)?;
    if let Some(cell) = &begin.cell {
        confine(cell.memory)?;
    }
    let token = begin.token.clone();
    let kit = Arc::new(Kit::new(begin, clock)?);
    let ready = FromChild::Ready {
        token: token.clone(),
    };
    write(&mut output, &line(&ready)?).await?;
    let mut running: FuturesUnordered<Work> = FuturesUnordered::new();
    let mut stops: BTreeMap<u64, CancellationToken> = BTreeMap::new();
    loop {
        tokio::select! {
            next = next_line(&mut input, &mut held) => {
                let Some(next) = next? else { return Ok(()) };
                let stop = CancellationToken::new();
                if let Some((id, work)) = begun(&kit, &token, read(&next)?, (&stop, &stops))? {
                    stops.insert(id, stop);
                    running.push(work);
                }
            }
            Some((id, up)) = running.next(), if !running.is_empty() => {
                stops.remove(&id);
                let said = line(&up).or_else(|error| {
                    let refused = ToolError::reply(format!("the output cannot be given: {error}"));
                    line(&answer(&token, id, Err(refused)))
                });
                write(&mut output, &said?).await?;
            }
        }
    }
}

/// Parses a frame. What it says of an agent may have been stored by a newer release.
fn read(frame: &[u8]) -> io::Result<ToChild> {
    let text = std::str::from_utf8(frame).map_err(io::Error::other)?;
    Ok(stored::read(text)?)
}

/// Carries out a frame; returns the work that it asks for, if any.
fn begun(
    kit: &Arc<Kit>,
    token: &str,
    frame: ToChild,
    (stop, stops): (&CancellationToken, &BTreeMap<u64, CancellationToken>),
) -> io::Result<Option<(u64, Work)>> {
    let (kit, own) = (kit.clone(), token.to_owned());
    match frame {
        ToChild::Stop { token: given, id } => {
            known(token, &given)?;
            if let Some(stop) = stops.get(&id) {
                stop.cancel();
            }
            Ok(None)
        }
        ToChild::List {
            token: given,
            id,
            declared,
        } => {
            known(token, &given)?;
            let work = async move { (id, kit.list(own, id, &declared).await) };
            Ok(Some((id, work.boxed())))
        }
        ToChild::Call {
            token: given,
            id,
            tool,
            declared,
            call_id,
            arguments,
            said,
            session,
            send_id,
            attempt,
            asked,
        } => {
            known(token, &given)?;
            let invocation = Invocation {
                call_id,
                arguments: *arguments,
                said: said.map(Into::into),
                session,
                send_id,
                boot: BootId(Uuid::nil()),
                attempt,
                stop: stop.clone(),
                skills: Skills::default(),
                account: Account::default(),
                progress: mainspring_worker::tool::Progress::default(),
                kept: mainspring_worker::tool::Kept::default(),
                inquiring: asked
                    .map(|asked| Inquiring::new(&asked))
                    .unwrap_or_default(),
            };
            let work = async move {
                let called = kit.call(&tool, declared.as_deref(), invocation);
                let called = AssertUnwindSafe(called).catch_unwind().await;
                let called = called
                    .unwrap_or_else(|_| Err(ToolError::reply("the tool crashed because of a bug")));
                (id, answer(&own, id, called))
            };
            Ok(Some((id, work.boxed())))
        }
    }
}

impl Kit {
    fn new(begin: Begin, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let web = begin.cell.as_ref().and_then(|cell| cell.web.clone());
        let (http, servers) = match begin.cell {
            Some(cell) => cell.sources(&clock).map_err(io::Error::other)?,
            None => (None, Pool::default()),
        };
        let mut tools = Tools::default();
        let settings = Settings {
            // Its own directory is its whole workspace.
            workspace: begin.root.map(WorkspaceSettings::shared),
            shell: begin.shell.shell(),
            environment: begin.environment,
            limits: begin.limits,
            web,
            ..Settings::default()
        };
        register(settings, clock, &mut tools).map_err(io::Error::other)?;
        Ok(Self {
            tools,
            http,
            servers,
        })
    }

    /// The tools that an entry of the agent's list stands for.
    async fn declared(&self, declared: &DeclaredTool) -> Result<Vec<Arc<dyn Tool>>, Away> {
        let none = || Away {
            which: "tools of another kind".to_owned(),
            why: "the sandbox does not support calls of this kind".to_owned(),
        };
        match (declared, &self.http) {
            (DeclaredTool::Http(tool), Some(http)) => Ok(vec![http.tool(tool)]),
            (DeclaredTool::Mcp(_), _) => {
                let tools = ToolSource::tools(&self.servers, declared).await;
                tools.unwrap_or_else(|| Err(none()))
            }
            (
                DeclaredTool::Http(_) | DeclaredTool::External(_) | DeclaredTool::Worker(_),
                Some(_) | None,
            ) => Err(none()),
        }
    }

    async fn list(&self, token: String, id: u64, declared: &DeclaredTool) -> FromChild {
        match self.declared(declared).await {
            Ok(tools) => FromChild::Listed {
                token,
                id,
                tools: tools.iter().map(|tool| described(tool.as_ref())).collect(),
            },
            Err(Away { which, why }) => FromChild::Away {
                token,
                id,
                which,
                why,
            },
        }
    }

    async fn call(
        &self,
        name: &str,
        declared: Option<&DeclaredTool>,
        invocation: Invocation,
    ) -> Result<Output, ToolError> {
        let tool = match declared {
            None => self.tools.get(name),
            Some(declared) => {
                let tools = self.declared(declared).await;
                let tools = tools.map_err(|away| ToolError::reply(away.why))?;
                tools.into_iter().find(|tool| tool.spec().name == name)
            }
        };
        match tool {
            Some(tool) => tool.call(invocation).await,
            None => Err(ToolError::reply("the tool is not in the sandbox")),
        }
    }
}

fn known(token: &str, given: &str) -> io::Result<()> {
    if token == given {
        return Ok(());
    }
    Err(io::Error::other("a frame has another token"))
}

fn answer(token: &str, id: u64, called: Result<Output, ToolError>) -> FromChild {
    let token = token.to_owned();
    match called {
        Ok(Output {
            content,
            value,
            failed,
        }) => FromChild::Done {
            token,
            id,
            content,
            value,
            failed,
        },
        Err(ToolError::Reply { code, message }) => FromChild::Failed {
            token,
            id,
            code,
            message,
        },
        Err(ToolError::Asks(inquiry)) => FromChild::Asks { token, id, inquiry },
        Err(ToolError::Abort { message }) => FromChild::Aborted { token, id, message },
        // A child has no cell of its own that could be lost.
        Err(ToolError::Lost { message }) => FromChild::Failed {
            token,
            id,
            code: Code::ToolUnknownOutcome,
            message,
        },
    }
}

async fn write(output: &mut (impl AsyncWrite + Unpin), line: &[u8]) -> io::Result<()> {
    output.write_all(line).await?;
    output.flush().await
}
