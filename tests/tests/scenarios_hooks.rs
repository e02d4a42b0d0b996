//! What hooks see, change and forbid, in whole sends.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::error::Code;
use mainspring_shared::message::{ContentPart, Role, plain_text};
use mainspring_shared::send::{SendStatus, StopReason};
use mainspring_shared::tool::{CallResult, ToolEntry};
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World};
use mainspring_worker::hook::{At, Decision, Hook, HookError, ToolCall, Verdict};
use mainspring_worker::llm::{Reply, Request};
use serde_json::json;

/// Writes down what it is asked, and obeys words in what it sees.
#[derive(Debug, Default)]
struct Watcher {
    seen: Mutex<Vec<String>>,
    fails: bool,
}

impl Watcher {
    fn note(&self, what: String) -> Result<(), HookError> {
        self.seen.lock().expect("nobody panics under it").push(what);
        if self.fails {
            return Err(HookError("broken".into()));
        }
        Ok(())
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("nobody panics under it").clone()
    }
}

#[async_trait]
impl Hook for Watcher {
    fn name(&self) -> &'static str {
        "watcher"
    }

    async fn send_started(&self, _at: At) -> Result<(), HookError> {
        self.note("started".into())
    }

    async fn before_model(&self, at: At, request: &mut Request) -> Decision<Reply> {
        self.note(format!("model {}", at.round))?;
        let last = request.messages.last().map(|m| plain_text(&m.content));
        if last.is_some_and(|text| text == "forbidden") {
            return Ok(Verdict::Refuse("not that".into()));
        }
        request.system = Some("be brief".into());
        Ok(Verdict::Go)
    }

    async fn after_model(&self, _at: At, reply: &mut Reply) -> Decision<Reply> {
        if plain_text(&reply.content) == "echo: louder" {
            reply.content = vec![ContentPart::text("LOUDER")];
        }
        Ok(Verdict::Go)
    }

    async fn before_tool(&self, at: At, call: &mut ToolCall) -> Decision<CallResult> {
        self.note(format!("{} {}", call.name, at.attempt))?;
        Ok(
            match call.arguments.get("n").and_then(serde_json::Value::as_i64) {
                Some(2) => Verdict::Refuse("two is too many".into()),
                Some(3) => Verdict::Instead(CallResult::text("three is known")),
                Some(4) => {
                    call.arguments.insert("n".into(), json!(5));
                    Verdict::Go
                }
                _ => Verdict::Go,
            },
        )
    }

    async fn after_tool(
        &self,
        _at: At,
        _call: &ToolCall,
        result: &mut CallResult,
    ) -> Result<(), HookError> {
        if result.whole_text() == "look did 1" {
            result.content = vec![ContentPart::text("look did one")];
        }
        Ok(())
    }

    async fn send_ended(&self, _at: At, status: SendStatus) -> Result<(), HookError> {
        self.note(format!("ended {}", status.as_str()))
    }
}

fn agent() -> AgentSpec {
    let named = ["look", "put", "ask_person"];
    AgentSpec {
        tools: named.map(|name| ToolEntry::Named(name.into())).into(),
        ..AgentSpec::default()
    }
}

async fn watched(fails: bool) -> (World, Arc<Watcher>) {
    let mut world = World::new().await;
    let watcher = Arc::new(Watcher {
        fails,
        ..Watcher::default()
    });
    world.hooks.register(watcher.clone()).expect("a new name");
    (world, watcher)
}

#[tokio::test(start_paused = true)]
async fn calls_are_permitted_changed_answered_and_refused() {
    let (world, watcher) = watched(false).await;
    let key = world.session(agent()).await;
    let _worker = world.worker("w", world.store.clone());
    let plan = json!([[
        ["look", {"n": 1}], ["look", {"n": 2}], ["look", {"n": 3}], ["put", {"n": 4}],
        ["ask_person", {"question": "well?", "n": 2}],
    ]]);
    let id = world.send(key, &format!("plan {plan}")).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(
        record.status,
        SendStatus::Completed,
        "nobody was waited for"
    );
    let session = world.dump().await.sessions.remove(0);
    let tools = session.messages.iter().filter(|m| m.role == Role::Tool);
    let said: Vec<String> = tools.map(|m| plain_text(&m.content)).collect();
    assert_eq!(said[0], "look did one");
    assert!(said[1].contains("two is too many"), "{said:?}");
    assert_eq!(
        (said[2].as_str(), said[3].as_str()),
        ("three is known", "put did 5")
    );
    let codes: Vec<_> = session
        .calls
        .iter()
        .map(|call| call.result.as_ref().and_then(|result| result.code))
        .collect();
    assert_eq!(codes[1], Some(Code::ToolDenied));
    assert!(
        codes[4].is_some(),
        "a question that does not fit, or is refused: {codes:?}"
    );
    let asked = world.script.ledger();
    assert!(
        asked
            .iter()
            .all(|a| a.system.as_deref() == Some("be brief"))
    );
    let seen = watcher.seen();
    assert_eq!((seen[0].as_str(), seen[1].as_str()), ("started", "model 0"));
    assert_eq!(seen.last().map(String::as_str), Some("ended completed"));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_model_call_ends_its_send_and_no_other() {
    let (world, _) = watched(false).await;
    let key = world.session(AgentSpec::default()).await;
    let _worker = world.worker("w", world.store.clone());
    let bad = world.send(key, "forbidden").await;
    let good = world.send(key, "louder").await;
    let records = world.settle(&[bad, good]).await;
    assert_eq!(records[0].stop_reason, Some(StopReason::Policy));
    let error = records[0].error.clone().expect("it failed");
    assert_eq!(error.code, Code::PolicyDenied);
    assert!(error.message.contains("watcher: not that"), "{error:?}");
    assert_eq!(world.script.calls("forbidden"), 0);
    assert_eq!(records[1].output_text.as_deref(), Some("LOUDER"));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_observer_ends_nothing() {
    let (world, watcher) = watched(true).await;
    let key = world.session(agent()).await;
    let _worker = world.worker("w", world.store.clone());
    let plan = json!([[["look", {"n": 1}]]]);
    let id = world.send(key, &format!("plan {plan}")).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    assert!(watcher.seen().contains(&"look 1".to_owned()));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_repeated_after_a_death_is_asked_about_again() {
    let (world, watcher) = watched(false).await;
    let key = world.session(agent()).await;
    let never = FaultPlan {
        at: usize::MAX,
        fault: Fault::DieBefore,
    };
    let store = Arc::new(Faulty::new(world.store.clone(), never));
    let _first = world.worker("first", store.clone());
    let plan = json!([[["put", {"ms": 5000, "n": 1}]]]);
    let id = world.send(key, &format!("plan {plan}")).await;
    while world.acts.all().is_empty() {
        world.pass(std::time::Duration::from_millis(50)).await;
    }
    store.kill();
    let _second = world.worker("second", world.store.clone());
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    let seen = watcher.seen();
    let puts: Vec<_> = seen.iter().filter(|what| what.starts_with("put")).collect();
    assert_eq!(puts, ["put 1", "put 2"]);
    world.audit().await;
}
