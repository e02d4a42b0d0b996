//! Spending limits of a send, of a session, and of a tree of concurrent sends, across deaths of
//! workers.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, SendOptions};
use mainspring_shared::budget::Budget;
use mainspring_shared::error::Code;
use mainspring_shared::message::{Role, plain_text};
use mainspring_shared::send::{SendRecord, SendStatus, StopReason};
use mainspring_shared::time::Span;
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::world::{FaultPlan, Faulty, World};
use serde_json::json;

fn tokens(cap: u64) -> Budget {
    Budget {
        tokens: Some(cap),
        ..Budget::default()
    }
}

fn within(budget: Budget) -> SendOptions {
    SendOptions {
        budget: Some(budget),
        ..SendOptions::default()
    }
}

fn agent(budget: Option<Budget>) -> AgentSpec {
    let named = ["look", "spawn_agent", "ask_person"];
    AgentSpec {
        tools: named.map(|name| ToolEntry::Named(name.into())).into(),
        max_tokens: Some(50),
        budget,
        ..AgentSpec::default()
    }
}

fn used(record: &SendRecord) -> u64 {
    record.usage.input_tokens + record.usage.output_tokens
}

fn assert_stopped(record: &SendRecord) {
    let error = record.error.as_ref().map(|error| error.code);
    assert_eq!(error, Some(Code::BudgetExceeded), "{record:#?}");
    assert_eq!(record.stop_reason, Some(StopReason::Budget));
    assert_eq!(record.status, SendStatus::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_send_stops_before_it_passes_its_tokens() {
    let world = World::new().await;
    let mut looking = agent(None);
    looking.tools.truncate(1);
    let key = world.session(looking).await;
    let _worker = world.worker("w", world.store.clone());
    let id = world.send_with(key, "tools 20", within(tokens(250))).await;
    let free = world.send(key, "tools 20").await;
    let records = world.settle(&[id, free]).await;
    let stopped = &records[0];
    assert_stopped(stopped);
    assert!(stopped.rounds >= 1 && used(stopped) <= 250, "{stopped:#?}");
    assert_eq!(records[1].status, SendStatus::Completed);
    // Every call got its result, and the session can continue.
    let after = world.send(key, "and now").await;
    assert_eq!(
        world.settle(&[after]).await[0].status,
        SendStatus::Completed
    );
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn the_sends_of_a_session_share_its_budget() {
    let world = World::new().await;
    let mut plain = agent(Some(tokens(400)));
    plain.tools.clear();
    let key = world.session(plain).await;
    let _worker = world.worker("w", world.store.clone());
    let mut sends = Vec::new();
    for _ in 0..40 {
        sends.push(world.send(key, "hi").await);
    }
    let records = world.settle(&sends).await;
    let answered = records
        .iter()
        .filter(|r| r.status == SendStatus::Completed)
        .count();
    assert!((2..39).contains(&answered), "{answered}");
    assert!(records.iter().map(used).sum::<u64>() <= 400);
    records[answered..].iter().for_each(assert_stopped);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn rounds_are_counted() {
    let world = World::new().await;
    let key = world.session(agent(None)).await;
    let _worker = world.worker("w", world.store.clone());
    let budget = Budget {
        rounds: Some(3),
        ..Budget::default()
    };
    let id = world.send_with(key, "tools 20", within(budget)).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_stopped(&record);
    assert_eq!(record.rounds, 3);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn money_without_a_price_is_refused() {
    let world = World::new().await;
    let key = world.session(agent(None)).await;
    let _worker = world.worker("w", world.store.clone());
    let budget = Budget {
        usd: Some(1.0),
        ..Budget::default()
    };
    let id = world.send_with(key, "hi", within(budget)).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.stop_reason, Some(StopReason::Budget));
    let failure = record.error.expect("it failed");
    assert_eq!(failure.code, Code::BudgetNoPrice);
    assert!(failure.message.contains("[models."), "{}", failure.message);
    assert_eq!(world.script.ledger().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn time_runs_while_a_send_waits_and_while_it_works() {
    let world = World::new().await;
    let key = world.session(agent(None)).await;
    let _worker = world.worker("w", world.store.clone());
    let budget = Budget {
        wall: Some(Span(Duration::from_secs(30))),
        ..Budget::default()
    };
    let asks = format!("plan {}", json!([[["ask_person", {"question": "well?"}]]]));
    for text in [asks.as_str(), "sleep 100000"] {
        let id = world.send_with(key, text, within(budget)).await;
        let record = world.settle(&[id]).await.remove(0);
        assert_stopped(&record);
        let took = record
            .finished_at
            .expect("final")
            .since(record.started_at.expect("begun"));
        assert!((30..35).contains(&took.as_secs()), "{took:?}");
    }
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn children_that_race_never_pass_what_their_tree_may_spend() {
    for cap in [300, 900, 3_000, 9_000] {
        let world = World::new().await;
        let key = world.session(agent(Some(tokens(cap)))).await;
        let _workers = ["a", "b"].map(|name| world.worker(name, world.store.clone()));
        let background = json!({"task": "tools 9", "background": true});
        let plan = json!([[
            ["spawn_agent", {"task": "tools 30"}],
            ["spawn_agent", {"task": "tools 30"}],
            ["spawn_agent", background],
            ["look", {}],
        ], [
            ["spawn_agent", {"task": "tools 30"}], ["look", {}],
        ]]);
        let first = world.send(key, &format!("plan {plan}")).await;
        world.settle(&[first]).await;
        // The background child's usage is reported before this send, or with it.
        world.pass(Duration::from_mins(1)).await;
        let second = world.send(key, "tools 30").await;
        world.settle(&[second]).await;
        let dump = world.dump().await;
        // Each model answer costs 15 tokens, in parents and children alike.
        let answers = |s: &mainspring_shared::store::DumpSession| {
            s.messages
                .iter()
                .filter(|m| m.role == Role::Assistant)
                // The note that ends a transcript at a limit is not a model's answer.
                .filter(|m| !plain_text(&m.content).starts_with('['))
                .count()
        };
        let all: usize = dump.sessions.iter().map(answers).sum();
        assert!(all as u64 * 15 <= cap, "{all} answers of {cap}");
        let own: u64 = dump.sessions[0].sends.iter().map(used).sum();
        let spent = dump.sessions[0].hot.spent.expect("counted");
        assert!(
            spent.tokens <= cap && own <= cap,
            "{spent:?} {own} of {cap}"
        );
        if cap == 9_000 {
            assert!(dump.sessions.len() > 3, "there was enough for children");
            assert_eq!(own, all as u64 * 15, "all that children used came up");
            assert_eq!(spent.tokens, own, "and nothing stays set aside");
        }
        world.audit().await;
    }
}

/// A child ends before its own background child does: what that one may still spend is not given to
/// anybody else.
#[tokio::test(start_paused = true)]
async fn a_slice_that_is_out_below_a_child_that_ended_is_not_spent_twice() {
    for background in [false, true] {
        let cap = 9_000;
        let world = World::new().await;
        let mut agent = agent(Some(tokens(cap)));
        agent.tools.push(ToolEntry::Named("act".into()));
        agent.max_rounds = Some(1_000);
        let key = world.session(agent).await;
        let _worker = world.worker("w", world.store.clone());
        // It spends its share only after all others are done.
        let mut rounds = vec![json!([["act", {"ms": 50_000}]])];
        rounds.resize(40, json!([["look", {}]]));
        let late = format!("plan {}", json!(rounds));
        let late = json!({"task": late, "background": true, "max_rounds": 50});
        let below = format!("plan {}", json!([[["spawn_agent", late]]]));
        let calls = json!([[["spawn_agent", {"task": below, "background": background}]]]);
        let first = world.send(key, &format!("plan {calls}")).await;
        world.settle(&[first]).await;
        world.pass(Duration::from_secs(10)).await;
        let second = world.send(key, "tools 900").await;
        assert_stopped(&world.settle(&[second]).await[0]);
        world.pass(Duration::from_mins(20)).await;
        let sessions = world.dump().await.sessions;
        assert_eq!(sessions.len(), 3, "a child and one of its own");
        let sends = sessions.iter().flat_map(|session| &session.sends);
        assert!(sends.clone().all(|send| send.status.is_final()));
        let below = sessions[1..].iter().map(|session| session.sends[0].rounds);
        let last = below.max().expect("two of them");
        assert!(last > 30, "it had its slice: {last}");
        let answers = sends.map(|send| u64::from(send.rounds.unsigned_abs()));
        let answers = answers.sum::<u64>();
        assert!(
            answers * 15 <= cap,
            "{background}: {answers} answers of {cap}"
        );
        world.audit().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_under_which_a_worker_died_counts_at_its_worst() {
    let world = World::new().await;
    let mut plain = agent(None);
    plain.tools.clear();
    let key = world.session(plain).await;
    // Room for two calls at their maximum: 50 tokens of answer each, and their input.
    let id = world
        .send_with(key, "sleep 5000", within(tokens(130)))
        .await;
    for n in 0..3 {
        let never = FaultPlan::NEVER;
        let store = Arc::new(Faulty::new(world.store.clone(), never));
        let _worker = world.worker(&format!("w{n}"), store.clone());
        while world.script.ledger().len() <= n && !world.record(id).await.status.is_final() {
            world.pass(Duration::from_millis(100)).await;
        }
        store.kill();
    }
    assert_eq!(
        world.script.ledger().len(),
        2,
        "a third call would pass the cap"
    );
    assert_stopped(&world.record(id).await);
}
