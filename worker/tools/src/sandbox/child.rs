//! The child's side: makes calls of the workspace's tools until its input ends.

use std::collections::BTreeMap;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::stream::{FuturesUnordered, StreamExt as _};
use mainspring_shared::id::BootId;
use mainspring_shared::memory::Account;
use mainspring_shared::time::Clock;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::frame::{Begin, Down, Up, line, next_line};
use crate::builtin::register;
use crate::settings::{Settings, WorkspaceSettings};
use mainspring_worker::tool::{Invocation, Output, Skills, ToolError, Tools};

/// Makes calls as they come over `input` and answers over `output`, until the input ends: with the
/// worker, however it ends. Fails where what comes makes no sense.
pub async fn run(
    input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
    clock: Arc<dyn Clock>,
) -> io::Result<()> {
    let (mut input, mut held) = (BufReader::new(input), Vec::new());
    let Some(first) = next_line(&mut input, &mut held).await? else {
        return Ok(());
    };
    let begin: Begin = serde_json::from_slice(&first)?;
    let token = begin.token.clone();
    let tools = tools(begin, clock)?;
    let ready = Up::Ready {
        token: token.clone(),
    };
    write(&mut output, &line(&ready)?).await?;
    let mut running = FuturesUnordered::new();
    let mut stops: BTreeMap<u64, CancellationToken> = BTreeMap::new();
    loop {
        tokio::select! {
            next = next_line(&mut input, &mut held) => {
                let Some(next) = next? else { return Ok(()) };
                match serde_json::from_slice(&next)? {
                    Down::Stop { token: given, id } => {
                        known(&token, &given)?;
                        if let Some(stop) = stops.get(&id) {
                            stop.cancel();
                        }
                    }
                    Down::Call {
                        token: given, id, tool, call_id, arguments, session, send_id, attempt,
                    } => {
                        known(&token, &given)?;
                        let stop = CancellationToken::new();
                        stops.insert(id, stop.clone());
                        let invocation = Invocation {
                            call_id,
                            arguments,
                            session,
                            send_id,
                            boot: BootId(Uuid::nil()),
                            attempt,
                            stop,
                            skills: Skills::default(),
                            account: Account::default(),
                        };
                        let tool = tools.get(&tool);
                        running.push(async move {
                            let called = match tool {
                                Some(tool) => AssertUnwindSafe(tool.call(invocation)).catch_unwind().await,
                                None => Ok(Err(ToolError::reply("the tool is not in the sandbox"))),
                            };
                            (id, called)
                        });
                    }
                }
            }
            Some((id, called)) = running.next(), if !running.is_empty() => {
                stops.remove(&id);
                let called = called.unwrap_or_else(|_| {
                    Err(ToolError::reply("the tool broke off by a defect of its own"))
                });
                let said = line(&answer(&token, id, called)).or_else(|error| {
                    let refused = ToolError::reply(format!("the output cannot be given: {error}"));
                    line(&answer(&token, id, Err(refused)))
                });
                write(&mut output, &said?).await?;
            }
        }
    }
}

fn tools(begin: Begin, clock: Arc<dyn Clock>) -> io::Result<Tools> {
    let mut tools = Tools::default();
    let settings = Settings {
        // Its own directory is all that it has.
        workspace: Some(WorkspaceSettings::shared(begin.root)),
        shell: begin.shell.shell(),
        environment: begin.environment,
        background: None,
        launcher: None,
        skills: None,
        limits: begin.limits,
    };
    register(settings, clock, &mut tools).map_err(io::Error::other)?;
    Ok(tools)
}

fn known(token: &str, given: &str) -> io::Result<()> {
    if token == given {
        return Ok(());
    }
    Err(io::Error::other("a frame has another token"))
}

fn answer(token: &str, id: u64, called: Result<Output, ToolError>) -> Up {
    let token = token.to_owned();
    match called {
        Ok(Output {
            content,
            value,
            failed,
        }) => Up::Done {
            token,
            id,
            content,
            value,
            failed,
        },
        Err(ToolError::Reply { code, message }) => Up::Failed {
            token,
            id,
            code,
            message,
        },
        Err(ToolError::Abort { message }) => Up::Aborted { token, id, message },
    }
}

async fn write(output: &mut (impl AsyncWrite + Unpin), line: &[u8]) -> io::Result<()> {
    output.write_all(line).await?;
    output.flush().await
}
