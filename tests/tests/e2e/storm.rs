//! The script that runs the worked example while one process after the other is killed.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use mainspring_benches::servers::free_port;
use mainspring_tests::faults::{Cluster, Recipe, blocking, fault_duration, monotonic};

/// Input for the built-in model: slow enough to be killed, and fast enough to finish within a
/// worker's life, which is five deaths long.
const SLOW: &str = "!stream 16x100ms the history of tea";

/// Seconds between the restart of a process and the next death.
const EVERY: &str = "1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_worked_example_is_written_while_processes_die() -> Result<()> {
    let environment = [
        ("MAINSPRING_LLM_PROVIDER", "demo"),
        ("MAINSPRING_LLM_MODEL", "demo"),
    ];
    let recipe = Recipe {
        schedulers: 0,
        workers: 0,
        environment: &environment,
        ..Recipe::default()
    };
    let Some(cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/workflows/storm.sh");
    let end = monotonic() + fault_duration();
    let mut written = 0;
    while monotonic() < end || written == 0 {
        once(&cluster, &script)?;
        written += 1;
    }
    cluster.all_completed()?;
    cluster.passed();
    Ok(())
}

/// Lets the script run the example once, and checks its output.
fn once(cluster: &Cluster, script: &Path) -> Result<()> {
    let output = blocking(|| {
        anyhow::Ok(
            Command::new("sh")
                .arg(script)
                .envs(cluster.program.environment.iter().cloned())
                .env("MAINSPRING", &cluster.program.binary)
                .env("PORT", free_port()?.to_string())
                .env("SECOND_PORT", free_port()?.to_string())
                .env("INPUT", SLOW)
                .env("EVERY", EVERY)
                .output()?,
        )
    })?;
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{}\n{said}\n{errors}",
        output.status
    );
    ensure!(said.contains("-- the run: completed"), "{said}");
    let deaths = said
        .lines()
        .filter(|line| line.starts_with("-- kill -9 "))
        .count();
    ensure!(deaths >= 3, "only {deaths} deaths:\n{said}");
    ensure!(said.contains(&format!("-- {deaths} deaths")), "{said}");
    // The tree: the plan, the findings, the page. Each leaf needed only one attempt.
    for path in [
        "/0:plan",
        "/1:research",
        "/1:research[0]/finding",
        "/2:write",
    ] {
        let row = said
            .lines()
            .find(|line| line.split(' ').next() == Some(path));
        let row = row.with_context(|| format!("{path} is missing:\n{said}"))?;
        let words: Vec<&str> = row.split_whitespace().collect();
        ensure!(words[2] == "completed" && words[3] == "1", "{row}");
    }
    Ok(())
}
