//! Answers that a provider generates in the background, with no client connected.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::budget::Budget;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::model::InBackground;
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World};

const QUESTION: &str = "background";

/// The background response, if any, that each call of the conversation asked to resume.
fn resumed(world: &World) -> Vec<Option<String>> {
    let ledger = world.script.ledger();
    let asked = ledger.iter();
    let id = |background: &InBackground| match background {
        InBackground::TakenUp(id) => Some(id.clone()),
        InBackground::No | InBackground::Allowed => None,
    };
    asked.map(|asked| id(&asked.request.background)).collect()
}

fn noted(record: &SendRecord) -> Option<&str> {
    let open = record.shown.as_ref()?.background.as_ref()?;
    Some(&open.id)
}

/// Starts a send whose background answer is in progress and recorded.
async fn begun(world: &World, question: &str) -> (SessionKey, SendId) {
    // With a budget, a dead worker's possible spending is counted at its maximum.
    let agent = AgentSpec {
        budget: Some(Budget {
            tokens: Some(1_000_000),
            ..Budget::default()
        }),
        ..AgentSpec::default()
    };
    let key = world.session(agent).await;
    let id = world.send(key, question).await;
    while noted(&world.record(id).await).is_none() {
        world.pass(Duration::from_millis(20)).await;
    }
    (key, id)
}

/// Asserts that the send was answered by the first call, which was paid for once.
async fn answered_once(world: &World, id: SendId) {
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    assert_eq!(record.output_text.as_deref(), Some("begun resp_1"));
    assert_eq!(noted(&record), None);
    let (answers, billed) = world.script.billed();
    assert_eq!(answers, 1);
    assert_eq!(record.usage.output_tokens, billed.output_tokens);
    assert_eq!(record.usage.input_tokens, billed.input_tokens);
    assert!(world.script.abandoned().is_empty());
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn who_takes_a_send_over_takes_its_answer_up() {
    let world = World::new().await;
    let store = Arc::new(Faulty::new(world.store.clone(), FaultPlan::NEVER));
    world.worker("first", store.clone());
    let (_, id) = begun(&world, QUESTION).await;
    store.kill();
    world.worker("second", world.store.clone());
    answered_once(&world, id).await;
    assert_eq!(resumed(&world), [None, Some("resp_1".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_leaves_the_answer_to_the_next() {
    let world = World::new().await;
    let first = world.worker("first", world.store.clone());
    let (_, id) = begun(&world, QUESTION).await;
    first.stop();
    let _second = world.worker("second", world.store.clone());
    answered_once(&world, id).await;
    let asked = resumed(&world);
    assert!(asked.len() <= 2, "{asked:?}");
}

/// The worker dies before or after the write that records the background answer's id.
#[tokio::test(start_paused = true)]
async fn deaths_around_the_note_of_an_answer_lose_nothing() {
    let (mut cases, mut taken_up) = (0, 0);
    for fault in [Fault::DieBefore, Fault::DieAfter] {
        for at in 1..6 {
            let world = World::new().await;
            let plan = FaultPlan { at, fault };
            let store = Arc::new(Faulty::new(world.store.clone(), plan));
            world.worker("first", store);
            let key = world.session(AgentSpec::default()).await;
            let id = world.send(key, QUESTION).await;
            world.pass(Duration::from_secs(90)).await;
            world.worker("second", world.store.clone());
            let record = world.settle(&[id]).await.remove(0);
            assert_eq!(record.status, SendStatus::Completed, "{at} {record:#?}");
            cases += 1;
            taken_up += usize::from(resumed(&world).contains(&Some("resp_1".to_owned())));
            world.audit().await;
        }
    }
    assert!(0 < taken_up && taken_up < cases, "{taken_up} of {cases}");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_send_wants_no_answer() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let (key, id) = begun(&world, QUESTION).await;
    world.cancel(key, id).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Cancelled);
    assert_eq!(noted(&record), None);
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(world.script.abandoned(), ["resp_1"]);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_send_that_is_cancelled_while_its_worker_stops_wants_none_either() {
    let world = World::new().await;
    let worker = world.worker("w", world.store.clone());
    let (key, id) = begun(&world, QUESTION).await;
    worker.stop();
    world.cancel(key, id).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Cancelled);
    assert_eq!(noted(&record), None);
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(world.script.abandoned(), ["resp_1"]);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_the_provider_has_no_more_is_asked_for_anew() {
    let world = World::new().await;
    let store = Arc::new(Faulty::new(world.store.clone(), FaultPlan::NEVER));
    world.worker("first", store.clone());
    let (_, id) = begun(&world, "background gone").await;
    store.kill();
    world.worker("second", world.store.clone());
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    let gone = Some("gone".to_owned());
    assert_eq!(resumed(&world), [None, gone, None]);
    world.audit().await;
}
