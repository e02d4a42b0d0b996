//! An MCP server for tests that kill its clients: it counts what it was asked and did, and holds still where a test
//! says. It is reached over HTTP, and over stdio by a program that only passes on lines; what it knows of tasks
//! outlives its clients either way.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures::stream;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::AbortOnDropHandle;

/// Where the server can hold still, whenever it comes there with a call, until the test releases it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// A call has come, and its task is created; nothing is answered yet.
    Created,
    /// The task is asked for: its handle is stored.
    FirstPoll,
    /// It is asked for again, and has its result.
    LastPoll,
    /// The result is asked for.
    Result,
    /// The call is about to ask a person.
    Asks,
    /// The call was made again, after the person answered.
    Again,
    /// The answer has come, and the work is done; the result is not sent yet.
    Acted,
}

/// What happened with one mark.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpSeen {
    /// How often the tool was called.
    pub calls: usize,
    /// How many tasks were created.
    pub created: usize,
    /// How often a person was asked.
    pub asked: usize,
    /// The questions, by number, that were answered by accepting. A number that stands twice was answered twice.
    pub accepted: Vec<usize>,
    /// How often the work was done: a keyed tool does it once for each key.
    pub acted: usize,
}

#[derive(Debug, Default)]
struct Mark {
    seen: McpSeen,
    hold: Option<Point>,
    is_held: bool,
    is_released: bool,
    /// Keys for which the work was done.
    keys: BTreeSet<String>,
    polls: usize,
    is_answered: bool,
}

/// A task: of which mark, of which call, and whether it asks.
#[derive(Debug, Clone)]
struct Task {
    mark: String,
    key: String,
    asks: bool,
}

/// A question: of which mark, its number, and where to say whether the answer accepts.
#[derive(Debug)]
struct Question {
    mark: String,
    number: usize,
    accepts: oneshot::Sender<bool>,
}

#[derive(Debug)]
struct Shared {
    marks: Mutex<BTreeMap<String, Mark>>,
    tasks: Mutex<BTreeMap<String, Task>>,
    /// Where the answers to questions go, by the ids of the questions.
    questions: Mutex<HashMap<String, Question>>,
    changes: watch::Sender<u64>,
}

/// The server. It ends when dropped.
#[derive(Debug)]
pub struct McpServer {
    http: SocketAddr,
    lines: SocketAddr,
    shared: Arc<Shared>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl McpServer {
    /// Starts it on free ports.
    pub async fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared {
            marks: Mutex::default(),
            tasks: Mutex::default(),
            questions: Mutex::default(),
            changes: watch::channel(0).0,
        });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let http = listener.local_addr()?;
        let router = Router::new()
            .route("/mcp", post(posted).delete(ended))
            .with_state(shared.clone());
        let web = tokio::spawn(async move {
            // A server that fails fails the test, which waits for it.
            let _ = axum::serve(listener, router).await;
        });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let lines = listener.local_addr()?;
        let of_lines = shared.clone();
        let piped = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(talk(of_lines.clone(), stream));
            }
        });
        Ok(Self {
            http,
            lines,
            shared,
            _tasks: [web, piped].map(AbortOnDropHandle::new),
        })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.http)
    }

    /// The address to and from which a program over stdio passes on lines.
    pub fn lines(&self) -> SocketAddr {
        self.lines
    }

    /// Lets calls with this mark hold still at a point, if at any.
    pub fn expect(&self, mark: &str, hold: Option<Point>) {
        self.shared.of(mark, |it| it.hold = hold);
    }

    /// Waits until a call with this mark holds still.
    pub async fn held(&self, mark: &str, limit: Duration) -> Result<()> {
        let mut changes = self.shared.changes.subscribe();
        let held = async {
            while !locked(&self.shared.marks)[mark].is_held {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        let seen = || format!("{mark} is not held: {:?}", self.seen(mark));
        tokio::time::timeout(limit, held).await.with_context(seen)
    }

    /// Lets the calls with this mark go on.
    pub fn release(&self, mark: &str) {
        self.shared.of(mark, |it| {
            it.hold = None;
            it.is_released = true;
        });
    }

    /// What happened with a mark so far.
    pub fn seen(&self, mark: &str) -> McpSeen {
        locked(&self.shared.marks)[mark].seen.clone()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Changes what is known of a mark.
    fn of<T>(&self, mark: &str, change: impl FnOnce(&mut Mark) -> T) -> T {
        let known = change(locked(&self.marks).entry(mark.to_owned()).or_default());
        self.changes.send_modify(|n| *n += 1);
        known
    }

    /// Holds still if this is where the test wants it.
    async fn at(&self, mark: &str, point: Point) {
        let mut changes = self.changes.subscribe();
        let holds = self.of(mark, |it| {
            let holds = it.hold == Some(point);
            it.is_held |= holds;
            holds
        });
        while holds && !locked(&self.marks)[mark].is_released {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Does the work of a call: of one key only once, if there is one.
    fn act(&self, mark: &str, key: Option<&str>) {
        self.of(mark, |it| {
            if key.is_none_or(|key| it.keys.insert(key.to_owned())) {
                it.seen.acted += 1;
            }
        });
    }

    /// Passes on the answer to a question.
    fn answered(&self, message: &Value) {
        let id = message["id"].as_str().unwrap_or_default();
        if let Some(question) = locked(&self.questions).remove(id) {
            let accepts = message["result"]["action"] == "accept";
            // Known at once: requests that come behind the answer see it.
            if accepts {
                self.of(&question.mark, |it| {
                    it.is_answered = true;
                    it.seen.accepted.push(question.number);
                });
            }
            // Whoever asked may be gone.
            let _ = question.accepts.send(accepts);
        }
    }

    /// Asks a person; returns whether the answer accepts.
    async fn ask(&self, mark: &str, task: Option<&str>, out: &Out) -> bool {
        let n = self.of(mark, |it| {
            it.seen.asked += 1;
            it.seen.asked
        });
        let id = format!("{mark}-{n}");
        let (accepts, accepted) = oneshot::channel();
        let question = Question {
            mark: mark.to_owned(),
            number: n,
            accepts,
        };
        locked(&self.questions).insert(id.clone(), question);
        let form = json!({"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]});
        let mut params = json!({"message": format!("sure about {mark}?"), "requestedSchema": form});
        if let Some(task) = task {
            params["_meta"] = json!({"io.modelcontextprotocol/related-task": {"taskId": task}});
        }
        out.say(
            json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params}),
        );
        accepted.await.unwrap_or_default()
    }
}

/// Where messages to the client go; it may be gone.
#[derive(Debug, Clone)]
struct Out(mpsc::UnboundedSender<Value>);

impl Out {
    fn say(&self, message: Value) {
        let _ = self.0.send(message);
    }
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// Answers a request.
async fn serve(shared: Arc<Shared>, request: Value, out: Out) {
    let params = &request["params"];
    let result = match request["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-06-18", "serverInfo": {"name": "counting", "version": "1"},
            "capabilities": {"tools": {}, "tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}},
        }),
        "tools/list" => tools(),
        "tools/call" => called(&shared, params, &out).await,
        "tasks/get" => polled(&shared, params).await,
        "tasks/result" => finished(&shared, params, &out).await,
        _ => json!({}),
    };
    out.say(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
}

/// Tools that work as tasks, ask a person, or both; `keyed` ones know a repeated call by its id.
fn tools() -> Value {
    let tool = |name: &str| {
        let tasks = if name.starts_with("work") {
            "required"
        } else {
            "forbidden"
        };
        json!({
            "name": name, "inputSchema": {"type": "object"},
            "annotations": {"idempotentHint": name.ends_with("keyed")},
            "execution": {"taskSupport": tasks},
        })
    };
    let names = ["work", "work_keyed", "work_asks", "ask", "ask_keyed"];
    json!({"tools": names.map(tool)})
}

async fn called(shared: &Shared, params: &Value, out: &Out) -> Value {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (name, mark) = (word(&params["name"]), word(&params["arguments"]["mark"]));
    let key = word(&params["_meta"]["mainspring/call-id"]);
    let is_keyed = name.ends_with("keyed");
    let calls = shared.of(&mark, |it| {
        it.seen.calls += 1;
        it.seen.calls
    });
    if name.starts_with("work") {
        let asks = name == "work_asks";
        let id = begun(
            shared,
            Task {
                mark: mark.clone(),
                key,
                asks,
            },
            is_keyed,
        );
        shared.at(&mark, Point::Created).await;
        return json!({"task": task(&id, "working")});
    }
    let point = if calls == 1 {
        Point::Asks
    } else {
        Point::Again
    };
    shared.at(&mark, point).await;
    if !shared.ask(&mark, None, out).await {
        return text(&format!("did not {mark}"));
    }
    shared.act(&mark, is_keyed.then_some(&*key));
    shared.at(&mark, Point::Acted).await;
    text(&format!("did {mark}"))
}

/// The id of the task of a call: a new one, unless a keyed call has one.
fn begun(shared: &Shared, new: Task, is_keyed: bool) -> String {
    let mut tasks = locked(&shared.tasks);
    let known = tasks
        .iter()
        .find(|(_, task)| is_keyed && task.key == new.key);
    if let Some((id, _)) = known {
        return id.clone();
    }
    let id = format!("task-{}", tasks.len());
    shared.of(&new.mark, |it| {
        it.seen.created += 1;
        it.seen.acted += 1;
    });
    tasks.insert(id.clone(), new);
    id
}

fn task(id: &str, status: &str) -> Value {
    json!({"taskId": id, "status": status, "ttl": null, "pollInterval": 500})
}

/// The task that a request is about, and its id.
fn named(shared: &Shared, params: &Value) -> (String, Task) {
    let id = params["taskId"].as_str().unwrap_or_default();
    let task = locked(&shared.tasks).get(id).cloned();
    (id.to_owned(), task.expect("a task that was created"))
}

async fn polled(shared: &Shared, params: &Value) -> Value {
    let (id, of) = named(shared, params);
    let (polls, is_answered) = shared.of(&of.mark, |it| {
        it.polls += 1;
        (it.polls, it.is_answered)
    });
    if of.asks {
        let status = if is_answered {
            "completed"
        } else {
            "input_required"
        };
        return task(&id, status);
    }
    if polls == 1 {
        shared.at(&of.mark, Point::FirstPoll).await;
        return task(&id, "working");
    }
    shared.at(&of.mark, Point::LastPoll).await;
    task(&id, "completed")
}

async fn finished(shared: &Shared, params: &Value, out: &Out) -> Value {
    let (id, of) = named(shared, params);
    let is_answered = shared.of(&of.mark, |it| it.is_answered);
    if of.asks && !is_answered && !shared.ask(&of.mark, Some(&id), out).await {
        return text(&format!("did not {}", of.mark));
    }
    shared.at(&of.mark, Point::Result).await;
    text(&format!("did {}", of.mark))
}

/// A message over HTTP: requests are answered with events.
async fn posted(State(shared): State<Arc<Shared>>, Json(message): Json<Value>) -> Response {
    if message.get("method").is_none() {
        shared.answered(&message);
        return StatusCode::ACCEPTED.into_response();
    }
    if message.get("id").is_none() {
        return StatusCode::ACCEPTED.into_response();
    }
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(serve(shared, message, Out(sender)));
    let events = stream::unfold(
        receiver,
        |mut receiver: mpsc::UnboundedReceiver<Value>| async move {
            let message = receiver.recv().await?;
            let event = format!("event: message\ndata: {message}\n\n");
            Some((Ok::<_, io::Error>(event), receiver))
        },
    );
    let head = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::HeaderName::from_static("mcp-session-id"), "one"),
    ];
    (head, Body::from_stream(events)).into_response()
}

/// A session over HTTP is over.
async fn ended() -> StatusCode {
    StatusCode::OK
}

/// Messages over lines, in both directions.
async fn talk(shared: Arc<Shared>, stream: TcpStream) {
    let (read, mut write) = stream.into_split();
    let (sender, mut receiver) = mpsc::unbounded_channel::<Value>();
    let writer = tokio::spawn(async move {
        while let Some(message) = receiver.recv().await {
            if write
                .write_all(format!("{message}\n").as_bytes())
                .await
                .is_err()
            {
                return;
            }
        }
    });
    let _writer = AbortOnDropHandle::new(writer);
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        match (message.get("method"), message.get("id")) {
            (None, _) => shared.answered(&message),
            (Some(_), Some(_)) => {
                tokio::spawn(serve(shared.clone(), message, Out(sender.clone())));
            }
            (Some(_), None) => {}
        }
    }
}

/// Passes on lines between this process's stdio and a server, until either ends.
pub async fn pass_on_lines(server: &str) -> io::Result<()> {
    let stream = TcpStream::connect(server).await?;
    let (mut read, mut write) = stream.into_split();
    let (mut stdin, mut stdout) = (tokio::io::stdin(), tokio::io::stdout());
    tokio::select! {
        over = tokio::io::copy(&mut stdin, &mut write) => over.map(|_| ()),
        over = tokio::io::copy(&mut read, &mut stdout) => over.map(|_| ()),
    }
}
