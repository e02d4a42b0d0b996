//! Closed-loop load: clients that send, wait for the end, and send again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use serde_json::Value;

use crate::client::Client;

/// Number of idempotency keys used so far.
static KEYS: AtomicU64 = AtomicU64::new(0);

/// The result of a load.
#[derive(Debug, Default)]
pub struct Done {
    /// Sends that ended within the time.
    pub sends: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// The latency of each send, from the request to the answer.
    pub latencies: Vec<Duration>,
}

impl Done {
    /// Sends per second.
    pub fn rate(&self) -> f64 {
        self.sends as f64 / self.elapsed.as_secs_f64()
    }
}

/// The current time of the real clock.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures true time")]
pub fn now() -> Instant {
    Instant::now()
}

/// Sleeps for this many milliseconds of real time.
#[expect(clippy::disallowed_methods, reason = "a benchmark runs in true time")]
pub async fn pause(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// Runs `clients` connections for `time`, each over its own share of the sessions, and checks that
/// every send completes with the answer of the `demo` model. If `keyed`, each send has an
/// idempotency key.
pub async fn closed_loop(
    base: &str,
    sessions: &[String],
    clients: usize,
    time: Duration,
    keyed: bool,
) -> Result<Done> {
    let body = Bytes::from(format!("{{\"input\":\"{}\"}}", "u".repeat(100)));
    closed_loop_of(base, sessions, clients, time, &body, keyed).await
}

/// The same with a custom body.
pub async fn closed_loop_of(
    base: &str,
    sessions: &[String],
    clients: usize,
    time: Duration,
    body: &Bytes,
    keyed: bool,
) -> Result<Done> {
    let sends = Arc::new(AtomicU64::new(0));
    let start = now();
    let mut tasks = Vec::new();
    for index in 0..clients {
        let mine: Vec<String> = sessions
            .iter()
            .skip(index)
            .step_by(clients)
            .cloned()
            .collect();
        let (base, sends, body) = (base.to_owned(), sends.clone(), body.clone());
        tasks.push(tokio::spawn(async move {
            let mut client = Client::connect(&base).await?;
            let mut latencies = Vec::new();
            for session in mine.iter().cycle() {
                if start.elapsed() >= time {
                    break;
                }
                let key = keyed.then(|| {
                    let number = KEYS.fetch_add(1, Ordering::Relaxed);
                    format!("{}-{number}", std::process::id())
                });
                let sent = send_with(&mut client, session, body.clone(), key.as_deref());
                latencies.push(sent.await?);
                sends.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(latencies)
        }));
    }
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await??);
    }
    Ok(Done {
        sends: sends.load(Ordering::Relaxed),
        elapsed: start.elapsed(),
        latencies,
    })
}

/// Runs one send to its end and returns how long that took.
pub async fn send_and_wait(client: &mut Client, session: &str, body: Bytes) -> Result<Duration> {
    send_with(client, session, body, None).await
}

async fn send_with(
    client: &mut Client,
    session: &str,
    body: Bytes,
    key: Option<&str>,
) -> Result<Duration> {
    let start = now();
    let path = format!("/v1/sessions/{session}/sends?wait=30s");
    let header = key.map(|key| ("idempotency-key", key));
    let answer = client.request_with("POST", &path, body, header.as_slice());
    let answer = answer.await?;
    let took = start.elapsed();
    let send: Value = answer.json()?;
    ensure!(
        answer.status == 200 && send["status"] == "completed",
        "a send did not complete: {} {send}",
        answer.status
    );
    Ok(took)
}
