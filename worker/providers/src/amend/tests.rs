//! Refusals of each part of a request in each vendor's words, at all transports.
//!
//! A strict server refuses whatever has the part. The request must go through after it was changed,
//! the next one of the session must not be refused at all, and other parts must stay.

mod guesses;
mod wordings;

use std::sync::{Arc, Mutex};

use mainspring_runtime::SystemClock;
use mainspring_shared::agent::{OutputSpec, ReasoningEffort};
use mainspring_shared::id::SendId;
use mainspring_shared::message::{
    ContentPart, FileSource, ImageSource, Message, NewMessage, Role, ToolCall,
};
use mainspring_shared::model::ToolSpec;
use mainspring_shared::time::{Clock, Timestamp};
use mainspring_worker::llm::{Model, Secret, Share};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::part::LIMITS;
use super::*;
use crate::settings::{Kind, ProviderSettings};

/// What a server says to a body: its refusal, or nothing if it takes it.
type Rule = Box<dyn Fn(&Value) -> Option<(u16, String)> + Send + Sync>;

/// The clock of the system, set forward.
#[derive(Debug)]
struct Later {
    clock: SystemClock,
    ahead: Mutex<Duration>,
}

impl Default for Later {
    fn default() -> Self {
        Self {
            clock: SystemClock::new(),
            ahead: Mutex::default(),
        }
    }
}

impl Later {
    fn pass(&self, time: Duration) {
        *self.ahead.lock().expect("nobody panics") += time;
    }
}

#[async_trait::async_trait]
impl Clock for Later {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic() + *self.ahead.lock().expect("nobody panics")
    }

    async fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration).await;
    }
}

/// A server with one rule, and the bodies that it refused and took.
struct Server {
    listener: TcpListener,
    protocol: Protocol,
    /// The clock of its clients.
    clock: Arc<Later>,
    rule: Mutex<Rule>,
    refused: Mutex<Vec<Value>>,
    taken: Mutex<Vec<Value>>,
}

impl Server {
    async fn new(protocol: Protocol) -> Self {
        Self {
            listener: TcpListener::bind("127.0.0.1:0").await.expect("a port"),
            protocol,
            clock: Arc::default(),
            rule: Mutex::new(Box::new(|_| None)),
            refused: Mutex::default(),
            taken: Mutex::default(),
        }
    }

    fn model(&self, set: impl FnOnce(&mut ProviderSettings)) -> Arc<dyn Model> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let kind = match self.protocol {
            Protocol::Chat => Kind::OpenAi,
            Protocol::Messages => Kind::Anthropic,
            Protocol::Responses => Kind::OpenAiResponses,
        };
        let port = self.listener.local_addr().expect("it is bound").port();
        let mut settings = ProviderSettings {
            base_url: format!("http://127.0.0.1:{port}/v1"),
            native_schema: true,
            ..ProviderSettings::new("p", kind)
        };
        set(&mut settings);
        let clock: Arc<dyn Clock> = Arc::clone(&self.clock) as Arc<dyn Clock>;
        crate::open::made(&settings, &Share::default(), &clock).expect("it can be made")
    }

    /// Sets the rule, and forgets what was sent.
    fn rule(&self, rule: Rule) {
        *self.rule.lock().expect("nobody panics") = rule;
        self.refused.lock().expect("nobody panics").clear();
        self.taken.lock().expect("nobody panics").clear();
    }

    async fn serve(&self) {
        loop {
            let (stream, _) = self.listener.accept().await.expect("a connection");
            self.answer(stream).await;
        }
    }

    async fn answer(&self, mut stream: TcpStream) {
        let mut read = Vec::new();
        let body = loop {
            let mut piece = vec![0; 65_536];
            let count = stream.read(&mut piece).await.unwrap_or(0);
            if count == 0 {
                return;
            }
            read.extend_from_slice(&piece[..count]);
            let Some(head) = read.windows(4).position(|four| four == b"\r\n\r\n") else {
                continue;
            };
            let text = String::from_utf8_lossy(&read[..head]).to_ascii_lowercase();
            let length = text.split("content-length: ").nth(1).expect("a length");
            let length: usize = length
                .lines()
                .next()
                .expect("a line")
                .trim()
                .parse()
                .expect("a number");
            if read.len() >= head + 4 + length {
                break serde_json::from_slice(&read[head + 4..]).expect("JSON");
            }
        };
        let said = self.rule.lock().expect("nobody panics")(&body);
        let (status, text) = if let Some(refusal) = said {
            self.refused.lock().expect("nobody panics").push(body);
            refusal
        } else {
            self.taken.lock().expect("nobody panics").push(body);
            (200, self.hello())
        };
        let head = format!(
            "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            text.len()
        );
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(text.as_bytes()).await;
        let _ = stream.shutdown().await;
    }

    fn hello(&self) -> String {
        let usage = json!({"input_tokens": 5, "output_tokens": 1, "prompt_tokens": 5, "completion_tokens": 1});
        match self.protocol {
            Protocol::Chat => json!({
                "choices": [{"message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
                "usage": usage,
            }),
            Protocol::Messages => json!({
                "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
                "content": [{"type": "text", "text": "hello"}], "usage": usage,
            }),
            Protocol::Responses => json!({
                "id": "resp_1", "object": "response", "status": "completed", "usage": usage,
                "output": [{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": "hello", "annotations": []}]}],
            }),
        }
        .to_string()
    }

    /// Runs work beside the server.
    async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            () = self.serve() => unreachable!("it never stops"),
            done = work => done,
        }
    }
}

fn message(role: Role, seq: i64, set: impl FnOnce(&mut NewMessage)) -> Arc<Message> {
    let mut new = NewMessage {
        role,
        ..NewMessage::user(vec![ContentPart::text(format!("text {seq}"))], 0)
    };
    set(&mut new);
    Arc::new(new.at(seq, SendId(uuid::Uuid::nil()), Timestamp(0), 1))
}

fn picture(data: &str) -> ContentPart {
    ContentPart::Image {
        source: ImageSource::Base64 {
            media_type: "image/png".to_owned(),
            data: data.to_owned(),
        },
    }
}

/// The contents of two pictures and a file.
const PICTURE: &str = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo";
const OTHER_PICTURE: &str = "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXo";
const FILE: &str = "JVBERi0xLjQKMSAwIG9iagAAAAAAAAAAAAA";

/// A request with one of everything.
fn rich(protocol: Protocol) -> Request {
    rich_for(protocol, "m")
}

fn rich_for(protocol: Protocol, model: &str) -> Request {
    let tool = |name: &str, parameters: Value| {
        Arc::new(ToolSpec {
            name: name.to_owned(),
            description: format!("does {name}"),
            parameters,
        })
    };
    let plain =
        || json!({"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]});
    let odd = json!({
        "type": "object",
        "properties": {"id": {"type": "string"}, "url": {"type": "string", "pattern": "^h"}},
        "anyOf": [{"required": ["id"]}, {"required": ["url"]}],
    });
    let signature = match protocol {
        Protocol::Chat => None,
        Protocol::Messages => Some("c2lnbmF0dXJl".to_owned()),
        Protocol::Responses => Some(format!("responses:rs_1 {model} gAAAencrypted")),
    };
    let messages = vec![
        message(Role::User, -1, |_| {}),
        message(Role::Assistant, 0, |_| {}),
        message(Role::User, 1, |new| {
            new.content.push(picture(PICTURE));
            new.content.push(picture(OTHER_PICTURE));
            new.content.push(ContentPart::File {
                name: "a.pdf".to_owned(),
                source: FileSource::Base64 {
                    media_type: "application/pdf".to_owned(),
                    data: FILE.to_owned(),
                },
            });
        }),
        message(Role::Assistant, 2, |new| {
            new.content.insert(
                0,
                ContentPart::Reasoning {
                    text: "hm".to_owned(),
                    signature,
                    origin: None,
                },
            );
            new.tool_calls = vec![
                ToolCall::new(
                    "call_0123456789_0123456789_0123456789_0_0",
                    "search",
                    json!({"q": "1"}),
                ),
                ToolCall::new(
                    "call_0123456789_0123456789_0123456789_0_1",
                    "odd",
                    json!({"id": "2"}),
                ),
            ];
        }),
        message(Role::Tool, 3, |new| {
            new.tool_call_id = Some("call_0123456789_0123456789_0123456789_0_0".to_owned());
        }),
        message(Role::Tool, 4, |new| {
            new.tool_call_id = Some("call_0123456789_0123456789_0123456789_0_1".to_owned());
            new.content = vec![ContentPart::text("")];
        }),
    ];
    Request {
        model: model.to_owned(),
        system: Some("Be brief.".to_owned()),
        messages,
        window: Some(1_000_000),
        max_tokens: 20_000,
        tail: Some("the tail".to_owned()),
        cache_key: Some("k".to_owned()),
        temperature: Some(0.5),
        top_p: Some(0.9),
        stop: if protocol == Protocol::Responses {
            Vec::new()
        } else {
            vec!["END".to_owned()]
        },
        reasoning_effort: Some(ReasoningEffort::XHigh),
        tools: vec![
            tool("search", plain()),
            tool("read", plain()),
            tool("odd", odd),
            tool("write", plain()),
        ],
        output: Some(Arc::new(OutputSpec {
            name: "answer".to_owned(),
            schema: json!({"type": "object", "properties": {"a": {"type": "string"}}}),
            strict: false,
            any_object: false,
        })),
        ..Request::default()
    }
}

/// The next request of the session.
fn later(request: &Request) -> Request {
    let mut request = request.clone();
    request.messages.push(message(Role::Assistant, 5, |_| {}));
    request.messages.push(message(Role::User, 6, |_| {}));
    request
}

async fn ask(model: &dyn Model, request: &Request) -> Result<(), Error> {
    model.complete(request, &mut |_| {}).await.map(drop)
}

/// Asks as the send loop does. How often a part was refused, or the error that ended it.
async fn repaired(model: &dyn Model, request: &Request) -> Result<Vec<String>, Error> {
    let mut parts = Vec::new();
    loop {
        match ask(model, request).await {
            Ok(()) => return Ok(parts),
            Err(Error::Amended { part, .. }) => parts.push(part),
            Err(error) => return Err(error),
        }
    }
}

/// The body that a transport sends at first.
fn plain_body(model: &dyn Model, request: &Request) -> Value {
    let body = model.wire(request).expect("a form").expect("a body");
    serde_json::from_slice(&body).expect("JSON")
}

fn keys(body: &Value) -> Vec<String> {
    body.as_object()
        .expect("an object")
        .keys()
        .cloned()
        .collect()
}

#[tokio::test]
async fn reasoning_that_is_refused_again_is_left_out_for_good() {
    let server = Server::new(Protocol::Messages).await;
    let model = server.model(|_| {});
    server.rule(Box::new(|body| {
        body.to_string().contains(r#""signature":"#).then(|| {
            (400, r#"{"type":"error","error":{"type":"invalid_request_error","message":"Invalid `signature` in `thinking` block"}}"#.to_owned())
        })
    }));
    server
        .during(async {
            let think = |request: &Request, signature: &str| {
                let mut request = later(request);
                let at = request.messages.len() - 2;
                let mut last = Message::clone(&request.messages[at]);
                last.content.insert(
                    0,
                    ContentPart::Reasoning {
                        text: "hm".to_owned(),
                        signature: Some(signature.to_owned()),
                        origin: None,
                    },
                );
                request.messages[at] = Arc::new(last);
                request
            };
            let first = rich(Protocol::Messages);
            assert_eq!(
                repaired(&*model, &first).await.expect("it is taken").len(),
                1
            );
            // A new block is sent; once some more are refused, none is.
            let second = think(&first, "bmV3");
            assert_eq!(
                repaired(&*model, &second).await.expect("it is taken").len(),
                1
            );
            for signature in ["bmV3ZXI", "bmV3ZXN0"] {
                let next = think(&second, signature);
                let parts = repaired(&*model, &next).await.expect("it is taken");
                assert_eq!(parts.len(), usize::from(signature == "bmV3ZXI"));
            }
        })
        .await;
}

#[tokio::test]
async fn a_tool_that_is_left_out_is_told_to_the_model_and_nothing_else_is_lost() {
    for protocol in [Protocol::Chat, Protocol::Messages, Protocol::Responses] {
        let server = Server::new(protocol).await;
        let model = server.model(|settings| settings.api_key = Secret::new("the-key-0123456789"));
        server.rule(Box::new(|body| {
            let list = body["tools"].as_array().expect("tools");
            let place = list
                .iter()
                .position(|tool| tool.to_string().contains(r#""name":"odd""#))?;
            let text = format!("tools[{place}].parameters: no, the-key-0123456789");
            Some((400, json!({"error": {"message": text}}).to_string()))
        }));
        server
            .during(async {
                let request = rich(protocol);
                let error = ask(&*model, &request).await.expect_err("it is refused");
                assert!(!format!("{error:?}").contains("0123456789"), "{error:?}");
                assert!(repaired(&*model, &request).await.is_ok());
                let taken = server.taken.lock().expect("nobody panics")[0].clone();
                assert!(
                    taken
                        .to_string()
                        .contains("The tool odd is not available now.")
                );
                let mut plain = plain_body(&*server.model(|_| {}), &request);
                for name in ["search", "read", "write"] {
                    assert!(
                        taken["tools"]
                            .to_string()
                            .contains(&format!(r#""name":"{name}""#))
                    );
                }
                let mut taken = taken;
                for body in [&mut plain, &mut taken] {
                    let body = body.as_object_mut().expect("an object");
                    for name in ["tools", "system", "instructions"] {
                        body.remove(name);
                    }
                    if protocol == Protocol::Chat {
                        let list = body["messages"].as_array_mut().expect("a list");
                        list.remove(0);
                    }
                }
                assert_eq!(taken, plain);
            })
            .await;
    }
}

#[tokio::test]
async fn thinking_is_off_only_while_calls_are_open_before_which_the_model_did_not_think() {
    let server = Server::new(Protocol::Messages).await;
    let model = server.model(|_| {});
    server.rule(Box::new(|body| {
        let list = body["messages"].as_array().expect("a list");
        let last = list.iter().rev().find(|message| message["role"] == "assistant")?;
        let breaks = last.to_string().contains("tool_use") && last["content"][0]["type"] != "thinking";
        (breaks && body.get("thinking").is_some()).then(|| {
            let text = "messages.3.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a final `assistant` message must start with a thinking block";
            (400, json!({"type": "error", "error": {"type": "invalid_request_error", "message": text}}).to_string())
        })
    }));
    server
        .during(async {
            let mut request = rich(Protocol::Messages);
            request.adaptive = true;
            let at = request.messages.len() - 3;
            let mut answer = Message::clone(&request.messages[at]);
            answer.content.clear();
            request.messages[at] = Arc::new(answer);
            let parts = repaired(&*model, &request).await.expect("it is taken");
            assert_eq!(parts, ["thinking between calls"]);
            assert_eq!(repaired(&*model, &later(&request)).await, Ok(Vec::new()));
            let taken = server.taken.lock().expect("nobody panics");
            assert!(taken[0].get("thinking").is_none() && taken[1].get("thinking").is_some());
        })
        .await;
}

#[tokio::test]
async fn what_a_provider_never_takes_ends_in_its_refusal_after_few_requests() {
    for protocol in [Protocol::Chat, Protocol::Messages, Protocol::Responses] {
        let server = Server::new(protocol).await;
        let model = server.model(|_| {});
        server.rule(Box::new(|_| {
            Some((400, r#"{"error":{"message":"no"}}"#.to_owned()))
        }));
        server
            .during(async {
                let request = rich(protocol);
                let error = repaired(&*model, &request)
                    .await
                    .expect_err("it is refused");
                assert!(matches!(error, Error::InvalidRequest { .. }), "{error}");
                let count = server.refused.lock().expect("nobody panics").len();
                assert!(count > 4 && count <= 9, "{count}");
                // The same again is not tried again, and after some others nothing is.
                assert!(repaired(&*model, &request).await.is_err());
                for place in 0..4 {
                    let mut other = request.clone();
                    other.system = Some(format!("Be {place}."));
                    assert!(repaired(&*model, &other).await.is_err());
                }
                server.rule(Box::new(|_| Some((400, "no".to_owned()))));
                let mut other = request.clone();
                other.system = Some("Be new.".to_owned());
                assert!(repaired(&*model, &other).await.is_err());
                assert_eq!(server.refused.lock().expect("nobody panics").len(), 1);
            })
            .await;
        server.rule(Box::new(|_| None));
        server
            .during(async {
                let request = rich(protocol);
                assert_eq!(repaired(&*model, &request).await, Ok(Vec::new()));
                let taken = server.taken.lock().expect("nobody panics").clone();
                let untouched = server.model(|_| {});
                assert_eq!(taken, [plain_body(&*untouched, &request)]);
            })
            .await;
    }
}

#[tokio::test]
async fn a_refusal_without_a_reason_of_a_request_that_fills_the_window_is_an_overflow_once() {
    let server = Server::new(Protocol::Chat).await;
    let model = server.model(|_| {});
    server.rule(Box::new(|_| Some((400, String::new()))));
    server
        .during(async {
            let mut request = rich(Protocol::Chat);
            request.messages.push(message(Role::User, 5, |new| {
                new.content = vec![ContentPart::text("word ".repeat(2_000))];
            }));
            let tokens = estimate_request_tokens(&request);
            request.window = Some(tokens * 4 / 3);
            let error = ask(&*model, &request).await.expect_err("it is refused");
            assert!(matches!(error, Error::ContextOverflow { .. }), "{error}");
            let error = ask(&*model, &request).await.expect_err("it is refused");
            assert!(matches!(error, Error::Amended { .. }), "{error}");
            request.window = Some(tokens * 2);
            request.system = None;
            let error = ask(&*model, &request).await.expect_err("it is refused");
            assert!(matches!(error, Error::Amended { .. }), "{error}");
            // What is said in words is not guessed.
            request.window = Some(tokens);
            request.system = Some("Be.".to_owned());
            server.rule(Box::new(|_| {
                Some((
                    400,
                    r#"{"error":{"message":"Unknown parameter: 'top_p'"}}"#.to_owned(),
                ))
            }));
            let error = ask(&*model, &request).await.expect_err("it is refused");
            assert!(matches!(error, Error::Amended { .. }), "{error}");
        })
        .await;
}

#[tokio::test]
async fn too_many_bytes_are_no_overflow_of_a_small_request() {
    let server = Server::new(Protocol::Messages).await;
    let model = server.model(|_| {});
    server.rule(Box::new(|body| {
        let media = body.to_string().contains(PICTURE);
        media.then(|| (413, r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#.to_owned()))
    }));
    server
        .during(async {
            let request = rich(Protocol::Messages);
            assert_eq!(
                repaired(&*model, &request)
                    .await
                    .expect("it is taken")
                    .len(),
                1
            );
            assert_eq!(repaired(&*model, &later(&request)).await, Ok(Vec::new()));
            let sent = server.taken.lock().expect("nobody panics")[1].to_string();
            assert!(sent.contains(OTHER_PICTURE) && sent.contains(FILE));
            server.rule(Box::new(|_| Some((413, String::new()))));
            let mut bare = request.clone();
            bare.messages = vec![message(Role::User, 1, |_| {})];
            let error = ask(&*model, &bare).await.expect_err("it is refused");
            assert!(matches!(error, Error::InvalidRequest { .. }), "{error}");
        })
        .await;
}

#[tokio::test]
async fn a_token_limit_that_alone_exceeds_the_minute_is_lowered() {
    let server = Server::new(Protocol::Chat).await;
    let model = server.model(|_| {});
    server.rule(Box::new(|body| {
        let most = LIMITS.iter().find_map(|name| body[name].as_u64()).expect("a limit");
        let asked = most + body.to_string().len() as u64 / 4;
        (asked > 8_000).then(|| {
            (413, json!({"error": {"code": "rate_limit_exceeded", "type": "tokens", "message": format!(
                "Request too large for model `x` on tokens per minute (TPM): Limit 8000, Requested {asked}, please reduce your message size and try again."
            )}}).to_string())
        })
    }));
    server
        .during(async {
            let request = rich(Protocol::Chat);
            assert_eq!(
                repaired(&*model, &request)
                    .await
                    .expect("it is taken")
                    .len(),
                1
            );
            let mut longer = later(&request);
            longer.messages.push(message(Role::User, 7, |new| {
                new.content = vec![ContentPart::text("word ".repeat(1_000))];
            }));
            assert_eq!(repaired(&*model, &longer).await, Ok(Vec::new()));
            longer.messages.push(message(Role::User, 8, |new| {
                new.content = vec![ContentPart::text("word ".repeat(9_000))];
            }));
            let error = repaired(&*model, &longer).await.expect_err("it is refused");
            assert!(matches!(error, Error::ContextOverflow { .. }), "{error}");
        })
        .await;
}
