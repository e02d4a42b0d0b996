//! Checks the occurrences of a timer against its recomputed schedule.

use super::{Course, Fate, Occurrence, TimerRule};
use crate::id::TimerId;
use crate::time::Timestamp;

/// Checks for each occurrence of a timer, in order of their numbers, whether its due time is possible.
#[derive(Debug)]
pub struct Calendar {
    timer: TimerId,
    rule: TimerRule,
    /// `None` if this program does not understand the schedule.
    course: Option<Course>,
    /// The previous occurrence: its number, its instant, its fate.
    last: Option<(i64, Timestamp, Fate)>,
}

impl Calendar {
    /// The calendar of a timer created at `created_at`.
    pub fn new(timer: TimerId, rule: TimerRule, created_at: Timestamp) -> Self {
        Self {
            timer,
            course: rule.schedule.course(rule.since.unwrap_or(created_at)).ok(),
            rule,
            last: None,
        }
    }

    /// The timer.
    pub fn timer(&self) -> TimerId {
        self.timer
    }

    /// Whether the occurrence is due at an instant of the schedule after the previous one, delayed
    /// by exactly its jitter, unless someone asked for it or the timer had another rule then. If a dead timer is resumed after its schedule has ended, it delivers
    /// its last occurrence once more: that one is due when the timer was resumed.
    pub fn allows(&mut self, occurrence: &Occurrence) -> bool {
        let Some(course) = &self.course else {
            return true;
        };
        let n = occurrence.n;
        let had_another = self
            .rule
            .amended_at
            .is_some_and(|at| occurrence.fired_at <= at);
        if occurrence.manual || had_another {
            let known = (n, occurrence.due_at, occurrence.fate);
            self.last = (!had_another).then_some(known);
            return true;
        }
        let instant = Timestamp(occurrence.due_at.0 - self.rule.delay(self.timer, n));
        let before = self.last.replace((n, instant, occurrence.fate));
        let before = before.filter(|(last, ..)| last + 1 == n);
        // The previous occurrence may have been deleted by retention.
        let may_be_resumed = match before {
            Some((.., fate)) => fate == Fate::Failed,
            None => n > 1,
        };
        let is_next = may_be_resumed || before.is_none_or(|(_, last, _)| last < instant);
        let on_course = course.next(Timestamp(instant.0 - 1)) == Some(instant);
        let is_over = || {
            let next = course.next(instant);
            !next.is_some_and(|next| self.rule.has(n, next))
        };
        self.rule.has(n, instant) && (on_course && is_next || may_be_resumed && is_over())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::time::Span;
    use crate::timer::{First, Schedule};

    const ID: TimerId = TimerId(uuid::Uuid::from_u128(7));

    fn at(n: i64, due_at: i64, fate: Fate) -> Occurrence {
        Occurrence {
            n,
            due_at: Timestamp(due_at),
            fate,
            send_id: None,
            fired_at: Timestamp(due_at),
            manual: false,
        }
    }

    fn fired(n: i64, due_at: i64) -> Occurrence {
        at(n, due_at, Fate::Fired)
    }

    fn every_second() -> TimerRule {
        TimerRule::new(Schedule::Every {
            every: Span(Duration::from_secs(1)),
            first: Some(First::At(Timestamp(5000))),
        })
    }

    fn allowed(rule: &TimerRule, all: &[Occurrence]) -> Vec<bool> {
        let mut calendar = Calendar::new(ID, rule.clone(), Timestamp(0));
        all.iter().map(|one| calendar.allows(one)).collect()
    }

    #[test]
    fn only_instants_of_the_schedule_are_allowed_each_once_and_in_order() {
        let rule = every_second();
        let all = [fired(1, 5000), fired(2, 6000), fired(3, 9000)];
        assert_eq!(allowed(&rule, &all), [true; 3]);
        assert_eq!(
            allowed(&rule, &[fired(1, 4000)]),
            [false],
            "before the first"
        );
        assert_eq!(allowed(&rule, &[fired(1, 5999)]), [false], "between two");
        let all = [fired(1, 6000), fired(2, 6000), fired(3, 5000)];
        assert_eq!(allowed(&rule, &all), [true, false, false]);
        // All earlier occurrences were deleted.
        assert_eq!(allowed(&rule, &[fired(8, 7000)]), [true]);
        assert_eq!(allowed(&rule, &[fired(8, 7001)]), [false]);
    }

    #[test]
    fn nothing_is_allowed_beyond_the_bounds_of_the_rule() {
        let mut rule = every_second();
        rule.max_occurrences = Some(1);
        let all = [fired(1, 5000), fired(2, 6000)];
        assert_eq!(allowed(&rule, &all), [true, false]);
        let mut rule = every_second();
        rule.until = Some(Timestamp(5500));
        assert_eq!(allowed(&rule, &all), [true, false]);
    }

    #[test]
    fn an_occurrence_is_put_off_by_its_own_jitter() {
        let mut rule = every_second();
        rule.jitter = Some(Span(Duration::from_millis(900)));
        let delays = [rule.delay(ID, 1), rule.delay(ID, 2)];
        assert_ne!(delays[0], delays[1]);
        let right = [fired(1, 5000 + delays[0]), fired(2, 6000 + delays[1])];
        assert_eq!(allowed(&rule, &right), [true, true]);
        assert_eq!(allowed(&rule, &[fired(1, 5000 + delays[1])]), [false]);
    }

    #[test]
    fn the_last_occurrence_of_a_dead_timer_is_due_again_when_it_was_resumed() {
        let rule = TimerRule::new(Schedule::At(Timestamp(5000)));
        let again = [at(1, 5000, Fate::Failed), fired(2, 70_123)];
        assert_eq!(allowed(&rule, &again), [true, true]);
        let twice = [fired(1, 5000), fired(2, 70_123)];
        assert_eq!(allowed(&rule, &twice), [true, false]);
        // A timer with occurrences left continues with the next one.
        let early = [at(1, 5000, Fate::Failed), fired(2, 5999)];
        assert_eq!(allowed(&every_second(), &early), [true, false]);
    }
}
