//! Deaths at every write of sends with a fold beside them and of sends whose own rounds are folded, two workers
//! that fold the same session, and a provider that does all that providers do to long conversations. In the end
//! the transcript is as if nothing had happened, and what was paid for is what the provider bills.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{
    AgentSpec, ContextSpec, FoldSpec, FoldStrategy, OnTruncation, SendOptions,
};
use mainspring_shared::error::Code;
use mainspring_shared::id::SessionKey;
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::step::Step;
use mainspring_shared::store::DumpSession;
use mainspring_shared::tool::ToolEntry;
use mainspring_shared::usage::Usage;
use mainspring_tests::pairing;
use mainspring_tests::world::{
    Backing, Fault, FaultPlan, Faulty, Manner, World, alone, differences, essence,
};
use mainspring_worker::llm::FactsOverride;
use serde_json::{Value, json};

/// A world whose model has so many tokens of room.
async fn world(window: u64, takes: Duration) -> World {
    world_over(&Backing::Model, window, takes).await
}

async fn world_over(backing: &Backing, window: u64, takes: Duration) -> World {
    let mut world = World::over(backing, |_, _, _| {}).await;
    let facts = FactsOverride {
        window: Some(window),
        ..FactsOverride::default()
    };
    world.facts.insert("model".to_owned(), facts);
    world.script.set_manner(Manner {
        counts: Some(1.0),
        summary_chars: 400,
        summary_takes: takes,
        ..Manner::default()
    });
    world
}

fn agent(soft: f64, hard: f64) -> AgentSpec {
    AgentSpec {
        tools: ["look", "put"]
            .map(|name| ToolEntry::Named(name.into()))
            .into(),
        max_tokens: Some(1_000),
        context: ContextSpec {
            fold: FoldSpec {
                strategy: FoldStrategy::Summary,
                soft: Some(soft),
                hard: Some(hard),
                keep_sends: Some(1),
                ..FoldSpec::default()
            },
            ..ContextSpec::default()
        },
        ..AgentSpec::default()
    }
}

async fn session_of(world: &World, key: SessionKey) -> DumpSession {
    let sessions = world.dump().await.sessions;
    let mut mine = sessions.into_iter().filter(|session| session.key == key);
    mine.next().expect("it is there")
}

/// The essence of a world without what folds have to do with: what they cost, and which there are.
async fn beside_folds(world: &World) -> Value {
    let mut all = essence(&world.dump().await);
    for session in all["sessions"].as_array_mut().expect("sessions") {
        for member in ["folds", "usage_rows", "spent"] {
            session.as_object_mut().expect("a session").remove(member);
        }
        for send in session["sends"].as_array_mut().expect("sends") {
            send.as_object_mut().expect("a send").remove("usage");
        }
    }
    all
}

/// What the session's rows say it cost is what its provider bills, but for so many answers that died with
/// whoever waited for them.
async fn paid(world: &World, key: SessionKey, lost: usize) {
    let session = session_of(world, key).await;
    let rows = session.usage.len();
    let (answers, _) = world.script.billed();
    assert!(
        rows <= answers && answers <= rows + lost,
        "{rows} rows of {answers} answers"
    );
    for fold in &session.folds {
        let (from, to) = (fold.from_seq, fold.to_seq);
        assert!(from <= to && fold.n > 0, "{fold:?}");
    }
    let mut shown: Vec<_> = session
        .folds
        .iter()
        .filter(|fold| fold.covered_by.is_none())
        .map(|fold| (fold.from_seq, fold.to_seq))
        .collect();
    shown.sort_unstable();
    assert!(
        shown.windows(2).all(|pair| pair[0].1 < pair[1].0),
        "two folds stand for the same: {shown:?}"
    );
    for asked in world.script.ledger() {
        pairing::stored(&asked.messages).expect("no call is parted from its result");
    }
    world.audit().await;
}

/// The same to the token.
async fn paid_all(world: &World, key: SessionKey) {
    paid(world, key, 0).await;
    let (_, billed) = world.script.billed();
    let usage = world.store.session_usage(key).await.expect("it answers");
    let mut sum = Usage::default();
    for model in usage.expect("it is there").own {
        sum.add(&model.usage);
    }
    assert_eq!(
        (sum.input_tokens, sum.output_tokens),
        (billed.input_tokens, billed.output_tokens)
    );
}

/// Short sends until there is something to fold, then one of several rounds.
async fn conversation(world: &World, plan: FaultPlan, shape: Shape) -> (SessionKey, bool) {
    let key = world.session(shape.agent()).await;
    let faulty = Arc::new(Faulty::new(world.store.clone(), plan));
    world.worker("first", faulty.clone());
    for n in 0..4 {
        let words = "what was decided about it, and why. ".repeat(12);
        let id = world.send(key, &format!("say {n} {words}")).await;
        world.pass(Duration::from_millis(100)).await;
        if faulty.struck().is_some() {
            world.worker("second", world.store.clone());
        }
        world.settle(&[id]).await;
    }
    let round = |n: u64| json!([["look", {"n": n, "chars": shape.chars(), "ms": 3_000}], ["put", {"n": n}]]);
    let rounds: Vec<Value> = (0..5).map(round).collect();
    let id = world
        .send(key, &format!("plan {}", Value::from(rounds)))
        .await;
    world.pass(Duration::from_millis(100)).await;
    world.worker("second", world.store.clone());
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    world.pass(Duration::from_secs(30)).await;
    (key, faulty.fired())
}

/// Where a send's fold is made.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    Beside,
    Inside,
}

impl Shape {
    fn agent(self) -> AgentSpec {
        match self {
            Self::Beside => agent(0.04, 0.9),
            Self::Inside => agent(0.18, 0.18),
        }
    }

    fn chars(self) -> u64 {
        match self {
            Self::Beside => 200,
            Self::Inside => 3_000,
        }
    }
}

/// Each round is rendered again as it was asked, behind the folds of its time.
async fn asked_again(world: &World, key: SessionKey) {
    let replays = world.replayed(key).await;
    let (differ, skipped) = (&replays.differ, &replays.skipped);
    assert!(differ.is_empty() && skipped.is_empty(), "{replays:#?}");
    // Four answers, and a send with five rounds of calls.
    assert_eq!(replays.same, 10);
}

fn deaths(shape: Shape) {
    let takes = Duration::from_secs(2);
    let sound = alone(async {
        let world = world(16_000, takes).await;
        let (key, _) = conversation(&world, FaultPlan::NEVER, shape).await;
        let session = session_of(&world, key).await;
        assert!(!session.folds.is_empty(), "{shape:?}: nothing is folded");
        let inside = session.folds.iter().any(|fold| {
            let last = session.messages.iter().find(|it| it.seq == fold.to_seq);
            last.is_some_and(|last| last.send_id == session.sends[4].id)
        });
        assert_eq!(inside, shape == Shape::Inside, "{:?}", session.folds);
        paid_all(&world, key).await;
        let folded = |step: &Step| Some((step.send_id, step.refs.round.as_ref()?.folded?));
        let stood: BTreeSet<_> = session.steps.iter().filter_map(folded).collect();
        let last = session.sends[4].id;
        let while_it_ran = stood.iter().filter(|(send, _)| *send == last);
        assert!(while_it_ran.count() > 1, "{shape:?}: {stood:?}");
        asked_again(&world, key).await;
        beside_folds(&world).await
    });
    for fault in [Fault::DieBefore, Fault::DieAfter] {
        for at in 0.. {
            let fired = alone(async {
                let world = world(16_000, takes).await;
                let (key, fired) = conversation(&world, FaultPlan { at, fault }, shape).await;
                let differ = differences(&beside_folds(&world).await, &sound);
                assert!(
                    differ.is_empty(),
                    "{shape:?} {fault:?} at {at}: {differ:#?}"
                );
                // The send's answer and a fold's at the most.
                paid(&world, key, 2).await;
                asked_again(&world, key).await;
                fired
            });
            if !fired {
                assert!(at >= 10, "{shape:?}: {at} writes");
                break;
            }
        }
    }
}

#[test]
fn a_death_at_any_write_of_a_send_with_a_fold_beside_it_changes_nothing_of_the_transcript() {
    deaths(Shape::Beside);
}

#[test]
fn a_death_at_any_write_of_a_send_whose_rounds_are_folded_changes_nothing_of_the_transcript() {
    deaths(Shape::Inside);
}

/// A worker that stands still while its fold is written, and wakes up when another one has folded the session:
/// its fold is not attached.
async fn two_fold_at_once(backing: &Backing, waits: &[u64]) {
    for &wakes_after in waits {
        let world = world_over(backing, 16_000, Duration::from_secs(8)).await;
        let key = world.session(agent(0.05, 0.05)).await;
        let first = Arc::new(Faulty::new(world.store.clone(), FaultPlan::NEVER));
        world.worker("first", first.clone());
        let words = "what was decided about it, and why. ".repeat(12);
        let folding = || {
            let ledger = world.script.ledger();
            ledger
                .iter()
                .filter(|it| it.user.contains("<transcript>"))
                .count()
        };
        let mut records: Vec<SendRecord> = Vec::new();
        for n in 0.. {
            let id = world.send(key, &format!("say {n} {words}")).await;
            while folding() == 0 && !world.record(id).await.status.is_final() {
                world.pass(Duration::from_millis(50)).await;
            }
            if folding() == 0 {
                continue;
            }
            // The fold is under way: it is done eight seconds later, if anybody hears of it.
            first.pause();
            world.worker("second", world.store.clone());
            world.pass(Duration::from_secs(wakes_after)).await;
            first.wake();
            records.extend(world.settle(&[id]).await);
            break;
        }
        assert_eq!(records[0].status, SendStatus::Completed);
        world.pass(Duration::from_secs(30)).await;
        let session = session_of(&world, key).await;
        let folds = session.folds.len();
        assert_eq!(folds, 1, "{wakes_after} s: {:?}", session.folds);
        let paid_folds = session.usage.iter().filter(|(_, round, _)| *round < 0);
        assert_eq!(paid_folds.count(), 1, "{wakes_after} s");
        paid(&world, key, 2).await;
    }
}

#[test]
fn of_two_workers_that_fold_the_same_session_one_attaches_its_fold() {
    alone(two_fold_at_once(&Backing::Model, &[2, 11, 20, 40]));
}

#[test]
fn of_two_workers_that_fold_the_same_session_one_attaches_its_fold_on_sqlite() {
    for wakes_after in [11, 20] {
        alone(two_fold_at_once(&Backing::sqlite(), &[wakes_after]));
    }
}

#[test]
fn of_two_workers_that_fold_the_same_session_one_attaches_its_fold_on_postgres() {
    if let Some(backing) = Backing::postgres() {
        alone(two_fold_at_once(&backing, &[11]));
    }
}

#[test]
fn of_two_workers_that_fold_the_same_session_one_attaches_its_fold_on_mysql() {
    if let Some(backing) = Backing::mysql() {
        alone(two_fold_at_once(&backing, &[11]));
    }
}

/// A conversation with a provider whose window is another one every few sends, whose answers are cut in the
/// middle of a call or empty, and whose folds are sometimes none.
#[tokio::test(start_paused = true)]
async fn a_provider_that_changes_its_mind_is_paid_for_what_it_said_and_no_more() {
    for strategy in [FoldStrategy::Summary, FoldStrategy::Projection] {
        let world = world(16_000, Duration::from_millis(200)).await;
        let mut agent = agent(0.85, 0.85);
        agent.context.fold.strategy = strategy;
        agent.context.on_truncation = OnTruncation::Continue;
        let key = world.session(agent).await;
        let _worker = world.worker("w", world.store.clone());
        let mut records = Vec::new();
        for n in 0..60_u64 {
            let window = [None, Some(12_000), Some(6_000), Some(9_000)][n as usize / 4 % 4];
            world.script.set_manner(Manner {
                counts: Some(1.0),
                window,
                summary_chars: 400,
                ..Manner::default()
            });
            let look = json!([["look", {"n": n, "chars": 5_000}]]);
            let words = "what was decided about it, and why. ".repeat(10);
            let text = match n % 5 {
                0 => format!("plan {}\n\n{words}", json!([look, look])),
                1 => format!("say {n} {words}"),
                // Cut in the middle of a call, which is not made.
                2 => format!("answers {}", json!([{"cut": "I begin to", "calls": look}])),
                3 => format!(
                    "answers {}",
                    json!([look, {"cut": "the half of it"}, " and the rest"])
                ),
                _ => format!("plan {}\n\nfold empty", json!([look])),
            };
            let input = vec![ContentPart::text(text)];
            let id = world.send_parts(key, input, SendOptions::default()).await;
            records.extend(world.settle(&[id]).await);
        }
        for (n, record) in records.iter().enumerate() {
            if n % 5 == 2 {
                let code = record.error.as_ref().map(|error| error.code);
                assert_eq!(code, Some(Code::LlmTruncated), "{record:#?}");
            } else {
                assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
            }
        }
        let session = session_of(&world, key).await;
        assert!(session.folds.len() > 3, "{:?}", session.folds.len());
        paid_all(&world, key).await;
    }
}
