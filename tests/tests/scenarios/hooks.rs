//! What hooks see, change and forbid in whole sends.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::error::Code;
use mainspring_shared::message::{ContentPart, Role, plain_text};
use mainspring_shared::send::{SendStatus, StopReason};
use mainspring_shared::store::CallAnswer;
use mainspring_shared::tool::{CallResult, ToolEntry};
use mainspring_tests::world::{FaultPlan, Faulty, World};
use mainspring_worker::hook::{
    At, Decision, Ending, GoOn, Hook, HookError, HookTraits, Moment, OnFailure, ToolCall, Verdict,
};
use mainspring_worker::llm::{Reply, Request};
use serde_json::json;

/// Records what it is asked, and obeys keywords in what it sees.
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

    async fn observe(&self, _at: At, moment: Moment<'_>) -> Result<(), HookError> {
        match moment {
            Moment::SendStarted => self.note("started".into()),
            Moment::SendEnded(status) => self.note(format!("ended {}", status.as_str())),
            _ => Ok(()),
        }
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
        if call.arguments.get("question") == Some(&json!("how many?")) {
            return Ok(Verdict::Refuse("nobody is to be asked".into()));
        }
        if call.arguments.get("task") == Some(&json!("secret")) {
            call.arguments.insert("task".into(), json!("public"));
        }
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
        ["ask_person", {"question": "how many?"}],
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
    assert_eq!(codes[4], Some(Code::ToolDenied), "{said:?}");
    assert!(said[4].contains("nobody is to be asked"), "{said:?}");
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
    let never = FaultPlan::NEVER;
    let store = Arc::new(Faulty::new(world.store.clone(), never));
    let _first = world.worker("first", store.clone());
    let plan = json!([[["put", {"ms": 5000, "n": 1}]]]);
    let id = world.send(key, &format!("plan {plan}")).await;
    while world.acts.all().is_empty() {
        world.pass(Duration::from_millis(50)).await;
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

fn external() -> AgentSpec {
    let pay = json!({"type": "external", "name": "pay", "parameters": {
        "type": "object", "properties": {"n": {"type": "integer", "maximum": 5}},
    }});
    AgentSpec {
        tools: vec![
            serde_json::from_value(pay).expect("a tool"),
            ToolEntry::Named("spawn_agent".into()),
        ],
        ..AgentSpec::default()
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_hook_makes_of_arguments_holds_for_calls_that_are_made_outside() {
    let (world, _) = watched(false).await;
    let key = world.session(external()).await;
    let _worker = world.worker("w", world.store.clone());
    let plan = json!([[["pay", {"n": 4}], ["pay", {"n": 1}], ["spawn_agent", {"task": "secret"}]]]);
    let id = world.send(key, &format!("plan {plan}")).await;
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(world.record(id).await.status, SendStatus::Waiting);
    let calls = world.store.read_round(key, id, 0).await.expect("reads");
    let arguments: Vec<_> = calls.iter().map(|call| call.arguments.clone()).collect();
    assert_eq!(
        arguments,
        [json!({"n": 5}), json!({"n": 1}), json!({"task": "public"})]
    );
    assert_eq!(world.script.calls("secret"), 0);
    assert_eq!(world.script.calls("public"), 1);
    for call in calls.iter().filter(|call| call.name == "pay") {
        let answer = CallAnswer::Result(CallResult::text("paid"));
        world.post(key, &call.call_id, answer).await;
    }
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    world.audit().await;
}

/// Changes arguments to something that no schema allows.
#[derive(Debug)]
struct Vandal;

#[async_trait]
impl Hook for Vandal {
    fn name(&self) -> &'static str {
        "vandal"
    }

    async fn before_tool(&self, _at: At, call: &mut ToolCall) -> Decision<CallResult> {
        call.arguments.insert("n".into(), json!("many"));
        Ok(Verdict::Go)
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_hook_makes_of_arguments_has_to_fit_outside_too() {
    let mut world = World::new().await;
    world.hooks.register(Arc::new(Vandal)).expect("a new name");
    let key = world.session(external()).await;
    let _worker = world.worker("w", world.store.clone());
    let id = world
        .send(key, &format!("plan {}", json!([[["pay", {"n": 1}]]])))
        .await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(
        record.status,
        SendStatus::Completed,
        "nobody was waited for"
    );
    let calls = world.store.read_round(key, id, 0).await.expect("reads");
    let result = calls[0].result.clone().expect("settled");
    assert_eq!(result.code, Some(Code::ToolInvalidArguments));
}

/// Never answers at the given point, and counts the calls it was asked about.
#[derive(Debug)]
struct Silent {
    point: &'static str,
    closed: bool,
    asked: AtomicUsize,
}

impl Silent {
    async fn hang(&self, point: &str) {
        if point == self.point {
            self.asked.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl Hook for Silent {
    fn name(&self) -> &'static str {
        "silent"
    }

    fn traits(&self) -> HookTraits {
        HookTraits {
            fails_closed: self.closed,
            ..HookTraits::default()
        }
    }

    async fn observe(&self, _at: At, moment: Moment<'_>) -> Result<(), HookError> {
        match moment {
            Moment::SendStarted => self.hang("send_started").await,
            Moment::SendEnded(_) => self.hang("send_ended").await,
            _ => {}
        }
        Ok(())
    }

    async fn before_model(&self, _at: At, _request: &mut Request) -> Decision<Reply> {
        self.hang("before_model").await;
        Ok(Verdict::Go)
    }

    async fn before_tool(&self, _at: At, _call: &mut ToolCall) -> Decision<CallResult> {
        self.hang("before_tool").await;
        Ok(Verdict::Go)
    }
}

async fn silent(point: &'static str, closed: bool) -> (World, Arc<Silent>) {
    let mut world = World::new().await;
    let silent = Arc::new(Silent {
        point,
        closed,
        asked: AtomicUsize::new(0),
    });
    world.hooks.register(silent.clone()).expect("a new name");
    (world, silent)
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_never_answers_does_not_keep_a_cancel_waiting() {
    for point in ["send_started", "before_model", "before_tool"] {
        let (world, silent) = silent(point, false).await;
        let key = world.session(external()).await;
        let _worker = world.worker("w", world.store.clone());
        let plan = json!([[["pay", {"n": 1}], ["pay", {"n": 2}], ["pay", {"n": 3}]]]);
        let id = world.send(key, &format!("plan {plan}")).await;
        world.pass(Duration::from_millis(100)).await;
        let calls = if point == "before_tool" { 3 } else { 1 };
        assert_eq!(silent.asked.load(Ordering::Relaxed), calls, "{point}");
        world.cancel(key, id).await;
        world.pass(Duration::from_millis(100)).await;
        let status = world.record(id).await.status;
        assert_eq!(status, SendStatus::Cancelled, "{point}");
        world.audit().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_never_answers_has_failed_when_its_time_is_over() {
    for (point, closed, rounds) in [
        ("send_started", false, 2),
        ("before_model", false, 2),
        ("before_tool", false, 2),
        ("before_tool", true, 2),
        ("send_ended", false, 2),
    ] {
        let (world, silent) = silent(point, closed).await;
        let key = world.session(agent()).await;
        let _worker = world.worker("w", world.store.clone());
        let plan = json!([[["look", {"n": 1}]]]);
        let id = world.send(key, &format!("plan {plan}")).await;
        let next = world.send(key, "next").await;
        let records = world.settle(&[id, next]).await;
        assert_eq!(records[0].status, SendStatus::Completed, "{point}");
        assert_eq!(records[0].rounds, rounds, "{point}");
        assert_eq!(records[1].status, SendStatus::Completed, "{point}");
        assert!(silent.asked.load(Ordering::Relaxed) > 0, "{point}");
        let calls = world.store.read_round(key, id, 0).await.expect("reads");
        let code = calls[0].result.as_ref().and_then(|result| result.code);
        assert_eq!(code, closed.then_some(Code::ToolDenied), "{point}");
    }
}

/// Makes failed calls be repeated, and sends the model back once.
#[derive(Debug, Default)]
struct Stubborn {
    stored: AtomicUsize,
}

#[async_trait]
impl Hook for Stubborn {
    fn name(&self) -> &'static str {
        "stubborn"
    }

    async fn tool_failed(
        &self,
        _at: At,
        call: &ToolCall,
        _result: &CallResult,
    ) -> Result<OnFailure, HookError> {
        Ok(
            match call.arguments.get("n").and_then(serde_json::Value::as_i64) {
                Some(1) => OnFailure::Retry,
                Some(2) => OnFailure::Instead(CallResult::text("all is well")),
                _ => OnFailure::Tell,
            },
        )
    }

    async fn before_end(&self, _at: At, ending: &Ending) -> Result<Option<GoOn>, HookError> {
        let reply = ending.reply.as_ref().expect("it ends with an answer");
        let done = plain_text(&reply.content) == "done";
        Ok((!done).then(|| GoOn {
            message: "that is not done".to_owned(),
            rounds: 0,
        }))
    }

    async fn observe(&self, _at: At, moment: Moment<'_>) -> Result<(), HookError> {
        if matches!(moment, Moment::RoundStored) {
            self.stored.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn failed_calls_are_made_again_and_answers_are_sent_back_as_hooks_want_it() {
    let mut world = World::new().await;
    let hook = Arc::new(Stubborn::default());
    world.hooks.register(hook.clone()).expect("a new name");
    let named = ["look", "act"].map(|name| ToolEntry::Named(name.into()));
    let key = world
        .session(AgentSpec {
            tools: named.into(),
            ..AgentSpec::default()
        })
        .await;
    let _worker = world.worker("w", world.store.clone());
    let calls = [
        json!(["look", {"n": 1, "fail": true}]),
        json!(["look", {"n": 2, "fail": true}]),
        json!(["look", {"n": 3, "fail": true}]),
        json!(["act", {"n": 1, "fail": true}]),
    ];
    let list = json!([calls, "half", "done"]);
    let id = world.send(key, &format!("answers {list}")).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.output_text.as_deref(), Some("done"));
    // The first call was repeated as often as a hook may ask for.
    assert_eq!((record.rounds, world.acts.of("look").len()), (3, 6));
    assert_eq!(world.acts.of("act").len(), 1, "it may run once");
    let session = world.dump().await.sessions.remove(0);
    let failed = session
        .calls
        .iter()
        .map(|call| call.result.as_ref().map(|r| r.failed));
    let failed: Vec<_> = failed.collect();
    assert_eq!(failed, [Some(true), Some(false), Some(true), Some(true)]);
    let said = session.messages.iter().rev().take(3);
    let said: Vec<String> = said.map(|m| plain_text(&m.content)).collect();
    assert_eq!(said, ["done", "that is not done", "half"]);
    assert_eq!(hook.stored.load(Ordering::Relaxed), 1);
    world.audit().await;
    // A hook that is never satisfied is ignored after a while.
    let other = world.session(AgentSpec::default()).await;
    let endless = world.send(other, "hello").await;
    let record = world.settle(&[endless]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    assert_eq!(record.rounds, 5);
}

/// Records the hook points around rounds, and forbids all calls of an answer that calls a tool
/// twice.
#[derive(Debug, Default)]
struct Rounds {
    seen: Mutex<Vec<String>>,
}

impl Rounds {
    fn note(&self, what: String) {
        self.seen.lock().expect("nobody panics under it").push(what);
    }
}

#[async_trait]
impl Hook for Rounds {
    fn name(&self) -> &'static str {
        "rounds"
    }

    async fn observe(&self, at: At, moment: Moment<'_>) -> Result<(), HookError> {
        match moment {
            Moment::RoundStarted => self.note(format!("round {}", at.round)),
            Moment::CallsOver(results) => {
                let said = results.iter().map(|(call, result)| {
                    format!("{}={}", call.name, result.code.map_or("ok", Code::as_str))
                });
                self.note(format!("over {}", said.collect::<Vec<_>>().join(" ")));
            }
            Moment::MessagesStored {
                first_seq,
                messages,
            } => {
                self.note(format!("stored {} from {first_seq}", messages.len()));
                return Err(HookError("of no consequence".into()));
            }
            _ => {}
        }
        Ok(())
    }

    async fn before_calls(&self, at: At, calls: &[ToolCall]) -> Decision<CallResult> {
        let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
        self.note(format!("asks {} {}", at.round, names.join(" ")));
        Ok(match names.as_slice() {
            ["look", "look"] => Verdict::Refuse("not twice".into()),
            ["put", "put"] => Verdict::Instead(CallResult::text("done before")),
            _ => Verdict::Go,
        })
    }
}

#[tokio::test(start_paused = true)]
async fn rounds_their_calls_and_their_messages_are_seen_and_calls_forbidden_together() {
    let mut world = World::new().await;
    let rounds = Arc::new(Rounds::default());
    world.hooks.register(rounds.clone()).expect("a new name");
    let key = world.session(agent()).await;
    let _worker = world.worker("w", world.store.clone());
    let plan = json!([
        [["look", {}], ["put", {"n": 1}]],
        [["look", {}], ["look", {}]],
        [["put", {}], ["put", {}]],
    ]);
    let id = world.send(key, &format!("plan {plan}")).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    let seen = rounds.seen.lock().expect("nobody panics under it").clone();
    let expected = [
        "round 0",
        "asks 0 look put",
        "stored 2 from 1",
        "stored 2 from 3",
        "over look=ok put=ok",
        "round 1",
        "asks 1 look look",
        "stored 3 from 5",
        "round 2",
        "asks 2 put put",
        "stored 3 from 8",
        "round 3",
        "stored 1 from 11",
    ];
    assert_eq!(seen, expected);
    let session = world.dump().await.sessions.remove(0);
    let results = session.messages.iter().filter(|m| m.role == Role::Tool);
    let texts: Vec<_> = results.map(|m| plain_text(&m.content)).collect();
    assert_eq!(texts[..2], ["look did 0", "put did 1"]);
    assert!(
        texts[2].contains("not twice") && texts[2] == texts[3],
        "{texts:?}"
    );
    assert_eq!(texts[4..], ["done before", "done before"]);
    assert_eq!(
        (world.acts.of("look").len(), world.acts.of("put").len()),
        (1, 1)
    );
    world.audit().await;
}
