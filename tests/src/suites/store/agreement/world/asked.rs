//! Timers, the lists that agents keep, and copies of sessions.

use mainspring_shared::agent::SendOptions;
use mainspring_shared::id::{TenantId, TimerId};
use mainspring_shared::list::{Bounds, Change, List, ListName, NewEntry, WhenFull};
use mainspring_shared::store::{
    ChangeTimer, ImportSession, Inspect, ListOccurrences, ListTimers, NewTimer, WriteList,
};
use mainspring_shared::time::Span;
use mainspring_shared::timer::{Schedule, TimerAmendment, TimerChange, TimerRule, TimerTarget};
use uuid::Uuid;

use super::super::op::{Agent, Noted, Op, Timing};
use super::{World, request, small};

/// The limits of lists in a sequence.
const BOUNDS: Bounds = Bounds {
    entries_max: 3,
    chars_max: 40,
    when_full: WhenFull::Reject,
};

fn timer(n: u128) -> TimerId {
    TimerId(Uuid::from_u128(n))
}

fn rule(timing: &Timing) -> TimerRule {
    let length = Span(small::millis(timing.ms));
    let schedule = if timing.recurring {
        Schedule::Every {
            every: length,
            first: None,
        }
    } else {
        Schedule::After(length)
    };
    TimerRule {
        catch_up: timing.catch_up,
        on_busy: timing.on_busy,
        max_occurrences: timing.most,
        ..TimerRule::new(schedule)
    }
}

fn amendment(pick: u8) -> TimerAmendment {
    let every = Schedule::Every {
        every: Span(small::millis(1_000 * i64::from(pick % 4 + 1))),
        first: None,
    };
    TimerAmendment {
        schedule: pick.is_multiple_of(2).then_some(every),
        max_occurrences: pick
            .is_multiple_of(3)
            .then(|| Some(u32::from(pick % 5) + 1)),
        input: pick
            .is_multiple_of(7)
            .then(|| small::words(u128::from(pick))),
        ..TimerAmendment::default()
    }
}

impl World<'_> {
    pub(super) async fn timer_step(&mut self, op: Op) -> Result<(), String> {
        let scheduler = small::boot(small::SCHEDULER);
        match op {
            Op::Timer(timing) => {
                self.timers += 1;
                let new = NewTimer {
                    id: timer(self.timers),
                    tenant: TenantId::DEFAULT,
                    target: TimerTarget::Send {
                        session: self.session(timing.session).session,
                        input: small::words(self.timers),
                        options: Box::new(SendOptions::default()),
                    },
                    rule: rule(&timing),
                    armed_max: timing.armed_max,
                };
                let items = vec![(new, timing.request.map(request))];
                both!(self, |store| store
                    .at(self.at())
                    .create_timers(items.clone()));
            }
            Op::ChangeTimer(pick, change) => {
                let item = ChangeTimer {
                    tenant: TenantId::DEFAULT,
                    id: timer(1 + u128::from(pick) % self.timers.max(1)),
                    session: pick.is_multiple_of(5).then(|| self.session(pick).session),
                    change: [
                        TimerChange::Pause,
                        TimerChange::Resume,
                        TimerChange::Cancel,
                        TimerChange::Fire {
                            n: i64::from(pick % 3) + 1,
                        },
                        TimerChange::Amend(Box::new(amendment(pick))),
                        TimerChange::Resume,
                    ][usize::from(change % 6)]
                    .clone(),
                };
                both!(self, |store| store
                    .at(self.at())
                    .change_timers(vec![item.clone()]));
            }
            Op::Fire(limit) => {
                both!(self, |store| store
                    .at(self.at())
                    .fire_timers(scheduler, limit));
            }
            Op::SweepTimers(ms) => {
                let keep = small::millis(ms);
                while both!(self, |store| store.at(self.at()).sweep_timers(keep)) > 0 {}
            }
            other => unreachable!("{other:?} is no step of timers"),
        }
        Ok(())
    }

    pub(super) async fn write_list(&mut self, noted: Noted) -> Result<(), String> {
        let key = self.session(noted.session);
        let id = i64::from(noted.entry % 4) + 1;
        let text = format!("entry {}", noted.entry);
        let entry = |text: String| NewEntry {
            text,
            ..NewEntry::default()
        };
        let item = WriteList {
            name: if noted.todo {
                ListName::Todo(key.session)
            } else {
                ListName::Notes(key.session)
            },
            session: key,
            // The same call repeats at times.
            call_id: format!("call_{}", noted.call % 24),
            change: match noted.change % 4 {
                0 => Change::Add(entry(text)),
                1 => Change::Update {
                    id,
                    text: Some(text),
                    status: None,
                    pinned: None,
                    if_version: noted.entry.is_multiple_of(3).then_some(1),
                },
                2 => Change::Remove { id },
                _ => Change::Replace(vec![entry(text.clone()), entry(text)]),
            },
            bounds: BOUNDS,
        };
        both!(self, |store| store.at(self.at()).write_list(item.clone()));
        both!(self, |store| store
            .read_list(TenantId::DEFAULT, item.name.clone()));
        Ok(())
    }

    /// Creates a session from the transcript of another, in one page or two.
    pub(super) async fn copy(&mut self, pick: u8, agent: &Agent) -> Result<(), String> {
        let known = self.known().await;
        let key = self.session_like(&known, pick, |session| !session.messages.is_empty());
        let copied = known.sessions.iter().find(|session| session.key == key);
        let Some(copied) = copied else {
            return Ok(());
        };
        // A transcript that ends within a round cannot be archived.
        let open = copied.messages.iter().position(|message| {
            let calls = &message.tool_calls;
            calls.iter().any(|call| {
                let mut answers = copied.messages.iter();
                !answers.any(|message| message.tool_call_id.as_ref() == Some(&call.id))
            })
        });
        let messages = &copied.messages[..open.unwrap_or(copied.messages.len())];
        let mut item = ImportSession {
            session: self.new_session(agent),
            messages: messages.to_vec(),
            folds: Vec::new(),
            projections: Vec::new(),
            todo: List::default(),
            notes: List::default(),
            idempotency: None,
            behind: 0,
            more: false,
        };
        let first_call = messages.iter().position(|m| !m.tool_calls.is_empty());
        if let Some(first) = first_call.filter(|first| *first > 0 && pick.is_multiple_of(2)) {
            let rest = item.messages.split_off(first);
            item.more = true;
            both!(self, |store| store
                .at(self.at())
                .import_session(item.clone()));
            item.behind = item.messages.len() as i64;
            item.messages = rest;
            item.more = false;
        }
        both!(self, |store| store
            .at(self.at())
            .import_session(item.clone()));
        Ok(())
    }

    pub(super) async fn read_timers(&self) -> Result<(), String> {
        let ids: Vec<_> = (1..=self.timers + 1)
            .map(|n| (TenantId::DEFAULT, timer(n)))
            .collect();
        both!(self, |store| store.get_timers(ids.clone()));
        let query = ListTimers {
            tenant: TenantId::DEFAULT,
            session: None,
            status: None,
            before: Some(timer(self.timers)),
            limit: 3,
        };
        both!(self, |store| store.list_timers(query.clone()));
        for n in 1..=self.timers {
            let query = ListOccurrences {
                tenant: TenantId::DEFAULT,
                timer: timer(n),
                before: n.is_multiple_of(2).then_some(3),
                limit: 2,
            };
            both!(self, |store| store.list_occurrences(query.clone()));
        }
        Ok(())
    }
}
