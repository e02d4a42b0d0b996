//! The state machine of timers: a function of the row, an event and the database's clock.

use std::time::Duration;

use super::{
    CatchUp, Course, Fate, Merge, Occurrence, TimerRecord, TimerState, TimerStatus, send_id,
};
use crate::error::{Code, Failure};
use crate::id::SendId;
use crate::time::Timestamp;

/// Failed deliveries of one occurrence after which the timer is dead.
pub const DELIVERIES_MAX: i32 = 6;

/// Maximum number of missed occurrences that `all` fires.
pub const CAUGHT_UP_MAX: usize = 100;

/// How late an occurrence may be without counting as missed: longer than a scheduler restart.
pub const LATE_MAX: Duration = Duration::from_mins(1);

/// The wait after the first failed delivery; each further wait is four times as long.
const BACKOFF: Duration = Duration::from_secs(5);

/// The longest wait between two deliveries.
const BACKOFF_MAX: Duration = Duration::from_mins(10);

/// What happens to a timer.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Its time has come.
    Due {
        /// The send of its last occurrence, if it has not started.
        queued: Option<SendId>,
        /// The refusal of one of this event's deliveries, once they were tried.
        refused: Option<Refusal>,
    },
    /// It is paused.
    Pause,
    /// It is resumed.
    Resume,
    /// It is cancelled.
    Cancel,
    /// Its next occurrence is to be fired now.
    Fire {
        /// The number of that occurrence.
        n: i64,
    },
}

/// A delivery that was refused.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The occurrence.
    pub n: i64,
    /// Whether its target no longer exists.
    pub gone: bool,
    /// The reason.
    pub failure: Failure,
}

/// The effect of an event: the timer afterwards, and the occurrences that were settled. Each with
/// the fate `fired` must be delivered with the id that it names.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The timer afterwards.
    pub next: TimerState,
    /// The settled occurrences, in order.
    pub occurrences: Vec<Occurrence>,
}

/// An event that is not allowed in this status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a timer that is {} cannot be {event}d", .status.as_str())]
pub struct IllegalEvent {
    /// The status.
    pub status: TimerStatus,
    /// The event, as a verb without its last letter.
    pub event: &'static str,
}

/// Decides the effect of an event. If a delivery is refused, call again with the refusal: only the
/// occurrences before the refused one then stand.
pub fn transition(
    timer: &TimerRecord,
    event: &Event,
    now: Timestamp,
) -> Result<Step, IllegalEvent> {
    let state = &timer.state;
    let illegal = |event| {
        let status = state.status;
        Err(IllegalEvent { status, event })
    };
    match (state.status, event) {
        (TimerStatus::Armed, Event::Due { queued, refused }) => {
            Ok(due(timer, *queued, refused.as_ref(), now))
        }
        // A repeat of what was done: whatever it is now, this occurrence has its fate.
        (_, Event::Fire { n }) if *n < state.next_n => Ok(only(state.clone())),
        (TimerStatus::Armed, Event::Fire { .. }) => Ok(only(TimerState {
            // What is to be fired before it is due has been asked for: nothing else makes it so.
            fire_at: state.due_at.map(|due| now.min(Timestamp(due.0 - 1))),
            ..state.clone()
        })),
        (TimerStatus::Armed, Event::Pause) => Ok(only(TimerState {
            status: TimerStatus::Paused,
            fire_at: None,
            ..state.clone()
        })),
        (TimerStatus::Paused, Event::Resume) => Ok(only(TimerState {
            status: TimerStatus::Armed,
            // Occurrences during the pause count as missed; `catch_up` decides about them.
            fire_at: state.due_at.map(|due| put_off(timer, state.next_n, due)),
            ..state.clone()
        })),
        (TimerStatus::Dead, Event::Resume) => Ok(only(revive(timer, now))),
        (TimerStatus::Armed | TimerStatus::Paused | TimerStatus::Dead, Event::Cancel) => {
            Ok(only(ended(state, TimerStatus::Cancelled, now)))
        }
        // It already has the requested status.
        (TimerStatus::Armed, Event::Resume)
        | (TimerStatus::Paused, Event::Pause)
        | (TimerStatus::Done | TimerStatus::Cancelled, Event::Cancel) => Ok(only(state.clone())),
        (TimerStatus::Done | TimerStatus::Cancelled | TimerStatus::Dead, Event::Pause) => {
            illegal("pause")
        }
        (TimerStatus::Done | TimerStatus::Cancelled, Event::Resume) => illegal("resume"),
        (
            TimerStatus::Paused | TimerStatus::Done | TimerStatus::Cancelled | TimerStatus::Dead,
            Event::Due { .. } | Event::Fire { .. },
        ) => illegal("fire"),
    }
}

fn only(next: TimerState) -> Step {
    Step {
        next,
        occurrences: Vec::new(),
    }
}

fn ended(state: &TimerState, status: TimerStatus, now: Timestamp) -> TimerState {
    TimerState {
        status,
        due_at: None,
        fire_at: None,
        ended_at: Some(now),
        ..state.clone()
    }
}

/// When to fire occurrence `n`, which the schedule makes due at `due`.
fn put_off(timer: &TimerRecord, n: i64, due: Timestamp) -> Timestamp {
    Timestamp(due.0 + timer.rule.delay(timer.id, n))
}

/// Revives a dead timer: it continues with its next occurrence or, without one, delivers its last
/// one once more.
fn revive(timer: &TimerRecord, now: Timestamp) -> TimerState {
    let course = timer.course().ok();
    let state = &timer.state;
    let next = course.and_then(|course| course.next(now));
    let next = next.filter(|due| timer.has(state.next_n, *due));
    let due = next.unwrap_or(now);
    TimerState {
        status: TimerStatus::Armed,
        due_at: Some(due),
        fire_at: Some(put_off(timer, state.next_n, due)),
        failures: 0,
        ended_at: None,
        ..state.clone()
    }
}

/// A planned occurrence: its scheduled instant, and whether it is skipped.
#[derive(Debug, Clone, Copy)]
struct Planned {
    instant: Timestamp,
    skip: bool,
}

/// The due occurrences, and the last instant that they account for.
fn plan(
    timer: &TimerRecord,
    course: &Course,
    due: Timestamp,
    now: Timestamp,
) -> (Vec<Planned>, Timestamp) {
    let rule = &timer.rule;
    let longest = rule.jitter.map_or(0, |span| span.0.as_millis() as i64);
    // Every instant up to here has passed, whatever its jitter.
    let horizon = Timestamp(now.0.saturating_sub(longest)).max(due);
    let horizon = rule.until.map_or(horizon, |until| horizon.min(until));
    let latest = course.latest(horizon).filter(|last| *last > due);
    let last = latest.unwrap_or(due);
    let fires = |instant| Planned {
        instant,
        skip: false,
    };
    let skips = |instant| Planned {
        instant,
        skip: true,
    };
    let is_late = |instant: Timestamp| {
        now.since(put_off(timer, timer.state.next_n, instant)) > LATE_MAX
            && timer.state.failures == 0
    };
    let planned = match (rule.catch_up, latest) {
        (CatchUp::Skip, None) if is_late(due) => vec![skips(due)],
        (CatchUp::Skip, Some(last)) if timer.state.failures == 0 => {
            let mut planned = vec![skips(due)];
            planned.extend((!is_late(last)).then(|| fires(last)));
            planned
        }
        (CatchUp::All, Some(last)) => missed(course, due, last),
        (CatchUp::Skip | CatchUp::Once, _) | (CatchUp::All, None) => vec![fires(due)],
    };
    (planned, last)
}

/// The newest instants from `due` to `last`, which fire; one skipped occurrence stands for all
/// older ones.
fn missed(course: &Course, due: Timestamp, last: Timestamp) -> Vec<Planned> {
    let mut newest = Vec::new();
    let mut at = Some(last);
    while let Some(instant) = at.filter(|at| *at >= due && newest.len() < CAUGHT_UP_MAX) {
        newest.push(Planned {
            instant,
            skip: false,
        });
        at = course.latest(Timestamp(instant.0 - 1));
    }
    if newest.last().is_some_and(|oldest| oldest.instant > due) {
        newest.push(Planned {
            instant: due,
            skip: true,
        });
    }
    newest.reverse();
    newest
}

fn due(
    timer: &TimerRecord,
    queued: Option<SendId>,
    refused: Option<&Refusal>,
    now: Timestamp,
) -> Step {
    let state = &timer.state;
    let Some(due) = state.due_at else {
        return only(ended(state, TimerStatus::Done, now));
    };
    let course = match timer.course() {
        Ok(course) => course,
        // The schedule was valid when the timer was created, but this program does not understand it.
        Err(fault) => return only(unreadable(state, &fault, now)),
    };
    let manual = state.fire_at.is_some_and(|fire_at| fire_at < due);
    // The schedule of a timer that recurs goes on as it was: this is one more.
    let due = if timer.rule.schedule.is_recurring() {
        due.min(now)
    } else {
        due
    };
    let (planned, last) = plan(timer, &course, due, now);
    let mut next = state.clone();
    let mut waiting = queued
        .filter(|_| timer.rule.on_busy == Merge::Coalesce && timer.rule.schedule.is_recurring());
    let mut occurrences = Vec::with_capacity(planned.len());
    for Planned { instant, skip } in planned {
        let n = next.next_n;
        if !timer.has(n, instant) {
            break;
        }
        if let Some(refused) = refused.filter(|refused| refused.n == n) {
            let reached = if occurrences.is_empty() {
                // As it was, also where someone asked for it before it was due.
                next
            } else {
                TimerState {
                    due_at: Some(instant),
                    ..next
                }
            };
            return turned_away(timer, &reached, occurrences, (refused, manual), now);
        }
        let (fate, send) = match (skip, waiting) {
            (true, _) => (Fate::Skipped, None),
            (false, Some(send)) => (Fate::Merged, Some(send)),
            (false, None) => (Fate::Fired, Some(send_id(timer.id, n, now))),
        };
        if timer.rule.on_busy == Merge::Coalesce {
            waiting = waiting.or(send);
        }
        occurrences.push(Occurrence {
            n,
            due_at: due_or_asked(put_off(timer, n, instant), manual, now),
            fate,
            send_id: send,
            fired_at: now,
            manual,
        });
        next.next_n = n + 1;
        next.last_send = send.or(next.last_send);
    }
    next.last_fired_at = Some(now);
    next.failures = 0;
    next.failure = None;
    let after = course.next(last).filter(|due| timer.has(next.next_n, *due));
    let next = match after {
        Some(due) => TimerState {
            due_at: Some(due),
            fire_at: Some(put_off(timer, next.next_n, due)),
            ..next
        },
        None => ended(&next, TimerStatus::Done, now),
    };
    Step { next, occurrences }
}

/// When an occurrence was due, or when it was fired because someone asked for it.
fn due_or_asked(due: Timestamp, manual: bool, now: Timestamp) -> Timestamp {
    if manual { due.min(now) } else { due }
}

/// The effect of a refused delivery of the occurrence that a timer has reached: it retries later, or ends.
fn turned_away(
    timer: &TimerRecord,
    reached: &TimerState,
    mut occurrences: Vec<Occurrence>,
    (refused, manual): (&Refusal, bool),
    now: Timestamp,
) -> Step {
    let n = reached.next_n;
    let due = reached.due_at.unwrap_or(now);
    // Occurrences delivered before this one reset the count.
    let failures = if occurrences.is_empty() {
        reached.failures + 1
    } else {
        1
    };
    let failing = TimerState {
        failures,
        failure: Some(refused.failure.clone()),
        ..reached.clone()
    };
    if refused.gone {
        let next = ended(&failing, TimerStatus::Cancelled, now);
        return Step { next, occurrences };
    }
    if failures < DELIVERIES_MAX {
        let factor = 4_u32.saturating_pow(failures.saturating_sub(1).unsigned_abs());
        let wait = BACKOFF.saturating_mul(factor).min(BACKOFF_MAX);
        let again = now.after(wait);
        // One that was asked for is the schedule's again once it is due, and then not early either.
        let fire_at = if manual && again >= due {
            again.max(put_off(timer, n, due))
        } else {
            again
        };
        let next = TimerState {
            fire_at: Some(fire_at),
            ..failing
        };
        return Step { next, occurrences };
    }
    occurrences.push(Occurrence {
        n,
        due_at: due_or_asked(put_off(timer, n, due), manual, now),
        fate: Fate::Failed,
        send_id: None,
        fired_at: now,
        manual,
    });
    let next = TimerState {
        next_n: n + 1,
        last_fired_at: Some(now),
        ..ended(&failing, TimerStatus::Dead, now)
    };
    Step { next, occurrences }
}

fn unreadable(state: &TimerState, fault: &super::ScheduleFault, now: Timestamp) -> TimerState {
    let message = format!("the schedule {fault}");
    TimerState {
        failure: Some(Failure::new(Code::TimerInvalidSchedule, message)),
        ..ended(state, TimerStatus::Dead, now)
    }
}

#[cfg(test)]
mod tests;
