//! Parameters of claims and of work under a lease.

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

/// The steps of a worker that owns a session. Each write under a lease matches the lease's token
/// against the row that numbers messages, so a stale owner cannot change anything.
#[async_trait]
pub trait Leases: Send + Sync {
    /// Claims each session that has work and no live owner: takes its lease, starts its head send
    /// and returns it with its agent and the part of the window that the caller's cache lacks.
    ///
    /// Taking a session from an expired boot marks that boot dead. A running send then counts a
    /// crash, and a model call that the dead worker may have started. A boot that is itself dead
    /// gets nothing. The commit may be asynchronous unless a send is resumed: that is a step, which
    /// readers see at once.
    async fn claim_sessions(
        &self,
        boot: BootId,
        items: Vec<ClaimSession>,
    ) -> Result<Vec<ClaimOutcome>>;

    /// Stores a round, or outcomes of its calls, and continues under the same lease. Resets the
    /// crash count. A repeat of the last write under a lease changes nothing and gets the first
    /// one's outcome, with signals that may be outdated.
    async fn append_rounds(&self, items: Vec<AppendRound>) -> Result<Vec<AppendOutcome>>;

    /// Makes sends final and either starts each session's next send or releases its lease. A cancel
    /// raised in the meantime overrides the result.
    async fn complete_sends(&self, items: Vec<CompleteSend>) -> Result<Vec<CompleteOutcome>>;

    /// Parks sends: each waits as a row, and its lease is released. A cancel raised in the meantime
    /// ends the send instead.
    async fn park_sends(&self, items: Vec<ParkSend>) -> Result<Vec<ParkOutcome>>;

    /// Releases leases without ending their sends: running sends stay ready for the next worker,
    /// and no crash is counted. True if the lease was still held. Only the boot and the token are
    /// compared, so that a claim whose response was lost can be released without knowing its epoch.
    async fn release_sessions(&self, items: Vec<ReleaseSession>) -> Result<Vec<bool>>;
}

/// The methods of [`Leases`], as passed on by [`store_methods`](crate::store_methods).
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
    /// The fencing token of the grant, drawn by the caller.
    pub token: LeaseToken,
    /// The `next_seq` up to which the caller's cache holds the window; 0 if it holds nothing.
    pub cached_next_seq: i64,
    /// The first `seq` that the cache holds. A window once started there, so it is never an answer
    /// whose question the cache lacks.
    pub cached_from_seq: i64,
    /// The `context_version` for which the cache was filled; if it is not the session's, the cached
    /// window is ignored.
    pub cached_version: i64,
    /// The last message that the cached folds replace; 0 if there are none.
    pub cached_fold_end: i64,
    /// A send with this many worker deaths, counting the worker it is taken from, is left alone.
    pub crashes_below: i32,
    /// Whether to take a session from a boot whose lease has expired.
    pub orphans: bool,
}

impl ClaimSession {
    /// Whether the claimer's cache is of this session as it is now. One that is ahead of the row has
    /// messages that the database has lost.
    pub const fn has_valid_cache(&self, next_seq: i64, context_version: i64) -> bool {
        self.cached_version == context_version && self.cached_next_seq <= next_seq
    }
}

/// The outcome of a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum ClaimOutcome {
    /// The caller holds the session.
    Claimed(Box<Claimed>),
    /// A live boot holds it; or a boot with an expired lease does, and takeovers were not
    /// requested; or the claiming boot is itself dead; or another transaction has held its lock for
    /// longer than the other items should wait.
    Busy,
    /// Too many workers died during its send for this claim. It has no owner, the crashes are
    /// counted, and no step is appended.
    Suspect,
    /// It has nothing to do, or does not exist.
    Idle,
    /// All seats of its tenant are taken, or go to others before it: it waits in the line, and is
    /// [called](super::Tenants::call_seats) when a seat is free.
    Waits,
}

/// Counters of a session's hot row, as of the statement that returned them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// The `seq` of the next message.
    pub next_seq: i64,
    /// Sends queued behind the running one.
    pub pending: i64,
    /// Raised signals.
    pub signals: i32,
    /// Counts changes of the context other than appended messages: a fold, a prune, another agent.
    /// A cached window is valid as long as this is unchanged.
    pub context_version: i64,
}

/// A grant, with everything its first round needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    /// The session.
    pub key: SessionKey,
    /// The grant.
    pub lease: Lease,
    /// The hot row's counters.
    pub counters: Counters,
    /// The running send.
    pub send: StartedSend,
    /// What the session has spent, as far as it was counted.
    pub spent: Spent,
    /// The shown folds, in order; empty if `cached_version` is still the session's, since the cache
    /// has the same folds then.
    pub folds: Vec<Fold>,
    /// The stored digests of the window's sends, if the agent shows digests and the cache does not
    /// reach back far enough.
    pub projected: Projected,
    /// Whether its tenant, or an agent of it, has a limit of sends in flight. The worker must then
    /// release the session after each send, so that others get their turn, and have waiting
    /// sessions called.
    pub seated: bool,
    /// The messages of the active window that the cache lacks, by `seq`. If the cache reaches back
    /// far enough, these are the ones with `seq >= cached_next_seq`, else the whole window after
    /// the projections.
    pub window: Vec<Message>,
}

/// A send that a worker starts or resumes.
#[derive(Debug, Clone, PartialEq)]
pub struct StartedSend {
    /// The send, `running`.
    pub record: SendRecord,
    /// The agent version that it is pinned to, or the agent that the send itself names.
    pub agent: AgentSpec,
    /// Why it is resumed; `None` when it starts.
    pub resumed: Option<Resumed>,
}

impl StartedSend {
    /// A send of a session whose agent, in the version that the send is pinned to, is `agent`.
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

    /// Where its window starts, before it is extended back to include a call: the stored value once
    /// something of the send is stored, so that no round moves the start. `next_seq` is the
    /// session's current one, which until then is the number of the send's first message.
    pub fn window_from(&self, next_seq: i64) -> i64 {
        let shown = self.record.shown.as_ref();
        let stored = shown.and_then(|shown| shown.from_seq);
        stored.unwrap_or_else(|| window::from_seq(next_seq, self.agent.context.last_messages))
    }
}

/// Why a send that an earlier worker had started is resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resumed {
    /// Its worker died.
    Takeover,
    /// Its worker released it.
    Handover,
    /// The wait for its next attempt is over.
    Retry,
    /// Someone resumed it after a worker's death.
    Recovery,
    /// What it waited for arrived.
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

    /// Why a send that waited for this is resumed.
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

/// A round, or outcomes of its calls, to store; the send continues afterwards.
#[derive(Debug, Clone, PartialEq)]
pub struct AppendRound {
    /// The session.
    pub key: SessionKey,
    /// The grant.
    pub lease: Lease,
    /// The send.
    pub send_id: SendId,
    /// Messages to append to the transcript, in order.
    pub messages: Vec<NewMessage>,
    /// The round's calls.
    pub calls: Vec<NewCall>,
    /// Changes of earlier calls.
    pub changes: Vec<CallChange>,
    /// The inbox items that the messages deliver.
    pub deliveries: Vec<Delivery>,
    /// Usage of model responses since the last durable step.
    pub usage: Vec<UsageRow>,
    /// The round for the event log, if a model answered; without one the step is about calls only.
    pub round: Option<RoundRef>,
    /// A fold to attach. The step then has nothing else: no messages, no round.
    pub fold: Option<NewFold>,
    /// The send's totals after this.
    pub totals: SendTotals,
}

impl AppendRound {
    /// Approximate size of its rows in bytes.
    pub fn weight(&self) -> usize {
        let messages: usize = self.messages.iter().map(NewMessage::weight).sum();
        let calls = self.calls.iter().map(|call| json_weight(&call.arguments));
        let fold = self.fold.as_ref().map_or(0, |fold| fold.text.len());
        messages + calls.sum::<usize>() + changed(&self.changes) + fold
    }

    /// What its step refers to, besides messages.
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

/// Approximate size of the results in bytes.
fn changed(changes: &[CallChange]) -> usize {
    let results = changes.iter().map(|change| match &change.change {
        CallStep::Settled(result) => {
            let content = result.content.iter().map(ContentPart::weight);
            content.sum::<usize>()
        }
        CallStep::Asks { asked, .. } => {
            let inquiries = asked.iter().map(|asked| asked.inquiry.weight());
            inquiries.sum()
        }
        CallStep::Started | CallStep::Waits { .. } => 0,
    });
    results.sum()
}

/// A send's running totals.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SendTotals {
    /// Usage of its model responses and its finished children.
    pub usage: Usage,
    /// Budget reserved for children that have not reported yet.
    pub held: Held,
    /// What the session has spent including this, if its agent has a budget; otherwise the stored
    /// value is kept.
    pub session: Option<Spent>,
    /// Number of durable rounds.
    pub rounds: i32,
    /// Model calls started in the current round; 0 once the round is stored.
    pub attempts: i32,
    /// Those of `attempts` that are included in `usage`.
    pub counted: i32,
    /// Those of `attempts` that a message interrupted or that returned a partial answer: these are
    /// not failures, so they use up none of the round's retries.
    pub not_failed: i32,
    /// What its rounds are shown besides the transcript, if anything.
    pub shown: Option<Shown>,
}

impl SendTotals {
    /// The totals in the form stored in one column.
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

/// The outcome of storing a round.
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
        /// The hot row's counters, with the signals as they were; all except a cancel are now cleared.
        counters: Counters,
    },
    /// Another boot owns the session; nothing was written.
    LeaseLost,
    /// Another transaction has held the session's lock for longer than the other items should wait.
    /// Nothing was written; try again later.
    Locked,
}

/// What happens to the session after a final send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterSend {
    /// Start the next send if there is one.
    Continue,
    /// Release the lease even if there is one.
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
    /// Messages to append to the transcript, in order.
    pub messages: Vec<NewMessage>,
    /// Changes of earlier calls.
    pub changes: Vec<CallChange>,
    /// The inbox items that the messages deliver.
    pub deliveries: Vec<Delivery>,
    /// Usage of model responses since the last durable step.
    pub usage: Vec<UsageRow>,
    /// The last round, if a model answered.
    pub round: Option<RoundRef>,
    /// The send's totals.
    pub totals: SendTotals,
    /// How it ends, unless a cancel was raised.
    pub result: SendResult,
    /// Projections to store, if the agent shows digests: of this send, and of earlier sends that
    /// lack one. None covers messages beyond the end of the transcript including these messages.
    /// They replace rows that start at the same message.
    pub projections: Vec<Projection>,
    /// Signals that prevent the end if raised.
    pub unless: i32,
    /// What happens to the session next.
    pub then: AfterSend,
}

impl CompleteSend {
    /// Approximate size of its rows in bytes.
    pub fn weight(&self) -> usize {
        let messages: usize = self.messages.iter().map(NewMessage::weight).sum();
        let text = self.result.output_text.as_deref().map_or(0, str::len);
        let projections = self.projections.iter().map(Projection::weight);
        messages + text + changed(&self.changes) + projections.sum::<usize>()
    }
}

/// The outcome of ending a send.
#[derive(Debug, Clone, PartialEq)]
pub enum CompleteOutcome {
    /// It is final.
    Completed(Box<Completed>),
    /// One of the signals that prevent the end was raised. All signals except a cancel were
    /// cleared; nothing else was written. The lease is kept.
    Undelivered,
    /// Another boot owns the session; nothing was written.
    LeaseLost,
    /// Another transaction has held the session's lock for longer than the other items should wait.
    /// Nothing was written; try again later.
    Locked,
}

/// A final send and what follows.
#[derive(Debug, Clone, PartialEq)]
pub struct Completed {
    /// The stored status: the requested one, or `cancelled`.
    pub status: SendStatus,
    /// The `seq` of the first message written, if there was one.
    pub first_seq: i64,
    /// The number of its step.
    pub step: i64,
    /// When, by the database's clock.
    pub at: Timestamp,
    /// The next send, now running under the same lease; if `None`, the lease was released.
    pub next: Option<(StartedSend, Counters)>,
    /// Set if the lease was released although work is left: the caller must enqueue the session.
    pub enqueue: Option<ReadySession>,
}

impl Completed {
    /// Whether the session is now idle.
    pub fn rests(&self) -> bool {
        self.next.is_none() && self.enqueue.is_none()
    }
}

/// When a parked send continues by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParkUntil {
    /// This long after the database's current time.
    After(Duration),
    /// Never: only when someone acts, or at its deadline.
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
    /// When it continues by itself.
    pub until: ParkUntil,
    /// Signals that make the wait unnecessary.
    pub unless: i32,
    /// Usage of model responses since the last durable step.
    pub usage: Vec<UsageRow>,
    /// The send's totals.
    pub totals: SendTotals,
}

/// The outcome of parking a send.
#[derive(Debug, Clone, PartialEq)]
pub enum ParkOutcome {
    /// It is waiting; the lease was released.
    Parked {
        /// The number of its step.
        step: i64,
    },
    /// One of the signals that make the wait unnecessary was raised. All signals except a cancel
    /// were cleared; nothing else was written. The lease is kept.
    Woken {
        /// The signals as they were.
        signals: i32,
    },
    /// A cancel had been raised: the send ended instead, and the lease was released.
    Cancelled {
        /// The number of its final step.
        step: i64,
        /// Set if work is left in the session: the caller must enqueue it.
        enqueue: Option<ReadySession>,
    },
    /// Another boot owns the session; nothing was written.
    LeaseLost,
    /// Another transaction has held the session's lock for longer than the other items should wait.
    /// Nothing was written; try again later.
    Locked,
}

/// A lease to release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReleaseSession {
    /// The session.
    pub key: SessionKey,
    /// The grant.
    pub lease: Lease,
    /// What the running send must count as lost.
    pub lost: ReleaseLoss,
}

/// What is lost when a lease is released, without a step that records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReleaseLoss {
    /// Nothing.
    #[default]
    Nothing,
    /// A model call that may have been started.
    ModelCall,
    /// The process that made its calls: counts as a crash, like a worker's death.
    Work,
}

impl ReleaseLoss {
    /// A model call, if one may have been started.
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
