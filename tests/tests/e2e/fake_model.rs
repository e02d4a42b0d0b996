//! The transports against the fake provider: they get exactly what it is told to send.

use std::sync::Arc;
use std::time::Duration;

use mainspring_providers::{Kind, ProviderSettings};
use mainspring_runtime::SystemClock;
use mainspring_shared::error::{Code, Coded};
use mainspring_shared::id::SendId;
use mainspring_shared::message::{ContentPart, Message, NewMessage, Role, plain_text};
use mainspring_shared::time::{Clock, Timestamp};
use mainspring_tests::fake_model::{End, Entry, FakeModel, Options};
use mainspring_worker::llm::{Chunk, Error, Finish, Model, Reply, Request, Secret};

const WIRES: [(Kind, bool); 6] = [
    (Kind::OpenAi, true),
    (Kind::OpenAi, false),
    (Kind::OpenAiResponses, true),
    (Kind::OpenAiResponses, false),
    (Kind::Anthropic, true),
    (Kind::Anthropic, false),
];

fn fake() -> FakeModel {
    FakeModel::start(Options::default()).expect("a free port")
}

fn model(fake: &FakeModel, kind: Kind, stream: bool) -> Arc<dyn Model> {
    model_within(Duration::from_mins(1), fake, kind, stream)
}

fn model_within(limit: Duration, fake: &FakeModel, kind: Kind, stream: bool) -> Arc<dyn Model> {
    // Another test may have done so already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let settings = ProviderSettings {
        base_url: fake.base_url(),
        stream,
        api_key: Secret::new("fake-key"),
        first_byte_timeout: limit,
        idle_timeout: limit,
        attempt_timeout: limit,
        ..ProviderSettings::new("fake", kind)
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let providers =
        mainspring_providers::open(&[settings], "fake", &clock).expect("valid settings");
    providers
        .resolve(Some("m"))
        .expect("it is the default")
        .client
}

fn request(news: Vec<NewMessage>) -> Request {
    let at = |(seq, new): (i64, NewMessage)| {
        Arc::new(new.at(seq, SendId(uuid::Uuid::nil()), Timestamp(0), 1))
    };
    let messages: Vec<Arc<Message>> = (1..).zip(news).map(at).collect();
    let system = Some("[[session s1]] Be brief.".to_owned());
    Request {
        model: "m".into(),
        system,
        messages,
        max_tokens: 9,
        ..Request::default()
    }
}

fn user(text: &str) -> NewMessage {
    NewMessage::user(vec![ContentPart::text(text)], 0)
}

async fn ask(model: &dyn Model, request: &Request) -> (Result<Reply, Error>, Vec<String>) {
    let mut chunks = Vec::new();
    let mut hear = |chunk: Chunk<'_>| {
        if let Chunk::Text(text) = chunk {
            chunks.push(text.to_owned());
        }
    };
    let reply = model.complete(request, &mut hear).await;
    (reply, chunks)
}

async fn say(model: &dyn Model, text: &str) -> (Result<Reply, Error>, Vec<String>) {
    ask(model, &request(vec![user(text)])).await
}

fn codes(entries: &[Entry]) -> Vec<(u32, u16)> {
    entries
        .iter()
        .map(|entry| (entry.attempt, entry.status))
        .collect()
}

#[tokio::test]
async fn it_echoes_in_every_protocol_and_writes_down_who_asked() {
    let fake = fake();
    for (kind, stream) in WIRES {
        let (reply, chunks) = say(&*model(&fake, kind, stream), "Grüße 😀 [[send 7]]").await;
        let reply = reply.expect("an answer");
        assert_eq!(plain_text(&reply.content), "echo: Grüße 😀 [[send 7]]");
        assert_eq!(chunks.concat(), plain_text(&reply.content));
        assert_eq!(chunks.len(), if stream { 4 } else { 1 });
        assert_eq!(
            (reply.usage.input_tokens, reply.usage.output_tokens),
            (8, 5)
        );
        assert!(!reply.usage.estimated);
    }
    let entries = fake.ledger().of_send("7");
    assert_eq!(entries.len(), WIRES.len());
    assert!(
        entries
            .iter()
            .all(|e| e.session.as_deref() == Some("s1") && e.end == Some(End::Sent))
    );
    let each: Vec<_> = (1..=6).map(|attempt| (attempt, 200)).collect();
    assert_eq!(codes(&entries), each);
    assert_eq!(fake.ledger().stats().in_flight, 0);
}

#[tokio::test]
async fn it_fails_the_first_attempts_only() {
    let fake = fake();
    for (kind, stream) in WIRES {
        let model = model(&fake, kind, stream);
        let text = format!("[[fail 429 2 1s]] {kind:?} {stream}");
        for _ in 0..2 {
            let error = say(&*model, &text).await.0.expect_err("a refusal");
            assert_eq!(error.code(), Code::LlmRateLimited);
            assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
        }
        assert!(say(&*model, &text).await.0.is_ok());
    }
    assert_eq!(
        codes(&fake.ledger().entries()[..3]),
        [(1, 429), (2, 429), (3, 200)]
    );
}

#[tokio::test]
async fn it_calls_tools_and_answers_to_their_results() {
    let fake = fake();
    for (kind, stream) in WIRES {
        let model = model(&fake, kind, stream);
        let asked = user("[[reason hm]] [[tool add {\"a\":[[1]]}]] [[tool now]]");
        let reply = ask(&*model, &request(vec![asked.clone()]))
            .await
            .0
            .expect("calls");
        assert_eq!(reply.finish, Finish::ToolCalls);
        let names: Vec<_> = reply
            .tool_calls
            .iter()
            .map(|c| format!("{} {}", c.name, c.arguments))
            .collect();
        assert_eq!(names, [r#"add {"a":[[1]]}"#, "now {}"]);
        let result = |at: usize| NewMessage {
            role: Role::Tool,
            tool_call_id: Some(reply.tool_calls[at].id.clone()),
            ..user(&format!("r{at}"))
        };
        let asking = NewMessage {
            role: Role::Assistant,
            content: reply.content.clone(),
            tool_calls: reply.tool_calls.clone(),
            ..user("")
        };
        let next = request(vec![asked, asking, result(0), result(1)]);
        let reply = ask(&*model, &next).await.0.expect("an answer");
        assert_eq!(plain_text(&reply.content), "results: r0; r1");
    }
}

#[tokio::test]
async fn every_way_to_misbehave_has_its_code() {
    let fake = fake();
    let table = [
        ("[[fail 401]]", Code::LlmAuth),
        ("[[fail 500]]", Code::LlmUnavailable),
        ("[[cut 2]]", Code::LlmUnavailable),
        ("[[garbage]]", Code::LlmBadResponse),
        ("[[error overloaded_error]]", Code::LlmUnavailable),
        ("[[error rate_limit_error]]", Code::LlmRateLimited),
        ("[[hang 1h]]", Code::LlmTimeout),
        ("[[silent 1h]]", Code::LlmTimeout),
        ("[[typo]]", Code::LlmInvalidRequest),
    ];
    for (kind, stream) in WIRES {
        let patient = model(&fake, kind, stream);
        let hasty = model_within(Duration::from_secs(1), &fake, kind, stream);
        for (text, code) in table {
            let inside_a_stream = text.contains("error") || text.contains("silent");
            if stream || !inside_a_stream {
                let timed = code == Code::LlmTimeout;
                let model = if timed { &hasty } else { &patient };
                let error = say(&**model, text).await.0.expect_err(text);
                assert_eq!(error.code(), code, "{text} {kind:?} {stream}: {error}");
            }
        }
    }
    let left = fake
        .ledger()
        .entries()
        .into_iter()
        .filter(|e| e.text == "[[hang 1h]]");
    assert!(left.into_iter().all(|entry| entry.end != Some(End::Sent)));
}

#[tokio::test]
async fn bytes_may_come_one_by_one_and_not_be_text_at_all() {
    let fake = fake();
    for kind in [Kind::OpenAi, Kind::OpenAiResponses, Kind::Anthropic] {
        let model = model(&fake, kind, true);
        let (reply, _) = say(&*model, "[[split]][[badutf8]][[say Grüße 😀]]").await;
        assert_eq!(
            plain_text(&reply.expect("an answer").content),
            "Grüße 😀\u{fffd}"
        );
        let cut_short = say(&*model, "[[length]][[nousage]]")
            .await
            .0
            .expect("an answer");
        assert_eq!(cut_short.finish, Finish::Length);
        assert!(cut_short.usage.output_tokens > 0);
        let refused = say(&*model, "[[refuse]][[say no]]")
            .await
            .0
            .expect("an answer");
        assert_eq!(refused.finish, Finish::Refused);
    }
}

#[tokio::test]
async fn a_stream_is_paced() {
    let fake = fake();
    let clock = SystemClock::new();
    let (reply, chunks) = say(
        &*model(&fake, Kind::OpenAi, true),
        "a text of some length [[stream 10x20ms]]",
    )
    .await;
    assert!(reply.is_ok());
    assert_eq!(chunks.len(), 10);
    assert!(clock.monotonic() >= Duration::from_millis(180));
}

#[tokio::test]
async fn an_outage_can_begin_and_end_and_other_processes_can_read_along() {
    let fake = fake();
    let model = model(&fake, Kind::OpenAi, true);
    let root = fake.base_url().replace("/v1", "");
    let http = reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client");
    let put = http
        .put(format!("{root}/script"))
        .body("[[fail 503]]")
        .send()
        .await
        .expect("sent");
    assert_eq!(put.status(), 204);
    assert!(say(&*model, "one [[send a]]").await.0.is_err());
    fake.set_script("".parse().expect("no directives"));
    assert!(say(&*model, "two [[send b]]").await.0.is_ok());
    let lines = http
        .get(format!("{root}/ledger?send=a"))
        .send()
        .await
        .expect("sent");
    let lines = lines.text().await.expect("text");
    let entries: Vec<Entry> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("an entry"))
        .collect();
    assert_eq!(codes(&entries), [(1, 503)]);
    http.delete(format!("{root}/ledger"))
        .send()
        .await
        .expect("sent");
    assert!(fake.ledger().entries().is_empty());
    assert_eq!(fake.ledger().stats().requests, 2);
}

#[tokio::test]
async fn a_key_that_is_not_the_one_is_refused() {
    let options = Options {
        api_key: Some("other".to_owned()),
        ..Options::default()
    };
    let fake = FakeModel::start(options).expect("a free port");
    for (kind, stream) in WIRES {
        let error = say(&*model(&fake, kind, stream), "hello")
            .await
            .0
            .expect_err("no access");
        assert_eq!(error.code(), Code::LlmAuth);
    }
}
