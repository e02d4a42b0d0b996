//! Parameters of the sweeps.

use super::Result;
use crate::id::BootId;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::time::Duration;

use uuid::Uuid;

use crate::agent::Priority;
use crate::id::{SendId, SessionKey, TenantId};
use crate::time::Timestamp;

/// How long an API key is shown after it was revoked or has expired.
pub const API_KEY_KEEP: Duration = Duration::from_hours(30 * 24);

/// What has to happen by itself.
#[async_trait]
pub trait Sweeps: Send + Sync {
    /// Reads sessions that have work and no live owner, oldest first.
    async fn sweep_ready(&self, query: SweepReady) -> Result<Swept>;

    /// Serves due alarms, at most `limit`: delayed sends get their place, parked retries become
    /// ready, sends past their deadline end under a grant of `boot`. Running ones are left to their
    /// workers, as long as these live: a boot whose lease has run out is declared dead, and its sends
    /// end here if their time is up or someone asked for it.
    async fn sweep_alarms(&self, boot: BootId, limit: u32) -> Result<AlarmSweep>;

    /// Finds sends that ended without completing while something still works for them: the process
    /// that should have ended it may have died. What works in a session without a parent goes on.
    async fn sweep_orphans(&self, query: SweepOrphans) -> Result<Orphans>;

    /// Deletes idempotency keys older than `keep`, ended boots that nothing refers to, and API keys that
    /// were revoked or have expired for that long, at least [`API_KEY_KEEP`]. Returns how many rows went;
    /// call again until it is zero.
    async fn sweep_retention(&self, keep: Duration) -> Result<u64>;
}

/// The methods of [`Sweeps`] as [`store_methods`](crate::store_methods) hands them over.
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

/// A session that someone has to enqueue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReadySession {
    /// The session.
    pub key: SessionKey,
    /// The workers that may take it.
    pub pool: String,
    /// The queue it goes through.
    pub priority: Priority,
    /// Since when it has had work.
    pub ready_since: Timestamp,
}

/// A question for ready sessions.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepReady {
    /// Only this pool; all when absent.
    pub pool: Option<String>,
    /// Only sessions that have been ready for at least this many milliseconds: younger ones were
    /// just enqueued.
    pub older_than_ms: i64,
    /// Go on behind this one, by `(ready_since, key)`.
    pub after: Option<(Timestamp, SessionKey)>,
    /// At most this many.
    pub limit: u32,
}

/// An answer of ready sessions.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Swept {
    /// The sessions, oldest first.
    pub sessions: Vec<ReadySession>,
    /// Where a next question goes on; none when this was the end.
    pub next: Option<(Timestamp, SessionKey)>,
}

/// What due alarms did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlarmSweep {
    /// Sessions that became ready.
    pub enqueue: Vec<ReadySession>,
    /// Sends that ended, at their deadline or because that was asked of a worker that is dead:
    /// session, send and the number of the final step.
    pub finished: Vec<(SessionKey, SendId, i64)>,
    /// Those of them that had begun: others may work for them.
    pub begun: Vec<(SessionKey, SendId)>,
    /// Alarms served, of any kind; call again while it equals the limit.
    pub served: u32,
    /// When the next alarm is due, as far as is known.
    pub next_alarm_at: Option<Timestamp>,
    /// The database's clock.
    pub now: Timestamp,
}

/// A page of what works for calls: sends and runs that are not final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepOrphans {
    /// How long ago the send ended that made the call, at least: its worker ends what works for it.
    pub older_than: Duration,
    /// The last of the page before; none for the first page.
    pub after: Option<(TenantId, Uuid)>,
    /// Sends and runs of a page.
    pub limit: u32,
}

/// What a page of work for calls belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Orphans {
    /// Sends that ended, without completing, and for which something still works; in order, each
    /// once.
    pub of: Vec<(SessionKey, SendId)>,
    /// The page's last, by tenant and id, where another page may follow.
    pub next: Option<(TenantId, Uuid)>,
}

/// A page of sends that may be old enough to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetireSends {
    /// Whose.
    pub tenant: TenantId,
    /// How long after its end a send is kept that is not a run's.
    pub keep: Duration,
    /// How old the last send of a page is at least, where another page follows.
    pub young: Duration,
    /// The last send of the page before; none for the first page.
    pub after: Option<SendId>,
    /// Sends of a page; fewer where they had more rounds than that, since rounds have steps, calls and
    /// usage.
    pub limit: u32,
}

/// What a page of retention did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retired {
    /// Rows that went.
    pub rows: u64,
    /// Sends that are as old and stay: they are open, or their end has still to be told.
    pub skipped: u64,
    /// The page's last send, where another page follows.
    pub next: Option<SendId>,
}
