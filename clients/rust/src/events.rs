//! Streams of events, over as many connections and servers as it takes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use serde_json::Value;
use tokio::time::timeout;

use crate::attempts::Attempts;
use crate::call::{Caller, failed};
use crate::clock;
use crate::error::{ApiError, Error, Kind};
use crate::send::{Answer, Read, answer};
use crate::sse::{Lines, Raw};
use crate::text::Text;
use crate::transport::{Arrival, Body, TransportError};
use crate::types::{SendEvent, SendView};

/// Streams say something every 15 seconds.
const SILENCE_MAX: Duration = Duration::from_secs(45);

const FINAL: [&str; 3] = ["completed", "failed", "cancelled"];

/// Events of something, from its beginning or after a cursor. Only the last event ends it.
#[derive(Debug)]
struct Events {
    caller: Arc<Caller>,
    path: String,
    cursor: Option<String>,
    connections: u32,
    /// Whether there is a last event.
    ends: bool,
    attempts: Attempts,
    lines: Lines,
    ready: VecDeque<Raw>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Not connected; to be connected after this pause.
    Away(Duration),
    Open(Body),
    Ended,
}

impl Events {
    fn new(caller: Arc<Caller>, path: String, after: Option<&str>, ends: bool) -> Self {
        let patience = caller.settings.timeout;
        let attempts = Attempts::new(None, Some(patience), patience, caller.settings.first_pause);
        Self {
            caller,
            path,
            cursor: after.map(str::to_owned),
            connections: 0,
            ends,
            attempts,
            lines: Lines::default(),
            ready: VecDeque::new(),
            state: State::Away(Duration::ZERO),
        }
    }

    /// The next event. May be dropped while it waits.
    async fn next(&mut self) -> Result<Option<Raw>, Error> {
        loop {
            if let Some(raw) = self.ready.pop_front() {
                self.cursor = raw.id.clone().or(self.cursor.take());
                let noun = raw.event.split_once('.');
                let is_last = noun.is_some_and(|(noun, end)| {
                    ["send", "run"].contains(&noun) && FINAL.contains(&end)
                });
                if self.ends && is_last {
                    self.ready.clear();
                    self.state = State::Ended;
                }
                return Ok(Some(raw));
            }
            match &mut self.state {
                State::Ended => return Ok(None),
                State::Away(pause) => {
                    if !pause.is_zero() {
                        clock::sleep(*pause).await;
                        self.state = State::Away(Duration::ZERO);
                    }
                    self.connect().await?;
                }
                State::Open(body) => {
                    let chunk = timeout(SILENCE_MAX, body.chunk()).await;
                    self.take(chunk.unwrap_or_else(|_| Some(Err(TransportError::late()))))?;
                }
            }
        }
    }

    async fn connect(&mut self) -> Result<(), Error> {
        let opened = self
            .caller
            .open(&self.path, self.cursor.as_deref(), &mut self.attempts);
        self.state = match opened.await? {
            // Nothing comes after the cursor.
            Ok(answer) if answer.status.as_u16() == 204 => State::Ended,
            Ok(answer) => {
                self.connections += 1;
                self.lines = Lines::default();
                State::Open(answer.body)
            }
            Err(pause) => State::Away(pause),
        };
        Ok(())
    }

    fn take(&mut self, chunk: Option<Result<bytes::Bytes, TransportError>>) -> Result<(), Error> {
        let error = match chunk {
            Some(Ok(chunk)) => {
                self.attempts.succeeded();
                let fed = self.lines.feed(&chunk);
                self.ready
                    .extend(fed.map_err(|malformed| unexpected(&self.path, &malformed.0))?);
                return Ok(());
            }
            Some(Err(error)) => error,
            None => TransportError {
                message: "the stream ended before its last event".to_owned(),
                arrival: Arrival::Unknown,
            },
        };
        self.state = State::Away(failed(&mut self.attempts, &error, true)?);
        Ok(())
    }
}

fn unexpected(path: &str, why: &str) -> Error {
    let detail = format!("the events of {path} cannot be read: {why}");
    ApiError::made(Kind::Unexpected, "client.unexpected", 200, detail).into()
}

/// An event of a send or a session.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// Where another reader goes on behind it; `None` for live events, which are not kept.
    pub cursor: Option<String>,
    /// What happens.
    pub data: SendEvent,
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RunEvent {
    /// `node.STATE`, `run.STATUS` or `run.progress`.
    pub name: String,
    /// Where another reader goes on behind it.
    pub cursor: Option<String>,
    /// A node, or the run's status, counts and result.
    pub data: Value,
}

/// A piece of an answer's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextPiece {
    /// The text.
    pub text: String,
    /// Whether it stands for everything before it, because a worker died or another round began.
    pub replace: bool,
}

/// The events of a send, or of all sends of a session.
///
/// It connects again, to whichever scheduler is there, whenever its connection breaks or ends without the last event, and goes
/// on behind what it has given. To drop it is to detach: the send goes on.
#[derive(Debug)]
pub struct SendStream<T> {
    events: Events,
    text: Text,
    connections: u32,
    piece: Option<TextPiece>,
    last: Option<Box<SendView>>,
    read: Read<T>,
}

impl<T> SendStream<T> {
    pub(crate) fn new(
        caller: Arc<Caller>,
        path: String,
        after: Option<&str>,
        ends: bool,
        read: Read<T>,
    ) -> Self {
        Self {
            events: Events::new(caller, path, after, ends),
            text: Text::default(),
            connections: 0,
            piece: None,
            last: None,
            read,
        }
    }

    /// The next event; `None` after the last one. May be dropped while it waits: no event is lost.
    pub async fn next(&mut self) -> Result<Option<Event>, Error> {
        let Some(raw) = self.events.next().await? else {
            return Ok(None);
        };
        if self.connections < self.events.connections {
            self.connections = self.events.connections;
            self.text.reconnected();
        }
        let data = SendEvent::read(&raw.event, raw.data);
        let data = data.map_err(|error| unexpected(&self.events.path, &error.to_string()))?;
        self.piece = self.text.feed(&data);
        if let SendEvent::SendCompleted(send)
        | SendEvent::SendFailed(send)
        | SendEvent::SendCancelled(send) = &data
        {
            self.last = Some(send.clone());
        }
        Ok(Some(Event {
            cursor: raw.id,
            data,
        }))
    }

    /// The next piece of the answer's text; `None` after the last event.
    pub async fn next_piece(&mut self) -> Result<Option<TextPiece>, Error> {
        while self.next().await?.is_some() {
            if let Some(piece) = self.piece.take() {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    /// The text of the answer so far: what has become void is not in it.
    pub fn text(&self) -> &str {
        &self.text.shown
    }

    /// The last durable event that was read: where another reader goes on, with [`stream_after`].
    ///
    /// [`stream_after`]: crate::SendHandle::stream_after
    pub fn cursor(&self) -> Option<&str> {
        self.events.cursor.as_deref()
    }

    /// How often it was connected.
    pub fn connections(&self) -> u32 {
        self.events.connections
    }

    /// Reads to the end, and returns the answer: an error if the send failed or was cancelled.
    pub async fn answer(&mut self) -> Result<Answer<T>, Error> {
        while self.next().await?.is_some() {}
        match &self.last {
            Some(send) => answer(send.clone(), self.read),
            None => Err(Error::Setup(
                "the last event was not read by this stream: ask the send itself".to_owned(),
            )),
        }
    }

    /// The same as a [`Stream`], which ends after the last event or an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<Event, Error>> + Send
    where
        T: 'static,
    {
        futures::stream::unfold(Some(self), |stream| async {
            let mut stream = stream?;
            match stream.next().await {
                Ok(event) => Some((Ok(event?), Some(stream))),
                Err(error) => Some((Err(error), None)),
            }
        })
    }
}

/// The events of a run; what [`SendStream`] says of connections holds here, too.
#[derive(Debug)]
pub struct RunStream(Events);

impl RunStream {
    pub(crate) fn new(caller: Arc<Caller>, path: String, after: Option<&str>) -> Self {
        Self(Events::new(caller, path, after, true))
    }

    /// The next event; `None` after the last one. May be dropped while it waits: no event is lost.
    pub async fn next(&mut self) -> Result<Option<RunEvent>, Error> {
        let raw = self.0.next().await?;
        Ok(raw.map(|raw| RunEvent {
            name: raw.event,
            cursor: raw.id,
            data: raw.data,
        }))
    }

    /// The last event that was read.
    pub fn cursor(&self) -> Option<&str> {
        self.0.cursor.as_deref()
    }
}
