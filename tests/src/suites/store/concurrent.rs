//! Concurrent calls: what a database answers and stores must match the model when the same calls
//! are made one after another, in an order that respects real time: a call comes before those made
//! after its answer.

mod actor;
mod call;
mod history;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mainspring_shared::agent::OnBusy;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_INTERRUPT};
use mainspring_shared::store::{AfterSend, Inspect, Result as StoreResult};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError};
use tokio::sync::Barrier;

use self::actor::{Act, Actor, WAIT};
use self::call::Call;
use self::history::{Answered, End, Event, FIRST, History, NUMBERS, THEN, WORKERS, register};
use super::harness::{Opened, drawn};
use super::prelude::{SCHEDULER, boot, delayed, opening, sending, time, until, with};

/// Stores opened in a normal run; `MAINSPRING_TEST_CASES` overrides this.
const CASES: u32 = 2;

/// Histories per store, one after another, because opening a store takes longer.
const HISTORIES: usize = 10;

/// Calls that each task makes.
const CALLS: usize = 3;

/// The random part of a history; the rest is up to the database.
#[derive(Debug, Clone)]
struct Plan {
    sessions: u128,
    due: Due,
    /// Calls made in sequence, each by one of the tasks.
    beginning: Vec<(usize, Act)>,
    /// A worker that is dead by the time the others continue.
    dead: Option<u128>,
    tasks: Vec<Vec<Act>>,
}

/// What a sweep finds: at most one thing, since sweeps skip what is locked.
#[derive(Debug, Clone, Copy)]
enum Due {
    Nothing,
    Delay,
    Deadline,
    Retry,
}

/// Runs random calls concurrently, and looks for an order that explains their answers. Panics at
/// the first history without one, with the seed that draws the same calls again when set as
/// `MAINSPRING_TEST_SEED`; they may interleave differently then. Does nothing if the store cannot
/// be opened here.
pub fn assert_linearizable<O, F>(open: impl Fn() -> F)
where
    O: Opened,
    F: Future<Output = Option<O>>,
{
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        // A history with fewer concurrent calls need not fail again.
        max_shrink_iters: 0,
        ..Config::default()
    };
    let (seed, mut runner) = drawn(config);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a runtime starts");
    let outcome = runner.run(&vec(plan(), HISTORIES), |plans| {
        runtime.block_on(async {
            let Some(opened) = open().await else {
                return Ok(());
            };
            let outcome = explained(opened.store(), plans).await;
            opened.close().await;
            outcome.map_err(TestCaseError::fail)
        })
    });
    if let Err(unexplained) = outcome {
        panic!("MAINSPRING_TEST_SEED={seed}\n{unexplained}");
    }
}

fn plan() -> impl Strategy<Value = Plan> {
    let due = prop_oneof![
        2 => Just(Due::Nothing),
        1 => Just(Due::Delay),
        1 => Just(Due::Deadline),
        1 => Just(Due::Retry),
    ];
    let fields = (
        1u128..3,
        due,
        prop::bool::weighted(0.8),
        vec((0..WORKERS as usize, act()), 0..4),
        option::weighted(0.2, 1..=WORKERS),
        vec(vec(act(), CALLS), WORKERS as usize),
    );
    fields.prop_map(|(sessions, due, held, mut beginning, dead, tasks)| {
        // Usually one actor holds a session that others want.
        if held {
            beginning.insert(0, (0, Act::Claim(0)));
        }
        if matches!(due, Due::Retry) {
            beginning.splice(0..0, [(0, Act::Claim(0)), (0, Act::Retry)]);
        }
        Plan {
            sessions,
            due,
            beginning,
            dead,
            tasks,
        }
    })
}

fn act() -> impl Strategy<Value = Act> {
    let byte = || proptest::num::u8::ANY;
    let unless = || {
        let signals = [0, SIGNAL_INBOX, SIGNAL_INBOX | SIGNAL_INTERRUPT];
        proptest::sample::select(signals.to_vec())
    };
    let then = prop_oneof![Just(AfterSend::Continue), Just(AfterSend::Release)];
    let end = (then, unless(), proptest::bool::ANY);
    let on = prop_oneof![Just(WaitingOn::Tool), Just(WaitingOn::Retry)];
    let mode = proptest::sample::select(vec![OnBusy::Coalesce, OnBusy::Steer, OnBusy::Interrupt]);
    prop_oneof![
        4 => byte().prop_map(Act::Claim),
        4 => proptest::bool::ANY.prop_map(Act::Append),
        5 => end.prop_map(|(then, unless, reads)| Act::Complete { then, unless, reads }),
        3 => (on, unless()).prop_map(|(on, unless)| Act::Park { on, unless }),
        2 => Just(Act::Release),
        4 => byte().prop_map(Act::Cancel),
        4 => (byte(), mode).prop_map(|(session, mode)| Act::Deliver(session, mode)),
        3 => byte().prop_map(Act::Accept),
        2 => Just(Act::Sweep),
    ]
}

/// Runs plans one after another, and fails at the first whose calls no order explains.
async fn explained(store: &dyn Inspect, plans: Vec<Plan>) -> Result<(), String> {
    for (base, plan) in (1..).map(|n| n * NUMBERS).zip(plans) {
        let history = happened(store, base, plan).await?;
        history.check().await?;
        // Nothing left of it may affect the next plan.
        for session in &history.end.sessions {
            let at = store.at(time(THEN));
            let deleted = at.delete_session(session.key, boot(SCHEDULER)).await;
            served(deleted)?;
        }
    }
    Ok(())
}

/// Makes the calls of a plan.
async fn happened(store: &dyn Inspect, base: u128, plan: Plan) -> Result<History, String> {
    register(store, base).await;
    let first = store.at(time(FIRST));
    let mut beginning = Vec::new();
    let further = sending(base + plan.sessions + 1, base + 1);
    let opened = (1..=plan.sessions).map(|n| opening(base + n, base + n));
    let timed = match plan.due {
        Due::Nothing | Due::Retry => further,
        Due::Delay => with(further, delayed(WAIT)),
        Due::Deadline => with(further, until(WAIT)),
    };
    for send in opened.chain([timed]) {
        let call = Call::Accept(Box::new(send));
        beginning.push(answered(&*first, call).await?);
    }
    let mut actors: Vec<_> = (1..=WORKERS)
        .map(|n| Actor::new(base, n, plan.sessions))
        .collect();
    for (task, act) in plan.beginning {
        let call = actors[task].call(&*first, act).await;
        let what = answered(&*first, call).await?;
        actors[task].heard(what.outcome.clone());
        beginning.push(what);
    }
    if let Some(dead) = plan.dead {
        beginning.push(answered(&*first, Call::Stop(boot(base + dead))).await?);
    }
    let events = at_once(store.at(time(THEN)), actors, plan.tasks).await?;
    let end = End::of(store, base).await;
    Ok(History {
        base,
        beginning,
        events,
        end: served(end)?,
    })
}

/// Has all actors make their calls concurrently.
async fn at_once(
    store: Arc<dyn Inspect>,
    actors: Vec<Actor>,
    tasks: Vec<Vec<Act>>,
) -> Result<Vec<Event>, String> {
    let barrier = Arc::new(Barrier::new(tasks.len()));
    let count = Arc::new(AtomicU64::new(0));
    let actors = actors.into_iter().zip(tasks).enumerate();
    let running = actors.map(|(task, (mut actor, acts))| {
        let (store, barrier, count) = (store.clone(), barrier.clone(), count.clone());
        tokio::spawn(async move {
            let mut events = Vec::new();
            barrier.wait().await;
            for act in acts {
                let call = actor.call(&*store, act).await;
                let made = count.fetch_add(1, Ordering::SeqCst);
                let what = answered(&*store, call).await?;
                let answered = count.fetch_add(1, Ordering::SeqCst);
                actor.heard(what.outcome.clone());
                events.push(Event {
                    task,
                    made,
                    answered,
                    what,
                });
            }
            Ok::<_, String>(events)
        })
    });
    let running: Vec<_> = running.collect();
    let mut events = Vec::new();
    for task in running {
        events.extend(task.await.expect("the task ends")?);
    }
    Ok(events)
}

async fn answered(store: &dyn Inspect, call: Call) -> Result<Answered, String> {
    let outcome = served(call.on(store).await)?;
    Ok(Answered { call, outcome })
}

fn served<T>(answer: StoreResult<T>) -> Result<T, String> {
    answer.map_err(|error| format!("the store failed: {error:?}"))
}
