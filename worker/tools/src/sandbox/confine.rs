//! Restricts the current process: others cannot inspect it, and its memory is limited.

use std::io;

use rustix::process::{Resource, Rlimit, setrlimit};

/// Keeps processes of the same user from reading this one's environment and memory, unless they are
/// privileged to read everyone's.
#[cfg(target_os = "linux")]
pub fn conceal() -> io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};

    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// On other systems, access is left to the system's own rules.
#[cfg(not(target_os = "linux"))]
pub fn conceal() -> io::Result<()> {
    Ok(())
}

/// Conceals this process, and limits the memory that it and each process it starts may use from
/// here on.
pub fn confine(memory: u64) -> io::Result<()> {
    conceal()?;
    let bytes = memory.saturating_add(used());
    let limit = Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };
    Ok(setrlimit(Resource::Data, limit)?)
}

/// Bytes that already count towards the limit, if the system reports them.
fn used() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB"));
    let kibibytes = kibibytes.and_then(|text| text.trim().parse::<u64>().ok());
    kibibytes.unwrap_or_default().saturating_mul(1024)
}
