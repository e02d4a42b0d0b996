//! What the machine offers: programs, variables, a place to speak.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Says something to whoever watches.
pub(crate) fn say(text: &str) {
    // Nobody is left to tell when stderr is gone.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// A variable, unless empty.
#[expect(
    clippy::disallowed_methods,
    reason = "chores run outside of the configured program"
)]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The names of variables that would be settings of a program that is started.
pub(crate) fn settings() -> Vec<String> {
    let begins = ["MAINSPRING_", "POWER_LOOP_"];
    let urls = ["DATABASE_URL", "REDIS_URL"];
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let ours = |name: &String| {
        begins.iter().any(|begin| name.starts_with(begin)) || urls.contains(&name.as_str())
    };
    names.filter(ours).collect()
}

/// A program on the path.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = variable("PATH")?;
    let candidates = path.split(':').map(|folder| Path::new(folder).join(name));
    // Daemons live where the path of a plain user does not always reach.
    let more = ["/usr/sbin", "/usr/local/sbin"].map(|folder| Path::new(folder).join(name));
    candidates.chain(more).find(|candidate| candidate.is_file())
}

/// A TCP port that was free a moment ago.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Whether this process may do everything.
pub(crate) fn is_root() -> bool {
    Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Whether the machine knows this user.
pub(crate) fn has_user(name: &str) -> bool {
    Command::new("id")
        .args(["-u", name])
        .output()
        .is_ok_and(|output| output.status.success())
}

/// Installs packages of a Debian-like system. Does nothing, and says so, where that is not
/// possible: then the caller looks again and reports what is missing.
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
            // Packages start no services of their own at this run level.
            .env("RUNLEVEL", "1")
            .status();
        if !status.is_ok_and(|status| status.success()) {
            say("xtask: apt-get failed");
            return;
        }
    }
}
