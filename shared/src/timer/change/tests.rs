use std::time::Duration;

use uuid::Uuid;

use super::*;
use crate::id::{SessionId, TenantId, TimerId};
use crate::timer::Calendar;
use crate::timer::TimerState;

const MADE: Timestamp = Timestamp(1_800_000_000_000);

fn minutes(count: u64) -> Span {
    Span(Duration::from_mins(count))
}

fn after(min: i64) -> Timestamp {
    Timestamp(MADE.0 + min * 60_000)
}

fn every(count: u64) -> Schedule {
    Schedule::Every {
        every: minutes(count),
        first: None,
    }
}

fn timer(schedule: Schedule) -> TimerRecord {
    let (id, rule) = (TimerId(Uuid::from_u128(7)), TimerRule::new(schedule));
    TimerRecord {
        id,
        tenant: TenantId::DEFAULT,
        target: TimerTarget::emptied(SessionId(Uuid::from_u128(5))),
        state: TimerState::armed(id, &rule, MADE).expect("is due"),
        rule,
        created_at: MADE,
        updated_at: MADE,
    }
}

fn amend(
    timer: &TimerRecord,
    at: i64,
    amendment: TimerAmendment,
) -> Result<TimerRecord, ChangeRefused> {
    TimerChange::Amend(Box::new(amendment)).apply(timer, after(at))
}

fn rescheduled(schedule: Schedule) -> TimerAmendment {
    TimerAmendment {
        schedule: Some(schedule),
        ..TimerAmendment::default()
    }
}

fn fire(timer: &mut TimerRecord, at: i64) -> Vec<super::super::Occurrence> {
    let event = Event::Due {
        queued: None,
        refused: None,
    };
    let step = transition(timer, &event, after(at)).expect("is armed");
    timer.state = step.next;
    step.occurrences
}

#[test]
fn another_schedule_counts_from_the_change_and_occurrences_are_counted_on() {
    let mut timer = timer(every(10));
    let mut all = fire(&mut timer, 10);
    timer = amend(&timer, 13, rescheduled(every(30))).expect("is due");
    assert_eq!(timer.upcoming(2), [after(43), after(73)]);
    all.extend(fire(&mut timer, 43));
    assert_eq!(all.iter().map(|one| one.n).collect::<Vec<_>>(), [1, 2]);
    // Whoever checks the history knows that it followed two rules.
    let mut calendar = Calendar::new(timer.id, timer.rule.clone(), timer.created_at);
    assert!(all.iter().all(|one| calendar.allows(one)), "{all:?}");
    let mut stray = all[1].clone();
    (stray.n, stray.due_at.0, stray.fired_at.0) = (3, stray.due_at.0 + 1, stray.fired_at.0 + 1);
    assert!(!calendar.allows(&stray));
}

#[test]
fn the_same_schedule_once_more_changes_nothing_and_the_same_delay_begins_anew() {
    let timer_every = timer(every(10));
    let again = amend(&timer_every, 7, rescheduled(every(10)));
    assert_eq!(again, Ok(timer_every));
    let delayed = timer(Schedule::After(minutes(10)));
    let snoozed = amend(&delayed, 7, rescheduled(Schedule::After(minutes(10))));
    assert_eq!(snoozed.expect("is due").upcoming(2), [after(17)]);
}

#[test]
fn bounds_are_set_and_removed_and_one_that_leaves_nothing_is_refused() {
    let mut timer = timer(every(10));
    fire(&mut timer, 10);
    let bounded = |until| TimerAmendment {
        until: Some(until),
        ..TimerAmendment::default()
    };
    let until = amend(&timer, 11, bounded(Some(after(25)))).expect("is due");
    assert_eq!(until.upcoming(5), [after(20)]);
    let free = amend(&until, 12, bounded(None)).expect("is due");
    assert_eq!(free.upcoming(5).len(), 5);
    let never = Err(ChangeRefused::Schedule(ScheduleFault::Never));
    assert_eq!(amend(&timer, 11, bounded(Some(after(15)))), never);
    let counted = TimerAmendment {
        max_occurrences: Some(Some(1)),
        ..TimerAmendment::default()
    };
    assert_eq!(amend(&timer, 11, counted), never, "it has had that one");
}

#[test]
fn a_paused_timer_stays_paused_and_an_ended_one_is_not_changed() {
    let timer = timer(every(10));
    let paused = TimerChange::Pause.apply(&timer, after(1)).expect("paused");
    let changed = amend(&paused, 2, rescheduled(every(5))).expect("is due");
    assert_eq!(changed.state.status, TimerStatus::Paused);
    assert_eq!(
        (changed.state.due_at, changed.state.fire_at),
        (Some(after(7)), None)
    );
    let resumed = TimerChange::Resume
        .apply(&changed, after(3))
        .expect("armed");
    assert_eq!(resumed.state.fire_at, Some(after(7)));
    let ended = TimerChange::Cancel.apply(&timer, after(1)).expect("ended");
    let refused = amend(&ended, 2, rescheduled(every(5)));
    assert_eq!(refused, Err(ChangeRefused::Illegal));
}

#[test]
fn a_dead_timer_is_changed_and_then_resumed() {
    let mut timer = timer(every(10));
    timer.state.status = TimerStatus::Dead;
    (timer.state.due_at, timer.state.fire_at) = (None, None);
    timer.state.ended_at = Some(after(1));
    let changed = amend(&timer, 2, rescheduled(every(5))).expect("is due");
    assert_eq!(
        (changed.state.status, changed.state.due_at),
        (TimerStatus::Dead, None)
    );
    let resumed = TimerChange::Resume
        .apply(&changed, after(3))
        .expect("armed");
    assert_eq!(resumed.state.fire_at, Some(after(7)));
}

#[test]
fn a_new_jitter_puts_off_the_next_occurrence_at_once() {
    let timer = timer(every(10));
    let jittered = TimerAmendment {
        jitter: Some(Some(minutes(9))),
        ..TimerAmendment::default()
    };
    let put_off = amend(&timer, 1, jittered).expect("is due");
    assert_eq!(put_off.state.due_at, Some(after(10)));
    assert!(put_off.state.fire_at > Some(after(10)));
}
