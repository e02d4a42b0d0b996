//! Plays the scenarios that all clients share; see ../../../README.md for their format.
//!
//! ```sh
//! cargo run -p mainspring-client --example scenarios -- BINARY [NAME]
//! ```
//!
//! With `loop` as its first argument it is a tool loop in a process of its own, as scenarios start it.

mod player;
mod reading;
mod servers;
mod tool_loop;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mainspring_client::Client;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::player::Player;
use self::servers::{Dev, Stub};

/// Why a scenario is not as it should be.
type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Most of the time they wait.
const AT_ONCE: usize = 4;
const LIMIT: Duration = Duration::from_secs(90);

/// Fails with these words unless something holds.
#[macro_export]
macro_rules! must {
    ($holds:expr, $($words:tt)+) => {
        if !$holds {
            return Err(format!($($words)+).into());
        }
    };
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["loop", url, key, calls, lease, tool] => {
            tool_loop::run(url, key, calls, lease, tool).await
        }
        [binary] => play_all(binary.into(), "").await,
        [binary, name] => play_all(binary.into(), name).await,
        _ => Err("scenarios BINARY [NAME]".into()),
    }
}

/// What scenarios share.
struct Stage {
    binary: PathBuf,
    file: Value,
    shared: Dev,
}

async fn play_all(binary: PathBuf, chosen: &str) -> Result<(), Failed> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenario.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let scenarios = file["scenarios"].as_array().cloned().unwrap_or_default();
    let shared = Dev::start(&binary).await?;
    let stage = Arc::new(Stage {
        binary,
        file,
        shared,
    });
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut playing = JoinSet::new();
    for scenario in scenarios {
        if !text(&scenario["name"]).contains(chosen) {
            continue;
        }
        let (stage, places) = (stage.clone(), places.clone());
        playing.spawn(async move {
            let _place = places.acquire().await;
            let played = tokio::time::timeout(LIMIT, play(&stage, &scenario)).await;
            let played = played.unwrap_or_else(|_| Err("it takes too long".into()));
            (text(&scenario["name"]).to_owned(), played)
        });
    }
    let mut failed = 0;
    let mut all = 0;
    while let Some(played) = playing.join_next().await {
        let (name, played) = played?;
        all += 1;
        let end = match played {
            Ok(()) => "ok".to_owned(),
            Err(error) => {
                failed += 1;
                format!("FAILED: {error}")
            }
        };
        writeln!(std::io::stdout(), "{name}: {end}")?;
    }
    must!(all > 0, "there is no such scenario");
    must!(failed == 0, "{failed} of {all} scenarios failed");
    writeln!(std::io::stdout(), "{all} scenarios hold")?;
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

async fn play(stage: &Stage, scenario: &Value) -> Result<(), Failed> {
    if let Some(answers) = scenario["stub"].as_array() {
        let stub = Stub::answering(answers.clone()).await?;
        Player::new(Client::new(&stub.url), None, None)
            .play(scenario)
            .await?;
        return check_requests(&stub, scenario["requests"].as_array());
    }
    if let Some(ways) = scenario["cut_after_each"].as_array() {
        let recording = stage.file["recordings"][text(&scenario["replay"])].as_array();
        let recording = recording.cloned().unwrap_or_default();
        for way in ways {
            for count in 0..recording.len() {
                let stub = Stub::replaying(recording.clone(), count, way == "abrupt").await?;
                let client = Client::new(&stub.url).retries(4, Duration::from_millis(1));
                let played = Player::new(client, None, Some(recording.clone()))
                    .play(scenario)
                    .await;
                played.map_err(|error| format!("cut ({way}) after {count}: {error}"))?;
                let connections = stub.requests().len();
                must!(
                    connections == 2,
                    "cut ({way}) after {count}: {connections} connections"
                );
            }
        }
        return Ok(());
    }
    play_real(stage, scenario).await
}

/// Plays with the real binary. Who kills it, makes keys, which may close a server to those without one, or serves tools,
/// wherever they are called, has one alone.
async fn play_real(stage: &Stage, scenario: &Value) -> Result<(), Failed> {
    let steps = scenario["steps"].as_array();
    let is_harmful = |step: &Value| step["do"] == "kill" || step["do"] == "loop";
    let own = if steps.into_iter().flatten().any(is_harmful) || scenario["key"].is_object() {
        Some(Dev::start(&stage.binary).await?)
    } else {
        None
    };
    let server = own.as_ref().unwrap_or(&stage.shared);
    let open = Client::new(&server.url);
    let mut client = open.clone();
    let mut made = None;
    if let Some(key) = scenario["key"].as_str() {
        client = client.key(key);
    } else if let Some(members) = scenario["key"].as_object() {
        let body = |more: Value| -> Result<_, serde_json::Error> { serde_json::from_value(more) };
        let root = open
            .api()
            .create_key(&body(json!({"name": "root", "scopes": ["admin"]}))?, None)
            .await?;
        let admin = open.key(root.key.ok_or("a new key is shown")?);
        let mut wanted = members.clone();
        wanted.insert("name".to_owned(), "own".into());
        let key = admin.api().create_key(&body(wanted.into())?, None).await?;
        client = client.key(key.key.clone().ok_or("a new key is shown")?);
        made = Some((admin, key.id));
    }
    let mut player = Player::new(client, Some(server), None);
    player.made = made;
    player.play(scenario).await
}

/// Whether the stub got these requests, in this order.
fn check_requests(stub: &Stub, told: Option<&Vec<Value>>) -> Result<(), Failed> {
    let Some(told) = told else { return Ok(()) };
    let got = stub.requests();
    must!(
        got.len() == told.len(),
        "{} requests in place of {}",
        got.len(),
        told.len()
    );
    for (at, (got_one, told)) in got.iter().zip(told).enumerate() {
        must!(
            told["method"] == got_one.method.as_str() && told["path"] == got_one.path.as_str(),
            "{} {}",
            got_one.method,
            got_one.path
        );
        let before = at.checked_sub(1).map(|before| &got[before]);
        let header = |name: &str| got_one.headers.get(name).cloned();
        if let (Some(before), true) = (before, told["same_key"] == true) {
            let key = header("idempotency-key");
            must!(
                key.is_some() && key.as_ref() == before.headers.get("idempotency-key"),
                "another key"
            );
        }
        if let Some(id) = told["last_event_id"].as_str() {
            must!(
                header("last-event-id").as_deref() == Some(id),
                "not behind {id}"
            );
        }
        if let (Some(before), Some(least)) = (before, told["later_by_ms"].as_u64()) {
            let apart = got_one.at.duration_since(before.at).as_millis();
            must!(apart >= u128::from(least), "only {apart} ms later");
        }
    }
    Ok(())
}
