//! The bus port: live notices between processes. Bounded, lossy, never the truth.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::id::{BootId, RunKey, SendId, SessionKey};
use crate::send::SendView;

/// What a notice is about, and so who hears it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// Steps that were committed: a JSON list of [`StepNotice`]. Every scheduler listens.
    Steps,
    /// Signals that were raised or leases that were taken away: a JSON list of [`SessionKey`] and
    /// the raised bits, 0 where the database has to be asked, [`WATCHED`] where a reader came. Every
    /// worker listens.
    Signals,
    /// Runs that have news, or that were advanced: a JSON list of [`RunNotice`]. Every scheduler
    /// listens.
    Runs,
    /// A timer that was armed: when it is due, in milliseconds. Every scheduler listens.
    Timers,
    /// Something was paused or resumed: the payload says nothing, the database says what. Every worker
    /// listens.
    Pauses,
    /// Live events of one session: a JSON list of `LiveEvent`s. Whoever streams it listens.
    Live(SessionKey),
    /// Questions to workers: a JSON [`Ask`](crate::session::preview::Ask), answered on
    /// [`Answers`](Self::Answers). Every worker listens, and the one that is named answers.
    Asks,
    /// The answer to one question, which has this id: whoever asked listens.
    Answers(Uuid),
    /// Sessions that were granted to this boot with their sends: a JSON list of
    /// [`Dispatch`](crate::dispatch::Dispatch). The worker that has this boot listens.
    Dispatches(BootId),
}

/// A bit of notices on [`Topic::Signals`] alone: a reader of the session's live events came late, and
/// its worker is to tell what was streamed so far.
pub const WATCHED: i32 = 1 << 30;

/// A step that was committed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepNotice {
    /// The session.
    pub key: SessionKey,
    /// The send.
    pub send: SendId,
    /// The step's number.
    pub n: i64,
    /// Whether the send is final, or waits, after it: those who wait for its end look again.
    pub settled: bool,
    /// The final send as the API shows it, where the step ended it and it is small: who waits need not read
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// The boot of the worker that gave the session back at rest, keeps its window and has slots to spare: it
    /// takes the session's next send without a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper: Option<BootId>,
}

impl StepNotice {
    /// The end of a session that was deleted: no step comes after it. Programs that do not know this notice read the
    /// session again and find nothing new.
    pub fn deleted(key: SessionKey) -> Self {
        Self::new(key, SendId(Uuid::nil()), i64::MAX, false)
    }

    /// Whether it says that the session was deleted.
    pub fn is_deleted(&self) -> bool {
        self.n == i64::MAX
    }

    /// A step, and whether its send is final, or waits, after it.
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

/// A final send, a [`SendView`] as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ended(Box<RawValue>);

impl Ended {
    /// Larger ones are read from the database by those who wait.
    pub const BYTES_MAX: usize = 16 * 1024;

    /// The view, unless it is too large, or has characters that no database keeps: then it would not be what
    /// is read later.
    pub fn of(view: &SendView) -> Option<Self> {
        let json = serde_json::value::to_raw_value(view).ok()?;
        let is_kept = json.get().len() <= Self::BYTES_MAX && !json.get().contains("\\u0000");
        is_kept.then_some(Self(json))
    }

    /// The view; none where another version of the program wrote it.
    pub fn view(&self) -> Option<SendView> {
        serde_json::from_str(self.0.get()).ok()
    }
}

impl PartialEq for Ended {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

/// A run that something happened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunNotice {
    /// The run.
    pub key: RunKey,
    /// The advance that was committed; none where the run has news for its owner.
    pub step: Option<i64>,
}

/// What a subscriber hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A published payload.
    Payload(Bytes),
    /// Something may have been missed: look at the database again.
    Gap,
}

/// Live notices. Publishing never blocks and never fails; a full buffer drops.
#[async_trait]
pub trait Bus: Send + Sync + fmt::Debug {
    /// Hands a payload to whoever listens now. Dropped when the bus is away or its buffer is full.
    fn publish(&self, topic: Topic, payload: Bytes);

    /// Hands a payload to whoever listens now, and says whether somebody does. False also where that is not known.
    async fn tell(&self, topic: Topic, payload: Bytes) -> bool;

    /// Listens from the return of this call on. A [`Notice::Gap`] comes after every loss or
    /// reconnect. Dropping the stream ends the subscription.
    async fn subscribe(&self, topic: Topic) -> BoxStream<'static, Notice>;

    /// Whether notices flow. While they do not, listeners poll the database.
    fn is_available(&self) -> bool;
}
