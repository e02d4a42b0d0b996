//! An external memory service over real sockets: correct, slow, failing and lying.

use std::sync::Mutex;

use mainspring_runtime::{OsEntropy, SystemClock};
use mainspring_shared::memory::{Account, MemorySource};
use mainspring_shared::time::Clock as _;
use mainspring_worker::llm::Secret;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::http::CallerSettings;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The answer to each request; the last is repeated.
type Answers = &'static [&'static str];

/// The requests as received.
type Requests = Arc<Mutex<Vec<String>>>;

/// A service that gives these answers in turn; `silence` sends nothing, `torn` half an answer.
async fn service(answers: Answers) -> (String, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let requests = Requests::default();
    let seen = requests.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut text = String::new();
            let mut buffer = [0; 4096];
            while !text.ends_with('}') {
                let count = stream.read(&mut buffer).await.unwrap_or(0);
                if count == 0 {
                    break;
                }
                text.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
            let place = {
                let mut seen = seen.lock().expect("no panic");
                seen.push(text);
                seen.len() - 1
            };
            let answer = answers.get(place).or(answers.last()).expect("an answer");
            match *answer {
                "silence" => {
                    // Until the client disconnects.
                    let _ = stream.read(&mut buffer).await;
                }
                "torn" => {
                    let torn = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"entr";
                    let _ = stream.write_all(torn).await;
                }
                answer => {
                    let (head, body) = answer.split_once('|').unwrap_or(("200 OK", answer));
                    let whole = format!(
                        "HTTP/1.1 {head}\r\ncontent-type: application/json\r\nconnection: close\r\n\
                         content-length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    let _ = stream.write_all(whole.as_bytes()).await;
                }
            }
        }
    });
    // With a token in the URL, as some services require.
    (
        format!("http://{address}/memory?token=very-secret"),
        requests,
    )
}

fn caller(allowed: &[&str]) -> Caller {
    // Another test may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let settings = CallerSettings {
        signing_secrets: vec![Secret::new(SECRET)],
        allow_private: allowed.iter().map(|&one| one.to_owned()).collect(),
        ..CallerSettings::default()
    };
    let caller = Caller::new(&settings, Arc::new(SystemClock::new()), Arc::new(OsEntropy));
    caller.expect("good settings")
}

fn provider(url: &str) -> HttpMemory {
    HttpMemory::new(
        url,
        Some(Duration::from_millis(200)),
        &caller(&["127.0.0.1"]),
    )
}

const SESSION: SessionId = SessionId(Uuid::from_u128(7));
const SEND: SendId = SendId(Uuid::from_u128(8));

fn question() -> Recall {
    Recall {
        tenant: TenantId::DEFAULT,
        namespace: "user/1".parse().expect("a namespace"),
        query: "tea?".to_owned(),
        limit: 5,
        on_behalf_of: OnBehalfOf::send(SESSION, SEND),
        account: Account::default(),
    }
}

fn entry() -> Remember {
    Remember {
        tenant: TenantId::DEFAULT,
        namespace: "user/1".parse().expect("a namespace"),
        text: "likes tea".to_owned(),
        metadata: Map::new(),
        source: Some(MemorySource {
            session_id: SESSION,
            send_id: SEND,
            from_seq: None,
            to_seq: None,
        }),
        replaces: Some("b".to_owned()),
        key: "call_7".to_owned(),
    }
}

#[tokio::test]
async fn another_service_is_asked_by_signed_requests() {
    let (url, requests) = service(&[
        r#"{"entries": [{"id": "a", "text": "likes tea"}, {"id": "b", "text": "no sugar"}]}"#,
        r#"{"id": "c"}"#,
        r#"{"forgotten": true}"#,
        r#"{"forgotten": false}"#,
    ])
    .await;
    let memory = provider(&url);
    let found = memory.recall(question()).await.expect("an answer");
    let texts: Vec<_> = found.iter().map(|entry| entry.text.as_str()).collect();
    assert_eq!(texts, ["likes tea", "no sugar"]);
    assert_eq!(memory.remember(entry()).await.expect("an answer"), "c");
    for expected in [true, false] {
        let forget = Forget {
            tenant: TenantId::DEFAULT,
            namespace: "user/1".parse().expect("a namespace"),
            id: "a".to_owned(),
            on_behalf_of: OnBehalfOf::send(SESSION, SEND),
        };
        assert_eq!(memory.forget(forget).await.expect("an answer"), expected);
    }
    let requests = requests.lock().expect("no panic").clone();
    let names = [
        "memory_recall",
        "memory_remember",
        "memory_forget",
        "memory_forget",
    ];
    for (request, name) in requests.iter().zip(names) {
        let (head, body) = request.split_once("\r\n\r\n").expect("a head");
        let body: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(body["name"], name);
        assert_eq!(body["kind"], "memory", "{name}");
        assert_eq!(body["tenant"], "ten_1", "{name}");
        assert_eq!(body["arguments"]["namespace"], "user/1");
        assert_eq!(body["session_id"], SESSION.to_string(), "{name}");
        assert_eq!(body["send_id"], SEND.to_string(), "{name}");
        let head = head.to_lowercase();
        assert!(head.contains("webhook-signature: v1,"), "{head}");
    }
    assert!(
        requests[1]
            .to_lowercase()
            .contains("idempotency-key: call_7")
    );
}

#[tokio::test]
async fn what_no_send_asks_for_names_none() {
    let (url, requests) = service(&[r#"{"entries": []}"#]).await;
    let memory = provider(&url);
    let askers = [
        OnBehalfOf::default(),
        OnBehalfOf {
            session: Some(SESSION),
            send: None,
        },
    ];
    for on_behalf_of in askers {
        let ask = Recall {
            on_behalf_of,
            ..question()
        };
        memory.recall(ask).await.expect("an answer");
    }
    let requests = requests.lock().expect("no panic").clone();
    let bodies = requests.iter().map(|request| {
        let (_, body) = request.split_once("\r\n\r\n").expect("a head");
        serde_json::from_str::<Value>(body).expect("JSON")
    });
    let bodies: Vec<_> = bodies.collect();
    let of = |name: &str| {
        let each = bodies.iter().map(|body| body.get(name).cloned());
        each.collect::<Vec<Option<Value>>>()
    };
    let session = Some(json!(SESSION.to_string()));
    assert_eq!(of("session_id"), [None, session]);
    assert!(of("send_id").iter().all(Option::is_none), "{bodies:?}");
}

#[tokio::test]
async fn a_service_that_does_not_answer_well_is_unavailable_soon_and_tells_no_secret() {
    let bad: &[(&str, Answers)] = &[
        ("slow", &["silence"]),
        ("torn", &["torn"]),
        ("failing", &["500 Oh|{\"why\": \"very-secret\"}"]),
        ("refusing", &["403 No|{\"why\": \"very-secret\"}"]),
        (
            "elsewhere",
            &["302 Found\r\nlocation: http://127.0.0.1:1/very-secret|{}"],
        ),
        ("nonsense", &["nonsense"]),
        ("another form", &["{\"entries\": \"very-secret\"}"]),
        ("no entry", &["{\"entries\": [{\"id\": 7}]}"]),
        ("a list", &["[1, 2]"]),
        ("nothing", &["204 Nothing|"]),
    ];
    let clock = SystemClock::new();
    for (how, answers) in bad {
        let (url, requests) = service(answers).await;
        let memory = provider(&url);
        let begun = clock.monotonic();
        let error = memory.recall(question()).await.expect_err(how);
        let took = clock.monotonic().saturating_sub(begun);
        assert!(took < Duration::from_secs(20), "{how}: {took:?}");
        assert!(
            matches!(error, MemoryError::Unavailable { .. }),
            "{how}: {error:?}"
        );
        for said in [
            error.to_string(),
            format!("{error:?}"),
            format!("{memory:?}"),
        ] {
            assert!(!said.contains("MfKQ9r8G"), "{how}: {said}");
        }
        let said = error.to_string();
        assert!(!said.contains("token="), "{how}: {said}");
        // A redirect is not followed, and each attempt repeats the same idempotency key.
        let requests = requests.lock().expect("no panic");
        assert!(
            (1..=5).contains(&requests.len()),
            "{how}: {}",
            requests.len()
        );
        let key = |request: &String| {
            let lower = request.to_lowercase();
            let line = lower
                .lines()
                .find(|line| line.starts_with("idempotency-key: "));
            line.map(str::to_owned)
        };
        assert!(
            requests
                .iter()
                .all(|request| key(request) == key(&requests[0])),
            "{how}"
        );
    }
}

#[tokio::test]
async fn addresses_that_are_not_allowed_are_not_reached() {
    let (url, requests) = service(&[r#"{"entries": []}"#]).await;
    let memory = HttpMemory::new(&url, Some(Duration::from_millis(200)), &caller(&[]));
    let error = memory.recall(question()).await.expect_err("it is private");
    assert!(
        matches!(error, MemoryError::Unavailable { .. }),
        "{error:?}"
    );
    assert_eq!(requests.lock().expect("no panic").len(), 0);
}
