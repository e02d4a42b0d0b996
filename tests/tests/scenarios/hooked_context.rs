//! Hooks on what a send is shown: on memories, and on folds.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::agent::{AgentSpec, FoldStrategy, MemorySpec};
use mainspring_shared::memory::Recalled;
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::fold::FoldKind;
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World, differences, essence};
use mainspring_worker::hook::{
    At, Decision, FoldPart, Hook, HookError, HookTraits, Moment, Verdict,
};
use serde_json::Value;

use super::folding::{SMALL, agent, text};
use super::memory::{done, know, memory};

/// The judge's verdict on everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    Yes,
    No,
    Own,
    Fails,
    Nothing,
}

#[derive(Debug)]
struct Judge {
    says: Says,
    asked: AtomicU32,
    stored: Mutex<Vec<(i64, FoldKind)>>,
}

impl Judge {
    async fn decide<T>(&self, own: T) -> Decision<T> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.says {
            Says::Yes => Ok(Verdict::Go),
            Says::No => Ok(Verdict::Refuse("not today".into())),
            Says::Own => Ok(Verdict::Instead(own)),
            Says::Fails => Err(HookError("broken".into())),
            Says::Nothing => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Hook for Judge {
    fn name(&self) -> &'static str {
        "judge"
    }

    fn traits(&self) -> HookTraits {
        HookTraits {
            fails_closed: true,
            ..HookTraits::default()
        }
    }

    async fn memory_recalled(&self, _at: At, found: &[Recalled]) -> Decision<Vec<Recalled>> {
        let mild = found.iter().filter(|entry| !entry.text.contains("secret"));
        self.decide(mild.cloned().collect()).await
    }

    async fn before_fold(&self, _at: At, part: &FoldPart) -> Decision<String> {
        assert!(part.to_seq >= part.from_seq && !part.part.messages.is_empty());
        self.decide(format!("the judge on {} to {}", part.from_seq, part.to_seq))
            .await
    }

    async fn observe(&self, _at: At, moment: Moment<'_>) -> Result<(), HookError> {
        if let Moment::FoldStored(fold) = moment {
            let mut stored = self.stored.lock().expect("no panic");
            stored.push((fold.to_seq, fold.kind));
        }
        Ok(())
    }
}

async fn judged(says: Says) -> (World, Arc<Judge>) {
    let mut world = World::new().await;
    let judge = Arc::new(Judge {
        says,
        asked: AtomicU32::new(0),
        stored: Mutex::default(),
    });
    world.hooks.register(judge.clone()).expect("a new name");
    (world, judge)
}

fn rememberer() -> AgentSpec {
    AgentSpec {
        memory: Some(MemorySpec::new("user/1")),
        tools: vec![ToolEntry::Named("look".into())],
        ..AgentSpec::default()
    }
}

#[tokio::test(start_paused = true)]
async fn hooks_choose_what_is_shown_of_the_memory() {
    for (says, entries, note) in [
        (Says::Yes, 2, ""),
        (Says::Own, 1, ""),
        (Says::No, 0, "judge: not today"),
        (Says::Fails, 0, "broken"),
        (Says::Nothing, 0, "did not answer in time"),
    ] {
        let (world, judge) = judged(says).await;
        know(&world, 1, "user/1", "likes green tea").await;
        know(&world, 2, "user/1", "the secret of the tea").await;
        let _worker = world.worker("w", world.store.clone());
        let key = world.session(rememberer()).await;
        let send = world.send(key, "tea?").await;
        let shown = memory(&done(&world, send).await);
        assert_eq!(shown.entries.len(), entries, "{says:?}: {shown:?}");
        let said = shown.note.unwrap_or_default();
        assert!(
            said.contains(note) && said.is_empty() == note.is_empty(),
            "{said}"
        );
        let tail = world.script.ledger().remove(0).tail.unwrap_or_default();
        assert_eq!(tail.contains("green"), entries > 0, "{says:?}: {tail}");
        assert_eq!(tail.contains("secret"), entries > 1, "{says:?}: {tail}");
        assert_eq!(judge.asked.load(Ordering::Relaxed), 1);
        world.audit().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_hook_chose_is_not_chosen_again_by_whoever_takes_over() {
    let (world, judge) = judged(Says::Own).await;
    know(&world, 1, "user/1", "likes green tea").await;
    let plan = FaultPlan::NEVER;
    let first = Arc::new(Faulty::new(world.store.clone(), plan));
    world.worker("first", first.clone());
    let key = world.session(rememberer()).await;
    let send = world
        .send(key, "plan [[[\"look\", {\"ms\": 5000}]]]\n\ntea")
        .await;
    while world.record(send).await.rounds == 0 {
        world.pass(Duration::from_millis(20)).await;
    }
    first.kill();
    let _second = world.worker("second", world.store.clone());
    done(&world, send).await;
    assert_eq!(judge.asked.load(Ordering::Relaxed), 1);
    let ledger = world.script.ledger();
    assert!(ledger.len() >= 2);
    assert!(ledger.iter().all(|asked| asked.tail == ledger[0].tail));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_never_answers_about_the_memory_does_not_keep_a_cancel_waiting() {
    let (world, _judge) = judged(Says::Nothing).await;
    know(&world, 1, "user/1", "likes green tea").await;
    let _worker = world.worker("w", world.store.clone());
    let key = world.session(rememberer()).await;
    let send = world.send(key, "tea?").await;
    world.pass(Duration::from_secs(2)).await;
    world.cancel(key, send).await;
    world.pass(Duration::from_secs(2)).await;
    assert_eq!(world.record(send).await.status, SendStatus::Cancelled);
    world.audit().await;
}

async fn talk(world: &World, agent: AgentSpec) {
    let key = world.session(agent).await;
    for n in 0..16 {
        let send = world.send(key, &text(n)).await;
        done(world, send).await;
    }
}

#[tokio::test(start_paused = true)]
async fn hooks_forbid_write_and_see_folds() {
    for strategy in [FoldStrategy::Summary, FoldStrategy::Projection] {
        for says in [Says::Yes, Says::No, Says::Own, Says::Fails] {
            let (world, judge) = judged(says).await;
            let _worker = world.worker("w", world.store.clone());
            talk(&world, agent(strategy, SMALL)).await;
            let session = world.dump().await.sessions.remove(0);
            let stored = judge.stored.lock().expect("no panic").clone();
            let folds: Vec<_> = session
                .folds
                .iter()
                .map(|fold| (fold.to_seq, fold.kind))
                .collect();
            assert_eq!(stored, folds, "{strategy:?}, {says:?}");
            assert!(
                judge.asked.load(Ordering::Relaxed) > 1,
                "{strategy:?}, {says:?}"
            );
            let kind = match (says, strategy) {
                (Says::Own, _) => FoldKind::Custom,
                (_, FoldStrategy::Summary) => FoldKind::Summary,
                _ => FoldKind::Projection,
            };
            match says {
                Says::Yes | Says::Own => {
                    assert!(!folds.is_empty(), "{strategy:?}, {says:?}");
                    assert!(folds.iter().all(|fold| fold.1 == kind), "{folds:?}");
                }
                _ => assert_eq!(folds, [], "{strategy:?}, {says:?}"),
            }
            if says == Says::Own {
                assert!(session.folds[0].text.starts_with("the judge on 1 to "));
            }
            let asked = world.script.ledger();
            let for_folds = asked.iter().filter(|one| one.user.contains("<transcript>"));
            let paid = says == Says::Yes && strategy == FoldStrategy::Summary;
            assert_eq!(for_folds.count() > 0, paid, "{strategy:?}, {says:?}");
            world.audit().await;
        }
    }
}

/// Runs a conversation whose folds a hook allows, under one fault. Returns the store's final
/// contents, and whether the fault was reached.
fn disturbed(plan: FaultPlan) -> (Value, bool) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    runtime.expect("a runtime starts").block_on(async {
        let (world, _judge) = judged(Says::Own).await;
        let faulty = Arc::new(Faulty::new(world.store.clone(), plan));
        world.worker("first", faulty.clone());
        let second = world.store.clone();
        let mut helped = false;
        let key = world.session(agent(FoldStrategy::Projection, SMALL)).await;
        for n in 0..9 {
            let send = world.send(key, &text(n)).await;
            world.pass(Duration::from_secs(1)).await;
            if faulty.fired() && !helped {
                world.worker("second", second.clone());
                helped = true;
            }
            done(&world, send).await;
        }
        world.pass(Duration::from_secs(20)).await;
        world.audit().await;
        let dump = world.dump().await;
        assert!(!dump.sessions[0].folds.is_empty());
        (essence(&dump), faulty.fired())
    })
}

#[tokio::test(start_paused = true)]
async fn hooks_see_the_folds_of_sessions_at_rest() {
    let (world, judge) = judged(Says::Yes).await;
    let _worker = world.worker("w", world.store.clone());
    let mut resting = agent(FoldStrategy::Summary, 0.02);
    resting.system_prompt = Some("counts".to_owned());
    resting.context.fold.soft = Some(SMALL);
    let key = world.session(resting).await;
    for n in 0..16 {
        let send = world.send(key, &text(n)).await;
        done(&world, send).await;
        world.pass(Duration::from_secs(1)).await;
    }
    let session = world.dump().await.sessions.remove(0);
    assert!(session.usage.iter().any(|(_, round, _)| *round == -1));
    let folds = session.folds.iter().map(|fold| (fold.to_seq, fold.kind));
    let stored = judge.stored.lock().expect("no panic").clone();
    assert_eq!(stored, folds.collect::<Vec<_>>());
    world.audit().await;
}

#[test]
fn a_death_at_any_write_of_a_hooked_fold_changes_nothing() {
    let plan = |at, fault| FaultPlan { at, fault };
    let (sound, _) = disturbed(plan(usize::MAX, Fault::DieBefore));
    for fault in [Fault::DieBefore, Fault::DieAfter] {
        for at in 0.. {
            let (found, fired) = disturbed(plan(at, fault));
            if !fired {
                assert!(at > 10, "only {at} writes");
                break;
            }
            let differ = differences(&found, &sound);
            assert!(differ.is_empty(), "{fault:?} at {at}: {differ:#?}");
        }
    }
}
