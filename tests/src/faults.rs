//! Faults put into real processes on real servers, while clients send and two ledgers are kept
//! outside: what clients were told, and what the model was asked.
//!
//! [`Cluster`] starts Postgres, Redis, a model and `mainspring` processes; [`Load`] is the clients;
//! a test injects faults meanwhile, records them in [`FaultLog`], and ends with [`settle`], which lets the
//! system come to rest, runs `mainspring audit` and compares database, clients and model.

mod alarms;
mod caller;
mod cluster;
mod evidence;
mod fan_out;
mod fault_log;
mod load;
mod lock;
mod proxy;
mod side_effects;
pub(crate) mod stream;
mod tenants;
mod verdict;

use std::sync::OnceLock;
use std::time::Duration;

use mainspring_runtime::{OsEntropy, SystemClock};
use mainspring_shared::entropy::Entropy as _;
use mainspring_shared::time::{Clock as _, Timestamp};

pub use alarms::Alarms;
pub use caller::Caller;
pub use cluster::{Cluster, Machine, Recipe, alone, beside, binary, say, skipped};
pub use evidence::{Ended, Evidence, Told, violations};
pub use fan_out::FanOut;
pub use fault_log::{Effect, Fault, FaultLog};
pub use load::{Load, Shape};
pub use lock::RowLock;
pub use proxy::{Cut, Proxy};
pub use side_effects::{SideEffect, SideEffects};
pub use stream::{Event, Events};
pub use tenants::{Holder, ROOT_KEY, SECRETS_KEY, furnished, new_tenant};
pub use verdict::{Report, settle};

/// How long faults are injected in each test: `MAINSPRING_FAULT_SECONDS`, else a few seconds.
pub fn dose() -> Duration {
    Duration::from_secs(asked("MAINSPRING_FAULT_SECONDS").unwrap_or(3))
}

/// How many leaves run at once where a test is about many: `MAINSPRING_FAULT_LEAVES`, if that is set.
pub fn leaves() -> Option<usize> {
    asked("MAINSPRING_FAULT_LEAVES")
}

/// How many kills a test makes that counts them: `MAINSPRING_FAULT_KILLS`, else a few.
pub fn kills() -> usize {
    asked("MAINSPRING_FAULT_KILLS").unwrap_or(4)
}

/// What a variable of the environment says, if it says anything of the kind.
fn asked<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var_os(name)?.into_string().ok()?.parse().ok()
}

/// Goes on after a while, in true time: the processes under test have no other.
pub async fn pause(duration: Duration) {
    clock().sleep(duration).await;
}

/// The time of day, as the model's ledger has it.
pub fn now() -> Timestamp {
    clock().now()
}

/// A reading that never goes back.
pub fn monotonic() -> Duration {
    clock().monotonic()
}

/// A length of time between two.
pub fn between(least: Duration, most: Duration) -> Duration {
    least + most.saturating_sub(least).mul_f64(OsEntropy.fraction())
}

/// A number below `count`.
pub fn any_of(count: usize) -> usize {
    ((count as f64 * OsEntropy.fraction()) as usize).min(count.saturating_sub(1))
}

/// Runs what blocks this thread, such as starting a server, without keeping the others waiting.
pub fn blocking<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

fn clock() -> &'static SystemClock {
    static CLOCK: OnceLock<SystemClock> = OnceLock::new();
    CLOCK.get_or_init(SystemClock::new)
}
