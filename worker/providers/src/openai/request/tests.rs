use std::sync::Arc;

use mainspring_shared::id::SendId;
use mainspring_shared::message::{
    Attached, CallAttached, ContentPart, FileSource, ImageSource, Message, NewMessage, Origin,
    Role, ToolCall,
};
use mainspring_shared::time::Timestamp;
use mainspring_worker::llm::ToolSpec;
use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::rules::{RuleBook, RuleSettings};

const LONG_ID: &str = "call_0123456789abcdef0123456789abcdef_12_3";

fn sent_as(vendor: Option<&str>, host: &str, request: &Request, stream: bool) -> Value {
    let said = RuleSettings {
        vendor: vendor.map(str::to_owned),
        ..RuleSettings::default()
    };
    let rules = RuleBook::new(Kind::OpenAi, host, None, &said).of(&request.model);
    let place = Place {
        host,
        rules: &rules,
        native_schema: true,
        stream,
    };
    let body = body(request, place).expect("a request");
    serde_json::from_slice(&body).expect("JSON")
}

fn sent(host: &str, request: &Request) -> Value {
    sent_as(None, host, request, true)
}

fn message(
    role: Role,
    content: Vec<ContentPart>,
    calls: Vec<ToolCall>,
    answers: Option<&str>,
) -> Arc<Message> {
    let new = NewMessage {
        role,
        tool_calls: calls,
        tool_call_id: answers.map(Into::into),
        ..NewMessage::user(content, 0)
    };
    Arc::new(new.at(1, SendId(Uuid::nil()), Timestamp(0), 1))
}

fn user(text: &str) -> Arc<Message> {
    message(Role::User, vec![ContentPart::text(text)], Vec::new(), None)
}

fn result(id: &str, content: Vec<ContentPart>) -> Arc<Message> {
    message(Role::Tool, content, Vec::new(), Some(id))
}

fn origin(host: &str, model: &str, member: Option<&str>) -> Origin {
    Origin {
        protocol: "openai".to_owned(),
        host: host.to_owned(),
        model: model.to_owned(),
        member: member.map(str::to_owned),
    }
}

fn thought(text: &str, from: Option<Origin>) -> ContentPart {
    ContentPart::Reasoning {
        text: text.to_owned(),
        signature: None,
        origin: from.map(Box::new),
    }
}

fn attached(host: &str, member: &str, json: &str) -> ContentPart {
    let origin = Box::new(origin(host, "m", Some(member)));
    ContentPart::Attached(Attached {
        origin,
        json: json.to_owned(),
    })
}

/// A call that `host` made, with the members that it attached.
fn call_of(host: &str, id: &str, own: &str, json: Option<&str>) -> ToolCall {
    let mut call = ToolCall::new(id, "read", json!({"path": "a"}));
    call.attached = Some(Box::new(CallAttached {
        origin: origin(host, "m", None),
        id: Some(own.to_owned()),
        json: json.map(str::to_owned),
    }));
    call
}

fn picture() -> ContentPart {
    let source = ImageSource::Base64 {
        media_type: "image/png".to_owned(),
        data: "AAAA".to_owned(),
    };
    ContentPart::Image { source }
}

fn pdf() -> ContentPart {
    let source = FileSource::Base64 {
        media_type: "application/pdf".to_owned(),
        data: "AAAA".to_owned(),
    };
    ContentPart::File {
        name: "a.pdf".to_owned(),
        source,
    }
}

fn read() -> Arc<ToolSpec> {
    Arc::new(ToolSpec {
        name: "read".to_owned(),
        description: "Reads.".repeat(400),
        parameters: json!({"type": "object", "properties": {"path": {"type": "string"}}}),
    })
}

fn asking(model: &str, messages: Vec<Arc<Message>>) -> Request {
    Request {
        model: model.to_owned(),
        messages,
        max_tokens: 100,
        ..Request::default()
    }
}

/// A conversation that began elsewhere, with all that a window can hold.
fn everything(model: &str, from: &str) -> Request {
    let (output, _) =
        OutputSpec::read(&json!({"type": "object", "properties": {}})).expect("a schema");
    let calls = vec![call_of(
        from,
        LONG_ID,
        "toolu_é",
        Some(r#"{"extra_content":{"x":1},"index":0}"#),
    )];
    let thoughts = vec![
        thought(
            "foreign",
            Some(origin(from, "m", Some("reasoning_content"))),
        ),
        attached(from, "reasoning_details", r#"[{"type":"reasoning.text"}]"#),
    ];
    let messages = vec![
        user("look"),
        message(Role::Assistant, thoughts, calls, None),
        result(LONG_ID, vec![picture(), pdf()]),
        user("steer"),
        message(
            Role::Assistant,
            vec![ContentPart::text("so")],
            vec![ToolCall::new("call_0", "read", Value::Null)],
            None,
        ),
        result("call_0", vec![ContentPart::text("")]),
    ];
    Request {
        system: Some("Be brief.".to_owned()),
        tail: Some("It is late.".to_owned()),
        temperature: Some(0.0),
        top_p: Some(0.5),
        stop: vec!["END".to_owned()],
        reasoning_effort: Some(ReasoningEffort::XHigh),
        tools: vec![read()],
        tool_choice: ToolChoice::Tool("read".to_owned()),
        parallel_tool_calls: Some(false),
        cache_key: Some("key".to_owned()),
        output: Some(Arc::new(output)),
        ..asking(model, messages)
    }
}

/// The names of the members of a list's objects.
fn names(list: &Value, role: &str) -> Vec<String> {
    let items = list
        .as_array()
        .into_iter()
        .flatten()
        .filter(|it| it["role"] == role || role.is_empty());
    items
        .flat_map(|it| it.as_object().into_iter().flat_map(|it| it.keys().cloned()))
        .collect()
}

/// What must not be in a request, by host and model.
const NEVER: &[(&str, &str, &[&str])] = &[
    (
        "api.openai.com",
        "gpt-5-mini",
        &["max_tokens", "temperature", "top_p", "stop"],
    ),
    (
        "api.openai.com",
        "gpt-5.2",
        &["max_tokens", "temperature", "top_p", "stop"],
    ),
    (
        "api.openai.com",
        "gpt-6-astra",
        &["max_tokens", "temperature", "top_p", "stop"],
    ),
    (
        "api.openai.com",
        "o3",
        &["max_tokens", "temperature", "top_p", "stop"],
    ),
    (
        "api.openai.com",
        "gpt-4.1",
        &["reasoning_effort", "max_tokens"],
    ),
    (
        "me.openai.azure.com",
        "gpt-5-mini",
        &["max_tokens", "temperature", "top_p"],
    ),
    ("me.openai.azure.com", "prod", &["max_tokens"]),
    (
        "gateway.example",
        "openai/gpt-5",
        &["max_tokens", "temperature", "top_p"],
    ),
    (
        "generativelanguage.googleapis.com",
        "gemini-2.5-flash",
        &["response_format", "parallel_tool_calls", "prompt_cache_key"],
    ),
    (
        "api.mistral.ai",
        "devstral-2512",
        &[
            "max_completion_tokens",
            "reasoning_effort",
            "stream_options",
            "prompt_cache_key",
        ],
    ),
    (
        "api.groq.com",
        "llama-3.3-70b-versatile",
        &["response_format", "reasoning_effort", "prompt_cache_key"],
    ),
    (
        "api.groq.com",
        "openai/gpt-oss-120b",
        &["response_format", "prompt_cache_key"],
    ),
    (
        "api.cerebras.ai",
        "zai-glm-4.7",
        &["reasoning_effort", "prompt_cache_key"],
    ),
    (
        "api.deepseek.com",
        "deepseek-v4-pro",
        &["reasoning_effort", "tool_choice"],
    ),
    (
        "api.moonshot.ai",
        "kimi-k2.5",
        &["temperature", "top_p", "reasoning_effort", "tool_choice"],
    ),
    ("api.z.ai", "glm-5.2", &["tool_choice", "reasoning_effort"]),
    (
        "api.minimax.io",
        "MiniMax-M3",
        &["tool_choice", "response_format"],
    ),
    (
        "dashscope-intl.aliyuncs.com",
        "qwen3.7-max",
        &["tool_choice", "reasoning_effort", "response_format"],
    ),
    ("api.x.ai", "grok-4", &["stop", "reasoning_effort"]),
    ("api.x.ai", "grok-4.6", &["stop"]),
    ("localhost:11434", "llama3", &[]),
];

#[test]
fn no_request_holds_what_its_vendor_refuses() {
    let has = |value: &Value, name: &str| !value[name].is_null();
    for &(host, model, never) in NEVER {
        let body = sent(host, &everything(model, "elsewhere.example"));
        for name in never {
            assert!(!has(&body, name), "{host} {model}: {name} in {body}");
        }
        for name in names(&body["messages"], "assistant") {
            let known = ["role", "content", "tool_calls"].contains(&name.as_str());
            // Of those that demand it, even if it is empty.
            let demanded = name == "reasoning_content"
                && (host.contains("deepseek") || host.contains("moonshot"));
            assert!(
                known || demanded || host.contains("minimax"),
                "{host} {model}: {name}"
            );
        }
        for message in body["messages"].as_array().expect("messages") {
            for name in names(&message["tool_calls"], "") {
                let dummy = name == "extra_content" && model.starts_with("gemini-3");
                assert!(
                    ["id", "type", "function"].contains(&name.as_str()) || dummy,
                    "{host}: {name}"
                );
            }
            let is_empty = message["content"] == "";
            let demanded = host == "api.x.ai" && message["role"] == "assistant";
            assert!(!is_empty || demanded, "{host} {model}: {message}");
        }
    }
}

#[test]
fn servers_are_sent_what_they_take_where_the_operator_names_them() {
    let ollama = sent_as(
        Some("ollama"),
        "10.0.0.7",
        &everything("qwen3", "there"),
        true,
    );
    assert_eq!(ollama["response_format"], Value::Null);
    let studio = sent_as(
        Some("lmstudio"),
        "10.0.0.7",
        &everything("qwen3", "there"),
        true,
    );
    assert_eq!(studio["tool_choice"], "required");
    let json = Request {
        json_object: true,
        ..asking("qwen3", vec![user("q")])
    };
    assert_eq!(
        sent_as(Some("lmstudio"), "10.0.0.7", &json, true)["response_format"],
        Value::Null
    );
    assert_eq!(
        sent_as(Some("vllm"), "10.0.0.7", &json, true)["response_format"],
        json!({"type": "json_object"})
    );
}

#[test]
fn nothing_of_the_user_follows_results_where_that_is_refused() {
    let roles = |body: &Value| {
        let messages = body["messages"].as_array().expect("messages").iter();
        messages
            .map(|it| it["role"].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    let body = sent(
        "api.mistral.ai",
        &everything("devstral", "elsewhere.example"),
    );
    let mistral = roles(&body);
    assert!(
        mistral.windows(2).all(|pair| pair != ["tool", "user"]),
        "{mistral:?}"
    );
    let last = &body["messages"].as_array().expect("messages")[mistral.len() - 1];
    assert_eq!(last["role"], "tool");
    assert!(
        last["content"]
            .as_str()
            .expect("text")
            .ends_with("It is late.")
    );
    assert!(body.to_string().contains("image_url") && body.to_string().contains("document_url"));
    assert!(body.to_string().contains("steer"));
    let openai = roles(&sent(
        "api.openai.com",
        &everything("gpt-4.1", "elsewhere.example"),
    ));
    assert!(
        openai.windows(2).any(|pair| pair == ["tool", "user"]),
        "{openai:?}"
    );
}

#[test]
fn empty_texts_are_said_to_be_empty_and_the_content_beside_calls_is_the_vendors() {
    let calls = vec![ToolCall::new("call_a", "read", json!({}))];
    let messages = vec![
        user(" "),
        message(Role::Assistant, Vec::new(), calls, None),
        result("call_a", vec![ContentPart::text("")]),
    ];
    for (host, model, beside) in [
        ("api.moonshot.ai", "kimi-k2.5", Value::Null),
        ("api.x.ai", "grok-4.5", json!("")),
        ("api.openai.com", "gpt-4.1", Value::Null),
    ] {
        let body = sent(host, &asking(model, messages.clone()));
        assert_eq!(body["messages"][0]["content"], "[empty]", "{host}");
        assert_eq!(body["messages"][1]["content"], beside, "{host}");
        assert_eq!(body["messages"][2]["content"], "[empty]", "{host}");
    }
}

#[test]
fn the_choice_of_a_tool_is_said_in_each_vendors_words_and_else_made_by_what_is_offered() {
    let other = Arc::new(ToolSpec {
        name: "write".to_owned(),
        ..(*read()).clone()
    });
    let ask = |host: &str, model: &str, choice: ToolChoice| {
        let request = Request {
            tools: vec![read(), Arc::clone(&other)],
            tool_choice: choice,
            parallel_tool_calls: Some(false),
            ..asking(model, vec![user("q")])
        };
        let body = sent(host, &request);
        let count = body["tools"].as_array().map_or(0, Vec::len);
        (
            body["tool_choice"].clone(),
            count,
            body["parallel_tool_calls"].clone(),
        )
    };
    let named = || ToolChoice::Tool("read".to_owned());
    let off = json!(false);
    assert_eq!(
        ask("api.openai.com", "gpt-4.1", ToolChoice::Auto),
        (Value::Null, 2, off.clone())
    );
    assert_eq!(
        ask("api.openai.com", "gpt-4.1", ToolChoice::Required),
        (json!("required"), 2, off.clone())
    );
    let by_name = json!({"type": "function", "function": {"name": "read"}});
    assert_eq!(
        ask("api.openai.com", "gpt-4.1", named()),
        (by_name, 2, off.clone())
    );
    assert_eq!(
        ask("api.mistral.ai", "devstral", ToolChoice::Required),
        (json!("any"), 2, off.clone())
    );
    assert_eq!(
        ask("api.z.ai", "glm-5.2", ToolChoice::None),
        (Value::Null, 0, Value::Null)
    );
    assert_eq!(
        ask("api.z.ai", "glm-5.2", named()),
        (Value::Null, 1, Value::Null)
    );
    assert_eq!(
        ask("localhost", "m", ToolChoice::None),
        (json!("none"), 2, off)
    );
    let bare = Request {
        parallel_tool_calls: Some(true),
        tool_choice: ToolChoice::Required,
        ..asking("gpt-4.1", vec![user("q")])
    };
    let bare = sent("api.openai.com", &bare);
    assert_eq!(
        (&bare["tool_choice"], &bare["parallel_tool_calls"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn an_object_is_asked_for_with_the_word_that_vendors_look_for() {
    let ask = |system: Option<&str>| {
        let request = Request {
            json_object: true,
            system: system.map(str::to_owned),
            ..asking("gpt-4.1", vec![user("q")])
        };
        let body = sent("api.openai.com", &request);
        assert_eq!(body["response_format"], json!({"type": "json_object"}));
        body["messages"][0]["content"]
            .as_str()
            .expect("text")
            .to_owned()
    };
    assert_eq!(ask(None), JSON);
    assert_eq!(ask(Some("Say it as JSON.")), "Say it as JSON.");
    assert_eq!(ask(Some("Be brief.")), format!("Be brief.\n\n{JSON}"));
    let (output, _) =
        OutputSpec::read(&json!({"type": "object", "properties": {}})).expect("a schema");
    let request = Request {
        output: Some(Arc::new(output)),
        ..asking("deepseek-v4-pro", vec![user("q")])
    };
    assert_eq!(
        sent("api.deepseek.com", &request)["response_format"],
        json!({"type": "json_object"})
    );
}

#[test]
fn thinking_is_turned_off_where_an_effort_is_no_member() {
    let ask = |host: &str, model: &str, effort, stream| {
        let request = Request {
            reasoning_effort: effort,
            ..asking(model, vec![user("q")])
        };
        sent_as(None, host, &request, stream)
    };
    let off = Some(ReasoningEffort::None);
    let on = Some(ReasoningEffort::High);
    assert_eq!(
        ask("api.z.ai", "glm-5.2", off, true)["thinking"],
        json!({"type": "disabled"})
    );
    assert_eq!(
        ask("api.deepseek.com", "deepseek-v4-pro", on, true)["thinking"],
        json!({"type": "enabled"})
    );
    assert_eq!(
        ask("api.deepseek.com", "deepseek-v4-pro", None, true)["thinking"],
        Value::Null
    );
    let qwen = |effort, stream| {
        ask("dashscope.aliyuncs.com", "qwen3.7-max", effort, stream)["enable_thinking"].clone()
    };
    assert_eq!(
        (qwen(off, true), qwen(on, true), qwen(None, true)),
        (json!(false), json!(true), Value::Null)
    );
    assert_eq!(qwen(on, false), json!(false));
}

mod back;
mod reports;
