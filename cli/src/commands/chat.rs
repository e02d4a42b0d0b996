//! `mainspring chat`
//!
//! The session's events are subscribed to before anything is sent, so that no piece of an answer is
//! missed. While an answer arrives, lines are still read: they answer the agent's questions, or
//! wait for their turn.

mod editor;
mod input;
mod questions;

use std::collections::VecDeque;
use std::time::Duration;

use mainspring_shared::time::Clock;
use serde_json::{Value, json};

use self::input::Input;
use self::questions::Questions;
use super::answer::Answer;
use super::{follow, send};
use crate::args::{ChatArgs, Format};
use crate::client::{Client, Event, Events, Request};
use crate::failure::{Exit, Failure};
use crate::output;

/// How often to look for the agent's questions while its send waits.
const LOOK: Duration = Duration::from_millis(500);

/// Looks without any event after which a sign of life is shown.
const SILENT: u32 = 4;

const HELP: &str = "\
Each line is sent to the agent; if it asks a question, the next line answers. Alt-Enter, or \\ and Enter, begins a new
line of the same message; what is pasted is one message.
  /help     shows this
  /session  shows the session's id
  /quit     ends the chat, as Ctrl-D does; the session stays
Arrow keys edit the line and recall earlier ones. Ctrl-C stops the current answer. Start a message that begins with / with a second /.";

pub(crate) async fn run(args: &ChatArgs, client: Client) -> Result<(), Failure> {
    let input = Input::new();
    let attended = input.is_attended();
    if attended {
        output::note(
            "Type a message and press Enter. Ctrl-C stops an answer, Ctrl-D ends the chat; /help.",
        );
    }
    let mut chat = Chat {
        choices: send::choices(&args.agent)?,
        options: json!({}),
        client,
        attended,
        input,
        typed: VecDeque::new(),
        over: false,
        session: None,
    };
    let result = chat.run(args.session.as_deref()).await;
    if let Some((session, _)) = chat.session {
        output::note(&format!("`mainspring chat --session {session}` continues"));
    }
    result
}

struct Chat {
    client: Client,
    /// Settings for the agent of a new session.
    choices: send::Choices,
    /// Options for each send to an existing session.
    options: Value,
    /// Whether a person is at the terminal.
    attended: bool,
    input: Input,
    /// Lines typed while something else was being answered.
    typed: VecDeque<String>,
    /// The input has ended.
    over: bool,
    session: Option<(String, Events)>,
}

/// What can happen besides a send's events.
enum SideEvent {
    Line(Option<String>),
    Interrupt,
    Time,
}

impl Chat {
    async fn run(&mut self, session: Option<&str>) -> Result<(), Failure> {
        if let Some(session) = session {
            self.options = self.choices.options()?;
            if let Some(open) = self.enter(session).await? {
                let ended = self.follow(&open).await;
                self.settle(ended)?;
            }
        }
        while let Some(line) = self.next_line().await? {
            let line = line.trim_end_matches('\r');
            let text = match line.trim() {
                "" => continue,
                "/quit" | "/exit" => break,
                "/help" => {
                    output::note(HELP);
                    continue;
                }
                "/session" => {
                    let id = self.session.as_ref().map(|(id, _)| id.as_str());
                    output::note(id.unwrap_or("none yet: the first message creates one"));
                    continue;
                }
                word if word.starts_with('/') && !word.starts_with("//") => {
                    output::note(&format!("unknown command {word}; /help lists the commands"));
                    continue;
                }
                _ => line.strip_prefix('/').unwrap_or(line),
            };
            let said = self.say(text).await;
            self.settle(said)?;
        }
        Ok(())
    }

    /// A person can decide what to do after a failure; a script cannot.
    fn settle(&self, result: Result<(), Failure>) -> Result<(), Failure> {
        match result {
            Err(failure) if self.attended && failure.exit != Exit::NotFound => {
                failure.report(Format::Table);
                Ok(())
            }
            other => other,
        }
    }

    /// The next line; `None` at the end of the input, or if the prompt is interrupted.
    async fn next_line(&mut self) -> Result<Option<String>, Failure> {
        if let Some(line) = self.typed.pop_front() {
            return Ok(Some(line));
        }
        if self.over {
            return Ok(None);
        }
        self.input.prompted().await
    }

    /// Listens to an existing session from its current state on; returns its unfinished send, if
    /// any.
    async fn enter(&mut self, session: &str) -> Result<Option<String>, Failure> {
        let request = Request::get("/v1/sends")
            .query("session_id", Some(session))
            .query("limit", Some(1));
        let mut listed = self.client.ask(request).await?;
        let newest = listed["data"].get_mut(0).map(Value::take);
        let newest = newest.unwrap_or_default();
        let mut after = None;
        let mut open = None;
        if follow::is_final(&newest) {
            // The send's last event marks the current position of the session.
            let path = format!("/v1/sends/{}/events", follow::id(&newest));
            let mut told = Events::new(&self.client, path, None);
            while let Some(event) = told.next().await? {
                after = event.id.or(after);
            }
        } else if newest.is_object() {
            open = Some(follow::id(&newest).to_owned());
        } else {
            // A session without sends, or one that does not exist, which this request reports.
            let path = format!("/v1/sessions/{session}");
            self.client.ask(Request::get(path)).await?;
        }
        self.listen(session, after).await?;
        Ok(open)
    }

    async fn listen(&mut self, session: &str, after: Option<String>) -> Result<(), Failure> {
        let path = format!("/v1/sessions/{session}/events");
        let mut events = Events::new(&self.client, path, after);
        events.open().await?;
        self.session = Some((session.to_owned(), events));
        Ok(())
    }

    /// Sends one line and shows the answer.
    async fn say(&mut self, text: &str) -> Result<(), Failure> {
        if self.session.is_none() {
            let request = Request::post("/v1/sessions").body(self.choices.session());
            let made = self
                .client
                .ask(request.key(self.client.fresh_key()))
                .await?;
            self.listen(follow::id(&made), None).await?;
        }
        let Some((session, _)) = &self.session else {
            return Ok(());
        };
        let request = send::in_session(text, session, &self.options);
        let accepted = self
            .client
            .ask(request.key(self.client.fresh_key()))
            .await?;
        self.follow(follow::id(&accepted)).await
    }

    /// Shows a send's events until its end, and keeps reading lines meanwhile.
    async fn follow(&mut self, send: &str) -> Result<(), Failure> {
        let mut under_way = UnderWay::new();
        loop {
            let event = {
                let Some((session, events)) = &mut self.session else {
                    return Ok(());
                };
                let next = events.next();
                tokio::pin!(next);
                loop {
                    let reads = !self.over && (self.attended || under_way.asks());
                    let meanwhile = tokio::select! {
                        event = &mut next => break event?,
                        meanwhile = side_event(&self.client, &mut self.input, reads) => {
                            meanwhile?
                        }
                    };
                    match meanwhile {
                        SideEvent::Line(Some(line)) if under_way.asks() => {
                            let questions = &mut under_way.questions;
                            questions.answer(&self.client, session, &line).await?;
                        }
                        SideEvent::Line(Some(line)) => {
                            output::note("[is sent after this answer]");
                            self.typed.push_back(line);
                        }
                        SideEvent::Line(None) => self.over = true,
                        SideEvent::Interrupt => {
                            let path = format!("/v1/sends/{send}/cancel");
                            self.client.ask(Request::post(path)).await?;
                        }
                        SideEvent::Time => {
                            under_way.look(&self.client, session, self.attended).await?;
                        }
                    }
                    if self.over && under_way.asks() {
                        return left(self.attended, send);
                    }
                }
            };
            match event {
                None => self.reconnect().await?,
                Some(event) if belongs(&event, send) => {
                    under_way.event(&event)?;
                    if event.is_final() {
                        return follow::verdict(&event.data);
                    }
                }
                Some(_) => {}
            }
        }
    }

    /// Reconnects after the server ended the event stream.
    async fn reconnect(&mut self) -> Result<(), Failure> {
        match &mut self.session {
            Some((_, events)) => events.reconnect().await,
            None => Ok(()),
        }
    }
}

/// The state of a send being followed.
struct UnderWay {
    answer: Answer,
    questions: Questions,
    /// Whether it waits for something external.
    waits: bool,
    /// Looks since its last event.
    silent: u32,
}

impl UnderWay {
    fn new() -> Self {
        Self {
            answer: Answer::new(output::is_terminal()),
            questions: Questions::default(),
            waits: false,
            silent: 0,
        }
    }

    /// Whether the next line answers a question.
    fn asks(&self) -> bool {
        self.questions.first().is_some()
    }

    fn event(&mut self, event: &Event) -> Result<(), Failure> {
        self.silent = 0;
        match event.name.as_str() {
            "send.waiting" => self.waits = true,
            "send.resumed" => {
                self.waits = false;
                self.questions.clear();
            }
            _ => {}
        }
        self.answer.event(event)
    }

    /// Called at intervals: shows open questions, or else that the agent is working.
    async fn look(
        &mut self,
        client: &Client,
        session: &str,
        attended: bool,
    ) -> Result<(), Failure> {
        self.silent += 1;
        if self.waits {
            return self.questions.look(client, session).await;
        }
        if self.silent == SILENT && attended && !self.answer.is_begun() {
            output::note("[works …]");
        }
        Ok(())
    }
}

async fn side_event(client: &Client, input: &mut Input, reads: bool) -> Result<SideEvent, Failure> {
    let attended = input.is_attended();
    tokio::select! {
        line = input.typed(), if reads => line.map(SideEvent::Line),
        _ = tokio::signal::ctrl_c(), if attended => Ok(SideEvent::Interrupt),
        () = client.clock.sleep(LOOK) => Ok(SideEvent::Time),
    }
}

/// Reports that nobody here will answer the agent's question.
fn left(attended: bool, send: &str) -> Result<(), Failure> {
    let next = format!("`mainspring sends answer {send} TEXT` answers it; the send waits");
    if attended {
        output::note(&next);
        return Ok(());
    }
    Err(Failure::new(Exit::Failure, "the agent asks, and the input has ended").next(next))
}

/// Whether an event of the session is about this send.
fn belongs(event: &Event, send: &str) -> bool {
    let data = &event.data;
    let of = if event.name.starts_with("send.") {
        &data["id"]
    } else {
        &data["send_id"]
    };
    of == send
}
