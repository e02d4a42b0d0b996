//! The examples in the description of the API: each is asked of a real process, and answered as it says there.
//!
//! A step of `examples/steps.json` names an operation and what to send. `{{STEP/pointer}}` in it stands for a part of an earlier
//! answer. A step with `as` only prepares others: it is no example.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::routing::post;
use mainspring_benches::process::Program;
use mainspring_runtime::SystemClock;
use mainspring_shared::time::Clock as _;
use mainspring_tests::faults::{beside, binary, blocking};
use regex::{Captures, Regex};
use reqwest::{Client, Method, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;

const STEPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/examples/steps.json");

/// What the description shows: made by this test, with `UPDATE_DOCS=1`.
const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../scheduler/api/src/openapi/examples.json"
);

const ROOT: &str = "msk_the-root-key-of-the-examples";

/// Lines of an archive that an example shows.
const LINES_SHOWN: usize = 2;

/// How often a step that waits for something is asked again, and the wait before.
const TRIES: usize = 200;

const BETWEEN: Duration = Duration::from_millis(100);

/// What differs from one run to the next, and what is shown instead.
const VARIES: [(&str, &str); 12] = [
    (r"\b(msk|mst|whsec)_[A-Za-z0-9_+/=.-]{16,}", "${1}_…"),
    (
        r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
        "2026-01-02T03:04:05.678Z",
    ),
    (r#""day":"[0-9-]+""#, r#""day":"2026-01-02""#),
    (
        r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
        "00000000-0000-7000-8000-000000000001",
    ),
    (
        r"\bsha256:[0-9a-f]{64}\b",
        "sha256:0000000000000000000000000000000000000000000000000000000000000000",
    ),
    // The time in seconds since 1970, of a few years.
    (r"\b1[789]\d{8}(\.\d+)?\b", "1767323045"),
    (r#""([a-z_]*_ms)":\d+"#, r#""${1}":12"#),
    (r"http://127\.0\.0\.1:\d+", "http://127.0.0.1:7464"),
    (r#""version":"\d+\.\d+\.\d+""#, r#""version":"1.0.0""#),
    (r"SQLite [0-9.]+", "SQLite 3.50.0"),
    (r#""schema":\d+"#, r#""schema":50"#),
    (r#""in_flight":\d+"#, r#""in_flight":1"#),
];

/// Ids of things, and those of OpenAI's form.
const ID: &str = r"\b([a-z]{2,8}[_-])?([0-9a-f]{32})((?:_[a-z0-9]+)*)\b";

/// Replaces what differs from one run to the next.
struct Steady {
    varies: Vec<(Regex, &'static str)>,
    id: Regex,
    /// The ids that came before, in their order.
    ids: Vec<String>,
    receiver: String,
}

impl Steady {
    fn new(receiver: &str) -> Result<Self> {
        let varies = VARIES.map(|(pattern, shown)| Ok((Regex::new(pattern)?, shown)));
        Ok(Self {
            varies: varies.into_iter().collect::<Result<_>>()?,
            id: Regex::new(ID)?,
            ids: Vec::new(),
            receiver: receiver.to_owned(),
        })
    }

    fn text(&mut self, text: &str) -> String {
        let mut text = text.replace(&self.receiver, "https://example.com/hook");
        for (pattern, shown) in &self.varies {
            text = pattern.replace_all(&text, *shown).into_owned();
        }
        let ids = &mut self.ids;
        let shown = self.id.replace_all(&text, |found: &Captures<'_>| {
            let kind = found.get(1).map_or("", |kind| kind.as_str());
            let n = ids.iter().position(|known| *known == found[2]);
            let n = n.unwrap_or_else(|| {
                ids.push(found[2].to_owned());
                ids.len() - 1
            });
            format!("{kind}{:032x}{}", n + 1, &found[3])
        });
        shown.into_owned()
    }

    fn value(&mut self, value: &Value) -> Result<Value> {
        if let Value::String(text) = value {
            return Ok(self.text(text).into());
        }
        Ok(serde_json::from_str(&self.text(&value.to_string()))?)
    }

    fn request(&mut self, request: &Request) -> Result<Request> {
        let value = serde_json::to_value(request)?;
        let mut request: Request = serde_json::from_value(self.value(&value)?)?;
        request.body = request.body.as_ref().map(shown);
        Ok(request)
    }
}

/// An example, or a step that prepares one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    operation: String,
    /// The name by which later steps refer to it, if it is not the example of its operation.
    #[serde(rename = "as")]
    name: Option<String>,
    #[serde(flatten)]
    request: Request,
    /// What the answer has to have, `POINTER` or `POINTER=TEXT`; until then it is asked for again.
    until: Option<String>,
    /// How many events of a stream are read.
    events: Option<usize>,
}

/// What is sent, besides the key.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Request {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    path: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    query: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    /// JSON, or a text as it is sent if the headers name another type.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Value>,
}

/// An example, as the description shows it.
#[derive(Debug, Serialize)]
struct Example {
    #[serde(flatten)]
    request: Request,
    status: u16,
    answer: Value,
}

impl Step {
    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.operation)
    }
}

/// Puts the parts of earlier answers into a text.
fn filled(text: &str, answers: &BTreeMap<String, Value>) -> Result<String> {
    let mut parts = text.split("{{");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (reference, rest) = part.split_once("}}").context("it is not closed")?;
        let (name, pointer) = match reference.find('/') {
            Some(at) => reference.split_at(at),
            None => (reference, ""),
        };
        let answer = answers.get(name).and_then(|answer| answer.pointer(pointer));
        match answer.with_context(|| format!("there is no {reference}"))? {
            Value::String(text) => filled.push_str(text),
            other => filled.push_str(&other.to_string()),
        }
        filled.push_str(rest);
    }
    Ok(filled)
}

fn filled_in(value: &Value, answers: &BTreeMap<String, Value>) -> Result<Value> {
    Ok(match value {
        Value::String(text) => filled(text, answers)?.into(),
        Value::Array(items) => {
            let items = items.iter().map(|item| filled_in(item, answers));
            items.collect::<Result<_>>()?
        }
        Value::Object(members) => {
            let members = members.iter();
            let members =
                members.map(|(name, value)| Ok((name.clone(), filled_in(value, answers)?)));
            Value::Object(members.collect::<Result<_>>()?)
        }
        other => other.clone(),
    })
}

/// A process, what its description says, and what it answered.
struct Asked {
    url: String,
    client: Client,
    /// The method and the path of each operation.
    operations: BTreeMap<String, (Method, String)>,
    answers: BTreeMap<String, Value>,
}

impl Asked {
    async fn new(url: String) -> Result<Self> {
        // Only the first test of the process installs it; the client requires it even without TLS.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().build()?;
        let description: Value = client
            .get(format!("{url}/openapi.json"))
            .send()
            .await?
            .json()
            .await?;
        let mut operations = BTreeMap::new();
        for (path, item) in description["paths"].as_object().context("it has paths")? {
            for (method, operation) in item.as_object().context("it has operations")? {
                let id = operation["operationId"].as_str().context("it has a name")?;
                let method = Method::from_bytes(method.to_uppercase().as_bytes())?;
                operations.insert(id.to_owned(), (method, path.clone()));
            }
        }
        Ok(Self {
            url,
            client,
            operations,
            answers: BTreeMap::new(),
        })
    }

    /// The status and the answer, asked until it has what the step waits for.
    async fn ask(&self, step: &Step, request: &Request) -> Result<(u16, Value)> {
        for _ in 0..TRIES {
            let (status, answer) = self.ask_once(step, request).await?;
            let has = |until: &String| {
                let (pointer, text) = until.split_once('=').unwrap_or((until, ""));
                let found = answer.pointer(pointer).unwrap_or(&Value::Null);
                let shown = match found {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                !["null", "0"].contains(&shown.as_str()) && (text.is_empty() || shown == text)
            };
            if step.until.as_ref().is_none_or(has) {
                return Ok((status, answer));
            }
            SystemClock::new().sleep(BETWEEN).await;
        }
        anyhow::bail!("{:?} does not come", step.until)
    }

    async fn ask_once(&self, step: &Step, request: &Request) -> Result<(u16, Value)> {
        let found = self.operations.get(&step.operation);
        let (method, path) = found.context("there is no such operation")?;
        let mut path = path.clone();
        for (name, value) in &request.path {
            path = path.replace(&format!("{{{name}}}"), &value.replace('/', "%2F"));
        }
        let to = format!("{}{path}", self.url);
        let mut call = self.client.request(method.clone(), to);
        call = call.query(&request.query).bearer_auth(ROOT);
        for (name, value) in &request.headers {
            call = call.header(name, value);
        }
        call = match &request.body {
            None => call,
            Some(Value::String(text)) => call.body(text.clone()),
            Some(json) => call.json(json),
        };
        let response = call.send().await?;
        let status = response.status().as_u16();
        let answer = if let Some(count) = step.events {
            events(response, count).await?.into()
        } else {
            let text = response.text().await?;
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        };
        Ok((status, answer))
    }
}

/// The first events of a stream.
async fn events(mut response: Response, count: usize) -> Result<String> {
    let mut read = String::new();
    while let Some(piece) = response.chunk().await? {
        read.push_str(std::str::from_utf8(&piece)?);
        let events = read.split_inclusive("\n\n");
        let whole = events.filter(|event| event.ends_with("\n\n") && !event.starts_with(':'));
        let whole: Vec<&str> = whole.take(count).collect();
        if whole.len() == count {
            return Ok(whole.concat());
        }
    }
    Ok(read)
}

/// What is shown of an answer: an archive is long.
fn shown(answer: &Value) -> Value {
    match answer {
        Value::String(text) if text.starts_with('{') => {
            let lines = text.split_inclusive('\n').take(LINES_SHOWN);
            lines.collect::<String>().into()
        }
        other => other.clone(),
    }
}

/// Answers what is posted to webhooks.
async fn receiver() -> Result<String> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/hook", listener.local_addr()?);
    let router = Router::new().route("/hook", post(async || ""));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(url)
}

/// Operations whose answers are no help: longer than the rest of the description together, or figures.
const WITHOUT: [&str; 3] = ["getMetrics", "getOpenApi", "getWorkflowSchema"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_example_of_the_description_is_answered_as_it_says() -> Result<()> {
    let _turn = beside()?;
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let receiver = receiver().await?;
    let environment = [
        ("MAINSPRING_ROOT_KEY", ROOT),
        ("MAINSPRING_NAME", "machine-1"),
        ("MAINSPRING_MEMORY_EMBEDDINGS_MODEL", "demo"),
        ("MAINSPRING_SCHEDULER_WEBHOOK_ALLOW_PRIVATE", "127.0.0.1"),
    ];
    let program = Program {
        binary: binary()?,
        logs: dir.path().join("logs"),
        environment: environment
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
    };
    let dev = blocking(|| program.dev("dev", &data))?;
    blocking(|| dev.wait_until_ready())?;
    let mut asked = Asked::new(dev.url()).await?;
    asked
        .answers
        .insert("receiver".to_owned(), receiver.clone().into());
    let mut steady = Steady::new(&receiver)?;

    let steps: Vec<Step> = serde_json::from_str(&std::fs::read_to_string(STEPS)?)?;
    let mut examples = BTreeMap::new();
    for step in &steps {
        let name = step.name().to_owned();
        let request = serde_json::to_value(&step.request)?;
        let request = filled_in(&request, &asked.answers).with_context(|| name.clone())?;
        let request: Request = serde_json::from_value(request)?;
        let asking = asked.ask(step, &request);
        let (status, answer) = asking.await.with_context(|| name.clone())?;
        let example = Example {
            request: steady.request(&request)?,
            status,
            answer: steady.value(&shown(&answer))?,
        };
        asked.answers.insert(name, answer);
        if step.name.is_none() {
            examples.insert(&step.operation, example);
        }
    }
    let operations = asked.operations.keys();
    let lack: Vec<&String> = operations.filter(|id| !examples.contains_key(id)).collect();
    ensure!(lack == WITHOUT, "these have no example: {lack:?}");

    let found = serde_json::to_string_pretty(&examples)? + "\n";
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(FILE, &found)?;
    }
    let written = std::fs::read_to_string(FILE)?;
    let lines = written.lines().zip(found.lines());
    let differs: Vec<_> = lines
        .filter(|(left, right)| left != right)
        .take(5)
        .collect();
    ensure!(
        written == found,
        "UPDATE_DOCS=1 writes what is answered now; the first differences: {differs:?}"
    );
    Ok(())
}
