//! Parameters of pauses.

use async_trait::async_trait;

use super::{Page, Result};
use crate::id::{SendId, TenantId};
use crate::pause::{PauseKey, PauseRecord};

/// How long a pause that has ended is remembered at least, in milliseconds: longer than any worker goes on
/// believing it, and than the sends that were parked because of it wait by themselves.
pub const RESUMED_KEPT_MS: i64 = 2 * 60 * 60 * 1_000;

/// What is paused, and the sends that wait for its end.
#[async_trait]
pub trait Pauses: Send + Sync {
    /// Pauses something; a repeat keeps since when it is paused, and its reason where it names none.
    async fn pause(&self, item: NewPause) -> Result<PauseRecord>;

    /// Ends a pause; without effect where it is not paused. Its sends are woken by [`Self::wake_paused`].
    async fn resume(&self, key: PauseKey) -> Result<()>;

    /// What is paused, by its key.
    async fn list_pauses(&self, query: ListPauses) -> Result<Page<PauseRecord>>;

    /// Notes that a send is about to be parked because of a pause. It is noted before it is parked, so that
    /// whoever ends the pause meanwhile finds it: a worker that dies between the two leaves a note of a
    /// send that runs again, and no send without a note.
    async fn await_resume(&self, item: PauseWait) -> Result<()>;

    /// Makes the alarms of parked sends due whose pause has ended, and forgets their notes; sends that are
    /// running, and those that others work on, are left for the next time. Forgets pauses that ended
    /// long ago. Returns how many notes went; call again while it equals the limit.
    async fn wake_paused(&self, limit: u32) -> Result<u32>;
}

/// The methods of [`Pauses`] as [`store_methods`](crate::store_methods) hands them over.
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

/// Something to pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPause {
    /// What.
    pub key: PauseKey,
    /// Why, for people.
    pub reason: Option<String>,
}

/// Which pauses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPauses {
    /// Those of one tenant; of all when absent.
    pub tenant: Option<TenantId>,
    /// The last of the page before; none for the first page.
    pub after: Option<PauseKey>,
    /// At most this many.
    pub limit: u32,
}

/// A send that waits for the end of a pause; a later note of the same send replaces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseWait {
    /// Whose send.
    pub tenant: TenantId,
    /// The send.
    pub send: SendId,
    /// What it waits for.
    pub pause: PauseKey,
}
