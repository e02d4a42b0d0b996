//! Changes that are requested of a timer.

use super::{
    CatchUp, Event, Merge, Schedule, ScheduleFault, TimerRecord, TimerRule, TimerStatus,
    TimerTarget, transition,
};
use crate::message::ContentPart;
use crate::time::{Span, Timestamp};

/// A change requested of a timer.
#[derive(Debug, Clone, PartialEq)]
pub enum TimerChange {
    /// Pause it.
    Pause,
    /// Resume it.
    Resume,
    /// Cancel it.
    Cancel,
    /// Fire its next occurrence now.
    Fire {
        /// The number of that occurrence. One that has an outcome is not fired again, so that a repeat changes nothing.
        n: i64,
    },
    /// Give it other rules.
    Amend(Box<TimerAmendment>),
}

/// Other rules of a timer; what is absent stays as it is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TimerAmendment {
    /// When it is due, counted from the change.
    pub schedule: Option<Schedule>,
    /// What to do with missed occurrences.
    pub catch_up: Option<CatchUp>,
    /// What to do with an occurrence while the previous one's send is still queued.
    pub on_busy: Option<Merge>,
    /// Maximum number of occurrences, those before the change included.
    pub max_occurrences: Option<Option<u32>>,
    /// Nothing is due after this.
    pub until: Option<Option<Timestamp>>,
    /// Each occurrence is delayed by less than this.
    pub jitter: Option<Option<Span>>,
    /// What it says from its next send on; nothing that starts runs says anything.
    pub input: Option<Vec<ContentPart>>,
}

/// Why a change is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeRefused {
    /// The timer's status does not allow it.
    Illegal,
    /// The timer would never be due again.
    Schedule(ScheduleFault),
}

impl TimerChange {
    /// The timer after the change at `now`; the timer itself if that changes nothing.
    pub fn apply(&self, timer: &TimerRecord, now: Timestamp) -> Result<TimerRecord, ChangeRefused> {
        let event = match self {
            Self::Pause => Event::Pause,
            Self::Resume => Event::Resume,
            Self::Cancel => Event::Cancel,
            Self::Fire { n } => Event::Fire { n: *n },
            Self::Amend(amendment) => return amendment.apply(timer, now),
        };
        let step = transition(timer, &event, now).map_err(|_| ChangeRefused::Illegal)?;
        let mut next = timer.clone();
        if step.next != timer.state {
            next.state = step.next;
            next.updated_at = now;
        }
        Ok(next)
    }
}

impl TimerAmendment {
    /// The timer with these rules. The number of its next occurrence stays; under another schedule that one is due as the
    /// first of a timer created at `now` would be, and under the same one when it was.
    fn apply(&self, timer: &TimerRecord, now: Timestamp) -> Result<TimerRecord, ChangeRefused> {
        if matches!(
            timer.state.status,
            TimerStatus::Done | TimerStatus::Cancelled
        ) {
            return Err(ChangeRefused::Illegal);
        }
        let mut next = timer.clone();
        next.rule = self.rule(&timer.rule, now);
        if let (Some(said), TimerTarget::Send { input, .. }) = (&self.input, &mut next.target) {
            input.clone_from(said);
        }
        if let Some(due) = next.due_under(&timer.rule)? {
            let delay = next.rule.delay(timer.id, next.state.next_n);
            let state = &mut next.state;
            let is_put_off = state.due_at != Some(due) || next.rule.jitter != timer.rule.jitter;
            if is_put_off && state.fire_at.is_some() {
                state.fire_at = Some(Timestamp(due.0 + delay));
            }
            state.due_at = Some(due);
        }
        if next.rule.since != timer.rule.since {
            next.state.failures = 0;
            next.state.failure = None;
        }
        if next != *timer {
            next.updated_at = now;
        }
        Ok(next)
    }

    fn rule(&self, rule: &TimerRule, now: Timestamp) -> TimerRule {
        // The same schedule once more leaves a fixed rate where it is; the same `after` begins anew.
        let is_other =
            |new: &&Schedule| **new != rule.schedule || matches!(new, Schedule::After(_));
        let (schedule, since) = match self.schedule.as_ref().filter(is_other) {
            Some(schedule) => (schedule.clone(), Some(now)),
            None => (rule.schedule.clone(), rule.since),
        };
        let amended = TimerRule {
            schedule,
            since,
            amended_at: rule.amended_at,
            catch_up: self.catch_up.unwrap_or(rule.catch_up),
            on_busy: self.on_busy.unwrap_or(rule.on_busy),
            max_occurrences: self.max_occurrences.unwrap_or(rule.max_occurrences),
            until: self.until.unwrap_or(rule.until),
            jitter: self.jitter.unwrap_or(rule.jitter),
        };
        let amended_at = if amended == *rule {
            rule.amended_at
        } else {
            Some(now)
        };
        TimerRule {
            amended_at,
            ..amended
        }
    }
}

impl TimerRecord {
    /// When the next occurrence is due under its rule, which was another one; `None` for a dead timer, which has none.
    fn due_under(&self, before: &TimerRule) -> Result<Option<Timestamp>, ChangeRefused> {
        let course = self.course().map_err(ChangeRefused::Schedule)?;
        let due = match self.state.due_at {
            Some(due) if self.rule.since == before.since => Some(due),
            _ => course.first(),
        };
        match due.filter(|due| self.has(self.state.next_n, *due)) {
            None => Err(ChangeRefused::Schedule(ScheduleFault::Never)),
            Some(_) if self.state.due_at.is_none() => Ok(None),
            some => Ok(some),
        }
    }
}

#[cfg(test)]
mod tests;
