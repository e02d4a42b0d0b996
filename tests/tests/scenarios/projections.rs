//! Agents that show digests: what is stored when their sends end, that no extra model call is made
//! for it, and that a death at any write changes nothing.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{
    AgentSpec, ContextSpec, FoldSpec, FoldStrategy, Representation, SendOptions, ToolContext,
};
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::message::{Message, Role};
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::fold::digest::sends;
use mainspring_shared::session::projection::Projection;
use mainspring_shared::store::DumpSession;
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World, alone, differences, essence};
use mainspring_worker::WorkerConfig;
use serde_json::Value;

/// An agent that shows digests of all sends except the newest two.
fn agent(fold: FoldSpec) -> AgentSpec {
    AgentSpec {
        tools: vec![ToolEntry::Named("look".into())],
        context: ContextSpec {
            representation: Representation::Projection,
            fold: FoldSpec {
                keep_sends: Some(2),
                ..fold
            },
            ..ContextSpec::default()
        },
        ..AgentSpec::default()
    }
}

/// A worker that caches nothing of a session after it releases it.
fn cold() -> WorkerConfig {
    WorkerConfig {
        cache_bytes_max: 0,
        ..WorkerConfig::default()
    }
}

async fn session(world: &World) -> DumpSession {
    world.dump().await.sessions.remove(0)
}

/// The digests that a session's messages produce, in order.
fn given(session: &DumpSession) -> Vec<Projection> {
    let messages: Vec<Arc<Message>> = session.messages.iter().cloned().map(Arc::new).collect();
    sends(&messages).filter_map(Projection::of).collect()
}

/// Input of the `n`th send, of alternating kinds: with tools, text only, and long.
fn input(n: usize) -> String {
    match n % 3 {
        0 => format!(
            "plan [[[\"look\", {{\"n\": {n}, \"chars\": 900}}]], [[\"look\", {{\"n\": {n}}}]]]"
        ),
        1 => format!("say {n}"),
        _ => format!("{n} {}", "and so on ".repeat(150)),
    }
}

/// The model calls of a conversation of this many sends, and the session at the end.
async fn told(agent: AgentSpec, worker: WorkerConfig, count: usize) -> (Vec<Value>, DumpSession) {
    let world = World::new().await;
    let key = world.session(agent).await;
    let _worker = world.worker_with(worker, world.store.clone());
    for n in 0..count {
        let id = world.send(key, &input(n)).await;
        world.settle(&[id]).await;
    }
    world.pass(Duration::from_secs(5)).await;
    world.audit().await;
    let asked = world.script.ledger().into_iter().map(|asked| {
        let shown = asked.transcript.into_iter();
        let shown = shown.map(|(role, text)| serde_json::json!([role, text]));
        serde_json::json!([asked.system, shown.collect::<Vec<_>>(), asked.tail])
    });
    (asked.collect(), session(&world).await)
}

#[tokio::test(start_paused = true)]
async fn whoever_reads_digests_asks_what_the_one_with_the_messages_asks() {
    let forgets = |mut agent: AgentSpec| {
        agent
            .context
            .tools
            .insert("look".to_owned(), ToolContext::Archive);
        agent
    };
    let folds = |strategy| FoldSpec {
        strategy,
        soft: Some(0.014),
        hard: Some(0.024),
        ..FoldSpec::default()
    };
    let bounded = |mut agent: AgentSpec| {
        agent.context.last_messages = Some(9);
        agent
    };
    let cases = [
        (agent(FoldSpec::default()), 14),
        (forgets(agent(FoldSpec::default())), 14),
        (bounded(agent(FoldSpec::default())), 14),
        (agent(folds(FoldStrategy::Projection)), 30),
        (agent(folds(FoldStrategy::Summary)), 30),
    ];
    for (place, (agent, count)) in cases.into_iter().enumerate() {
        let (warm, kept) = told(agent.clone(), WorkerConfig::default(), count).await;
        let (cold, read) = told(agent, cold(), count).await;
        for (n, (warm, cold)) in warm.iter().zip(&cold).enumerate() {
            assert_eq!(warm, cold, "case {place}, call {n}");
        }
        assert_eq!(warm.len(), cold.len(), "case {place}");
        assert_eq!(kept.projections, read.projections, "case {place}");
        assert_eq!(kept.projections, given(&kept), "case {place}");
        assert_eq!(kept.projections.len(), count, "case {place}");
        // Digests were sent to the model.
        let digest = |asked: &Value| asked.to_string().contains("[#1] plan");
        assert!(place == 2 || warm.iter().any(digest), "case {place}");
        assert_eq!(kept.folds.len(), read.folds.len(), "case {place}");
        assert_eq!(place < 3, kept.folds.is_empty(), "case {place}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_shows_all_stores_nothing() {
    let mut verbatim = agent(FoldSpec::default());
    verbatim.context.representation = Representation::Verbatim;
    let (_, session) = told(verbatim, cold(), 4).await;
    assert_eq!(session.projections, []);
}

#[tokio::test(start_paused = true)]
async fn a_send_that_nobody_ended_gets_its_digest_with_the_next_one() {
    let world = World::new().await;
    let key = world.session(agent(FoldSpec::default())).await;
    let worker = world.worker("w", world.store.clone());
    let first = say(&world, key, "say so").await;
    // The send waits for its next attempt, and is ended while it waits.
    let options = SendOptions::default();
    let waits = world.send_with(key, "fail-late 9", options).await;
    world.pass(Duration::from_secs(2)).await;
    assert_eq!(world.record(waits).await.status, SendStatus::Waiting);
    worker.stop();
    world.pass(Duration::from_secs(30)).await;
    world.cancel(key, waits).await;
    world.settle(&[waits]).await;
    let lacking = session(&world).await;
    assert_eq!(lacking.projections.len(), 1);
    let of = |id: SendId| move |it: &&Message| it.send_id == id && it.role == Role::User;
    assert!(lacking.messages.iter().any(|it| of(first)(&it)));
    assert!(lacking.messages.iter().any(|it| of(waits)(&it)));
    let _worker = world.worker("x", world.store.clone());
    say(&world, key, "say more").await;
    let healed = session(&world).await;
    assert_eq!(healed.projections.len(), 3);
    assert_eq!(healed.projections, given(&healed));
    world.audit().await;
}

async fn say(world: &World, key: SessionKey, text: &str) -> SendId {
    let id = world.send(key, text).await;
    world.settle(&[id]).await;
    id
}

/// The final state of a conversation whose first worker dies as planned, and whether it did.
fn disturbed(plan: FaultPlan) -> (Value, bool) {
    alone(async {
        let world = World::new().await;
        let key = world.session(agent(FoldSpec::default())).await;
        let faulty = Arc::new(Faulty::new(world.store.clone(), plan));
        world.worker("first", faulty.clone());
        world.worker("second", world.store.clone());
        for n in 0..7 {
            say(&world, key, &input(n)).await;
        }
        world.audit().await;
        let left = session(&world).await;
        assert_eq!(left.projections, given(&left));
        (essence(&world.dump().await), faulty.fired())
    })
}

#[test]
fn a_death_at_any_write_leaves_each_send_its_digest() {
    let (sound, _) = disturbed(FaultPlan::NEVER);
    for fault in [Fault::DieBefore, Fault::DieAfter] {
        for at in 0.. {
            let (found, fired) = disturbed(FaultPlan { at, fault });
            let differ = differences(&found, &sound);
            assert!(differ.is_empty(), "{fault:?} at {at}: {differ:#?}");
            if !fired {
                assert!(at > 10, "only {at} writes");
                break;
            }
        }
    }
}
