//! Folds by an external service over real sockets: correct, slow, failing, lying, and at a
//! forbidden address. Whatever it does, the send continues: digests replace what the service did
//! not write.

use std::fmt::Debug;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainspring_runtime::OsEntropy;
use mainspring_shared::agent::FoldStrategy;
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::fold::{Fold, FoldKind};
use mainspring_tests::world::World;
use mainspring_tools::http::{Caller, CallerSettings};
use mainspring_worker::llm::Secret;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tracing::field::{Field, Visit};
use tracing::span;

use super::folding::{SMALL, agent, text};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A secret in the service's URL, which must not be logged.
const TOKEN: &str = "very-secret";

const RIGHT: &str = r#"{"summary": "They spoke of apples and pears."}"#;

/// Requests as they arrived.
type Requests = Arc<Mutex<Vec<String>>>;

/// Everything that was logged.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = self.0.lock().expect("no panic");
        // Writing to a string cannot fail.
        let _ = write!(text, "{field}={value:?} ");
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// A request's announced body length, and the offset of the body; `None` until its head is
/// complete.
fn body_of(text: &[u8]) -> Option<(usize, usize)> {
    let text = String::from_utf8_lossy(text);
    let (head, _) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.parse().ok())?
    });
    Some((head.len() + 4, length.unwrap_or(0)))
}

async fn request(stream: &mut TcpStream) -> String {
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        if body_of(&text).is_some_and(|(begin, length)| text.len() >= begin + length) {
            break;
        }
        match stream.read(&mut buffer).await.unwrap_or(0) {
            0 => break,
            count => text.extend_from_slice(&buffer[..count]),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Starts a service that gives these answers in turn, the last one repeatedly; `silence` answers
/// nothing.
async fn service(answers: Vec<String>) -> (String, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let requests = Requests::default();
    let seen = requests.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let text = request(&mut stream).await;
            let place = {
                let mut seen = seen.lock().expect("no panic");
                seen.push(text);
                seen.len() - 1
            };
            let answer = answers.get(place).or(answers.last()).expect("an answer");
            if answer == "silence" {
                // Wait until the client leaves.
                let _ = stream.read(&mut [0; 16]).await;
                continue;
            }
            let (head, body) = answer.split_once('|').unwrap_or(("200 OK", answer));
            let whole = format!(
                "HTTP/1.1 {head}\r\ncontent-type: application/json\r\nconnection: close\r\n\
                 content-length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(whole.as_bytes()).await;
        }
    });
    (format!("http://{address}/fold?token={TOKEN}"), requests)
}

fn caller(world_clock: &Arc<dyn mainspring_shared::time::Clock>, allowed: &[&str]) -> Caller {
    // Another test may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let settings = CallerSettings {
        signing_secrets: vec![Secret::new(SECRET)],
        allow_private: allowed.iter().map(|&one| one.to_owned()).collect(),
        timeout: Duration::from_millis(200),
        ..CallerSettings::default()
    };
    let caller = Caller::new(&settings, world_clock.clone(), Arc::new(OsEntropy));
    caller.expect("good settings")
}

/// Runs a session whose fold service is at this address until something is folded; returns its
/// folds and the log. Every send must complete, whatever the service does.
async fn folds(url: &str, allowed: &[&str]) -> (Vec<Fold>, String) {
    let log = Log::default();
    let logged = tracing::subscriber::set_default(log.clone());
    let world = World::with_tools(|tools, _, clock| {
        tools.add_source(Arc::new(caller(clock, allowed)));
    })
    .await;
    let mut agent = agent(FoldStrategy::Http, SMALL);
    agent.context.fold.url = Some(url.to_owned());
    let key = world.session(agent).await;
    let _worker = world.worker("w", world.store.clone());
    for n in 0..16 {
        let id = world.send(key, &text(n)).await;
        let record = world.settle(&[id]).await.remove(0);
        assert_eq!(record.status, SendStatus::Completed, "{:?}", record.error);
        let dump = world.dump().await;
        let folds = &dump.sessions[0].folds;
        if !folds.is_empty() {
            world.audit().await;
            drop(logged);
            let text = log.0.lock().expect("no panic").clone();
            return (folds.clone(), text);
        }
    }
    panic!("nothing is folded");
}

fn key(request: &str) -> String {
    let lower = request.to_lowercase();
    let mut lines = lower.lines();
    let line = lines.find(|line| line.starts_with("idempotency-key: "));
    line.expect("it has a key").to_owned()
}

#[tokio::test]
async fn a_service_writes_folds_from_signed_requests() {
    let (url, requests) = service(vec![RIGHT.to_owned()]).await;
    let (folds, log) = folds(&url, &["127.0.0.1"]).await;
    assert_eq!(folds[0].kind, FoldKind::Http, "{log}");
    assert_eq!(folds[0].text, "They spoke of apples and pears.");
    let requests = requests.lock().expect("no panic");
    let (head, body) = requests[0].split_once("\r\n\r\n").expect("a head");
    assert!(
        head.to_lowercase().contains("webhook-signature: v1,"),
        "{head}"
    );
    let body: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(body["name"], "fold");
    let arguments = &body["arguments"];
    assert_eq!(arguments["from_seq"], folds[0].from_seq);
    assert_eq!(arguments["to_seq"], folds[0].to_seq);
    let messages = arguments["messages"].as_array().expect("a list").len();
    assert_eq!(messages as i64, folds[0].to_seq - folds[0].from_seq + 1);
}

#[tokio::test]
async fn a_service_that_fails_once_is_asked_again_for_the_same_fold() {
    let failing = format!("500 Oh|{{\"why\": \"{TOKEN}\"}}");
    let (url, requests) = service(vec![failing, RIGHT.to_owned()]).await;
    let (folds, log) = folds(&url, &["127.0.0.1"]).await;
    assert_eq!(folds[0].kind, FoldKind::Http);
    assert_eq!(folds[0].text, "They spoke of apples and pears.");
    let requests = requests.lock().expect("no panic");
    assert!(requests.len() >= 2);
    assert_eq!(key(&requests[0]), key(&requests[1]));
    assert!(!log.contains(TOKEN), "{log}");
}

#[tokio::test]
async fn digests_take_the_place_of_what_a_service_does_not_write_and_no_secret_is_told() {
    let long = "and the pears ".repeat(10_000);
    let bad = [
        ("slow", "silence".to_owned()),
        ("failing", format!("500 Oh|{{\"why\": \"{TOKEN}\"}}")),
        ("refusing", format!("403 No|{{\"why\": \"{TOKEN}\"}}")),
        ("too long", format!("{{\"summary\": \"{long}\"}}")),
        ("empty", "{\"summary\": \" \"}".to_owned()),
        ("no text", "{\"summary\": 7}".to_owned()),
        ("nonsense", "They spoke.".to_owned()),
        ("a list", "[\"They spoke.\"]".to_owned()),
        ("nothing", "204 Nothing|".to_owned()),
    ];
    for (how, answer) in bad {
        let (url, requests) = service(vec![answer]).await;
        let (folds, log) = folds(&url, &["127.0.0.1"]).await;
        assert_eq!(folds[0].kind, FoldKind::Projection, "{how}");
        assert!(!requests.lock().expect("no panic").is_empty(), "{how}");
        assert!(log.contains("fold"), "{how}: {log}");
        // The URL contains a token, and requests are signed: neither may be logged.
        assert!(!log.contains("token="), "{how}: {log}");
        assert!(!log.contains("MfKQ9r8G"), "{how}: {log}");
    }
}

#[tokio::test]
async fn a_redirect_inward_is_not_followed() {
    let (inside, reached) = service(vec![RIGHT.to_owned()]).await;
    let (url, requests) = service(vec![format!("307 Elsewhere\r\nlocation: {inside}|{{}}")]).await;
    let (folds, log) = folds(&url, &["127.0.0.1"]).await;
    assert_eq!(folds[0].kind, FoldKind::Projection);
    assert!(!requests.lock().expect("no panic").is_empty());
    assert_eq!(reached.lock().expect("no panic").len(), 0);
    assert!(!log.contains(TOKEN), "{log}");
}

#[tokio::test]
async fn an_address_that_is_not_allowed_is_not_reached() {
    let (url, requests) = service(vec![RIGHT.to_owned()]).await;
    let (folds, log) = folds(&url, &[]).await;
    assert_eq!(folds[0].kind, FoldKind::Projection);
    assert_eq!(requests.lock().expect("no panic").len(), 0);
    assert!(!log.contains(TOKEN), "{log}");
}
