use std::sync::Arc;

use mainspring_shared::agent::{OutputSpec, ToolChoice};
use mainspring_shared::id::SendId;
use mainspring_shared::message::{CallAttached, NewMessage, Origin, Role};
use mainspring_shared::time::Timestamp;
use mainspring_worker::llm::ToolSpec;
use uuid::Uuid;

use super::*;
use crate::rules::{RuleBook, RuleSettings};

const HOST: &str = "api.openai.com";

fn origin(host: &str) -> Origin {
    Origin {
        protocol: "openai-responses".to_owned(),
        host: host.to_owned(),
        model: "gpt-5.6".to_owned(),
        member: None,
    }
}

fn thought(id: &str, host: Option<&str>) -> ContentPart {
    let item = Signature::Item {
        id,
        model: "gpt-5.6",
        encrypted: "ENC",
    };
    ContentPart::Reasoning {
        text: String::new(),
        signature: Some(item.store()),
        origin: host.map(|host| Box::new(origin(host))),
    }
}

fn call(id: &str, after: Option<u32>) -> ToolCall {
    ToolCall {
        after,
        ..ToolCall::new(id, "act", json!({ "x": 1 }))
    }
}

fn message(role: Role, content: Vec<ContentPart>, calls: Vec<ToolCall>) -> Arc<Message> {
    let answers = mainspring_shared::message::plain_text(&content);
    let new = NewMessage {
        role,
        tool_calls: calls,
        tool_call_id: (role == Role::Tool).then_some(answers),
        ..NewMessage::user(content, 0)
    };
    Arc::new(new.at(1, SendId(Uuid::nil()), Timestamp(0), 1))
}

fn asked(messages: Vec<Arc<Message>>) -> Request {
    Request {
        model: "gpt-5.6".to_owned(),
        messages,
        ..crate::answer::tests::request()
    }
}

fn rules(model: &str) -> Arc<Rules> {
    let said = RuleSettings::default();
    RuleBook::new(Kind::OpenAiResponses, HOST, None, &said).of(model)
}

fn written(request: &Request) -> Value {
    let wants = Wants {
        native_schema: true,
        stream: true,
        background: false,
    };
    let place = Place {
        host: HOST,
        rules: &rules(&request.model),
        wants,
    };
    let body = body(request, place).expect("JSON");
    serde_json::from_slice(&body).expect("JSON")
}

/// The items, by their ids, or by their types.
fn items(body: &Value) -> Vec<&str> {
    let items = body["input"].as_array().expect("items");
    items
        .iter()
        .map(|item| {
            let id = item.get("id").or_else(|| item.get("call_id"));
            id.or_else(|| item.get("type"))
                .and_then(Value::as_str)
                .expect("an id or a type")
        })
        .collect()
}

fn tool(parameters: Value) -> Arc<ToolSpec> {
    Arc::new(ToolSpec {
        name: "act".to_owned(),
        description: String::new(),
        parameters,
    })
}

#[test]
fn each_reasoning_item_stays_before_what_it_led_to() {
    let content = vec![
        thought("rs_1", Some(HOST)),
        thought("rs_2", Some(HOST)),
        ContentPart::text("so"),
    ];
    let calls = vec![call("1", Some(1)), call("2", Some(2))];
    let body = written(&asked(vec![message(Role::Assistant, content, calls)]));
    assert_eq!(items(&body)[..5], ["rs_1", "1", "rs_2", "2", "message"]);
}

#[test]
fn reasoning_without_what_it_led_to_is_left_out() {
    // Stored without the calls' places: what led to which is not known.
    let content = vec![thought("rs_1", None), thought("rs_2", None)];
    let calls = vec![call("1", None), call("2", None)];
    let body = written(&asked(vec![message(Role::Assistant, content, calls)]));
    assert_eq!(items(&body)[..3], ["rs_2", "1", "2"]);
    let content = vec![ContentPart::text("so"), thought("rs_1", None)];
    let body = written(&asked(vec![message(Role::Assistant, content, Vec::new())]));
    assert_eq!(items(&body), ["message"]);
}

#[test]
fn reasoning_and_ids_go_back_only_to_whom_they_came_from() {
    let mut own = call("1", Some(2));
    own.attached = Some(Box::new(CallAttached {
        origin: origin(HOST),
        id: Some("call_own".to_owned()),
        json: Some(r#"{"id":"fc_1","namespace":"n"}"#.to_owned()),
    }));
    let mut foreign = call("2", Some(2));
    foreign.attached = Some(Box::new(CallAttached {
        origin: origin("other.example"),
        id: Some("call_foreign".to_owned()),
        json: Some(r#"{"namespace":"n"}"#.to_owned()),
    }));
    let content = vec![
        thought("rs_1", Some("other.example")),
        thought("rs_2", Some(HOST)),
    ];
    let result = |id: &str| message(Role::Tool, vec![ContentPart::text(id)], Vec::new());
    let body = written(&asked(vec![
        message(Role::Assistant, content, vec![own, foreign]),
        result("1"),
        result("2"),
    ]));
    assert_eq!(items(&body), ["rs_2", "call_own", "2", "call_own", "2"]);
    assert_eq!(body["input"][1]["namespace"], "n");
    assert_eq!(body["input"][2].get("namespace"), None);
}

#[test]
fn what_the_api_has_no_member_for_or_a_model_refuses_is_left_out() {
    let request = Request {
        stop: vec!["END".to_owned()],
        temperature: Some(0.0),
        top_p: Some(0.5),
        reasoning_effort: Some(ReasoningEffort::Max),
        parallel_tool_calls: Some(false),
        max_tokens: 4,
        ..asked(Vec::new())
    };
    let of = |model: &str| {
        let request = Request {
            model: model.to_owned(),
            ..request.clone()
        };
        written(&request)
    };
    let body = of("gpt-5.6");
    for member in [
        "stop",
        "temperature",
        "top_p",
        "parallel_tool_calls",
        "tool_choice",
    ] {
        assert_eq!(body.get(member), None, "{member}");
    }
    assert_eq!(body["reasoning"]["effort"], "max");
    assert_eq!(body["include"], json!([ENCRYPTED_REASONING]));
    assert_eq!(body["max_output_tokens"], 16);
    assert_eq!(of("gpt-5")["reasoning"]["effort"], "high");
    let plain = of("gpt-4.1");
    assert_eq!((plain.get("reasoning"), plain.get("include")), (None, None));
    assert_eq!(plain["temperature"], 0.0);
}

#[test]
fn schemas_of_tools_and_answers_have_no_one_of_and_say_whether_they_are_strict() {
    let schema = json!({
        "type": "object",
        "properties": { "a": { "oneOf": [{ "type": "string" }, { "type": "integer" }] } },
    });
    let request = Request {
        tools: vec![tool(schema.clone())],
        output: Some(Arc::new(OutputSpec {
            name: "answer".to_owned(),
            schema,
            strict: false,
            any_object: false,
        })),
        tool_choice: ToolChoice::Tool("act".to_owned()),
        parallel_tool_calls: Some(false),
        ..asked(Vec::new())
    };
    let body = written(&request);
    assert!(!body.to_string().contains("oneOf"), "{body}");
    assert_eq!(body["tools"][0]["strict"], false);
    assert_eq!(body["text"]["format"]["strict"], false);
    assert_eq!(body["text"]["format"]["type"], "json_schema");
    assert_eq!(
        body["tool_choice"],
        json!({ "type": "function", "name": "act" })
    );
    assert_eq!(body["parallel_tool_calls"], false);
}

#[test]
fn an_object_of_any_form_is_demanded_and_named_in_the_instructions() {
    let request = Request {
        json_object: true,
        ..asked(Vec::new())
    };
    let body = written(&request);
    assert_eq!(body["text"]["format"], json!({ "type": "json_object" }));
    assert!(
        body["instructions"]
            .as_str()
            .is_some_and(|text| text.contains("JSON"))
    );
}

#[test]
fn texts_that_say_nothing_are_filled() {
    let asking = message(Role::Assistant, Vec::new(), vec![call("", None)]);
    let body = written(&asked(vec![
        message(Role::User, vec![ContentPart::text(" ")], Vec::new()),
        asking,
        message(Role::Tool, vec![ContentPart::text("")], Vec::new()),
    ]));
    assert_eq!(body["input"][0]["content"][0]["text"], "[empty]");
    assert_eq!(body["input"][2]["output"], "[empty]");
}

#[test]
fn what_a_text_is_for_goes_back_with_it_to_whoever_said_so() {
    let phase = |phase: &str, host: &str| {
        ContentPart::Attached(Attached {
            origin: Box::new(origin(host)),
            json: json!({ "phase": phase }).to_string(),
        })
    };
    let answer = message(
        Role::Assistant,
        vec![
            phase("commentary", HOST),
            ContentPart::text("I look."),
            ContentPart::text("Still."),
            phase("final_answer", "gateway.example"),
            ContentPart::text("So."),
            phase("final_answer", HOST),
            ContentPart::text("It is."),
        ],
        Vec::new(),
    );
    let user = message(Role::User, vec![ContentPart::text("And?")], Vec::new());
    let body = written(&asked(vec![user.clone(), answer, user]));
    let said: Vec<_> = body["input"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| (item["content"][0]["text"].as_str(), item["phase"].as_str()))
        .collect();
    let expected = [
        (Some("And?"), None),
        (Some("I look."), Some("commentary")),
        (Some("Still."), None),
        (Some("So."), None),
        (Some("It is."), Some("final_answer")),
        (Some("And?"), None),
    ];
    assert_eq!(said, expected, "{body}");
}
