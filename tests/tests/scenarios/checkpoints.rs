//! Checkpoints of long answers whose workers die without warning: the next worker continues from
//! them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, ContextSpec, OnTruncation, Recovery};
use mainspring_shared::event::LiveKind;
use mainspring_shared::message::Role::{self, Assistant, User};
use mainspring_shared::message::plain_text;
use mainspring_shared::send::SendStatus;
use mainspring_shared::step::StepKind;
use mainspring_shared::usage::Usage;
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World};

const SECOND: Duration = Duration::from_secs(1);

fn agent() -> AgentSpec {
    AgentSpec {
        context: ContextSpec {
            on_truncation: OnTruncation::Continue,
            ..ContextSpec::default()
        },
        ..AgentSpec::default()
    }
}

fn counted(to: u32) -> String {
    let words: Vec<String> = (0..to).map(|n| n.to_string()).collect();
    format!("{} ", words.join(" "))
}

async fn said(world: &World) -> Vec<(Role, String)> {
    let session = world.dump().await.sessions.remove(0);
    let said = session.messages.iter();
    said.map(|m| (m.role, plain_text(&m.content))).collect()
}

/// The text of a reader that places each piece by its offset and drops what was reset.
fn read(live: Vec<LiveKind>) -> String {
    let mut texts = BTreeMap::<i32, String>::new();
    for kind in live {
        match kind {
            LiveKind::MessageReset { attempt, .. } => {
                texts.clear();
                texts.insert(attempt, String::new());
            }
            LiveKind::MessageDelta(delta) => {
                let text = texts.entry(delta.attempt).or_default();
                assert!(delta.offset as usize <= text.len(), "a piece is missing");
                text.truncate(delta.offset as usize);
                text.push_str(&delta.text);
            }
            _ => {}
        }
    }
    assert_eq!(
        texts.len(),
        1,
        "of one attempt each piece is told: {texts:?}"
    );
    texts.into_values().next().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn who_takes_over_goes_on_with_what_was_streamed() {
    let world = World::new().await;
    let key = world.session(agent()).await;
    let store = Arc::new(Faulty::new(world.store.clone(), FaultPlan::NEVER));
    let _first = world.worker("first", store.clone());
    let id = world.send(key, "stream 30x1000").await;
    world.pass(12 * SECOND).await;
    let begun = world.record(id).await.shown.expect("kept").begun;
    let begun = begun.expect("a beginning");
    let unpaid = begun.unpaid.as_ref().expect("nobody has paid for it yet");
    assert_eq!((begun.round, unpaid.round, unpaid.attempt), (0, 0, 1));
    assert!(
        counted(12).starts_with(&begun.text) && begun.text.len() > 10,
        "{begun:?}"
    );
    store.kill();
    let _second = world.worker("second", world.store.clone());
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    assert_eq!(record.output_text.as_deref(), Some(&*counted(30)));
    assert_eq!(record.rounds, 1);
    let asked = world.script.ledger();
    assert_eq!(asked.len(), 2);
    let shown: Vec<_> = asked[1].transcript.iter().map(|(role, _)| *role).collect();
    assert_eq!(shown, [User, Assistant, User]);
    assert_eq!(asked[1].transcript[1].1, begun.text);
    assert_eq!(said(&world).await.len(), 2);
    // The part that the dead worker received is paid for, by estimate.
    assert!(
        record.usage.estimated && record.usage.output_tokens > 5,
        "{record:#?}"
    );
    assert_eq!(record.shown.expect("stays").begun, None);
    assert_eq!(read(world.live(key)), counted(30));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_short_answer_costs_no_write_and_a_long_one_one_for_every_five_seconds() {
    for (send, kept) in [("stream 4x1000", 0), ("stream 14x1000", 2)] {
        let world = World::new().await;
        let key = world.session(agent()).await;
        let _worker = world.worker("w", world.store.clone());
        let id = world.send(key, send).await;
        let record = world.settle(&[id]).await.remove(0);
        assert_eq!(record.status, SendStatus::Completed);
        let steps = world.store.read_steps(key, 0, 100).await.expect("reads");
        let kept_steps = steps.iter().filter(|step| step.kind == StepKind::Calls);
        assert_eq!(kept_steps.count(), kept, "{send}: {steps:#?}");
        assert!(!record.usage.estimated);
        world.audit().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_may_not_go_on_is_made_anew() {
    let world = World::new().await;
    let key = world
        .session(AgentSpec {
            context: ContextSpec {
                on_truncation: OnTruncation::Fail,
                ..ContextSpec::default()
            },
            ..AgentSpec::default()
        })
        .await;
    let store = Arc::new(Faulty::new(world.store.clone(), FaultPlan::NEVER));
    let _first = world.worker("first", store.clone());
    let id = world.send(key, "stream 14x1000").await;
    world.pass(12 * SECOND).await;
    store.kill();
    let _second = world.worker("second", world.store.clone());
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.output_text.as_deref(), Some(&*counted(14)));
    let asked = world.script.ledger();
    assert_eq!((asked.len(), asked[1].transcript.len()), (2, 1));
    assert_eq!(read(world.live(key)), counted(14));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn whatever_write_a_worker_dies_at_the_answer_is_whole_and_there_once() {
    let mut went_on = 0;
    for fault in Fault::ALL {
        for at in 0..12 {
            let world = World::new().await;
            let key = world.session(agent()).await;
            let store = Arc::new(Faulty::new(world.store.clone(), FaultPlan { at, fault }));
            let id = world.send(key, "stream 14x1000").await;
            let _first = world.worker("first", store.clone());
            world.pass(Duration::from_millis(1)).await;
            let _second = world.worker("second", world.store.clone());
            let record = world.settle(&[id]).await.remove(0);
            let place = format!("{fault:?} at write {at}, {:?}", store.failed_method());
            assert_eq!(
                record.output_text.as_deref(),
                Some(&*counted(14)),
                "{place}"
            );
            let said = said(&world).await;
            assert_eq!(said.len(), 2, "{place}: {said:?}");
            assert_eq!(said[1], (Assistant, counted(14)), "{place}");
            assert_eq!(read(world.live(key)), counted(14), "{place}");
            went_on += usize::from(world.script.ledger().iter().any(|a| a.transcript.len() > 1));
            world.audit().await;
        }
    }
    assert!(went_on > 2, "no death fell behind a write of a beginning");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_again_and_again_gets_further_each_time() {
    let world = World::new().await;
    let key = world.session(agent()).await;
    let id = world.send(key, "stream 60x1000").await;
    let mut kept = 0;
    for n in 0..4 {
        let store = Arc::new(Faulty::new(world.store.clone(), FaultPlan::NEVER));
        let _worker = world.worker(&format!("w{n}"), store.clone());
        world.pass(20 * SECOND).await;
        store.kill();
        let begun = world.record(id).await.shown.and_then(|shown| shown.begun);
        let bytes = begun.expect("a beginning").text.len();
        assert!(bytes > kept, "life {n}");
        kept = bytes;
    }
    let _last = world.worker("last", world.store.clone());
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(
        record.output_text.as_deref(),
        Some(&*counted(60)),
        "{record:#?}"
    );
    assert_eq!(world.script.asked(), 5);
    world.audit().await;
}

/// A call that failed before any output has no row; the others have one each, numbered
/// individually.
#[tokio::test(start_paused = true)]
async fn each_call_that_was_heard_has_one_row_whoever_dies_in_the_middle_of_it() {
    let world = World::new().await;
    let key = world.session(agent()).await;
    let id = world.send(key, "stream 60x1000 behind 1").await;
    for n in 0..2 {
        let store = Arc::new(Faulty::new(world.store.clone(), FaultPlan::NEVER));
        let _worker = world.worker(&format!("w{n}"), store.clone());
        world.pass(24 * SECOND).await;
        store.kill();
    }
    let _last = world.worker("last", world.store.clone());
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.output_text.as_deref(), Some(&*counted(60)));
    assert_eq!(world.script.asked(), 4);
    let session = world.dump().await.sessions.remove(0);
    let mut attempts: Vec<i32> = session.usage.iter().map(|(_, _, n)| *n).collect();
    attempts.sort_unstable();
    assert_eq!(attempts, [2, 3, 4], "{:#?}", session.usage);
    let mut sum = Usage::default();
    for usage in &session.paid {
        sum.add(usage);
    }
    assert_eq!(record.usage, sum, "the send's sum is that of its rows");
    world.audit().await;
}

/// Even if no worker is left to find it and the send is cancelled.
#[tokio::test(start_paused = true)]
async fn what_a_dead_worker_bought_is_paid_for_by_a_cancel() {
    let world = World::new().await;
    let key = world.session(agent()).await;
    let id = world.send(key, "stream 60x1000").await;
    let store = Arc::new(Faulty::new(world.store.clone(), FaultPlan::NEVER));
    let _only = world.worker("only", store.clone());
    world.pass(12 * SECOND).await;
    store.kill();
    world.pass(30 * SECOND).await;
    world.cancel(key, id).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Cancelled, "{record:#?}");
    let session = world.dump().await.sessions.remove(0);
    assert_eq!((session.usage.len(), world.script.asked()), (1, 1));
    assert_eq!(session.paid, [record.usage]);
    assert!(record.usage.output_tokens > 5, "{record:#?}");
    world.audit().await;
}

/// The worker that finds a checkpoint accounts for it, even if it does not continue from it.
#[tokio::test(start_paused = true)]
async fn what_a_dead_worker_bought_is_paid_for_where_nobody_goes_on() {
    let world = World::new().await;
    let agent = AgentSpec {
        recovery: Recovery::Manual,
        ..agent()
    };
    let key = world.session(agent).await;
    let id = world.send(key, "stream 60x1000").await;
    let store = Arc::new(Faulty::new(world.store.clone(), FaultPlan::NEVER));
    let _first = world.worker("first", store.clone());
    world.pass(12 * SECOND).await;
    store.kill();
    let _second = world.worker("second", world.store.clone());
    world.pass(30 * SECOND).await;
    // The send waits for a person, and the checkpoint is kept meanwhile.
    let record = world.record(id).await;
    assert_eq!(record.status, SendStatus::Waiting, "{record:#?}");
    let begun = record.shown.and_then(|shown| shown.begun);
    assert_eq!(begun.expect("a beginning").unpaid, None);
    let rows = async || world.dump().await.sessions.remove(0).usage;
    assert_eq!(rows().await.len(), 1);
    world.cancel(key, id).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Cancelled, "{record:#?}");
    assert_eq!((rows().await.len(), world.script.asked()), (1, 1));
    world.audit().await;
}
