//! Sends that require structured output, in simulated time: what is accepted, what is asked for
//! again, when that ends, and that a worker's death does not change it.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, OnBusy, SendOptions};
use mainspring_shared::error::Code;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::message::Role::{self, Assistant, Tool, User};
use mainspring_shared::message::plain_text;
use mainspring_shared::send::{SendRecord, SendStatus, StopReason};
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World};
use serde_json::{Value, json};

fn agent() -> AgentSpec {
    AgentSpec {
        tools: vec![ToolEntry::Named("look".into())],
        ..AgentSpec::default()
    }
}

fn schema() -> Value {
    json!({
        "type": "object",
        "required": ["n"],
        "properties": {"n": {"type": "integer", "minimum": 1}},
        "additionalProperties": false,
    })
}

fn options() -> SendOptions {
    SendOptions {
        output_schema: Some(schema()),
        ..SendOptions::default()
    }
}

fn answers(list: &Value) -> String {
    format!("answers {list}")
}

async fn said(world: &World) -> Vec<(Role, String)> {
    let session = world.dump().await.sessions.remove(0);
    let said = session.messages.iter();
    said.map(|m| (m.role, plain_text(&m.content))).collect()
}

fn roles(said: &[(Role, String)]) -> Vec<Role> {
    said.iter().map(|(role, _)| *role).collect()
}

/// Runs one send with these answers to its end.
async fn answered(list: &Value, options: SendOptions) -> (World, SessionKey, SendRecord) {
    let world = World::new().await;
    let key = world.session(agent()).await;
    let _worker = world.worker("w", world.store.clone());
    let id = world.send_with(key, &answers(list), options).await;
    let record = world.settle(&[id]).await.remove(0);
    world.audit().await;
    (world, key, record)
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_fits_is_the_sends_value_at_once() {
    let text = "Here it is:\n```json\n{\"n\": 3}\n```";
    let (world, _, record) = answered(&json!([text]), options()).await;
    assert_eq!(record.status, SendStatus::Completed);
    assert_eq!(record.stop_reason, Some(StopReason::End));
    assert_eq!(record.output, Some(json!({"n": 3})));
    assert_eq!(record.output_text.as_deref(), Some(text));
    assert_eq!((record.rounds, world.script.ledger().len()), (1, 1));
    let asked = &world.script.ledger()[0];
    let told = asked.tail.as_deref().expect("instructions");
    assert!(told.contains("\"minimum\":1"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn without_a_schema_there_is_no_value() {
    let (world, _, record) = answered(&json!(["{\"n\": 3}"]), SendOptions::default()).await;
    assert_eq!(record.status, SendStatus::Completed);
    assert_eq!(record.output, None);
    assert_eq!(world.script.ledger()[0].system, None);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_fit_is_asked_for_again_with_what_is_wrong() {
    let list = json!(["no idea", "{\"n\": 0, \"m\": 1}", "{\"n\": 1}"]);
    let (world, _, record) = answered(&list, options()).await;
    assert_eq!(record.status, SendStatus::Completed);
    assert_eq!(record.output, Some(json!({"n": 1})));
    assert_eq!(record.rounds, 3);
    assert_eq!(record.usage.input_tokens, 30);
    let said = said(&world).await;
    assert_eq!(
        roles(&said),
        [User, Assistant, User, Assistant, User, Assistant]
    );
    assert!(said[2].1.contains("no JSON"), "{}", said[2].1);
    for part in ["/n: 0 is less than the minimum of 1", "'m' was unexpected"] {
        assert!(said[4].1.contains(part), "{}", said[4].1);
    }
    // The model got what is stored.
    assert_eq!(world.script.ledger()[2].transcript, said[..5]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_fits_fails_the_send_with_its_fault() {
    for (text, code) in [
        ("no idea", Code::OutputNoJson),
        ("{\"n\": 1", Code::OutputInvalidJson),
        ("{\"n\": \"1\"}", Code::OutputSchemaMismatch),
    ] {
        let (world, key, record) = answered(&json!([text]), options()).await;
        assert_eq!(record.status, SendStatus::Failed);
        assert_eq!(record.stop_reason, Some(StopReason::ProviderError));
        assert_eq!(record.error.map(|error| error.code), Some(code));
        assert_eq!((record.output, record.rounds), (None, 3));
        assert_eq!(world.script.ledger().len(), 3);
        let said = said(&world).await;
        assert_eq!(
            roles(&said),
            [User, Assistant, User, Assistant, User, Assistant]
        );
        let _worker = world.worker("other", world.store.clone());
        let next = world.send(key, "and now?").await;
        let record = world.settle(&[next]).await.remove(0);
        assert_eq!(record.status, SendStatus::Completed);
    }
}

#[tokio::test(start_paused = true)]
async fn rounds_of_tools_come_before_and_between() {
    let list = json!([[["look", {"n": 1}]], "no", [["look", {"n": 2}]], "{\"n\": 2}"]);
    let (world, _, record) = answered(&list, options()).await;
    assert_eq!(record.output, Some(json!({"n": 2})));
    assert_eq!(record.rounds, 4);
    let expected = [
        User, Assistant, Tool, Assistant, User, Assistant, Tool, Assistant,
    ];
    assert_eq!(roles(&said(&world).await), expected);
}

#[tokio::test(start_paused = true)]
async fn the_last_round_is_not_spent_on_asking_again() {
    let limited = SendOptions {
        max_rounds: Some(2),
        ..options()
    };
    let (world, _, record) = answered(&json!(["no"]), limited).await;
    assert_eq!(
        record.error.map(|error| error.code),
        Some(Code::OutputNoJson)
    );
    assert_eq!((record.rounds, world.script.ledger().len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn the_sends_shape_goes_before_the_agents() {
    let world = World::new().await;
    let listed = json!({"name": "names", "schema": {"type": "array", "items": {"type": "string"}}});
    let spec = AgentSpec {
        output_schema: Some(listed),
        system_prompt: Some("Be brief.".into()),
        ..AgentSpec::default()
    };
    let key = world.session(spec).await;
    let _worker = world.worker("w", world.store.clone());
    let first = world.send(key, &answers(&json!(["[1]", "[\"a\"]"]))).await;
    let second = world
        .send_with(key, &answers(&json!(["{\"n\": 1}"])), options())
        .await;
    let records = world.settle(&[first, second]).await;
    assert_eq!(records[0].output, Some(json!(["a"])));
    assert_eq!(records[1].output, Some(json!({"n": 1})));
    let asked = world.script.ledger();
    let system = asked[0].system.as_deref().expect("instructions");
    assert!(system.starts_with("Be brief.\n\n"), "{system}");
    // A send's own schema comes after the messages, so that the prefix stays the agent's.
    let second = asked.last().expect("was asked");
    assert_eq!(second.system.as_deref(), Some("Be brief."));
    let told = second.tail.as_deref().expect("instructions");
    assert!(told.contains("\"minimum\":1"), "{told}");
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_steer_after_an_answer_asks_for_another_value() {
    let world = World::new().await;
    let key = world.session(agent()).await;
    let _worker = world.worker("w", world.store.clone());
    let list = json!([{"ms": 5000, "text": "{\"n\": 1}"}, "no", "{\"n\": 2}"]);
    let id = world.send_with(key, &answers(&list), options()).await;
    world.pass(Duration::from_secs(1)).await;
    world.deliver(key, "more", OnBusy::Steer).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.output, Some(json!({"n": 2})));
    let expected = [User, Assistant, User, Assistant, User, Assistant];
    assert_eq!(roles(&said(&world).await), expected);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn the_demo_model_answers_in_the_shape_that_is_asked_for() {
    let world = World::new().await;
    let spec = AgentSpec {
        model: Some("demo/demo".into()),
        ..AgentSpec::default()
    };
    let key = world.session(spec).await;
    let _worker = world.worker("w", world.store.clone());
    let id = world.send_with(key, "hello", options()).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.output, Some(json!({"n": 1})));
    assert_eq!(record.rounds, 1);
}

#[tokio::test(start_paused = true)]
async fn a_schema_that_is_none_fails_the_send_and_not_the_worker() {
    let broken = SendOptions {
        output_schema: Some(json!({"schema": {"type": "nonsense"}})),
        ..SendOptions::default()
    };
    let (world, _, record) = answered(&json!(["x"]), broken).await;
    let error = record.error.expect("it failed");
    assert_eq!(error.code, Code::SpecInvalid);
    assert!(error.message.contains("/schema"), "{}", error.message);
    assert!(world.script.ledger().is_empty());
}

/// A schema of nested levels, each of which applies the one below twice.
fn doubling() -> Value {
    let mut defs = serde_json::Map::new();
    defs.insert("a0".into(), json!({"type": "string"}));
    for level in 1..=30 {
        let below = json!({"$ref": format!("#/$defs/a{}", level - 1)});
        defs.insert(format!("a{level}"), json!({"allOf": [below, below]}));
    }
    json!({"$defs": defs, "$ref": "#/$defs/a30"})
}

#[tokio::test(start_paused = true)]
async fn a_schema_that_would_be_checked_for_ever_stalls_nobody() {
    let world = World::new().await;
    let hostile = SendOptions {
        output_schema: Some(doubling()),
        ..SendOptions::default()
    };
    let tool: ToolEntry = serde_json::from_value(json!({
        "type": "external", "name": "hostile", "parameters": {"properties": {"a": doubling()}},
    }))
    .expect("a tool");
    let spec = AgentSpec {
        tools: vec![tool],
        ..AgentSpec::default()
    };
    let (bad, armed, good) = (
        world.session(agent()).await,
        world.session(spec).await,
        world.session(agent()).await,
    );
    let _worker = world.worker("w", world.store.clone());
    let list = json!([[["hostile", {"a": 1}]], "done"]);
    let sends = [
        world.send_with(bad, &answers(&json!(["1"])), hostile).await,
        world.send(armed, &answers(&list)).await,
        world.send(good, "hello").await,
    ];
    #[expect(clippy::disallowed_methods, reason = "real time is what is measured")]
    let began = std::time::Instant::now();
    let records = world.settle(&sends).await;
    let took = began.elapsed();
    let error = records[0].error.clone().expect("it failed");
    assert_eq!(error.code, Code::SpecInvalid);
    assert!(error.message.contains("/$defs/a"), "{}", error.message);
    assert_eq!(records[1].output_text.as_deref(), Some("done"));
    assert_eq!(records[2].output_text.as_deref(), Some("echo: hello"));
    assert!(took < Duration::from_secs(10), "{took:?}");
    let said = world.script.ledger();
    let results: Vec<_> = said.iter().flat_map(|asked| &asked.transcript).collect();
    assert!(
        results
            .iter()
            .any(|(role, text)| *role == Tool && text.contains("no tool named")),
        "{results:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_fault_at_any_write_changes_nothing_of_the_outcome() {
    async fn run(plan: FaultPlan, list: &Value) -> (Outcome, bool) {
        let world = World::new().await;
        let key = world.session(agent()).await;
        let faulty = Arc::new(Faulty::new(world.store.clone(), plan));
        let id: SendId = world.send_with(key, &answers(list), options()).await;
        let _first = world.worker("first", faulty.clone());
        world.pass(Duration::from_millis(1)).await;
        let dies = matches!(plan.fault, Fault::DieBefore | Fault::DieAfter);
        let _second = dies.then(|| world.worker("second", world.store.clone()));
        let record = world.settle(&[id]).await.remove(0);
        world.pass(Duration::from_secs(20)).await;
        world.audit().await;
        let outcome = Outcome {
            status: record.status,
            output: record.output,
            error: record.error.map(|error| error.code),
            rounds: record.rounds,
            said: said(&world).await,
        };
        (outcome, faulty.fired())
    }
    let repaired = json!([[["look", {"n": 1}]], "no", "{\"n\": 0}", "{\"n\": 1}"]);
    for list in [repaired, json!(["no"])] {
        let (expected, _) = run(FaultPlan::NEVER, &list).await;
        for fault in Fault::ALL {
            let mut reached = 0;
            for at in 0.. {
                let (outcome, fired) = run(FaultPlan { at, fault }, &list).await;
                assert_eq!(outcome, expected, "{fault:?} at write {at}");
                if !fired {
                    break;
                }
                reached += 1;
            }
            assert!(
                reached > 3,
                "{fault:?} was injected at {reached} positions only"
            );
        }
    }
}

#[derive(Debug, PartialEq)]
struct Outcome {
    status: SendStatus,
    output: Option<Value>,
    error: Option<Code>,
    rounds: i32,
    said: Vec<(Role, String)>,
}
