//! Fault injection into real processes on real servers, while clients send and two ledgers are kept
//! outside: what clients were told, and what the model was asked.
//!
//! [`Cluster`] starts Postgres, Redis, a model and `mainspring` processes; [`Load`] is the clients.
//! Meanwhile a test injects faults and records them in [`FaultLog`]. It ends with [`settle`], which
//! waits for the system to come to rest, runs `mainspring audit`, and compares the database, the
//! clients and the model.

mod alarms;
mod caller;
mod caught;
mod cluster;
mod draws;
mod evidence;
mod fan_out;
mod fault_log;
mod load;
mod lock;
mod mcp;
mod proxy;
mod side_effects;
pub(crate) mod stream;
mod tenants;
mod verdict;

use std::sync::OnceLock;
use std::time::Duration;

use mainspring_runtime::SystemClock;
use mainspring_shared::time::{Clock as _, Timestamp};

pub use alarms::Alarms;
pub use caller::RetryingClient;
pub use caught::Caught;
pub use cluster::{Cluster, Machine, Recipe, alone, beside, binary, say, skipped};
pub use draws::{any_of, between};
pub use evidence::{Ended, Evidence, Told, violations};
pub use fan_out::FanOut;
pub use fault_log::{Effect, Fault, FaultLog};
pub use load::{Load, Shape};
pub use lock::RowLock;
pub use mcp::{McpSeen, McpServer, Point, pass_on_lines};
pub use proxy::{Cut, Proxy};
pub use side_effects::{SideEffect, SideEffects};
pub use stream::{Event, Events};
pub use tenants::{ApiClient, ROOT_KEY, SECRETS_KEY, furnished, new_tenant};
pub use verdict::{Report, settle};

/// How long each test injects faults: `MAINSPRING_FAULT_SECONDS`, or 3 seconds.
pub fn fault_duration() -> Duration {
    Duration::from_secs(asked("MAINSPRING_FAULT_SECONDS").unwrap_or(3))
}

/// How many leaves a fan-out test runs at once: `MAINSPRING_FAULT_LEAVES`, if set.
pub fn leaves() -> Option<usize> {
    asked("MAINSPRING_FAULT_LEAVES")
}

/// How many kills a test that counts them makes: `MAINSPRING_FAULT_KILLS`, or 4.
pub fn kills() -> usize {
    asked("MAINSPRING_FAULT_KILLS").unwrap_or(4)
}

/// The parsed value of an environment variable, if it is set and valid.
fn asked<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var_os(name)?.into_string().ok()?.parse().ok()
}

/// Waits in real time, the only time that the processes under test have.
pub async fn pause(duration: Duration) {
    clock().sleep(duration).await;
}

/// The wall time, from the same clock as the model's ledger.
pub fn now() -> Timestamp {
    clock().now()
}

/// The monotonic time.
pub fn monotonic() -> Duration {
    clock().monotonic()
}

/// Runs blocking work, such as starting a server, without stalling other tasks.
pub fn blocking<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

fn clock() -> &'static SystemClock {
    static CLOCK: OnceLock<SystemClock> = OnceLock::new();
    CLOCK.get_or_init(SystemClock::new)
}
