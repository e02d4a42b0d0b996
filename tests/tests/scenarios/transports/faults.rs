//! What a network and a provider can do to an attempt.

use std::time::Duration;

use mainspring_providers::Kind;
use mainspring_shared::error::{Code, Coded};
use mainspring_worker::llm::{Error, Finish, Wait};

use super::server::{Answer, Server, Then};
use super::{KEY, ask, hello, model, settings};

const SSE: &str = "text/event-stream";
const HALF: &[u8] = b"data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\n";
const WHOLE: &[u8] =
    b"data: {\"choices\":[{\"delta\":{\"content\":\"whole\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// Long enough not to be exceeded on a busy machine, short enough to wait for.
const SHORT: Duration = Duration::from_millis(500);

#[tokio::test]
async fn a_provider_that_does_not_begin_to_answer_times_out() {
    let mut server = Server::start(Answer::new(0, SSE, b"", 1).then(Then::Silence)).await;
    let mut settings = settings(Kind::OpenAi, &server.url("/v1"));
    settings.first_byte_timeout = SHORT;
    let error = ask(&*model(&settings), &hello()).await.reply.unwrap_err();
    assert_eq!(
        error,
        Error::Timeout {
            wait: Wait::FirstByte,
            limit: SHORT
        }
    );
    server
        .left
        .recv()
        .await
        .expect("the connection is closed, so that nobody answers in vain");
}

#[tokio::test]
async fn a_stream_that_falls_silent_times_out_but_comments_keep_it_alive() {
    let silent = Server::start(Answer::new(200, SSE, HALF, 1_000).then(Then::Silence)).await;
    let mut quick = settings(Kind::OpenAi, &silent.url("/v1"));
    quick.idle_timeout = SHORT;
    let heard = ask(&*model(&quick), &hello()).await;
    assert_eq!(heard.text, "half");
    assert_eq!(
        heard.reply.unwrap_err(),
        Error::Timeout {
            wait: Wait::NextByte,
            limit: SHORT
        }
    );
}

#[tokio::test]
async fn an_attempt_has_an_end_even_when_its_stream_has_none() {
    // A fast machine may read all of it before the attempt has to end.
    let pings = Answer::new(200, SSE, &b": ping\n".repeat(100_000), 7);
    let endless = Server::start(pings.then(Then::Silence)).await;
    let mut settings = settings(Kind::Anthropic, &endless.url("/v1"));
    settings.attempt_timeout = SHORT;
    let error = ask(&*model(&settings), &hello()).await.reply.unwrap_err();
    assert_eq!(
        error,
        Error::Timeout {
            wait: Wait::End,
            limit: SHORT
        }
    );
}

#[tokio::test]
async fn silence_after_the_last_event_that_matters_loses_nothing() {
    let done = WHOLE.strip_suffix(b"data: [DONE]\n\n").unwrap();
    let server = Server::start(Answer::new(200, SSE, done, 1_000).then(Then::Silence)).await;
    let mut settings = settings(Kind::OpenAi, &server.url("/v1"));
    settings.idle_timeout = SHORT;
    let reply = ask(&*model(&settings), &hello()).await.reply.unwrap();
    assert_eq!(reply.finish, Finish::Stop);
    assert!(reply.usage.estimated);
}

#[tokio::test]
async fn a_provider_that_is_away_or_hangs_up_is_unavailable_and_its_address_is_not_told() {
    let server = Server::start(Answer::new(0, SSE, b"", 1).then(Then::Close)).await;
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let away = format!("http://{}/v1", free.local_addr().unwrap());
    drop(free);
    for url in [server.url("/v1"), away] {
        let error = ask(&*model(&settings(Kind::OpenAi, &url)), &hello())
            .await
            .reply
            .unwrap_err();
        assert_eq!(error.code(), Code::LlmUnavailable);
        assert!(!error.is_permanent());
        assert!(!error.to_string().contains("127.0.0.1"), "{error}");
    }
    assert_eq!(server.received().len(), 1, "a transport asks once");
}

#[tokio::test]
async fn a_whole_answer_that_is_cut_is_unavailable_and_one_that_is_no_json_is_bad() {
    let cut = Answer::new(200, "application/json", b"{\"choices\":[", 100).then(Then::Close);
    let bad = Answer::new(200, "application/json", b"{\"choices\":[", 100);
    for (answer, code) in [(cut, Code::LlmUnavailable), (bad, Code::LlmBadResponse)] {
        let server = Server::start(answer).await;
        for kind in [Kind::OpenAi, Kind::Anthropic] {
            let mut settings = settings(kind, &server.url("/v1"));
            settings.stream = false;
            let error = ask(&*model(&settings), &hello()).await.reply.unwrap_err();
            assert_eq!(error.code(), code);
        }
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let server = Server::start(
        Answer::new(307, "text/plain", b"", 1).header("location", "/v1/chat/completions"),
    )
    .await;
    let error = ask(
        &*model(&settings(Kind::OpenAi, &server.url("/v1"))),
        &hello(),
    )
    .await
    .reply
    .unwrap_err();
    assert_eq!(error.code(), Code::LlmBadResponse);
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn an_answer_without_end_is_refused_before_it_fills_the_memory() {
    let text = "x".repeat(1024 * 1024);
    let event = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n");
    let body = event.repeat(17).into_bytes();
    let server = Server::start(Answer::new(200, SSE, &body, 64 * 1024)).await;
    let heard = ask(
        &*model(&settings(Kind::OpenAi, &server.url("/v1"))),
        &hello(),
    )
    .await;
    assert_eq!(heard.reply.unwrap_err().code(), Code::LlmBadResponse);
    assert_eq!(heard.text.len(), 16 * 1024 * 1024);
    let one_event = Server::start(Answer::new(
        200,
        SSE,
        &b"x".repeat(17 * 1024 * 1024),
        64 * 1024,
    ))
    .await;
    let heard = ask(
        &*model(&settings(Kind::Anthropic, &one_event.url("/v1"))),
        &hello(),
    )
    .await;
    assert_eq!(heard.reply.unwrap_err().code(), Code::LlmBadResponse);
}

#[tokio::test]
async fn a_stream_read_to_its_end_leaves_its_connection_to_the_next() {
    let server = Server::start(Answer::new(200, SSE, WHOLE, 20)).await;
    let model = model(&settings(Kind::OpenAi, &server.url("/v1")));
    for _ in 0..5 {
        assert_eq!(ask(&*model, &hello()).await.text, "whole");
    }
    let connections = server.received().iter().map(|r| r.connection).max();
    assert_eq!(connections, Some(0));
}

#[tokio::test]
async fn dropping_an_attempt_closes_its_connection() {
    let mut server = Server::start(Answer::new(200, SSE, HALF, 1_000).then(Then::Silence)).await;
    let model = model(&settings(Kind::OpenAi, &server.url("/v1")));
    let (heard, mut first) = tokio::sync::mpsc::channel(1);
    let attempt = tokio::spawn(async move {
        let mut hear = move |_: mainspring_worker::llm::Chunk<'_>| {
            let _ = heard.try_send(());
        };
        model.complete(&hello(), &mut hear).await
    });
    first.recv().await.expect("a first chunk");
    attempt.abort();
    server
        .left
        .recv()
        .await
        .expect("the server sees the client leave");
}

#[tokio::test]
async fn no_error_shows_the_key() {
    let body = format!("{{\"error\":{{\"message\":\"no access with {KEY}, sk-test-01...cdef\"}}}}");
    for status in [400, 401, 429, 500] {
        let server = Server::start(Answer::new(
            status,
            "application/json",
            body.as_bytes(),
            1_000,
        ))
        .await;
        let error = ask(
            &*model(&settings(Kind::OpenAi, &server.url("/v1"))),
            &hello(),
        )
        .await
        .reply
        .unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("no access"), "{shown}");
        assert!(!shown.contains("sk-test"), "{shown}");
        assert!(!shown.contains("cdef"), "{shown}");
    }
}
