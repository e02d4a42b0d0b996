//! Model calls besides the rounds of sends are accounted exactly once, whatever becomes of them: a
//! fold whose session is never idle, or whose worker stops; an extraction that fails, is late or is
//! erased in the meantime.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, ExtractMode, FoldStrategy, MemorySpec};
use mainspring_shared::id::{ErasureId, SendId, SessionKey, TenantId};
use mainspring_shared::send::SendStatus;
use mainspring_shared::store::{EraseMemories, UsageRow};
use mainspring_shared::usage::{Purpose, Usage};
use mainspring_tests::world::{Fault, FaultPlan, Faulty, ModelBehaviour, World, alone};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::folding::{SMALL, agent, text};
use crate::memory::{done, id, know, personal, rememberer, session_of};

/// Input and output tokens of the usage rows for this purpose, in order.
async fn rows_for(world: &World, purpose: Purpose) -> Vec<(u64, u64)> {
    let dump = world.dump().await;
    let mut found = Vec::new();
    for session in &dump.sessions {
        for ((_, round, attempt), usage) in session.usage.iter().zip(&session.paid) {
            let row = UsageRow {
                round: *round,
                attempt: *attempt,
                model: String::new(),
                usage: *usage,
            };
            if row.purpose() == purpose {
                found.push((usage.input_tokens, usage.output_tokens));
            }
        }
    }
    found.sort_unstable();
    found
}

/// Input and output tokens that the provider billed for this purpose, in order.
fn billed_for(world: &World, purpose: Purpose) -> Vec<(u64, u64)> {
    let bills = world.script.bills();
    let bills = bills.iter().filter(|bill| bill.purpose == purpose);
    let tokens = |usage: &Usage| (usage.input_tokens, usage.output_tokens);
    let mut found: Vec<_> = bills.map(|bill| tokens(&bill.usage)).collect();
    found.sort_unstable();
    found
}

async fn is_paid(world: &World, purpose: Purpose) {
    let billed = billed_for(world, purpose);
    assert!(!billed.is_empty(), "nobody was asked for a {purpose:?}");
    assert_eq!(rows_for(world, purpose).await, billed, "{purpose:?}");
    world.audit().await;
}

/// Creates a session with a fold that is being written after the end of its send.
async fn resting(world: &World) -> SessionKey {
    world.script.set_behaviour(ModelBehaviour {
        counts: Some(1.0),
        ..ModelBehaviour::default()
    });
    let mut agent: AgentSpec = agent(FoldStrategy::Summary, 0.02);
    agent.context.fold.soft = Some(SMALL);
    let key = world.session(agent).await;
    let mut said = "fold sleeps 2000".to_owned();
    for n in 0..40 {
        let send = world.send(key, &said).await;
        let record = world.settle(&[send]).await.remove(0);
        assert_eq!(record.status, SendStatus::Completed);
        let ledger = world.script.ledger();
        if ledger.iter().any(|it| it.user.contains("<transcript>")) {
            return key;
        }
        said = text(n);
    }
    panic!("nothing is folded");
}

/// Starts a send with this many rounds, each of which takes two minutes.
async fn long_send(world: &World, key: SessionKey, rounds: usize) -> SendId {
    let rounds = vec![json!([["look", {"ms": 120_000}]]); rounds];
    let send = world
        .send(key, &format!("plan {}", Value::from(rounds)))
        .await;
    world.pass(Duration::from_millis(500)).await;
    assert_eq!(world.record(send).await.status, SendStatus::Running);
    send
}

#[tokio::test(start_paused = true)]
async fn a_fold_whose_session_is_busy_for_longer_than_it_waits_is_paid_for() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let key = resting(&world).await;
    let send = long_send(&world, key, 5).await;
    // It is accounted even before the fold gives up, because its worker may die at any time.
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(rows_for(&world, Purpose::Fold).await.len(), 1);
    let record = world.settle(&[send]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    world.pass(Duration::from_mins(10)).await;
    is_paid(&world, Purpose::Fold).await;
}

#[tokio::test(start_paused = true)]
async fn a_fold_that_is_written_when_its_worker_stops_is_paid_for() {
    // The session is busy, and for a while the database is away, too.
    for away in [0, 5, 20] {
        let world = World::new().await;
        let faulty = Arc::new(Faulty::new(world.store.clone(), FaultPlan::NEVER));
        let worker = world.worker("w", faulty.clone());
        let key = resting(&world).await;
        faulty.set_unavailable(away > 0);
        world.pass(Duration::from_secs(3)).await;
        worker.stop();
        world.pass(Duration::from_secs(away)).await;
        faulty.set_unavailable(false);
        world.pass(Duration::from_mins(2)).await;
        let _next = world.worker("next", world.store.clone());
        let send = world.send(key, "and then").await;
        world.settle(&[send]).await;
        world.pass(Duration::from_mins(2)).await;
        is_paid(&world, Purpose::Fold).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_fold_beside_its_own_worker_that_stops_is_paid_for() {
    let world = World::new().await;
    let worker = world.worker("w", world.store.clone());
    let key = resting(&world).await;
    let send = long_send(&world, key, 1).await;
    world.pass(Duration::from_secs(5)).await;
    worker.stop();
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(rows_for(&world, Purpose::Fold).await.len(), 1);
    let _next = world.worker("next", world.store.clone());
    world.settle(&[send]).await;
    world.pass(Duration::from_mins(10)).await;
    is_paid(&world, Purpose::Fold).await;
}

/// Creates a session whose send has ended and from which entries are being extracted.
async fn extracting(world: &World) -> SessionKey {
    world.script.set_behaviour(ModelBehaviour {
        counts: Some(1.0),
        answer_takes: Duration::from_secs(4),
        ..ModelBehaviour::default()
    });
    let spec = MemorySpec {
        extract: ExtractMode::AfterSend,
        ..personal()
    };
    let key = session_of(world, 1, Some("ann"), rememberer(spec)).await;
    let send = world
        .send(key, r#"extract {"memories": [{"text": "the dog is Rex"}]}"#)
        .await;
    done(world, send).await;
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(billed_for(world, Purpose::Extract), [], "it is in flight");
    assert_eq!(world.dump().await.extractions.len(), 1);
    key
}

#[tokio::test(start_paused = true)]
async fn an_extraction_that_is_erased_meanwhile_is_paid_for_and_keeps_nothing() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    extracting(&world).await;
    let erase = EraseMemories {
        tenant: TenantId::DEFAULT,
        namespace: "user/ann".parse().expect("a namespace"),
        erasure: ErasureId(Uuid::from_u128(1)),
        fingerprint: "print".to_owned(),
        limit: 10,
        by: "operator".to_owned(),
    };
    let erased = world.store.erase_memories(erase).await;
    erased.expect("the store answers");
    world.pass(Duration::from_mins(10)).await;
    assert_eq!(world.dump().await.memories.len(), 0);
    is_paid(&world, Purpose::Extract).await;
}

#[tokio::test(start_paused = true)]
async fn of_an_extraction_that_is_taken_over_each_attempt_is_paid_for() {
    let world = World::new().await;
    let faulty = Arc::new(Faulty::new(world.store.clone(), FaultPlan::NEVER));
    let _first = world.worker("first", faulty.clone());
    extracting(&world).await;
    faulty.pause();
    let _second = world.worker("second", world.store.clone());
    // The attempt's lease expires, and the other worker makes its own attempt.
    while !world.dump().await.extractions.is_empty() {
        world.pass(Duration::from_secs(5)).await;
    }
    faulty.wake();
    world.pass(Duration::from_mins(10)).await;
    assert_eq!(billed_for(&world, Purpose::Extract).len(), 2);
    assert_eq!(world.dump().await.memories.len(), 1);
    is_paid(&world, Purpose::Extract).await;
}

/// Runs a send followed by an extraction, under one fault. Returns the remembered texts, the number
/// of usage rows of extractions, the number of answers billed for them, and whether the fault was
/// reached.
fn extracted(plan: FaultPlan) -> (Vec<String>, usize, usize, bool) {
    alone(async {
        let world = World::new().await;
        know(&world, 1, "user/ann", "likes green tea").await;
        let faulty = Arc::new(Faulty::new(world.store.clone(), plan));
        world.worker("first", faulty.clone());
        let spec = MemorySpec {
            extract: ExtractMode::AfterSend,
            ..personal()
        };
        let key = session_of(&world, 1, Some("ann"), rememberer(spec)).await;
        let facts = json!({"memories": [
            {"text": "the dog is called Rex"},
            {"text": "The dogs is called REX!"},
            {"text": "likes black tea now", "replaces": 1},
        ]});
        let send = world.send(key, &format!("extract {facts}\n\ntea")).await;
        world.pass(Duration::from_secs(2)).await;
        world.worker("second", world.store.clone());
        let record = done(&world, send).await;
        assert!(record.shown.is_some());
        world.pass(Duration::from_mins(10)).await;
        world.audit().await;
        let dump = world.dump().await;
        assert_eq!(
            dump.extractions,
            [],
            "{plan:?} at {:?}",
            faulty.failed_method()
        );
        let mut texts: Vec<_> = dump
            .memories
            .iter()
            .map(|(_, entry)| entry.text.clone())
            .collect();
        texts.sort();
        let rex = dump
            .memories
            .iter()
            .find(|(_, entry)| entry.text.contains("Rex"));
        if let Some((_, rex)) = rex {
            let source = rex.source.expect("it says where it comes from");
            assert_eq!((source.from_seq, source.to_seq), (Some(1), Some(2)));
        }
        // The changed entry names its source, too.
        let tea = dump.memories.iter().find(|(_, entry)| entry.id == id(1));
        let (_, tea) = tea.expect("it is changed in its place");
        assert_eq!(tea.source.map(|source| source.send_id), Some(send));
        let rows = dump.sessions.iter().flat_map(|session| &session.usage);
        let paid = rows.filter(|(_, round, _)| *round < 0).count();
        let bills = world.script.bills();
        let billed = bills.iter().filter(|it| it.purpose == Purpose::Extract);
        (texts, paid, billed.count(), faulty.fired())
    })
}

#[test]
fn what_is_extracted_is_stored_and_paid_for_once_whatever_fails() {
    let expected = ["likes black tea now", "the dog is called Rex"];
    let plan = |at, fault| FaultPlan { at, fault };
    let (texts, paid, billed, _) = extracted(plan(usize::MAX, Fault::DieBefore));
    assert_eq!(texts, expected);
    assert_eq!((paid, billed), (1, 1));
    for fault in Fault::ALL {
        for at in 0.. {
            let (texts, paid, billed, fired) = extracted(plan(at, fault));
            if !fired {
                break;
            }
            assert_eq!(texts, expected, "{fault:?} at {at}");
            // Only an answer requested by a worker that died may have no row.
            let lost = billed - paid;
            let dies = matches!(fault, Fault::DieBefore | Fault::DieAfter);
            assert!(lost <= usize::from(dies), "{fault:?} at {at}: {lost} lost");
            assert_eq!(paid, 1, "{fault:?} at {at}");
        }
    }
}
