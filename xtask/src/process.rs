//! Runs programs such that an interrupt ends them before it ends us.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// How often a running program is polled.
const LOOK: Duration = Duration::from_millis(50);

/// Whether we were asked to stop. From the first call on, signals do not end this process on their
/// own, because servers that it started must be stopped first.
pub(crate) fn interrupted() -> bool {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    let flag = FLAG.get_or_init(|| {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // Without a handler a signal simply ends us at once.
            let _ = signal_hook::flag::register(signal, flag.clone());
        }
        flag
    });
    flag.load(Ordering::Relaxed)
}

/// Runs a program to its end; fails if it fails, or if we are interrupted.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    run_with(command, |_| {})
}

/// The same for a program with long output, which is passed on. Returns the lines for which
/// `is_noted` holds as well, to be repeated where they are seen.
pub(crate) fn run_noting(
    command: &mut Command,
    is_noted: impl FnMut(&str) -> bool + Send + 'static,
) -> (anyhow::Result<()>, Vec<String>) {
    command.stdout(Stdio::piped());
    let mut reader = None;
    let result = run_with(command, |child| {
        let Some(output) = child.stdout.take() else {
            return;
        };
        reader = Some(std::thread::spawn(move || pass_on(output, is_noted)));
    });
    let noted = reader.and_then(|reader| reader.join().ok());
    (result, noted.unwrap_or_default())
}

/// Copies a program's output to ours, line by line; returns the noted lines.
fn pass_on(output: impl Read, mut is_noted: impl FnMut(&str) -> bool) -> Vec<String> {
    let mut noted = Vec::new();
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output
        .read_until(b'\n', &mut line)
        .is_ok_and(|read| read > 0)
    {
        // If our reader is gone, the program still continues.
        let _ = std::io::stdout().write_all(&line);
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if is_noted(text) {
            noted.push(text.to_owned());
        }
        line.clear();
    }
    noted
}

fn run_with(command: &mut Command, begun: impl FnOnce(&mut Child)) -> anyhow::Result<()> {
    let shown = show(command);
    crate::tools::say(&format!("xtask: {shown}"));
    if interrupted() {
        bail!("interrupted");
    }
    for name in of_this_package() {
        command.env_remove(name);
    }
    // In its own group, because an interrupt must reach the program's own children.
    let mut child = command
        .process_group(0)
        .spawn()
        .with_context(|| shown.clone())?;
    begun(&mut child);
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

/// The variables that cargo sets for the package it runs, which is this one. Build scripts read
/// them: with them, a build by xtask and one by hand would each rebuild TLS and all that uses it.
fn of_this_package() -> impl Iterator<Item = String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
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
