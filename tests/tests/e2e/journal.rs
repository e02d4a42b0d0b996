//! The journal across deaths of the processes that write it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_benches::process::{Process, Program};
use mainspring_tests::faults::{
    Cluster, Recipe, RetryingClient, beside, between, binary, blocking, monotonic, pause,
};
use serde_json::{Value, json};

/// Number of concurrent sessions, and of sends to each.
const SESSIONS: usize = 6;
const SENDS: usize = 4;

/// Three rounds, with calls in two of them.
const WORK: &str = concat!(
    r"!tool current_time {} !tool current_time {} ",
    r"!then !tool current_time {} !then !stream 4x40ms done"
);

/// Each session's step numbers in the order of the lines, each at its first occurrence.
fn written(journal: &Path) -> Result<BTreeMap<String, Vec<i64>>> {
    let mut sessions = BTreeMap::<String, Vec<i64>>::new();
    for line in std::fs::read_to_string(journal)?.lines() {
        // The last line may be incomplete.
        let Ok(line) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let (Some(session), Some(n)) = (line["session_id"].as_str(), line["n"].as_i64()) else {
            continue;
        };
        let numbers = sessions.entry(session.to_owned()).or_default();
        if !numbers.contains(&n) {
            numbers.push(n);
        }
    }
    Ok(sessions)
}

/// Creates sessions with sends; returns their ids.
async fn begin(caller: &mut RetryingClient) -> Result<Vec<(String, Vec<String>)>> {
    let mut all = Vec::new();
    for n in 0..SESSIONS {
        let agent = json!({ "agent": { "tools": ["current_time"] } });
        let key = format!("session-{n}");
        let made = caller.post("/v1/sessions", &agent, &key).await?.json()?;
        let session = made["id"].as_str().context("an id")?.to_owned();
        let mut sends = Vec::new();
        for m in 0..SENDS {
            let path = format!("/v1/sessions/{session}/sends");
            let key = format!("send-{n}-{m}");
            let body = json!({ "input": WORK });
            let send = caller.post(&path, &body, &key).await?.json()?;
            sends.push(send["id"].as_str().context("an id")?.to_owned());
        }
        all.push((session, sends));
    }
    Ok(all)
}

async fn ended(caller: &mut RetryingClient, all: &[(String, Vec<String>)]) -> Result<()> {
    for send in all.iter().flat_map(|(_, sends)| sends) {
        let until = monotonic() + Duration::from_mins(2);
        loop {
            let send = caller.get(&format!("/v1/sends/{send}?wait=10s")).await?;
            if send["status"] == "completed" {
                break;
            }
            ensure!(monotonic() < until, "it does not end: {send}");
        }
    }
    Ok(())
}

/// Waits until every step has its line, and checks their order.
async fn complete(journal: &Path, sessions: &[(String, Vec<String>)]) -> Result<()> {
    let until = monotonic() + Duration::from_secs(30);
    loop {
        let written = written(journal)?;
        let lines = std::fs::read_to_string(journal)?;
        let is_there = |send: &String| {
            let mut mine = lines.lines().filter(|line| line.contains(send.as_str()));
            mine.any(|line| line.contains(r#""event":"finished""#))
        };
        let all = sessions.iter().flat_map(|(_, sends)| sends).all(is_there);
        if all {
            for (session, _) in sessions {
                let numbers = written.get(session).context("its lines")?;
                let expected: Vec<i64> = (1..=numbers.len() as i64).collect();
                ensure!(*numbers == expected, "{session}: {numbers:?}");
            }
            return Ok(());
        }
        ensure!(monotonic() < until, "there are only {written:?}");
        pause(Duration::from_millis(50)).await;
    }
}

/// The output of `mainspring replay`.
fn replayed(program: &Program, journal: &Path, more: &[&str]) -> Result<(String, String)> {
    let mut words = vec!["replay", journal.to_str().context("UTF-8")?];
    words.extend(more);
    let (code, out, err) = blocking(|| program.run(&words))?;
    ensure!(code == 0, "{code}: {out}{err}");
    Ok((out, err))
}

fn look(program: &Program, journal: &Path, sessions: &[(String, Vec<String>)]) -> Result<()> {
    let (out, err) = replayed(program, journal, &[])?;
    ensure!(err.is_empty(), "{err}");
    for (session, sends) in sessions {
        ensure!(out.contains(&format!("\n{session}\n")) || out.starts_with(session.as_str()));
        for send in sends {
            let mine: Vec<&str> = out
                .lines()
                .filter(|line| line.contains(send.as_str()))
                .collect();
            let has = |what: &str| mine.iter().any(|line| line.contains(what));
            for what in [
                "accepted",
                "round 0 of",
                "calls current_time",
                "completed (end): 3 rounds",
            ] {
                ensure!(has(what), "{what}: {mine:#?}");
            }
            ensure!(has("current_time ok"), "{mine:#?}");
        }
    }
    // One send alone, with a damaged line in the journal.
    let text = std::fs::read_to_string(journal)?;
    let damaged = journal.with_extension("damaged");
    std::fs::write(&damaged, format!("{{\"at\": 5\n{text}"))?;
    let (session, sends) = &sessions[0];
    let (out, err) = replayed(program, &damaged, &["--send", &sends[0], "--json"])?;
    ensure!(err.contains("line 1 is damaged"), "{err}");
    for line in out.lines() {
        let line: Value = serde_json::from_str(line)?;
        ensure!(line["session_id"] == session.as_str() && line["send_id"] == sends[0].as_str());
    }
    ensure!(out.lines().count() >= 4, "{out}");
    Ok(())
}

fn start(program: &Program, name: &str, data: &Path) -> Result<Process> {
    let dev = blocking(|| program.dev(name, data))?;
    blocking(|| dev.wait_until_ready())?;
    Ok(dev)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_leaves_no_step_out() -> Result<()> {
    let _turn = beside()?;
    let dir = tempfile::tempdir()?;
    let (data, journal) = (
        dir.path().join("data"),
        dir.path().join("out/journal.jsonl"),
    );
    let program = Program {
        binary: binary()?,
        logs: dir.path().join("logs"),
        environment: [
            ("MAINSPRING_LLM_PROVIDER", "demo"),
            ("MAINSPRING_LEASE_TTL", "2s"),
            (
                "MAINSPRING_TELEMETRY_JSONL_PATH",
                journal.to_str().context("UTF-8")?,
            ),
            ("MAINSPRING_TELEMETRY_JSONL_INTERVAL", "100ms"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec(),
    };
    let mut dev = start(&program, "dev", &data)?;
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    let sessions = begin(&mut caller).await?;
    for n in 0..3 {
        pause(between(
            Duration::from_millis(100),
            Duration::from_millis(700),
        ))
        .await;
        drop(dev);
        dev = start(&program, &format!("dev-{n}"), &data)?;
    }
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    ended(&mut caller, &sessions).await?;
    complete(&journal, &sessions).await?;
    drop(dev);
    look(&program, &journal, &sessions)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_schedulers_one_writes_and_another_one_takes_over() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let journal: PathBuf = dir.path().join("journal.jsonl");
    let environment = [
        ("MAINSPRING_LLM_PROVIDER", "demo"),
        ("MAINSPRING_LLM_MODEL", "demo"),
        (
            "MAINSPRING_TELEMETRY_JSONL_PATH",
            journal.to_str().context("UTF-8")?,
        ),
        ("MAINSPRING_TELEMETRY_JSONL_INTERVAL", "100ms"),
    ];
    let recipe = Recipe {
        schedulers: 2,
        workers: 2,
        environment: &environment,
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let mut caller = RetryingClient::new(cluster.urls(), 0);
    let sessions = begin(&mut caller).await?;
    for n in [0, 1, 0] {
        pause(between(
            Duration::from_millis(100),
            Duration::from_millis(700),
        ))
        .await;
        blocking(|| cluster.schedulers[n].kill());
        pause(between(Duration::ZERO, Duration::from_millis(300))).await;
        cluster.replace_scheduler(n)?;
        cluster.all_ready()?;
    }
    ended(&mut caller, &sessions).await?;
    complete(&journal, &sessions).await?;
    let steps = cluster.query("SELECT count(*) FROM steps")?;
    let lines: usize = written(&journal)?.values().map(Vec::len).sum();
    ensure!(
        steps.trim() == lines.to_string(),
        "{steps} steps, {lines} lines"
    );
    look(&cluster.program, &journal, &sessions)?;
    cluster.passed();
    Ok(())
}
