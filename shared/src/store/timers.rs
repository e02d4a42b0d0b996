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
    ChangeRefused, Fate, FiredBy, Occurrence, Refusal, Step, TimerChange, TimerRecord, TimerRule,
    TimerStatus, TimerTarget,
};
use async_trait::async_trait;
use std::time::Duration;

/// Timers and their firing.
#[async_trait]
pub trait Timers: Send + Sync {
    /// Creates armed timers. With an idempotency key a repeat creates nothing.
    async fn create_timers(
        &self,
        items: Vec<(NewTimer, Option<IdempotencyKey>)>,
    ) -> Result<Vec<CreateTimerOutcome>>;

    /// Changes timers. Asking for the state that a timer already has is not an error.
    async fn change_timers(&self, items: Vec<ChangeTimer>) -> Result<Vec<ChangeTimerOutcome>>;

    /// Fires due timers, oldest first, at most `limit`. Their occurrences, the sends for these and
    /// the timers' next due times are one transaction, so that an occurrence fires once, and never
    /// before the database's clock says so. Timers that another process is firing are skipped;
    /// those whose session is locked stay due. `boot` is the accepting process.
    async fn fire_timers(&self, boot: BootId, limit: u32) -> Result<Fired>;

    /// Deletes occurrences settled longer ago than `keep`, and timers that ended before that and
    /// have no occurrences left. Returns the number of rows deleted; call again until it is zero.
    async fn sweep_timers(&self, keep: Duration) -> Result<u64>;

    /// Timers by id; `None` where unknown.
    async fn get_timers(&self, ids: Vec<(TenantId, TimerId)>) -> Result<Vec<Option<TimerRecord>>>;

    /// Timers, newest first.
    async fn list_timers(&self, query: ListTimers) -> Result<Page<TimerRecord>>;

    /// A timer's occurrences, newest first.
    async fn list_occurrences(&self, query: ListOccurrences) -> Result<Page<Occurrence>>;
}

/// The methods of [`Timers`], as passed on by [`store_methods`](crate::store_methods).
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

/// Maximum number of queued sends of a session to which a timer adds another, so that the queue of
/// a session that is never processed does not grow without bound.
pub const TIMER_QUEUED_MAX: i64 = 10_000;

/// A timer to create.
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
    /// Maximum number of armed timers of its session, including this one; no limit when absent. The
    /// count is exact however many are created at once.
    pub armed_max: Option<u32>,
}

/// The outcome of creating a timer.
#[derive(Debug, Clone, PartialEq)]
pub enum CreateTimerOutcome {
    /// It was created and is armed.
    Created(Box<TimerRecord>),
    /// The key was used for the same request: this timer was created then.
    Replayed(TimerId),
    /// The key was used for another request.
    Mismatch,
    /// Nothing was stored.
    Refused(RefuseTimer),
}

/// Why a timer was not created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefuseTimer {
    /// No such session.
    SessionNotFound,
    /// The session is closed.
    SessionClosed,
    /// The session has the maximum number of armed timers.
    TooMany,
    /// The schedule is invalid, or is never due from now on.
    Schedule(crate::timer::ScheduleFault),
}

/// A timer to change.
#[derive(Debug, Clone, PartialEq)]
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

/// The outcome of a change.
#[derive(Debug, Clone, PartialEq)]
pub enum ChangeTimerOutcome {
    /// The timer as it is now.
    Changed(Box<TimerRecord>),
    /// Its status does not allow this.
    Illegal(Box<TimerRecord>),
    /// It would never be due again, or the schedule is invalid.
    Refused(crate::timer::ScheduleFault),
    /// No such timer.
    NotFound,
}

impl ChangeTimerOutcome {
    /// The outcome for a timer whose change was refused.
    pub fn refused(timer: TimerRecord, why: ChangeRefused) -> Self {
        match why {
            ChangeRefused::Illegal => Self::Illegal(Box::new(timer)),
            ChangeRefused::Schedule(fault) => Self::Refused(fault),
        }
    }
}

/// A query for timers, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct ListTimers {
    /// The owner.
    pub tenant: TenantId,
    /// Only those that send to this session.
    pub session: Option<SessionId>,
    /// Only those with this status.
    pub status: Option<TimerStatus>,
    /// Only those older than this one.
    pub before: Option<TimerId>,
    /// At most this many.
    pub limit: u32,
}

/// A query for a timer's occurrences, newest first.
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

/// How soon to retry a timer whose session was locked, in milliseconds.
const LOCKED_RETRY_MS: i64 = 50;

/// The result of firing due timers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Fired {
    /// Sends that were accepted.
    pub sends: Vec<FiredSend>,
    /// Runs that were created.
    pub runs: Vec<FiredRun>,
    /// Sessions that became ready.
    pub enqueue: Vec<ReadySession>,
    /// Number of occurrences merged into earlier sends.
    pub merged: u32,
    /// Number of occurrences skipped.
    pub skipped: u32,
    /// Number of timers whose delivery was refused.
    pub failed: u32,
    /// Number of timers served.
    pub served: u32,
    /// Whether more may be due: call again at once.
    pub more: bool,
    /// When to fire again: when the next timer is due, if known, or sooner if a due timer's session
    /// was locked.
    pub next_due_at: Option<Timestamp>,
    /// The database's clock.
    pub now: Timestamp,
}

/// A send created by a timer.
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

/// A run created by a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FiredRun {
    /// The run.
    pub key: RunKey,
    /// When it was due.
    pub due_at: Timestamp,
}

/// What an occurrence creates.
#[derive(Debug, Clone, PartialEq)]
pub enum TimerDelivery {
    /// A send.
    Send(Box<AcceptSend>),
    /// A run.
    Run(Box<NewRun>),
}

impl Fired {
    /// Adds the result of firing some of the timers.
    pub fn add(&mut self, part: Self) {
        self.sends.extend(part.sends);
        self.runs.extend(part.runs);
        self.enqueue.extend(part.enqueue);
        self.merged += part.merged;
        self.skipped += part.skipped;
        self.failed += part.failed;
        self.served += part.served;
    }

    /// Records that timers stayed due because their sessions were locked: retry shortly, since most
    /// locks last for milliseconds.
    pub fn retry_locked(&mut self) {
        let again = Timestamp(self.now.0.saturating_add(LOCKED_RETRY_MS));
        self.next_due_at = Some(self.next_due_at.map_or(again, |next| next.min(again)));
    }

    /// Counts the outcomes of a timer's step.
    pub fn count(&mut self, step: &Step, refused: bool) {
        let of = |fate| step.occurrences.iter().filter(|o| o.fate == fate).count() as u32;
        self.served += 1;
        self.merged += of(Fate::Merged);
        self.skipped += of(Fate::Skipped);
        self.failed += u32::from(refused);
    }
}

/// The deliveries of a timer's step, each with its occurrence.
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
                // The timer's own rule replaces both.
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

/// The refusal of a run's creation, unless it was created.
pub fn run_refusal(n: i64, outcome: &CreateRunOutcome) -> Option<Refusal> {
    let message = match outcome {
        CreateRunOutcome::Created(_) => return None,
        // A timer's runs have no idempotency key and belong to no session.
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

/// The refusal of a delivery, unless it was accepted.
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
        // A timer's sends have no idempotency key, and firing it locks its session.
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
