//! Requests, byte for byte.

use std::sync::Arc;

use mainspring_providers::Kind;
use mainspring_shared::agent::{OutputSpec, ReasoningEffort};
use mainspring_shared::message::{
    ContentPart, FileSource, ImageSource, NewMessage, Role, ToolCall,
};
use mainspring_worker::llm::{Error, Request, Secret, ToolSpec};
use serde_json::{Value, json};

use super::server::{Answer, Received, Server};
use super::{KEY, ask, hello, message, model, said, settings};

pub(crate) async fn sent(kind: Kind, path: &str, stream: bool, request: &Request) -> Received {
    let server = Server::start(Answer::new(500, "text/plain", b"no", 100)).await;
    let mut settings = settings(kind, &server.url(path));
    settings.stream = stream;
    settings
        .headers
        .push(("x-organisation".to_owned(), Secret::new("acme")));
    let _ = ask(&*model(&settings), request).await;
    let received = server.received();
    assert_eq!(received.len(), 1);
    received[0].clone()
}

pub(crate) async fn body(kind: Kind, request: &Request) -> String {
    let received = sent(kind, "/v1", true, request).await;
    let value: Value = serde_json::from_slice(&received.body).unwrap();
    serde_json::to_string_pretty(&value).unwrap()
}

fn call(id: &str, name: &str, arguments: Value) -> ToolCall {
    ToolCall::new(id, name, arguments)
}

pub(crate) fn result(id: &str, text: &str) -> NewMessage {
    let mut message = NewMessage {
        tool_call_id: Some(id.to_owned()),
        name: Some("read".to_owned()),
        ..said(Role::Tool, text)
    };
    // Digests are never sent to a model.
    let digest = "what is left of it".to_owned();
    message.content.push(ContentPart::Digest { text: digest });
    message
}

pub(crate) fn reasoning(text: &str, signature: Option<&str>) -> ContentPart {
    ContentPart::Reasoning {
        text: text.to_owned(),
        signature: signature.map(Into::into),
        origin: None,
    }
}

/// A conversation with everything that a window can contain, starting in the middle.
pub(crate) fn long() -> Request {
    let asking = NewMessage {
        content: vec![
            reasoning("signed", Some("c2ln")),
            reasoning("", Some("redacted:c2VhbGVk")),
            ContentPart::text("I look."),
        ],
        tool_calls: vec![
            call("call_1", "read", json!({"path": "a.txt", "lines": [1, 2]})),
            call("functions.now:0", "now", json!({})),
            call("call_3", "write", json!("{\"text\": \"cut o")),
        ],
        ..said(Role::Assistant, "")
    };
    let thinking = NewMessage {
        content: vec![
            reasoning("unsigned", None),
            ContentPart::text("So it is "),
            ContentPart::text("done."),
        ],
        ..said(Role::Assistant, "")
    };
    let only_thought = NewMessage {
        content: vec![reasoning("alone", None)],
        ..said(Role::Assistant, "")
    };
    let news = [
        result("call_0", "of a call before the window"),
        said(Role::Assistant, "earlier"),
        said(Role::User, "look"),
        asking,
        result("functions.now:0", ""),
        result("call_1", "contents \"é\"\n"),
        result("call_3", "invalid arguments"),
        thinking,
        said(Role::User, "first"),
        only_thought,
        said(Role::User, "  "),
        said(Role::User, "second"),
    ];
    Request {
        system: Some("Be brief.".to_owned()),
        messages: (1..)
            .zip(news)
            .map(|(seq, new)| message(seq, new))
            .collect(),
        temperature: Some(0.5),
        tools: vec![
            Arc::new(ToolSpec {
                name: "read".to_owned(),
                description: "Reads a file.".to_owned(),
                parameters: json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}),
            }),
            Arc::new(ToolSpec {
                name: "now".to_owned(),
                description: String::new(),
                parameters: Value::Null,
            }),
        ],
        ..hello()
    }
}

#[tokio::test]
async fn a_long_conversation_is_sent_as_chat_completions_want_it() {
    insta::assert_snapshot!(body(Kind::OpenAi, &long()).await);
}

#[tokio::test]
async fn a_long_conversation_is_sent_as_messages_want_it() {
    insta::assert_snapshot!(body(Kind::Anthropic, &long()).await);
}

/// A body without its cache marks, which move with the conversation and are not part of what is
/// cached.
fn unmarked(body: Vec<u8>) -> String {
    let body = String::from_utf8(body).unwrap();
    body.replace(r#","cache_control":{"type":"ephemeral"}"#, "")
}

#[tokio::test]
async fn a_request_is_marked_where_the_next_one_goes_on() {
    let mut request = long();
    request.tail = Some("<notes>\nblue\n</notes>".to_owned());
    let received = sent(Kind::Anthropic, "/v1", true, &request).await;
    let body: Value = serde_json::from_slice(&received.body).unwrap();
    let marked = |block: &Value| block.get("cache_control").is_some();
    assert!(marked(&body["system"][0]));
    assert!(!body["tools"].as_array().unwrap().iter().any(marked));
    let blocks = |message: &Value| message["content"].as_array().unwrap().clone();
    let messages = body["messages"].as_array().unwrap();
    let (last, before) = messages.split_last().unwrap();
    let last = blocks(last);
    let [.., end, tail] = last.as_slice() else {
        panic!("{last:?}");
    };
    assert_eq!(end["text"], "second");
    assert!(marked(end));
    assert_eq!(tail["text"], "<notes>\nblue\n</notes>");
    assert!(!marked(tail));
    let earlier = before
        .iter()
        .filter(|message| blocks(message).iter().any(marked));
    let earlier: Vec<_> = earlier
        .map(|message| blocks(message).pop().unwrap())
        .collect();
    assert_eq!(earlier.len(), 1);
    assert_eq!(earlier[0]["tool_use_id"], "call_3");
}

#[tokio::test]
async fn marks_can_be_left_out() {
    let server = Server::start(Answer::new(500, "text/plain", b"no", 100)).await;
    let mut settings = settings(Kind::Anthropic, &server.url("/v1"));
    settings.prompt_cache = false;
    let _ = ask(&*model(&settings), &long()).await;
    let body = String::from_utf8(server.received()[0].body.clone()).unwrap();
    assert!(!body.contains("cache_control"), "{body}");
}

#[tokio::test]
async fn how_an_answer_is_sampled_and_ended_is_passed_on() {
    let request = Request {
        top_p: Some(0.25),
        stop: vec!["END".to_owned()],
        reasoning_effort: Some(ReasoningEffort::Low),
        ..hello()
    };
    let body = async |kind| -> Value {
        let body = sent(kind, "/v1", true, &request).await.body;
        serde_json::from_slice(&body).unwrap()
    };
    let openai = body(Kind::OpenAi).await;
    assert_eq!(openai["top_p"], 0.25);
    assert_eq!(openai["stop"], json!(["END"]));
    assert_eq!(openai["reasoning_effort"], "low");
    let anthropic = body(Kind::Anthropic).await;
    assert_eq!(anthropic["top_p"], 0.25);
    assert_eq!(anthropic["stop_sequences"], json!(["END"]));
    assert_eq!(anthropic["reasoning_effort"], Value::Null);
}

#[tokio::test]
async fn a_tail_ends_the_users_turn_whatever_it_is() {
    let ends = async |kind, last: &[NewMessage]| {
        let news = [said(Role::User, "look")].into_iter().chain(last.to_vec());
        let request = Request {
            messages: (1..)
                .zip(news)
                .map(|(seq, new)| message(seq, new))
                .collect(),
            tail: Some("T".to_owned()),
            ..hello()
        };
        let body = sent(kind, "/v1", true, &request).await.body;
        let body: Value = serde_json::from_str(&unmarked(body)).unwrap();
        let last = body["messages"].as_array().unwrap().last().unwrap().clone();
        (last["role"].clone(), last["content"].clone())
    };
    let asking = NewMessage {
        tool_calls: vec![call("c", "read", json!({}))],
        ..said(Role::Assistant, "")
    };
    let results = [asking, result("c", "R")];
    let text = |text: &str| json!({"type": "text", "text": text});
    let openai = Kind::OpenAi;
    assert_eq!(ends(openai, &[]).await, (json!("user"), json!("look\n\nT")));
    assert_eq!(ends(openai, &results).await, (json!("user"), json!("T")));
    let answered = [said(Role::Assistant, "A")];
    assert_eq!(ends(openai, &answered).await, (json!("user"), json!("T")));
    let anthropic = Kind::Anthropic;
    let shown = ends(anthropic, &[]).await;
    assert_eq!(shown, (json!("user"), json!([text("look"), text("T")])));
    let (role, content) = ends(anthropic, &results).await;
    assert_eq!((role, &content[1]), (json!("user"), &text("T")));
    assert_eq!(content[0]["type"], "tool_result");
    let shown = ends(anthropic, &answered).await;
    assert_eq!(shown, (json!("user"), json!([text("T")])));
}

#[tokio::test]
async fn the_same_request_is_the_same_bytes_and_a_longer_one_begins_like_the_shorter() {
    for kind in [Kind::OpenAi, Kind::OpenAiResponses, Kind::Anthropic] {
        let first = sent(kind, "/v1", true, &long()).await.body;
        assert_eq!(first, sent(kind, "/v1", true, &long()).await.body);
        let mut longer = long();
        longer
            .messages
            .push(message(13, said(Role::Assistant, "answer")));
        longer.messages.push(message(14, said(Role::User, "third")));
        longer.tail = Some("another tail".to_owned());
        longer.max_tokens = 50;
        let longer = sent(kind, "/v1", true, &longer).await.body;
        let (first, longer) = (unmarked(first), unmarked(longer));
        let until = first.find("second").unwrap() + "second".len();
        assert_eq!(first[..until], longer[..until]);
    }
}

#[tokio::test]
async fn each_provider_gets_its_path_its_key_and_its_headers() {
    let openai = sent(Kind::OpenAi, "/some/v4/", true, &hello()).await;
    assert_eq!(openai.line, "POST /some/v4/chat/completions HTTP/1.1");
    assert_eq!(
        openai.header("authorization"),
        Some(format!("Bearer {KEY}").as_str())
    );
    assert_eq!(openai.header("accept"), Some("text/event-stream"));
    for path in ["", "/", "/v1", "/v1/"] {
        let anthropic = sent(Kind::Anthropic, path, false, &hello()).await;
        assert_eq!(anthropic.line, "POST /v1/messages HTTP/1.1", "{path}");
        assert_eq!(anthropic.header("x-api-key"), Some(KEY));
        assert_eq!(anthropic.header("anthropic-version"), Some("2023-06-01"));
        assert_eq!(anthropic.header("authorization"), None);
        assert_eq!(anthropic.header("accept"), Some("application/json"));
        assert_eq!(anthropic.header("x-organisation"), Some("acme"));
        assert_eq!(anthropic.header("content-type"), Some("application/json"));
        let length = anthropic.header("content-length").unwrap();
        assert_eq!(length, anthropic.body.len().to_string());
    }
}

#[tokio::test]
async fn a_small_request_says_no_more_than_it_must() {
    let openai = sent(Kind::OpenAi, "/v1", false, &hello()).await.body;
    assert_eq!(
        String::from_utf8(openai).unwrap(),
        r#"{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":100,"stream":false}"#
    );
    let anthropic = sent(Kind::Anthropic, "/v1", false, &hello()).await.body;
    assert_eq!(
        String::from_utf8(anthropic).unwrap(),
        r#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hello","cache_control":{"type":"ephemeral"}}]}],"max_tokens":100,"stream":false}"#
    );
}

/// A request for structured output.
pub(crate) fn shaped() -> Request {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let asked = json!({"name": "count", "schema": schema, "strict": true});
    let (spec, _) = OutputSpec::read(&asked).unwrap();
    Request {
        output: Some(Arc::new(spec)),
        ..hello()
    }
}

#[tokio::test]
async fn chat_completions_are_told_the_shape_of_the_answer_unless_they_cannot_hold_it() {
    let server = Server::start(Answer::new(500, "text/plain", b"no", 100)).await;
    let mut settings = settings(Kind::OpenAi, &server.url("/v1"));
    for native in [true, false] {
        settings.native_schema = native;
        let model = model(&settings);
        assert_eq!(model.native_schema("m", false), native);
        let _ = ask(&*model, &shaped()).await;
    }
    let bodies = server.received();
    let bodies = bodies
        .iter()
        .map(|it| serde_json::from_slice(&it.body).unwrap());
    let formats: Vec<Value> = bodies
        .map(|body: Value| body["response_format"].clone())
        .collect();
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let format = json!({
        "type": "json_schema",
        "json_schema": {"name": "count", "schema": schema, "strict": true},
    });
    assert_eq!(formats, [format, Value::Null]);
}

#[tokio::test]
async fn messages_are_told_the_shape_of_the_answer_where_it_is_configured() {
    let server = Server::start(Answer::new(500, "text/plain", b"no", 100)).await;
    let mut settings = settings(Kind::Anthropic, &server.url("/v1"));
    assert!(!model(&settings).native_schema("m", false), "by default");
    for native in [false, true] {
        settings.native_schema = native;
        assert_eq!(model(&settings).native_schema("m", false), native);
        let _ = ask(&*model(&settings), &shaped()).await;
    }
    let bodies = server.received();
    let bodies = bodies
        .iter()
        .map(|it| serde_json::from_slice(&it.body).unwrap());
    let configs: Vec<Value> = bodies
        .map(|body: Value| body["output_config"].clone())
        .collect();
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let format = json!({"type": "json_schema", "schema": schema});
    assert_eq!(configs, [Value::Null, json!({ "format": format })]);
}

#[tokio::test]
async fn messages_begin_with_the_user_and_never_with_nothing() {
    let mut request = hello();
    request.messages = vec![
        message(1, said(Role::Tool, "orphan")),
        message(2, said(Role::User, " ")),
    ];
    let received = sent(Kind::Anthropic, "/v1", true, &request).await;
    let value: Value = serde_json::from_str(&unmarked(received.body)).unwrap();
    assert_eq!(
        value["messages"],
        json!([{"role": "user", "content": [{"type": "text", "text": "[empty message]"}]}])
    );
    request.messages = Vec::new();
    let received = sent(Kind::Anthropic, "/v1", true, &request).await;
    let value: Value = serde_json::from_str(&unmarked(received.body)).unwrap();
    assert_eq!(value["messages"][0]["role"], "user");
}

fn picture(data: &str) -> ContentPart {
    ContentPart::Image {
        source: ImageSource::Base64 {
            media_type: "image/png".to_owned(),
            data: data.to_owned(),
        },
    }
}

fn file(name: &str, source: FileSource) -> ContentPart {
    ContentPart::File {
        name: name.to_owned(),
        source,
    }
}

fn bytes(media_type: &str) -> FileSource {
    FileSource::Base64 {
        media_type: media_type.to_owned(),
        data: "AAAA".to_owned(),
    }
}

/// Text with pictures and files, a tool that returns a picture, and one that fails.
pub(crate) fn illustrated() -> Request {
    let linked = ContentPart::Image {
        source: ImageSource::Url {
            url: "https://a.example/b.png".to_owned(),
        },
    };
    let words = FileSource::Text {
        text: "inside".to_owned(),
    };
    let input = NewMessage {
        content: vec![
            ContentPart::text("see"),
            picture("AAAA"),
            linked,
            file("a.txt", words),
            file("b.pdf", bytes("application/pdf")),
        ],
        ..said(Role::User, "")
    };
    let asking = NewMessage {
        tool_calls: vec![
            call("call_1", "read", json!({})),
            call("call_2", "read", json!({})),
        ],
        ..said(Role::Assistant, "")
    };
    let shown = NewMessage {
        content: vec![ContentPart::text("one"), picture("BBBB")],
        ..result("call_1", "")
    };
    let failed = NewMessage {
        failed: true,
        ..result("call_2", "no")
    };
    let messages = (1..).zip([input, asking, shown, failed]);
    Request {
        messages: messages.map(|(seq, new)| message(seq, new)).collect(),
        ..hello()
    }
}

async fn messages_sent(kind: Kind) -> Value {
    let body = sent(kind, "/v1", true, &illustrated()).await.body;
    let body: Value = serde_json::from_str(&unmarked(body)).expect("JSON");
    body["messages"].clone()
}

#[tokio::test]
async fn pictures_and_files_are_parts_of_chat_completions() {
    let messages = messages_sent(Kind::OpenAi).await;
    let input = json!([
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}},
        {"type": "text", "text": "[file a.txt]\ninside"},
        {"type": "file", "file": {
            "filename": "b.pdf", "file_data": "data:application/pdf;base64,AAAA",
        }},
    ]);
    assert_eq!(messages[0], json!({"role": "user", "content": input}));
    // First all results, then the pictures they show.
    assert_eq!(
        messages[2],
        json!({"role": "tool", "tool_call_id": "call_1", "content": "one"})
    );
    assert_eq!(
        messages[3],
        json!({"role": "tool", "tool_call_id": "call_2", "content": "no"})
    );
    let shown = json!([
        {"type": "text", "text": "[non-text output of the call call_1]"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,BBBB"}},
    ]);
    assert_eq!(messages[4], json!({"role": "user", "content": shown}));
}

#[tokio::test]
async fn pictures_and_files_are_blocks_of_messages() {
    let messages = messages_sent(Kind::Anthropic).await;
    let png = |data: &str| json!({"type": "base64", "media_type": "image/png", "data": data});
    let input = json!([
        {"type": "text", "text": "see"},
        {"type": "image", "source": png("AAAA")},
        {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}},
        {"type": "document", "title": "a.txt", "source": {
            "type": "text", "media_type": "text/plain", "data": "inside",
        }},
        {"type": "document", "title": "b.pdf", "source": {
            "type": "base64", "media_type": "application/pdf", "data": "AAAA",
        }},
    ]);
    assert_eq!(messages[0], json!({"role": "user", "content": input}));
    let results = json!([
        {"type": "tool_result", "tool_use_id": "call_1", "content": [
            {"type": "text", "text": "one"}, {"type": "image", "source": png("BBBB")},
        ]},
        {"type": "tool_result", "tool_use_id": "call_2", "content": "no", "is_error": true},
    ]);
    assert_eq!(messages[2], json!({"role": "user", "content": results}));
}

#[tokio::test]
async fn a_file_that_no_provider_takes_is_refused_before_it_is_sent() {
    let input = NewMessage {
        content: vec![file("a.xls", bytes("application/vnd.ms-excel"))],
        ..said(Role::User, "")
    };
    let request = Request {
        messages: vec![message(1, input)],
        ..hello()
    };
    for kind in [Kind::OpenAi, Kind::OpenAiResponses, Kind::Anthropic] {
        let server = Server::start(Answer::new(500, "text/plain", b"no", 100)).await;
        let settings = settings(kind, &server.url("/v1"));
        let refused = ask(&*model(&settings), &request).await.reply;
        let Err(Error::InvalidRequest { message }) = refused else {
            panic!("{refused:?}");
        };
        assert!(message.contains("a.xls"), "{message}");
        assert_eq!(server.received().len(), 0);
    }
}
