//! The bus port: live notifications between processes. Bounded, lossy, never the source of truth.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::id::{BootId, RunKey, SendId, SessionKey};
use crate::send::SendView;

/// The subject of a notice, which determines who receives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// Committed steps: a JSON list of [`StepNotice`]. Every scheduler listens.
    Steps,
    /// Raised signals or revoked leases: a JSON list of [`SessionKey`] and the raised bits; 0 if
    /// the database must be asked, [`WATCHED`] if a reader arrived. Every worker listens.
    Signals,
    /// Runs that have news or were advanced: a JSON list of [`RunNotice`]. Every scheduler listens.
    Runs,
    /// An armed timer: when it is due, in milliseconds. Every scheduler listens.
    Timers,
    /// Something was paused or resumed: the payload is empty, the details are in the database.
    /// Every worker listens.
    Pauses,
    /// Live events of one session: a JSON list of `LiveEvent`s. Processes that stream it listen.
    Live(SessionKey),
    /// Requests to workers: a JSON [`Ask`](crate::session::preview::Ask) for a preview, or
    /// [`VectorsAsk`](crate::memory::VectorsAsk), answered on [`Answers`](Self::Answers). Every worker
    /// listens, and the named one answers.
    Asks,
    /// The answer to the request with this id; the requester listens.
    Answers(Uuid),
    /// Sessions granted to this boot with their sends: a JSON list of
    /// [`Dispatch`](crate::dispatch::Dispatch). The worker with this boot listens.
    Dispatches(BootId),
}

/// A bit used only in notices on [`Topic::Signals`]: a reader of the session's live events joined
/// late, and its worker should publish what was streamed so far.
pub const WATCHED: i32 = 1 << 30;

/// A committed step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepNotice {
    /// The session.
    pub key: SessionKey,
    /// The send.
    pub send: SendId,
    /// The step's number.
    pub n: i64,
    /// Whether the send is final or waiting after it, so that clients waiting for its end check again.
    pub settled: bool,
    /// The final send as the API shows it, if the step ended it and it is small, so that waiting
    /// clients need not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// The boot of the worker that released the session idle, still has its window and has free
    /// slots: it takes the session's next send without a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper: Option<BootId>,
}

impl StepNotice {
    /// The end of a deleted session: no step follows it. Programs that do not know this notice read
    /// the session again and find nothing new.
    pub fn deleted(key: SessionKey) -> Self {
        Self::new(key, SendId(Uuid::nil()), i64::MAX, false)
    }

    /// Whether the session was deleted.
    pub fn is_deleted(&self) -> bool {
        self.n == i64::MAX
    }

    /// A step, and whether its send is final or waiting after it.
    pub fn new(key: SessionKey, send: SendId, n: i64, settled: bool) -> Self {
        Self {
            key,
            send,
            n,
            settled,
            ended: None,
            keeper: None,
        }
    }
}

/// A final send: a [`SendView`] as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ended(Box<RawValue>);

impl Ended {
    /// Maximum size in bytes; waiting clients read larger ones from the database.
    pub const BYTES_MAX: usize = 16 * 1024;

    /// Encodes the view, unless it is too large or contains characters that databases cannot store,
    /// so that it would differ from what is read later.
    pub fn of(view: &SendView) -> Option<Self> {
        let json = serde_json::value::to_raw_value(view).ok()?;
        let is_kept = json.get().len() <= Self::BYTES_MAX && !json.get().contains("\\u0000");
        is_kept.then_some(Self(json))
    }

    /// Decodes the view; `None` if it cannot be decoded, since another version of the program wrote it.
    pub fn view(&self) -> Option<SendView> {
        serde_json::from_str(self.0.get()).ok()
    }
}

impl PartialEq for Ended {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

/// A run that has news or was advanced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunNotice {
    /// The run.
    pub key: RunKey,
    /// The committed advance; `None` if the run has news for its owner.
    pub step: Option<i64>,
}

/// What a subscriber receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A published payload.
    Payload(Bytes),
    /// Something may have been missed: check the database.
    Gap,
}

/// Live notices. Publishing never blocks and never fails; notices are dropped when the buffer is full.
#[async_trait]
pub trait Bus: Send + Sync + fmt::Debug {
    /// Publishes a payload to current subscribers. Dropped if the bus is unavailable or its buffer
    /// is full.
    fn publish(&self, topic: Topic, payload: Bytes);

    /// Publishes a payload and returns whether there is a subscriber; false also if that is unknown.
    async fn tell(&self, topic: Topic, payload: Bytes) -> bool;

    /// Subscribes from the return of this call on. A [`Notice::Gap`] follows every loss or
    /// reconnect. Dropping the stream ends the subscription.
    async fn subscribe(&self, topic: Topic) -> BoxStream<'static, Notice>;

    /// Whether notices are delivered. While they are not, subscribers poll the database.
    fn is_available(&self) -> bool;
}
