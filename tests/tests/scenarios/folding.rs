//! Conversations that outgrow their model, in simulated time: what is folded and when, that the
//! transcript does not change, and that a death at any write makes no difference in the end.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, ContextSpec, FoldSpec, FoldStrategy, SendOptions};
use mainspring_shared::budget::Budget;
use mainspring_shared::error::Code;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::message::Role;
use mainspring_shared::send::{SendRecord, SendStatus, StopReason};
use mainspring_shared::session::fold::{Fold, FoldKind};
use mainspring_shared::step::StepKind;
use mainspring_shared::store::DumpSession;
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::world::{Asked, Fault, FaultPlan, Faulty, World, differences, essence};
use serde_json::{Value, json};

/// An agent whose context is folded once it exceeds a few hundred tokens.
pub(super) fn agent(strategy: FoldStrategy, hard: f64) -> AgentSpec {
    AgentSpec {
        tools: ["look", "slow"]
            .map(|name| ToolEntry::Named(name.into()))
            .into(),
        context: ContextSpec {
            fold: FoldSpec {
                strategy,
                hard: Some(hard),
                keep_sends: Some(2),
                ..FoldSpec::default()
            },
            ..ContextSpec::default()
        },
        ..AgentSpec::default()
    }
}

/// About 230 of 115 000 tokens.
pub(super) const SMALL: f64 = 0.002;

/// A text of about 30 tokens.
pub(super) fn text(n: usize) -> String {
    format!("line {n} says what was decided about the matter of the {n} apples and pears")
}

async fn talk(
    world: &World,
    key: SessionKey,
    texts: impl Iterator<Item = String>,
) -> Vec<SendRecord> {
    let mut records = Vec::new();
    for text in texts {
        let id = world.send(key, &text).await;
        records.extend(world.settle(&[id]).await);
    }
    records
}

async fn session(world: &World) -> DumpSession {
    world.dump().await.sessions.remove(0)
}

fn shown(folds: &[Fold]) -> Vec<&Fold> {
    folds
        .iter()
        .filter(|fold| fold.covered_by.is_none())
        .collect()
}

/// Number of model calls that ask for a fold.
fn for_folds(ledger: &[Asked]) -> usize {
    ledger
        .iter()
        .filter(|asked| asked.user.contains("<transcript>"))
        .count()
}

#[tokio::test(start_paused = true)]
async fn what_has_no_room_is_folded_before_the_model_is_asked() {
    let world = World::new().await;
    let key = world.session(agent(FoldStrategy::Summary, SMALL)).await;
    let _worker = world.worker("w", world.store.clone());
    let records = talk(&world, key, (0..16).map(text)).await;
    assert!(
        records
            .iter()
            .all(|record| record.status == SendStatus::Completed)
    );
    world.audit().await;
    let session = session(&world).await;
    assert_eq!(session.messages.len(), 32);
    let folds = shown(&session.folds);
    assert_eq!(folds.len(), 1, "{:?}", session.folds);
    assert_eq!((folds[0].from_seq, folds[0].kind), (1, FoldKind::Summary));
    assert!(session.folds.len() > 1 && folds[0].level > 0);
    let steps = session
        .steps
        .iter()
        .filter(|step| step.kind == StepKind::Folded);
    assert_eq!(steps.count(), session.folds.len());
    // The last request: the summary, the messages after it, and nothing between.
    let ledger = world.script.ledger();
    let last = ledger.last().expect("the model was asked");
    let (role, first) = &last.transcript[0];
    assert_eq!(*role, Role::User);
    assert!(
        first.starts_with(&format!("<summary messages=\"1-{}\">", folds[0].to_seq)),
        "{first}"
    );
    assert_eq!(last.transcript.len() as i64, 32 - folds[0].to_seq);
    // Each fold is paid for once, with its send.
    assert_eq!(for_folds(&ledger), session.folds.len());
    let rows = session
        .usage
        .iter()
        .filter(|(_, round, _)| *round < 0)
        .count();
    assert_eq!(rows, session.folds.len());
    let input: u64 = records.iter().map(|record| record.usage.input_tokens).sum();
    assert_eq!(input, 10 * ledger.len() as u64);
}

#[tokio::test(start_paused = true)]
async fn another_worker_asks_the_same_as_the_one_that_folded() {
    for strategy in [FoldStrategy::Summary, FoldStrategy::Projection] {
        let mut asked = Vec::new();
        for cold in [false, true] {
            let world = World::new().await;
            let key = world.session(agent(strategy, SMALL)).await;
            let mut worker = world.worker("w", world.store.clone());
            for n in 0..10 {
                if cold {
                    worker.stop();
                    world.pass(Duration::from_secs(30)).await;
                    worker = world.worker("w", world.store.clone());
                }
                talk(&world, key, std::iter::once(text(n))).await;
            }
            let ledger = world.script.ledger();
            let transcripts = ledger
                .into_iter()
                .map(|asked| (asked.system, asked.transcript, asked.tail));
            asked.push(transcripts.collect::<Vec<_>>());
            assert!(!session(&world).await.folds.is_empty());
        }
        let cold = asked.pop();
        assert_eq!(asked.pop(), cold, "{strategy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn digests_need_no_model() {
    let world = World::new().await;
    // A digest is shorter than the messages it replaces only if they are not one-liners.
    let key = world.session(agent(FoldStrategy::Projection, 0.01)).await;
    let _worker = world.worker("w", world.store.clone());
    let long = |n| text(n) + &", and why it was decided so".repeat(20);
    talk(&world, key, (0..10).map(long)).await;
    let session = session(&world).await;
    let folds = shown(&session.folds);
    assert_eq!(folds[0].kind, FoldKind::Projection);
    assert!(
        folds[0].text.contains("user: [#1] line 0 says"),
        "{}",
        folds[0].text
    );
    for fold in &session.folds {
        assert!(fold.tokens_after <= fold.tokens_before, "{fold:?}");
    }
    assert_eq!(for_folds(&world.script.ledger()), 0);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_model_that_writes_no_fold_costs_no_send_its_answer() {
    for (word, calls, rows) in [
        ("fold empty", 1, 1),
        ("fold forbidden", 1, 0),
        ("fold fails 9", 2, 0),
    ] {
        let world = World::new().await;
        let key = world.session(agent(FoldStrategy::Summary, SMALL)).await;
        let _worker = world.worker("w", world.store.clone());
        let mut records = talk(&world, key, std::iter::once(word.to_owned())).await;
        let mut n = 0;
        while session(&world).await.folds.is_empty() {
            records.extend(talk(&world, key, std::iter::once(text(n))).await);
            n += 1;
        }
        assert!(
            records
                .iter()
                .all(|record| record.status == SendStatus::Completed),
            "{word}"
        );
        let session = session(&world).await;
        assert_eq!(session.folds[0].kind, FoldKind::Projection, "{word}");
        assert_eq!(for_folds(&world.script.ledger()), calls, "{word}");
        let paid = session.usage.iter().filter(|(_, round, _)| *round < 0);
        assert_eq!(paid.count(), rows, "{word}");
        world.audit().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_fold_that_fails_once_is_tried_again() {
    let world = World::new().await;
    let key = world.session(agent(FoldStrategy::Summary, SMALL)).await;
    let _worker = world.worker("w", world.store.clone());
    let texts = std::iter::once("fold fails 1".to_owned()).chain((0..9).map(text));
    talk(&world, key, texts).await;
    let session = session(&world).await;
    assert_eq!(session.folds[0].kind, FoldKind::Summary);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn rounds_of_a_long_send_are_folded_and_it_still_knows_its_task() {
    let world = World::new().await;
    let counting = AgentSpec {
        system_prompt: Some("counts".to_owned()),
        ..agent(FoldStrategy::Projection, 0.01)
    };
    let key = world.session(counting).await;
    let _worker = world.worker("w", world.store.clone());
    let long = "a long line of what was found there, with many words in it ".repeat(8);
    let calls: Vec<Value> = (0..30)
        .map(|n| json!([["look", {"at": n, "long": long}]]))
        .collect();
    let id = world
        .send(key, &format!("plan {}", Value::Array(calls)))
        .await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    let session = session(&world).await;
    assert!(!session.folds.is_empty());
    for fold in &session.folds {
        let behind = session
            .messages
            .iter()
            .find(|message| message.seq == fold.to_seq + 1);
        let behind = behind.expect("the last round stays");
        assert_eq!(
            behind.role,
            Role::Assistant,
            "a call is parted from its results"
        );
    }
    for asked in world.script.ledger() {
        let users = asked
            .transcript
            .iter()
            .filter(|(role, _)| *role == Role::User);
        let mut last = users.map(|(_, text)| text);
        assert!(
            last.next_back()
                .is_some_and(|text| text.starts_with("plan ["))
        );
    }
}

/// An agent whose model takes this many characters, without announcing it.
fn narrow(strategy: FoldStrategy, chars: usize) -> AgentSpec {
    AgentSpec {
        system_prompt: Some(format!("room {chars}")),
        ..agent(strategy, 0.85)
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_overflow_all_is_folded_that_may_be_and_the_model_asked_again() {
    let world = World::new().await;
    let key = world.session(narrow(FoldStrategy::Projection, 1_500)).await;
    let _worker = world.worker("w", world.store.clone());
    let long = |n| format!("{} {}", text(n), "and more of the same ".repeat(10));
    let records = talk(&world, key, (0..12).map(long)).await;
    assert!(
        records
            .iter()
            .any(|record| record.status == SendStatus::Completed)
    );
    let failed = records
        .iter()
        .filter(|record| record.status != SendStatus::Completed);
    for record in failed {
        let error = record.error.clone().expect("it failed");
        assert_eq!(error.code, Code::ContextCannotFit, "{error:?}");
    }
    assert!(!session(&world).await.folds.is_empty());
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_fit_says_what_is_in_the_way() {
    let world = World::new().await;
    let key = world.session(narrow(FoldStrategy::Summary, 300)).await;
    let _worker = world.worker("w", world.store.clone());
    let record = talk(&world, key, std::iter::once("word ".repeat(200)))
        .await
        .remove(0);
    assert_eq!(record.status, SendStatus::Failed);
    assert_eq!(record.stop_reason, Some(StopReason::Context));
    let error = record.error.expect("it failed");
    assert_eq!(error.code, Code::ContextCannotFit);
    assert!(
        error.message.contains("the longest is #1"),
        "{}",
        error.message
    );
    // Asked once, and not again, because it cannot fit.
    assert_eq!(world.script.ledger().len(), 1);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn without_folds_an_overflow_is_the_providers_word() {
    let world = World::new().await;
    let key = world.session(narrow(FoldStrategy::None, 300)).await;
    let _worker = world.worker("w", world.store.clone());
    let record = talk(&world, key, std::iter::once("word ".repeat(200)))
        .await
        .remove(0);
    let error = record.error.expect("it failed");
    assert_eq!(error.code, Code::LlmContextOverflow);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_a_send_that_folds() {
    let world = World::new().await;
    let key = world.session(agent(FoldStrategy::Summary, SMALL)).await;
    let _worker = world.worker("w", world.store.clone());
    let texts = std::iter::once("fold sleeps 60000".to_owned()).chain((0..3).map(text));
    talk(&world, key, texts).await;
    let mut n = 3;
    let id = loop {
        let id = world.send(key, &text(n)).await;
        world.pass(Duration::from_secs(5)).await;
        if !world.record(id).await.status.is_final() {
            break id;
        }
        n += 1;
    };
    world.cancel(key, id).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Cancelled);
    let session = session(&world).await;
    assert_eq!(session.folds, []);
    // Its possible cost is accounted.
    assert_eq!(
        session
            .usage
            .iter()
            .filter(|(_, round, _)| *round < 0)
            .count(),
        1
    );
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_fold_that_the_budget_does_not_allow_is_made_of_digests() {
    let world = World::new().await;
    let key = world.session(agent(FoldStrategy::Summary, SMALL)).await;
    let _worker = world.worker("w", world.store.clone());
    talk(&world, key, (0..4).map(text)).await;
    let options = SendOptions {
        budget: Some(Budget {
            tokens: Some(500),
            ..Budget::default()
        }),
        ..SendOptions::default()
    };
    let mut n = 4;
    while session(&world).await.folds.is_empty() {
        let id: SendId = world.send_with(key, &text(n), options.clone()).await;
        world.settle(&[id]).await;
        n += 1;
    }
    assert_eq!(session(&world).await.folds[0].kind, FoldKind::Projection);
    world.audit().await;
}

/// The outcome of a conversation in which a worker dies at this write, and whether it got there.
async fn disturbed(strategy: FoldStrategy, plan: FaultPlan) -> (Value, bool) {
    let world = World::new().await;
    let key = world.session(agent(strategy, SMALL)).await;
    let faulty = Arc::new(Faulty::new(world.store.clone(), plan));
    world.worker("first", faulty.clone());
    world.worker("second", world.store.clone());
    for n in 0..9 {
        let input = if n == 0 {
            "tools 2".to_owned()
        } else {
            text(n)
        };
        let id = world.send(key, &input).await;
        world.settle(&[id]).await;
    }
    world.audit().await;
    (essence(&world.dump().await), faulty.fired())
}

#[test]
fn a_death_at_any_write_of_sends_that_fold_changes_nothing() {
    let alone = |system| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build();
        runtime.expect("a runtime starts").block_on(system)
    };
    for strategy in [FoldStrategy::Projection, FoldStrategy::Summary] {
        let (sound, _) = alone(disturbed(strategy, FaultPlan::NEVER));
        assert!(
            sound["sessions"][0]["folds"]
                .as_array()
                .is_some_and(|folds| !folds.is_empty())
        );
        for fault in [Fault::DieBefore, Fault::DieAfter] {
            for at in 0.. {
                let (found, fired) = alone(disturbed(strategy, FaultPlan { at, fault }));
                let differ = differences(&found, &sound);
                assert!(
                    differ.is_empty(),
                    "{strategy:?} {fault:?} at {at}: {differ:#?}"
                );
                if !fired {
                    break;
                }
                assert!(at < 500, "the faults never end");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fold_beside_a_long_send_keeps_nobody_waiting() {
    let world = World::new().await;
    let mut agent = agent(FoldStrategy::Summary, 0.04);
    agent.system_prompt = Some("counts".to_owned());
    agent.context.fold.soft = Some(0.004);
    let key = world.session(agent).await;
    let _worker = world.worker("w", world.store.clone());
    let texts = std::iter::once("fold sleeps 2000".to_owned()).chain((0..9).map(text));
    talk(&world, key, texts).await;
    assert_eq!(for_folds(&world.script.ledger()), 0);
    // A send that grows beyond the threshold in its first round, and whose rounds take longer than
    // the fold.
    let long = "a long line of what was found there, with many words in it ".repeat(8);
    let plan = json!([
        [["look", {"long": long}]],
        [["slow", {"ms": 3_000}]],
        [["slow", {"ms": 3_000}]],
    ]);
    let id = world.send(key, &format!("plan {plan}")).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    let session = session(&world).await;
    assert_eq!(session.folds.len(), 1);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_session_at_rest_is_folded_and_its_next_send_waits_for_nothing() {
    let world = World::new().await;
    let mut agent = agent(FoldStrategy::Summary, 0.02);
    agent.system_prompt = Some("counts".to_owned());
    agent.context.fold.soft = Some(SMALL);
    let key = world.session(agent).await;
    let _worker = world.worker("w", world.store.clone());
    let mut records = talk(&world, key, std::iter::once("fold sleeps 2000".to_owned())).await;
    for n in 0..40 {
        records.extend(talk(&world, key, std::iter::once(text(n))).await);
        // Some sends follow while a fold is being written, some later.
        world
            .pass(Duration::from_millis(700 * (n as u64 % 5)))
            .await;
    }
    world.pass(Duration::from_secs(10)).await;
    for record in &records {
        let took = record
            .finished_at
            .expect("it is final")
            .since(record.created_at);
        assert!(took < Duration::from_secs(1), "a send took {took:?}");
    }
    let session = session(&world).await;
    assert!(session.folds.len() > 2, "{:?}", session.folds);
    assert_eq!(session.messages.len(), 2 * records.len());
    let paid = session.usage.iter().filter(|(_, round, _)| *round == -1);
    assert_eq!(paid.count(), for_folds(&world.script.ledger()));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_fold_of_a_session_at_rest_that_nobody_writes_is_made_of_digests_and_not_asked_for_again()
{
    let world = World::new().await;
    let mut agent = agent(FoldStrategy::Summary, 0.02);
    agent.context.fold.soft = Some(SMALL);
    let key = world.session(agent).await;
    let _worker = world.worker("w", world.store.clone());
    talk(&world, key, std::iter::once("fold empty".to_owned())).await;
    for n in 0..40 {
        talk(&world, key, std::iter::once(text(n))).await;
        world.pass(Duration::from_secs(3)).await;
        if !session(&world).await.folds.is_empty() {
            break;
        }
    }
    let folds = session(&world).await.folds;
    assert_eq!(folds.len(), 1);
    assert_eq!(folds[0].kind, FoldKind::Projection);
    assert_eq!(for_folds(&world.script.ledger()), 1);
    // Folded messages are shown as digests, which leaves room.
    talk(&world, key, std::iter::once(text(41))).await;
    world.pass(Duration::from_secs(3)).await;
    assert_eq!(for_folds(&world.script.ledger()), 1);
    world.audit().await;
}
