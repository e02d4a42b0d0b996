//! A message on its way, and its answer.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::api::CancelSendQuery;
use crate::call::segment;
use crate::client::Client;
use crate::error::Error;
use crate::events::SendStream;
use crate::question::Question;
use crate::session::Session;
use crate::span::Span;
use crate::types::{
    AcceptedSend, Input, OnBusy, SendBody, SendOptions, SendStatus, SendView, Usage, WaitingOn,
};

/// How the value of an answer is read.
pub(crate) type Read<T> = fn(&SendView) -> Result<T, Error>;

/// The answer of a completed send.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Answer<T> {
    /// Its text.
    pub text: String,
    /// The value that was asked for; without an output, the text.
    pub output: T,
    /// The whole send.
    pub send: SendView,
}

impl<T> Answer<T> {
    /// What it took.
    pub fn usage(&self) -> &Usage {
        &self.send.usage
    }
}

pub(crate) fn answer<T>(send: Box<SendView>, read: Read<T>) -> Result<Answer<T>, Error> {
    match send.status {
        SendStatus::Failed => Err(Error::SendFailed(send)),
        SendStatus::Cancelled => Err(Error::SendCancelled(send)),
        _ => Ok(Answer {
            text: send.output_text.clone().unwrap_or_default(),
            output: read(&send)?,
            send: *send,
        }),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "other values may not fit")]
pub(crate) fn text_of(send: &SendView) -> Result<String, Error> {
    Ok(send.output_text.clone().unwrap_or_default())
}

pub(crate) fn value_of<T: DeserializeOwned>(send: &SendView) -> Result<T, Error> {
    let value = send.output.clone().unwrap_or_default();
    serde_json::from_value(value)
        .map_err(|error| Error::Mismatch(format!("the answer of {}: {error}", send.id)))
}

/// A message that is yet to be sent: await it.
#[derive(Debug)]
#[must_use = "a message is sent when this is awaited"]
pub struct SendBuilder<T> {
    session: Session,
    input: Input,
    options: SendOptions,
    key: Option<String>,
    read: Read<T>,
}

impl SendBuilder<String> {
    pub(crate) fn new(session: Session, input: Input) -> Self {
        Self {
            session,
            input,
            options: SendOptions::default(),
            key: None,
            read: text_of,
        }
    }
}

impl<T> SendBuilder<T> {
    /// Asks for an answer that fits this JSON Schema, of which the server makes sure, and reads it as `U`.
    pub fn output<U: DeserializeOwned>(mut self, schema: Value) -> SendBuilder<U> {
        self.options.output_schema = match schema {
            Value::Object(schema) => Some(schema),
            other => Some(Map::from_iter([("const".to_owned(), other)])),
        };
        SendBuilder {
            session: self.session,
            input: self.input,
            options: self.options,
            key: self.key,
            read: value_of,
        }
    }

    /// The same key always stands for the same send; without one, each call is another.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// The options, except for the schema of an [`output`](Self::output) that was asked for.
    pub fn options(mut self, options: SendOptions) -> Self {
        let output_schema = self.options.output_schema.take().or(options.output_schema);
        self.options = SendOptions {
            output_schema,
            ..options
        };
        self
    }

    /// The model, in place of the agent's.
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.options.model = Some(model.into());
        self
    }

    /// Maximum time from acceptance to the end.
    pub fn deadline(mut self, deadline: impl Into<Span>) -> Self {
        self.options.deadline = Some(deadline.into());
        self
    }

    /// What happens if the session is busy.
    pub fn on_busy(mut self, on_busy: OnBusy) -> Self {
        self.options.on_busy = Some(on_busy);
        self
    }
}

impl<T: Send + 'static> SendBuilder<T> {
    /// Sends it and waits for the answer.
    pub async fn wait(self) -> Result<Answer<T>, Error> {
        self.await?.wait().await
    }
}

impl<T: Send + 'static> IntoFuture for SendBuilder<T> {
    type Output = Result<SendHandle<T>, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let options = (self.options != SendOptions::default()).then_some(self.options);
            let body = SendBody {
                input: self.input,
                options,
            };
            let view = self.session.accept(body, self.key.as_deref()).await?;
            Ok(SendHandle::new(
                self.session.client().clone(),
                view.send_view.id,
                self.read,
            ))
        })
    }
}

/// A message on its way. It is an id, and may be made anew from it anywhere: [`Client::send_by_id`].
pub struct SendHandle<T> {
    client: Client,
    id: String,
    read: Read<T>,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for SendHandle<T> {
    fn clone(&self) -> Self {
        Self::new(self.client.clone(), self.id.clone(), self.read)
    }
}

impl<T> fmt::Debug for SendHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SendHandle").field(&self.id).finish()
    }
}

impl<T> SendHandle<T> {
    pub(crate) fn new(client: Client, id: String, read: Read<T>) -> Self {
        Self {
            client,
            id,
            read,
            of: PhantomData,
        }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The same, of which the answer's value is read as `U`.
    pub fn output<U: DeserializeOwned>(self) -> SendHandle<U> {
        SendHandle::new(self.client, self.id, value_of)
    }

    /// Where it stands.
    pub async fn get(&self) -> Result<SendView, Error> {
        self.client
            .api()
            .get_send(&self.id, &crate::api::GetSendQuery::default())
            .await
    }

    /// Its answer. Outlasts restarts of the server.
    ///
    /// An error if it failed or was cancelled, and [`Error::Waiting`] as soon as a person is asked. For a tool of a client's
    /// process it goes on waiting.
    pub async fn wait(&self) -> Result<Answer<T>, Error> {
        self.wait_until(None).await
    }

    /// The same, for so long at most: then [`Error::Timeout`], which leaves the send alone.
    pub async fn wait_at_most(&self, limit: Duration) -> Result<Answer<T>, Error> {
        let Some(until) = crate::clock::now().checked_add(limit) else {
            return self.wait().await;
        };
        self.wait_until(Some(until)).await
    }

    async fn wait_until(&self, until: Option<std::time::Instant>) -> Result<Answer<T>, Error> {
        let path = format!("/v1/sends/{}", segment(&self.id));
        let mut pause = FIRST_LOOK;
        loop {
            let view: Box<SendView> = self.client.wait_for(&path, until).await?;
            match view.status {
                SendStatus::Completed | SendStatus::Failed | SendStatus::Cancelled => {
                    return answer(view, self.read);
                }
                SendStatus::Waiting => {
                    let on_person = [Some(WaitingOn::Human), Some(WaitingOn::Recovery)]
                        .contains(&view.waiting_on);
                    if on_person {
                        let questions = self.client.questions_of(&view.session_id).await?;
                        if !questions.is_empty() || view.waiting_on == Some(WaitingOn::Recovery) {
                            return Err(Error::Waiting {
                                send: view,
                                questions,
                            });
                        }
                    }
                    // The server answers at once while only someone outside can let it go on.
                    pause = (pause * 3 / 2).min(LONGEST_LOOK);
                    crate::client::pause_until(pause, until).await;
                }
                _ => pause = FIRST_LOOK,
            }
            if until.is_some_and(|until| crate::clock::now() >= until) {
                return Err(Error::Timeout(self.id.clone()));
            }
        }
    }

    /// Its events from the beginning.
    pub fn stream(&self) -> SendStream<T> {
        self.stream_from(None)
    }

    /// Its events after the cursor of another stream.
    pub fn stream_after(&self, cursor: &str) -> SendStream<T> {
        self.stream_from(Some(cursor))
    }

    fn stream_from(&self, after: Option<&str>) -> SendStream<T> {
        let path = format!("/v1/sends/{}/events", segment(&self.id));
        SendStream::new(self.client.caller(), path, after, true, self.read)
    }

    /// Ends it at the next safe point, and returns how it ended.
    pub async fn cancel(&self) -> Result<SendView, Error> {
        let query = CancelSendQuery {
            wait: Some(Duration::from_secs(30).into()),
        };
        self.client.api().cancel_send(&self.id, &query).await
    }

    /// A message that it reads before its next round.
    pub async fn steer(&self, input: impl Into<Input>) -> Result<AcceptedSend, Error> {
        self.say(input.into(), OnBusy::Steer).await
    }

    /// A message that it reads at once: what it does is broken off.
    pub async fn interrupt(&self, input: impl Into<Input>) -> Result<AcceptedSend, Error> {
        self.say(input.into(), OnBusy::Interrupt).await
    }

    async fn say(&self, input: Input, on_busy: OnBusy) -> Result<AcceptedSend, Error> {
        let session = self.client.session_by_id(self.get().await?.session_id);
        let options = SendOptions {
            on_busy: Some(on_busy),
            ..SendOptions::default()
        };
        let body = SendBody {
            input,
            options: Some(options),
        };
        session.accept(body, None).await
    }

    /// What persons are asked by it and by the sessions below its own.
    pub async fn questions(&self) -> Result<Vec<Question>, Error> {
        self.client
            .questions_of(&self.get().await?.session_id)
            .await
    }
}

const FIRST_LOOK: Duration = Duration::from_millis(50);
const LONGEST_LOOK: Duration = Duration::from_secs(1);
