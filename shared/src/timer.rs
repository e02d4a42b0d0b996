//! Timers: durable schedules that create a send or start a run, once or repeatedly.
//!
//! A timer is a row. [`transition()`] decides what happens to it, from the row, an event and the
//! database's clock alone. Each occurrence has one row with one final fate.

mod calendar;
mod change;
pub mod schedule;
mod transition;
mod view;
mod wakeup;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::agent::SendOptions;
use crate::error::Failure;
use crate::id::{RunId, SendId, SessionId, TenantId, TimerId};
use crate::message::ContentPart;
use crate::named::named;
use crate::time::{Span, Timestamp};
use crate::workflow::run::RunOptions;

pub use calendar::Calendar;
pub use change::{ChangeRefused, TimerAmendment, TimerChange};
pub use schedule::{Course, First, Schedule, ScheduleFault};
pub use transition::{
    CAUGHT_UP_MAX, DELIVERIES_MAX, Event, IllegalEvent, LATE_MAX, Refusal, Step, transition,
};
pub use view::{OccurrenceView, TimerView};
pub use wakeup::wake_text;

/// How many upcoming occurrences a timer shows.
pub const NEXT_SHOWN: usize = 5;

named!(
    /// Where a timer stands.
    TimerStatus {
        /// It will fire when due.
        Armed = "armed",
        /// It does not fire until it is resumed.
        Paused = "paused",
        /// Its last occurrence is settled.
        Done = "done",
        /// It was cancelled, or its session is gone.
        Cancelled = "cancelled",
        /// Delivery of an occurrence failed too often.
        Dead = "dead",
    }
);

named!(
    /// What to do with occurrences that did not fire when they were due.
    CatchUp {
        /// Skip them.
        Skip = "skip",
        /// Fire once for all of them.
        Once = "once",
        /// Fire each, up to a limit; the oldest beyond it are skipped.
        All = "all",
    }
);

named!(
    /// What to do with an occurrence while the previous one's send is still queued.
    Merge {
        /// Merge it into that send.
        Coalesce = "coalesce",
        /// Create another send.
        Enqueue = "enqueue",
    }
);

named!(
    /// The outcome of an occurrence.
    Fate {
        /// It was delivered: its send or run was created.
        Fired = "fired",
        /// It was merged into an earlier occurrence's send, which had not started.
        Merged = "merged",
        /// It was missed and skipped, together with those that it stands for.
        Skipped = "skipped",
        /// It could not be delivered.
        Failed = "failed",
    }
);

/// What a timer does when it is due.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimerTarget {
    /// A send to a session, under that session's own agent.
    Send {
        /// The session.
        session: SessionId,
        /// The input.
        input: Vec<ContentPart>,
        /// The options of the send.
        options: Box<SendOptions>,
    },
    /// A workflow run, which belongs to no session.
    Run {
        /// The parameters of the run.
        run: Box<TimerRun>,
    },
}

/// The parameters of a timer's runs; they are validated when the timer is created.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TimerRun {
    /// The spec's name.
    pub name: String,
    /// The spec in its canonical form.
    #[schema(value_type = Object)]
    pub spec: Value,
    /// The version of the language it is written in.
    pub dsl_version: i32,
    /// The value of `input`.
    #[schema(value_type = Object)]
    pub input: Value,
    /// Options of each run in addition to the spec.
    pub options: RunOptions,
}

impl TimerTarget {
    /// A send that says nothing, in place of what a timer of a deleted session said.
    pub fn emptied(session: SessionId) -> Self {
        Self::Send {
            session,
            input: Vec::new(),
            options: Box::default(),
        }
    }

    /// The session that it sends to.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Self::Send { session, .. } => Some(*session),
            Self::Run { .. } => None,
        }
    }

    /// Interprets an occurrence's id: as a send's, or else a run's.
    pub fn named(&self, id: Option<SendId>) -> (Option<SendId>, Option<RunId>) {
        match self {
            Self::Send { .. } => (id, None),
            Self::Run { .. } => (None, id.map(|id| RunId(id.0))),
        }
    }
}

/// When a timer fires, and what happens to missed occurrences.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerRule {
    /// When it is due.
    pub schedule: Schedule,
    /// When the schedule began, if that was after the timer was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// When the timer last got another rule: earlier occurrences followed others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amended_at: Option<Timestamp>,
    /// What to do with missed occurrences.
    pub catch_up: CatchUp,
    /// What to do with an occurrence while the previous one's send is still queued.
    pub on_busy: Merge,
    /// Maximum number of occurrences, of any fate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_occurrences: Option<u32>,
    /// Nothing is due after this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Each occurrence is delayed by less than this, by an amount derived from the timer and the
    /// occurrence's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Span>,
}

impl TimerRule {
    /// A schedule with the default rules.
    pub fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            since: None,
            amended_at: None,
            catch_up: CatchUp::Once,
            on_busy: Merge::Coalesce,
            max_occurrences: None,
            until: None,
            jitter: None,
        }
    }

    /// The jitter of occurrence `n`, in milliseconds.
    fn delay(&self, id: TimerId, n: i64) -> i64 {
        let bound = self.jitter.map_or(0, |span| span.0.as_millis() as u64);
        if bound == 0 {
            return 0;
        }
        (mixed(id, n, 0) % bound) as i64
    }

    /// Whether an occurrence with this number may be due at this time.
    fn has(&self, n: i64, due: Timestamp) -> bool {
        self.until.is_none_or(|until| due <= until)
            && self.max_occurrences.is_none_or(|max| n <= i64::from(max))
    }
}

/// The occurrence of a timer that made a send, as the send's options keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FiredBy {
    /// The timer.
    pub timer: TimerId,
    /// The number of the occurrence.
    pub n: i64,
    /// When it was due.
    pub due_at: Timestamp,
}

/// The mutable state of a timer.
#[derive(Debug, Clone, PartialEq)]
pub struct TimerState {
    /// Its status.
    pub status: TimerStatus,
    /// The number of its next occurrence, from 1.
    pub next_n: i64,
    /// When that one is due by the schedule; `None` if there is no next occurrence.
    pub due_at: Option<Timestamp>,
    /// When to fire it: delayed by its jitter or by a failed delivery; before it is due if someone asked for that. Set
    /// exactly while the timer is armed.
    pub fire_at: Option<Timestamp>,
    /// Failed deliveries of that occurrence.
    pub failures: i32,
    /// Why the last of them failed.
    pub failure: Option<Failure>,
    /// The send of the last occurrence that had one; for a timer that starts runs, the run.
    pub last_send: Option<SendId>,
    /// When an occurrence was last settled.
    pub last_fired_at: Option<Timestamp>,
    /// When the timer ended.
    pub ended_at: Option<Timestamp>,
}

impl TimerState {
    /// The state of a timer created at `now`, or why it can never fire.
    pub fn armed(id: TimerId, rule: &TimerRule, now: Timestamp) -> Result<Self, ScheduleFault> {
        let first = rule.schedule.course(now)?.first();
        let first = first.filter(|first| rule.until.is_none_or(|until| *first <= until));
        let due = first
            .filter(|_| rule.max_occurrences != Some(0))
            .ok_or(ScheduleFault::Never)?;
        Ok(Self {
            status: TimerStatus::Armed,
            next_n: 1,
            due_at: Some(due),
            fire_at: Some(Timestamp(due.0 + rule.delay(id, 1))),
            failures: 0,
            failure: None,
            last_send: None,
            last_fired_at: None,
            ended_at: None,
        })
    }
}

/// A timer as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct TimerRecord {
    /// Its identity.
    pub id: TimerId,
    /// Its owner.
    pub tenant: TenantId,
    /// What it does.
    pub target: TimerTarget,
    /// When it does it.
    pub rule: TimerRule,
    /// Its state.
    pub state: TimerState,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

impl TimerRecord {
    /// When its next occurrences will fire, unless it is changed; at most `count`.
    pub fn upcoming(&self, count: usize) -> Vec<Timestamp> {
        let (Some(due), Ok(course)) = (self.state.due_at, self.course()) else {
            return Vec::new();
        };
        if !matches!(self.state.status, TimerStatus::Armed | TimerStatus::Paused) {
            return Vec::new();
        }
        let mut n = self.state.next_n;
        let mut next = Some(due);
        let mut coming = Vec::new();
        // One more, before the next of its schedule.
        let is_extra = |fire_at: &Timestamp| fire_at.0 + 1 < due.0;
        if self.rule.schedule.is_recurring() && count > 0 {
            coming.extend(self.state.fire_at.filter(is_extra));
            n += coming.len() as i64;
        }
        while let Some(due) = next.filter(|due| coming.len() < count && self.has(n, *due)) {
            let first = n == self.state.next_n;
            let fire_at = self.state.fire_at.filter(|_| first);
            coming.push(fire_at.unwrap_or(Timestamp(due.0 + self.rule.delay(self.id, n))));
            n += 1;
            next = course.next(due);
        }
        coming
    }

    /// Its schedule, ready to compute instants.
    fn course(&self) -> Result<Course, ScheduleFault> {
        let since = self.rule.since.unwrap_or(self.created_at);
        self.rule.schedule.course(since)
    }

    /// Whether an occurrence with this number may be due at this time.
    fn has(&self, n: i64, due: Timestamp) -> bool {
        self.rule.has(n, due)
    }
}

/// An occurrence as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurrence {
    /// Its number, counted from 1.
    pub n: i64,
    /// When it was due, its jitter included; when it was fired if someone asked for it before.
    pub due_at: Timestamp,
    /// Its outcome.
    pub fate: Fate,
    /// The send that it is in; for a timer that starts runs, the run.
    pub send_id: Option<SendId>,
    /// When it was settled, by the database's clock.
    pub fired_at: Timestamp,
    /// Whether someone asked for it before it was due.
    pub manual: bool,
}

/// The id of an occurrence's send: time-ordered like every other, and the same however often the
/// same decision is made.
fn send_id(id: TimerId, n: i64, now: Timestamp) -> SendId {
    let mut tail = [0; 10];
    tail[..8].copy_from_slice(&mixed(id, n, 1).to_be_bytes());
    tail[8..].copy_from_slice(&mixed(id, n, 2).to_be_bytes()[..2]);
    let millis = u64::try_from(now.0).unwrap_or(0);
    SendId(uuid::Builder::from_unix_timestamp_millis(millis, &tail).into_uuid())
}

/// Pseudo-random bits derived from a timer and a number, by the finalizer of `SplitMix64`.
fn mixed(id: TimerId, n: i64, salt: u64) -> u64 {
    let (high, low) = Uuid::as_u64_pair(&id.0);
    [high, low, n as u64].into_iter().fold(salt, |bits, word| {
        let mut z = (bits ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}
