//! Whole sends on a worker in simulated time, and the same with a fault at every position.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, OnBusy, Recovery, SendOptions};
use mainspring_shared::error::Code;
use mainspring_shared::id::SendId;
use mainspring_shared::message::Role::{Assistant, Tool, User};
use mainspring_shared::message::plain_text;
use mainspring_shared::send::{SendRecord, SendStatus, StopReason, WaitingOn};
use mainspring_shared::store::{DeliverOutcome, Dump, Store};
use mainspring_shared::time::Span;
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World};
use mainspring_worker::WorkerConfig;

fn answer(record: &SendRecord) -> (SendStatus, StopReason, &str) {
    let stop = record.stop_reason.expect("final sends say why");
    (
        record.status,
        stop,
        record.output_text.as_deref().unwrap_or_default(),
    )
}

#[tokio::test(start_paused = true)]
async fn a_send_is_answered() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let key = world.session(AgentSpec::default()).await;
    let id = world.send(key, "hello").await;
    let records = world.settle(&[id]).await;
    let expected = (SendStatus::Completed, StopReason::End, "echo: hello");
    assert_eq!(answer(&records[0]), expected);
    assert_eq!(records[0].rounds, 1);
    assert_eq!(records[0].usage.input_tokens, 10);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn sends_of_one_session_keep_their_order_and_see_what_came_before() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let key = world.session(AgentSpec::default()).await;
    let mut ids = Vec::new();
    for n in 0..40 {
        ids.push(world.send(key, &format!("n{n}")).await);
    }
    world.settle(&ids).await;
    let ledger = world.script.ledger();
    for (n, asked) in ledger.iter().enumerate() {
        assert_eq!(asked.user, format!("n{n}"));
        assert_eq!(asked.transcript.len(), 2 * n + 1);
    }
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn calls_of_unknown_tools_are_answered_and_the_model_goes_on() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let key = world.session(AgentSpec::default()).await;
    let id = world.send(key, "tools 2").await;
    let records = world.settle(&[id]).await;
    assert_eq!(answer(&records[0]).0, SendStatus::Completed);
    assert_eq!(records[0].rounds, 3);
    let dump = world.dump().await;
    let roles: Vec<_> = dump.sessions[0].messages.iter().map(|m| m.role).collect();
    assert_eq!(
        roles,
        [
            User, Assistant, Tool, Tool, Assistant, Tool, Tool, Assistant
        ]
    );
    assert!(
        dump.sessions[0]
            .calls
            .iter()
            .all(|call| call.result.is_some())
    );
    assert!(plain_text(&dump.sessions[0].messages[2].content).contains("no tool named"));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn rounds_are_bounded() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let agent = AgentSpec {
        max_rounds: Some(2),
        ..AgentSpec::default()
    };
    let key = world.session(agent).await;
    let id = world.send(key, "tools 9").await;
    let records = world.settle(&[id]).await;
    let expected = (SendStatus::Completed, StopReason::RoundLimit, "calling");
    assert_eq!(answer(&records[0]), expected);
    assert_eq!(world.script.calls("tools 9"), 2);
    // The transcript ends with an answer that says why, and the conversation can continue after it.
    let dump = world.dump().await;
    let last = dump.sessions[0].messages.last().expect("there are some");
    assert_eq!((last.role, last.round), (Assistant, 1));
    assert!(plain_text(&last.content).contains("limit of 2 rounds"));
    world.audit().await;
    let id = world.send(key, "hello").await;
    let records = world.settle(&[id]).await;
    assert_eq!(answer(&records[0]).2, "echo: hello");
    let asked = world.script.ledger().pop().expect("it was asked");
    mainspring_tests::pairing::stored(&asked.messages).expect("it is paired");
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_is_tried_again_and_a_permanent_failure_is_not() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let key = world.session(AgentSpec::default()).await;
    let again = world.send(key, "fail 2").await;
    let never = world.send(key, "fail 99").await;
    let forbidden = world.send(key, "forbid").await;
    let empty = world.send(key, "empty").await;
    let refused = world.send(key, "refuse").await;
    let records = world
        .settle(&[again, never, forbidden, empty, refused])
        .await;
    assert_eq!(
        answer(&records[0]),
        (SendStatus::Completed, StopReason::End, "echo: fail 2")
    );
    assert_eq!(records[0].attempts, 3);
    let failed = |record: &SendRecord| record.error.as_ref().map(|error| error.code);
    assert_eq!(failed(&records[1]), Some(Code::LlmUnavailable));
    assert_eq!(world.script.calls("fail 99"), 5);
    assert_eq!(failed(&records[2]), Some(Code::LlmAuth));
    assert_eq!(world.script.calls("forbid"), 1);
    assert_eq!(failed(&records[3]), Some(Code::LlmBadResponse));
    assert_eq!(failed(&records[4]), Some(Code::LlmRefused));
    assert_eq!(world.script.calls("refuse"), 1);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_long_retry_waits_as_a_row_and_holds_nothing() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let key = world.session(AgentSpec::default()).await;
    let id = world.send(key, "fail-late 1").await;
    world.pass(Duration::from_secs(30)).await;
    let record = world.record(id).await;
    assert_eq!(record.status, SendStatus::Waiting);
    let dump = world.dump().await;
    assert_eq!(dump.sessions[0].hot.owner, None);
    let records = world.settle(&[id]).await;
    assert_eq!(answer(&records[0]).0, SendStatus::Completed);
    assert_eq!(records[0].attempts, 2, "the failed attempt stays counted");
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn interruptions_take_no_retries_of_a_send_that_was_parked_meanwhile() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let key = world.session(AgentSpec::default()).await;
    let id = world.send(key, "sleep 60000").await;
    for text in ["sleep 60001", "sleep 60002", "sleep 60003", "fail-late 2"] {
        world.pass(Duration::from_secs(1)).await;
        let delivered = world.deliver(key, text, OnBusy::Interrupt).await;
        assert!(matches!(delivered, DeliverOutcome::Accepted { .. }));
    }
    world.pass(Duration::from_secs(5)).await;
    let record = world.record(id).await;
    assert_eq!(record.status, SendStatus::Waiting);
    assert_eq!((record.attempts, record.not_failed), (5, 4));
    // The sixth call is the second failure, of five that are allowed.
    let records = world.settle(&[id]).await;
    assert_eq!(answer(&records[0]).0, SendStatus::Completed);
    assert_eq!(records[0].attempts, 7);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn cancel_ends_queued_waiting_and_running_sends() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let (a, b) = (
        world.session(AgentSpec::default()).await,
        world.session(AgentSpec::default()).await,
    );
    let running = world.send(a, "sleep 600000").await;
    let queued = world.send(a, "behind").await;
    let waiting = world.send(b, "fail-late 9").await;
    world.pass(Duration::from_secs(2)).await;
    assert_eq!(world.record(waiting).await.status, SendStatus::Waiting);
    assert_eq!(world.record(running).await.status, SendStatus::Running);
    world.cancel(a, queued).await;
    world.cancel(b, waiting).await;
    world.cancel(a, running).await;
    let records = world.settle(&[running, queued, waiting]).await;
    assert!(
        records
            .iter()
            .all(|record| record.status == SendStatus::Cancelled)
    );
    let next = world.send(a, "after").await;
    let records = world.settle(&[next]).await;
    assert_eq!(answer(&records[0]).2, "echo: after");
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_send_wherever_it_is() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let (a, b) = (
        world.session(AgentSpec::default()).await,
        world.session(AgentSpec::default()).await,
    );
    let deadline = Some(Span(Duration::from_secs(20)));
    let options = SendOptions {
        deadline,
        ..SendOptions::default()
    };
    let running = world.send_with(a, "sleep 600000", options.clone()).await;
    let queued = world.send_with(a, "behind", options.clone()).await;
    let waiting = world.send_with(b, "fail-late 9", options).await;
    let records = world.settle(&[running, queued, waiting]).await;
    for record in &records {
        assert_eq!(answer(record).0, SendStatus::Failed, "{record:#?}");
        assert_eq!(record.stop_reason, Some(StopReason::Deadline));
        assert_eq!(
            record.error.as_ref().map(|error| error.code),
            Some(Code::SendDeadline)
        );
    }
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_stopping_worker_hands_over_at_the_next_boundary() {
    let world = World::new().await;
    let config = WorkerConfig {
        drain_timeout: Duration::from_secs(5),
        name: "first".into(),
        ..WorkerConfig::default()
    };
    let first = world.worker_with(config, world.store.clone());
    let (a, b) = (
        world.session(AgentSpec::default()).await,
        world.session(AgentSpec::default()).await,
    );
    let short = world.send(a, "sleep 4000").await;
    let behind = world.send(a, "behind").await;
    let long = world.send(b, "sleep 60000").await;
    world.pass(Duration::from_secs(2)).await;
    assert!(
        first.shut_down(Duration::from_mins(1)).await,
        "the worker ends by itself"
    );
    assert_eq!(world.record(short).await.status, SendStatus::Completed);
    assert_eq!(world.record(behind).await.status, SendStatus::Queued);
    assert_eq!(world.record(long).await.status, SendStatus::Running);
    let _second = world.worker("second", world.store.clone());
    let records = world.settle(&[behind, long]).await;
    assert!(
        records
            .iter()
            .all(|record| record.status == SendStatus::Completed)
    );
    assert!(
        records.iter().all(|record| record.crashes == 0),
        "a drain is no crash"
    );
    world.audit().await;
}

/// The part of the final state that must be the same whatever went wrong: every send's end and
/// every transcript.
fn outcome(dump: &Dump) -> Vec<String> {
    let mut lines = Vec::new();
    for session in &dump.sessions {
        let order: Vec<SendId> = session.sends.iter().map(|send| send.id).collect();
        for send in &session.sends {
            let code = send.error.as_ref().map(|error| error.code);
            let (stop, text) = (send.stop_reason, send.output_text.as_deref());
            let sums = (send.rounds, send.usage.input_tokens);
            lines.push(format!(
                "{:?} {:?} {stop:?} {code:?} {text:?} {sums:?}",
                send.id, send.status
            ));
        }
        for message in &session.messages {
            let place = order.iter().position(|id| *id == message.send_id);
            let text = plain_text(&message.content);
            lines.push(format!(
                "{} {place:?} {:?} {text}",
                message.seq, message.role
            ));
        }
        let usage: Vec<_> = session
            .usage
            .iter()
            .map(|(id, round, _)| (id, round))
            .collect();
        let calls = session.calls.iter();
        let calls: Vec<_> = calls
            .map(|call| (&call.call_id, call.result.is_some()))
            .collect();
        lines.push(format!("{usage:?} {calls:?}"));
        let hot = &session.hot;
        assert_eq!(
            (hot.owner, hot.pending, hot.ready_since),
            (None, 0, None),
            "{hot:?}"
        );
    }
    lines
}

/// Runs a plain send, tool rounds, retries held and parked, and a queue of sends, on a worker whose
/// store fails at `plan` and, if that killed it, on a second one. Returns the outcome, and whether
/// the fault was reached.
async fn history(plan: FaultPlan) -> (Vec<String>, bool) {
    let world = World::new().await;
    let (a, b, c) = (
        world.session(AgentSpec::default()).await,
        world.session(AgentSpec::default()).await,
        world
            .session(AgentSpec {
                max_rounds: Some(2),
                ..AgentSpec::default()
            })
            .await,
    );
    let sends = [
        world.send(a, "hello").await,
        world.send(a, "tools 2").await,
        world.send(a, "fail 1").await,
        world.send(b, "fail-late 1").await,
        world.send(b, "forbid").await,
        world.send(b, "last").await,
        world.send(c, "tools 5").await,
    ];
    let faulty = Arc::new(Faulty::new(world.store.clone(), plan));
    let _first = world.worker("first", faulty.clone());
    if matches!(plan.fault, Fault::DieBefore | Fault::DieAfter) {
        // The other worker is there all along, but gets work only after the first has claimed its
        // own.
        world.pass(Duration::from_millis(1)).await;
        let _second = world.worker("second", world.store.clone());
        world.settle(&sends).await;
        // Leases are released a moment after the last end is stored.
        world.pass(Duration::from_secs(20)).await;
    } else {
        world.settle(&sends).await;
        world.pass(Duration::from_secs(20)).await;
    }
    world.audit().await;
    let dump = world.dump().await;
    (outcome(&dump), faulty.fired())
}

#[tokio::test(start_paused = true)]
async fn a_fault_at_any_write_changes_nothing_of_the_outcome() {
    let never = FaultPlan {
        at: usize::MAX,
        fault: Fault::FailBefore,
    };
    let (expected, _) = history(never).await;
    for fault in Fault::ALL {
        let mut reached = 0;
        for at in 0.. {
            let (found, fired) = history(FaultPlan { at, fault }).await;
            assert_eq!(found, expected, "{fault:?} at write {at}");
            if !fired {
                break;
            }
            reached += 1;
        }
        assert!(
            reached > 8,
            "{fault:?} was injected at {reached} positions only"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_send_that_kills_its_workers_ends_and_takes_no_one_along() {
    let world = World::new().await;
    let poison = world.session(AgentSpec::default()).await;
    let bad = world.send(poison, "sleep 3600000").await;
    let mut sends = vec![bad];
    for _ in 0..3 {
        let innocent = world.session(AgentSpec::default()).await;
        sends.push(world.send(innocent, "sleep 30000").await);
    }
    // Any worker that runs the poisonous send dies a second later.
    for n in 1..=5 {
        let never = FaultPlan::NEVER;
        let store = Arc::new(Faulty::new(world.store.clone(), never));
        let _worker = world.worker(&format!("w{n}"), store.clone());
        while world.script.calls("sleep 3600000") < n {
            world.pass(Duration::from_millis(100)).await;
        }
        world.pass(Duration::from_secs(1)).await;
        store.kill();
    }
    let _last = world.worker("last", world.store.clone());
    let records = world.settle(&sends).await;
    assert_eq!(records[0].stop_reason, Some(StopReason::WorkerCrashLimit));
    assert_eq!(records[0].crashes, 5);
    assert_eq!(
        records[0].error.as_ref().map(|error| error.code),
        Some(Code::SendWorkerCrashLimit)
    );
    for good in &records[1..] {
        assert_eq!(answer(good).0, SendStatus::Completed, "{good:#?}");
        // Before its last allowed crash, each suspect is run alone.
        assert!(good.crashes < 5, "{good:#?}");
    }
    let suspects = records[1..].iter().filter(|good| good.crashes >= 2);
    assert!(suspects.count() > 0, "nobody was with it often enough");
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_run_ends_its_send_and_leaves_its_session_free() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let key = world.session(AgentSpec::default()).await;
    let before = world.send(key, "before").await;
    let bad = world.send(key, "panic").await;
    let after = world.send(key, "after").await;
    let records = world.settle(&[before, bad, after]).await;
    assert_eq!(answer(&records[0]).2, "echo: before");
    assert_eq!(answer(&records[1]).0, SendStatus::Failed);
    assert_eq!(records[1].stop_reason, Some(StopReason::Internal));
    let code = records[1].error.as_ref().map(|error| error.code);
    assert_eq!(code, Some(Code::Internal));
    assert_eq!(answer(&records[2]).2, "echo: after");
    assert_eq!(
        world.script.calls("panic"),
        1,
        "what panics is not asked again"
    );
    let dump = world.dump().await;
    assert_eq!(dump.sessions[0].hot.owner, None);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_manual_session_waits_for_resume_after_its_worker_died() {
    let world = World::new().await;
    let agent = AgentSpec {
        recovery: Recovery::Manual,
        ..AgentSpec::default()
    };
    let (resumed, aborted) = (
        world.session(agent.clone()).await,
        world.session(agent).await,
    );
    let never = FaultPlan::NEVER;
    let store = Arc::new(Faulty::new(world.store.clone(), never));
    let _first = world.worker("first", store.clone());
    let go_on = world.send(resumed, "sleep 8000").await;
    let give_up = world.send(aborted, "sleep 8000").await;
    world.pass(Duration::from_secs(1)).await;
    store.kill();
    let _second = world.worker("second", world.store.clone());
    world.pass(Duration::from_mins(5)).await;
    for id in [go_on, give_up] {
        let record = world.record(id).await;
        assert_eq!(record.waiting_on, Some(WaitingOn::Recovery), "{record:#?}");
    }
    assert_eq!(world.resume(resumed).await, Some(go_on));
    world.cancel(aborted, give_up).await;
    let records = world.settle(&[go_on, give_up]).await;
    assert_eq!(answer(&records[0]).2, "echo: sleep 8000");
    assert_eq!(answer(&records[1]).0, SendStatus::Cancelled);
    assert_eq!(world.resume(resumed).await, None);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_sleeps_past_its_lease_changes_nothing_when_it_wakes() {
    let world = World::new().await;
    let key = world.session(AgentSpec::default()).await;
    let plan = FaultPlan::NEVER;
    let paused = Arc::new(Faulty::new(world.store.clone(), plan));
    let _first = world.worker("first", paused.clone());
    let id = world.send(key, "sleep 8000").await;
    world.pass(Duration::from_secs(1)).await;
    paused.pause();
    let _second = world.worker("second", world.store.clone());
    let records = world.settle(&[id]).await;
    let before = world.dump().await;
    paused.wake();
    world.pass(Duration::from_secs(30)).await;
    let after = world.dump().await;
    assert_eq!(answer(&records[0]).0, SendStatus::Completed);
    assert_eq!(before.sessions, after.sessions);
    world.audit().await;
    let store: &dyn Store = world.store.as_ref();
    assert_eq!(store.list_boots().await.expect("never fails").len(), 4);
}
