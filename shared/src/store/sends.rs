//! Parameters of accepting and cancelling sends.

use super::sweeps::ReadySession;
use super::{Counters, NewSession};
use super::{DeliverItem, DeliverOutcome, ListSends, Page, Result, RetireSends, Retired};
use crate::agent::SendOptions;
use crate::budget::Spent;
use crate::id::{BootId, SendId, SessionKey, TenantId};
use crate::message::{ContentPart, json_weight};
use crate::send::SendRecord;
use crate::time::Timestamp;
use crate::workflow::run::RunLeaf;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// Sends from outside: accepting, cancelling, talking to a busy session.
#[async_trait]
pub trait Sends: Send + Sync {
    /// Accepts sends: each gets its row, its place (unless delayed), its step and, where asked,
    /// its idempotency key; its session becomes ready. `boot` is the accepting process. Sends of
    /// one call to one session keep their order.
    async fn accept_sends(
        &self,
        boot: BootId,
        items: Vec<AcceptSend>,
    ) -> Result<Vec<AcceptOutcome>>;

    /// Takes an idempotency key for a request that makes many things, each with a key of its own,
    /// before any of them is made: from now on no other request under this key makes anything.
    async fn take_key(&self, key: IdempotencyKey) -> Result<KeyOutcome>;

    /// Whether an idempotency key is taken, by whatever request.
    async fn has_key(&self, key: IdempotencyKey) -> Result<bool>;

    /// Asks sends to end. A queued one ends here; a waiting one ends here under a grant of `boot`;
    /// a running one gets a durable signal that its worker obeys. One whose worker's lease has run out
    /// ends here, too, and that boot is declared dead.
    async fn cancel_sends(
        &self,
        boot: BootId,
        items: Vec<(TenantId, SendId)>,
    ) -> Result<Vec<CancelOutcome>>;

    /// Brings words to busy sessions: they join a queued send's input (`coalesce`) or lie in the
    /// inbox until the next boundary of the send that is under way. A send that waits for a retry
    /// or a timer goes on at once; `interrupt` settles the open calls of a waiting send as
    /// interrupted, so that it goes on too. `boot` is the accepting process.
    async fn deliver_items(
        &self,
        boot: BootId,
        items: Vec<DeliverItem>,
    ) -> Result<Vec<DeliverOutcome>>;

    /// Lets a send that waits for `recovery` go on. False when no send of the session does.
    async fn resume_recovery(&self, boot: BootId, key: SessionKey) -> Result<Option<SendId>>;

    /// Looks at a page of sends and deletes those that ended before `keep`, with their steps, calls
    /// and usage. Their messages stay. So do sends whose end somebody has still to be told. Those of
    /// runs stay and go with the run.
    async fn retire_sends(&self, query: RetireSends) -> Result<Retired>;

    /// Sends by id; `None` where unknown.
    async fn get_sends(&self, ids: Vec<(TenantId, SendId)>) -> Result<Vec<Option<SendRecord>>>;

    /// Sends, newest first.
    async fn list_sends(&self, query: ListSends) -> Result<Page<SendRecord>>;
}

/// The methods of [`Sends`] as [`store_methods`](crate::store_methods) hands them over.
#[doc(hidden)]
#[macro_export]
macro_rules! sends_methods {
    ($apply:ident) => {
        $apply! { Sends:
            write accept_sends(
                boot: $crate::id::BootId,
                items: Vec<$crate::store::AcceptSend>
            ) -> Vec<$crate::store::AcceptOutcome>;
            write take_key(key: $crate::store::IdempotencyKey) -> $crate::store::KeyOutcome;
            read has_key(key: $crate::store::IdempotencyKey) -> bool;
            write cancel_sends(
                boot: $crate::id::BootId,
                items: Vec<($crate::id::TenantId, $crate::id::SendId)>
            ) -> Vec<$crate::store::CancelOutcome>;
            write deliver_items(
                boot: $crate::id::BootId,
                items: Vec<$crate::store::DeliverItem>
            ) -> Vec<$crate::store::DeliverOutcome>;
            write resume_recovery(
                boot: $crate::id::BootId,
                key: $crate::id::SessionKey
            ) -> Option<$crate::id::SendId>;
            write retire_sends(query: $crate::store::RetireSends) -> $crate::store::Retired;
            read get_sends(
                ids: Vec<($crate::id::TenantId, $crate::id::SendId)>
            ) -> Vec<Option<$crate::send::SendRecord>>;
            read list_sends(
                query: $crate::store::ListSends
            ) -> $crate::store::Page<$crate::send::SendRecord>;
        }
    };
}

/// Where a send goes.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// To a session that should exist.
    Existing(SessionKey),
    /// To a session created with it.
    New(Box<NewSession>),
}

impl Target {
    /// The session's key.
    pub fn key(&self) -> SessionKey {
        match self {
            Self::Existing(key) => *key,
            Self::New(session) => session.key,
        }
    }
}

/// What makes a repeated request harmless.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdempotencyKey {
    /// The owner.
    pub tenant: TenantId,
    /// What the request does, such as `POST /v1/sends`; for a route with a session in its path,
    /// that session's id too.
    pub route: String,
    /// The caller's key.
    pub key: String,
    /// SHA-256 of the body's canonical JSON.
    pub body_hash: [u8; 32],
}

/// What a key says of a request that makes many things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOutcome {
    /// It was free, and is this request's from now on.
    Taken,
    /// This request took it before.
    Known,
    /// Another request took it.
    Mismatch,
}

/// A send to accept. Deadline, delay and priority are in `options`.
#[derive(Debug, Clone, PartialEq)]
pub struct AcceptSend {
    /// Its id, made by the caller.
    pub id: SendId,
    /// Where it goes.
    pub target: Target,
    /// The user's words.
    pub input: Vec<ContentPart>,
    /// The sender's decisions.
    pub options: SendOptions,
    /// The parent's call that its end settles.
    pub reports_to: Option<String>,
    /// The leaf of a run that it is.
    pub run: Option<RunLeaf>,
    /// What makes a repeat harmless.
    pub idempotency: Option<IdempotencyKey>,
    /// Sends of one session that may wait at once; the same for all sends of a call.
    pub queued_max: i64,
    /// The worker's boot that may be granted the session with it. A wish: see [`Accepted::granted`].
    pub keeper: Option<BootId>,
}

impl AcceptSend {
    /// The session that has to be there for the one that is created with it: its parent. A run's leaves
    /// are not held to that, as their run is asked to end with its session.
    pub fn parent(&self) -> Option<SessionKey> {
        match &self.target {
            Target::New(new) if self.run.is_none() => {
                let parent = new.parent.as_ref();
                parent.map(|parent| SessionKey {
                    tenant: new.key.tenant,
                    session: parent.session,
                })
            }
            Target::New(_) | Target::Existing(_) => None,
        }
    }

    /// About how many bytes its rows take.
    pub fn weight(&self) -> usize {
        let input: usize = self.input.iter().map(ContentPart::weight).sum();
        let new = match &self.target {
            Target::New(new) => {
                let prompt = new.agent.system_prompt.as_deref().map_or(0, str::len);
                prompt
                    + new
                        .metadata
                        .iter()
                        .map(|(name, value)| name.len() + json_weight(value))
                        .sum::<usize>()
            }
            Target::Existing(_) => 0,
        };
        input + new
    }
}

/// What became of a send to accept.
#[derive(Debug, Clone, PartialEq)]
pub enum AcceptOutcome {
    /// It is durable.
    Accepted(Accepted),
    /// The key was used for the same request: this send was accepted then.
    Replayed(SendId),
    /// The key was used for another request.
    Mismatch,
    /// Nothing was stored.
    Refused(RefuseReason),
    /// Someone else has had the session locked for longer than its neighbours should wait. Nothing
    /// was written; ask again in a while.
    Locked,
}

/// What a durable send got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Its place in the session; none while it is delayed.
    pub position: Option<i64>,
    /// The number of its step.
    pub step: i64,
    /// When, by the database's clock.
    pub created_at: Timestamp,
    /// Set when its session went from idle to ready and nobody was granted it, so that someone has to enqueue it.
    pub enqueue: Option<ReadySession>,
    /// Set when its session was at rest and is granted to the send's [keeper](AcceptSend::keeper), as if that had
    /// claimed it right behind the accept: the send runs, and its id is the grant's token. Somebody has to tell
    /// the keeper; it gives back what it owns and was not told of. None where the keeper's
    /// lease is over, it serves another pool, or the tenant has a limit of sends in flight, and for a session that
    /// is created with the send.
    pub granted: Option<Box<GrantedSend>>,
}

/// What the keeper of a session has to know of its grant besides the send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedSend {
    /// The session, to be enqueued where the keeper cannot be told and the grant was given back.
    pub ready: ReadySession,
    /// The number of the grant.
    pub epoch: i64,
    /// The hot row's numbers.
    pub counters: Counters,
    /// What the session has spent, where its agent has a budget.
    pub spent: Option<Spent>,
    /// The version of the session's agent that the send is pinned to.
    pub agent_version: i32,
}

/// Why a send was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefuseReason {
    /// No such session, or no such parent of the one that was to be created.
    SessionNotFound,
    /// The session is closed.
    SessionClosed,
    /// `on_busy: reject`, and a send of the session is not final.
    Busy,
    /// The session has its bound of queued sends.
    QueueFull,
}

/// What became of a cancel.
#[derive(Debug, Clone, PartialEq)]
pub enum CancelOutcome {
    /// It ended here.
    Cancelled {
        /// The final send.
        send: Box<SendRecord>,
        /// The number of its final step.
        step: i64,
        /// Set when its end made the session ready for its next send.
        enqueue: Option<ReadySession>,
    },
    /// It runs; its worker is to be told.
    Signalled {
        /// The send as it is.
        send: Box<SendRecord>,
        /// The boot that runs it.
        owner: BootId,
    },
    /// It was final before.
    AlreadyFinal(Box<SendRecord>),
    /// No such send.
    NotFound,
    /// Someone else has had the session locked for longer than its neighbours should wait. Nothing
    /// was written; ask again in a while.
    Locked,
}
