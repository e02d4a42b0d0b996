//! Parameters of creating, copying, changing and deleting sessions.

use super::{ListSessions, Page, Result, SessionUsage, UsageRow};
use async_trait::async_trait;
use serde_json::{Map, Value};

use super::calls::Parent;
use super::sends::IdempotencyKey;
use crate::agent::AgentSpec;
use crate::id::{BootId, SendId, SessionId, SessionKey};
use crate::list::List;
use crate::message::Message;
use crate::session::SessionRecord;
use crate::session::fold::{Fold, NewFold};
use crate::session::projection::Projection;
use crate::session::transition::NotFolded;
use crate::time::Timestamp;

/// Sessions as such: their creation, change and deletion.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// Creates sessions. With an idempotency key a repeat creates nothing.
    async fn create_sessions(
        &self,
        items: Vec<(NewSession, Option<IdempotencyKey>)>,
    ) -> Result<Vec<CreateOutcome>>;

    /// Creates a session with copied messages: numbered from 1 whatever their numbers were, of
    /// epoch 0, with their sends and times as they are. It has no sends, steps, calls or usage of
    /// its own, and nothing to do. With an idempotency key a repeat creates nothing.
    async fn import_session(&self, item: ImportSession) -> Result<CreateOutcome>;

    /// Changes a session's agent (as a new version), metadata or lifecycle. Fields of the patch
    /// that are `None` stay.
    async fn update_session(&self, key: SessionKey, patch: SessionPatch) -> Result<UpdateOutcome>;

    /// Ends every open send as cancelled under a grant of `boot`, cancels its timers, takes its
    /// lease away; its hot row stays as a tombstone, its sends until retention. It is gone for
    /// everyone: what it leaves behind, [`erase_step`](super::erase_step) removes page by page.
    async fn delete_session(&self, key: SessionKey, boot: BootId) -> Result<DeleteOutcome>;

    /// Deleted sessions that may have left something behind, in order, behind `after`.
    async fn deleted_sessions(
        &self,
        after: Option<DeletedSession>,
        limit: u32,
    ) -> Result<Vec<DeletedSession>>;

    /// Removes at most `limit` rows of each kind that a deleted session left behind. It is no longer
    /// due when none is left, nor a session below it, and it was deleted [`ERASED_MS_MIN`] ago.
    async fn erase_session(&self, key: SessionKey, limit: u32) -> Result<Erased>;

    /// Removes old messages with the rows of their calls. A call is never parted from its results; the
    /// last message and those of the open send stay, numbers as well. `context_version` goes up.
    async fn prune_session(&self, item: PruneSession) -> Result<PruneOutcome>;

    /// Stores what a fold cost that was written while nothing of its session was under way, and
    /// attaches it, unless a worker has the session or what is shown of it changed since it was begun.
    /// The cost is stored whoever has the session. A repeat is paid for once, and attaches nothing. Nothing is
    /// stored for a session that is deleted, or a send that is gone.
    async fn fold_at_rest(&self, item: FoldAtRest) -> Result<FoldedAtRest>;

    /// A session; `None` when unknown or deleted.
    async fn get_session(&self, key: SessionKey) -> Result<Option<SessionRecord>>;

    /// Sessions, newest first.
    async fn list_sessions(&self, query: ListSessions) -> Result<Page<SessionRecord>>;

    /// The sessions that this one created as its children, oldest first.
    async fn list_children(&self, key: SessionKey) -> Result<Vec<SessionKey>>;

    /// What a session's model calls cost, and those of the sessions below it, as far as their sends
    /// are kept; `None` when unknown or deleted.
    async fn session_usage(&self, key: SessionKey) -> Result<Option<SessionUsage>>;

    /// How many of the sessions that this one created as its children have sends that are not final.
    async fn open_children(&self, key: SessionKey) -> Result<u64>;
}

/// The methods of [`Sessions`] as [`store_methods`](crate::store_methods) hands them over.
#[doc(hidden)]
#[macro_export]
macro_rules! sessions_methods {
    ($apply:ident) => {
        $apply! { Sessions:
            write create_sessions(
                items: Vec<($crate::store::NewSession, Option<$crate::store::IdempotencyKey>)>
            ) -> Vec<$crate::store::CreateOutcome>;
            write import_session(
                item: $crate::store::ImportSession
            ) -> $crate::store::CreateOutcome;
            write prune_session(item: $crate::store::PruneSession) -> $crate::store::PruneOutcome;
            write fold_at_rest(item: $crate::store::FoldAtRest) -> $crate::store::FoldedAtRest;
            write update_session(
                key: $crate::id::SessionKey,
                patch: $crate::store::SessionPatch
            ) -> $crate::store::UpdateOutcome;
            write delete_session(
                key: $crate::id::SessionKey,
                boot: $crate::id::BootId
            ) -> $crate::store::DeleteOutcome;
            read deleted_sessions(
                after: Option<$crate::store::DeletedSession>,
                limit: u32
            ) -> Vec<$crate::store::DeletedSession>;
            write erase_session(key: $crate::id::SessionKey, limit: u32) -> $crate::store::Erased;
            read get_session(key: $crate::id::SessionKey) -> Option<$crate::session::SessionRecord>;
            read list_sessions(
                query: $crate::store::ListSessions
            ) -> $crate::store::Page<$crate::session::SessionRecord>;
            read list_children(key: $crate::id::SessionKey) -> Vec<$crate::id::SessionKey>;
            read session_usage(key: $crate::id::SessionKey) -> Option<$crate::store::SessionUsage>;
            read open_children(key: $crate::id::SessionKey) -> u64;
        }
    };
}

/// What became of a fold of a session at rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoldedAtRest {
    /// It is attached.
    Attached {
        /// The number of its step.
        step: i64,
    },
    /// Nothing was to be attached, or it never can be: the session is gone or changed.
    Dropped,
    /// A worker has the session; it may be attached later.
    Busy,
}

impl From<NotFolded> for FoldedAtRest {
    fn from(why: NotFolded) -> Self {
        match why {
            NotFolded::Busy => Self::Busy,
            NotFolded::Changed => Self::Dropped,
        }
    }
}

/// A fold of a session at rest.
#[derive(Debug, Clone, PartialEq)]
pub struct FoldAtRest {
    /// The session.
    pub key: SessionKey,
    /// Its newest send when the fold was begun, which pays.
    pub send_id: SendId,
    /// The process that writes.
    pub boot: BootId,
    /// The `context_version` when it was begun.
    pub context_version: i64,
    /// The fold; none where none could be written, and only its cost is to be stored.
    pub fold: Option<NewFold>,
    /// What it cost: rows of [`EXTRACT_ROUND`](super::EXTRACT_ROUND), as of all calls behind the end of a send. Those of
    /// a worker that lost its lease are the ones that it had for the send's steps: where a step has stored one, it is
    /// paid for, and otherwise it is stored as [`UsageRow::at_rest`] says.
    pub usage: Vec<UsageRow>,
}

/// A session to create.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSession {
    /// Its id, made by the caller, and its owner.
    pub key: SessionKey,
    /// Its agent, which becomes version 1.
    pub agent: AgentSpec,
    /// The creator's data.
    pub metadata: Map<String, Value>,
    /// Whose child it is.
    pub parent: Option<Parent>,
}

/// A session to create with a transcript that was written elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportSession {
    /// The session.
    pub session: NewSession,
    /// The transcript in its order. It is stored as [`copies`](crate::message::copies) makes it.
    pub messages: Vec<Message>,
    /// Its folds, as [`copies`](crate::session::fold::copies) makes them; only the last page's count.
    pub folds: Vec<Fold>,
    /// What its sends are shown as once they are old, with the numbers that its messages have; only the last
    /// page's count.
    pub projections: Vec<Projection>,
    /// What it has to do.
    pub todo: List,
    /// Its notes.
    pub notes: List,
    /// What makes a repeat harmless; only the last page's counts.
    pub idempotency: Option<IdempotencyKey>,
    /// The messages that earlier pages stored: a long transcript may come in several. No call's results
    /// are in another page than the call.
    pub behind: i64,
    /// Whether another page follows, within [`STAGED_MS`]. Nobody sees the session before the last one;
    /// what no other page follows is removed as what a deleted session left behind.
    pub more: bool,
}

/// How long a session whose messages come page by page waits for the next one, in milliseconds.
pub const STAGED_MS: i64 = 600_000;

/// What became of a session to create.
#[derive(Debug, Clone, PartialEq)]
pub enum CreateOutcome {
    /// It exists now.
    Created(Box<SessionRecord>),
    /// The key was used for the same request: this session was created then.
    Replayed(SessionId),
    /// The key was used for another request.
    Mismatch,
    /// A page of its messages is stored, and the next may come.
    Staged,
    /// Its earlier pages were removed, because this one came too late: nothing was stored.
    Gone,
}

/// Changes of a session; `None` leaves as is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SessionPatch {
    /// Replaces the agent with a new version.
    pub agent: Option<AgentSpec>,
    /// Replaces the metadata.
    pub metadata: Option<Map<String, Value>>,
    /// Closes or reopens the session.
    pub closed: Option<bool>,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq)]
pub enum UpdateOutcome {
    /// The session as it is now.
    Updated(Box<SessionRecord>),
    /// No such session.
    NotFound,
}

/// Which messages of a transcript to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PruneTo {
    /// Those with a lower `seq`.
    Before(i64),
    /// All but so many of the last ones.
    KeepLast(u32),
}

/// Old messages to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PruneSession {
    /// The session.
    pub key: SessionKey,
    /// Which ones.
    pub to: PruneTo,
    /// Only say what would be removed, in all.
    pub dry_run: bool,
    /// About how many messages to remove at once: more where a call has more results.
    pub limit: u32,
}

impl PruneTo {
    /// The `seq` of the first message that stays, before a call is kept with its results: the last
    /// message stays always, and so does what the open send has written, from `active_from` on.
    pub fn first_kept(self, first_seq: i64, next_seq: i64, active_from: Option<i64>) -> i64 {
        let wanted = match self {
            Self::Before(seq) => seq,
            Self::KeepLast(count) => next_seq - i64::from(count),
        };
        let most = active_from.unwrap_or(i64::MAX).min(next_seq - 1);
        wanted.min(most).max(first_seq)
    }
}

/// What became of a pruning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PruneOutcome {
    /// So it is now, or would be.
    Pruned {
        /// Messages that went.
        removed: i64,
        /// The `seq` of the first one that is left.
        first_seq: i64,
        /// What that will be when nothing is left to remove: another page goes on before it.
        until: i64,
    },
    /// No such session.
    NotFound,
}

/// What became of a delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// It is gone.
    Deleted {
        /// The sends that ended with it.
        cancelled: Vec<SendId>,
        /// The boot that ran it and should hear of it.
        owner: Option<BootId>,
        /// The number of its last step.
        last_step: i64,
    },
    /// It has more open sends than one transaction should end, [`ERASED_AT_ONCE`]: the last ones have
    /// ended, and it is closed. It is among the deleted sessions from now on: whoever asked asks again,
    /// or the sweep does.
    Ending {
        /// The sends that have ended.
        cancelled: Vec<SendId>,
        /// The number of its last step.
        last_step: i64,
    },
    /// No such session.
    NotFound,
}

/// Rows of each kind that one transaction removes of a deleted session, open sends that one ends of a
/// session to delete, and messages that one removes of a pruned one. With rows of some kilobytes this is a matter of milliseconds, also
/// where everybody else's writes wait for it.
pub const ERASED_AT_ONCE: u32 = 500;

/// Of so many rows to remove at once, one is looked for in another send each: a send has a few calls.
pub const CALLS_EACH: usize = 8;

/// How long a deleted session is looked at again, in milliseconds. Who created a session below it
/// in a transaction that had begun before is done by then: none takes longer than some seconds.
pub const ERASED_MS_MIN: i64 = 60_000;

/// A session that was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeletedSession {
    /// Since when something is to be done about it.
    pub due_at: Timestamp,
    /// The session.
    pub key: SessionKey,
}

/// What a page of the removal of a session did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Erased {
    /// Rows that went.
    pub rows: u64,
    /// Whether others are left.
    pub more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_is_bounded_by_the_last_message_and_the_open_send() {
        for (to, active, expected) in [
            (PruneTo::Before(5), None, 5),
            (PruneTo::Before(1), None, 3),
            (PruneTo::Before(99), None, 9),
            (PruneTo::Before(8), Some(6), 6),
            (PruneTo::KeepLast(4), None, 6),
            (PruneTo::KeepLast(0), None, 9),
            (PruneTo::KeepLast(u32::MAX), None, 3),
            (PruneTo::KeepLast(1), Some(4), 4),
        ] {
            assert_eq!(to.first_kept(3, 10, active), expected, "{to:?} {active:?}");
        }
        // Nothing was said yet.
        assert_eq!(PruneTo::KeepLast(0).first_kept(1, 1, None), 1);
    }
}
