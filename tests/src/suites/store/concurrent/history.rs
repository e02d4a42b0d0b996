//! What happened, and whether the same calls made one after another could have done it.

use std::cmp::Reverse;
use std::fmt::{self, Display};
use std::sync::Arc;

use mainspring_runtime::SystemClock;
use mainspring_shared::store::{BootRecord, Dump, DumpSession, Inspect, NewBoot, Result, Role};
use mainspring_store_model::ModelStore;
use uuid::Uuid;

use super::call::{Call, Outcome};
use crate::suites::store::prelude::{TTL, boot, millis, time};

/// The number of processes that hold sessions.
pub(super) const WORKERS: u128 = 3;

/// Numbers reserved for the IDs of one history. The first of them, its base, is not used as an ID.
pub(super) const NUMBERS: u128 = 1_000;

/// When the calls of the beginning are made, in sequence.
pub(super) const FIRST: i64 = 100;

/// When all other calls are made.
pub(super) const THEN: i64 = 500;

/// A call and its answer.
#[derive(Debug, Clone)]
pub(super) struct Answered {
    pub(super) call: Call,
    pub(super) outcome: Outcome,
}

/// A call that may have run concurrently with others.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) task: usize,
    /// Counters taken before the call was made and after it was answered: a call answered before
    /// another was made precedes it.
    pub(super) made: u64,
    pub(super) answered: u64,
    pub(super) what: Answered,
}

/// Calls made in sequence, calls made concurrently, and what they left.
#[derive(Debug, Clone)]
pub(super) struct History {
    pub(super) base: u128,
    pub(super) beginning: Vec<Answered>,
    pub(super) events: Vec<Event>,
    pub(super) end: End,
}

/// What a history leaves behind.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct End {
    pub(super) boots: Vec<BootRecord>,
    pub(super) sessions: Vec<DumpSession>,
}

impl End {
    /// What a store contains of the history with this base.
    pub(super) async fn of(store: &dyn Inspect, base: u128) -> Result<Self> {
        let Dump {
            mut boots,
            mut sessions,
            ..
        } = store.dump().await?;
        let mine = |id: Uuid| (base..base + NUMBERS).contains(&id.as_u128());
        boots.retain(|boot| mine(boot.id.0));
        sessions.retain(|session| mine(session.key.session.0));
        Ok(Self { boots, sessions })
    }
}

/// Registers the workers of the history with this base, numbered from there.
pub(super) async fn register(store: &dyn Inspect, base: u128) {
    for n in 1..=WORKERS {
        let new = NewBoot {
            id: boot(base + n),
            role: Role::Worker,
            name: format!("worker-{n}"),
            pool: "default".to_owned(),
            concurrency: 4,
            ttl: millis(TTL),
            protocol: mainspring_shared::store::PROTOCOL,
            tools: mainspring_shared::tool::Published::default(),
        };
        let registered = store.at(time(0)).register_boot(new).await;
        registered.expect("the store answers");
    }
}

impl History {
    /// Looks for an order of the calls in which the model gives the same answers and ends in the
    /// same state. Fails with what the longest matching order ran into.
    pub(super) async fn check(&self) -> std::result::Result<(), String> {
        let events = self.events.iter();
        let events: Vec<_> = events
            .filter(|event| !event.what.outcome.is_no_answer())
            .collect();
        let certain = |index: &usize| !events[*index].what.outcome.is_maybe_nothing();
        let all = (0..events.len()).filter(certain).count();
        let mut furthest = (0, String::new());
        // Orders to try. In each, all calls but the last are known to be answered alike.
        let mut orders: Vec<Vec<usize>> = vec![Vec::new()];
        while let Some(order) = orders.pop() {
            let made = order.iter().copied().filter(|index| certain(index)).count();
            let mut failed = |why| {
                if order.len() >= furthest.0 {
                    furthest = (order.len(), why);
                }
            };
            let model = match self.replay(&events, &order).await {
                Ok(model) => model,
                Err(why) => {
                    failed(why);
                    continue;
                }
            };
            if made == all {
                match self.compare_end(&model).await {
                    Ok(()) => return Ok(()),
                    Err(why) => failed(why),
                }
            }
            // A stack: pushed so that the call answered first is tried first.
            let mut next = possible(&events, &order);
            next.sort_by_key(|index| Reverse(events[*index].answered));
            let further = next.into_iter();
            orders.extend(further.map(|index| [&order[..], &[index]].concat()));
        }
        let why = furthest.1;
        Err(format!(
            "no order of these calls explains them\n{self}\n{why}"
        ))
    }

    /// A model after the calls of the beginning and those of an order.
    async fn replay(
        &self,
        events: &[&Event],
        order: &[usize],
    ) -> std::result::Result<ModelStore, String> {
        let model = ModelStore::open(Arc::new(SystemClock::new()));
        register(&model, self.base).await;
        let store = model.at(time(FIRST));
        for answered in &self.beginning {
            answered.again(&*store).await?;
        }
        let store = model.at(time(THEN));
        for index in order {
            events[*index].what.again(&*store).await?;
        }
        Ok(model)
    }

    /// Whether the model ends like the store; otherwise the sessions that differ.
    async fn compare_end(&self, model: &ModelStore) -> std::result::Result<(), String> {
        let end = End::of(model, self.base).await.unwrap_or_default();
        if end == self.end {
            return Ok(());
        }
        let sessions = end.sessions.iter().zip(&self.end.sessions);
        let differ: Vec<_> = sessions.filter(|(model, store)| model != store).collect();
        let boots = (&end.boots, &self.end.boots);
        let boots = Some(boots).filter(|(model, store)| model != store);
        Err(format!(
            "what is left differs, as the model and as the store has it: {differ:#?}{boots:#?}"
        ))
    }
}

/// The calls that may come next: those made before every remaining call was answered, apart from
/// calls that may have done nothing, and not answered before a call already in the order was made.
fn possible(events: &[&Event], order: &[usize]) -> Vec<usize> {
    let left = (0..events.len()).filter(|index| !order.contains(index));
    let left: Vec<_> = left.collect();
    let certain = left
        .iter()
        .filter(|index| !events[**index].what.outcome.is_maybe_nothing());
    let first_answer = certain.map(|index| events[*index].answered).min();
    let may = |index: &usize| {
        let event = events[*index];
        let is_late = order.iter().any(|done| events[*done].made > event.answered);
        !is_late && first_answer.is_none_or(|first| event.made <= first)
    };
    left.into_iter().filter(may).collect()
}

impl Answered {
    /// Repeats the call on the model and compares the answers.
    async fn again(&self, model: &dyn Inspect) -> std::result::Result<(), String> {
        let outcome = self.call.on(model).await;
        let outcome = outcome.map_err(|error| format!("the model failed: {error:?}"))?;
        if outcome == self.outcome {
            return Ok(());
        }
        let Self {
            call,
            outcome: answer,
        } = self;
        Err(format!("{call:?}\nmodel: {outcome:#?}\nstore: {answer:#?}"))
    }
}

impl Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "one after the other:")?;
        for Answered { call, outcome } in &self.beginning {
            writeln!(f, "  {call:?}\n    {outcome:?}")?;
        }
        writeln!(f, "at the same time:")?;
        let mut events: Vec<_> = self.events.iter().collect();
        events.sort_by_key(|event| event.made);
        for event in events {
            let Answered { call, outcome } = &event.what;
            let (task, made, answered) = (event.task, event.made, event.answered);
            writeln!(
                f,
                "  task {task}, {made} to {answered}: {call:?}\n    {outcome:?}"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mainspring_shared::store::ClaimOutcome;

    use super::*;
    use crate::suites::store::prelude::{cold_claim, delayed, opening, send, sending, token, with};

    fn claim(worker: u128) -> Call {
        Call::Claim(boot(worker), cold_claim(1, worker))
    }

    fn model() -> ModelStore {
        ModelStore::open(Arc::new(SystemClock::new()))
    }

    /// Each call is made by a task of its own, in this order and between these numbers.
    async fn made(calls: Vec<(Call, u64, u64)>) -> History {
        let model = model();
        register(&model, 0).await;
        let accept = Call::Accept(Box::new(opening(1, 1)));
        let outcome = accept.on(&*model.at(time(FIRST))).await;
        let mut history = History {
            base: 0,
            beginning: vec![Answered {
                call: accept,
                outcome: outcome.expect("the model answers"),
            }],
            events: Vec::new(),
            end: End::default(),
        };
        for (task, (call, made, answered)) in calls.into_iter().enumerate() {
            let outcome = call.on(&*model.at(time(THEN))).await;
            history.events.push(Event {
                task,
                made,
                answered,
                what: Answered {
                    call,
                    outcome: outcome.expect("the model answers"),
                },
            });
        }
        let end = End::of(&model, 0).await;
        history.end = end.expect("the model answers");
        history
    }

    fn cancel() -> Call {
        Call::Cancel(send(1))
    }

    #[tokio::test]
    async fn what_happened_in_some_order_is_explained() {
        let history = made(vec![(cancel(), 1, 2), (claim(1), 0, 3)]).await;
        history.check().await.expect("the cancel came first");
        let history = made(vec![(claim(1), 1, 2), (cancel(), 0, 3)]).await;
        history.check().await.expect("the claim came first");
    }

    #[tokio::test]
    async fn a_session_that_two_got_is_refused() {
        let mut history = made(vec![(claim(1), 0, 3), (claim(2), 1, 2)]).await;
        history.check().await.expect("the second got nothing");
        let Outcome::Claim(ClaimOutcome::Claimed(mut claimed)) =
            history.events[0].what.outcome.clone()
        else {
            panic!("the first got it: {history}");
        };
        claimed.lease.boot = boot(2);
        claimed.lease.token = token(2);
        history.events[1].what.outcome = Outcome::Claim(ClaimOutcome::Claimed(claimed));
        let why = history.check().await.expect_err("both got it");
        assert!(
            why.contains("no order of these calls explains them"),
            "{why}"
        );
    }

    #[tokio::test]
    async fn a_call_does_not_come_before_one_that_was_answered_before_it_was_made() {
        let mut history = made(vec![(cancel(), 0, 2), (claim(1), 1, 3)]).await;
        history
            .check()
            .await
            .expect("they were made at the same time");
        // The claim found nothing to do, although the cancel was made later.
        (history.events[0].made, history.events[0].answered) = (2, 3);
        (history.events[1].made, history.events[1].answered) = (0, 1);
        history.check().await.expect_err("the claim came first");
    }

    /// The sweep positions a delayed send, which its answer does not show because the session is held.
    #[tokio::test]
    async fn a_sweep_serves_nothing_that_comes_after_its_answer() {
        let item = with(sending(2, 1), delayed(0));
        let later = Call::Accept(Box::new(item));
        let calls = vec![(claim(1), 0, 1), (later, 2, 4), (Call::Sweep, 3, 5)];
        let mut history = made(calls).await;
        history.check().await.expect("the send came first");
        (history.events[2].made, history.events[2].answered) = (2, 3);
        (history.events[1].made, history.events[1].answered) = (4, 5);
        let why = history.check().await.expect_err("the send came later");
        assert!(why.contains("what is left differs"), "{why}");
    }

    #[tokio::test]
    async fn what_is_left_has_to_be_what_the_calls_leave() {
        let mut history = made(vec![(claim(1), 0, 1), (cancel(), 2, 3)]).await;
        history.check().await.expect("it is what they leave");
        history.end.sessions[0].hot.signals = 0;
        let why = history
            .check()
            .await
            .expect_err("the cancel left no signal");
        assert!(why.contains("what is left differs"), "{why}");
    }
}
