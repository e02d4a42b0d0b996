//! Calls over real sockets: what is sent, what comes back, what is retried, and what is refused.

mod direct;
mod server;
mod ssrf;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, Once};

use mainspring_runtime::OsEntropy;
use mainspring_shared::id::{BootId, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::memory::Account;
use mainspring_shared::message::digest_of;
use mainspring_shared::time::{Clock, Span, Timestamp};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::server::{Act, Server};
use super::*;
use crate::http::dns::Lookup;
use crate::http::{Caller, CallerSettings, Keys, Kind};
use mainspring_worker::llm::Secret;

/// A clock on which every wait is over at once.
#[derive(Debug, Default)]
struct Leaping {
    passed: Mutex<Duration>,
    waits: Mutex<Vec<Duration>>,
    /// How much time passes between two readings.
    step: Mutex<Duration>,
}

impl Leaping {
    fn waits(&self) -> Vec<Duration> {
        self.waits.lock().expect("no panic").clone()
    }
}

#[async_trait]
impl Clock for Leaping {
    fn now(&self) -> Timestamp {
        Timestamp(1_700_000_000_000).after(self.monotonic())
    }

    fn monotonic(&self) -> Duration {
        let mut passed = self.passed.lock().expect("no panic");
        *passed += *self.step.lock().expect("no panic");
        *passed
    }

    async fn sleep(&self, duration: Duration) {
        *self.passed.lock().expect("no panic") += duration;
        self.waits.lock().expect("no panic").push(duration);
    }
}

/// A DNS that gives these answers in turn, repeating the last, and records the queries.
#[derive(Debug, Default)]
struct Names {
    of: BTreeMap<String, Vec<Vec<IpAddr>>>,
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl Lookup for Names {
    async fn lookup(&self, host: &str, _: Option<TenantId>) -> io::Result<Vec<IpAddr>> {
        let mut asked = self.asked.lock().expect("no panic");
        let before = asked.iter().filter(|name| *name == host).count();
        asked.push(host.to_owned());
        let answers = self.of.get(host).ok_or(io::ErrorKind::NotFound)?;
        Ok(answers
            .get(before)
            .or(answers.last())
            .cloned()
            .unwrap_or_default())
    }
}

struct World {
    clock: Arc<Leaping>,
    names: Arc<Names>,
    caller: Caller,
}

fn world(allowed: &[&str], names: &[(&str, &[&[&str]])]) -> World {
    let settings = CallerSettings {
        signing_secrets: vec![Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")],
        allow_private: allowed.iter().map(|&entry| entry.to_owned()).collect(),
        answer_bytes_max: 1_000,
        ..CallerSettings::default()
    };
    world_with(&settings, names)
}

fn world_with(settings: &CallerSettings, names: &[(&str, &[&[&str]])]) -> World {
    static RING: Once = Once::new();
    RING.call_once(|| {
        // Another test in this binary may have installed it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    let parse = |list: &&[&str]| {
        list.iter()
            .map(|a| a.parse().expect("an address"))
            .collect()
    };
    let entry = |(name, lists): &(&str, &[&[&str]])| {
        ((*name).to_owned(), lists.iter().map(parse).collect())
    };
    let names = Arc::new(Names {
        of: names.iter().map(entry).collect(),
        asked: Mutex::default(),
    });
    let clock = Arc::new(Leaping::default());
    let caller = Caller::with_lookup(settings, clock.clone(), Arc::new(OsEntropy), names.clone());
    World {
        clock,
        names,
        caller: caller.expect("the settings are fine"),
    }
}

impl World {
    async fn call(&self, url: &str, repeat: Repeat) -> Result<Output, ToolError> {
        self.call_within(url, repeat, Duration::from_mins(1)).await
    }

    async fn call_within(
        &self,
        url: &str,
        repeat: Repeat,
        timeout: Duration,
    ) -> Result<Output, ToolError> {
        let tool = self.caller.tool(&declared(url, repeat, timeout));
        tool.call(invocation()).await
    }
}

fn declared(url: &str, repeat: Repeat, timeout: Duration) -> HttpTool {
    HttpTool {
        name: "look".to_owned(),
        description: "Looks.".to_owned(),
        parameters: json!({"type": "object"}),
        url: url.to_owned(),
        request: None,
        repeat: Some(repeat),
        timeout: Some(Span(timeout)),
        parallel: false,
        approval: false,
        digest: None,
        pool: None,
        extra: mainspring_shared::stored::Extra::default(),
    }
}

/// What the model wrote.
const SAID: &str = "{\r\n  \"at\" : \"it\"\n}";

fn invocation() -> Invocation {
    Invocation {
        call_id: "call_7_0_0".to_owned(),
        arguments: Map::from_iter([("at".to_owned(), json!("it"))]),
        said: Some(SAID.into()),
        session: SessionKey {
            tenant: TenantId::DEFAULT,
            session: SessionId(Uuid::from_u128(7)),
        },
        send_id: SendId(Uuid::from_u128(8)),
        boot: BootId(Uuid::nil()),
        attempt: 1,
        stop: CancellationToken::new(),
        skills: mainspring_worker::tool::Skills::default(),
        account: Account::default(),
        progress: mainspring_worker::tool::Progress::default(),
        kept: mainspring_worker::tool::Kept::default(),
        inquiring: mainspring_worker::tool::Inquiring::default(),
    }
}

fn url(server: &Server) -> String {
    format!("http://{}/hook?x=1", server.address)
}

fn refusal(result: Result<Output, ToolError>) -> (Code, String) {
    match result {
        Err(ToolError::Reply { code, message }) => (code, message),
        other => panic!("{other:?}"),
    }
}

const REPEATABLE: [Repeat; 2] = [Repeat::Safe, Repeat::Keyed];
const LOCAL: &[&str] = &["127.0.0.0/8"];

#[tokio::test]
async fn a_call_is_one_signed_post_with_its_id_as_key() {
    let server = Server::start(vec![Act::with(
        200,
        "content-type: application/json; charset=utf-8\r\n",
        r#"{"found": 1}"#,
    )])
    .await;
    let world = world(LOCAL, &[]);
    let output = world.call(&url(&server), Repeat::Once).await;
    assert_eq!(output, Ok(Output::json(json!({"found": 1}))));

    let requests = server.requests();
    let [request] = requests.as_slice() else {
        panic!("{requests:?}");
    };
    assert_eq!(request.line, "POST /hook?x=1 HTTP/1.1");
    let body: Value = serde_json::from_slice(&request.body).expect("JSON");
    let expected = json!({
        "kind": "tool",
        "tenant": "ten_1",
        "url": url(&server),
        "call_id": "call_7_0_0",
        "name": "look",
        "arguments": {"at": "it"},
        "session_id": "ses_00000000000000000000000000000007",
        "send_id": "snd_00000000000000000000000000000008",
    });
    assert_eq!(body, expected);
    let text = String::from_utf8_lossy(&request.body);
    assert!(text.contains(SAID), "{text}");
    for (name, value) in [
        ("content-type", "application/json"),
        ("idempotency-key", "call_7_0_0"),
        ("webhook-id", "call_7_0_0"),
        ("webhook-timestamp", "1700000000"),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}");
    }
    let secrets = [Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")];
    let keys =
        crate::http::signing_keys(&secrets, Kind::Tool, &url(&server), Some(TenantId::DEFAULT));
    let keys = keys.expect("a secret");
    let keys = Keys::of_revealed(keys.iter().map(String::as_str));
    let signed = keys.headers("call_7_0_0", Timestamp(1_700_000_000_000), &request.body);
    let signature = signed["webhook-signature"].to_str().expect("ASCII");
    assert_eq!(request.header("webhook-signature"), Some(signature));
}

#[tokio::test]
async fn what_is_left_of_a_call_is_what_the_template_says_or_the_answer() {
    let answers = [
        r#"{"found": 1, "digest": "one"}"#,
        r#"{"found": 1, "digest": "one"}"#,
        r#"{"digest": "two"}"#,
        r#"{"digest": 2}"#,
        "plain",
    ];
    let acts = answers.map(|said| {
        let kind = if said.starts_with('{') {
            "application/json"
        } else {
            "text/plain"
        };
        Act::with(200, &format!("content-type: {kind}\r\n"), said)
    });
    let server = Server::start(acts.into()).await;
    let world = world(LOCAL, &[]);
    let mut left = Vec::new();
    let template = "{{output.found}} at {{arguments.at}}";
    for template in [
        None,
        Some(template),
        Some(template),
        None,
        Some("said {{output}}"),
    ] {
        let declared = HttpTool {
            digest: template.map(str::to_owned),
            ..declared(&url(&server), Repeat::Once, Duration::from_mins(1))
        };
        let output = world.caller.tool(&declared).call(invocation()).await;
        let output = output.expect("an answer");
        left.push(digest_of(&output.content).map(str::to_owned));
    }
    let left: Vec<_> = left.iter().map(Option::as_deref).collect();
    // A template that refers to something missing renders to nothing.
    assert_eq!(
        left,
        [
            Some("one"),
            Some("1 at it"),
            Some("two"),
            None,
            Some("said plain")
        ]
    );
}

#[test]
fn only_listed_hosts_are_signed_for_with_the_key_of_all_tenants() {
    let secrets = [Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")];
    let count = |hosts: &[&str], url: &str| {
        let settings = CallerSettings {
            signing_secrets: secrets.to_vec(),
            signing_hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..CallerSettings::default()
        };
        let clock = Arc::new(mainspring_runtime::SystemClock::new());
        let entropy = Arc::new(OsEntropy);
        let caller = Caller::new(&settings, clock, entropy).expect("good settings");
        let signer = &caller.shared.signer;
        let keys = signer.keys(Kind::Tool, &url.parse().expect("a URL"), TenantId(2));
        keys.reveal().len()
    };
    let ours = ["Tools.example", "10.0.0.1"];
    for (url, keys) in [
        ("https://tools.example/x", 2),
        ("https://tools.example:8443/x", 2),
        ("http://10.0.0.1/", 2),
        ("https://tools.example.evil.example/x", 0),
        ("https://evil.example/tools.example", 0),
        ("https://tools.example@evil.example/", 0),
    ] {
        assert_eq!(count(&ours, url), keys, "{url}");
        assert_eq!(count(&[], url), 1, "without a list, the tenant's own");
    }
}

#[tokio::test]
async fn answers_without_json_are_text_and_long_ones_are_cut() {
    let long = "x".repeat(1_500);
    let server = Server::start(vec![
        Act::with(204, "", ""),
        Act::with(200, "content-type: text/plain\r\n", "plain"),
        Act::with(201, "", &long),
    ])
    .await;
    let world = world(LOCAL, &[]);
    let url = url(&server);
    let call = || world.call(&url, Repeat::Once);
    assert_eq!(call().await, Ok(Output::text("")));
    assert_eq!(call().await, Ok(Output::text("plain")));
    let cut = format!(
        "{}\n[… the answer was cut after 1000 bytes …]",
        &long[..1_000]
    );
    assert_eq!(call().await, Ok(Output::text(cut)));
}

#[tokio::test]
async fn what_a_4xx_says_is_told_once_and_within_bounds() {
    for repeat in Repeat::ALL {
        let server = Server::start(vec![Act::with(422, "", &"é".repeat(9_000))]).await;
        let world = world(LOCAL, &[]);
        let (code, message) = refusal(world.call(&url(&server), repeat).await);
        assert_eq!(code, Code::ToolFailed);
        assert!(
            message.starts_with("the tool answered 422: éé"),
            "{message}"
        );
        assert!(
            message.chars().count() < 4_100,
            "{}",
            message.chars().count()
        );
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn failures_of_the_other_side_are_tried_again_where_that_does_no_harm() {
    for repeat in REPEATABLE {
        let acts = vec![Act::status(500), Act::Close, Act::with(200, "", "at last")];
        let server = Server::start(acts).await;
        let world = world(LOCAL, &[]);
        let output = world.call(&url(&server), repeat).await;
        assert_eq!(output, Ok(Output::text("at last")), "{repeat:?}");
        let requests = server.requests();
        assert_eq!(requests.len(), 3);
        assert!(requests.iter().all(|r| r.body == requests[0].body));
        assert!(
            requests
                .iter()
                .all(|r| r.header("idempotency-key") == Some("call_7_0_0"))
        );
        let waits = world.clock.waits();
        assert_eq!(waits.len(), 2);
        assert!(waits.iter().all(|wait| *wait <= ATTEMPTS.cap), "{waits:?}");
    }
}

#[tokio::test]
async fn attempts_are_bounded() {
    for repeat in REPEATABLE {
        let server = Server::start(vec![Act::status(502)]).await;
        let world = world(LOCAL, &[]);
        let (code, message) = refusal(world.call(&url(&server), repeat).await);
        assert_eq!(code, Code::ToolFailed);
        assert_eq!(message, "the tool answered 502: said 502 (3 attempts)");
        assert_eq!(server.requests().len(), 3);
    }
}

#[tokio::test]
async fn a_tool_that_runs_once_is_asked_once_and_doubt_is_told() {
    for act in [Act::status(500), Act::status(503), Act::Close, Act::Torn] {
        let server = Server::start(vec![act.clone()]).await;
        let world = world(LOCAL, &[]);
        let (code, message) = refusal(world.call(&url(&server), Repeat::Once).await);
        assert_eq!(code, Code::ToolUnknownOutcome, "{act:?}: {message}");
        assert!(
            message.ends_with("whether it took effect is not known"),
            "{message}"
        );
        assert_eq!(server.requests().len(), 1, "{act:?}");
    }
}

#[tokio::test]
async fn silence_is_a_timeout_or_for_a_tool_that_runs_once_a_doubt() {
    let short = Duration::from_millis(50);
    for (repeat, expected, end) in [
        (Repeat::Once, Code::ToolUnknownOutcome, "is not known"),
        (Repeat::Keyed, Code::ToolTimeout, "(3 attempts)"),
        (Repeat::Safe, Code::ToolTimeout, "(3 attempts)"),
    ] {
        let server = Server::start(vec![Act::Silence]).await;
        let world = world(LOCAL, &[]);
        let (code, message) = refusal(world.call_within(&url(&server), repeat, short).await);
        assert_eq!(code, expected, "{message}");
        assert!(message.contains("50ms"), "{message}");
        assert!(message.ends_with(end), "{message}");
    }
}

#[tokio::test]
async fn the_limit_is_told_as_it_was_declared_however_much_of_it_was_left() {
    let server = Server::start(vec![Act::Silence]).await;
    let world = world(LOCAL, &[]);
    *world.clock.step.lock().expect("no panic") = Duration::from_nanos(30);
    let limit = Duration::from_millis(50);
    let url = url(&server);
    let called = world.call_within(&url, Repeat::Once, limit);
    let (_, message) = refusal(called.await);
    assert!(message.contains("it took longer than 50ms"), "{message}");
}

#[tokio::test]
async fn without_a_connection_nothing_happened() {
    let gone = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        listener.local_addr().expect("an address")
    };
    for (repeat, waits) in [(Repeat::Once, 0), (Repeat::Keyed, 2), (Repeat::Safe, 2)] {
        let world = world(LOCAL, &[]);
        let called = world.call(&format!("http://{gone}/"), repeat).await;
        let (code, message) = refusal(called);
        assert_eq!(code, Code::ToolFailed);
        assert!(message.starts_with("the tool was not reached"), "{message}");
        assert!(!message.contains("127.0.0.1"), "{message}");
        assert_eq!(world.clock.waits().len(), waits);
    }
}

#[tokio::test]
async fn what_the_other_side_asks_for_is_waited_out_or_given_up_on() {
    for (status, repeat) in [(429, Repeat::Keyed), (503, Repeat::Safe)] {
        let busy = Act::with(status, "retry-after: 7\r\n", "busy");
        let server = Server::start(vec![busy, Act::with(200, "", "done")]).await;
        let world = world(LOCAL, &[]);
        let output = world.call(&url(&server), repeat).await;
        assert_eq!(output, Ok(Output::text("done")));
        assert_eq!(world.clock.waits(), [Duration::from_secs(7)]);
    }
    let server = Server::start(vec![Act::with(429, "retry-after: 86400\r\n", "tomorrow")]).await;
    let world = world(LOCAL, &[]);
    let (code, message) = refusal(world.call(&url(&server), Repeat::Safe).await);
    assert_eq!(code, Code::ToolFailed);
    assert_eq!(message, "the tool answered 429: tomorrow");
    assert_eq!(world.clock.waits(), []);
}

#[tokio::test]
async fn a_stopped_call_ends_at_once_and_leaves() {
    let server = Server::start(vec![Act::Silence]).await;
    let world = world(LOCAL, &[]);
    let tool = world.caller.tool(&declared(
        &url(&server),
        Repeat::Once,
        Duration::from_mins(1),
    ));
    let invocation = invocation();
    let stop = invocation.stop.clone();
    let call = tokio::spawn(async move { tool.call(invocation).await });
    while server.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    stop.cancel();
    let (code, _) = refusal(call.await.expect("no panic"));
    assert_eq!(code, Code::ToolInterrupted);
}

#[tokio::test]
async fn the_kernel_waits_longer_than_all_attempts() {
    let world = world(&[], &[]);
    let traits = |repeat| {
        let tool = declared("https://tool.example/", repeat, Duration::from_secs(10));
        world.caller.tool(&tool).traits()
    };
    assert_eq!(traits(Repeat::Once).timeout, Duration::from_secs(15));
    assert_eq!(traits(Repeat::Keyed).timeout, Duration::from_secs(65));
    assert_eq!(traits(Repeat::Safe).concurrency, Concurrency::Exclusive);
}
