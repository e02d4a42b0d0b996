//! Parameters of tool calls, of results from outside, and of the inbox.

use super::sweeps::ReadySession;
use super::{Page, Result};
use crate::agent::OnBusy;
use crate::id::TenantId;
use crate::id::{BootId, SendId, SessionId, SessionKey};
use crate::inbox::{InboxItem, ItemKind};
use crate::message::ContentPart;
use crate::send::WaitingOn;
use crate::store::IdempotencyKey;
use crate::time::Timestamp;
use crate::tool::{Asked, CallRecord, CallResult, Claim, Repeat, Reply};
use async_trait::async_trait;
use std::time::Duration;
use uuid::Uuid;

/// Calls that wait for an outside answer, and inboxes.
#[async_trait]
pub trait Calls: Send + Sync {
    /// Settles or approves calls from outside. The first answer counts. A waiting send becomes
    /// ready once none of its calls waits; a running one is signalled.
    async fn post_results(&self, items: Vec<PostResult>) -> Result<Vec<PostOutcome>>;

    /// Reports final sends that a parent waits for, oldest first, at most `limit`.
    ///
    /// The parent's call gets the child's answer as its result, or, if it was settled before, the
    /// parent's inbox gets an item. Each send is reported once. If `sends` names some, only these
    /// are reported.
    async fn report_children(
        &self,
        sends: Option<Vec<(TenantId, SendId)>>,
        limit: u32,
    ) -> Result<Vec<ReportOutcome>>;

    /// The calls of a round, by place.
    async fn read_round(
        &self,
        key: SessionKey,
        send: SendId,
        round: i32,
    ) -> Result<Vec<CallRecord>>;

    /// Calls by id; `None` where unknown.
    async fn get_calls(&self, ids: Vec<(TenantId, String)>) -> Result<Vec<Option<CallRecord>>>;

    /// A page of a tenant's calls that wait for a person or a client, the longest waiting first.
    async fn list_waiting_calls(&self, query: ListWaitingCalls) -> Result<Page<CallRecord>>;

    /// Calls of external tools with these names that a claim would get, the longest waiting first.
    async fn claimable_calls(&self, query: ClaimableCalls) -> Result<Page<CallRecord>>;

    /// Calls with [`is_lapsed`](CallRecord::is_lapsed), the longest lapsed first, at most `limit`.
    async fn lapsed_calls(&self, limit: u32) -> Result<Vec<(SessionKey, String)>>;

    /// A page of a session's inbox, in order.
    async fn read_inbox(&self, query: ReadInbox) -> Result<Vec<InboxItem>>;
}

/// The methods of [`Calls`], as passed on by [`store_methods`](crate::store_methods).
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
            read list_waiting_calls(
                query: $crate::store::ListWaitingCalls
            ) -> $crate::store::Page<$crate::tool::CallRecord>;
            read claimable_calls(
                query: $crate::store::ClaimableCalls
            ) -> $crate::store::Page<$crate::tool::CallRecord>;
            read lapsed_calls(limit: u32) -> Vec<($crate::id::SessionKey, String)>;
            read read_inbox(query: $crate::store::ReadInbox) -> Vec<$crate::inbox::InboxItem>;
        }
    };
}

/// A call's row, created with the message that requested it.
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
    pub arguments: crate::message::Arguments,
    /// Its repeat policy.
    pub repeat: Repeat,
    /// Its initial state.
    pub begins: CallBegin,
}

/// The initial state of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum CallBegin {
    /// The worker starts it as soon as the row is stored: attempt 1 under the current grant.
    Started,
    /// The worker starts it later.
    Requested,
    /// It waits for something outside.
    Waits {
        /// What it waits for.
        on: WaitingOn,
        /// Whether it waits for a person's permission to run it.
        approval: bool,
        /// Maximum wait, from the database's current time.
        deadline: Option<Duration>,
    },
    /// It is settled together with its request.
    Settled(CallResult),
}

/// A change of a call's row under a lease. A settled call is left unchanged.
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
    /// The worker starts it (again) under the current grant.
    Started,
    /// It starts to wait for something outside.
    Waits {
        /// What it waits for.
        on: WaitingOn,
        /// Maximum wait, from the database's current time.
        deadline: Option<Duration>,
    },
    /// Its tool asks a person: it waits, and is started again after the answer. The last change of the call in its
    /// transaction.
    Asks {
        /// All that it has asked, the open question last.
        asked: Vec<Asked>,
        /// Maximum wait, from the database's current time.
        deadline: Option<Duration>,
    },
    /// It has its result.
    Settled(CallResult),
}

/// An inbox item that a transaction delivers in one of its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The item.
    pub item_id: String,
    /// The index of that message among the transaction's messages.
    pub message: u32,
}

/// A query for the calls of a tenant that wait for a person or a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListWaitingCalls {
    /// The owner.
    pub tenant: TenantId,
    /// Only those that wait for this; `Human` or `Tool`.
    pub on: Option<WaitingOn>,
    /// Only those behind this one, by when they were requested and their id.
    pub after: Option<(Timestamp, String)>,
    /// At most this many.
    pub limit: u32,
}

/// A query for calls that a claim would get: those that have its token, if there are any, and otherwise those that nobody
/// has. Until they are claimed, others find the latter, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimableCalls {
    /// The owner.
    pub tenant: TenantId,
    /// The names of the tools.
    pub names: Vec<String>,
    /// The token.
    pub token: Uuid,
    /// Only those that nobody has, behind this one, by when they were requested and their id.
    pub after: Option<(Timestamp, String)>,
    /// At most this many.
    pub limit: u32,
}

/// A result from outside.
#[derive(Debug, Clone, PartialEq)]
pub struct PostResult {
    /// The session for which it is posted: the one that made the call, or an ancestor of it.
    pub key: SessionKey,
    /// The call.
    pub call_id: String,
    /// The answer.
    pub answer: CallAnswer,
}

/// An outside answer to a call. It says which question it answers, since one call may ask two: an external
/// tool with an approval waits first for permission and then for its result.
#[derive(Debug, Clone, PartialEq)]
pub enum CallAnswer {
    /// Its result.
    Result(CallResult),
    /// Permission to run it.
    Approve,
    /// The answer to what its tool asks.
    Reply {
        /// Which of its questions, from 1.
        question: usize,
        /// The answer, which fits the question.
        reply: Reply,
    },
    /// Permission refused: the call is settled with this.
    Refuse(CallResult),
    /// Someone takes the call on.
    Claim {
        /// What it shows from now on.
        token: Uuid,
        /// For how long, from the database's current time.
        lease: Duration,
    },
    /// The holder of a claim needs more time.
    Renew {
        /// Its token.
        token: Uuid,
        /// For how long, from the database's current time.
        lease: Duration,
    },
    /// The holder of a claim has not made the call and will not.
    GiveBack {
        /// Its token.
        token: Uuid,
    },
    /// The result, from the holder of a claim.
    Report {
        /// Its token.
        token: Uuid,
        /// The result.
        result: CallResult,
    },
    /// Nobody reported, and nobody else may make the call: it is settled as unknown.
    Lapse,
}

impl CallAnswer {
    /// Whether it answers a request for permission.
    pub fn is_about_permission(&self) -> bool {
        match self {
            Self::Approve | Self::Refuse(_) => true,
            Self::Result(_)
            | Self::Reply { .. }
            | Self::Claim { .. }
            | Self::Renew { .. }
            | Self::GiveBack { .. }
            | Self::Report { .. }
            | Self::Lapse => false,
        }
    }

    /// What the call is settled with, if the answer counts.
    pub fn result(&self) -> Option<&CallResult> {
        match self {
            Self::Result(result) | Self::Refuse(result) | Self::Report { result, .. } => {
                Some(result)
            }
            Self::Approve
            | Self::Reply { .. }
            | Self::Claim { .. }
            | Self::Renew { .. }
            | Self::GiveBack { .. }
            | Self::Lapse => None,
        }
    }
}

/// The outcome of posting a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PostOutcome {
    /// It was taken as the call's result or permission.
    Accepted {
        /// The session that made the call.
        key: SessionKey,
        /// The send that made the call.
        send_id: SendId,
        /// Set if the send waits for nothing else: the caller must enqueue the session.
        enqueue: Option<ReadySession>,
        /// The boot that runs the send and should be notified.
        owner: Option<BootId>,
    },
    /// The call is the caller's.
    Claimed(Claim),
    /// Somebody else has the call, or had it last.
    ClaimLost,
    /// Another answer to the same question was first.
    AlreadySettled,
    /// The call waits for something else, or for nothing outside.
    NotWaiting,
    /// There is no such call in this session or below it.
    Unknown,
    /// Another transaction has held the session's lock for longer than the other items should wait.
    /// Nothing was written; try again later.
    Locked,
}

impl PostOutcome {
    /// What an answer about a call's claim led to; `call` is as it is after it.
    pub fn of_claim(key: SessionKey, call: &CallRecord) -> Self {
        match call.claim {
            Some(claim) => Self::Claimed(claim),
            None => Self::Accepted {
                key,
                send_id: call.send_id,
                enqueue: None,
                owner: None,
            },
        }
    }
}

/// A message or notification for a session that may be busy.
#[derive(Debug, Clone, PartialEq)]
pub struct DeliverItem {
    /// The session.
    pub key: SessionKey,
    /// The item's id: a repeat with the same one changes nothing.
    pub item_id: String,
    /// Where it comes from.
    pub kind: ItemKind,
    /// How to deliver it: `coalesce`, `steer` or `interrupt`.
    pub mode: OnBusy,
    /// Its content.
    pub content: Vec<ContentPart>,
    /// The request's idempotency key.
    pub idempotency: Option<IdempotencyKey>,
    /// Maximum number of undelivered items of a session.
    pub items_max: i64,
}

/// The outcome of delivering an item.
#[derive(Debug, Clone, PartialEq)]
pub enum DeliverOutcome {
    /// The item is durable.
    Accepted {
        /// The send that absorbs it.
        send_id: SendId,
        /// The item.
        item: Box<InboxItem>,
        /// Set if the send can continue with it at once: the caller must enqueue the session.
        enqueue: Option<ReadySession>,
        /// The boot that runs the send and should be notified.
        owner: Option<BootId>,
    },
    /// The item is durable and will be delivered to the session's next send, since no send is
    /// active. Only reports of the session's own work are kept this way.
    Kept(Box<InboxItem>),
    /// The session has no send that could absorb the item (for `coalesce`: no queued one): accept
    /// it as a send instead.
    Idle,
    /// The key was used for the same request: this send absorbed it then.
    Replayed(SendId),
    /// The key was used for another request.
    Mismatch,
    /// The session has the maximum number of undelivered items.
    Full,
    /// No such session.
    NotFound,
    /// The session is closed.
    Closed,
    /// Another transaction has held the session's lock for longer than the other items should wait.
    /// Nothing was written; try again later.
    Locked,
}

/// A query for a session's inbox, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadInbox {
    /// The session.
    pub key: SessionKey,
    /// Only pending items.
    pub pending: bool,
    /// Only items after this position.
    pub after: i64,
    /// At most this many.
    pub limit: u32,
}

/// The creator of a child session, and the child's place in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// The session that created it.
    pub session: SessionId,
    /// The call that created it.
    pub call_id: String,
    /// The session at the top of the tree.
    pub root: SessionId,
    /// Its depth below the root, from 1.
    pub depth: i32,
}

/// A child's final send that was reported to its parent.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportOutcome {
    /// The child's send.
    pub send_id: SendId,
    /// The parent.
    pub parent: SessionKey,
    /// Set if the parent can continue: the caller must enqueue it.
    pub enqueue: Option<ReadySession>,
    /// The boot that runs the parent and should be notified.
    pub owner: Option<BootId>,
}
