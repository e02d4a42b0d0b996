//! `schedule_wakeup`, `list_wakeups`, `cancel_wakeup`: an agent sets its own alarms.
//!
//! A wake-up is a timer that sends into the session that set it, like any other caller: under the
//! session's own agent, with its tools and its limits. It has the same guarantees as any timer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_runtime::telemetry;
use mainspring_shared::agent::{Priority, SendOptions};
use mainspring_shared::entropy::Entropy;
use mainspring_shared::id::{SessionKey, TimerId};
use mainspring_shared::message::{ContentPart, plain_text};
use mainspring_shared::store::{
    ChangeTimer, ChangeTimerOutcome, CreateTimerOutcome, Error, IdempotencyKey, ListTimers,
    NewTimer, RefuseTimer, Store,
};
use mainspring_shared::time::{Span, Timestamp};
use mainspring_shared::timer::{
    First, Schedule, TimerChange, TimerRecord, TimerRule, TimerStatus, TimerTarget, wake_text,
};
use mainspring_shared::tool::Repeat;
use serde::Deserialize;
use serde_json::json;

use crate::catalogue::{Listed, NOTHING, tool};
use crate::files::work::arguments;
use mainspring_worker::tool::{Invocation, Output, Tool, ToolError, ToolSpec, Traits};

/// The shortest wait and interval, in seconds.
const SECONDS_MIN: u64 = 5;

/// The longest wait and interval, in seconds: thirty days.
const SECONDS_MAX: u64 = 2_592_000;

/// Maximum number of armed timers in a session, checked when its agent adds one.
const ARMED_MAX: u32 = 10;

/// Timers of each kind that a list shows; more than an agent can have armed.
const LIST_MAX: u32 = 50;

/// Maximum bytes of a note.
const NOTE_BYTES_MAX: usize = 8 << 10;

/// State that the wake-up tools share.
#[derive(Debug, Clone)]
pub(crate) struct Wakeups {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) entropy: Arc<dyn Entropy>,
}

pub(crate) const TOOLS: [Listed<Wakeups>; 3] = [
    tool(
        "schedule_wakeup",
        NOTHING,
        "schedules a wake-up in the same conversation",
        |all| Arc::new(ScheduleWakeup(all.clone())),
    ),
    tool(
        "list_wakeups",
        NOTHING,
        "lists the session's wake-ups",
        |all| Arc::new(ListWakeups(all.clone())),
    ),
    tool("cancel_wakeup", NOTHING, "cancels a wake-up", |all| {
        Arc::new(CancelWakeup(all.clone()))
    }),
];

/// Sets an alarm.
#[derive(Debug)]
pub(crate) struct ScheduleWakeup(pub(crate) Wakeups);

/// Shows the alarms that are set.
#[derive(Debug)]
pub(crate) struct ListWakeups(pub(crate) Wakeups);

/// Cancels an alarm.
#[derive(Debug)]
pub(crate) struct CancelWakeup(pub(crate) Wakeups);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScheduleArguments {
    delay_seconds: u64,
    note: String,
    #[serde(default)]
    every_seconds: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelArguments {
    timer_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArguments {}

/// A database failure, which may be gone on the next attempt.
fn failed(error: &Error) -> ToolError {
    tracing::debug!(error = %error, "a timer request to the database failed");
    ToolError::reply("the timers cannot be reached now; try again later")
}

#[async_trait]
impl Tool for ScheduleWakeup {
    fn spec(&self) -> ToolSpec {
        let seconds = json!({
            "type": "integer", "minimum": SECONDS_MIN, "maximum": SECONDS_MAX,
        });
        ToolSpec {
            name: "schedule_wakeup".into(),
            description:
                "Schedules a message to yourself in this conversation after a delay, once \
                          or repeatedly. End your turn after calling it: the wake-up arrives even \
                          if the process restarts in between."
                    .into(),
            parameters: json!({
                "type": "object",
                "additionalProperties": false,
                "required": ["delay_seconds", "note"],
                "properties": {
                    "delay_seconds": seconds,
                    "note": {
                        "type": "string", "minLength": 1, "maxLength": NOTE_BYTES_MAX,
                        "description": "What you will need to know when you wake up.",
                    },
                    "every_seconds": seconds,
                },
            }),
        }
    }

    /// A repeated call finds the timer that the first one created.
    fn traits(&self) -> Traits {
        Traits::new(Repeat::Keyed)
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        let (session, call_id) = (invocation.session, invocation.call_id);
        let asked: ScheduleArguments = arguments(invocation.arguments)?;
        let note = asked.note.trim();
        if note.is_empty() {
            return Err(crate::files::work::invalid("the note is empty".to_owned()));
        }
        let delay = Span(Duration::from_secs(asked.delay_seconds));
        let schedule = match asked.every_seconds {
            None => Schedule::After(delay),
            Some(seconds) => Schedule::Every {
                every: Span(Duration::from_secs(seconds)),
                first: Some(First::After(delay)),
            },
        };
        let id = TimerId(self.0.entropy.ordered_id());
        let timer = NewTimer {
            id,
            tenant: session.tenant,
            target: TimerTarget::Send {
                session: session.session,
                input: vec![ContentPart::text(wake_text(id, note))],
                options: Box::new(SendOptions {
                    // No caller is waiting for it.
                    priority: Priority::Low,
                    traceparent: telemetry::traceparent(),
                    ..SendOptions::default()
                }),
            },
            rule: TimerRule::new(schedule),
            armed_max: Some(ARMED_MAX),
        };
        let key = IdempotencyKey {
            tenant: session.tenant,
            route: "tool schedule_wakeup".to_owned(),
            // Unique in the tenant, and the same each time the call is repeated.
            key: call_id,
            body_hash: [0; 32],
        };
        let made = self.0.store.create_timers(vec![(timer, Some(key))]);
        let made = made.await.map_err(|error| failed(&error))?;
        match made.into_iter().next() {
            Some(CreateTimerOutcome::Created(timer)) => Ok(Output::text(set(timer.id, &asked))),
            Some(CreateTimerOutcome::Replayed(id)) => Ok(Output::text(set(id, &asked))),
            Some(CreateTimerOutcome::Refused(RefuseTimer::TooMany)) => Ok(Output::text(format!(
                "Not scheduled: {ARMED_MAX} wake-ups are set already. Cancel one of them first, \
                 list_wakeups shows them."
            ))),
            Some(CreateTimerOutcome::Refused(RefuseTimer::SessionClosed)) => Ok(Output::text(
                "Not scheduled: this conversation is closed and cannot be woken.",
            )),
            Some(
                CreateTimerOutcome::Refused(
                    RefuseTimer::SessionNotFound | RefuseTimer::Schedule(_),
                )
                | CreateTimerOutcome::Mismatch,
            )
            | None => Err(ToolError::reply("the wake-up could not be scheduled")),
        }
    }
}

fn set(id: TimerId, asked: &ScheduleArguments) -> String {
    let again = asked.every_seconds.map_or_else(String::new, |seconds| {
        format!(", and every {seconds} s after that until you cancel it")
    });
    format!(
        "Scheduled as {id}: you are woken in {} s{again}.",
        asked.delay_seconds
    )
}

#[async_trait]
impl Tool for ListWakeups {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "list_wakeups".into(),
            description: "Lists the scheduled wake-ups of this conversation.".into(),
            parameters: json!({
                "type": "object", "additionalProperties": false, "properties": {},
            }),
        }
    }

    fn traits(&self) -> Traits {
        Traits::new(Repeat::Safe)
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        let NoArguments {} = arguments(invocation.arguments)?;
        let store = &self.0.store;
        let now = store.now().await.map_err(|error| failed(&error))?;
        let mut lines = Vec::new();
        for status in [TimerStatus::Armed, TimerStatus::Paused] {
            let timers = self.list(invocation.session, status).await?;
            lines.extend(timers.iter().map(|timer| line(timer, now)));
        }
        if lines.is_empty() {
            lines.push("No wake-ups are set.".to_owned());
        }
        Ok(Output::text(lines.join("\n")))
    }
}

impl ListWakeups {
    async fn list(
        &self,
        key: SessionKey,
        status: TimerStatus,
    ) -> Result<Vec<TimerRecord>, ToolError> {
        let query = ListTimers {
            tenant: key.tenant,
            session: Some(key.session),
            status: Some(status),
            before: None,
            limit: LIST_MAX,
        };
        let page = self.0.store.list_timers(query).await;
        let mut timers = page.map_err(|error| failed(&error))?.data;
        timers.sort_by_key(|timer| timer.state.due_at);
        Ok(timers)
    }
}

/// One line that describes a wake-up.
fn line(timer: &TimerRecord, now: Timestamp) -> String {
    let next = timer
        .upcoming(1)
        .first()
        .map_or(Duration::ZERO, |at| at.since(now));
    let times = timer.state.next_n - 1;
    let again = match &timer.rule.schedule {
        Schedule::Every { every, .. } => format!(", every {every}, woke you {times} times"),
        Schedule::Cron { expression, .. } => format!(", cron {expression}, woke you {times} times"),
        Schedule::At(_) | Schedule::After(_) => String::new(),
    };
    let said = match &timer.target {
        TimerTarget::Send { input, .. } => plain_text(input),
        TimerTarget::Run { .. } => String::new(),
    };
    let note = said.lines().rev().find(|line| *line != "</timer>");
    let note = note.unwrap_or_default();
    let status = timer.state.status.as_str();
    format!(
        "{}: in {} s{again}, {status}: {note}",
        timer.id,
        next.as_secs()
    )
}

#[async_trait]
impl Tool for CancelWakeup {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "cancel_wakeup".into(),
            description: "Cancels a wake-up of this conversation, including a repeating one that \
                          just woke you."
                .into(),
            parameters: json!({
                "type": "object",
                "additionalProperties": false,
                "required": ["timer_id"],
                "properties": {
                    "timer_id": {"type": "string", "minLength": 1, "maxLength": 64},
                },
            }),
        }
    }

    fn traits(&self) -> Traits {
        Traits::new(Repeat::Safe)
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        let session = invocation.session;
        let asked: CancelArguments = arguments(invocation.arguments)?;
        let unknown = || Output::text(format!("No wake-up {} is set here.", asked.timer_id));
        let Ok(id) = asked.timer_id.parse::<TimerId>() else {
            return Ok(unknown());
        };
        let item = ChangeTimer {
            tenant: session.tenant,
            id,
            session: Some(session.session),
            change: TimerChange::Cancel,
        };
        let changed = self.0.store.change_timers(vec![item]).await;
        let changed = changed.map_err(|error| failed(&error))?;
        Ok(match changed.into_iter().next() {
            Some(ChangeTimerOutcome::Changed(timer) | ChangeTimerOutcome::Illegal(timer)) => {
                Output::text(match timer.state.status {
                    TimerStatus::Done => format!("{id} has already fired for the last time."),
                    TimerStatus::Armed
                    | TimerStatus::Paused
                    | TimerStatus::Cancelled
                    | TimerStatus::Dead => format!("{id} is cancelled."),
                })
            }
            // A cancellation is never refused.
            Some(ChangeTimerOutcome::NotFound | ChangeTimerOutcome::Refused(_)) | None => unknown(),
        })
    }
}
