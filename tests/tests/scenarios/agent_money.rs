//! Agents with their own money and token limits: never exceeded, whichever worker dies, and without
//! effect on other agents.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{
    AgentKey, AgentLimits, AgentName, AgentRef, AgentSpec, Bound, ExtractMode, FoldStrategy,
    MemorySpec, SendOptions,
};
use mainspring_shared::error::Code;
use mainspring_shared::id::{SendId, SessionKey, TenantId};
use mainspring_shared::send::{SendRecord, SendStatus, StopReason};
use mainspring_shared::store::PublishAgent;
use mainspring_shared::tenant::Usd;
use mainspring_shared::tool::ToolEntry;
use mainspring_shared::usage::Purpose;
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World};
use serde_json::json;

use super::folding;
use super::memory::{personal, session_of};
use super::money::{HAS, MOST, SECOND, TOKEN, world};

fn name(agent: &str) -> AgentName {
    agent.parse().expect("a name")
}

/// Publishes an agent, or changes its limits.
async fn publish(world: &World, agent: &str, limits: AgentLimits) {
    let item = PublishAgent {
        key: AgentKey {
            tenant: TenantId::DEFAULT,
            name: name(agent),
        },
        spec: AgentSpec::default(),
        limits: Some(limits),
        idempotency: None,
    };
    let published = world.store.publish_agent(item).await;
    published.expect("the store answers");
}

/// A daily limit worth this many tokens.
fn of_day(tokens: u64) -> AgentLimits {
    AgentLimits {
        usd_per_day: Some(Usd(tokens * TOKEN)),
        ..AgentLimits::default()
    }
}

/// A token limit that nothing reaches, which makes tokens be counted.
fn counted() -> AgentLimits {
    AgentLimits {
        tokens_per_day: Some(1_000_000_000),
        ..AgentLimits::default()
    }
}

/// A spec bound to the first version of this agent.
fn published(agent: &str, spec: AgentSpec) -> AgentSpec {
    let bound = Bound {
        agent: Some(AgentRef {
            name: name(agent),
            version: 1,
        }),
        ..Bound::default()
    };
    AgentSpec {
        bound: Some(Box::new(bound)),
        ..spec
    }
}

/// Like [`published`], with answers of at most [`MOST`] tokens.
fn brief(agent: &str) -> AgentSpec {
    let spec = AgentSpec {
        max_tokens: u32::try_from(MOST).ok(),
        ..AgentSpec::default()
    };
    published(agent, spec)
}

async fn sends(world: &World, agent: &str, text: &str, count: usize) -> Vec<SendId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let key = world.session(brief(agent)).await;
        ids.push(world.send(key, text).await);
    }
    ids
}

/// What an agent has spent and what it has reserved, in tokens' worth.
async fn money(world: &World, agent: &str) -> (u64, u64) {
    let (dump, holder) = (world.dump().await, name(agent).holder());
    let nano = TOKEN * 1_000;
    let days = dump.agent_money_days.iter();
    let spent = days.filter(|(_, of, ..)| *of == holder);
    let aside = dump.agent_money_aside.iter();
    let aside = aside.filter(|(of, _)| *of == holder);
    (
        spent.map(|(.., spent)| spent / nano).sum(),
        aside.map(|(_, aside)| aside.amount / nano).sum(),
    )
}

/// The tokens that an agent's calls used today.
async fn tokens(world: &World, agent: &str) -> u64 {
    let spent = world
        .store
        .spent_money(TenantId::DEFAULT, Some(name(agent)));
    let spent = spent.await.expect("the store answers");
    let tokens = spent.expect("a call was made").tokens;
    assert_eq!(tokens.aside, 0);
    tokens.day
}

fn assert_spent(record: &SendRecord, agent: &str) {
    assert_eq!(record.status, SendStatus::Failed, "{record:#?}");
    assert_eq!(record.stop_reason, Some(StopReason::Budget));
    let error = record.error.as_ref().expect("it failed");
    assert_eq!(error.code, Code::BudgetExceeded);
    let limit = format!("(agent {agent}: limits.usd_per_day)");
    assert!(error.message.contains(&limit), "{}", error.message);
}

#[tokio::test(start_paused = true)]
async fn workers_die_and_an_agents_limit_is_never_passed_while_another_agent_goes_on() {
    const LIMIT: u64 = 10 * MOST;
    let never = FaultPlan {
        at: usize::MAX,
        fault: Fault::FailBefore,
    };
    let world = world().await;
    publish(&world, "careful", of_day(LIMIT)).await;
    publish(&world, "busy", AgentLimits::default()).await;
    let workers = ["a", "b", "c"].map(|name| {
        let store = Arc::new(Faulty::new(world.store.clone(), never));
        let worker = world.worker(name, store.clone());
        (store, worker)
    });
    let _lives = world.worker("lives", world.store.clone());
    let careful = sends(&world, "careful", "sleep 700", 120).await;
    let busy = sends(&world, "busy", "sleep 700", 60).await;
    let mut most = 0;
    for step in 0_usize.. {
        let (spent, aside) = money(&world, "careful").await;
        assert!(spent + aside <= LIMIT, "{spent} and {aside}");
        most = most.max(aside);
        // In the middle of calls, one after the other.
        if step % 2 == 1
            && let Some((store, _)) = workers.get(step / 2)
        {
            store.kill();
        }
        let dump = world.dump().await;
        let mut records = dump.sessions.iter().flat_map(|it| &it.sends);
        if records.all(|record| record.status.is_final()) {
            break;
        }
        world.pass(Duration::from_millis(250)).await;
    }
    assert!(most > LIMIT / 2, "many run at once: {most}");
    for record in world.settle(&busy).await {
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    }
    let records = world.settle(&careful).await;
    let (done, spent): (Vec<_>, Vec<_>) = records
        .iter()
        .partition(|record| record.status == SendStatus::Completed);
    for record in &spent {
        assert_spent(record, "careful");
    }
    let (spent, aside) = money(&world, "careful").await;
    assert_eq!(aside, 0);
    // Too little is left for an answer. Calls of dead workers count at their maximum.
    assert!(spent <= LIMIT && LIMIT - spent < 16, "{spent}");
    assert!(
        spent > done.len() as u64 * HAS,
        "{spent} for {}",
        done.len()
    );
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_spent_limit_of_an_agent_ends_its_sends_in_whatever_session() {
    let world = world().await;
    publish(&world, "careful", of_day(MOST)).await;
    publish(&world, "busy", AgentLimits::default()).await;
    let _worker = world.worker("w", world.store.clone());
    let ids = sends(&world, "careful", "tools 20", 1).await;
    assert_spent(&world.settle(&ids).await[0], "careful");
    let (spent, aside) = money(&world, "careful").await;
    assert!(spent <= MOST && spent + 16 > MOST && aside == 0, "{spent}");
    // A send counts for its own agent, not for its session's.
    let with = |agent: &str| SendOptions {
        agent: Some(Box::new(brief(agent))),
        ..SendOptions::default()
    };
    let key = world.session(brief("busy")).await;
    let id = world.send_with(key, "hello", with("careful")).await;
    assert_spent(&world.settle(&[id]).await[0], "careful");
    let asked = world.script.asked();
    let key = world.session(brief("careful")).await;
    let id = world.send_with(key, "hello", with("busy")).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    assert_eq!(world.script.asked(), asked + 1);
    assert_eq!(money(&world, "careful").await, (spent, 0));
    // A raised limit takes effect at once.
    publish(&world, "careful", of_day(10 * MOST)).await;
    let id = world.send(key, "hello").await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    assert_eq!(money(&world, "careful").await, (spent + HAS, 0));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_waits_for_its_own_minute_and_others_do_not() {
    let world = world().await;
    let limits = AgentLimits {
        // Room for one call in flight and one that has ended.
        usd_per_minute: Some(Usd((MOST + HAS) * TOKEN)),
        ..AgentLimits::default()
    };
    publish(&world, "careful", limits).await;
    let _worker = world.worker("w", world.store.clone());
    let careful = sends(&world, "careful", "hello", 5).await;
    let busy = sends(&world, "busy", "hello", 20).await;
    let mut by_minute = std::collections::BTreeMap::new();
    for record in world.settle(&careful).await {
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
        let ended = record.finished_at.expect("it ended");
        *by_minute.entry(ended.0 / 60_000).or_insert(0) += 1;
    }
    assert!(by_minute.values().all(|of| *of <= 2), "{by_minute:?}");
    let first = by_minute.keys().next().copied();
    for record in world.settle(&busy).await {
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
        assert_eq!(record.finished_at.map(|ended| ended.0 / 60_000), first);
    }
    world.audit().await;
}

/// Tokens that a session's calls used, from its stored usage.
async fn taken(world: &World, key: SessionKey) -> u64 {
    let sessions = world.dump().await.sessions.into_iter();
    let mut mine = sessions.filter(|session| session.key == key);
    let session = mine.next().expect("it exists");
    let paid = session.paid.iter();
    paid.map(|usage| usage.input_tokens + usage.output_tokens)
        .sum()
}

#[tokio::test(start_paused = true)]
async fn folds_and_extractions_of_an_agent_count_for_it() {
    let world = World::new().await;
    publish(&world, "careful", counted()).await;
    let _worker = world.worker("w", world.store.clone());
    let agent = AgentSpec {
        memory: Some(MemorySpec {
            extract: ExtractMode::AfterSend,
            ..personal()
        }),
        ..folding::agent(FoldStrategy::Summary, folding::SMALL)
    };
    let agent = published("careful", agent);
    let key = session_of(&world, 1, Some("ann"), agent).await;
    let facts = json!({ "memories": [{ "text": "the dog is called Rex" }] });
    for n in 0..12 {
        let text = format!("extract {facts}\n\n{}", folding::text(n));
        let id = world.send(key, &text).await;
        world.settle(&[id]).await;
    }
    world.pass(Duration::from_mins(10)).await;
    let bills = world.script.bills();
    for purpose in [Purpose::Fold, Purpose::Extract] {
        let has_some = bills.iter().any(|bill| bill.purpose == purpose);
        assert!(has_some, "{purpose:?}");
    }
    let billed = world.script.billed().1;
    let billed = billed.input_tokens + billed.output_tokens;
    assert_eq!(tokens(&world, "careful").await, billed);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_child_count_for_its_own_agent() {
    let world = World::new().await;
    publish(&world, "lead", counted()).await;
    publish(&world, "reviewer", counted()).await;
    let _worker = world.worker("w", world.store.clone());
    let lead = AgentSpec {
        tools: vec![ToolEntry::Named("spawn_agent".to_owned())],
        allow_agents: vec!["reviewer".parse().expect("a reference")],
        ..AgentSpec::default()
    };
    let parent = world.session(published("lead", lead)).await;
    let task = json!({ "agent": "reviewer", "task": "hello" });
    let plan = format!("plan {}", json!([[["spawn_agent", task]]]));
    let id = world.send(parent, &plan).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    world.pass(SECOND).await;
    let children = world.store.list_children(parent).await;
    let child = children.expect("the store answers")[0];
    for (agent, key) in [("lead", parent), ("reviewer", child)] {
        let taken = taken(&world, key).await;
        assert!(taken > 0, "{agent}");
        assert_eq!(tokens(&world, agent).await, taken, "{agent}");
    }
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn children_defined_inline_and_theirs_count_for_the_agent_that_started_them() {
    let world = World::new().await;
    publish(&world, "lead", counted()).await;
    let _worker = world.worker("w", world.store.clone());
    let lead = AgentSpec {
        tools: vec![ToolEntry::Named("spawn_agent".to_owned())],
        ..AgentSpec::default()
    };
    let parent = world.session(published("lead", lead)).await;
    let grandchild = json!({ "task": "hello" });
    let child = format!("plan {}", json!([[["spawn_agent", grandchild]]]));
    let plan = json!([[["spawn_agent", { "task": child }]]]);
    let id = world.send(parent, &format!("plan {plan}")).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    world.pass(SECOND).await;
    let mut sum = 0;
    let mut family = vec![parent];
    while let Some(key) = family.pop() {
        let taken = taken(&world, key).await;
        assert!(taken > 0, "{key:?}");
        sum += taken;
        family.extend(
            world
                .store
                .list_children(key)
                .await
                .expect("the store answers"),
        );
    }
    assert!(sum > 2 * taken(&world, parent).await, "three generations");
    assert_eq!(tokens(&world, "lead").await, sum);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn leaves_defined_inline_count_for_the_agent_that_started_their_run() {
    let world = World::new().await;
    publish(&world, "lead", counted()).await;
    let _worker = world.worker("w", world.store.clone());
    world.scheduler("s", world.store.clone()).await;
    let lead = AgentSpec {
        tools: vec![ToolEntry::Named("create_workflow".to_owned())],
        ..AgentSpec::default()
    };
    let parent = world.session(published("lead", lead)).await;
    let note = json!({"name": "note", "system_prompt": "Note."});
    let spec = json!({"name": "notes",
                      "root": {"type": "agent", "id": "one", "spec": note, "input": "hello"}});
    let plan = json!([[["create_workflow", { "spec": spec }]]]);
    let id = world.send(parent, &format!("plan {plan}")).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    world.pass(SECOND).await;
    let sessions: Vec<SessionKey> = world
        .dump()
        .await
        .sessions
        .iter()
        .map(|it| it.key)
        .collect();
    assert_eq!(sessions.len(), 2);
    let mut sum = 0;
    for key in sessions {
        let taken = taken(&world, key).await;
        assert!(taken > 0, "{key:?}");
        sum += taken;
    }
    assert_eq!(tokens(&world, "lead").await, sum);
    world.audit().await;
}
