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

/// Sessions: creation, changes and deletion.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// Creates sessions. With an idempotency key a repeat creates nothing.
    async fn create_sessions(
        &self,
        items: Vec<(NewSession, Option<IdempotencyKey>)>,
    ) -> Result<Vec<CreateOutcome>>;

    /// Creates a session with copied messages, which are renumbered from 1 and keep their sends and
    /// times, with epoch 0. The session is idle and has no sends, steps, calls or usage of its own.
    /// With an idempotency key a repeat creates nothing.
    async fn import_session(&self, item: ImportSession) -> Result<CreateOutcome>;

    /// Adds copied messages behind the transcript of a session, of which nothing may run, wait or be queued. They keep
    /// their sends and times, with epoch 0, and have no steps, calls or usage. Increments `context_version`.
    ///
    /// A repeat, recognised by the first message's send, adds nothing.
    async fn append_copies(&self, item: AppendCopies) -> Result<CopiesOutcome>;

    /// Changes a session's agent (as a new version), metadata or lifecycle. Fields of the patch
    /// that are `None` are unchanged.
    async fn update_session(&self, key: SessionKey, patch: SessionPatch) -> Result<UpdateOutcome>;

    /// Deletes a session: ends every open send as cancelled under a grant of `boot`, cancels its
    /// timers and takes its lease away.
    ///
    /// Its hot row stays as a tombstone, its sends until retention. It is invisible from then on;
    /// [`erase_step`](super::erase_step) removes what it leaves behind page by page.
    async fn delete_session(&self, key: SessionKey, boot: BootId) -> Result<DeleteOutcome>;

    /// Deleted sessions that may still have rows to remove, in order, after `after`.
    async fn deleted_sessions(
        &self,
        after: Option<DeletedSession>,
        limit: u32,
    ) -> Result<Vec<DeletedSession>>;

    /// Removes at most `limit` rows of each kind that a deleted session left behind. The session is
    /// done when no rows and no sessions below it are left, and it was deleted at least
    /// [`ERASED_MS_MIN`] ago.
    async fn erase_session(&self, key: SessionKey, limit: u32) -> Result<Erased>;

    /// Removes old messages with the rows of their calls. A call is never separated from its
    /// results; the last message and those of the open send are kept, and numbers do not change.
    /// Increments `context_version`.
    async fn prune_session(&self, item: PruneSession) -> Result<PruneOutcome>;

    /// Stores the cost of a fold that was written while its session was idle, and attaches the
    /// fold, unless a worker holds the session or its context has changed since.
    ///
    /// The cost is stored even if a worker holds the session. A repeat is counted once and attaches
    /// nothing. Nothing is stored if the session was deleted or the send is gone.
    async fn fold_at_rest(&self, item: FoldAtRest) -> Result<FoldedAtRest>;

    /// Reads a session; `None` if unknown or deleted.
    async fn get_session(&self, key: SessionKey) -> Result<Option<SessionRecord>>;

    /// Sessions, newest first.
    async fn list_sessions(&self, query: ListSessions) -> Result<Page<SessionRecord>>;

    /// The children of this session, oldest first.
    async fn list_children(&self, key: SessionKey) -> Result<Vec<SessionKey>>;

    /// The usage of a session and of the sessions below it, as far as their sends are kept; `None`
    /// if unknown or deleted.
    async fn session_usage(&self, key: SessionKey) -> Result<Option<SessionUsage>>;

    /// How many of this session's children have a send that is queued, runs or waits.
    async fn open_children(&self, key: SessionKey) -> Result<u64>;
}

/// The methods of [`Sessions`], as passed on by [`store_methods`](crate::store_methods).
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
            write append_copies(item: $crate::store::AppendCopies) -> $crate::store::CopiesOutcome;
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

/// The outcome of attaching a fold to an idle session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoldedAtRest {
    /// It was attached.
    Attached {
        /// The number of its step.
        step: i64,
    },
    /// There was nothing to attach, or it can never be attached: the session is gone or has changed.
    Dropped,
    /// A worker holds the session; the fold may be attached later.
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

/// A fold of an idle session.
#[derive(Debug, Clone, PartialEq)]
pub struct FoldAtRest {
    /// The session.
    pub key: SessionKey,
    /// The session's newest send when the fold was started, which pays for it.
    pub send_id: SendId,
    /// The writing process.
    pub boot: BootId,
    /// The `context_version` when the fold was started.
    pub context_version: i64,
    /// The fold; `None` if none could be written and only the cost is to be stored.
    pub fold: Option<NewFold>,
    /// Its cost: rows with [`EXTRACT_ROUND`](super::EXTRACT_ROUND), like all calls after the end of
    /// a send. A worker that lost its lease passes the rows it had for the send's steps: one that a
    /// step has already stored is not stored again; any other is stored as [`UsageRow::at_rest`]
    /// gives it.
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
    /// Its parent, if it is a child.
    pub parent: Option<Parent>,
}

/// A session to create with a transcript that was written elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportSession {
    /// The session.
    pub session: NewSession,
    /// The transcript, in order; stored as converted by [`copies`](crate::message::copies).
    pub messages: Vec<Message>,
    /// Its folds, as converted by [`copies`](crate::session::fold::copies); only the last page's
    /// are used.
    pub folds: Vec<Fold>,
    /// Its projections, with the message numbers of the new session; only the last page's are used.
    pub projections: Vec<Projection>,
    /// Its to-do list.
    pub todo: List,
    /// Its notes.
    pub notes: List,
    /// The request's idempotency key; only the last page's is used.
    pub idempotency: Option<IdempotencyKey>,
    /// Number of messages that earlier pages stored, since a long transcript may come in several
    /// pages. A call and its results must be in the same page.
    pub behind: i64,
    /// Whether another page follows, within [`STAGED_MS`]. The session is invisible until the last
    /// page is stored; if no further page comes, its rows are removed like those of a deleted session.
    pub more: bool,
}

/// Messages to add behind a session's transcript.
#[derive(Debug, Clone, PartialEq)]
pub struct AppendCopies {
    /// The session.
    pub key: SessionKey,
    /// The messages, in order, at least one; stored as converted by [`copies`](crate::message::copies).
    pub messages: Vec<Message>,
}

impl AppendCopies {
    /// How many of the last messages are searched for those of an earlier request.
    pub const SEARCHED: i64 = 256;
}

/// The outcome of adding messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopiesOutcome {
    /// They are there, from this number on.
    Appended {
        /// The `seq` of the first one.
        first_seq: i64,
    },
    /// No such session.
    NotFound,
    /// The session is closed.
    Closed,
    /// A send of the session is not final.
    Busy,
}

/// How long an import in pages waits for the next page, in milliseconds.
pub const STAGED_MS: i64 = 600_000;

/// The outcome of creating a session.
#[derive(Debug, Clone, PartialEq)]
pub enum CreateOutcome {
    /// It was created.
    Created(Box<SessionRecord>),
    /// The key was used for the same request: this session was created then.
    Replayed(SessionId),
    /// The key was used for another request.
    Mismatch,
    /// A page of its messages is stored; the next one may follow.
    Staged,
    /// This page came too late and the earlier ones were removed: nothing was stored.
    Gone,
}

/// Changes of a session; fields that are `None` are unchanged.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SessionPatch {
    /// Replaces the agent with a new version.
    pub agent: Option<AgentSpec>,
    /// Replaces the metadata.
    pub metadata: Option<Map<String, Value>>,
    /// Closes or reopens the session.
    pub closed: Option<bool>,
}

/// The outcome of a change.
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
    /// All but this many of the last ones.
    KeepLast(u32),
}

/// Old messages to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PruneSession {
    /// The session.
    pub key: SessionKey,
    /// Which ones.
    pub to: PruneTo,
    /// Only report what would be removed in total.
    pub dry_run: bool,
    /// About how many messages to remove at once; more if needed to keep a call with its results.
    pub limit: u32,
}

impl PruneTo {
    /// The `seq` of the first message to keep, before it is adjusted to keep a call with its
    /// results. The last message is always kept, and so is what the open send has written, from
    /// `active_from` on.
    pub fn first_kept(self, first_seq: i64, next_seq: i64, active_from: Option<i64>) -> i64 {
        let wanted = match self {
            Self::Before(seq) => seq,
            Self::KeepLast(count) => next_seq - i64::from(count),
        };
        let most = active_from.unwrap_or(i64::MAX).min(next_seq - 1);
        wanted.min(most).max(first_seq)
    }
}

/// The outcome of a prune.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PruneOutcome {
    /// It was pruned, or would be.
    Pruned {
        /// Number of messages removed.
        removed: i64,
        /// The `seq` of the first message that is left.
        first_seq: i64,
        /// What `first_seq` will be when everything is removed; if it is higher, another page is needed.
        until: i64,
    },
    /// No such session.
    NotFound,
}

/// The outcome of a delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// It was deleted.
    Deleted {
        /// The sends that ended with it.
        cancelled: Vec<SendId>,
        /// The boot that ran it and should be notified.
        owner: Option<BootId>,
        /// The number of its last step.
        last_step: i64,
    },
    /// It has more open sends than one transaction should end ([`ERASED_AT_ONCE`]): the last ones
    /// have ended, and it is closed. It counts as deleted from now on; the caller, or else the
    /// sweep, must call again.
    Ending {
        /// The sends that have ended.
        cancelled: Vec<SendId>,
        /// The number of its last step.
        last_step: i64,
    },
    /// No such session.
    NotFound,
}

/// Batch size of one transaction: rows of each kind removed of a deleted session, open sends ended
/// of a session being deleted, messages removed of a pruned one.
///
/// With rows of a few kilobytes this takes milliseconds, even in databases where all other writes
/// wait for it.
pub const ERASED_AT_ONCE: u32 = 500;

/// The batch size divided by this is the number of sends whose calls one transaction removes: a
/// send has a few calls.
pub const CALLS_EACH: usize = 8;

/// How long a deleted session is checked again, in milliseconds. A transaction that had already
/// begun to create a session below it has ended by then: none takes longer than some seconds.
pub const ERASED_MS_MIN: i64 = 60_000;

/// A session that was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeletedSession {
    /// When it is due for removal.
    pub due_at: Timestamp,
    /// The session.
    pub key: SessionKey,
}

/// The result of removing a page of a deleted session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Erased {
    /// Number of rows removed.
    pub rows: u64,
    /// Whether any are left.
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
        // There are no messages yet.
        assert_eq!(PruneTo::KeepLast(0).first_kept(1, 1, None), 1);
    }
}
