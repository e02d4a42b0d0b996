//! What a model wrote as a call's arguments, to the byte: at hooks, at the tool, in the transcript, in the
//! events, and in the next request.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use mainspring_providers::{Kind, ProviderSettings};
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::event::expand;
use mainspring_shared::json::one_line;
use mainspring_shared::send::SendStatus;
use mainspring_shared::tool::schema::any_object;
use mainspring_shared::tool::{CallResult, Repeat, ToolEntry};
use mainspring_tests::world::World;
use mainspring_worker::hook::{At, Decision, Hook, ToolCall, Verdict};
use mainspring_worker::llm::ToolSpec;
use mainspring_worker::tool::{Invocation, Output, Tool, ToolError, Traits};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::server::{Answer, Server};
use super::settings;

/// Texts for each protocol; each is one whole send.
const CASES: usize = 40;

type Heard = Arc<Mutex<Vec<String>>>;

/// Hears what hooks and tools are given.
#[derive(Debug, Clone)]
struct Listener(Heard);

impl Listener {
    fn hear(&self, said: Option<&str>) {
        let said = said.unwrap_or("(nothing)").to_owned();
        self.0.lock().expect("nobody panics under it").push(said);
    }
}

#[async_trait]
impl Hook for Listener {
    fn name(&self) -> &'static str {
        "listener"
    }

    async fn before_tool(&self, _: At, call: &mut ToolCall) -> Decision<CallResult> {
        self.hear(call.said.as_deref());
        Ok(Verdict::Go)
    }
}

#[async_trait]
impl Tool for Listener {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "hear".to_owned(),
            description: String::new(),
            parameters: any_object(),
        }
    }

    fn traits(&self) -> Traits {
        Traits::new(Repeat::Safe)
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        self.hear(invocation.said.as_deref());
        Ok(Output::text("heard"))
    }
}

/// JSON objects with numbers in many forms, members in no order, and escapes that nobody needs.
fn objects() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<u64>().prop_map(|n| n.to_string()),
        (any::<i32>(), 0_usize..4).prop_map(|(n, zeros)| format!("{n}.5{}", "0".repeat(zeros))),
        (1_u8..9, 0_u8..20).prop_map(|(n, power)| format!("{n}e+{power}")),
        Just(r#""\u00e9\/""#.to_owned()),
        Just("-0.0".to_owned()),
        "[a-zé\u{1f980} \"\\\\\n]{0,12}".prop_map(|text| Value::String(text).to_string()),
    ];
    let item = leaf.prop_recursive(2, 8, 3, |inner| {
        prop::collection::vec(inner, 0..3).prop_map(|items| format!("[ {} ]", items.join(" ,")))
    });
    prop::collection::vec(item, 0..5).prop_map(|items| {
        let members = items.iter().enumerate();
        let members = members.map(|(n, item)| format!("\"m{}\" : {item}", 9 - n));
        format!("{{{}}}", members.collect::<Vec<_>>().join(",\r\n\t"))
    })
}

/// An answer with one call of these arguments.
fn calls(kind: Kind, text: &str) -> Answer {
    let quoted = Value::String(text.to_owned());
    let body = match kind {
        Kind::OpenAi => format!(
            r#"{{"id":"c","object":"chat.completion","model":"m","choices":[{{"index":0,"message":
            {{"role":"assistant","content":null,"tool_calls":[{{"id":"call_a","type":"function",
            "function":{{"name":"hear","arguments":{quoted}}}}}]}},"finish_reason":"tool_calls"}}],
            "usage":{{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}}}"#
        ),
        Kind::OpenAiResponses => format!(
            r#"{{"id":"resp_1","object":"response","status":"completed","model":"m","output":[{{
            "type":"function_call","id":"fc_1","call_id":"call_a","name":"hear","status":"completed",
            "arguments":{quoted}}}],"usage":{{"input_tokens":5,"output_tokens":1,"total_tokens":6}}}}"#
        ),
        Kind::Anthropic => format!(
            r#"{{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{{
            "type":"tool_use","id":"toolu_a","name":"hear","input":{text}}}],"stop_reason":"tool_use",
            "stop_sequence":null,"usage":{{"input_tokens":5,"output_tokens":1}}}}"#
        ),
        Kind::Demo => unreachable!("it has no socket"),
    };
    let body = body.into_bytes();
    Answer::new(200, "application/json", &body, body.len())
}

/// The arguments in the last request, as they stand there.
fn sent_back(kind: Kind, body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Sent<'a> {
        #[serde(borrow)]
        input: &'a RawValue,
    }
    let body: Value = match kind {
        Kind::Anthropic => {
            let text = std::str::from_utf8(body).expect("text");
            let at = text.find(r#""type":"tool_use""#).expect("the call is told");
            let from = text[..at].rfind('{').expect("an object");
            let mut values =
                serde_json::Deserializer::from_str(&text[from..]).into_iter::<Sent<'_>>();
            let sent = values.next().expect("one").expect("a call");
            return sent.input.get().to_owned();
        }
        Kind::OpenAi | Kind::OpenAiResponses | Kind::Demo => {
            serde_json::from_slice(body).expect("JSON")
        }
    };
    let text = if kind == Kind::OpenAi {
        body.pointer("/messages/1/tool_calls/0/function/arguments")
    } else {
        let items = body["input"].as_array().expect("items");
        let call = items.iter().find(|item| item["type"] == "function_call");
        call.map(|call| &call["arguments"])
    };
    text.and_then(Value::as_str).expect("a text").to_owned()
}

async fn passes(kind: Kind, text: &str) {
    // Fails if a test before this one did it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = Server::with(vec![calls(kind, text), super::amended::whole(kind)]).await;
    let heard = Listener(Heard::default());
    let tool = heard.clone();
    let mut world = World::with_tools(|tools, _, _| {
        tools.insert(Arc::new(tool)).expect("a new name");
    })
    .await;
    let hook = Arc::new(heard.clone());
    world.hooks.register(hook).expect("a new name");
    world.providers.push(ProviderSettings {
        stream: false,
        ..settings(kind, &server.url("/v1"))
    });
    let agent = AgentSpec {
        model: Some("test/m".into()),
        tools: vec![ToolEntry::Named("hear".into())],
        ..AgentSpec::default()
    };
    let key = world.session(agent).await;
    let _worker = world.worker("w", world.store.clone());
    let id = world.send(key, "go").await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{text}: {record:?}");
    let heard = heard.0.lock().expect("nobody panics under it").clone();
    assert_eq!(heard, [text, text], "{kind:?}: at the hook and at the tool");
    let session = world.dump().await.sessions.remove(0);
    let asking = session.messages.iter().find(|m| !m.tool_calls.is_empty());
    let asking = asking.expect("a call is stored");
    assert_eq!(
        asking.tool_calls[0].arguments.text(),
        text,
        "{kind:?}: stored"
    );
    let step = session.steps.iter().find(|step| step.refs.round.is_some());
    let step = step.expect("a round is stored");
    let events = expand(step, std::slice::from_ref(asking), None);
    let told = events
        .iter()
        .find(|event| event.name == "message.completed");
    let told = told.expect("is told");
    let line = one_line(text.to_owned());
    assert!(told.data.contains(&line), "{kind:?}: {told:?} lacks {line}");
    let last = server.received().pop().expect("was asked");
    assert_eq!(sent_back(kind, &last.body), text, "{kind:?}: sent back");
}

#[tokio::test]
async fn the_arguments_of_a_call_are_the_models_own_words_wherever_they_go() {
    let mut runner = TestRunner::new(Config::default());
    let objects = objects();
    for _ in 0..CASES {
        let text = objects.new_tree(&mut runner).expect("a value").current();
        for kind in [Kind::OpenAi, Kind::OpenAiResponses, Kind::Anthropic] {
            passes(kind, &text).await;
        }
    }
}

#[tokio::test]
async fn arguments_that_no_value_can_say_reach_no_tool_and_the_model_is_told_why() {
    for text in [
        r#"{"amount": 25000000000000000001}"#,
        r#"{"a": "x\u0000"}"#,
        r#"{"a": 1, "a": 2}"#,
        r#"{"a": "\ud83d"}"#,
    ] {
        for kind in [Kind::OpenAi, Kind::OpenAiResponses, Kind::Anthropic] {
            refused(kind, text).await;
        }
    }
}

async fn refused(kind: Kind, text: &str) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = Server::with(vec![calls(kind, text), super::amended::whole(kind)]).await;
    let heard = Listener(Heard::default());
    let tool = heard.clone();
    let mut world = World::with_tools(|tools, _, _| {
        tools.insert(Arc::new(tool)).expect("a new name");
    })
    .await;
    world.providers.push(ProviderSettings {
        stream: false,
        ..settings(kind, &server.url("/v1"))
    });
    let agent = AgentSpec {
        model: Some("test/m".into()),
        tools: vec![ToolEntry::Named("hear".into())],
        ..AgentSpec::default()
    };
    let key = world.session(agent).await;
    let _worker = world.worker("w", world.store.clone());
    let id = world.send(key, "go").await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{text}: {record:?}");
    assert_eq!(*heard.0.lock().expect("nobody panics under it"), [""; 0]);
    let asked = json!(String::from_utf8_lossy(
        &server.received().pop().expect("was asked").body
    ));
    assert!(
        asked.to_string().contains("cannot be used"),
        "{kind:?}: {asked}"
    );
    world.audit().await;
}
