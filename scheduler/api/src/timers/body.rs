//! The body of a timer, and the rules that its type cannot express.

use std::time::Duration;

use mainspring_runtime::telemetry;
use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::agents::Resolver;
use mainspring_shared::agent::{OnBusy, SendOptions};
use mainspring_shared::id::{SessionId, SessionKey, TenantId, TimerId};
use mainspring_shared::store::{IdempotencyKey, NewTimer};
use mainspring_shared::time::{Span, Timestamp};
use mainspring_shared::timer::{
    CatchUp, First, Merge, Schedule, ScheduleFault, TimerAmendment, TimerRule, TimerTarget,
};
use serde::Deserialize;

use super::super::bodies::{Options, object};
use super::super::input::{Input, input_schema};
use super::super::runs::RunBody;
use super::super::validate::{COUNT_MAX, Checks};
use crate::access::reach::closed;
use crate::extract::{JsonBody, given};

/// The longest delay of an occurrence.
const JITTER_MAX: Duration = Duration::from_hours(24);

/// Maximum bytes of a cron expression: lists of every minute and every day fit.
const EXPRESSION_BYTES_MAX: usize = 512;

/// A timer to create.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimerBody {
    /// The session that it sends to, under that session's own agent.
    session_id: Option<String>,
    /// The workflow run that it starts instead. Each occurrence starts one, even if the previous run is still active.
    /// Published agents in its spec are resolved now.
    #[serde(default, deserialize_with = "object")]
    run: Option<RunBody>,
    /// What it says: a text, or text parts.
    #[schema(schema_with = input_schema)]
    input: Option<Input>,
    /// The options of the send.
    #[serde(default, deserialize_with = "object")]
    options: Option<Options>,
    /// When it is due: once, or with `every` the first time.
    #[schema(value_type = Option<String>, format = DateTime)]
    at: Option<Timestamp>,
    /// How long from now: once, or with `every` the first time.
    #[schema(value_type = Option<String>)]
    after: Option<Span>,
    /// A fixed rate, at least `1s`.
    #[schema(value_type = Option<String>)]
    every: Option<Span>,
    /// A cron expression: five fields starting with minutes, or six with seconds first.
    cron: Option<String>,
    /// The calendar's time zone, such as `Europe/Berlin`; `UTC` when absent.
    timezone: Option<String>,
    /// What to do with missed occurrences; `once` by default.
    catch_up: Option<CatchUp>,
    /// What happens to an occurrence while the previous one's send has not started: `coalesce`, or `enqueue`, which is
    /// the default with `catch_up: all`.
    on_busy: Option<Merge>,
    /// Maximum number of occurrences.
    max_occurrences: Option<u32>,
    /// Nothing is due after this.
    #[schema(value_type = Option<String>, format = DateTime)]
    until: Option<Timestamp>,
    /// Each occurrence is delayed by less than this; at most `1d`.
    #[schema(value_type = Option<String>)]
    jitter: Option<Span>,
    /// Idempotency key of this item. Only in a batch; otherwise it is a header.
    pub(super) idempotency_key: Option<String>,
}

impl JsonBody for TimerBody {
    type Checked = Self;

    // Its members are checked when the timer is built from it.
    fn checked(self, _checks: &mut Checks) -> Self {
        self
    }
}

impl TimerBody {
    /// Builds the timer from the body.
    pub(super) async fn timer(
        self,
        agents: &mut Resolver<'_>,
        app: &App,
        tenant: TenantId,
        mut checks: Checks,
        key: Option<&IdempotencyKey>,
    ) -> Result<NewTimer, Error> {
        let rule = self.rule(&mut checks);
        let session = self.session(&mut checks);
        if self.run.is_some() {
            if agents.binding().is_some() {
                return Err(closed());
            }
            return self.run_timer(agents, app, tenant, rule, checks, key).await;
        }
        match &self.input {
            Some(input) => checks.input(input),
            None => checks.refuse("/input", "is required"),
        }
        let options = checks.options(self.options);
        refuse_options(&mut checks, &options.options);
        checks.finish()?;
        let session = session.ok_or_else(Error::session_not_found)?;
        let of = SessionKey { tenant, session };
        let mut options = agents.options_in(options, of, key).await?;
        agents.admit_prices(&options, (of, None), key).await?;
        options.traceparent = telemetry::traceparent();
        Ok(NewTimer {
            id: TimerId(app.entropy.ordered_id()),
            tenant,
            target: TimerTarget::Send {
                session,
                input: self.input.map(|input| input.0).unwrap_or_default(),
                options: Box::new(options),
            },
            rule,
            armed_max: None,
        })
    }

    /// Builds a timer that starts runs.
    async fn run_timer(
        self,
        agents: &mut Resolver<'_>,
        app: &App,
        tenant: TenantId,
        rule: TimerRule,
        mut checks: Checks,
        key: Option<&IdempotencyKey>,
    ) -> Result<NewTimer, Error> {
        for (member, given) in [
            ("/input", self.input.is_some()),
            ("/options", self.options.is_some()),
        ] {
            if given {
                checks.refuse(member, "belongs in run");
            }
        }
        if self.on_busy == Some(Merge::Coalesce) {
            checks.refuse("/on_busy", "must be enqueue with run");
        }
        let run = self.run.ok_or_else(Error::internal)?;
        let run = run.checked(agents, checks, key).await?;
        Ok(NewTimer {
            id: TimerId(app.entropy.ordered_id()),
            tenant,
            target: TimerTarget::Run { run: Box::new(run) },
            rule: TimerRule {
                on_busy: Merge::Enqueue,
                ..rule
            },
            armed_max: None,
        })
    }

    /// The session's id. A malformed id counts as an unknown one.
    fn session(&self, checks: &mut Checks) -> Option<SessionId> {
        match (&self.session_id, &self.run) {
            (None, None) => checks.refuse("/session_id", "is required"),
            (Some(_), Some(_)) => checks.refuse("/run", "excludes session_id"),
            (Some(_), None) | (None, Some(_)) => {}
        }
        self.session_id.as_ref()?.parse().ok()
    }

    fn rule(&self, checks: &mut Checks) -> TimerRule {
        let schedule = self.members().schedule(checks);
        check_bounds(checks, self.max_occurrences, self.jitter);
        let catch_up = self.catch_up.unwrap_or(CatchUp::Once);
        let on_busy = self.on_busy.unwrap_or(match catch_up {
            CatchUp::All => Merge::Enqueue,
            CatchUp::Once | CatchUp::Skip => Merge::Coalesce,
        });
        TimerRule {
            catch_up,
            on_busy,
            max_occurrences: self.max_occurrences,
            until: self.until,
            jitter: self.jitter.filter(|jitter| !jitter.0.is_zero()),
            ..TimerRule::new(schedule)
        }
    }

    fn members(&self) -> Members<'_> {
        Members {
            at: self.at,
            after: self.after,
            every: self.every,
            cron: self.cron.as_deref(),
            timezone: self.timezone.as_deref(),
        }
    }
}

fn check_bounds(checks: &mut Checks, most: Option<u32>, jitter: Option<Span>) {
    if most.is_some_and(|most| !(1..=COUNT_MAX).contains(&most)) {
        checks.refuse(
            "/max_occurrences",
            &format!("must be from 1 to {COUNT_MAX}"),
        );
    }
    if jitter.is_some_and(|jitter| jitter.0 > JITTER_MAX) {
        checks.refuse("/jitter", "must be at most 1d");
    }
}

/// The members that say when a timer is due.
#[derive(Debug, Clone, Copy)]
struct Members<'a> {
    at: Option<Timestamp>,
    after: Option<Span>,
    every: Option<Span>,
    cron: Option<&'a str>,
    timezone: Option<&'a str>,
}

impl Members<'_> {
    fn is_empty(self) -> bool {
        let is_timed = self.at.is_some() || self.after.is_some() || self.every.is_some();
        !is_timed && self.cron.is_none() && self.timezone.is_none()
    }

    fn schedule(self, checks: &mut Checks) -> Schedule {
        let first = match (self.at, self.after) {
            (Some(at), after) => {
                if after.is_some() {
                    checks.refuse("/after", "excludes at");
                }
                Some(First::At(at))
            }
            (None, Some(after)) => Some(First::After(after)),
            (None, None) => None,
        };
        if self.timezone.is_some() && self.cron.is_none() {
            checks.refuse("/timezone", "is only allowed with cron");
        }
        let schedule = if let Some(expression) = self.cron {
            for (member, given) in [
                ("/at", self.at.is_some()),
                ("/after", self.after.is_some()),
                ("/every", self.every.is_some()),
            ] {
                if given {
                    checks.refuse(member, "excludes cron");
                }
            }
            if expression.len() > EXPRESSION_BYTES_MAX {
                checks.refuse("/cron", "must have at most 512 bytes");
                return Schedule::At(Timestamp(0));
            }
            Schedule::Cron {
                expression: expression.to_owned(),
                timezone: self.timezone.unwrap_or("UTC").to_owned(),
            }
        } else if let Some(every) = self.every {
            Schedule::Every { every, first }
        } else {
            match first {
                Some(First::At(at)) => Schedule::At(at),
                Some(First::After(after)) => Schedule::After(after),
                None => {
                    checks.refuse("", "one of at, after, every and cron is required");
                    return Schedule::At(Timestamp(0));
                }
            }
        };
        check(checks, &schedule);
        schedule
    }
}

/// Changes of a timer; absent members stay as they are. A new schedule is given whole and counts from now; the same
/// schedule once more changes nothing, except for `after` alone, which begins anew.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimerChangeBody {
    /// What it says from its next send on: a text, or text parts. Not allowed for a timer that starts runs.
    #[schema(schema_with = input_schema)]
    input: Option<Input>,
    /// When it is due: once, or with `every` the first time.
    #[schema(value_type = Option<String>, format = DateTime)]
    at: Option<Timestamp>,
    /// How long from now: once, or with `every` the first time.
    #[schema(value_type = Option<String>)]
    after: Option<Span>,
    /// A fixed rate, at least `1s`.
    #[schema(value_type = Option<String>)]
    every: Option<Span>,
    /// A cron expression: five fields starting with minutes, or six with seconds first.
    cron: Option<String>,
    /// The calendar's time zone, such as `Europe/Berlin`; `UTC` when absent. Only with `cron`.
    timezone: Option<String>,
    /// What to do with missed occurrences.
    catch_up: Option<CatchUp>,
    /// What happens to an occurrence while the previous one's send has not started.
    on_busy: Option<Merge>,
    /// Maximum number of occurrences, those that it had included; null: as many as there are.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    #[expect(clippy::option_option, reason = "null is not the same as absent")]
    max_occurrences: Option<Option<u32>>,
    /// Nothing is due after this; null: for good.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, format = DateTime)]
    #[expect(clippy::option_option, reason = "null is not the same as absent")]
    until: Option<Option<Timestamp>>,
    /// Each occurrence is delayed by less than this; at most `1d`; null: not at all.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    #[expect(clippy::option_option, reason = "null is not the same as absent")]
    jitter: Option<Option<Span>>,
}

impl JsonBody for TimerChangeBody {
    type Checked = TimerAmendment;

    fn checked(self, checks: &mut Checks) -> TimerAmendment {
        if let Some(input) = &self.input {
            checks.input(input);
        }
        let members = Members {
            at: self.at,
            after: self.after,
            every: self.every,
            cron: self.cron.as_deref(),
            timezone: self.timezone.as_deref(),
        };
        let schedule = (!members.is_empty()).then(|| members.schedule(checks));
        check_bounds(
            checks,
            self.max_occurrences.flatten(),
            self.jitter.flatten(),
        );
        TimerAmendment {
            schedule,
            catch_up: self.catch_up,
            on_busy: self.on_busy,
            max_occurrences: self.max_occurrences,
            until: self.until,
            jitter: self
                .jitter
                .map(|jitter| jitter.filter(|jitter| !jitter.0.is_zero())),
            input: self.input.map(|input| input.0),
        }
    }
}

/// Which occurrence to fire.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FireTimerBody {
    /// Its number: one more than the timer's `occurrences`. If the timer has had it, nothing is fired, so that a request may
    /// be repeated.
    #[schema(value_type = i64, required = true)]
    n: Option<i64>,
}

impl JsonBody for FireTimerBody {
    type Checked = Option<i64>;

    fn absent() -> Option<Self> {
        Some(Self::default())
    }

    fn checked(self, checks: &mut Checks) -> Option<i64> {
        if self.n.is_some_and(|n| n < 1) {
            checks.refuse("/n", "must be at least 1");
        }
        self.n
    }
}

/// Checks a schedule as far as possible without knowing the time.
fn check(checks: &mut Checks, schedule: &Schedule) {
    let Err(fault) = schedule.course(Timestamp(0)) else {
        return;
    };
    let member = match fault {
        ScheduleFault::TooOften => "/every",
        // Without knowing the time, only a calendar can be recognized as never due.
        ScheduleFault::Expression { .. } | ScheduleFault::Never => "/cron",
        ScheduleFault::Timezone { .. } => "/timezone",
    };
    checks.refuse_schedule(member, &fault.to_string());
}

/// Refuses options that the timer itself determines: when to send, and what to do with a busy
/// session.
fn refuse_options(checks: &mut Checks, options: &SendOptions) {
    if options.on_busy != OnBusy::Enqueue {
        checks.refuse("/options/on_busy", "belongs to the timer");
    }
    if options.delay.is_some() {
        checks.refuse("/options/delay", "is not allowed: use at or after");
    }
}
