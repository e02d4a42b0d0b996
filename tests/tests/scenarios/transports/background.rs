//! Answers that a provider generates while no client is connected.

use std::fmt::Write as _;

use mainspring_providers::{Kind, ProviderSettings};
use mainspring_shared::error::{Code, Coded as _};
use mainspring_shared::message::plain_text;
use mainspring_shared::model::InBackground;
use mainspring_worker::llm::{Chunk, Error, Reply, Request};
use serde_json::{Value, json};

use super::server::{Answer, Server, Then};
use super::{hello, model, settings};

const ID: &str = "resp_1";

fn background(server: &Server) -> ProviderSettings {
    ProviderSettings {
        background: true,
        ..settings(Kind::OpenAiResponses, &server.url("/v1"))
    }
}

fn response(status: &str, output: &Value) -> Value {
    json!({
        "id": ID, "object": "response", "status": status, "background": true, "error": null,
        "model": "m", "output": output,
        "usage": {"input_tokens": 20, "output_tokens": 9, "total_tokens": 29},
    })
}

fn message() -> Value {
    json!([{
        "type": "message", "id": "msg_1", "role": "assistant",
        "content": [{"type": "output_text", "text": "one two three"}],
    }])
}

/// The events of an answer, from index `from` up to but not including `to`.
fn events(from: usize, to: usize) -> Answer {
    let delta = |text: &str| json!({"type": "response.output_text.delta", "output_index": 0, "delta": text});
    let all = [
        json!({"type": "response.created", "response": response("queued", &json!([]))}),
        json!({"type": "response.in_progress", "response": response("in_progress", &json!([]))}),
        delta("one "),
        delta("two "),
        delta("three"),
        json!({"type": "response.completed", "response": response("completed", &message())}),
    ];
    let mut body = String::new();
    for (number, event) in all.into_iter().enumerate().take(to).skip(from) {
        let mut event = event;
        event["sequence_number"] = json!(number);
        write!(body, "data: {event}\n\n").unwrap();
    }
    Answer::new(200, "text/event-stream", body.as_bytes(), 1_000)
}

fn whole(status: &str, output: &Value) -> Answer {
    let body = response(status, output).to_string();
    Answer::new(200, "application/json", body.as_bytes(), 1_000)
}

fn question() -> Request {
    Request {
        background: InBackground::Allowed,
        ..hello()
    }
}

/// The reply, the streamed text, and the ids that the background answer was given.
async fn asked(server: &Server, request: &Request) -> (Result<Reply, Error>, String, Vec<String>) {
    let (mut text, mut ids) = (String::new(), Vec::new());
    let mut hear = |chunk: Chunk<'_>| match chunk {
        Chunk::Text(piece) => text.push_str(piece),
        Chunk::Reasoning(_) | Chunk::Hidden(_) | Chunk::Counted(_) => {}
        Chunk::Background(id) => ids.push(id.to_owned()),
    };
    let model = model(&background(server));
    let reply = model.complete(request, &mut hear).await;
    (reply, text, ids)
}

fn lines(server: &Server) -> Vec<String> {
    let received = server.received();
    received.into_iter().map(|request| request.line).collect()
}

#[tokio::test]
async fn an_answer_whose_connection_broke_is_read_on() {
    let broken = events(0, 4).then(Then::Close);
    let server = Server::with(vec![broken, events(4, 6)]).await;
    let (reply, text, ids) = asked(&server, &question()).await;
    assert_eq!(plain_text(&reply.unwrap().content), "one two three");
    assert_eq!((text.as_str(), ids), ("one two three", vec![ID.to_owned()]));
    let received = server.received();
    let body: Value = serde_json::from_slice(&received[0].body).unwrap();
    assert_eq!(
        (&body["background"], &body["store"]),
        (&json!(true), &json!(true))
    );
    let looks = "GET /v1/responses/resp_1?stream=true&starting_after=3&include";
    assert!(received[1].line.starts_with(looks), "{}", received[1].line);
}

#[tokio::test]
async fn events_that_come_again_are_heard_once() {
    let broken = events(0, 4).then(Then::Close);
    let server = Server::with(vec![broken, events(0, 6)]).await;
    let (reply, text, _) = asked(&server, &question()).await;
    assert_eq!(plain_text(&reply.unwrap().content), "one two three");
    assert_eq!(text, "one two three");
}

#[tokio::test]
async fn an_answer_of_which_the_id_is_known_is_taken_up_from_its_beginning() {
    let server = Server::start(events(0, 6)).await;
    let request = Request {
        background: InBackground::TakenUp(ID.to_owned()),
        ..hello()
    };
    let (reply, text, ids) = asked(&server, &request).await;
    let reply = reply.unwrap();
    assert_eq!(
        (reply.usage.input_tokens, reply.usage.output_tokens),
        (20, 9)
    );
    assert_eq!((text.as_str(), ids), ("one two three", Vec::new()));
    let lines = lines(&server);
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with("GET /v1/responses/resp_1?stream=true&include"));
}

#[tokio::test]
async fn an_answer_that_is_not_streamed_is_looked_at_until_it_is_final() {
    let working = whole("in_progress", &json!([]));
    let server = Server::with(vec![
        working.clone(),
        working,
        whole("completed", &message()),
    ])
    .await;
    let (reply, ..) = asked(&server, &question()).await;
    assert_eq!(plain_text(&reply.unwrap().content), "one two three");
    assert_eq!(lines(&server).len(), 3);
}

#[tokio::test]
async fn an_answer_that_is_gone_or_failed_is_not_waited_for() {
    let gone = Answer::new(
        404,
        "application/json",
        br#"{"error": {"message": "not found"}}"#,
        100,
    );
    let failed = whole("failed", &json!([]));
    for then in [gone, failed] {
        let server = Server::with(vec![events(0, 3).then(Then::Close), then]).await;
        let (reply, ..) = asked(&server, &question()).await;
        assert_eq!(reply.unwrap_err().code(), Code::LlmUnavailable);
        assert_eq!(lines(&server).len(), 2);
    }
}

#[tokio::test]
async fn an_id_that_leads_elsewhere_is_none() {
    let body = events(0, 3).pieces.concat();
    let body = String::from_utf8(body).unwrap().replace(ID, "../admin?x=");
    let answer = Answer::new(200, "text/event-stream", body.as_bytes(), 1_000);
    let server = Server::start(answer.then(Then::Close)).await;
    let (reply, _, ids) = asked(&server, &question()).await;
    assert_eq!(reply.unwrap_err().code(), Code::LlmUnavailable);
    assert!(ids.is_empty());
    assert_eq!(lines(&server), ["POST /v1/responses HTTP/1.1"]);
}

#[tokio::test]
async fn the_provider_is_told_that_nobody_wants_an_answer() {
    let server = Server::start(whole("cancelled", &json!([]))).await;
    let model = model(&background(&server));
    model.abandon(ID).await.unwrap();
    assert_eq!(
        lines(&server),
        ["POST /v1/responses/resp_1/cancel HTTP/1.1"]
    );
}

/// Nobody would resume the fold of a dead worker.
#[tokio::test]
async fn what_nobody_takes_up_is_not_asked_for_in_the_background() {
    let server = Server::start(events(0, 6)).await;
    let (reply, _, ids) = asked(&server, &hello()).await;
    assert_eq!(plain_text(&reply.unwrap().content), "one two three");
    assert!(ids.is_empty());
    let body: Value = serde_json::from_slice(&server.received()[0].body).unwrap();
    assert_eq!(
        (&body["background"], &body["store"]),
        (&Value::Null, &json!(false))
    );
}
