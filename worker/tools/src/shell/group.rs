//! The processes of one command, and their end.

use std::io::PipeWriter;

use rustix::process::{Pid, Signal, kill_process_group};

/// The variable by which processes that left their group are known.
pub(crate) const MARK: &str = "MAINSPRING_CALL_ID";

/// What starts a command. The shell that runs it first leaves a guard in the group, which ends the
/// group as soon as standard input does: when the worker dies, however it dies. The guard also
/// keeps the group's number from being given to others. The command itself gets no input.
pub(crate) const GUARDED: &str = "exec 3<&0 </dev/null
( trap '' HUP INT TERM; exec >/dev/null 2>&1; read -r _ <&3; kill -KILL 0 ) &
exec 3<&-
exec \"$@\"";

/// The processes of one command. Dropping it ends them all.
#[derive(Debug)]
pub(crate) struct Group {
    leader: Option<Pid>,
    mark: String,
    /// Closed by our death too.
    _guard: PipeWriter,
}

impl Group {
    /// The group that `leader` leads, whose processes carry the mark.
    pub(crate) fn new(leader: Option<u32>, mark: &str, guard: PipeWriter) -> Self {
        let leader = leader.and_then(|pid| i32::try_from(pid).ok());
        Self {
            leader: leader.and_then(Pid::from_raw),
            mark: mark.to_owned(),
            _guard: guard,
        }
    }

    /// Asks every process of the group to end.
    pub(crate) fn ask(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends every process of the group and all those that left it but carry the mark.
    pub(crate) async fn end(mut self) {
        self.signal(Signal::KILL);
        self.leader = None;
        let mark = std::mem::take(&mut self.mark);
        let _ = tokio::task::spawn_blocking(move || end_marked(&mark)).await;
    }

    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            // Fails only where no process is left.
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
        // Reading what all processes are takes a while; a runtime's thread has none to spare.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || end_marked(&mark))),
            Err(_) => end_marked(&mark),
        }
    }
}

/// Times that all processes are looked through: one may start another meanwhile.
#[cfg(target_os = "linux")]
const PASSES: usize = 8;

/// Ends all processes that were started with the mark in their environment: such as went into a
/// session or a group of their own.
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
    // Opened first: what is read next is then of this process or of a later one with its number,
    // and the signal reaches none but this.
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
        return false;
    };
    let Ok(environment) = std::fs::read(format!("/proc/{id}/environ")) else {
        return false;
    };
    let marked = environment.split(|byte| *byte == 0).any(|one| one == mark);
    marked && pidfd_send_signal(process, Signal::KILL).is_ok()
}

/// Elsewhere the environment of others cannot be read: what left its group is not found.
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
        // As the worker's end does.
        drop(guard);
        let status = child.wait().expect("waits");
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
        // Ends when the last process that could write is gone.
        assert_eq!(output.read_to_end(&mut Vec::new()).expect("reads"), 0);
    }
}
