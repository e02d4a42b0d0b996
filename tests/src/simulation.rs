//! Worlds generated from a seed: real schedulers and workers on one thread and in virtual time, a
//! random workload through the real API, and random faults at random places.
//!
//! A seed determines one course of events, the same on every machine: random values, the order in
//! which processes run and the duration of each call all derive from it. A failing world reports
//! its violations and is then shrunk by leaving out parts of it for as long as it still fails.

mod actors;
mod chance;
mod clients;
mod gate;
mod plan;
mod store;
mod system;
mod verdict;
mod wires;

use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Once};

use mainspring_runtime::set_buggify;
use mainspring_shared::store::Inspect;
use mainspring_store_model::ModelStore;
use mainspring_store_sqlite::SqliteOptions;

use crate::history::Reading;
use clients::{Known, locked};
use gate::{ProcessClock, Virtual};
use system::Core;

pub use chance::Chance;
pub use plan::{Fault, Harm, Op, POINTS, Plan, Trouble, What};

/// Where a world stores its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// The model store.
    Model,
    /// SQLite, in a folder of its own.
    Sqlite,
}

/// The outcome of a world.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// A digest of everything that happened, in order.
    pub digest: String,
    /// The violations found; none in a correct system.
    pub violations: Vec<String>,
    /// The log of events, if requested.
    pub trace: Vec<String>,
    /// The duration, in virtual milliseconds.
    pub took_ms: u64,
}

thread_local! {
    /// The panics of the world running on this thread.
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Makes panics inside a world count as violations of it instead of being printed.
fn hear_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let heard = PANICS.try_with(|panics| {
                let mut panics = panics.borrow_mut();
                let heard = panics.as_mut();
                heard
                    .map(|heard| heard.push(format!("a panic: {panic}")))
                    .is_some()
            });
            if !heard.unwrap_or_default() {
                before(panic);
            }
        }));
    });
}

/// Runs a plan to its end. With `tell`, what happened is logged line by line.
pub fn run(plan: &Plan, backing: Backing, tell: bool) -> Outcome {
    hear_panics();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let runtime = runtime.expect("a runtime starts");
    PANICS.with(|panics| *panics.borrow_mut() = Some(Vec::new()));
    let course = AssertUnwindSafe(|| runtime.block_on(course(plan, backing, tell)));
    let outcome = std::panic::catch_unwind(course);
    drop(runtime);
    set_buggify(None);
    let panics = PANICS.with(|panics| panics.borrow_mut().take());
    let mut outcome = outcome.unwrap_or_else(|_| Outcome {
        digest: String::new(),
        violations: Vec::new(),
        trace: Vec::new(),
        took_ms: 0,
    });
    outcome.violations.extend(panics.unwrap_or_default());
    outcome
}

/// A SQLite store, with the runtime its threads belong to.
struct Sqlite {
    runtime: Option<tokio::runtime::Runtime>,
    _folder: tempfile::TempDir,
}

impl Sqlite {
    fn open() -> (Self, Arc<dyn Inspect>) {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime starts");
        let options = SqliteOptions::dir(folder.path());
        let opened = std::thread::scope(|scope| {
            let opening = scope.spawn(|| runtime.block_on(mainspring_store_sqlite::open(options)));
            opening.join().expect("it opens or fails")
        });
        let store = opened.expect("a fresh folder");
        let sqlite = Self {
            runtime: Some(runtime),
            _folder: folder,
        };
        (sqlite, Arc::new(store))
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn course(plan: &Plan, backing: Backing, tell: bool) -> Outcome {
    let time = Virtual::new();
    let mut sqlite = None;
    let store: Arc<dyn Inspect> = match backing {
        Backing::Model => Arc::new(ModelStore::open(Arc::new(ProcessClock {
            time,
            gate: gate::Gate::new(),
            skew_ms: Arc::default(),
        }))),
        Backing::Sqlite => {
            let (opened, store) = Sqlite::open();
            sqlite = Some(opened);
            store
        }
    };
    let threads = sqlite.as_ref().and_then(|sqlite| sqlite.runtime.as_ref());
    let threads = threads.map(|runtime| runtime.handle().clone());
    let core = Core::new(plan, time, store, threads, tell);
    let deciding = core.clone();
    set_buggify(Some(Box::new(move |point| deciding.fails(point))));
    if plan.priced {
        core.limit_money().await;
    }
    core.start_all();
    let known = Known::new(core.clone());
    known.open().await;
    core.trouble();
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..=plan
        .ops
        .iter()
        .map(|op| op.client)
        .max()
        .unwrap_or_default()
    {
        let ops = plan.ops.iter().cloned().enumerate();
        let ops = ops.filter(|(_, op)| op.client == client).collect();
        let known = known.clone();
        clients.spawn(async move { known.work(client, ops).await });
    }
    let mut others = tokio::task::JoinSet::new();
    for n in 0..2 {
        let known = known.clone();
        others.spawn(async move { known.answer(100 + n).await });
    }
    let sessions = locked(&known.sessions).clone();
    for (n, session) in sessions.iter().enumerate() {
        locked(&known.readings).push(Reading {
            session: session.clone(),
            ..Reading::default()
        });
        let known = known.clone();
        others.spawn(async move { known.follow(n).await });
    }
    while clients.join_next().await.is_some() {}
    let mut violations = ended(&known, &sessions).await;
    others.abort_all();
    core.forget();
    let (digest, trace) = core.told();
    violations.sort();
    violations.dedup();
    Outcome {
        digest,
        violations,
        trace,
        took_ms: core.time.ms(),
    }
}

/// Waits for the system to come to rest, reads everything again as clients do, and judges.
async fn ended(known: &Arc<Known>, sessions: &[String]) -> Vec<String> {
    let core = &known.core;
    if let Err(hangs) = verdict::rest(core, core.time.ms()).await {
        let mut found = vec![hangs];
        found.append(&mut locked(&known.strange));
        return found;
    }
    // Give late events a chance to do harm: remaining troubles, and sleepers that wake up.
    core.calm();
    let now = core.time.ms();
    let late = core.over_ms().saturating_sub(now) + 15_000;
    core.time.sleep(late).await;
    let sends = locked(&known.sends).clone();
    for send in sends {
        known.read(99, send).await;
    }
    for session in sessions {
        known.transcript(99, session.clone()).await;
    }
    // Reads each session's events again, from the first.
    let followed = locked(&known.readings).len();
    for n in 0..followed {
        let session = locked(&known.readings)[n].session.clone();
        locked(&known.readings).push(Reading {
            session,
            ..Reading::default()
        });
        let again = known.follow(followed + n);
        let patience = core.time.sleep(5_000);
        tokio::select! {
            biased;
            () = again => {}
            () = patience => {}
        }
    }
    for reading in locked(&known.readings).iter_mut() {
        reading.whole = true;
    }
    verdict::judged(known).await
}

/// The kind of a violation: its text without the words that name something specific.
fn kind(violation: &str) -> String {
    let words = violation.split_whitespace();
    let plain = words.filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
    plain.take(4).collect::<Vec<_>>().join(" ")
}

/// The smallest plan found that fails in the same way as this one, by leaving out faults and
/// operations one by one, in at most `tries` runs.
pub fn shrunk(plan: &Plan, backing: Backing, mut tries: usize) -> Plan {
    let first = run(plan, backing, false).violations.into_iter().next();
    let Some(wanted) = first.map(|violation| kind(&violation)) else {
        return plan.clone();
    };
    let mut smallest = plan.clone();
    loop {
        let mut smaller = false;
        for faults in [true, false] {
            let mut at = 0;
            loop {
                let mut candidate = smallest.clone();
                let length = if faults {
                    candidate.faults.len()
                } else {
                    candidate.ops.len()
                };
                if at >= length || tries == 0 {
                    break;
                }
                if faults {
                    candidate.faults.remove(at);
                } else {
                    candidate.ops.remove(at);
                }
                tries -= 1;
                let outcome = run(&candidate, backing, false);
                if outcome.violations.iter().any(|one| kind(one) == wanted) {
                    smallest = candidate;
                    smaller = true;
                } else {
                    at += 1;
                }
            }
        }
        if !smaller || tries == 0 {
            return smallest;
        }
    }
}
