//! The assistant that two people talk to for months, as its example runs it, on a shorter time.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use mainspring_tests::faults::binary;

#[test]
fn an_assistant_remembers_what_each_told_it_however_often_it_is_killed() -> Result<()> {
    if Command::new("python3").arg("--version").output().is_err() {
        // The example needs it, the product does not.
        return Ok(());
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/long_memory/run.py");
    let output = Command::new("python3")
        .arg(script)
        .env("MAINSPRING", binary()?)
        .env("MONTHS", "1")
        .env("DAYS", "8")
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}\n{errors}");
    ensure!(said.contains("my dog is called Rex"), "{said}");
    ensure!(said.contains("times killed with signal 9"), "{said}");
    Ok(())
}
