//! Parameters of timers.

use super::runs::{CreateRunOutcome, NewRun};
use super::sends::{AcceptOutcome, AcceptSend, RefuseReason, Target};
use super::sweeps::ReadySession;
use super::{IdempotencyKey, Page, Result};
use crate::agent::{OnBusy, SendOptions};
use crate::error::{Code, Failure};
use crate::id::BootId;
use crate::id::{RunId, RunKey, SendId, SessionId, SessionKey, TenantId, TimerId};
use crate::time::Timestamp;
use crate::timer::{
    Fate, FiredBy, Occurrence, Refusal, Step, TimerRecord, TimerRule, TimerStatus, TimerTarget,
};
use async_trait::async_trait;
use std::time::Duration;

/// Timers and what fires.
#[async_trait]
pub trait Timers: Send + Sync {
    /// Makes timers, armed from now on. With an idempotency key a repeat makes nothing.
    async fn create_timers(
        &self,
        items: Vec<(NewTimer, Option<IdempotencyKey>)>,
    ) -> Result<Vec<CreateTimerOutcome>>;

    /// Pauses, resumes and cancels timers. What was asked for already is no mistake.
    async fn change_timers(&self, items: Vec<ChangeTimer>) -> Result<Vec<ChangeTimerOutcome>>;

    /// Fires due timers, oldest first, at most `limit`: their occurrences, the sends that these ask
    /// for and the timers' next due times are one transaction, so that an occurrence fires once, and
    /// never before the database's clock says so. Timers that another process is firing are left to
    /// it; those whose session someone has locked stay due. `boot` is the accepting process.
    async fn fire_timers(&self, boot: BootId, limit: u32) -> Result<Fired>;

    /// Deletes occurrences whose fate is older than `keep`, and timers that ended before that and
    /// have none left. Returns how many rows went; call again until it is zero.
    async fn sweep_timers(&self, keep: Duration) -> Result<u64>;

    /// Timers by id; `None` where unknown.
    async fn get_timers(&self, ids: Vec<(TenantId, TimerId)>) -> Result<Vec<Option<TimerRecord>>>;

    /// Timers, newest first.
    async fn list_timers(&self, query: ListTimers) -> Result<Page<TimerRecord>>;

    /// A timer's occurrences, newest first.
    async fn list_occurrences(&self, query: ListOccurrences) -> Result<Page<Occurrence>>;
}

/// The methods of [`Timers`] as [`store_methods`](crate::store_methods) hands them over.
#[doc(hidden)]
#[macro_export]
macro_rules! timers_methods {
    ($apply:ident) => {
        $apply! { Timers:
            write create_timers(
                items: Vec<($crate::store::NewTimer, Option<$crate::store::IdempotencyKey>)>
            ) -> Vec<$crate::store::CreateTimerOutcome>;
            write change_timers(
                items: Vec<$crate::store::ChangeTimer>
            ) -> Vec<$crate::store::ChangeTimerOutcome>;
            write fire_timers(boot: $crate::id::BootId, limit: u32) -> $crate::store::Fired;
            write sweep_timers(keep: std::time::Duration) -> u64;
            read get_timers(
                ids: Vec<($crate::id::TenantId, $crate::id::TimerId)>
            ) -> Vec<Option<$crate::timer::TimerRecord>>;
            read list_timers(
                query: $crate::store::ListTimers
            ) -> $crate::store::Page<$crate::timer::TimerRecord>;
            read list_occurrences(
                query: $crate::store::ListOccurrences
            ) -> $crate::store::Page<$crate::timer::Occurrence>;
        }
    };
}

/// Sends of one session that may wait when a timer adds another: a session that is never worked off
/// must not grow without an end.
pub const TIMER_QUEUED_MAX: i64 = 10_000;

/// A timer to make.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTimer {
    /// Its id, made by the caller.
    pub id: TimerId,
    /// Its owner.
    pub tenant: TenantId,
    /// What it does.
    pub target: TimerTarget,
    /// When it does it.
    pub rule: TimerRule,
    /// Armed timers that its session may have with it; no bound when absent. The count is exact
    /// however many are made at once.
    pub armed_max: Option<u32>,
}

/// What became of a timer to make.
#[derive(Debug, Clone, PartialEq)]
pub enum CreateTimerOutcome {
    /// It is armed.
    Created(Box<TimerRecord>),
    /// The key was used for the same request: this timer was made then.
    Replayed(TimerId),
    /// The key was used for another request.
    Mismatch,
    /// Nothing was stored.
    Refused(RefuseTimer),
}

/// Why a timer was not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefuseTimer {
    /// No such session.
    SessionNotFound,
    /// The session is closed.
    SessionClosed,
    /// The session has its bound of armed timers.
    TooMany,
    /// The schedule cannot be followed, or nothing is due from now on.
    Schedule(crate::timer::ScheduleFault),
}

/// What someone does to a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimerChange {
    /// It stops for a while.
    Pause,
    /// It goes on.
    Resume,
    /// It ends.
    Cancel,
}

impl TimerChange {
    /// What happens to the timer.
    pub fn event(self) -> crate::timer::Event {
        match self {
            Self::Pause => crate::timer::Event::Pause,
            Self::Resume => crate::timer::Event::Resume,
            Self::Cancel => crate::timer::Event::Cancel,
        }
    }
}

/// A timer to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeTimer {
    /// The owner.
    pub tenant: TenantId,
    /// The timer.
    pub id: TimerId,
    /// Only if it sends to this session.
    pub session: Option<SessionId>,
    /// What to do.
    pub change: TimerChange,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq)]
pub enum ChangeTimerOutcome {
    /// The timer as it is now.
    Changed(Box<TimerRecord>),
    /// It does not stand where this is possible.
    Illegal(Box<TimerRecord>),
    /// No such timer.
    NotFound,
}

/// A question for timers, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct ListTimers {
    /// The owner.
    pub tenant: TenantId,
    /// Only those that send to this session.
    pub session: Option<SessionId>,
    /// Only those that stand so.
    pub status: Option<TimerStatus>,
    /// Only those older than this one.
    pub before: Option<TimerId>,
    /// At most this many.
    pub limit: u32,
}

/// A question for a timer's occurrences, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListOccurrences {
    /// The owner.
    pub tenant: TenantId,
    /// The timer.
    pub timer: TimerId,
    /// Only those before this one.
    pub before: Option<i64>,
    /// At most this many.
    pub limit: u32,
}

/// How soon a timer is tried again whose session was locked.
const LOCKED_RETRY_MS: i64 = 50;

/// What firing due timers did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Fired {
    /// Sends that were accepted.
    pub sends: Vec<FiredSend>,
    /// Runs that were created.
    pub runs: Vec<FiredRun>,
    /// Sessions that became ready.
    pub enqueue: Vec<ReadySession>,
    /// Occurrences that were merged into earlier sends.
    pub merged: u32,
    /// Occurrences that were left out.
    pub skipped: u32,
    /// Timers whose delivery was refused.
    pub failed: u32,
    /// Timers served.
    pub served: u32,
    /// Whether more may be due: call again at once.
    pub more: bool,
    /// When to fire again: when the next timer is due, as far as is known, or sooner where one is due
    /// whose session is locked.
    pub next_due_at: Option<Timestamp>,
    /// The database's clock.
    pub now: Timestamp,
}

/// A send that a timer made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FiredSend {
    /// Its session.
    pub key: SessionKey,
    /// The send.
    pub send: SendId,
    /// The number of its step.
    pub step: i64,
    /// When it was due.
    pub due_at: Timestamp,
}

/// A run that a timer made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FiredRun {
    /// The run.
    pub key: RunKey,
    /// When it was due.
    pub due_at: Timestamp,
}

/// What an occurrence asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum TimerDelivery {
    /// A send.
    Send(Box<AcceptSend>),
    /// A run.
    Run(Box<NewRun>),
}

impl Fired {
    /// Adds what firing some of the timers did.
    pub fn add(&mut self, part: Self) {
        self.sends.extend(part.sends);
        self.runs.extend(part.runs);
        self.enqueue.extend(part.enqueue);
        self.merged += part.merged;
        self.skipped += part.skipped;
        self.failed += part.failed;
        self.served += part.served;
    }

    /// Notes that timers stayed due because someone else had their sessions locked: it is time for
    /// them again shortly, as most locks last for milliseconds.
    pub fn retry_locked(&mut self) {
        let again = Timestamp(self.now.0.saturating_add(LOCKED_RETRY_MS));
        self.next_due_at = Some(self.next_due_at.map_or(again, |next| next.min(again)));
    }

    /// Counts a timer's step.
    pub fn count(&mut self, step: &Step, refused: bool) {
        let of = |fate| step.occurrences.iter().filter(|o| o.fate == fate).count() as u32;
        self.served += 1;
        self.merged += of(Fate::Merged);
        self.skipped += of(Fate::Skipped);
        self.failed += u32::from(refused);
    }
}

/// What a timer's step asks for, each with its occurrence.
pub fn deliveries<'s>(timer: &TimerRecord, step: &'s Step) -> Vec<(&'s Occurrence, TimerDelivery)> {
    let fired = step.occurrences.iter().filter(|o| o.fate == Fate::Fired);
    let with_id = fired.filter_map(|occurrence| Some((occurrence, occurrence.send_id?)));
    with_id
        .map(|(occurrence, id)| (occurrence, delivery(timer, occurrence, id)))
        .collect()
}

fn delivery(timer: &TimerRecord, occurrence: &Occurrence, id: SendId) -> TimerDelivery {
    match &timer.target {
        TimerTarget::Send {
            session,
            input,
            options,
        } => TimerDelivery::Send(Box::new(AcceptSend {
            id,
            target: Target::Existing(SessionKey {
                tenant: timer.tenant,
                session: *session,
            }),
            input: input.clone(),
            options: SendOptions {
                // A timer's own rule decides both.
                on_busy: OnBusy::Enqueue,
                delay: None,
                fired_by: Some(FiredBy {
                    timer: timer.id,
                    n: occurrence.n,
                    due_at: occurrence.due_at,
                }),
                ..(**options).clone()
            },
            reports_to: None,
            run: None,
            idempotency: None,
            queued_max: TIMER_QUEUED_MAX,
            keeper: None,
        })),
        TimerTarget::Run { run } => TimerDelivery::Run(Box::new(NewRun {
            key: RunKey {
                tenant: timer.tenant,
                run: RunId(id.0),
            },
            name: run.name.clone(),
            spec: run.spec.clone(),
            dsl_version: run.dsl_version,
            input: run.input.clone(),
            options: run.options.clone(),
            session: None,
            reports_to: None,
            depth: 0,
            idempotency: None,
        })),
    }
}

/// What a run's creation met, unless it was created.
pub fn run_refusal(n: i64, outcome: &CreateRunOutcome) -> Option<Refusal> {
    let message = match outcome {
        CreateRunOutcome::Created(_) => return None,
        // A timer's runs carry no key and belong to no session.
        CreateRunOutcome::Replayed(_)
        | CreateRunOutcome::Mismatch
        | CreateRunOutcome::SessionNotFound => "the run was taken for another one",
    };
    Some(Refusal {
        n,
        gone: false,
        failure: Failure::new(Code::Internal, message),
    })
}

/// What a delivery met, unless it was accepted.
pub fn refusal(n: i64, outcome: &AcceptOutcome) -> Option<Refusal> {
    let (gone, code, message) = match outcome {
        AcceptOutcome::Accepted(_) => return None,
        AcceptOutcome::Refused(RefuseReason::SessionNotFound) => {
            (true, Code::SessionNotFound, "the session is gone")
        }
        AcceptOutcome::Refused(RefuseReason::SessionClosed) => {
            (false, Code::SessionClosed, "the session is closed")
        }
        AcceptOutcome::Refused(RefuseReason::Busy) => {
            (false, Code::SessionBusy, "the session is busy")
        }
        AcceptOutcome::Refused(RefuseReason::QueueFull) => {
            (false, Code::LimitExceeded, "too many sends wait already")
        }
        // A timer's sends carry no key, and its session is locked by whoever fires it.
        AcceptOutcome::Replayed(_) | AcceptOutcome::Mismatch | AcceptOutcome::Locked => {
            (false, Code::Internal, "the send was taken for another one")
        }
    };
    Some(Refusal {
        n,
        gone,
        failure: Failure::new(code, message),
    })
}
