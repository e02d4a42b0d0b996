//! Runs programs so that an interrupt ends them before it ends us.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// How often a running program is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Whether someone asked us to end. From the first call on, signals no longer end us by
/// themselves: servers that were started must be stopped first.
pub(crate) fn interrupted() -> bool {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    let flag = FLAG.get_or_init(|| {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // Without a handler a signal ends us at once, as it would anyway.
            let _ = signal_hook::flag::register(signal, flag.clone());
        }
        flag
    });
    flag.load(Ordering::Relaxed)
}

/// Runs a program to its end; fails when it does, or when we are interrupted.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let shown = show(command);
    crate::tools::say(&format!("xtask: {shown}"));
    if interrupted() {
        bail!("interrupted");
    }
    // A group of its own: an interrupt must reach what the program itself started.
    let mut child = command
        .process_group(0)
        .spawn()
        .with_context(|| shown.clone())?;
    loop {
        if let Some(status) = child.try_wait()? {
            if status.success() {
                return Ok(());
            }
            bail!("{shown}: {status}");
        }
        if interrupted() {
            end_group(&mut child);
            bail!("interrupted");
        }
        std::thread::sleep(LOOK);
    }
}

fn end_group(child: &mut Child) {
    let group = format!("-{}", child.id());
    for signal in ["-TERM", "-KILL"] {
        let _ = Command::new("kill").args([signal, "--", &group]).status();
        for _ in 0..60 {
            if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}
