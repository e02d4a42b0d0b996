//! Timers and their occurrences as the API shows them.

use serde::{Deserialize, Serialize};

use super::schedule::First;
use super::{
    CatchUp, Fate, Merge, NEXT_SHOWN, Occurrence, Schedule, TimerRecord, TimerRun, TimerStatus,
    TimerTarget,
};
use crate::agent::{AgentRef, SendOptions};
use crate::error::Failure;
use crate::id::{RunId, SendId, SessionId, TimerId};
use crate::message::ContentPart;
use crate::time::{Span, Timestamp};

/// A timer as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TimerView {
    /// Its identity.
    #[schema(value_type = String)]
    pub id: TimerId,
    /// Where it stands.
    pub status: TimerStatus,
    /// The session that it sends to.
    #[schema(value_type = Option<String>)]
    pub session_id: Option<SessionId>,
    /// What it says there.
    #[schema(value_type = Option<Vec<Object>>)]
    pub input: Option<Vec<ContentPart>>,
    /// The options of the send.
    pub options: Option<SendOptions>,
    /// The published agent that its sends use instead of their session's; absent if it names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub agent_ref: Option<AgentRef>,
    /// The workflow run that it starts instead.
    pub run: Option<TimerRun>,
    /// When it is due: once, or the first time.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub at: Option<Timestamp>,
    /// How long after its creation it is due: once, or the first time.
    #[schema(value_type = Option<String>)]
    pub after: Option<Span>,
    /// The interval of a fixed rate.
    #[schema(value_type = Option<String>)]
    pub every: Option<Span>,
    /// The calendar.
    pub cron: Option<String>,
    /// The calendar's time zone.
    pub timezone: Option<String>,
    /// What to do with missed occurrences.
    pub catch_up: CatchUp,
    /// What to do with an occurrence while the previous one's send is still queued.
    pub on_busy: Merge,
    /// Maximum number of occurrences.
    pub max_occurrences: Option<u32>,
    /// Nothing is due after this.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
    /// Each occurrence is delayed by less than this.
    #[schema(value_type = Option<String>)]
    pub jitter: Option<Span>,
    /// When the next occurrences fire, at most five.
    #[schema(value_type = Vec<String>)]
    pub next: Vec<Timestamp>,
    /// Occurrences that have an outcome.
    pub occurrences: i64,
    /// Failed deliveries of the next occurrence.
    pub failures: i32,
    /// Why the last of them failed.
    pub error: Option<Failure>,
    /// The send of the last occurrence that had one.
    #[schema(value_type = Option<String>)]
    pub last_send_id: Option<SendId>,
    /// The run that it started last.
    #[schema(value_type = Option<String>)]
    pub last_run_id: Option<RunId>,
    /// When an occurrence last got its fate.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_fired_at: Option<Timestamp>,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it last changed.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
}

impl From<TimerRecord> for TimerView {
    fn from(record: TimerRecord) -> Self {
        let next = record.upcoming(NEXT_SHOWN);
        let TimerRecord {
            id,
            tenant: _,
            target,
            rule,
            state,
            created_at,
            updated_at,
        } = record;
        let (last_send_id, last_run_id) = target.named(state.last_send);
        let mut agent_ref = None;
        let (session_id, input, options, run) = match target {
            TimerTarget::Send {
                session,
                input,
                mut options,
            } => {
                let agent = options.agent.take();
                // The trace context is not part of the view; it can be found in the traces.
                options.traceparent = None;
                agent_ref = agent.and_then(|agent| agent.reference().cloned());
                (Some(session), Some(input), Some(*options), None)
            }
            TimerTarget::Run { mut run } => {
                run.options.traceparent = None;
                (None, None, None, Some(*run))
            }
        };
        let (at, after, every, cron, timezone) = members(rule.schedule);
        Self {
            id,
            status: state.status,
            session_id,
            input,
            options,
            agent_ref,
            run,
            at,
            after,
            every,
            cron,
            timezone,
            catch_up: rule.catch_up,
            on_busy: rule.on_busy,
            max_occurrences: rule.max_occurrences,
            until: rule.until,
            jitter: rule.jitter,
            next,
            occurrences: state.next_n - 1,
            failures: state.failures,
            error: state.failure,
            last_send_id,
            last_run_id,
            last_fired_at: state.last_fired_at,
            created_at,
            updated_at,
            ended_at: state.ended_at,
        }
    }
}

type Members = (
    Option<Timestamp>,
    Option<Span>,
    Option<Span>,
    Option<String>,
    Option<String>,
);

fn members(schedule: Schedule) -> Members {
    match schedule {
        Schedule::At(at) => (Some(at), None, None, None, None),
        Schedule::After(after) => (None, Some(after), None, None, None),
        Schedule::Every { every, first } => match first {
            None => (None, None, Some(every), None, None),
            Some(First::At(at)) => (Some(at), None, Some(every), None, None),
            Some(First::After(after)) => (None, Some(after), Some(every), None, None),
        },
        Schedule::Cron {
            expression,
            timezone,
        } => (None, None, None, Some(expression), Some(timezone)),
    }
}

/// An occurrence as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct OccurrenceView {
    /// Its number, counted from 1.
    pub n: i64,
    /// When it was due, or when someone asked for it before.
    #[schema(value_type = String, format = DateTime)]
    pub due_at: Timestamp,
    /// Its outcome.
    pub fate: Fate,
    /// The send that it is in.
    #[schema(value_type = Option<String>)]
    pub send_id: Option<SendId>,
    /// The run that it started.
    #[schema(value_type = Option<String>)]
    pub run_id: Option<RunId>,
    /// When, by the database's clock.
    #[schema(value_type = String, format = DateTime)]
    pub fired_at: Timestamp,
    /// Whether someone asked for it before it was due.
    pub manual: bool,
}

impl OccurrenceView {
    /// An occurrence of a timer with this target.
    pub fn of(target: &TimerTarget, occurrence: &Occurrence) -> Self {
        let (send_id, run_id) = target.named(occurrence.send_id);
        Self {
            n: occurrence.n,
            due_at: occurrence.due_at,
            fate: occurrence.fate,
            send_id,
            run_id,
            fired_at: occurrence.fired_at,
            manual: occurrence.manual,
        }
    }
}
