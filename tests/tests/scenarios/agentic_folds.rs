//! Folds whose model takes notes first: before a model call, and of idle sessions.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, FoldStrategy};
use mainspring_shared::id::SessionKey;
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::session::fold::FoldKind;
use mainspring_shared::step::StepKind;
use mainspring_shared::store::{Dump, DumpSession};
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World, alone};

use crate::folding::{SMALL, agent, text};

/// An agent with notes whose folds are written while its session is idle, or else before a model
/// call.
fn noting(rests: bool) -> AgentSpec {
    let mut agent = agent(FoldStrategy::Agentic, if rests { 0.02 } else { SMALL });
    agent.tools.push(ToolEntry::Named("note_add".into()));
    if rests {
        agent.context.fold.soft = Some(SMALL);
    }
    agent
}

async fn say(world: &World, key: SessionKey, text: &str) -> SendRecord {
    let id = world.send(key, text).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    record
}

fn notes(dump: &Dump) -> usize {
    let lists = dump.lists.iter();
    let notes = lists.filter(|list| list.name.starts_with("notes"));
    notes.map(|list| list.list.entries.len()).sum()
}

/// Number of usage rows of folds of idle sessions, and the input tokens they read.
fn paid_at_rest(session: &DumpSession) -> (usize, u64) {
    let rows = session.usage.iter().zip(&session.paid);
    let rested = rows.filter(|((_, round, _), _)| *round == -1);
    let rested: Vec<_> = rested.map(|(_, usage)| usage.input_tokens).collect();
    (rested.len(), rested.iter().sum())
}

/// Number of model calls that ask for a fold.
fn asked_for_folds(world: &World) -> u64 {
    let ledger = world.script.ledger();
    let folds = ledger.iter().filter(|it| it.user.contains("<transcript>"));
    folds.count() as u64
}

#[tokio::test(start_paused = true)]
async fn a_session_at_rest_is_folded_with_notes_and_its_readers_are_told() {
    let world = World::new().await;
    let key = world.session(noting(true)).await;
    let _worker = world.worker("w", world.store.clone());
    let mut records = vec![say(&world, key, "fold sleeps 2000").await];
    for n in 0..24 {
        records.push(say(&world, key, &text(n)).await);
        // Some sends follow while a fold is being written, some later.
        let pause = Duration::from_millis(900 * (n as u64 % 6));
        world.pass(pause).await;
    }
    world.pass(Duration::from_secs(20)).await;
    world.audit().await;
    for record in &records {
        let ended = record.finished_at.expect("it is final");
        let took = ended.since(record.created_at);
        assert!(took < Duration::from_secs(1), "a send took {took:?}");
    }
    let dump = world.dump().await;
    let session = &dump.sessions[0];
    assert!(session.folds.len() > 1, "{:?}", session.folds);
    let agentic = |kind| kind == FoldKind::Agentic;
    assert!(session.folds.iter().all(|fold| agentic(fold.kind)));
    assert_eq!(notes(&dump), session.folds.len());
    // Each fold is paid for once, including all its calls: one that takes a note, and one that
    // writes.
    let (rows, tokens) = paid_at_rest(session);
    assert_eq!(rows, session.folds.len());
    assert_eq!(tokens, 10 * asked_for_folds(&world));
    assert_eq!(asked_for_folds(&world), 2 * rows as u64);
    let told = world.told(key);
    let steps = session.steps.iter();
    for step in steps.filter(|step| step.kind == StepKind::Folded) {
        assert_eq!(step.epoch, 0, "it was attached at rest");
        assert!(told.contains(&step.n), "{} of {told:?}", step.n);
    }
}

#[tokio::test(start_paused = true)]
async fn a_fold_before_a_question_saves_its_notes() {
    let world = World::new().await;
    let key = world.session(noting(false)).await;
    let _worker = world.worker("w", world.store.clone());
    for n in 0..10 {
        say(&world, key, &text(n)).await;
    }
    world.audit().await;
    let dump = world.dump().await;
    let folds = &dump.sessions[0].folds;
    assert!(!folds.is_empty());
    assert!(folds.iter().all(|fold| fold.kind == FoldKind::Agentic));
    assert_eq!(notes(&dump), folds.len());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_in_the_middle_leaves_neither_fold_nor_notes() {
    let world = World::new().await;
    let key = world.session(noting(true)).await;
    let worker = world.worker("w", world.store.clone());
    say(&world, key, "fold sleeps 60000").await;
    let mut n = 0;
    while asked_for_folds(&world) == 0 {
        say(&world, key, &text(n)).await;
        n += 1;
        assert!(n < 40, "nothing is folded");
    }
    worker.stop();
    world.pass(Duration::from_mins(2)).await;
    let dump = world.dump().await;
    assert_eq!((dump.sessions[0].folds.len(), notes(&dump)), (0, 0));
    // The calls that were made are paid for.
    assert_eq!(paid_at_rest(&dump.sessions[0]).0, 1);
    let _worker = world.worker("x", world.store.clone());
    say(&world, key, &text(n)).await;
    world.pass(Duration::from_mins(3)).await;
    let dump = world.dump().await;
    assert_eq!((dump.sessions[0].folds.len(), notes(&dump)), (1, 1));
    world.audit().await;
}

/// The number of folds and notes of a conversation whose first worker dies as planned, and whether
/// it did.
fn disturbed(plan: FaultPlan) -> (usize, usize, bool) {
    alone(async {
        let world = World::new().await;
        let key = world.session(noting(true)).await;
        let faulty = Arc::new(Faulty::new(world.store.clone(), plan));
        let first = world.worker("first", faulty.clone());
        for n in 0..12 {
            if faulty.fired() {
                first.stop();
                world.worker("second", world.store.clone());
            }
            let id = world.send(key, &text(n)).await;
            world.pass(Duration::from_secs(3)).await;
            if faulty.fired() && !world.record(id).await.status.is_final() {
                world.worker("third", world.store.clone());
            }
            world.settle(&[id]).await;
        }
        world.pass(Duration::from_secs(20)).await;
        world.audit().await;
        let dump = world.dump().await;
        let session = &dump.sessions[0];
        let steps = session.steps.iter();
        let folded = steps.filter(|step| step.kind == StepKind::Folded).count();
        assert_eq!(folded, session.folds.len());
        assert_eq!(session.messages.len(), 24);
        (session.folds.len(), notes(&dump), faulty.fired())
    })
}

#[test]
fn a_death_at_any_write_costs_a_fold_at_rest_at_most() {
    let (sound, noted, _) = disturbed(FaultPlan::NEVER);
    assert!(sound > 0 && noted == sound, "{sound} {noted}");
    for fault in [Fault::DieBefore, Fault::DieAfter] {
        for at in 0.. {
            let (folds, noted, fired) = disturbed(FaultPlan { at, fault });
            assert!(folds > 0, "{fault:?} at {at}");
            // The notes of one fold may be lost, but none is saved twice.
            assert!(
                noted <= folds && noted + 1 >= folds,
                "{fault:?} at {at}: {noted} {folds}"
            );
            if !fired {
                assert!(at > 15, "only {at} writes");
                break;
            }
        }
    }
}
