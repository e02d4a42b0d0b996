use std::sync::Arc;

use mainspring_shared::agent::{ReasoningEffort, ToolChoice};
use mainspring_shared::id::SendId;
use mainspring_shared::message::{
    Attached, CallAttached, ContentPart, Message, NewMessage, Origin, Role, ToolCall,
};
use mainspring_shared::time::Timestamp;
use mainspring_worker::llm::ToolSpec;
use uuid::Uuid;

use super::*;
use crate::rules::{RuleBook, RuleSettings, SchemaDialect, ThinkingForm, ThinkingOff};

const HOST: &str = "api.anthropic.com";

fn origin(host: &str) -> Origin {
    Origin {
        protocol: "anthropic".to_owned(),
        host: host.to_owned(),
        model: "m".to_owned(),
        member: None,
    }
}

fn thought(text: &str, host: Option<&str>) -> ContentPart {
    ContentPart::Reasoning {
        text: text.to_owned(),
        signature: Some(format!("sig-{text}")),
        origin: host.map(|host| Box::new(origin(host))),
    }
}

fn call(id: &str, after: Option<u32>) -> ToolCall {
    ToolCall {
        after,
        ..ToolCall::new(id, "act", json!({ "x": 1 }))
    }
}

/// Messages with rising numbers and times.
fn messages(all: Vec<(Role, Vec<ContentPart>, Vec<ToolCall>)>) -> Vec<Arc<Message>> {
    let numbered = (1..).zip(all).map(|(seq, (role, content, tool_calls))| {
        let answers = (role == Role::Tool).then(|| plain(&content));
        let new = NewMessage {
            role,
            tool_calls,
            tool_call_id: answers,
            ..NewMessage::user(content, 0)
        };
        Arc::new(new.at(seq, SendId(Uuid::from_u128(7)), Timestamp(seq * 10), 1))
    });
    numbered.collect()
}

/// The first text, which in these tests is the id of the call that a result is for.
fn plain(content: &[ContentPart]) -> String {
    mainspring_shared::message::plain_text(content)
}

fn said(text: &str) -> ContentPart {
    ContentPart::text(text)
}

fn result(id: &str) -> (Role, Vec<ContentPart>, Vec<ToolCall>) {
    (Role::Tool, vec![said(id)], Vec::new())
}

fn asks(text: &str) -> (Role, Vec<ContentPart>, Vec<ToolCall>) {
    (Role::User, vec![said(text)], Vec::new())
}

fn rules(model: &str, host: &str) -> Arc<Rules> {
    RuleBook::new(Kind::Anthropic, host, None, &RuleSettings::default()).of(model)
}

fn written(request: &Request, rules: &Rules, host: &str) -> Value {
    let place = Place {
        host,
        rules,
        caches: false,
        streams: true,
        binding: rules.drop_block,
        native_schema: true,
    };
    let body = body(request, place).expect("JSON");
    serde_json::from_slice(&body).expect("JSON")
}

fn asked(model: &str) -> Request {
    Request {
        model: model.to_owned(),
        max_tokens: 8_000,
        ..crate::answer::tests::request()
    }
}

fn tool() -> Arc<ToolSpec> {
    Arc::new(ToolSpec {
        name: "act".to_owned(),
        description: String::new(),
        parameters: json!({ "type": "object", "properties": { "x": {} } }),
    })
}

fn kinds(message: &Value) -> Vec<&str> {
    let blocks = message["content"].as_array().expect("blocks");
    let kinds = blocks
        .iter()
        .map(|block| block["type"].as_str().expect("a type"));
    kinds.collect()
}

#[test]
fn thinking_behind_what_changed_is_dropped_where_that_may_be_asked_for() {
    let thinking = |model: &str, host: &str| {
        let request = asked(model);
        written(&request, &rules(model, host), host)["thinking"].clone()
    };
    let bound = json!({
        "type": "adaptive",
        "display": "summarized",
        "block_binding": { "prefix_mismatch_behavior": "drop_block" },
    });
    assert_eq!(thinking("claude-opus-5-5-20260901", HOST), bound);
    assert_eq!(thinking("claude-opus-5-5", "gateway.example"), Value::Null);
    assert_eq!(thinking("claude-opus-5", HOST), Value::Null);
}

#[test]
fn thinking_text_and_calls_of_an_answer_keep_their_order() {
    let content = vec![
        thought("a", Some(HOST)),
        said("first"),
        thought("b", Some(HOST)),
        said("last"),
    ];
    let calls = vec![call("1", Some(1)), call("2", Some(3))];
    let request = Request {
        messages: messages(vec![
            asks("q"),
            (Role::Assistant, content, calls),
            result("1"),
            result("2"),
        ]),
        ..asked("m")
    };
    let body = written(&request, &Rules::default(), HOST);
    assert_eq!(
        kinds(&body["messages"][1]),
        [
            "thinking", "tool_use", "text", "thinking", "tool_use", "text"
        ]
    );
    assert_eq!(kinds(&body["messages"][2]), ["tool_result", "tool_result"]);
}

#[test]
fn thinking_and_what_was_attached_go_back_only_to_whom_they_came_from() {
    let attached = |host: &str| {
        ContentPart::Attached(Attached {
            origin: Box::new(origin(host)),
            json: r#"{"type":"server_tool_use","id":"s1","input":{"n":1.50}}"#.to_owned(),
        })
    };
    let content = vec![
        thought("own", Some(HOST)),
        thought("old", None),
        thought("foreign", Some("other.example")),
        attached(HOST),
        attached("other.example"),
        said("text"),
    ];
    let request = Request {
        messages: messages(vec![asks("q"), (Role::Assistant, content, Vec::new())]),
        ..asked("m")
    };
    let rules = Rules::default();
    let body = written(&request, &rules, HOST);
    assert_eq!(
        kinds(&body["messages"][1]),
        ["thinking", "thinking", "server_tool_use", "text"]
    );
    // To the byte.
    let place = Place {
        host: HOST,
        rules: &rules,
        caches: true,
        streams: true,
        binding: false,
        native_schema: false,
    };
    let bytes = super::body(&request, place).expect("JSON");
    let text = String::from_utf8(bytes).expect("text");
    assert!(text.contains(r#""input":{"n":1.50}"#), "{text}");
}

#[test]
fn a_paused_answer_goes_back_as_it_is_and_nothing_follows_it() {
    let block = ContentPart::Attached(Attached {
        origin: Box::new(origin(HOST)),
        json: r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}"#.to_owned(),
    });
    let request = Request {
        messages: messages(vec![asks("q"), (Role::Assistant, vec![block], Vec::new())]),
        tail: Some("now".to_owned()),
        ..asked("m")
    };
    let body = written(&request, &Rules::default(), HOST);
    assert_eq!(body["messages"].as_array().map(Vec::len), Some(2));
    assert_eq!(kinds(&body["messages"][1]), ["server_tool_use"]);
    // Elsewhere nothing is left of it.
    let body = written(&request, &Rules::default(), "other.example");
    assert_eq!(body["messages"].as_array().map(Vec::len), Some(1));
}

#[test]
fn ids_that_the_provider_gave_go_back_byte_for_byte_in_calls_and_results() {
    let mut own = call("ses_own_id", None);
    own.attached = Some(Box::new(CallAttached {
        origin: origin(HOST),
        id: Some("toolu_01:odd".to_owned()),
        json: Some(r#"{"caller":{"type":"direct"},"name":"no"}"#.to_owned()),
    }));
    let foreign = call("functions.act:0", None);
    let request = Request {
        messages: messages(vec![
            asks("q"),
            (Role::Assistant, Vec::new(), vec![own, foreign]),
            result("ses_own_id"),
            result("functions.act:0"),
        ]),
        ..asked("m")
    };
    let body = written(&request, &Rules::default(), HOST);
    let calls = &body["messages"][1]["content"];
    let results = &body["messages"][2]["content"];
    assert_eq!(calls[0]["id"], "toolu_01:odd");
    assert_eq!(calls[0]["caller"], json!({ "type": "direct" }));
    assert_eq!(calls[0]["name"], "act");
    assert_eq!(results[0]["tool_use_id"], "toolu_01:odd");
    assert_eq!(calls[1]["id"], results[1]["tool_use_id"]);
    let fitted = calls[1]["id"].as_str().expect("an id");
    assert!(
        fitted
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)),
        "{fitted}"
    );
}

#[test]
fn bound_thinking_is_left_out_where_what_stands_before_it_has_changed() {
    let model = "claude-opus-5-5";
    let host = "gateway.example";
    let rules = rules(model, host);
    let answer = |text: &str, id: &str| {
        (
            Role::Assistant,
            vec![thought(text, Some(host)), said(text)],
            vec![call(id, None)],
        )
    };
    let mut request = Request {
        messages: messages(vec![
            asks("q"),
            answer("a", "1"),
            result("1"),
            asks("r"),
            answer("b", "2"),
            result("2"),
        ]),
        adaptive: true,
        ..asked(model)
    };
    let shown = |request: &Request| {
        let mut body = written(request, &rules, host)["messages"].to_string();
        body.retain(|c| !c.is_whitespace());
        ["a", "b"].map(|it| body.contains(&format!(r#""thinking":"{it}""#)))
    };
    let model_of = |request: &Request| request.model.clone();
    assert_eq!(model_of(&request), model);
    // The thinking of the present answer, of which nothing before has changed.
    for message in &mut request.messages {
        let mut changed = Message::clone(message);
        for part in &mut changed.content {
            if let ContentPart::Reasoning {
                origin: Some(origin),
                ..
            } = part
            {
                origin.model = model.to_owned();
            }
        }
        *message = Arc::new(changed);
    }
    assert_eq!(shown(&request), [false, true]);
    // What the tail followed is no longer there.
    request.tail = Some("t".to_owned());
    assert_eq!(shown(&request), [false, false]);
    request.tail = None;
    // A fold that was made after the answer.
    let fold = NewMessage::user(vec![said("summary")], 0);
    let fold = fold.at(1, SendId(Uuid::nil()), Timestamp(55), 0);
    request.messages[0] = Arc::new(fold.clone());
    assert_eq!(shown(&request), [false, false]);
    request.messages[0] = Arc::new(Message {
        created_at: Timestamp(35),
        ..fold
    });
    assert_eq!(shown(&request), [false, true]);
    request.settled = 6;
    assert_eq!(shown(&request), [false, false]);
    // Where it may be asked for, the provider drops it by itself.
    let mut own = Rules::clone(&rules);
    own.drop_block = true;
    let body = written(&request, &own, host)["messages"].to_string();
    assert!(body.contains(r#""thinking":"a""#), "{body}");
}

#[test]
fn thinking_does_not_begin_within_an_answer_that_acted_without_it() {
    let rules = Rules::default();
    let within = |content: Vec<ContentPart>| {
        let request = Request {
            messages: messages(vec![
                asks("q"),
                (Role::Assistant, content, vec![call("1", None)]),
                result("1"),
            ]),
            thinking_tokens: Some(2_000),
            temperature: Some(0.5),
            ..asked("claude-opus-4-5")
        };
        let body = written(&request, &rules, HOST);
        body["thinking"]["type"].clone()
    };
    assert_eq!(within(vec![said("of another provider")]), Value::Null);
    assert_eq!(
        within(vec![thought("a", Some("other.example"))]),
        Value::Null
    );
    assert_eq!(within(vec![thought("a", Some(HOST))]), "enabled");
    let later = Request {
        messages: messages(vec![
            asks("q"),
            (Role::Assistant, Vec::new(), vec![call("1", None)]),
            result("1"),
            asks("r"),
        ]),
        thinking_tokens: Some(2_000),
        ..asked("claude-opus-4-5")
    };
    // The results and what the user says next are one turn.
    assert_eq!(written(&later, &rules, HOST)["thinking"], Value::Null);
    let answered = Request {
        messages: messages(vec![
            asks("q"),
            (Role::Assistant, Vec::new(), vec![call("1", None)]),
            result("1"),
            (Role::Assistant, vec![said("done")], Vec::new()),
            asks("r"),
        ]),
        thinking_tokens: Some(2_000),
        ..asked("claude-opus-4-5")
    };
    assert_eq!(
        written(&answered, &rules, HOST)["thinking"]["type"],
        "enabled"
    );
}

#[test]
fn a_model_that_thinks_by_itself_is_told_not_to_where_that_is_possible() {
    let said = |model: &str| {
        let request = Request {
            reasoning_effort: Some(ReasoningEffort::None),
            ..asked(model)
        };
        written(&request, &rules(model, HOST), HOST)["thinking"]["type"].clone()
    };
    assert_eq!(said("claude-opus-5"), "disabled");
    assert_eq!(said("claude-haiku-5-5"), "disabled");
    assert_eq!(said("claude-sonnet-5-5"), "between_tools");
    assert_eq!(said("claude-opus-5-5"), "adaptive");
    assert_eq!(said("claude-opus-4-8"), Value::Null);
    assert_eq!(said("claude-sonnet-4-5"), Value::Null);
}

#[test]
fn models_of_unknown_names_get_neither_a_budget_nor_a_temperature() {
    for model in [
        "claude-opus-6",
        "anthropic.claude-opus-4-8-v1:0",
        "claude-opus-4-8@20260528",
    ] {
        let request = Request {
            temperature: Some(0.0),
            top_p: Some(0.5),
            reasoning_effort: Some(ReasoningEffort::High),
            ..asked(model)
        };
        let body = written(
            &request,
            &rules(model, "gateway.example"),
            "gateway.example",
        );
        assert_eq!(body["thinking"]["type"], "adaptive", "{model}");
        assert_eq!(body["output_config"]["effort"], "high", "{model}");
        assert!(
            body.get("temperature").is_none() && body.get("top_p").is_none(),
            "{model}"
        );
    }
}

#[test]
fn samplings_are_within_what_a_model_takes() {
    let model = "claude-sonnet-4-5";
    let request = Request {
        temperature: Some(1.7),
        top_p: Some(0.5),
        ..asked(model)
    };
    let body = written(&request, &rules(model, HOST), HOST);
    assert_eq!(body["temperature"], 1.0);
    assert_eq!(body.get("top_p"), None);
}

#[test]
fn a_demand_for_a_tool_is_made_without_thinking_or_not_at_all() {
    let said = |rules: &Rules, choice: ToolChoice| {
        let request = Request {
            tools: vec![tool()],
            tool_choice: choice,
            thinking_tokens: Some(2_000),
            parallel_tool_calls: Some(false),
            ..asked("m")
        };
        let body = written(&request, rules, HOST);
        (
            body["tool_choice"].clone(),
            body["thinking"]["type"].clone(),
        )
    };
    let mut rules = Rules {
        schema: SchemaDialect::Anthropic,
        forced_while_thinking: false,
        ..Rules::default()
    };
    let single = |kind: &str| json!({ "type": kind, "disable_parallel_tool_use": true });
    assert_eq!(
        said(&rules, ToolChoice::Auto),
        (single("auto"), json!("enabled"))
    );
    assert_eq!(
        said(&rules, ToolChoice::Required),
        (single("any"), Value::Null)
    );
    assert_eq!(
        said(&rules, ToolChoice::None),
        (json!({ "type": "none" }), json!("enabled"))
    );
    let named = json!({ "type": "tool", "name": "act", "disable_parallel_tool_use": true });
    assert_eq!(
        said(&rules, ToolChoice::Tool("act".to_owned())),
        (named, Value::Null)
    );
    rules.thinking = ThinkingForm::Adaptive;
    rules.thinking_off = ThinkingOff::Impossible;
    assert_eq!(
        said(&rules, ToolChoice::Required),
        (single("auto"), json!("adaptive"))
    );
}

#[test]
fn an_object_of_any_form_is_asked_for_in_words() {
    let request = Request {
        json_object: true,
        ..asked("m")
    };
    let body = written(&request, &Rules::default(), HOST);
    let system = body["system"][0]["text"].as_str().expect("a prompt");
    assert!(system.ends_with(JSON), "{system}");
}

#[test]
fn marks_are_set_behind_the_members_and_never_on_thinking() {
    let answer = (
        Role::Assistant,
        vec![said("x"), thought("a", Some(HOST))],
        Vec::new(),
    );
    let request = Request {
        messages: messages(vec![asks("q"), answer, asks("r")]),
        settled: 2,
        tools: vec![tool()],
        ..asked("m")
    };
    let rules = Rules::default();
    let place = Place {
        host: HOST,
        rules: &rules,
        caches: true,
        streams: true,
        binding: false,
        native_schema: false,
    };
    let body = body(&request, place).expect("JSON");
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    let ephemeral = json!({ "type": "ephemeral" });
    assert_eq!(
        body["messages"][1]["content"][0]["cache_control"],
        ephemeral
    );
    assert_eq!(body["messages"][1]["content"][1].get("cache_control"), None);
    assert_eq!(body["system"][0]["cache_control"], ephemeral);
}

mod reports;
