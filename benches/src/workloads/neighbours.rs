//! How soon a tenant is served while another one does harm of one kind, compared with being alone.
//!
//! The harm is input that is dear to evaluate, which should cost others nothing, or a hundred times
//! what a share allows, of which most is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::client::{Client, with_key};
use crate::cluster::{Cluster, Options, ROOT_KEY, many_sessions, new_tenant};
use crate::load::{closed_loop_of, now, pause};
use crate::stats::{measurement, millis, percentile};

/// What dear input may do to another tenant's p99, and what a flood may.
const DEAR: &str = "<= 1.1";
const FLOOD: &str = "<= 1.25";

/// Connections that make the requests of one kind.
const CLIENTS: usize = 8;

/// Streams and slow bodies that are tried at once: a hundred times a small share.
const CONNECTIONS: usize = 3_200;

/// Webhooks whose endpoint takes what is sent and never answers.
const HOLES: usize = 16;

/// What one tenant does to the others.
#[derive(Debug, Clone, Copy)]
enum Harm {
    /// Requests with this path and body, as fast as they are answered.
    Requests(&'static str, fn() -> Value),
    /// Lists, as fast as they are answered.
    Lists,
    /// Streams that stay open.
    Streams,
    /// Bodies of which a byte comes each second.
    SlowBodies,
    /// Sends whose events go to endpoints that never answer.
    BlackHoles,
}

const HARMS: &[(&str, &str, Harm)] = &[
    ("templates", DEAR, Harm::Requests("/v1/runs", template)),
    ("schemas", DEAR, Harm::Requests("/v1/sends", schema)),
    ("cron", DEAR, Harm::Requests("/v1/timers", cron)),
    ("pictures", DEAR, Harm::Requests("/v1/sends", picture)),
    (
        "archives",
        DEAR,
        Harm::Requests("/v1/sessions:import", nested),
    ),
    (
        "specs",
        DEAR,
        Harm::Requests("/v1/workflows:validate", nested),
    ),
    ("lists", FLOOD, Harm::Lists),
    ("streams", FLOOD, Harm::Streams),
    ("slow_bodies", FLOOD, Harm::SlowBodies),
    ("black_holes", FLOOD, Harm::BlackHoles),
];

/// A template whose loops would take hours, in a run.
fn template() -> Value {
    let loops = "{% for a in input %}{% for b in input %}{% for c in input %}{{ a }}{{ b }}{{ c }}\
                 {% endfor %}{% endfor %}{% endfor %}";
    let leaf = json!({ "type": "agent", "id": "leaf", "input": loops, "spec": { "name": "leaf" } });
    let input: Vec<usize> = (0..2_000).collect();
    json!({ "spec": { "name": "loops", "root": leaf }, "input": input })
}

/// A pattern whose automaton would take gigabytes.
fn schema() -> Value {
    let schema = json!({ "type": "object", "properties": {
        "a": { "type": "string", "pattern": "((a{1,500}){1,500}){1,500}" } } });
    json!({ "session": {}, "input": "hello", "options": { "output_schema": schema } })
}

/// A date that never comes.
fn cron() -> Value {
    json!({ "session": {}, "cron": "0 0 31 2 *", "input": "never" })
}

/// A picture of 50 000 × 50 000 points, in a hundred bytes.
fn picture() -> Value {
    let data = "iVBORw0KGgoAAAANSUhEUgAAw1AAAMNQCAYAAABLrz3KAAAAGklEQVR42u3BAQ0AAADCoPdPbQ8HFAAAAPBuEAAAAZto\
                VGMAAAAASUVORK5CYII=";
    let source = json!({ "type": "base64", "media_type": "image/png", "data": data });
    json!({ "session": {}, "input": [{ "type": "image", "source": source }] })
}

/// Half a megabyte of objects within objects.
fn nested() -> Value {
    let inner = |outer: Value, _| json!({ "type": "sequence", "id": "s", "steps": [outer] });
    // As deep as JSON may be, and as many of these as there is room for.
    let deep = (0..25).fold(json!({}), inner);
    json!({ "name": "deep", "root": { "type": "sequence", "id": "all", "steps": vec![deep; 400] } })
}

pub(super) async fn run(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let environment = [
        ("MAINSPRING_ROOT_KEY", ROOT_KEY),
        ("MAINSPRING_SCHEDULER_WEBHOOK_ALLOW_PRIVATE", "127.0.0.1"),
    ];
    let mut cluster = Cluster::start(options, 1, &environment)?;
    let base = cluster.scheduler.url();
    let quiet = with_key(&base, &new_tenant(&base, "quiet", json!({})).await?);
    let loud = with_key(&base, &new_tenant(&base, "loud", json!({})).await?);
    let agent = json!({ "tools": [], "context": { "last_messages": 4 } });
    let ids = many_sessions(&quiet, 16, 1, &agent).await?;
    let time = options.seconds(6, 1);
    let body = Bytes::from_static(br#"{"input":"hello"}"#);
    let p99 = async || {
        let done = closed_loop_of(&quiet, &ids, 1, time, &body, false).await;
        anyhow::Ok(millis(percentile(&mut done?.latencies, 99.0)))
    };
    p99().await?;
    for &(kind, bar, harm) in HARMS {
        let (mut alone, mut ratios, mut live) = (vec![], vec![], vec![]);
        for _ in 0..options.runs {
            let before = p99().await?;
            let attack = Attack::begin(&loud, harm, options).await?;
            attack.is_under_way().await?;
            let (beside, slowest) = tokio::join!(p99(), slowest_probe(&base, time));
            attack.end().await;
            alone.push(before);
            ratios.push(beside? / before);
            live.push(millis(slowest?));
        }
        let name = |what: &str| format!("neighbours.{kind}.{what}");
        emit(measurement(&name("alone"), "ms", &alone, "reference"));
        emit(measurement(&name("ratio"), "ratio", &ratios, bar));
        emit(measurement(&name("livez_max"), "ms", &live, "answers"));
    }
    // What was begun by all of them is found again by the next process.
    let mut ratios = Vec::new();
    for _ in 0..options.runs {
        let before = p99().await?;
        let attack = Attack::begin(&loud, Harm::Requests("/v1/runs", template), options).await?;
        attack.is_under_way().await?;
        cluster.scheduler.kill();
        attack.end().await;
        let port = base.rsplit(':').next().context("a port")?.parse()?;
        cluster.scheduler = cluster.program.scheduler_on("scheduler", port)?;
        ratios.push(p99().await? / before);
    }
    emit(measurement(
        "neighbours.restart.ratio",
        "ratio",
        &ratios,
        DEAR,
    ));
    cluster.audit()
}

/// The longest time that `/livez` takes to answer meanwhile.
async fn slowest_probe(base: &str, time: Duration) -> Result<Duration> {
    let mut client = Client::connect(base).await?;
    let begun = now();
    let mut slowest = Duration::ZERO;
    while begun.elapsed() < time {
        let asked = now();
        let answer = client.request("GET", "/livez", Bytes::new()).await?;
        ensure!(answer.status == 200, "/livez answered {}", answer.status);
        slowest = slowest.max(asked.elapsed());
        pause(20).await;
    }
    Ok(slowest)
}

/// Harm under way.
struct Attack {
    stop: Arc<AtomicBool>,
    /// Requests, connections and sends that were tried.
    tried: Arc<AtomicU64>,
    tasks: JoinSet<Result<()>>,
}

impl Attack {
    async fn begin(base: &str, harm: Harm, options: &Options) -> Result<Self> {
        let mut attack = Self {
            stop: Arc::default(),
            tried: Arc::default(),
            tasks: JoinSet::new(),
        };
        let connections = options.size(CONNECTIONS, 50);
        match harm {
            Harm::Requests(path, body) => {
                let body = Bytes::from(serde_json::to_vec(&body())?);
                attack.repeat(base, "POST", path, &body);
            }
            Harm::Lists => attack.repeat(base, "GET", "/v1/sends?limit=100", &Bytes::new()),
            Harm::Streams => {
                let id = many_sessions(base, 1, 1, &json!({})).await?.remove(0);
                let path = format!("/v1/sessions/{id}/events");
                for _ in 0..connections {
                    attack.stream(base.to_owned(), path.clone());
                }
            }
            Harm::SlowBodies => {
                for _ in 0..connections {
                    attack.dribble(base)?;
                }
            }
            Harm::BlackHoles => {
                attack.swallow(base).await?;
                let body = Bytes::from_static(br#"{"session":{},"input":"hello"}"#);
                attack.repeat(base, "POST", "/v1/sends", &body);
            }
        }
        Ok(attack)
    }

    /// Waits until the first of it was answered or is open.
    async fn is_under_way(&self) -> Result<()> {
        let begun = now();
        while self.tried.load(Ordering::Relaxed) == 0 {
            ensure!(
                begun.elapsed() < Duration::from_secs(30),
                "nothing was tried"
            );
            pause(10).await;
        }
        Ok(())
    }

    async fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.shutdown().await;
    }

    fn repeat(&mut self, base: &str, method: &'static str, path: &'static str, body: &Bytes) {
        for _ in 0..CLIENTS {
            let (base, body) = (base.to_owned(), body.clone());
            let (stop, tried) = (self.stop.clone(), self.tried.clone());
            self.tasks.spawn(async move {
                let mut client = Client::connect(&base).await?;
                while !stop.load(Ordering::Relaxed) {
                    match client.request(method, path, body.clone()).await {
                        // Whoever is told to wait and does not is the worst of clients.
                        Ok(answer) => ensure!(answer.status < 500, "{path}: {}", answer.status),
                        Err(_) => client = Client::connect(&base).await?,
                    }
                    tried.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
        }
    }

    fn stream(&mut self, base: String, path: String) {
        let (stop, tried) = (self.stop.clone(), self.tried.clone());
        self.tasks.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let client = Client::connect(&base).await?;
                let mut stream = client.stream(&path, &[]).await?;
                tried.fetch_add(1, Ordering::Relaxed);
                while let Ok(Some(_)) = stream.next().await {}
                pause(100).await;
            }
            Ok(())
        });
    }

    fn dribble(&mut self, base: &str) -> Result<()> {
        let (key, host) = base
            .trim_start_matches("http://")
            .rsplit_once('@')
            .context("a key")?;
        let head = format!(
            "POST /v1/sends HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\ncontent-length: 100000\r\n\r\n"
        );
        let host = host.to_owned();
        let (stop, tried) = (self.stop.clone(), self.tried.clone());
        self.tasks.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let Ok(mut stream) = TcpStream::connect(&host).await else {
                    pause(100).await;
                    continue;
                };
                if stream.write_all(head.as_bytes()).await.is_err() {
                    continue;
                }
                tried.fetch_add(1, Ordering::Relaxed);
                while stream.write_all(b" ").await.is_ok() {
                    pause(1_000).await;
                }
            }
            Ok(())
        });
        Ok(())
    }

    async fn swallow(&mut self, base: &str) -> Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/hook", listener.local_addr()?);
        self.tasks.spawn(async move {
            let mut open = Vec::new();
            loop {
                open.push(listener.accept().await?);
            }
        });
        let mut client = Client::connect(base).await?;
        for _ in 0..HOLES {
            let hook = json!({ "url": url, "events": ["*"] });
            client.post("/v1/webhooks", &hook).await?;
        }
        Ok(())
    }
}
