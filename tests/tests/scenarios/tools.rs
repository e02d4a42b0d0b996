//! Sends that call tools, in simulated time: what runs concurrently, what is stored when, who is
//! waited for, what an interruption does, and what a worker's death leaves behind.

mod children;
mod inquiries;
mod questions;
mod state;

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, OnBusy};
use mainspring_shared::error::Code;
use mainspring_shared::event::LiveKind;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::message::Role::{self, Assistant, Tool, User};
use mainspring_shared::message::plain_text;
use mainspring_shared::send::{SendStatus, StopReason, WaitingOn};
use mainspring_shared::store::{CallAnswer, DeliverOutcome, DumpSession, PostOutcome};
use mainspring_shared::time::Span;
use mainspring_shared::tool::schema::any_object;
use mainspring_shared::tool::{CallResult, DeclaredTool, ExternalTool, ToolEntry, call_id};
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World};
use mainspring_worker::WorkerConfig;
use serde_json::{Value, json};

fn agent() -> AgentSpec {
    let named = ["look", "put", "act", "alone", "slow", "ask_person"];
    let external = |name: &str, deadline: Option<u64>, approval| {
        ToolEntry::Declared(DeclaredTool::External(ExternalTool {
            name: name.into(),
            description: String::new(),
            parameters: any_object(),
            repeat: None,
            deadline: deadline.map(|secs| Span(Duration::from_secs(secs))),
            approval,
            pool: None,
            extra: mainspring_shared::stored::Extra::default(),
        }))
    };
    AgentSpec {
        tools: named
            .into_iter()
            .map(|name| ToolEntry::Named(name.into()))
            .chain([
                external("outside", None, false),
                external("brief", Some(60), false),
                external("guarded", None, true),
            ])
            .collect(),
        ..AgentSpec::default()
    }
}

fn plan(rounds: &Value) -> String {
    format!("plan {rounds}")
}

async fn session(world: &World) -> DumpSession {
    world.dump().await.sessions.remove(0)
}

fn roles(session: &DumpSession) -> Vec<Role> {
    session.messages.iter().map(|m| m.role).collect()
}

fn results(session: &DumpSession) -> Vec<String> {
    let tools = session.messages.iter().filter(|m| m.role == Tool);
    tools.map(|m| plain_text(&m.content)).collect()
}

async fn until(world: &World, id: SendId, on: WaitingOn) {
    for _ in 0..10_000 {
        let record = world.record(id).await;
        if record.waiting_on == Some(on) {
            return;
        }
        assert!(!record.status.is_final(), "{record:#?}");
        world.pass(Duration::from_millis(20)).await;
    }
    panic!("{id} does not wait for {on:?}");
}

async fn start() -> (World, SessionKey) {
    let world = World::new().await;
    let key = world.session(agent()).await;
    (world, key)
}

#[tokio::test(start_paused = true)]
async fn parallel_calls_run_together_and_are_answered_in_their_order() {
    let (world, key) = start().await;
    let _worker = world.worker("w", world.store.clone());
    let calls = json!([[
        ["look", {"ms": 300, "n": 1}],
        ["put", {"ms": 100, "n": 2}],
        ["look", {"ms": 200, "n": 3}],
    ]]);
    let id = world.send(key, &plan(&calls)).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    assert_eq!(record.rounds, 2);
    let session = session(&world).await;
    assert_eq!(
        roles(&session),
        [User, Assistant, Tool, Tool, Tool, Assistant]
    );
    assert_eq!(results(&session), ["look did 1", "put did 2", "look did 3"]);
    let began: Vec<_> = world.acts.all().into_iter().map(|act| act.began).collect();
    assert!(began.windows(2).all(|pair| pair[0] == pair[1]), "{began:?}");
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_runs_alone_waits_for_those_before_it() {
    let (world, key) = start().await;
    let _worker = world.worker("w", world.store.clone());
    let calls = json!([[
        ["look", {"ms": 100}], ["alone", {"ms": 100}], ["look", {"ms": 100}], ["look", {"ms": 100}],
    ]]);
    let id = world.send(key, &plan(&calls)).await;
    world.settle(&[id]).await;
    let began: Vec<_> = world
        .acts
        .all()
        .into_iter()
        .map(|a| a.began.as_millis())
        .collect();
    let since = |n: usize| began[n] - began[0];
    assert_eq!((since(1), since(2), since(3)), (100, 200, 200));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn whatever_is_wrong_with_a_call_is_told_to_the_model() {
    let (world, key) = start().await;
    let _worker = world.worker("w", world.store.clone());
    let calls = json!([[
        ["nothing", {}], ["look", "{broken"], ["look", {"fail": true}], ["look", {"panic": true}],
        ["look", {"ms": 10_000_000}], ["ask_person", {"question": ""}],
    ]]);
    let id = world.send(key, &plan(&calls)).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    let session = session(&world).await;
    let codes: Vec<_> = session
        .calls
        .iter()
        .map(|call| call.result.as_ref().and_then(|result| result.code))
        .collect();
    assert_eq!(
        codes,
        [
            Some(Code::ToolNotFound),
            Some(Code::ToolInvalidArguments),
            Some(Code::ToolFailed),
            Some(Code::ToolFailed),
            Some(Code::ToolTimeout),
            Some(Code::ToolInvalidArguments),
        ]
    );
    assert!(session.messages[2..8].iter().all(|m| m.failed));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_aborts_ends_the_send_with_every_call_answered() {
    let (world, key) = start().await;
    let _worker = world.worker("w", world.store.clone());
    let calls = json!([[["look", {"abort": true}], ["look", {"ms": 5000}], ["outside", {}]]]);
    let id = world.send(key, &plan(&calls)).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.stop_reason, Some(StopReason::ToolAbort));
    let said = record.error.expect("it failed").message;
    assert!(said.contains("no sense"), "{said}");
    assert_eq!(
        roles(&session(&world).await),
        [User, Assistant, Tool, Tool, Tool]
    );
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn an_external_call_waits_as_a_row_until_its_result_is_posted() {
    let (world, key) = start().await;
    let _worker = world.worker("w", world.store.clone());
    let calls = json!([[["outside", {"n": 1}], ["look", {"n": 2}], ["outside", {"n": 3}]]]);
    let id = world.send(key, &plan(&calls)).await;
    until(&world, id, WaitingOn::Tool).await;
    let waiting = session(&world).await;
    assert_eq!((waiting.hot.owner, waiting.hot.ready_since), (None, None));
    assert_eq!(roles(&waiting), [User, Assistant]);
    let result = |text: &str| CallAnswer::Result(CallResult::text(text));
    let (first, third) = (call_id(id, 0, 0), call_id(id, 0, 2));
    let accepted = world.post(key, &third, result("three")).await;
    assert!(matches!(
        accepted,
        PostOutcome::Accepted { enqueue: None, .. }
    ));
    let again = world.post(key, &third, result("other")).await;
    assert_eq!(again, PostOutcome::AlreadySettled);
    let unknown = world.post(key, &call_id(id, 0, 9), result("x")).await;
    assert_eq!(unknown, PostOutcome::Unknown);
    assert_eq!(world.record(id).await.status, SendStatus::Waiting);
    world.post(key, &first, result("one")).await;
    world.settle(&[id]).await;
    let done = session(&world).await;
    assert_eq!(results(&done), ["one", "look did 2", "three"]);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_result_that_comes_while_the_round_still_runs_is_not_missed() {
    let (world, key) = start().await;
    let _worker = world.worker("w", world.store.clone());
    let calls = json!([[["outside", {}], ["look", {"ms": 5000, "n": 2}]]]);
    let id = world.send(key, &plan(&calls)).await;
    world.pass(Duration::from_secs(1)).await;
    let result = CallAnswer::Result(CallResult::text("early"));
    world.post(key, &call_id(id, 0, 0), result).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    assert_eq!(results(&session(&world).await), ["early", "look did 2"]);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn an_external_call_past_its_deadline_is_answered_so() {
    let (world, key) = start().await;
    let _worker = world.worker("w", world.store.clone());
    let id = world.send(key, &plan(&json!([[["brief", {}]]]))).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    let session = session(&world).await;
    let code = session.calls[0].result.as_ref().and_then(|r| r.code);
    assert_eq!(code, Some(Code::ToolTimeout));
    let waited = session.calls[0].settled_at.expect("settled").0 - session.calls[0].requested_at.0;
    assert!((60_000..62_000).contains(&waited), "{waited}");
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_person_is_asked_and_permits_or_refuses() {
    let (world, key) = start().await;
    let _worker = world.worker("w", world.store.clone());
    let calls = json!([[["ask_person", {"question": "which?"}], ["guarded", {}], ["guarded", {}]]]);
    let id = world.send(key, &plan(&calls)).await;
    until(&world, id, WaitingOn::Human).await;
    let text = |text: &str| CallAnswer::Result(CallResult::text(text));
    let ask = |place| call_id(id, 0, place);
    assert_eq!(
        world.post(key, &ask(0), CallAnswer::Approve).await,
        PostOutcome::NotWaiting
    );
    world.post(key, &ask(0), text("this one")).await;
    let refused = CallAnswer::Refuse(CallResult::text("refused"));
    world.post(key, &ask(1), refused).await;
    world.post(key, &ask(2), CallAnswer::Approve).await;
    // The approved call is an external one: it now waits for its result.
    until(&world, id, WaitingOn::Tool).await;
    world.post(key, &ask(2), text("done")).await;
    world.settle(&[id]).await;
    let results = results(&session(&world).await);
    assert_eq!(results, ["this one", "refused", "done"]);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_answers_what_is_open_wherever_the_send_is() {
    // While calls run, while they wait for external results, and when a tool ignores a stop.
    for (calls, waits) in [
        (json!([[["look", {"ms": 60_000}], ["outside", {}]]]), false),
        (
            json!([[["outside", {}], ["ask_person", {"question": "?"}]]]),
            true,
        ),
        (
            json!([[["look", {"ms": 60_000, "deaf": true}], ["alone", {}]]]),
            false,
        ),
    ] {
        let (world, key) = start().await;
        let _worker = world.worker("w", world.store.clone());
        let id = world.send(key, &plan(&calls)).await;
        if waits {
            until(&world, id, WaitingOn::Human).await;
        } else {
            world.pass(Duration::from_secs(2)).await;
        }
        world.cancel(key, id).await;
        let next = world.send(key, "and now?").await;
        let records = world.settle(&[id, next]).await;
        assert_eq!(records[0].status, SendStatus::Cancelled);
        assert_eq!(records[1].status, SendStatus::Completed);
        let session = session(&world).await;
        assert_eq!(roles(&session)[..4], [User, Assistant, Tool, Tool]);
        assert!(session.calls.iter().all(|call| call.result.is_some()));
        let asked = world.script.ledger().pop().expect("asked");
        assert_eq!(asked.user, "and now?");
        world.audit().await;
    }
}

fn accepted(outcome: DeliverOutcome) -> SendId {
    match outcome {
        DeliverOutcome::Accepted { send_id, .. } => send_id,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_steer_is_told_at_the_next_round_and_an_answer_under_way_goes_on() {
    let (world, key) = start().await;
    let _worker = world.worker("w", world.store.clone());
    let id = world
        .send(key, &plan(&json!([[["look", {"ms": 3000}]]])))
        .await;
    world.pass(Duration::from_secs(1)).await;
    let absorbed = accepted(world.deliver(key, "sleep 5000", OnBusy::Steer).await);
    assert_eq!(absorbed, id);
    world.pass(Duration::from_secs(4)).await;
    // The model is answering the first message: that answer becomes a round, and the send
    // continues.
    accepted(world.deliver(key, "thanks", OnBusy::Steer).await);
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.output_text.as_deref(), Some("echo: thanks"));
    assert_eq!(record.rounds, 3);
    let session = session(&world).await;
    assert_eq!(
        roles(&session),
        [User, Assistant, Tool, User, Assistant, User, Assistant]
    );
    let fates: Vec<_> = session.inbox.iter().map(|item| item.seq).collect();
    assert_eq!(fates, [Some(4), Some(6)]);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn an_interruption_voids_the_model_call_once() {
    let (world, key) = start().await;
    let _worker = world.worker("w", world.store.clone());
    let id = world.send(key, "sleep 60000").await;
    world.pass(Duration::from_secs(1)).await;
    accepted(world.deliver(key, "sleep 30000", OnBusy::Interrupt).await);
    // Renewals bring the signal again and again while the second call runs.
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.output_text.as_deref(), Some("echo: sleep 30000"));
    assert_eq!(world.script.ledger().len(), 2);
    let took = record.finished_at.expect("final").0 - record.created_at.0;
    assert!(took < 33_000, "{took}");
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_send_that_is_interrupted_again_and_again_ends() {
    let (world, key) = start().await;
    let config = WorkerConfig {
        attempts_max: 3,
        ..WorkerConfig::default()
    };
    let _worker = world.worker_with(config, world.store.clone());
    let id = world.send(key, "sleep 60000").await;
    for _ in 0..3 {
        world.pass(Duration::from_secs(1)).await;
        assert!(!world.record(id).await.status.is_final());
        accepted(world.deliver(key, "sleep 60000", OnBusy::Interrupt).await);
    }
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Failed);
    assert_eq!(record.stop_reason, Some(StopReason::AttemptLimit));
    let code = record.error.map(|failure| failure.code);
    assert_eq!(code, Some(Code::LimitExceeded));
    assert_eq!(world.script.ledger().len(), 3);
    // All messages are passed on to the session's next send.
    let next = world.send(key, "hello").await;
    world.settle(&[next]).await;
    let asked = world.script.ledger().pop().expect("it was asked");
    let said = asked
        .transcript
        .iter()
        .filter(|(_, text)| text == "sleep 60000");
    assert_eq!(said.count(), 4);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn an_interruption_ends_waits_and_calls_that_can_stop() {
    for calls in [
        json!([[["slow", {"ms": 60_000}], ["look", {"ms": 2000, "n": 1}], ["outside", {}]]]),
        json!([[["outside", {}], ["look", {"n": 1}], ["ask_person", {"question": "?"}]]]),
    ] {
        let (world, key) = start().await;
        let _worker = world.worker("w", world.store.clone());
        let id = world.send(key, &plan(&calls)).await;
        world.pass(Duration::from_secs(1)).await;
        accepted(world.deliver(key, "stop that", OnBusy::Interrupt).await);
        let record = world.settle(&[id]).await.remove(0);
        assert_eq!(record.output_text.as_deref(), Some("echo: stop that"));
        let took = record.finished_at.expect("final").0 - record.created_at.0;
        assert!(took < 10_000, "{took}");
        let session = session(&world).await;
        assert_eq!(
            roles(&session),
            [User, Assistant, Tool, Tool, Tool, User, Assistant]
        );
        assert!(results(&session).contains(&"look did 1".to_owned()));
        world.audit().await;
    }
}

#[tokio::test(start_paused = true)]
async fn words_for_an_idle_session_are_a_send_and_words_for_a_queued_one_join_it() {
    let (world, key) = start().await;
    assert_eq!(
        world.deliver(key, "hello", OnBusy::Steer).await,
        DeliverOutcome::Idle
    );
    let first = world.send(key, "one").await;
    let joined = accepted(world.deliver(key, "two", OnBusy::Coalesce).await);
    assert_eq!(joined, first);
    let _worker = world.worker("w", world.store.clone());
    let record = world.settle(&[first]).await.remove(0);
    assert_eq!(record.output_text.as_deref(), Some("echo: one\n\ntwo"));
    world.audit().await;
}

/// Runs a send with calls of every kind, a question and an external call, on a worker that fails or
/// dies at one write. Returns the transcript at the end, and whether the fault was reached.
async fn eventful(plan_of: FaultPlan) -> (Vec<(Role, String)>, bool) {
    let (world, key) = start().await;
    let faulty = Arc::new(Faulty::new(world.store.clone(), plan_of));
    let calls = json!([
        [["look", {"n": 1, "ms": 50}], ["put", {"n": 2, "ms": 50}], ["alone", {"n": 3}]],
        [["ask_person", {"question": "go on?"}], ["outside", {"n": 4}]],
    ]);
    let id = world.send(key, &plan(&calls)).await;
    let _first = world.worker("first", faulty.clone());
    world.pass(Duration::from_millis(1)).await;
    let dies = matches!(plan_of.fault, Fault::DieBefore | Fault::DieAfter);
    let _second = dies.then(|| world.worker("second", world.store.clone()));
    for _ in 0..2000 {
        let record = world.record(id).await;
        if record.status.is_final() {
            break;
        }
        if record.status == SendStatus::Waiting {
            for place in 0..2 {
                let answer = CallAnswer::Result(CallResult::text(format!("answer {place}")));
                world.post(key, &call_id(id, 1, place), answer).await;
            }
        }
        world.pass(Duration::from_millis(100)).await;
    }
    let record = world.record(id).await;
    assert_eq!(
        record.status,
        SendStatus::Completed,
        "{plan_of:?}: {record:#?}"
    );
    world.pass(Duration::from_secs(20)).await;
    world.audit().await;
    for tool in ["look", "put", "alone"] {
        let acts = world.acts.of(tool);
        let ids: std::collections::BTreeSet<_> = acts.iter().map(|act| &act.call_id).collect();
        assert_eq!(ids.len(), 1, "{plan_of:?}: {acts:?}");
    }
    let session = session(&world).await;
    let said = session.messages.iter();
    let said = said.map(|m| (m.role, plain_text(&m.content))).collect();
    (said, faulty.fired())
}

#[tokio::test(start_paused = true)]
async fn a_fault_at_any_write_of_a_send_with_calls_changes_nothing_of_the_outcome() {
    let (expected, _) = eventful(FaultPlan::NEVER).await;
    assert_eq!(expected.len(), 9);
    for fault in Fault::ALL {
        let mut reached = 0;
        for at in 0.. {
            let (said, fired) = eventful(FaultPlan { at, fault }).await;
            assert_eq!(said, expected, "{fault:?} at write {at}");
            if !fired {
                break;
            }
            reached += 1;
        }
        assert!(
            reached > 6,
            "{fault:?} was injected at {reached} positions only"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_in_doubt_is_never_made_twice_and_the_model_is_told() {
    let (world, key) = start().await;
    let store = Arc::new(Faulty::new(world.store.clone(), FaultPlan::NEVER));
    let _first = world.worker("first", store.clone());
    let calls =
        json!([[["act", {"ms": 3000}], ["put", {"ms": 3000, "n": 2}], ["look", {"ms": 3000}]]]);
    let id = world.send(key, &plan(&calls)).await;
    world.pass(Duration::from_secs(1)).await;
    // The worker dies without warning, in the middle of the calls.
    store.kill();
    world.pass(Duration::from_secs(1)).await;
    let _second = world.worker("second", world.store.clone());
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    let session = session(&world).await;
    let code = |place: usize| session.calls[place].result.as_ref().and_then(|r| r.code);
    assert_eq!(code(0), Some(Code::ToolUnknownOutcome));
    assert_eq!((code(1), code(2)), (None, None));
    assert_eq!(world.acts.of("act").len(), 1);
    let puts = world.acts.of("put");
    assert_eq!(puts.len(), 2);
    assert_eq!(puts[0].call_id, puts[1].call_id);
    assert_eq!((puts[0].attempt, puts[1].attempt), (1, 2));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn work_that_goes_on_elsewhere_is_taken_up_by_its_handle_and_not_begun_again() {
    let (world, key) = start().await;
    let store = Arc::new(Faulty::new(world.store.clone(), FaultPlan::NEVER));
    let _first = world.worker("first", store.clone());
    let calls = json!([
        [["act", {"ms": 3000, "handle": true}], ["act", {"ms": 3000}]],
        [["act", {"ms": 10, "handle": true}]],
    ]);
    let id = world.send(key, &plan(&calls)).await;
    world.pass(Duration::from_secs(1)).await;
    store.kill();
    world.pass(Duration::from_secs(1)).await;
    let _second = world.worker("second", world.store.clone());
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    let session = session(&world).await;
    let first = call_id(id, 0, 0);
    let expected = format!("took up \"{first}\"");
    assert_eq!(results(&session)[0], expected);
    let code = |place: usize| session.calls[place].result.as_ref().and_then(|r| r.code);
    assert_eq!((code(0), code(1)), (None, Some(Code::ToolUnknownOutcome)));
    let attempts: Vec<i32> = world
        .acts
        .all()
        .iter()
        .filter(|act| act.call_id == first)
        .map(|act| act.attempt)
        .collect();
    assert_eq!(attempts, [1, 2]);
    // What was kept goes with the results; the call of the next round finds nothing of it.
    assert_eq!(results(&session)[2], "act did 0");
    let shown = record.shown.map(|shown| shown.handles).unwrap_or_default();
    assert!(shown.len() <= 1 && !shown.contains_key(&first), "{shown:?}");
    let reports = world.live(key).into_iter().filter_map(|event| match event {
        LiveKind::ToolCallProgress { id, progress, .. } => Some((id, progress > 0.0)),
        _ => None,
    });
    let reports: Vec<_> = reports.collect();
    assert_eq!(reports, [(first, true), (call_id(id, 1, 0), true)]);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_behind_calls_leaves_none_of_them_unanswered() {
    let (world, key) = start().await;
    let _worker = world.worker("w", world.store.clone());
    let calls = json!([[["look", {"n": 1}], ["put", {"n": 2}]], [["panic", {}]]]);
    let id = world.send(key, &plan(&calls)).await;
    let next = world.send(key, "and now?").await;
    let records = world.settle(&[id, next]).await;
    assert_eq!(records[0].stop_reason, Some(StopReason::Internal));
    assert_eq!(records[1].status, SendStatus::Completed);
    let session = session(&world).await;
    assert_eq!(roles(&session)[..4], [User, Assistant, Tool, Tool]);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn words_that_came_before_a_cancel_are_not_forgotten() {
    let (world, key) = start().await;
    let _worker = world.worker("w", world.store.clone());
    let calls = json!([[["put", {"ms": 2000, "n": 1}], ["look", {"ms": 60_000}]]]);
    let id = world.send(key, &plan(&calls)).await;
    world.pass(Duration::from_secs(1)).await;
    accepted(world.deliver(key, "and this", OnBusy::Steer).await);
    // The first result is stored on its own; that step lowers the signal.
    world.pass(Duration::from_secs(4)).await;
    world.cancel(key, id).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Cancelled);
    let session = session(&world).await;
    assert_eq!(session.inbox[0].seq, Some(5));
    assert_eq!(roles(&session), [User, Assistant, Tool, Tool, User]);
    world.audit().await;
}
