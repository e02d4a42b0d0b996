//! The signals that end a serving process.

use crate::failure::{Exit, Failure};

/// Listens for the signals that ask the process to stop.
#[derive(Debug)]
pub(crate) struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    /// A closed terminal ends the process as well, unless it is to be ignored, as under `nohup`.
    #[cfg(unix)]
    hangup: Option<tokio::signal::unix::Signal>,
}

/// Whether the process was started so that it ignores hangups. Where that cannot be known, they keep the effect that
/// the system gives them.
#[cfg(unix)]
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The first signal is the hangup.
    mask.is_none_or(|mask| mask & 1 == 1)
}

impl Signals {
    /// Starts listening; from then on the signals do not end the process on their own.
    #[cfg(unix)]
    pub(crate) fn listen() -> Result<Self, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::new(Exit::Failure, format!("signals: {error}")))
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: if ignores_hangups() {
                None
            } else {
                Some(listen(SignalKind::hangup())?)
            },
        })
    }

    /// Starts listening.
    #[cfg(not(unix))]
    pub(crate) fn listen() -> Result<Self, Failure> {
        Ok(Self {})
    }

    /// Resolves at the next signal.
    #[cfg(unix)]
    pub(crate) async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => {
                    hangup.recv().await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            () = hangup => {}
        }
    }

    /// Resolves at the next signal.
    #[cfg(not(unix))]
    pub(crate) async fn next(&mut self) {
        // Without a handler the system ends the process itself.
        let _ = tokio::signal::ctrl_c().await;
    }
}
