//! Parameters of sweeps.

use super::Result;
use crate::id::BootId;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::time::Duration;

use uuid::Uuid;

use crate::agent::Priority;
use crate::id::{SendId, SessionKey, TenantId};
use crate::time::Timestamp;

/// How long an API key is kept after it was revoked or has expired.
pub const API_KEY_KEEP: Duration = Duration::from_hours(30 * 24);

/// Periodic background work.
#[async_trait]
pub trait Sweeps: Send + Sync {
    /// Reads sessions that have work and no live owner, oldest first.
    async fn sweep_ready(&self, query: SweepReady) -> Result<Swept>;

    /// Serves due alarms, at most `limit`: delayed sends get their position, parked retries become
    /// ready, and sends past their deadline end under a grant of `boot`. Running sends are left to
    /// their workers while these live; if a worker's lease has expired, its boot is declared dead,
    /// and its sends end here if they are past their deadline or a cancel was requested.
    async fn sweep_alarms(&self, boot: BootId, limit: u32) -> Result<AlarmSweep>;

    /// Finds sends that ended without completing while something still works for them, because the
    /// process that should have ended it may have died. Work in a session without a parent continues.
    async fn sweep_orphans(&self, query: SweepOrphans) -> Result<Orphans>;

    /// Deletes idempotency keys older than `keep`, ended boots that nothing refers to, and API keys
    /// that were revoked or expired longer ago than `keep` and [`API_KEY_KEEP`]. Returns the number
    /// of rows deleted; call again until it is zero.
    async fn sweep_retention(&self, keep: Duration) -> Result<u64>;
}

/// The methods of [`Sweeps`], as passed on by [`store_methods`](crate::store_methods).
#[doc(hidden)]
#[macro_export]
macro_rules! sweeps_methods {
    ($apply:ident) => {
        $apply! { Sweeps:
            read sweep_orphans(query: $crate::store::SweepOrphans) -> $crate::store::Orphans;
            read sweep_ready(query: $crate::store::SweepReady) -> $crate::store::Swept;
            write sweep_alarms(boot: $crate::id::BootId, limit: u32) -> $crate::store::AlarmSweep;
            write sweep_retention(keep: std::time::Duration) -> u64;
        }
    };
}

/// A session that must be enqueued.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReadySession {
    /// The session.
    pub key: SessionKey,
    /// The worker pool that may claim it.
    pub pool: String,
    /// The priority of its queue lane.
    pub priority: Priority,
    /// When it became ready.
    pub ready_since: Timestamp,
}

/// A query for ready sessions.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepReady {
    /// Only this pool; all when absent.
    pub pool: Option<String>,
    /// Only sessions that have been ready for at least this many milliseconds: younger ones were
    /// just enqueued.
    pub older_than_ms: i64,
    /// Only sessions after this one, by `(ready_since, key)`.
    pub after: Option<(Timestamp, SessionKey)>,
    /// At most this many.
    pub limit: u32,
}

/// A page of ready sessions.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Swept {
    /// The sessions, oldest first.
    pub sessions: Vec<ReadySession>,
    /// Where the next page continues; `None` at the end.
    pub next: Option<(Timestamp, SessionKey)>,
}

/// The result of an alarm sweep.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlarmSweep {
    /// Sessions that became ready.
    pub enqueue: Vec<ReadySession>,
    /// Sends that ended, at their deadline or by a cancel that their dead worker did not act on:
    /// session, send and the number of the final step.
    pub finished: Vec<(SessionKey, SendId, i64)>,
    /// Those of them that had started: other sends or runs may be working for them.
    pub begun: Vec<(SessionKey, SendId)>,
    /// Alarms served, of any kind; call again while it equals the limit.
    pub served: u32,
    /// When the next alarm is due, if known.
    pub next_alarm_at: Option<Timestamp>,
    /// The database's clock.
    pub now: Timestamp,
}

/// A page of work for calls: sends and runs that are not final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepOrphans {
    /// Minimum time since the send that made the call ended; before that its worker ends the work itself.
    pub older_than: Duration,
    /// The last item of the previous page; `None` for the first page.
    pub after: Option<(TenantId, Uuid)>,
    /// Page size, in sends and runs.
    pub limit: u32,
}

/// The sends that a page of orphaned work belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Orphans {
    /// Sends that ended without completing and for which something still works; in order, without duplicates.
    pub of: Vec<(SessionKey, SendId)>,
    /// The page's last item, by tenant and id, if another page may follow.
    pub next: Option<(TenantId, Uuid)>,
}

/// A page of sends that may be old enough to delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetireSends {
    /// The tenant.
    pub tenant: TenantId,
    /// How long a send that belongs to no run is kept after its end.
    pub keep: Duration,
    /// Minimum age of a page's last send for another page to follow.
    pub young: Duration,
    /// The last send of the previous page; `None` for the first page.
    pub after: Option<SendId>,
    /// Maximum number of sends, and of their rounds, in a page: rounds have steps, calls and usage.
    pub limit: u32,
}

/// The result of a page of retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retired {
    /// Number of rows deleted.
    pub rows: u64,
    /// Sends old enough that were kept: they are open, or their end must still be reported.
    pub skipped: u64,
    /// The page's last send, if another page follows.
    pub next: Option<SendId>,
}
