//! Which model is called, for how long, and what ends a send without an answer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::agent::{AgentSpec, OnBusy};
use mainspring_shared::error::Code;
use mainspring_shared::message::Role::{self, Assistant, Tool, User};
use mainspring_shared::message::plain_text;
use mainspring_shared::retry::Policy;
use mainspring_shared::send::{SendRecord, SendStatus, StopReason};
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World};
use mainspring_tools::builtin::{self, Settings};
use mainspring_worker::WorkerConfig;
use mainspring_worker::hook::{At, Decision, Hook, ToolCall, Verdict};
use mainspring_worker::llm::{Reply, Request};

const SECOND: Duration = Duration::from_secs(1);

async fn said(world: &World) -> Vec<(Role, String)> {
    let session = world.dump().await.sessions.remove(0);
    let said = session.messages.iter();
    said.map(|m| (m.role, plain_text(&m.content))).collect()
}

/// Runs one send of an agent with these fallbacks.
async fn asked(text: &str, fallback: &[&str], config: WorkerConfig) -> (World, SendRecord) {
    let world = World::new().await;
    let agent = AgentSpec {
        fallback: fallback.iter().map(|model| (*model).to_owned()).collect(),
        ..AgentSpec::default()
    };
    let key = world.session(agent).await;
    let _worker = world.worker_with(config, world.store.clone());
    let id = world.send(key, text).await;
    let record = world.settle(&[id]).await.remove(0);
    world.audit().await;
    (world, record)
}

#[tokio::test(start_paused = true)]
async fn the_next_model_is_asked_once_the_attempts_at_the_first_are_used_up() {
    let (world, record) = asked("fail 100", &["demo/demo"], WorkerConfig::default()).await;
    assert_eq!(record.status, SendStatus::Completed, "{record:?}");
    let tries = Policy::default().attempts_max;
    assert_eq!(world.script.calls("fail 100"), tries as usize);
    assert_eq!(record.attempts, tries as i32 + 1);
    // Without another model the send fails.
    let (_, record) = asked("fail 100", &[], WorkerConfig::default()).await;
    assert_eq!(record.status, SendStatus::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_refuses_the_key_or_asks_for_a_long_wait_is_left_at_once() {
    for text in ["forbid", "fail-late 100", "held 100"] {
        let (world, record) = asked(text, &["demo/demo"], WorkerConfig::default()).await;
        assert_eq!(record.status, SendStatus::Completed, "{text}: {record:?}");
        assert_eq!(world.script.calls(text), 1, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_streamed_by_a_model_that_is_left_is_void() {
    let (world, record) = asked("break 100", &["demo/demo"], WorkerConfig::default()).await;
    assert_eq!(record.status, SendStatus::Completed);
    assert!(
        !record
            .output_text
            .clone()
            .unwrap_or_default()
            .contains("half")
    );
    let key = world.dump().await.sessions.remove(0).key;
    let resets = world.live(key).into_iter().filter(|event| {
        matches!(
            event,
            mainspring_shared::event::LiveKind::MessageReset { .. }
        )
    });
    assert_eq!(resets.count(), Policy::default().attempts_max as usize);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_held_back_is_no_attempt() {
    let config = WorkerConfig {
        retry: Policy {
            attempts_max: 1,
            ..Policy::default()
        },
        ..WorkerConfig::default()
    };
    let (world, record) = asked("held 3", &[], config.clone()).await;
    assert_eq!(record.status, SendStatus::Completed, "{record:?}");
    assert_eq!(world.script.calls("held 3"), 4);
    let (_, record) = asked("fail 1", &[], config).await;
    assert_eq!(record.status, SendStatus::Failed);
}

#[tokio::test(start_paused = true)]
async fn the_time_for_an_answer_covers_its_attempts_and_the_waits_between_them() {
    let config = WorkerConfig {
        answer_timeout: Some(30 * SECOND),
        ..WorkerConfig::default()
    };
    for (text, calls) in [("sleep 60000", 1), ("fail-late 100", 1)] {
        let (world, record) = asked(text, &[], config.clone()).await;
        let failure = record.error.clone().expect("it failed");
        assert_eq!(failure.code, Code::LlmTimeout, "{text}: {failure:?}");
        assert_eq!(world.script.calls(text), calls, "{text}");
    }
    let (_, record) = asked("sleep 20000", &[], config).await;
    assert_eq!(record.status, SendStatus::Completed);
}

/// A world whose agents may pass their turn.
async fn with_pass_turn() -> (World, AgentSpec) {
    let world = World::with_tools(|tools, _, clock| {
        builtin::register(Settings::default(), clock.clone(), tools).expect("new names");
    })
    .await;
    let tools = ["look", "put", "pass_turn"];
    let agent = AgentSpec {
        tools: tools.map(|name| ToolEntry::Named(name.into())).into(),
        ..AgentSpec::default()
    };
    (world, agent)
}

const PASS: &str = r#"plan [[["put",{"n":1}],["pass_turn",{"reason":"done"}]]]"#;

#[tokio::test(start_paused = true)]
async fn a_turn_is_passed_once_whatever_dies() {
    for at in 0..8 {
        for fault in [Fault::DieBefore, Fault::DieAfter] {
            let (world, agent) = with_pass_turn().await;
            let key = world.session(agent).await;
            let store = Arc::new(Faulty::new(world.store.clone(), FaultPlan { at, fault }));
            let id = world.send(key, PASS).await;
            let _first = world.worker("first", store);
            world.pass(Duration::from_millis(1)).await;
            let _second = world.worker("second", world.store.clone());
            let record = world.settle(&[id]).await.remove(0);
            let place = format!("{fault:?} {at}");
            assert_eq!(record.status, SendStatus::Completed, "{place}");
            assert_eq!(record.stop_reason, Some(StopReason::End), "{place}");
            assert_eq!(record.output_text.as_deref(), Some("calling"), "{place}");
            assert_eq!(record.rounds, 1, "{place}");
            let roles: Vec<_> = said(&world)
                .await
                .into_iter()
                .map(|(role, _)| role)
                .collect();
            assert_eq!(roles, [User, Assistant, Tool, Tool], "{place}");
            // The conversation continues after it.
            let next = world.send(key, "and now?").await;
            let next = world.settle(&[next]).await.remove(0);
            assert_eq!(
                next.output_text.as_deref(),
                Some("echo: and now?"),
                "{place}"
            );
            world.audit().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_before_the_end_of_a_passed_turn_is_answered() {
    let (world, agent) = with_pass_turn().await;
    let key = world.session(agent).await;
    let _worker = world.worker("w", world.store.clone());
    let plan = r#"plan [[["look",{"ms":5000}],["pass_turn",{}]]]"#;
    let id = world.send(key, plan).await;
    world.pass(SECOND).await;
    world.deliver(key, "one more thing", OnBusy::Steer).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    let said = said(&world).await;
    let last = said.last().map(|(_, text)| text.as_str());
    assert_eq!(last, Some("echo: one more thing"), "{said:?}");
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_could_not_be_passed_goes_on() {
    let (world, agent) = with_pass_turn().await;
    let key = world.session(agent).await;
    let _worker = world.worker("w", world.store.clone());
    let id = world.send(key, r#"plan [[["pass_turn",{"why":1}]]]"#).await;
    let record = world.settle(&[id]).await.remove(0);
    assert!(
        record
            .output_text
            .is_some_and(|text| text.starts_with("echo: "))
    );
    assert_eq!(record.rounds, 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_whose_worker_has_to_stop_goes_on_with_the_next() {
    let world = World::new().await;
    let config = WorkerConfig {
        drain_timeout: SECOND,
        ..WorkerConfig::default()
    };
    let first = world.worker_with(config, world.store.clone());
    let key = world.session(AgentSpec::default()).await;
    let id = world.send(key, "stream 100x1000").await;
    world.pass(4 * SECOND).await;
    first.stop();
    world.pass(3 * SECOND).await;
    let _second = world.worker("second", world.store.clone());
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    let text = record.output_text.expect("an answer");
    assert!(text.starts_with("0 1 2 3 "), "{text}");
    let asked = world.script.ledger();
    let last = asked.last().expect("it was asked");
    let roles: Vec<_> = last.transcript.iter().map(|(role, _)| *role).collect();
    assert_eq!(roles, [User, Assistant, User]);
    assert!(text.starts_with(&last.transcript[1].1), "{text}");
    let said = said(&world).await;
    assert_eq!(said.len(), 2, "it is one message: {said:?}");
    // The next send sees no trace of it.
    let next = world.send(key, "next").await;
    world.settle(&[next]).await;
    let shown = world.script.ledger().pop().expect("it was asked");
    assert_eq!(shown.transcript.len(), 3);
    world.audit().await;
}

/// Ends sends at the points where it is told to.
#[derive(Debug)]
struct Ender;

#[async_trait]
impl Hook for Ender {
    fn name(&self) -> &'static str {
        "ender"
    }

    async fn before_model(&self, at: At, _request: &mut Request) -> Decision<Reply> {
        Ok(if at.round > 0 {
            Verdict::End
        } else {
            Verdict::Go
        })
    }

    async fn before_calls(
        &self,
        _at: At,
        calls: &[ToolCall],
    ) -> Decision<mainspring_shared::tool::CallResult> {
        let ends = calls.iter().any(|call| call.name == "put");
        Ok(if ends { Verdict::End } else { Verdict::Go })
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_ends_a_send_before_its_calls_or_before_the_model_is_asked_again() {
    let mut world = World::new().await;
    world.hooks.register(Arc::new(Ender)).expect("a new name");
    let agent = AgentSpec {
        tools: ["look", "put"]
            .map(|name| ToolEntry::Named(name.into()))
            .into(),
        ..AgentSpec::default()
    };
    let key = world.session(agent).await;
    let _worker = world.worker("w", world.store.clone());
    let id = world.send(key, r#"plan [[["put",{"n":1}]]]"#).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.stop_reason, Some(StopReason::End), "{record:?}");
    assert_eq!(record.output_text.as_deref(), Some("calling"));
    assert!(world.acts.all().is_empty(), "no call is made");
    let id = world.send(key, r#"plan [[["look",{"n":1}]]]"#).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.stop_reason, Some(StopReason::End), "{record:?}");
    assert_eq!(record.output_text.as_deref(), Some("calling"));
    assert_eq!(world.acts.of("look").len(), 1);
    assert_eq!(world.script.ledger().len(), 2);
    world.audit().await;
}
