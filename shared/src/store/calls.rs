//! Parameters of tool calls, of results that come from outside, and of the inbox.

use super::Result;
use super::sweeps::ReadySession;
use crate::agent::OnBusy;
use crate::id::TenantId;
use crate::id::{BootId, SendId, SessionId, SessionKey};
use crate::inbox::{InboxItem, ItemKind};
use crate::message::ContentPart;
use crate::send::WaitingOn;
use crate::store::IdempotencyKey;
use crate::tool::CallRecord;
use crate::tool::{CallResult, Repeat};
use async_trait::async_trait;

/// Calls that wait for an answer from outside, and inboxes.
#[async_trait]
pub trait Calls: Send + Sync {
    /// Settles calls from outside, or permits them. The first answer counts. A waiting send becomes
    /// ready once none of its calls waits any more; a running one is told by a signal.
    async fn post_results(&self, items: Vec<PostResult>) -> Result<Vec<PostOutcome>>;

    /// Reports final sends that a parent waits for, oldest first, at most `limit`: the parent's
    /// call gets the child's answer as its result, or, when it was settled before, the parent's
    /// inbox gets an item. Each send is reported once. Only these sends, where some are named.
    async fn report_children(
        &self,
        sends: Option<Vec<(TenantId, SendId)>>,
        limit: u32,
    ) -> Result<Vec<ReportOutcome>>;

    /// The calls of a round, by their places.
    async fn read_round(
        &self,
        key: SessionKey,
        send: SendId,
        round: i32,
    ) -> Result<Vec<CallRecord>>;

    /// Calls by id; `None` where unknown.
    async fn get_calls(&self, ids: Vec<(TenantId, String)>) -> Result<Vec<Option<CallRecord>>>;

    /// A piece of a session's inbox, in order.
    async fn read_inbox(&self, query: ReadInbox) -> Result<Vec<InboxItem>>;
}

/// The methods of [`Calls`] as [`store_methods`](crate::store_methods) hands them over.
#[doc(hidden)]
#[macro_export]
macro_rules! calls_methods {
    ($apply:ident) => {
        $apply! { Calls:
            write post_results(
                items: Vec<$crate::store::PostResult>
            ) -> Vec<$crate::store::PostOutcome>;
            write report_children(
                sends: Option<Vec<($crate::id::TenantId, $crate::id::SendId)>>,
                limit: u32
            ) -> Vec<$crate::store::ReportOutcome>;
            read read_round(
                key: $crate::id::SessionKey,
                send: $crate::id::SendId,
                round: i32
            ) -> Vec<$crate::tool::CallRecord>;
            read get_calls(
                ids: Vec<($crate::id::TenantId, String)>
            ) -> Vec<Option<$crate::tool::CallRecord>>;
            read read_inbox(query: $crate::store::ReadInbox) -> Vec<$crate::inbox::InboxItem>;
        }
    };
}

/// A call's row, created with the message that asked for it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCall {
    /// Its id, unique in the tenant.
    pub call_id: String,
    /// The round within the send.
    pub round: i32,
    /// Its place in the round.
    pub place: i32,
    /// The tool's name.
    pub name: String,
    /// The arguments as the model gave them.
    pub arguments: serde_json::Value,
    /// What a repeat does.
    pub repeat: Repeat,
    /// How it begins.
    pub begins: CallBegin,
}

/// How a call's life begins.
#[derive(Debug, Clone, PartialEq)]
pub enum CallBegin {
    /// The worker starts it as soon as the row is stored: attempt 1 under the present grant.
    Started,
    /// The worker starts it later.
    Requested,
    /// It waits for someone outside.
    Waits {
        /// Whom.
        on: WaitingOn,
        /// Whether what is waited for is a person's permission to run it.
        approval: bool,
        /// How long, from the database's now.
        deadline: Option<std::time::Duration>,
    },
    /// It is settled with its request.
    Settled(CallResult),
}

/// A change of a call's row under a lease. A call that is settled stays as it is.
#[derive(Debug, Clone, PartialEq)]
pub struct CallChange {
    /// The call.
    pub call_id: String,
    /// What changes.
    pub change: CallStep,
}

/// What happens to a call.
#[derive(Debug, Clone, PartialEq)]
pub enum CallStep {
    /// The worker begins it (again) under the present grant.
    Started,
    /// It waits for someone outside from now on.
    Waits {
        /// Whom.
        on: WaitingOn,
        /// How long, from the database's now.
        deadline: Option<std::time::Duration>,
    },
    /// It has its result.
    Settled(CallResult),
}

/// An inbox item that a transaction delivers: the message at this index of its messages says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The item.
    pub item_id: String,
    /// The index of its message among those of the transaction.
    pub message: u32,
}

/// A result from outside.
#[derive(Debug, Clone, PartialEq)]
pub struct PostResult {
    /// The session in whose name it is posted: the one that asked, or an ancestor of it.
    pub key: SessionKey,
    /// The call.
    pub call_id: String,
    /// What is said.
    pub answer: CallAnswer,
}

/// What someone outside says to a call.
#[derive(Debug, Clone, PartialEq)]
pub enum CallAnswer {
    /// Its result. A call that waits for permission is refused this way.
    Result(CallResult),
    /// Permission to run it. Only for a call that waits for one.
    Approve,
}

/// What became of a result from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PostOutcome {
    /// It is the call's result, or permission.
    Accepted {
        /// The session that asked.
        key: SessionKey,
        /// The send that asked.
        send_id: SendId,
        /// Set when nothing else is waited for, so that someone has to enqueue it.
        enqueue: Option<ReadySession>,
        /// The boot that runs the send and should hear of it.
        owner: Option<BootId>,
    },
    /// Someone was first.
    AlreadySettled,
    /// The call waits for something else: for permission, or for nothing outside.
    NotWaiting,
    /// No such call of this session or below it.
    Unknown,
    /// Someone else has had the session locked for longer than its neighbours should wait. Nothing
    /// was written; ask again in a while.
    Locked,
}

/// Words for a session that may be busy.
#[derive(Debug, Clone, PartialEq)]
pub struct DeliverItem {
    /// The session.
    pub key: SessionKey,
    /// The item's id: a repeat with the same one changes nothing.
    pub item_id: String,
    /// Where it comes from.
    pub kind: ItemKind,
    /// How it is to reach the session: `coalesce`, `steer` or `interrupt`.
    pub mode: OnBusy,
    /// What it says.
    pub content: Vec<ContentPart>,
    /// What makes a repeat harmless.
    pub idempotency: Option<IdempotencyKey>,
    /// Undelivered items that a session may have.
    pub items_max: i64,
}

/// What became of words for a busy session.
#[derive(Debug, Clone, PartialEq)]
pub enum DeliverOutcome {
    /// They are durable.
    Accepted {
        /// The send that absorbs them.
        send_id: SendId,
        /// The item.
        item: Box<InboxItem>,
        /// Set when the send can go on with them at once, so that someone has to enqueue it.
        enqueue: Option<ReadySession>,
        /// The boot that runs the send and should hear of them.
        owner: Option<BootId>,
    },
    /// They are durable, and told to the session's next send: nothing is under way. Only what came of
    /// the session's own work is kept so.
    Kept(Box<InboxItem>),
    /// Nothing of the session is under way that could absorb them (for `coalesce`: nothing that is
    /// queued): they are to be accepted as a send.
    Idle,
    /// The key was used for the same request: this send absorbed it then.
    Replayed(SendId),
    /// The key was used for another request.
    Mismatch,
    /// The session has its bound of undelivered items.
    Full,
    /// No such session.
    NotFound,
    /// The session is closed.
    Closed,
    /// Someone else has had the session locked for longer than its neighbours should wait. Nothing
    /// was written; ask again in a while.
    Locked,
}

/// A question for one session's inbox, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadInbox {
    /// The session.
    pub key: SessionKey,
    /// Only items without a fate.
    pub pending: bool,
    /// Only items behind this place.
    pub after: i64,
    /// At most this many.
    pub limit: u32,
}

/// Who created a session as a child, and where it stands in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// The session that created it.
    pub session: SessionId,
    /// The call that created it.
    pub call_id: String,
    /// The session at the top of the tree.
    pub root: SessionId,
    /// Steps below the root, from 1.
    pub depth: i32,
}

/// The end of a child's send to report to its parent.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportOutcome {
    /// The child's send.
    pub send_id: SendId,
    /// The parent.
    pub parent: SessionKey,
    /// Set when the parent can go on.
    pub enqueue: Option<ReadySession>,
    /// The boot that runs the parent and should hear of it.
    pub owner: Option<BootId>,
}
