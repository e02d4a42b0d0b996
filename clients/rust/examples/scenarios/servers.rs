//! The real binary, and servers that misbehave.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mainspring_client::Client;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::{Failed, text};

/// `mainspring dev` with the `demo` model and a data folder of its own.
pub(crate) struct Dev {
    pub(crate) url: String,
    pub(crate) folder: TempDir,
    binary: PathBuf,
    child: Mutex<Option<Child>>,
}

impl Dev {
    pub(crate) async fn start(binary: &Path) -> Result<Self, Failed> {
        let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let dev = Self {
            url: format!("http://{free}"),
            folder: tempfile::tempdir()?,
            binary: binary.to_owned(),
            child: Mutex::new(None),
        };
        dev.again().await?;
        Ok(dev)
    }

    /// Starts it with the same port and data, and waits until it answers.
    pub(crate) async fn again(&self) -> Result<(), Failed> {
        let mut command = Command::new(&self.binary);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("MAINSPRING_") {
                command.env_remove(name);
            }
        }
        let listen = self.url.trim_start_matches("http://");
        command.args([
            "dev",
            "--provider",
            "demo",
            "--listen",
            listen,
            "--data-dir",
        ]);
        command.arg(self.folder.path().join("data"));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        *self.child() = Some(command.spawn()?);
        // Its pauses grow from 1 ms, and end half a minute later.
        let patient = Client::new(&self.url).retries(16, Duration::from_millis(1));
        patient.api().get_ready().await?;
        Ok(())
    }

    pub(crate) fn kill(&self) -> io::Result<()> {
        if let Some(mut child) = self.child().take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // If it cannot be killed it is gone.
        let _ = self.kill();
    }
}

/// What a stub got.
#[derive(Debug, Clone)]
pub(crate) struct Got {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) at: Instant,
}

/// A server that answers each request, on a connection of its own, as it is told.
pub(crate) struct Stub {
    pub(crate) url: String,
    got: Arc<Mutex<Vec<Got>>>,
    serving: JoinHandle<()>,
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

#[derive(Clone)]
enum Behaviour {
    Answers(Vec<Value>),
    Replay {
        recording: Vec<Value>,
        count: usize,
        abrupt: bool,
    },
}

impl Stub {
    /// Gives these answers, one per request, then 500.
    pub(crate) async fn answering(answers: Vec<Value>) -> io::Result<Self> {
        Self::start(Behaviour::Answers(answers)).await
    }

    /// Replays a recording, of which the first connection is cut after so many events.
    pub(crate) async fn replaying(
        recording: Vec<Value>,
        count: usize,
        abrupt: bool,
    ) -> io::Result<Self> {
        Self::start(Behaviour::Replay {
            recording,
            count,
            abrupt,
        })
        .await
    }

    async fn start(behaviour: Behaviour) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let got = Arc::new(Mutex::new(Vec::new()));
        let seen = got.clone();
        let serving = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                // A client that went away is none of a server's business.
                let _ = serve(connection, &behaviour, &seen).await;
            }
        });
        Ok(Self { url, got, serving })
    }

    pub(crate) fn requests(&self) -> Vec<Got> {
        lock(&self.got).clone()
    }
}

fn lock(got: &Mutex<Vec<Got>>) -> MutexGuard<'_, Vec<Got>> {
    got.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(
    connection: TcpStream,
    behaviour: &Behaviour,
    seen: &Mutex<Vec<Got>>,
) -> io::Result<()> {
    let mut connection = BufReader::new(connection);
    let Some(got) = request(&mut connection).await? else {
        return Ok(());
    };
    let cursor = got.headers.get("last-event-id").cloned();
    let n = {
        let mut seen = lock(seen);
        seen.push(got);
        seen.len() - 1
    };
    let bytes = match behaviour {
        Behaviour::Answers(answers) => answer(answers.get(n)),
        Behaviour::Replay {
            recording,
            count,
            abrupt,
        } => {
            let behind =
                |event: &Value| cursor.is_some() && event["id"].as_str() == cursor.as_deref();
            let begin = recording.iter().position(behind).map_or(0, |at| at + 1);
            let rest = &recording[begin..];
            let is_first = n == 0;
            let said = if is_first {
                &rest[..(*count).min(rest.len())]
            } else {
                rest
            };
            stream(said, !(is_first && *abrupt))
        }
    };
    connection.get_mut().write_all(&bytes).await?;
    connection.get_mut().shutdown().await
}

#[expect(
    clippy::disallowed_methods,
    reason = "scenarios say how much later a request comes"
)]
async fn request(connection: &mut BufReader<TcpStream>) -> io::Result<Option<Got>> {
    let mut line = String::new();
    if connection.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let at = Instant::now();
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        connection.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers
        .get("content-length")
        .and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    connection.read_exact(&mut body).await?;
    let path = target.split('?').next().unwrap_or_default().to_owned();
    Ok(Some(Got {
        method,
        path,
        headers,
        at,
    }))
}

/// The whole answer, or as much of it as arrives.
fn answer(told: Option<&Value>) -> Vec<u8> {
    let otherwise = json!({"status": 500, "problem": {"code": "internal"}});
    let told = told.unwrap_or(&otherwise);
    if told["cut"] == "all" {
        return Vec::new();
    }
    if let Some(events) = told["events"].as_array() {
        return stream(events, true);
    }
    let status = told["status"].as_u64().unwrap_or(200);
    let mut kind = "application/json";
    let body = if let Some(problem) = told["problem"].as_object() {
        kind = "application/problem+json";
        let whole = json!({"type": "about:blank", "title": "so", "detail": "so", "status": status, "retryable": false});
        merged(whole, problem).to_string()
    } else if told["json"].is_null() {
        text(&told["body"]).to_owned()
    } else {
        let none = Map::new();
        merged(
            filled(&told["json"]),
            told["with"].as_object().unwrap_or(&none),
        )
        .to_string()
    };
    let mut head = format!(
        "HTTP/1.1 {status} So\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    let headers = told["headers"].as_object();
    if headers.is_none_or(|headers| !headers.contains_key("content-type")) {
        let _ = write!(head, "content-type: {kind}\r\n");
    }
    for (name, value) in headers.into_iter().flatten() {
        let _ = write!(head, "{name}: {}\r\n", text(value));
    }
    let most = if told["cut"] == "half" {
        body.len() / 2
    } else {
        body.len()
    };
    [head.as_bytes(), b"\r\n", &body.as_bytes()[..most]].concat()
}

/// An event stream, in chunks that are cut within events, and within a character where there are such.
fn stream(events: &[Value], whole: bool) -> Vec<u8> {
    let head = "HTTP/1.1 200 So\r\nconnection: close\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut bytes = head.as_bytes().to_vec();
    for event in events {
        let none = Map::new();
        let data = merged(
            filled(&event["data"]),
            event["with"].as_object().unwrap_or(&none),
        );
        let id = event["id"]
            .as_str()
            .map(|id| format!("id: {id}\n"))
            .unwrap_or_default();
        let said = format!("{id}event: {}\ndata: {data}\n\n", text(&event["event"]));
        let (first, second) = said.as_bytes().split_at(said.len() * 2 / 3);
        for piece in [first, second] {
            bytes.extend(format!("{:x}\r\n", piece.len()).as_bytes());
            bytes.extend([piece, b"\r\n"].concat());
        }
    }
    if whole {
        bytes.extend(b"0\r\n\r\n");
    }
    bytes
}

const ID: &str = "snd_00000000000000000000000000000001";

/// A value with what the scenario file's names stand for.
fn filled(value: &Value) -> Value {
    let send = json!({
        "id": ID, "session_id": "ses_00000000000000000000000000000001", "status": "queued", "rounds": 0, "attempts": 0,
        "usage": {"input_tokens": 0, "output_tokens": 0}, "created_at": "2026-01-01T00:00:00.000Z",
    });
    let completed =
        json!({"status": "completed", "stop_reason": "end", "output_text": "hello", "send_id": ID});
    match value {
        Value::String(name) if name == "$id" => ID.into(),
        Value::String(name) if name == "$send" => send,
        Value::String(name) if name == "$completed" => {
            merged(send, completed.as_object().unwrap_or(&Map::new()))
        }
        Value::Array(items) => items.iter().map(filled).collect(),
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(name, value)| (name.clone(), filled(value)));
            members.collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

fn merged(mut value: Value, more: &Map<String, Value>) -> Value {
    if let Some(members) = value.as_object_mut() {
        members.extend(more.clone());
    }
    value
}
