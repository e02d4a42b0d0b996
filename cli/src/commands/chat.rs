//! `mainspring chat`

use std::io::IsTerminal;

use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};

use super::answer::Answer;
use super::{follow, send};
use crate::args::ChatArgs;
use crate::client::{Client, Request};
use crate::failure::{Exit, Failure};
use crate::output;

pub(crate) async fn run(args: &ChatArgs, client: Client) -> Result<(), Failure> {
    let attended = std::io::stdin().is_terminal();
    if attended {
        output::note("Type a message and press Enter. Ctrl-C ends an answer, Ctrl-D the chat.");
    }
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut session = args.session.clone();
    let mut result = Ok(());
    while let Some(text) = next_line(&mut lines, attended).await? {
        if text.trim().is_empty() {
            continue;
        }
        result = say(args, &client, &mut session, &text).await;
        match &result {
            // Someone sits there and can decide; a script cannot.
            Err(failure) if attended && failure.exit != Exit::NotFound => {
                failure.report();
                result = Ok(());
            }
            Err(_) => break,
            Ok(()) => {}
        }
    }
    if let Some(session) = session {
        output::note(&format!("`mainspring chat --session {session}` continues"));
    }
    result
}

/// The next line; none at the end of the input, or when someone interrupts the prompt.
async fn next_line(
    lines: &mut Lines<BufReader<Stdin>>,
    attended: bool,
) -> Result<Option<String>, Failure> {
    if attended {
        // Not data, so not on stdout; and without a line's end, so not a note.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), b"> ");
    }
    tokio::select! {
        line = lines.next_line() => {
            line.map_err(|error| Failure::new(Exit::Failure, format!("stdin: {error}")))
        }
        _ = tokio::signal::ctrl_c(), if attended => Ok(None),
    }
}

/// Sends one line and shows the answer.
async fn say(
    args: &ChatArgs,
    client: &Client,
    session: &mut Option<String>,
    text: &str,
) -> Result<(), Failure> {
    let request = send::request(text, session.as_deref(), &args.agent);
    let accepted = client.ask(request.key(client.fresh_key())).await?;
    let id = follow::id(&accepted);
    *session = accepted["session_id"].as_str().map(str::to_owned);
    let mut answer = Answer::new(output::is_terminal());
    let mut watching =
        std::pin::pin!(follow::events(client, id, None, |event| answer.event(event)));
    let ended = tokio::select! {
        ended = &mut watching => ended?,
        _ = tokio::signal::ctrl_c() => {
            client.ask(Request::post(format!("/v1/sends/{id}/cancel"))).await?;
            watching.await?
        }
    };
    follow::verdict(&ended)
}
