//! The store as one process sees it: across a network with latency, with a database that may be
//! unavailable, and with faults at chosen calls.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::store::{
    Agents, BlobRows, Boots, Calibrations, Calls, Error, Extractions, Keys, Leases, Lists,
    McpLists, Memories, Money, Pauses, ProviderKeys, Reads, Result, Runs, Sends, Sessions, Skills,
    Sweeps, TenantErasures, Tenants, Timers, Webhooks,
};
use mainspring_shared::time::Timestamp;

use super::chance::mixed;
use super::plan::Harm;
use super::system::Core;

/// The store of one process.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) core: Arc<Core>,
    /// The process's slot. The gate belongs to one of its lives.
    pub(super) slot: usize,
    pub(super) gate: super::gate::Gate,
}

fn away() -> Error {
    Error::Unavailable {
        source: "the database is away".into(),
    }
}

impl Link {
    async fn call<T: Send, F>(
        &self,
        method: &'static str,
        call: impl FnOnce(Timestamp) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send,
    {
        let core = &self.core;
        self.gate.pass().await;
        let (nth, harm) = core.count(method);
        // Up to two milliseconds of latency each way.
        let spread = mixed(core.plan.seed ^ mixed(nth as u64) ^ ((self.slot as u64) << 40));
        let (there, back) = (spread % 3, (spread >> 8) % 3);
        if there > 0 {
            core.time.sleep(there).await;
        }
        if let Some(harm) = harm {
            core.say(|| format!("{method} #{nth} of {}: {harm:?}", self.slot));
        }
        if core.is_cut_off(self.slot) {
            // Some callers fail at once, others only after a timeout.
            if spread.is_multiple_of(4) {
                core.time.sleep(2_000).await;
            }
            self.gate.pass().await;
            return Err(away());
        }
        match harm {
            Some(Harm::Before) => return Err(away()),
            Some(Harm::Refused(_)) => {
                return Err(Error::Refused {
                    source: "the database refuses it".into(),
                });
            }
            Some(Harm::Unreadable(_)) => {
                return Err(Error::Corrupt {
                    table: "sends",
                    column: "options",
                    row: "of the simulation".to_owned(),
                    detail: "it makes no sense".to_owned(),
                });
            }
            Some(Harm::LateBefore(ms)) => core.time.sleep(ms).await,
            Some(Harm::DiesBefore(ms)) => core.kill(self.slot, ms),
            Some(Harm::StopsBefore(ms)) => core.pause(self.slot, ms),
            _ => {}
        }
        // A request sent before the process died or stopped may still reach the database.
        let unsent = matches!(harm, Some(Harm::DiesBefore(_) | Harm::StopsBefore(_)));
        if unsent || (self.gate.is_dead() && spread & 16 == 0) {
            self.gate.pass().await;
        }
        let answer = core.made(call(core.now())).await;
        core.trace(self.slot, method, answer.is_ok());
        match harm {
            Some(Harm::After) => return answer.and_then(|_| Err(away())),
            Some(Harm::LateAfter(ms)) => core.time.sleep(ms).await,
            Some(Harm::DiesAfter(ms)) => core.kill(self.slot, ms),
            Some(Harm::StopsAfter(ms)) => core.pause(self.slot, ms),
            _ => {}
        }
        if back > 0 {
            core.time.sleep(back).await;
        }
        self.gate.pass().await;
        answer
    }
}

/// Implements the port by forwarding each method; `now` is the database's clock.
macro_rules! link {
    (@ $noun:ident [$($done:tt)*]) => {
        #[async_trait]
        impl $noun for Link { $($done)* }
    };
    (@ $noun:ident [$($done:tt)*] $kind:ident now() -> $out:ty; $($rest:tt)*) => {
        link! { @ $noun [$($done)*
            async fn now(&self) -> Result<$out> {
                self.call("now", |now| async move { Ok(now) }).await
            }
        ] $($rest)* }
    };
    (@ $noun:ident [$($done:tt)*] $kind:ident $name:ident(
        $($arg:ident: $type:ty),*
    ) -> $out:ty; $($rest:tt)*) => {
        link! { @ $noun [$($done)*
            async fn $name(&self $(, $arg: $type)*) -> Result<$out> {
                let made = move |now| async move {
                    self.core.store.at(now).$name($($arg),*).await
                };
                self.call(stringify!($name), made).await
            }
        ] $($rest)* }
    };
    ($noun:ident: $($all:tt)*) => { link! { @ $noun [] $($all)* } };
}

mainspring_shared::store_methods!(link);
