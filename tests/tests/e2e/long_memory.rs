//! The example of an assistant that two people talk to for months, run as is but over a shorter
//! time.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use mainspring_tests::faults::binary;
use mainspring_tests::suites::store::harness::environment;

/// The number before these words.
fn counted(said: &str, words: &str) -> Result<u64> {
    let (before, _) = said.split_once(words).context(said.to_owned())?;
    let number = before.trim_end().rsplit([' ', '\n']).next();
    Ok(number.unwrap_or_default().parse()?)
}

#[test]
fn an_assistant_remembers_what_each_told_it_however_often_it_is_killed() -> Result<()> {
    if Command::new("python3").arg("--version").output().is_err() {
        // Only the example needs Python, the product does not.
        ensure!(
            environment("REQUIRE_STORES").as_deref() != Some("all"),
            "python3 is required, and is not there"
        );
        return Ok(());
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/long_memory/run.py");
    let output = Command::new("python3")
        .arg(script)
        .env("MAINSPRING", binary()?)
        .env("MONTHS", "1")
        .env("DAYS", "8")
        .env("KILLS", "0.6")
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}\n{errors}");
    ensure!(said.contains("my dog is called Rex"), "{said}");
    // At least one in the middle of sends, and one before the last question.
    let kills = counted(&said, "times killed with signal 9")?;
    ensure!(kills >= 2, "{said}");
    let takeovers = counted(&said, "sends taken over")?;
    ensure!(takeovers >= 1, "{said}");
    // Both conversations are complete: 8 days, a month's end and the last question.
    ensure!(
        said.matches("10 inputs, all answered").count() == 2,
        "{said}"
    );
    Ok(())
}
