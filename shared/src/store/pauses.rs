//! Parameters of pauses.

use async_trait::async_trait;

use super::{Page, Result};
use crate::id::{SendId, TenantId};
use crate::pause::{PauseKey, PauseRecord};

/// Minimum time that an ended pause is remembered, in milliseconds: longer than any worker caches
/// it, and than sends parked because of it wait by themselves.
pub const RESUMED_KEPT_MS: i64 = 2 * 60 * 60 * 1_000;

/// Pauses, and the sends that wait for their end.
#[async_trait]
pub trait Pauses: Send + Sync {
    /// Starts a pause. A repeat keeps its start, and its reason unless it gives another one.
    async fn pause(&self, item: NewPause) -> Result<PauseRecord>;

    /// Ends a pause; without effect if there is none. Its sends are woken by [`Self::wake_paused`].
    async fn resume(&self, key: PauseKey) -> Result<()>;

    /// Lists pauses, by key.
    async fn list_pauses(&self, query: ListPauses) -> Result<Page<PauseRecord>>;

    /// Records that a send is about to be parked because of a pause. It is recorded before the send
    /// is parked, so that a resume in between finds it. A worker that dies between the two leaves a
    /// record of a send that runs again, but never a parked send without a record.
    async fn await_resume(&self, item: PauseWait) -> Result<()>;

    /// Makes the alarms of parked sends due whose pause has ended, and deletes their records. Sends
    /// that are running or locked are left for the next call. Deletes pauses that ended long ago.
    /// Returns how many records were deleted; call again while that equals the limit.
    async fn wake_paused(&self, limit: u32) -> Result<u32>;
}

/// The methods of [`Pauses`], as passed on by [`store_methods`](crate::store_methods).
#[doc(hidden)]
#[macro_export]
macro_rules! pauses_methods {
    ($apply:ident) => {
        $apply! { Pauses:
            write pause(item: $crate::store::NewPause) -> $crate::pause::PauseRecord;
            write resume(key: $crate::pause::PauseKey) -> ();
            read list_pauses(
                query: $crate::store::ListPauses
            ) -> $crate::store::Page<$crate::pause::PauseRecord>;
            write await_resume(item: $crate::store::PauseWait) -> ();
            write wake_paused(limit: u32) -> u32;
        }
    };
}

/// A pause to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPause {
    /// What to pause.
    pub key: PauseKey,
    /// The reason, for people.
    pub reason: Option<String>,
}

/// A query for pauses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPauses {
    /// Only this tenant's; all when absent.
    pub tenant: Option<TenantId>,
    /// The last pause of the previous page; `None` for the first page.
    pub after: Option<PauseKey>,
    /// At most this many.
    pub limit: u32,
}

/// A send that waits for the end of a pause; a later record of the same send replaces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseWait {
    /// The owner of the send.
    pub tenant: TenantId,
    /// The send.
    pub send: SendId,
    /// What it waits for.
    pub pause: PauseKey,
}
