//! What tools and other accounts on the machine see of the program's own secrets.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_benches::process::Program;
use mainspring_shared::time::Clock as _;
use mainspring_tests::faults::{RetryingClient, beside, binary};
use serde_json::json;

use crate::tools::{results_of, start, text};

/// The account of nobody: root reads everything, so these tests would find nothing out as root.
const NOBODY: u32 = 65_534;

/// The binary, started as an account that is not root's.
fn unprivileged(dir: &Path) -> Result<PathBuf> {
    let binary = binary()?;
    if !is_root()? {
        return Ok(binary);
    }
    std::os::unix::fs::chown(dir, Some(NOBODY), Some(NOBODY))?;
    // Its folder need not be open to others.
    let copy = dir.join("mainspring");
    std::fs::copy(&binary, &copy)?;
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755))?;
    let script = dir.join("as-nobody");
    let drop = format!("setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups");
    std::fs::write(
        &script,
        format!("#!/bin/sh\nexec {drop} {} \"$@\"\n", copy.display()),
    )?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    Ok(script)
}

fn is_root() -> Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(std::fs::metadata("/proc/self")?.uid() == 0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_read_nothing_of_the_process_that_starts_them() -> Result<()> {
    let _turn = beside()?;
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let program = Program {
        binary: unprivileged(dir.path())?,
        logs: dir.path().join("logs"),
        environment: vec![
            ("MAINSPRING_LLM_PROVIDER".into(), "demo".into()),
            ("MAINSPRING_LLM_API_KEY".into(), "sk-of-the-worker".into()),
            ("MAINSPRING_TOOLS_SHELL".into(), "local".into()),
        ],
    };
    let dev = start(&program, "dev", &data)?;
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    let agent = json!({ "agent": { "tools": ["core"] } });
    let made = caller.post("/v1/sessions", &agent, "session").await?;
    let session = text(&made.json()?, "id")?;
    let look = r#"!tool shell {"command": "echo begin; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -a of-the-worker; env; echo end"}"#;
    let said = results_of(&mut caller, &session, look).await?;
    let said = said.first().context("a result")?;
    ensure!(said.contains("begin") && said.contains("end"), "{said}");
    ensure!(!said.contains("sk-of-the-worker"), "{said}");

    // Nobody else reads what it stores.
    let mut open = vec![data.clone()];
    let mut files = 0;
    while let Some(path) = open.pop() {
        let found = std::fs::symlink_metadata(&path)?;
        let mode = found.permissions().mode() & 0o777;
        let of_others = mode & 0o077;
        ensure!(of_others == 0, "{} has the mode {mode:o}", path.display());
        if found.is_dir() {
            for entry in std::fs::read_dir(&path)? {
                open.push(entry?.path());
            }
        } else {
            files += 1;
        }
    }
    ensure!(files > 1, "{files} files");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_does_not_stay_among_the_arguments() -> Result<()> {
    let _turn = beside()?;
    let mut worker = Command::new(binary()?)
        .args([
            "worker",
            "--database-url",
            "postgres://me:hunter2@127.0.0.1:1/x",
        ])
        .arg("--redis-url=redis://:hunter2@127.0.0.1:1")
        .env("MAINSPRING_LLM_PROVIDER", "demo")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let clock = mainspring_runtime::SystemClock::new();
    let until = clock.monotonic() + Duration::from_secs(20);
    let shown = loop {
        let bytes = std::fs::read(format!("/proc/{}/cmdline", worker.id()))?;
        let shown = String::from_utf8_lossy(&bytes).replace('\0', " ");
        if shown.contains("(hidden)") || clock.monotonic() > until {
            break shown;
        }
        clock.sleep(Duration::from_millis(10)).await;
    };
    let running = worker.try_wait()?;
    worker.kill()?;
    worker.wait()?;
    ensure!(running.is_none(), "it waits for its database: {running:?}");
    ensure!(shown.contains("--redis-url=(hidden)"), "{shown}");
    ensure!(!shown.contains("hunter2"), "{shown}");
    Ok(())
}
