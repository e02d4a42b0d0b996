//! Hooks on sends that timers fire: such sends go ahead, say something else, or never start, and
//! the decision sticks.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::agent::{AgentSpec, MemorySpec};
use mainspring_shared::error::Code;
use mainspring_shared::id::{SendId, TimerId};
use mainspring_shared::memory::{Forget, Memory, MemoryError, Recall, Recalled, Remember};
use mainspring_shared::message::{ContentPart, Role, plain_text};
use mainspring_shared::send::{SendRecord, SendStatus, StopReason};
use mainspring_shared::store::NewTimer;
use mainspring_shared::time::Span;
use mainspring_shared::timer::{Schedule, TimerRule, TimerTarget};
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World};
use mainspring_worker::hook::{
    At, Decision, FiredTimer, Hook, HookError, HookTraits, OnFired, Verdict,
};

/// The judge's verdict on every fired timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    Go,
    Other,
    Skip,
    No,
    Fails,
    /// Fails once, then lets it go.
    FailsOnce,
}

#[derive(Debug)]
struct Judge {
    says: Says,
    asked: AtomicU32,
    seen: Mutex<Vec<FiredTimer>>,
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

    async fn timer_fired(&self, _at: At, fired: &FiredTimer) -> Decision<OnFired> {
        let before = self.asked.fetch_add(1, Ordering::Relaxed);
        self.seen.lock().expect("no panic").push(fired.clone());
        match self.says {
            Says::Go => Ok(Verdict::Go),
            Says::Other => {
                let words = vec![ContentPart::text(format!("other words {before}"))];
                Ok(Verdict::Instead(OnFired::Input(words)))
            }
            Says::Skip => Ok(Verdict::End),
            Says::No => Ok(Verdict::Refuse("not today".into())),
            Says::FailsOnce if before > 0 => Ok(Verdict::Go),
            Says::Fails | Says::FailsOnce => Err(HookError("broken".into())),
        }
    }
}

/// The send that a timer fired in a new session, once it is final, and the judge.
async fn fired(says: Says, faults: Option<FaultPlan>) -> (World, SendRecord, Arc<Judge>) {
    fired_in(World::new().await, AgentSpec::default(), says, faults).await
}

async fn fired_in(
    mut world: World,
    agent: AgentSpec,
    says: Says,
    faults: Option<FaultPlan>,
) -> (World, SendRecord, Arc<Judge>) {
    let judge = Arc::new(Judge {
        says,
        asked: AtomicU32::new(0),
        seen: Mutex::default(),
    });
    world.hooks.register(judge.clone()).expect("a new name");
    let key = world.session(agent).await;
    if let Some(plan) = faults {
        world.worker("mortal", Arc::new(Faulty::new(world.store.clone(), plan)));
    }
    world.worker("w", world.store.clone());
    let timer = NewTimer {
        id: TimerId(uuid::Uuid::from_u128(7)),
        tenant: key.tenant,
        target: TimerTarget::Send {
            session: key.session,
            input: vec![ContentPart::text("tick")],
            options: Box::default(),
        },
        rule: TimerRule::new(Schedule::After(Span(Duration::from_secs(1)))),
        armed_max: None,
    };
    world
        .store
        .create_timers(vec![(timer, None)])
        .await
        .expect("never fails");
    let id = loop {
        let dump = world.dump().await;
        let sends: Vec<SendId> = dump.sessions[0].sends.iter().map(|send| send.id).collect();
        if let [id] = sends[..] {
            break id;
        }
        world.pass(Duration::from_millis(50)).await;
    };
    let record = world.settle(&[id]).await.remove(0);
    world.audit().await;
    (world, record, judge)
}

/// The user messages of the transcript.
async fn said(world: &World) -> Vec<String> {
    let session = world.dump().await.sessions.remove(0);
    let users = session.messages.iter().filter(|m| m.role == Role::User);
    users.map(|m| plain_text(&m.content)).collect()
}

#[tokio::test(start_paused = true)]
async fn hooks_are_told_which_timer_fired_and_let_its_send_go() {
    let (world, record, judge) = fired(Says::Go, None).await;
    assert_eq!(record.status, SendStatus::Completed);
    assert_eq!(said(&world).await, ["tick"]);
    let seen = judge.seen.lock().expect("no panic");
    assert_eq!(seen.len(), 1);
    assert_eq!(
        (seen[0].timer, seen[0].n),
        (TimerId(uuid::Uuid::from_u128(7)), 1)
    );
    assert_eq!(plain_text(&seen[0].input), "tick");
    assert!(seen[0].due_at <= record.created_at);
}

#[tokio::test(start_paused = true)]
async fn a_hook_says_something_else_in_the_place_of_a_timer() {
    let (world, record, _) = fired(Says::Other, None).await;
    assert_eq!(record.status, SendStatus::Completed);
    assert_eq!(said(&world).await, ["other words 0"]);
    let asked = world.script.ledger().pop().expect("the model was asked");
    assert_eq!(asked.user, "other words 0");
}

#[tokio::test(start_paused = true)]
async fn a_send_that_is_skipped_ends_without_a_word() {
    let (world, record, judge) = fired(Says::Skip, None).await;
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    assert_eq!(record.output_text.unwrap_or_default(), "");
    assert_eq!(said(&world).await, Vec::<String>::new());
    assert_eq!(world.script.ledger().len(), 0);
    assert_eq!(judge.asked.load(Ordering::Relaxed), 1);
}

/// Knows nothing, and counts the questions.
#[derive(Debug, Default)]
struct Asked(AtomicU32);

#[async_trait]
impl Memory for Asked {
    async fn recall(&self, _ask: Recall) -> Result<Vec<Recalled>, MemoryError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Vec::new())
    }

    async fn remember(&self, _entry: Remember) -> Result<String, MemoryError> {
        Ok("note-1".to_owned())
    }

    async fn forget(&self, _entry: Forget) -> Result<bool, MemoryError> {
        Ok(false)
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_recalled_for_a_send_of_which_the_model_is_told_nothing() {
    for (says, recalls) in [
        (Says::Skip, 0),
        (Says::No, 0),
        (Says::Go, 1),
        (Says::Other, 1),
        (Says::FailsOnce, 1),
    ] {
        let mut world = World::new().await;
        let memory = Arc::new(Asked::default());
        world.memories.push(("own".to_owned(), memory.clone()));
        let agent = AgentSpec {
            memory: Some(MemorySpec {
                provider: "own".to_owned(),
                ..MemorySpec::new("user/ann")
            }),
            ..AgentSpec::default()
        };
        fired_in(world, agent, says, None).await;
        assert_eq!(memory.0.load(Ordering::Relaxed), recalls, "{says:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_send_that_is_refused_fails_and_one_that_nobody_judges_is_tried_again() {
    let (world, record, judge) = fired(Says::No, None).await;
    let code = record.error.as_ref().map(|error| error.code);
    assert_eq!(record.status, SendStatus::Failed);
    assert_eq!(code, Some(Code::PolicyDenied));
    assert_eq!(record.stop_reason, Some(StopReason::Policy));
    assert_eq!(judge.asked.load(Ordering::Relaxed), 1);
    assert_eq!(world.script.ledger().len(), 0);
    let (world, record, judge) = fired(Says::FailsOnce, None).await;
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    assert_eq!(judge.asked.load(Ordering::Relaxed), 2);
    assert_eq!(said(&world).await, ["tick"]);
    let (world, record, judge) = fired(Says::Fails, None).await;
    let code = record.error.as_ref().map(|error| error.code);
    assert_eq!(code, Some(Code::PolicyUnavailable));
    assert!(judge.asked.load(Ordering::Relaxed) > 1);
    assert_eq!(world.script.ledger().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_hook_changed_is_what_every_later_worker_says() {
    let mut deaths = 0;
    for nth in 0..8_usize {
        for fault in [Fault::DieBefore, Fault::DieAfter] {
            let plan = FaultPlan { at: nth, fault };
            let (world, record, judge) = fired(Says::Other, Some(plan)).await;
            assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
            let words = said(&world).await;
            let asked = judge.asked.load(Ordering::Relaxed);
            deaths += u32::from(asked > 1);
            // The model saw only one verdict, the stored one, whatever was asked before it was
            // stored.
            assert_eq!(words, [format!("other words {}", asked - 1)]);
            let told = world.script.ledger().into_iter().map(|asked| asked.user);
            assert!(told.into_iter().all(|user| user == words[0]));
        }
    }
    assert!(
        deaths > 0,
        "no worker died between the answer and its write"
    );
}

#[tokio::test(start_paused = true)]
async fn other_sends_are_not_asked_about() {
    let mut world = World::new().await;
    let judge = Arc::new(Judge {
        says: Says::No,
        asked: AtomicU32::new(0),
        seen: Mutex::default(),
    });
    world.hooks.register(judge.clone()).expect("a new name");
    let key = world.session(AgentSpec::default()).await;
    world.worker("w", world.store.clone());
    let id = world.send(key, "hello").await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    assert_eq!(judge.asked.load(Ordering::Relaxed), 0);
}

/// Postpones the timer that fires first, by five minutes.
#[derive(Debug, Default)]
struct Later {
    asked: Mutex<Vec<(TimerId, String)>>,
}

#[async_trait]
impl Hook for Later {
    fn name(&self) -> &'static str {
        "later"
    }

    fn traits(&self) -> HookTraits {
        HookTraits {
            fails_closed: true,
            ..HookTraits::default()
        }
    }

    async fn timer_fired(&self, _at: At, fired: &FiredTimer) -> Decision<OnFired> {
        let seen = (fired.timer, plain_text(&fired.input));
        self.asked.lock().expect("no panic").push(seen);
        Ok(if fired.timer == TimerId(uuid::Uuid::from_u128(1 << 100)) {
            Verdict::Instead(OnFired::After(Duration::from_mins(5)))
        } else {
            Verdict::Go
        })
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_put_off_is_said_later_and_once_whatever_dies() {
    let faults = [Fault::DieBefore, Fault::DieAfter, Fault::FailAfter];
    let plans = faults
        .into_iter()
        .flat_map(|fault| (0..8).map(move |at| FaultPlan { at, fault }));
    let mut deaths = 0;
    for plan in std::iter::once(FaultPlan::NEVER).chain(plans) {
        let mut world = World::new().await;
        let later = Arc::new(Later::default());
        world.hooks.register(later.clone()).expect("a new name");
        let key = world.session(AgentSpec::default()).await;
        let mortal = Arc::new(Faulty::new(world.store.clone(), plan));
        world.worker("mortal", mortal.clone());
        let timer = NewTimer {
            id: TimerId(uuid::Uuid::from_u128(1 << 100)),
            tenant: key.tenant,
            target: TimerTarget::Send {
                session: key.session,
                input: vec![ContentPart::text("tick")],
                options: Box::default(),
            },
            rule: TimerRule::new(Schedule::After(Span(Duration::from_secs(1)))),
            armed_max: None,
        };
        let armed = world.store.create_timers(vec![(timer, None)]).await;
        armed.expect("never fails");
        world.pass(Duration::from_secs(3)).await;
        world.worker("w", world.store.clone());
        world.pass(Duration::from_mins(2)).await;
        // Meanwhile the session is free for other sends.
        let between = world.send(key, "between").await;
        let between = world.settle(&[between]).await.remove(0);
        assert_eq!(between.status, SendStatus::Completed, "{plan:?}");
        world.pass(Duration::from_mins(5)).await;
        let session = world.dump().await.sessions.remove(0);
        let mut sends = session.sends;
        sends.sort_by_key(|send| send.created_at);
        assert_eq!(sends.len(), 3, "{plan:?}: {sends:#?}");
        let all = sends
            .iter()
            .all(|send| send.status == SendStatus::Completed);
        assert!(all, "{plan:?}: {sends:#?}");
        let waited = sends[2].created_at.since(sends[0].created_at);
        assert!(waited >= Duration::from_secs(299), "{plan:?}: {waited:?}");
        assert_eq!(said(&world).await, ["between", "tick"], "{plan:?}");
        let asked = later.asked.lock().expect("no panic").clone();
        assert!(asked.iter().all(|(_, text)| text == "tick"));
        deaths += usize::from(asked.len() > 2);
        world.audit().await;
    }
    assert!(
        deaths > 0,
        "no worker died between the answer and its write"
    );
}
