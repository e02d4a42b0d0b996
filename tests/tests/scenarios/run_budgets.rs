//! A run that an agent starts spends its starter's budget: no cap is exceeded, usage is reported
//! upwards, and unused budget is given back, whatever dies.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, SendOptions};
use mainspring_shared::budget::Budget;
use mainspring_shared::error::Code;
use mainspring_shared::id::SessionKey;
use mainspring_shared::message::{Role, plain_text};
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::store::DumpSession;
use mainspring_shared::tool::ToolEntry;
use mainspring_shared::workflow::run::{RunAsk, RunRecord, RunStatus};
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World, alone, differences, essence};
use serde_json::{Value, json};

/// Tokens of each model answer.
const ANSWER: u64 = 15;

fn tokens(cap: u64) -> Budget {
    Budget {
        tokens: Some(cap),
        ..Budget::default()
    }
}

fn agent(budget: Option<Budget>) -> AgentSpec {
    let named = ["look", "create_workflow", "cancel_workflow", "spawn_agent"];
    AgentSpec {
        tools: named.map(|name| ToolEntry::Named(name.into())).into(),
        max_tokens: Some(50),
        budget,
        ..AgentSpec::default()
    }
}

/// A run with this many leaves, all with this input.
fn fan(leaves: usize, told: &str) -> Value {
    let items: Vec<usize> = (0..leaves).collect();
    let spec = json!({"name": "leaf", "system_prompt": "work", "max_tokens": 50});
    let leaf = json!({"type": "agent", "id": "leaf", "input": told, "spec": spec});
    json!({"name": "fan", "root": {"type": "foreach", "id": "all", "as": "n", "items": items,
           "max_concurrency": 8, "on_error": "continue", "body": leaf}})
}

fn starts(spec: &Value, detached: bool) -> String {
    let call = json!(["create_workflow", {"spec": spec, "detached": detached}]);
    format!("plan {}", json!([[call]]))
}

async fn started(budget: Option<Budget>) -> (World, SessionKey) {
    let world = World::new().await;
    world.worker("w", world.store.clone());
    world.scheduler("s", world.store.clone()).await;
    let key = world.session(agent(budget)).await;
    (world, key)
}

fn used(record: &SendRecord) -> u64 {
    record.usage.input_tokens + record.usage.output_tokens
}

/// Tokens of all model answers in these transcripts.
fn answered(sessions: &[DumpSession]) -> u64 {
    let said = sessions.iter().flat_map(|session| &session.messages);
    let answers = said.filter(|message| message.role == Role::Assistant);
    // The note that ends a transcript at a limit is not a model's answer.
    let answers = answers.filter(|message| !plain_text(&message.content).starts_with('['));
    answers.count() as u64 * ANSWER
}

/// Waits until the session is idle and its run is over and reported.
async fn rests(world: &World, key: SessionKey) -> (DumpSession, Vec<DumpSession>) {
    for _ in 0..20_000 {
        world.pass(Duration::from_millis(200)).await;
        let dump = world.dump().await;
        let over = dump.runs.iter().all(|run| run.run.status.is_final());
        let done = |session: &DumpSession| session.sends.iter().all(|s| s.status.is_final());
        if over && dump.sessions.iter().all(done) {
            let own = dump.sessions.iter().find(|session| session.key == key);
            return (own.expect("it exists").clone(), dump.sessions);
        }
    }
    panic!("it never rests: {:#?}", world.dump().await.runs);
}

async fn only_run(world: &World) -> RunRecord {
    let runs = world.dump().await.runs;
    assert_eq!(runs.len(), 1);
    runs.into_iter().next().expect("a run").run
}

#[tokio::test(start_paused = true)]
async fn twenty_leaves_never_pass_what_their_starter_may_spend() {
    for cap in [400, 1_500, 6_000, 40_000] {
        for detached in [false, true] {
            let (world, key) = started(Some(tokens(cap))).await;
            let first = world
                .send(key, &starts(&fan(20, "tools 3"), detached))
                .await;
            world.settle(&[first]).await;
            rests(&world, key).await;
            let second = world.send(key, "tools 30").await;
            world.settle(&[second]).await;
            let (own, all) = rests(&world, key).await;
            let spent = own.hot.spent.expect("counted").tokens;
            let sum: u64 = own.sends.iter().map(used).sum();
            let answered = answered(&all);
            let what =
                format!("{answered} answered, {spent} spent, {sum} used of {cap}, {detached}");
            assert!(answered <= cap && spent <= cap && sum <= cap, "{what}");
            if cap == 40_000 {
                assert!(all.len() == 21, "there was enough for every leaf: {what}");
                assert_eq!(sum, answered, "all that leaves used came up: {what}");
                assert_eq!(spent, sum, "nothing stays set aside: {what}");
            }
            world.audit().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_send_that_waits_for_a_run_is_charged_with_it() {
    let (world, key) = started(None).await;
    let spec = fan(3, "tools 1");
    let id = world.send(key, &starts(&spec, false)).await;
    let record = world.settle(&[id]).await.remove(0);
    let run = only_run(&world).await;
    assert_eq!(run.usage.input_tokens + run.usage.output_tokens, 6 * ANSWER);
    assert_eq!(
        used(&record),
        8 * ANSWER,
        "two rounds of its own and the run's six"
    );
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn rounds_and_time_are_shared_with_runs_as_tokens_are() {
    let budget = Budget {
        rounds: Some(40),
        ..Budget::default()
    };
    let (world, key) = started(Some(budget)).await;
    let id = world.send(key, &starts(&fan(20, "tools 3"), false)).await;
    world.settle(&[id]).await;
    let (own, all) = rests(&world, key).await;
    let answers = answered(&all) / ANSWER;
    assert!((10..=40).contains(&answers), "{answers}");
    let spent = own.hot.spent.expect("counted");
    assert_eq!(spent.rounds, answers, "what was not used came back");
    world.audit().await;
    let short = Budget {
        wall: Some(mainspring_shared::time::Span(Duration::from_mins(2))),
        ..Budget::default()
    };
    let (world, key) = started(Some(short)).await;
    let slow = fan(1, "sleep 3000000");
    let id = world.send(key, &starts(&slow, true)).await;
    world.settle(&[id]).await;
    rests(&world, key).await;
    let run = only_run(&world).await;
    assert_eq!(run.status, RunStatus::Failed);
    assert_eq!(
        run.error.map(|error| error.code),
        Some(Code::BudgetExceeded)
    );
    let took = run.finished_at.expect("it ended").since(run.created_at);
    assert!((115..=125).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn money_is_set_aside_for_runs_too() {
    let budget = Budget {
        usd: Some(1.0),
        ..Budget::default()
    };
    let (world, key) = started(None).await;
    let options = SendOptions {
        budget: Some(budget),
        ..SendOptions::default()
    };
    // The model's price is unknown, so the starter itself makes no call.
    let refused = world.send_with(key, "hi", options).await;
    let refused = world.settle(&[refused]).await.remove(0);
    assert_eq!(
        refused.error.map(|error| error.code),
        Some(Code::BudgetNoPrice)
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_cancelled_run_did_not_use_comes_back() {
    let (world, key) = started(Some(tokens(4_500))).await;
    let id = world
        .send(key, &starts(&fan(2, "sleep 3000000"), true))
        .await;
    world.settle(&[id]).await;
    let run = only_run(&world).await.key;
    world.wait_for_run(run, |run| run.counts.live == 2).await;
    world.ask_run(run, RunAsk::Cancel { reason: None }).await;
    world.settle_run(run).await;
    let (own, _) = rests(&world, key).await;
    assert_eq!(own.sends.len(), 1, "nobody is woken for it");
    let aside = own.hot.spent.expect("counted").tokens;
    assert!(aside > 1_000, "the slice is out");
    let next = world.send(key, "hello").await;
    assert_eq!(world.settle(&[next]).await[0].status, SendStatus::Completed);
    let (own, all) = rests(&world, key).await;
    let told = own
        .messages
        .iter()
        .any(|m| plain_text(&m.content).contains("has ended: cancelled"));
    assert!(told, "{:#?}", own.messages);
    let spent = own.hot.spent.expect("counted").tokens;
    let sum: u64 = own.sends.iter().map(used).sum();
    assert_eq!(spent, sum, "nothing stays set aside");
    assert!(sum >= answered(&all) && sum < aside, "{sum} of {aside}");
    world.audit().await;
}

/// A run's unused budget went back to its starter: a retry has none of it, and says so.
#[tokio::test(start_paused = true)]
async fn a_retry_of_a_run_spends_nothing_that_went_back() {
    let (world, key) = started(Some(tokens(9_000))).await;
    let mut spec = fan(3, "forbid");
    spec["root"]["on_error"] = json!("halt");
    let id = world.send(key, &starts(&spec, false)).await;
    world.settle(&[id]).await;
    let run = only_run(&world).await;
    assert_eq!(run.status, RunStatus::Failed);
    world
        .ask_run(run.key, RunAsk::Retry { max_tokens: None })
        .await;
    let again = world
        .wait_for_run(run.key, |run| run.attempt == 2 && run.status.is_final())
        .await;
    assert_eq!(
        again.error.map(|error| error.code),
        Some(Code::BudgetExceeded)
    );
    let max_tokens = Some(5_000);
    world.ask_run(run.key, RunAsk::Retry { max_tokens }).await;
    let paid = world
        .wait_for_run(run.key, |run| run.attempt == 3 && run.status.is_final())
        .await;
    assert_ne!(
        paid.error.map(|error| error.code),
        Some(Code::BudgetExceeded)
    );
    let (own, _) = rests(&world, key).await;
    let spent = own.hot.spent.expect("counted").tokens;
    let sum: u64 = own.sends.iter().map(used).sum();
    assert_eq!(spent, sum, "told twice more, charged once");
    world.audit().await;
}

/// Runs two leaves under a budget, with a fault at one write of the scheduler or the worker.
/// Returns the store's essence, and the write that was struck.
async fn disturbed(
    scheduler: bool,
    detached: bool,
    plan: FaultPlan,
) -> (Value, Option<&'static str>) {
    const CAP: u64 = 6_000;
    let world = World::new().await;
    let faulty = Arc::new(Faulty::new(world.store.clone(), plan));
    let sound = world.store.clone();
    if scheduler {
        world.scheduler("first", faulty.clone()).await;
        world.worker("first", sound.clone());
    } else {
        world.scheduler("first", sound.clone()).await;
        world.worker("first", faulty.clone());
    }
    let key = world.session(agent(Some(tokens(CAP)))).await;
    let id = world.send(key, &starts(&fan(2, "tools 1"), detached)).await;
    if matches!(plan.fault, Fault::DieBefore | Fault::DieAfter) && plan.at != usize::MAX {
        world.pass(Duration::from_secs(2)).await;
        if scheduler {
            world.scheduler("second", sound.clone()).await;
        } else {
            world.worker("second", sound.clone());
        }
    }
    world.settle(&[id]).await;
    rests(&world, key).await;
    // Whatever happens after the end must not change the outcome.
    let struck = faulty.failed_method();
    world.pass(Duration::from_secs(20)).await;
    let (own, all) = rests(&world, key).await;
    let spent = own.hot.spent.expect("counted").tokens;
    let sum: u64 = own.sends.iter().map(used).sum();
    let answered = answered(&all);
    let what = format!("{plan:?} at {struck:?}: {answered} answered, {spent} spent, {sum} used");
    assert_eq!(all.len(), 3, "{what}");
    assert_eq!(spent, sum, "nothing stays set aside: {what}");
    // An answer that died with its worker may be counted although nobody received it.
    assert!(answered <= sum && sum <= CAP, "{what}");
    if scheduler {
        assert_eq!(answered, sum, "{what}");
    }
    world.audit().await;
    (essence(&world.dump().await), struck)
}

#[test]
fn what_runs_use_is_counted_once_whatever_dies() {
    for detached in [false, true] {
        for scheduler in [true, false] {
            let (sound, _) = alone(disturbed(scheduler, detached, FaultPlan::NEVER));
            for fault in Fault::ALL {
                let mut at = 0;
                loop {
                    let plan = FaultPlan { at, fault };
                    let (found, struck) = alone(disturbed(scheduler, detached, plan));
                    if struck.is_none() {
                        break;
                    }
                    if scheduler {
                        let differ = differences(&found, &sound);
                        assert!(differ.is_empty(), "{plan:?} at {struck:?}: {differ:#?}");
                    }
                    at += 1;
                }
                assert!(at >= 6, "{fault:?} at {at} positions only");
            }
        }
    }
}
