//! Checks that run while others do that mostly wait.

use std::fs::File;
use std::process::Command;
use std::time::Instant;

use anyhow::Context as _;

use crate::{packages, process, tools};

/// Beside the tests, those that neither start servers nor measure time.
pub(crate) const BESIDE_TESTS: [&[&str]; 2] = [&["lint"], &["chart"]];

/// Runs checks one after the other, each as a process that only gets the processor time which others leave. The output
/// of each is shown when it ends, in one piece. A failure does not keep the next one from running.
#[expect(
    clippy::disallowed_methods,
    reason = "chores take the time that they take"
)]
pub(crate) fn run(checks: &[&[&str]]) -> anyhow::Result<()> {
    let mut first = Ok(());
    for check in checks {
        let begin = Instant::now();
        let name = check.first().copied().unwrap_or_default();
        let result = quietly(name, check).with_context(|| name.to_owned());
        tools::say(&format!(
            "xtask: {name} took {} s in the background",
            begin.elapsed().as_secs()
        ));
        first = first.and(result);
    }
    first
}

fn quietly(name: &str, check: &[&str]) -> anyhow::Result<()> {
    let path = packages::target()?.join(format!("xtask-{name}.log"));
    let log = File::create(&path)?;
    let mut command = Command::new("nice");
    command
        .args(["-n", "19"])
        .arg(std::env::current_exe()?)
        .args(check)
        .stdout(log.try_clone()?)
        .stderr(log);
    let result = process::run(&mut command);
    let output = std::fs::read_to_string(path)?;
    let shown = output
        .lines()
        .filter(|line| !(result.is_ok() && is_progress(line)));
    tools::say(&shown.collect::<Vec<_>>().join("\n"));
    result
}

/// Whether a line says what cargo is doing: a thousand of them hide what tests said.
fn is_progress(line: &str) -> bool {
    let doing = ["Checking", "Compiling", "Documenting", "Downloaded"];
    line.trim_start()
        .split(' ')
        .next()
        .is_some_and(|word| doing.contains(&word))
}
