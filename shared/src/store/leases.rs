//! Parameters of boots and of work under a lease.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::Result;
use super::calls::{CallChange, CallStep, Delivery, NewCall};
use super::paid::UsageRow;
use super::sweeps::ReadySession;
use crate::agent::AgentSpec;
use crate::budget::{Held, Spending, Spent};
use crate::id::{BootId, LeaseToken, SendId, SessionKey};
use crate::lease::Lease;
use crate::message::{ContentPart, Message, NewMessage, json_weight};
use crate::send::{SendRecord, SendResult, SendStatus, WaitingOn};
use crate::session::fold::{Fold, NewFold};
use crate::session::projection::{Projected, Projection};
use crate::session::shown::Shown;
use crate::session::window;
use crate::step::{RoundRef, StepKind, StepRefs};
use crate::time::Timestamp;
use crate::usage::Usage;

/// The steps of a worker that owns a session. Each write under a lease matches the lease's token on the
/// row that numbers messages, so a stale owner changes nothing.
#[async_trait]
pub trait Leases: Send + Sync {
    /// Takes the lease of each session that has work and no live owner, starts its head send and
    /// returns it with its agent and the part of the window that the caller's cache lacks. Taking
    /// from an expired boot marks that boot dead and counts a crash on a running send, and a model
    /// call that the dead worker may have begun. A boot that is dead itself gets nothing. The commit
    /// may be asynchronous unless a send goes on: that is a step, which readers see at once.
    async fn claim_sessions(
        &self,
        boot: BootId,
        items: Vec<ClaimSession>,
    ) -> Result<Vec<ClaimOutcome>>;

    /// Stores a round, or what became of its calls, and goes on under the same lease. Resets the
    /// crash count. A repeat of what its lease stored last changes nothing and is told what the first
    /// was, with signals that may be old.
    async fn append_rounds(&self, items: Vec<AppendRound>) -> Result<Vec<AppendOutcome>>;

    /// Makes sends final and either takes each session's next send or gives the lease back. A
    /// cancel that was raised meanwhile wins over the result.
    async fn complete_sends(&self, items: Vec<CompleteSend>) -> Result<Vec<CompleteOutcome>>;

    /// Parks sends: each waits as a row, its lease is given back. A cancel that was raised
    /// meanwhile ends the send instead.
    async fn park_sends(&self, items: Vec<ParkSend>) -> Result<Vec<ParkOutcome>>;

    /// Gives leases back with their sends as they are: running sends stay ready for the next
    /// worker, without counting a crash. True where the lease was still held, by its boot and token
    /// alone: a claim whose answer was never heard is given back without knowing its epoch.
    async fn release_sessions(&self, items: Vec<ReleaseSession>) -> Result<Vec<bool>>;
}

/// The methods of [`Leases`] as [`store_methods`](crate::store_methods) hands them over.
#[doc(hidden)]
#[macro_export]
macro_rules! leases_methods {
    ($apply:ident) => {
        $apply! { Leases:
            write claim_sessions(
                boot: $crate::id::BootId,
                items: Vec<$crate::store::ClaimSession>
            ) -> Vec<$crate::store::ClaimOutcome>;
            write append_rounds(
                items: Vec<$crate::store::AppendRound>
            ) -> Vec<$crate::store::AppendOutcome>;
            write complete_sends(
                items: Vec<$crate::store::CompleteSend>
            ) -> Vec<$crate::store::CompleteOutcome>;
            write park_sends(
                items: Vec<$crate::store::ParkSend>
            ) -> Vec<$crate::store::ParkOutcome>;
            write release_sessions(items: Vec<$crate::store::ReleaseSession>) -> Vec<bool>;
        }
    };
}

/// A session to claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimSession {
    /// The session.
    pub key: SessionKey,
    /// The fence of the grant, drawn by the caller.
    pub token: LeaseToken,
    /// The `next_seq` up to which the caller's cache holds the window; 0 when it holds nothing.
    pub cached_next_seq: i64,
    /// The first `seq` that the cache holds: one at which a window once began, so never that of an
    /// answer whose question the cache lacks.
    pub cached_from_seq: i64,
    /// The `context_version` under which the cache was filled: with another one the session's, what
    /// it holds counts for nothing.
    pub cached_version: i64,
    /// The last message that the folds of the cache stand for; 0 without any.
    pub cached_fold_end: i64,
    /// A send under which so many workers died, the one it is taken from included, is left alone.
    pub crashes_below: i32,
    /// Whether a session is taken from a boot whose lease ran out.
    pub orphans: bool,
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum ClaimOutcome {
    /// The caller holds the session.
    Claimed(Box<Claimed>),
    /// A live boot holds it; or one whose lease ran out does, and it was not to be taken from such a
    /// one; or the claiming boot is dead itself; or someone has it locked for longer than the others
    /// of the call should wait.
    Busy,
    /// Too many workers died under its send for this claim. It has no owner, the deaths are counted,
    /// and there is no step.
    Suspect,
    /// It has nothing to do, or does not exist.
    Idle,
    /// All seats of its tenant are taken, or left to others before it: it waits in the line, and is
    /// [called](super::Tenants::call_seats) when one is free.
    Waits,
}

/// The numbers of a session's hot row, after the statement that returned them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// The `seq` of the next message.
    pub next_seq: i64,
    /// Queued sends behind the one that runs.
    pub pending: i64,
    /// Raised signals.
    pub signals: i32,
    /// Counts what changed the context other than by a message behind the others: a fold, a prune, another
    /// agent. A window is worth something as long as this is what it was.
    pub context_version: i64,
}

/// A grant with what its first round needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    /// The session.
    pub key: SessionKey,
    /// The grant.
    pub lease: Lease,
    /// The hot row's numbers.
    pub counters: Counters,
    /// The send that runs now.
    pub send: StartedSend,
    /// What the session has spent, as far as that was counted.
    pub spent: Spent,
    /// The folds that are shown, in order; none where `cached_version` is still the session's, whose
    /// folds are those of the cache.
    pub folds: Vec<Fold>,
    /// What is stored of the window's sends as digests, where the agent shows such and the cache does not
    /// reach back far enough.
    pub projected: Projected,
    /// Whether its tenant, or an agent of it, has a limit of sends in flight. Whoever holds it then gives the session back after
    /// each send, so that others have their turn, and has those called that wait.
    pub seated: bool,
    /// The messages of the active window that the cache lacks, by `seq`: those with
    /// `seq >= cached_next_seq` when the cache reaches back far enough, else the whole window behind what
    /// projections stand for.
    pub window: Vec<Message>,
}

/// A send that a worker starts or goes on with.
#[derive(Debug, Clone, PartialEq)]
pub struct StartedSend {
    /// The send, `running`.
    pub record: SendRecord,
    /// The agent's version that it is pinned to, or the agent that it names for itself.
    pub agent: AgentSpec,
    /// Why it goes on; none when it begins.
    pub resumed: Option<Resumed>,
}

impl StartedSend {
    /// A send of a session with this agent, in the version that the send is pinned to.
    pub fn new(mut record: SendRecord, agent: AgentSpec, resumed: Option<Resumed>) -> Self {
        let agent = record.options.agent_in(agent);
        let shown = record.shown.as_ref();
        if let Some(other) = shown.and_then(|shown| shown.input.clone()) {
            record.input = other;
        }
        Self {
            record,
            agent,
            resumed,
        }
    }

    /// Where its window begins, before that is extended back to a call: as stored once something of
    /// the send is, so that no round of it moves the begin. `next_seq` is the session's now, which is
    /// the number of the send's first message until then.
    pub fn window_from(&self, next_seq: i64) -> i64 {
        let shown = self.record.shown.as_ref();
        let stored = shown.and_then(|shown| shown.from_seq);
        stored.unwrap_or_else(|| window::from_seq(next_seq, self.agent.context.last_messages))
    }
}

/// Why a send goes on that an earlier worker had begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resumed {
    /// Its worker died.
    Takeover,
    /// Its worker gave it back.
    Handover,
    /// The wait for its next attempt is over.
    Retry,
    /// Someone let it go on after a death.
    Recovery,
    /// What it waited for has come.
    Result,
}

impl Resumed {
    /// Every reason.
    pub const ALL: [Self; 5] = [
        Self::Takeover,
        Self::Handover,
        Self::Retry,
        Self::Recovery,
        Self::Result,
    ];

    /// The name in the database and on streams.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Takeover => "takeover",
            Self::Handover => "handover",
            Self::Retry => "retry",
            Self::Recovery => "resume",
            Self::Result => "result",
        }
    }

    /// The reason with this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }

    /// Why a send that waited for this goes on.
    pub const fn from_wait(on: WaitingOn) -> Self {
        match on {
            WaitingOn::Retry => Self::Retry,
            WaitingOn::Recovery => Self::Recovery,
            WaitingOn::Tool
            | WaitingOn::Human
            | WaitingOn::Agent
            | WaitingOn::Run
            | WaitingOn::Timer => Self::Result,
        }
    }
}

/// A round, or what became of its calls, to store; after it the send goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct AppendRound {
    /// The session.
    pub key: SessionKey,
    /// The grant.
    pub lease: Lease,
    /// The send.
    pub send_id: SendId,
    /// What the transcript gets, in order.
    pub messages: Vec<NewMessage>,
    /// The round's calls.
    pub calls: Vec<NewCall>,
    /// What became of earlier calls.
    pub changes: Vec<CallChange>,
    /// The inbox items that the messages deliver.
    pub deliveries: Vec<Delivery>,
    /// The responses since the last durable step.
    pub usage: Vec<UsageRow>,
    /// The round for the event log, where a model answered; without one the step is of calls only.
    pub round: Option<RoundRef>,
    /// A fold to attach. The step is of nothing else: no messages, no round.
    pub fold: Option<NewFold>,
    /// The send's sums after this.
    pub totals: SendTotals,
}

impl AppendRound {
    /// About how many bytes its rows take.
    pub fn weight(&self) -> usize {
        let messages: usize = self.messages.iter().map(NewMessage::weight).sum();
        let calls = self.calls.iter().map(|call| json_weight(&call.arguments));
        let fold = self.fold.as_ref().map_or(0, |fold| fold.text.len());
        messages + calls.sum::<usize>() + changed(&self.changes) + fold
    }

    /// What its step refers to besides messages.
    pub fn refs(&self) -> StepRefs {
        StepRefs {
            round: self.round.clone(),
            fold: self.fold.as_ref().map(NewFold::reference),
            ..StepRefs::default()
        }
    }

    /// The kind of its step.
    pub fn kind(&self) -> StepKind {
        if self.fold.is_some() {
            StepKind::Folded
        } else if self.round.is_some() {
            StepKind::Round
        } else {
            StepKind::Calls
        }
    }
}

/// About how many bytes results take.
fn changed(changes: &[CallChange]) -> usize {
    let results = changes.iter().map(|change| match &change.change {
        CallStep::Settled(result) => {
            let content = result.content.iter().map(ContentPart::weight);
            content.sum::<usize>()
        }
        CallStep::Started | CallStep::Waits { .. } => 0,
    });
    results.sum()
}

/// A send's running sums.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SendTotals {
    /// Over its model responses and its finished children.
    pub usage: Usage,
    /// What is set aside for children that have not reported.
    pub held: Held,
    /// What the session has spent with this, where its agent has a budget; else what is stored
    /// stays.
    pub session: Option<Spent>,
    /// Durable rounds.
    pub rounds: i32,
    /// Model calls begun in the present round; 0 once the round is stored.
    pub attempts: i32,
    /// Those of them that the sums know of.
    pub counted: i32,
    /// Those of them that messages interrupted or that gave a part of an answer: no failures, so that
    /// they take none of the round's retries.
    pub not_failed: i32,
    /// What its rounds are shown besides the transcript, if that is anything.
    pub shown: Option<Shown>,
}

impl SendTotals {
    /// The sums as one column keeps them.
    pub fn spending(&self) -> Spending {
        Spending {
            usage: self.usage,
            held: self.held.clone(),
            counted: self.counted,
            not_failed: self.not_failed,
            shown: self.shown.clone(),
        }
    }
}

/// What became of a round.
#[derive(Debug, Clone, PartialEq)]
pub enum AppendOutcome {
    /// It is durable.
    Appended {
        /// The `seq` of the first of its messages.
        first_seq: i64,
        /// The number of its step.
        step: i64,
        /// When, by the database's clock.
        at: Timestamp,
        /// The hot row's numbers, with the signals as they were: all but a cancel are lowered.
        counters: Counters,
    },
    /// Someone else owns the session; nothing was written.
    LeaseLost,
    /// Someone else has had the session locked for longer than its neighbours should wait. Nothing
    /// was written; ask again in a while.
    Locked,
}

/// What happens to the session behind a final send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Take the next send if there is one.
    Continue,
    /// Give the lease back even if there is one.
    Release,
}

/// A send to make final.
#[derive(Debug, Clone, PartialEq)]
pub struct CompleteSend {
    /// The session.
    pub key: SessionKey,
    /// The grant.
    pub lease: Lease,
    /// The send.
    pub send_id: SendId,
    /// What the transcript gets, in order.
    pub messages: Vec<NewMessage>,
    /// What became of earlier calls.
    pub changes: Vec<CallChange>,
    /// The inbox items that the messages deliver.
    pub deliveries: Vec<Delivery>,
    /// The responses since the last durable step.
    pub usage: Vec<UsageRow>,
    /// The last round, where a model answered.
    pub round: Option<RoundRef>,
    /// The send's sums.
    pub totals: SendTotals,
    /// How it ends, unless a cancel was raised.
    pub result: SendResult,
    /// What it is shown as once it is old, where its agent shows digests; and earlier sends that lack that.
    /// None stands for messages behind the transcript's end, as it is with these messages. They take the place
    /// of rows that begin with the same message.
    pub projections: Vec<Projection>,
    /// Signals that keep it from ending.
    pub unless: i32,
    /// What happens next.
    pub then: Then,
}

impl CompleteSend {
    /// About how many bytes its rows take.
    pub fn weight(&self) -> usize {
        let messages: usize = self.messages.iter().map(NewMessage::weight).sum();
        let text = self.result.output_text.as_deref().map_or(0, str::len);
        let projections = self.projections.iter().map(Projection::weight);
        messages + text + changed(&self.changes) + projections.sum::<usize>()
    }
}

/// What became of a final send.
#[derive(Debug, Clone, PartialEq)]
pub enum CompleteOutcome {
    /// It is final.
    Completed(Box<Completed>),
    /// One of the signals that keep it from ending was raised. Nothing was written but that all
    /// signals except a cancel are lowered; the lease is kept.
    Undelivered,
    /// Someone else owns the session; nothing was written.
    LeaseLost,
    /// Someone else has had the session locked for longer than its neighbours should wait. Nothing
    /// was written; ask again in a while.
    Locked,
}

/// A final send and what follows.
#[derive(Debug, Clone, PartialEq)]
pub struct Completed {
    /// The status that was stored: the asked one, or `cancelled`.
    pub status: SendStatus,
    /// The `seq` of the first message written, where any was.
    pub first_seq: i64,
    /// The number of its step.
    pub step: i64,
    /// When, by the database's clock.
    pub at: Timestamp,
    /// The next send, now running under the same lease. Without one the lease is given back.
    pub next: Option<(StartedSend, Counters)>,
    /// Set when the lease was given back although work is left.
    pub enqueue: Option<ReadySession>,
}

impl Completed {
    /// Whether the session has nothing to do behind it.
    pub fn rests(&self) -> bool {
        self.next.is_none() && self.enqueue.is_none()
    }
}

/// When a parked send goes on by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParkUntil {
    /// This long after the database's now.
    After(Duration),
    /// Only when someone acts, or at its deadline.
    Asked,
}

/// A send to park.
#[derive(Debug, Clone, PartialEq)]
pub struct ParkSend {
    /// The session.
    pub key: SessionKey,
    /// The grant.
    pub lease: Lease,
    /// The send.
    pub send_id: SendId,
    /// What it waits for.
    pub on: WaitingOn,
    /// When it goes on.
    pub until: ParkUntil,
    /// Signals that say that it need not wait.
    pub unless: i32,
    /// Responses since the last durable step.
    pub usage: Vec<UsageRow>,
    /// The send's sums.
    pub totals: SendTotals,
}

/// What became of a park.
#[derive(Debug, Clone, PartialEq)]
pub enum ParkOutcome {
    /// It waits; the lease is given back.
    Parked {
        /// The number of its step.
        step: i64,
    },
    /// One of the signals that it need not wait was raised. Nothing was written but that all
    /// signals except a cancel are lowered; the lease is kept.
    Woken {
        /// The signals as they were.
        signals: i32,
    },
    /// A cancel had been raised: it ended instead; the lease is given back.
    Cancelled {
        /// The number of its final step.
        step: i64,
        /// Set when work is left in the session.
        enqueue: Option<ReadySession>,
    },
    /// Someone else owns the session; nothing was written.
    LeaseLost,
    /// Someone else has had the session locked for longer than its neighbours should wait. Nothing
    /// was written; ask again in a while.
    Locked,
}

/// A lease to give back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReleaseSession {
    /// The session.
    pub key: SessionKey,
    /// The grant.
    pub lease: Lease,
    /// What the send that runs counts.
    pub lost: Lost,
}

/// What is lost with a lease that is given back, and no step knows of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lost {
    /// Nothing.
    #[default]
    Nothing,
    /// A model call that may have been begun.
    ModelCall,
    /// The process in which its calls were made: a death like a worker's.
    Work,
}

impl Lost {
    /// A model call, if one may have been begun.
    pub const fn call_if(begun: bool) -> Self {
        if begun {
            Self::ModelCall
        } else {
            Self::Nothing
        }
    }

    /// The number in statements.
    pub const fn number(self) -> i16 {
        match self {
            Self::Nothing => 0,
            Self::ModelCall => 1,
            Self::Work => 2,
        }
    }
}
