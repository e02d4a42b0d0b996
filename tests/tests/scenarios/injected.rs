//! Messages injected by hooks, in simulated time: transcript rows like any other, each present
//! exactly once whatever dies.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::message::ContentPart;
use mainspring_shared::message::Role::{self, Assistant, Tool, User};
use mainspring_shared::message::plain_text;
use mainspring_shared::send::SendStatus;
use mainspring_shared::tool::{CallResult, ToolEntry};
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World};
use mainspring_worker::hook::{At, Decision, Hook, HookError, ToolCall, Verdict};
use mainspring_worker::llm::{Reply, Request};
use serde_json::json;

/// Injects a message at every point where that is possible.
#[derive(Debug)]
struct Speaker;

#[async_trait]
impl Hook for Speaker {
    fn name(&self) -> &'static str {
        "speaker"
    }

    async fn round_started(&self, at: At) -> Decision<()> {
        let words = format!("round {} begins", at.round);
        Ok(Verdict::Say(vec![ContentPart::text(words)]))
    }

    async fn before_model(&self, at: At, request: &mut Request) -> Decision<Reply> {
        request.system = Some("as asked".to_owned());
        let words = format!("mind round {}", at.round);
        Ok(Verdict::Say(vec![ContentPart::text(words)]))
    }

    async fn after_tool(
        &self,
        _at: At,
        call: &ToolCall,
        result: &mut CallResult,
    ) -> Result<(), HookError> {
        let n = call.arguments.get("n").cloned().unwrap_or_default();
        result.said.push(format!("of {} {n}", call.name));
        Ok(())
    }
}

async fn said(world: &World) -> Vec<(Role, String)> {
    let session = world.dump().await.sessions.remove(0);
    let said = session.messages.iter().skip(1);
    said.map(|m| (m.role, plain_text(&m.content))).collect()
}

fn agent() -> AgentSpec {
    let tools = ["look", "put", "act"];
    AgentSpec {
        tools: tools.map(|name| ToolEntry::Named(name.into())).into(),
        ..AgentSpec::default()
    }
}

#[tokio::test(start_paused = true)]
async fn what_hooks_say_stands_in_the_transcript_once_whatever_dies() {
    let calls = json!([["put", {"n": 1}], ["look", {"n": 2}]]);
    let text = format!("answers {}", json!([calls, "done"]));
    let expected = [
        (User, "round 0 begins"),
        (User, "mind round 0"),
        (Assistant, "calling"),
        (Tool, "put did 1"),
        (Tool, "look did 2"),
        (User, "of put 1"),
        (User, "of look 2"),
        (User, "round 1 begins"),
        (User, "mind round 1"),
        (Assistant, "done"),
    ];
    let faults = Fault::ALL.into_iter();
    let plans = faults.flat_map(|fault| (0..10).map(move |at| FaultPlan { at, fault }));
    for plan in std::iter::once(FaultPlan::NEVER).chain(plans) {
        let mut world = World::new().await;
        world.hooks.register(Arc::new(Speaker)).expect("a new name");
        let key = world.session(agent()).await;
        let store = Arc::new(Faulty::new(world.store.clone(), plan));
        let id = world.send(key, &text).await;
        let _first = world.worker("first", store.clone());
        world.pass(Duration::from_millis(1)).await;
        let _second = world.worker("second", world.store.clone());
        let record = world.settle(&[id]).await.remove(0);
        let place = format!("{plan:?}, {:?}", store.failed_method());
        assert_eq!(record.status, SendStatus::Completed, "{place}: {record:#?}");
        let said = said(&world).await;
        let said: Vec<_> = said.iter().map(|(role, text)| (*role, &**text)).collect();
        assert_eq!(said, expected, "{place}");
        // The model got what is stored, in that order, and the hook's other changes.
        let asked = world.script.ledger().pop().expect("was asked");
        let shown = asked.transcript.iter().skip(1);
        let shown: Vec<_> = shown.map(|(role, text)| (*role, &**text)).collect();
        assert_eq!(shown, expected[..9], "{place}");
        assert_eq!(asked.system.as_deref(), Some("as asked"), "{place}");
        world.audit().await;
    }
}

#[tokio::test(start_paused = true)]
async fn another_attempt_at_a_round_says_nothing_again() {
    let mut world = World::new().await;
    world.hooks.register(Arc::new(Speaker)).expect("a new name");
    let key = world.session(agent()).await;
    let _worker = world.worker("w", world.store.clone());
    // An answer in two parts takes two model calls.
    let text = "answers [{\"cut\": \"one \"}, \"two\"]";
    let id = world.send(key, text).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(
        record.output_text.as_deref(),
        Some("one two"),
        "{record:#?}"
    );
    let said = said(&world).await;
    let expected = [
        (User, "round 0 begins".to_owned()),
        (User, "mind round 0".to_owned()),
        (Assistant, "one two".to_owned()),
    ];
    assert_eq!(said, expected);
    world.audit().await;
}

/// Ends a send when its second round begins.
#[derive(Debug)]
struct Stopper;

#[async_trait]
impl Hook for Stopper {
    fn name(&self) -> &'static str {
        "stopper"
    }

    async fn round_started(&self, at: At) -> Decision<()> {
        Ok(if at.round == 1 {
            Verdict::End
        } else {
            Verdict::Go
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_send_ends_completed_when_a_hook_lets_no_round_begin() {
    let mut world = World::new().await;
    world.hooks.register(Arc::new(Stopper)).expect("a new name");
    let key = world.session(agent()).await;
    let _worker = world.worker("w", world.store.clone());
    let text = format!("answers {}", json!([[["look", {"n": 1}]], "never"]));
    let id = world.send(key, &text).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    assert_eq!(record.output_text.as_deref(), Some("calling"));
    assert_eq!((record.rounds, world.script.asked()), (1, 1));
    let roles: Vec<_> = said(&world).await.iter().map(|(role, _)| *role).collect();
    assert_eq!(roles, [Assistant, Tool]);
    world.audit().await;
}

/// Makes the rest of a round be skipped once `alone` has run.
#[derive(Debug)]
struct Skipper;

#[async_trait]
impl Hook for Skipper {
    fn name(&self) -> &'static str {
        "skipper"
    }

    async fn after_tool(
        &self,
        _at: At,
        call: &ToolCall,
        result: &mut CallResult,
    ) -> Result<(), HookError> {
        if call.name == "alone" {
            result.skips = Some("enough is known".to_owned());
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_has_the_rest_of_a_round_skipped_whatever_dies() {
    let calls = json!([["alone", {"n": 1}], ["put", {"n": 2}], ["act", {"n": 3}]]);
    let text = format!("answers {}", json!([calls, "done"]));
    let skipped = "error: this call was skipped: enough is known";
    let expected = [
        (Assistant, "calling"),
        (Tool, "alone did 1"),
        (Tool, skipped),
        (Tool, skipped),
        (Assistant, "done"),
    ];
    let faults = Fault::ALL.into_iter();
    let plans = faults.flat_map(|fault| (0..8).map(move |at| FaultPlan { at, fault }));
    for plan in std::iter::once(FaultPlan::NEVER).chain(plans) {
        let mut world = World::new().await;
        world.hooks.register(Arc::new(Skipper)).expect("a new name");
        let tools = ["alone", "put", "act"].map(|name| ToolEntry::Named(name.into()));
        let agent = AgentSpec {
            tools: tools.into(),
            ..AgentSpec::default()
        };
        let key = world.session(agent).await;
        let store = Arc::new(Faulty::new(world.store.clone(), plan));
        let id = world.send(key, &text).await;
        let _first = world.worker("first", store.clone());
        world.pass(Duration::from_millis(1)).await;
        let _second = world.worker("second", world.store.clone());
        let record = world.settle(&[id]).await.remove(0);
        let place = format!("{plan:?}, {:?}", store.failed_method());
        assert_eq!(record.status, SendStatus::Completed, "{place}: {record:#?}");
        let said = said(&world).await;
        let said: Vec<_> = said.iter().map(|(role, text)| (*role, &**text)).collect();
        assert_eq!(said, expected, "{place}");
        let acts = world.acts.all();
        assert!(acts.iter().all(|act| act.tool == "alone"), "{place}");
        world.audit().await;
    }
}
