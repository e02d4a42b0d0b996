//! Requests to the Responses API.

use mainspring_providers::Kind;
use mainspring_shared::message::{NewMessage, Role};
use mainspring_worker::llm::Request;
use serde_json::{Value, json};

use super::requests::{body, illustrated, long, reasoning, result, sent, shaped};
use super::server::{Answer, Server};
use super::{ask, hello, message, model, said, settings};

const KIND: Kind = Kind::OpenAiResponses;

async fn value(request: &Request) -> Value {
    let body = sent(KIND, "/v1", true, request).await.body;
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test]
async fn a_long_conversation_is_sent_as_responses_want_it() {
    insta::assert_snapshot!(body(KIND, &long()).await);
}

#[tokio::test]
async fn a_small_request_leaves_nothing_with_the_provider() {
    let sent = sent(KIND, "/some/v4/", false, &hello()).await;
    assert_eq!(sent.line, "POST /some/v4/responses HTTP/1.1");
    assert_eq!(
        String::from_utf8(sent.body).unwrap(),
        concat!(
            r#"{"model":"m","input":[{"type":"message","role":"user","content":[{"type":"input_text","#,
            r#""text":"hello"}]}],"max_output_tokens":100,"include":["reasoning.encrypted_content"],"#,
            r#""store":false,"stream":false}"#
        )
    );
}

#[tokio::test]
async fn what_a_model_thought_goes_back_to_the_protocol_that_it_came_from() {
    let thought = NewMessage {
        content: vec![
            reasoning("mine", Some("responses:rs_1 m gAAA:A=")),
            reasoning("of another model", Some("responses:rs_2 n gAAB")),
            reasoning("of Messages", Some("c2ln")),
            reasoning("of chat completions", None),
            mainspring_shared::message::ContentPart::text("So it is."),
        ],
        ..said(Role::Assistant, "")
    };
    let request = Request {
        messages: vec![
            message(1, said(Role::User, "look")),
            message(2, thought),
            message(3, said(Role::User, "and now?")),
        ],
        ..hello()
    };
    let items = value(&request).await["input"].clone();
    assert_eq!(
        items[1],
        json!({
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "mine"}],
            "encrypted_content": "gAAA:A=",
        })
    );
    assert_eq!(items[2]["content"][0]["type"], "output_text");
    assert_eq!(items.as_array().unwrap().len(), 4);
    for (kind, whose) in [
        (Kind::Anthropic, "of Messages"),
        (Kind::OpenAi, "of chat completions"),
    ] {
        let sent = body(kind, &request).await;
        assert!(sent.contains(whose) && !sent.contains("mine"), "{sent}");
        assert!(!sent.contains("gAAA"), "{sent}");
    }
}

#[tokio::test]
async fn a_model_that_does_not_reason_is_not_asked_for_its_reasoning() {
    let asked = async |name: &str| {
        let request = Request {
            model: name.to_owned(),
            ..hello()
        };
        value(&request).await["include"].is_array()
    };
    assert!(!asked("gpt-4.1-mini").await);
    assert!(!asked("gpt-5-chat-latest").await);
    assert!(asked("gpt-5-mini").await && asked("o3").await);
}

#[tokio::test]
async fn responses_are_told_the_shape_of_the_answer_unless_they_cannot_hold_it() {
    let format = value(&shaped()).await["text"]["format"].clone();
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let wanted = json!({"type": "json_schema", "name": "count", "schema": schema, "strict": true});
    assert_eq!(format, wanted);
    let server = Server::start(Answer::new(500, "text/plain", b"no", 100)).await;
    let mut settings = settings(KIND, &server.url("/v1"));
    settings.native_schema = false;
    let _ = ask(&*model(&settings), &shaped()).await;
    let body: Value = serde_json::from_slice(&server.received()[0].body).unwrap();
    assert_eq!(body["text"], Value::Null);
}

#[tokio::test]
async fn pictures_and_files_are_parts_of_items() {
    let items = value(&illustrated()).await["input"].clone();
    let input = json!([
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
        {"type": "input_image", "image_url": "https://a.example/b.png"},
        {"type": "input_text", "text": "[file a.txt]\ninside"},
        {"type": "input_file", "filename": "b.pdf",
            "file_data": "data:application/pdf;base64,AAAA"},
    ]);
    assert_eq!(items[0]["content"], input);
    let shown = json!([
        {"type": "input_text", "text": "one"},
        {"type": "input_image", "image_url": "data:image/png;base64,BBBB"},
    ]);
    let output = |id: &str, output: Value| json!({"type": "function_call_output", "call_id": id, "output": output});
    assert_eq!(items[3], output("call_1", shown));
    assert_eq!(items[4], output("call_2", json!("no")));
}

#[tokio::test]
async fn a_tail_ends_the_users_turn_and_begins_one_behind_results() {
    let mut request = hello();
    request.tail = Some("T".to_owned());
    let text = |text: &str| json!({"type": "input_text", "text": text});
    let last = async |request: &Request| {
        let items = value(request).await["input"].clone();
        let last = items.as_array().unwrap().last().unwrap().clone();
        (last["role"].clone(), last["content"].clone())
    };
    let wanted = (json!("user"), json!([text("hello"), text("T")]));
    assert_eq!(last(&request).await, wanted);
    let asking = NewMessage {
        tool_calls: long().messages[3].tool_calls[..1].to_vec(),
        ..said(Role::Assistant, "")
    };
    request.messages.push(message(2, asking));
    request.messages.push(message(3, result("call_1", "R")));
    assert_eq!(last(&request).await, (json!("user"), json!([text("T")])));
}

#[tokio::test]
async fn texts_that_would_end_an_answer_are_left_out() {
    let request = Request {
        stop: vec!["END".to_owned()],
        ..hello()
    };
    assert_eq!(value(&request).await, value(&hello()).await);
}
