//! Kills all processes of a command.

use std::io::PipeWriter;

use rustix::process::{Pid, Signal, kill_process_group};

/// The variable that identifies processes that left their group.
pub(crate) const MARK: &str = "MAINSPRING_CALL_ID";

/// The shell script that starts a command. It first leaves a guard process in the group, which
/// kills the group as soon as its standard input closes: when the worker dies, however it dies. The
/// guard also keeps the group's number from being reused. The command itself gets no input.
pub(crate) const GUARDED: &str = "exec 3<&0 </dev/null
( trap '' HUP INT TERM; exec >/dev/null 2>&1; read -r _ <&3; kill -KILL 0 ) &
exec 3<&-
exec \"$@\"";

/// The processes of one command. Dropping it kills them all.
#[derive(Debug)]
pub(crate) struct Group {
    leader: Option<Pid>,
    mark: String,
    /// Closed by the worker's death, too.
    _guard: PipeWriter,
}

impl Group {
    /// The group led by `leader`, whose processes carry the mark.
    pub(crate) fn new(leader: Option<u32>, mark: &str, guard: PipeWriter) -> Self {
        let leader = leader.and_then(|pid| i32::try_from(pid).ok());
        Self {
            leader: leader.and_then(Pid::from_raw),
            mark: mark.to_owned(),
            _guard: guard,
        }
    }

    /// Asks every process of the group to terminate.
    pub(crate) fn ask(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills every process of the group, and those that left it but carry the mark.
    pub(crate) async fn end(mut self) {
        self.signal(Signal::KILL);
        self.leader = None;
        let mark = std::mem::take(&mut self.mark);
        let _ = tokio::task::spawn_blocking(move || end_marked(&mark)).await;
    }

    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            // Fails only if no process is left.
            let _ = kill_process_group(leader, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        if self.mark.is_empty() {
            return;
        }
        let mark = std::mem::take(&mut self.mark);
        // Scanning all processes takes a while, so keep it off the runtime's threads.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || end_marked(&mark))),
            Err(_) => end_marked(&mark),
        }
    }
}

/// Maximum number of scans of all processes: a process may start another during a scan.
#[cfg(target_os = "linux")]
const PASSES: usize = 8;

/// Kills all processes that were started with the mark in their environment, such as those that
/// moved to their own session or group.
#[cfg(target_os = "linux")]
pub(crate) fn end_marked(mark: &str) {
    let mark = format!("{MARK}={mark}");
    for _ in 0..PASSES {
        let Ok(processes) = std::fs::read_dir("/proc") else {
            return;
        };
        let ids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        if ids.filter(|id| end_if_marked(*id, mark.as_bytes())).count() == 0 {
            return;
        }
    }
}

#[cfg(target_os = "linux")]
fn end_if_marked(id: i32, mark: &[u8]) -> bool {
    use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

    let Some(pid) = Pid::from_raw(id) else {
        return false;
    };
    // Opened first: whether the environment read next belongs to this process or to a later one
    // with the same number, the signal can only reach this one.
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
        return false;
    };
    let Ok(environment) = std::fs::read(format!("/proc/{id}/environ")) else {
        return false;
    };
    let marked = environment.split(|byte| *byte == 0).any(|one| one == mark);
    marked && pidfd_send_signal(process, Signal::KILL).is_ok()
}

/// On other systems the environment of other processes cannot be read, so processes that left the
/// group are not found.
#[cfg(not(target_os = "linux"))]
pub(crate) fn end_marked(_: &str) {}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, pipe};
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
    use std::process::Command;

    use super::*;

    #[test]
    fn commands_end_with_the_worker() {
        let (input, guard) = pipe().expect("a pipe");
        let (mut output, written) = pipe().expect("a pipe");
        let script = "sleep 1000 & trap '' TERM HUP; echo; exec sleep 1000";
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", GUARDED, "mainspring", "sh", "-c", script])
            .stdin(input)
            .stdout(written)
            .process_group(0);
        let mut child = command.spawn().expect("starts");
        drop(command);
        output.read_exact(&mut [0]).expect("is ready");
        // As the worker's death does.
        drop(guard);
        let status = child.wait().expect("waits");
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
        // Ends when the last process that could write is gone.
        assert_eq!(output.read_to_end(&mut Vec::new()).expect("reads"), 0);
    }
}
