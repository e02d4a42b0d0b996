//! What the machine provides: programs, variables, ports, users; and messages on stderr.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Prints a message on stderr.
pub(crate) fn say(text: &str) {
    // If stderr is closed there is nobody to report to.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// An environment variable, unless it is empty.
#[expect(
    clippy::disallowed_methods,
    reason = "chores run outside of the configured program"
)]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The names of set variables that a started program would read as settings.
pub(crate) fn settings() -> Vec<String> {
    let begins = ["MAINSPRING_", "POWER_LOOP_"];
    let urls = ["DATABASE_URL", "REDIS_URL"];
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let ours = |name: &String| {
        begins.iter().any(|begin| name.starts_with(begin)) || urls.contains(&name.as_str())
    };
    names.filter(ours).collect()
}

/// Finds a program on the `PATH`.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = variable("PATH")?;
    let candidates = path.split(':').map(|folder| Path::new(folder).join(name));
    // Daemons are often in folders that are not on a plain user's path.
    let more = ["/usr/sbin", "/usr/local/sbin"].map(|folder| Path::new(folder).join(name));
    candidates.chain(more).find(|candidate| candidate.is_file())
}

/// A TCP port that was free a moment ago.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Whether the machine has this user.
pub(crate) fn has_user(name: &str) -> bool {
    Command::new("id")
        .args(["-u", name])
        .output()
        .is_ok_and(|output| output.status.success())
}

/// Installs packages on a Debian-like system. If that is not possible, prints a message and does
/// nothing else: the caller then checks again and reports what is missing.
pub(crate) fn install(packages: &[&str]) {
    if !is_root() || program("apt-get").is_none() {
        say(&format!(
            "xtask: cannot install {}: not root on a Debian",
            packages.join(" ")
        ));
        return;
    }
    say(&format!("xtask: installing {}", packages.join(" ")));
    for arguments in [vec!["update", "-q"], {
        let mut arguments = vec!["install", "-y", "-q", "--no-install-recommends"];
        arguments.extend(packages);
        arguments
    }] {
        let status = Command::new("apt-get")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            // At this run level packages do not start their services.
            .env("RUNLEVEL", "1")
            .status();
        if !status.is_ok_and(|status| status.success()) {
            say("xtask: apt-get failed");
            return;
        }
    }
}
