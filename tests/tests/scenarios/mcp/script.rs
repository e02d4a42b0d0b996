//! A server that answers as a script says, right or wrong, over stdio and over HTTP. Over stdio it
//! is this test program, started again.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use mainspring_worker::llm::Secret;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::*;

/// Environment variable with the way in which the server over stdio answers.
const WAY: &str = "MAINSPRING_MCP_SCRIPT";

/// What a server does about a request.
#[derive(Debug, Clone)]
pub(crate) enum Out {
    /// It writes a message.
    Say(Value),
    /// It writes this text in place of a message.
    Raw(String),
    /// It refuses the whole request: over HTTP with this status and body, over stdio with the body.
    Refuse(u16, String),
    /// It waits for the client's answer to its request of this id, which replaces every text `$answer` from then on.
    Await(String),
    /// It never does anything about it.
    Hang,
    /// It is gone.
    Die,
}

/// The answer to a request.
#[expect(
    clippy::needless_pass_by_value,
    reason = "callers make it where they call"
)]
pub(crate) fn result(request: &Value, result: Value) -> Out {
    Out::Say(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
}

/// A refusal of a request.
#[expect(
    clippy::needless_pass_by_value,
    reason = "callers make it where they call"
)]
pub(crate) fn error(id: &Value, code: i64, message: &str, data: Value) -> Out {
    let error = json!({"code": code, "message": message, "data": data});
    Out::Say(json!({"jsonrpc": "2.0", "id": id, "error": error}))
}

/// A request of the server.
#[expect(
    clippy::needless_pass_by_value,
    reason = "callers make it where they call"
)]
pub(crate) fn ask(id: &str, method: &str, params: Value) -> Out {
    Out::Say(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

/// The message with the client's answer in the places that are for it.
fn with_answer(message: &Value, answer: &Value) -> Value {
    match message {
        Value::String(text) if text == "$answer" => Value::from(answer.to_string()),
        Value::Array(all) => all.iter().map(|one| with_answer(one, answer)).collect(),
        Value::Object(members) => {
            let members = members.iter();
            members
                .map(|(name, one)| (name.clone(), with_answer(one, answer)))
                .collect()
        }
        other => other.clone(),
    }
}

/// A notification.
#[expect(
    clippy::needless_pass_by_value,
    reason = "callers make it where they call"
)]
pub(crate) fn notice(method: &str, params: Value) -> Out {
    Out::Say(json!({"jsonrpc": "2.0", "method": method, "params": params}))
}

/// What the handshake of a server without faults says.
pub(crate) fn handshake() -> Value {
    json!({
        "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
        "serverInfo": {"name": "script", "version": "1"},
    })
}

/// How a server answers: the way, the request, and how often it was asked before in this way.
pub(crate) type Script = fn(&str, &Value, usize) -> Vec<Out>;

/// The server as a child process.
pub(crate) fn over_stdio(way: &str) -> Transport {
    let program = std::env::current_exe().unwrap();
    let args = ["--exact", "mcp::script::serves_a_script", "--nocapture"];
    Transport::Stdio {
        command: program.to_str().expect("UTF-8").to_owned(),
        args: args.map(str::to_owned).to_vec(),
        env: BTreeMap::from([(WAY.to_owned(), Secret::new(way))]),
    }
}

/// Not a test but the server over stdio: it does nothing unless the tests have started it.
#[tokio::test]
#[expect(clippy::exit, reason = "a server that dies")]
async fn serves_a_script() {
    let Some(way) = std::env::var_os(WAY) else {
        return;
    };
    let way = way.to_str().expect("UTF-8").to_owned();
    let (mut lines, mut out) = (
        BufReader::new(tokio::io::stdin()).lines(),
        tokio::io::stdout(),
    );
    let mut asked = BTreeMap::<String, usize>::new();
    let mut later = std::collections::VecDeque::new();
    let mut answer = Value::Null;
    loop {
        let message: Value = if let Some(message) = later.pop_front() {
            message
        } else {
            let Some(line) = lines.next_line().await.unwrap() else {
                return;
            };
            serde_json::from_str(&line).expect("JSON")
        };
        if message.get("id").is_none() || message.get("method").is_none() {
            continue;
        }
        let times = asked.entry(message["method"].to_string()).or_default();
        for out_of in if way.starts_with("asks") {
            inquiring::script(&way, &message, *times)
        } else if way.starts_with("task") {
            tasks::script(&way, &message, *times)
        } else {
            misbehaving::script(&way, &message, *times)
        } {
            let text = match out_of {
                Out::Say(message) => with_answer(&message, &answer).to_string() + "\n",
                Out::Await(id) => {
                    loop {
                        let Some(line) = lines.next_line().await.unwrap() else {
                            return;
                        };
                        let message: Value = serde_json::from_str(&line).expect("JSON");
                        if message["id"] == id && message.get("method").is_none() {
                            answer = message
                                .get("result")
                                .or(message.get("error"))
                                .cloned()
                                .unwrap();
                            break;
                        }
                        later.push_back(message);
                    }
                    continue;
                }
                Out::Refuse(_, text) => text + "\n",
                Out::Raw(text) => text,
                Out::Hang => continue,
                Out::Die => std::process::exit(1),
            };
            out.write_all(text.as_bytes()).await.unwrap();
            out.flush().await.unwrap();
        }
        *times += 1;
    }
}

/// A server over HTTP that ends when it is dropped.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    /// The requests with bodies that it got: their headers and bodies.
    pub(crate) got: Arc<Mutex<Vec<(String, Value)>>>,
    task: JoinHandle<()>,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Scripted {
    /// Answers with events, or each message as one JSON body.
    pub(crate) async fn start(way: &str, script: Script, as_events: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let got = Arc::new(Mutex::new(Vec::new()));
        let (way, kept) = (way.to_owned(), got.clone());
        let asked = Arc::new(Mutex::new(BTreeMap::<String, usize>::new()));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (way, kept, asked) = (way.clone(), kept.clone(), asked.clone());
                tokio::spawn(async move {
                    if let Some((_, body)) = request(stream, kept.clone()).await {
                        let method = body.1["method"].to_string();
                        let times = {
                            let mut asked = asked.lock().unwrap();
                            let times = asked.entry(method).or_default();
                            *times += 1;
                            *times - 1
                        };
                        answer(body.0, script(&way, &body.1, times), as_events, &kept).await;
                    }
                });
            }
        });
        Self { address, got, task }
    }

    pub(crate) fn transport(&self) -> Transport {
        Transport::Http {
            url: format!("http://{}/mcp", self.address),
            headers: Vec::new(),
            sources: Box::default(),
        }
    }
}

pub(crate) type Got = Arc<Mutex<Vec<(String, Value)>>>;

/// Reads a request; answers it itself unless it is one that waits for a message.
async fn request(mut stream: TcpStream, got: Got) -> Option<(String, (TcpStream, Value))> {
    let mut read = Vec::new();
    let (head, body) = loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("content-length")
                    .then(|| value.parse().ok())?
            });
            if body.len() >= length.unwrap_or(0) {
                break (head.to_owned(), body.to_owned());
            }
        }
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    };
    let empty = |status: &str| {
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
    };
    let mut line = head.split(' ');
    let (method, path) = (
        line.next().unwrap_or_default(),
        line.next().unwrap_or_default(),
    );
    if path != "/mcp" {
        // Of an authorization server: the path is the method, and the body is a form.
        let message = json!({"id": 0, "method": path, "form": body, "head": head});
        got.lock().unwrap().push((head.clone(), message.clone()));
        return Some((head, (stream, message)));
    }
    if method != "POST" {
        let status = if method == "GET" { "405 X" } else { "200 X" };
        let _ = stream.write_all(empty(status).as_bytes()).await;
        return None;
    }
    let mut message: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
    got.lock().unwrap().push((head.clone(), message.clone()));
    if message.get("id").is_none() || message.get("method").is_none() {
        let _ = stream.write_all(empty("202 X").as_bytes()).await;
        return None;
    }
    message["head"] = json!(head);
    Some((head, (stream, message)))
}

async fn answer(mut stream: TcpStream, outs: Vec<Out>, as_events: bool, got: &Got) {
    let mut answer = Value::Null;
    let kind = if as_events {
        "text/event-stream"
    } else {
        "application/json"
    };
    let head = |status: u16, kind: &str| {
        let challenge = match status {
            401 => "www-authenticate: Bearer error=\"invalid_token\", scope=\"use\"\r\n",
            _ => "",
        };
        format!(
            "HTTP/1.1 {status} X\r\nconnection: close\r\n{challenge}mcp-session-id: s{}\r\ncontent-type: {kind}\r\n\r\n",
            SESSIONS.fetch_add(1, Ordering::SeqCst)
        )
    };
    let mut has_head = false;
    for out in outs {
        // The reader may be gone at any time.
        let written = match out {
            Out::Refuse(status, body) => {
                let kind = if body.starts_with('{') {
                    "application/json"
                } else {
                    "text/plain"
                };
                stream
                    .write_all((head(status, kind) + &body).as_bytes())
                    .await
            }
            Out::Await(id) => {
                answer = awaited(got, &id).await;
                continue;
            }
            Out::Say(message) if as_events => {
                let message = with_answer(&message, &answer);
                let event = format!("event: message\ndata: {message}\n\n");
                let before = if has_head {
                    String::new()
                } else {
                    head(200, kind)
                };
                has_head = true;
                stream.write_all((before + &event).as_bytes()).await
            }
            Out::Say(message) => {
                // Only the answer fits into the body.
                if message.get("method").is_some() {
                    continue;
                }
                let whole = head(200, kind) + &message.to_string();
                let _ = stream.write_all(whole.as_bytes()).await;
                let _ = stream.shutdown().await;
                return;
            }
            Out::Raw(text) => {
                let before = if has_head {
                    String::new()
                } else {
                    head(200, kind)
                };
                let text = if as_events {
                    format!("data: {text}\n\n")
                } else {
                    text
                };
                stream.write_all((before + &text).as_bytes()).await
            }
            Out::Hang => std::future::pending().await,
            Out::Die => return,
        };
        if written.is_err() || (has_head && !as_events) {
            return;
        }
    }
    let _ = stream.shutdown().await;
}

/// What the client answers to a request of this id.
pub(crate) async fn awaited(got: &Got, id: &str) -> Value {
    loop {
        if let Some(answer) = answers(got, id).pop() {
            return answer;
        }
        tokio::task::yield_now().await;
    }
}

/// The answers to requests of this id.
pub(crate) fn answers(got: &Got, id: &str) -> Vec<Value> {
    let got = got.lock().unwrap();
    let bodies = got.iter().map(|(_, body)| body);
    let answers = bodies.filter(|body| body["id"] == id && body.get("method").is_none());
    let said = |body: &Value| body.get("result").or(body.get("error")).cloned();
    answers.filter_map(said).collect()
}

/// Each answer names another session: those that were named before stay good.
static SESSIONS: AtomicUsize = AtomicUsize::new(0);
