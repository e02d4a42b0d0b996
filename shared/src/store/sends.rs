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
use uuid::Uuid;

/// Sends from outside: accepting, cancelling, delivering to a busy session.
#[async_trait]
pub trait Sends: Send + Sync {
    /// Accepts sends: each gets its row, its position (unless delayed), its step and, if given, its
    /// idempotency key, and its session becomes ready. `boot` is the accepting process. Sends of
    /// one call to the same session keep their order.
    async fn accept_sends(
        &self,
        boot: BootId,
        items: Vec<AcceptSend>,
    ) -> Result<Vec<AcceptOutcome>>;

    /// Takes an idempotency key for a request that creates several resources, each with a key of
    /// its own, before any of them is created. From then on no other request can create anything
    /// under this key.
    async fn take_key(&self, key: IdempotencyKey) -> Result<KeyOutcome>;

    /// The resource that an idempotency key was taken for, by any request; for the name of a session, that session.
    async fn keyed_resource(&self, key: IdempotencyKey) -> Result<Option<Uuid>>;

    /// Cancels sends. A queued one ends here; a waiting one ends here under a grant of `boot`; a
    /// running one gets a durable signal for its worker. If the lease of a running send's worker
    /// has expired, the send ends here, too, and that boot is declared dead.
    async fn cancel_sends(
        &self,
        boot: BootId,
        items: Vec<(TenantId, SendId)>,
    ) -> Result<Vec<CancelOutcome>>;

    /// Delivers messages to busy sessions: they are merged into a queued send's input (`coalesce`)
    /// or wait in the inbox until the next boundary of the active send. A send that waits for a
    /// retry or a timer continues at once; `interrupt` settles the open calls of a waiting send as
    /// interrupted, so that it continues, too. `boot` is the accepting process.
    async fn deliver_items(
        &self,
        boot: BootId,
        items: Vec<DeliverItem>,
    ) -> Result<Vec<DeliverOutcome>>;

    /// Resumes the send of a session that waits for `recovery`; returns it, or `None` if there is none.
    async fn resume_recovery(&self, boot: BootId, key: SessionKey) -> Result<Option<SendId>>;

    /// Goes through a page of sends and deletes those that ended longer ago than `keep`, with their
    /// steps, calls and usage. Their messages stay, and so do sends whose end must still be
    /// reported. Sends of runs are deleted with the run.
    async fn retire_sends(&self, query: RetireSends) -> Result<Retired>;

    /// Sends by id; `None` where unknown.
    async fn get_sends(&self, ids: Vec<(TenantId, SendId)>) -> Result<Vec<Option<SendRecord>>>;

    /// Sends, newest first.
    async fn list_sends(&self, query: ListSends) -> Result<Page<SendRecord>>;
}

/// The methods of [`Sends`], as passed on by [`store_methods`](crate::store_methods).
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
            read keyed_resource(key: $crate::store::IdempotencyKey) -> Option<uuid::Uuid>;
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
    /// To an existing session.
    Existing(SessionKey),
    /// To a new session, created with the send.
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

/// Makes repeats of a request harmless.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdempotencyKey {
    /// The owner.
    pub tenant: TenantId,
    /// The request's route, such as `POST /v1/sends`; if its path names a session, that session's
    /// id, too.
    pub route: String,
    /// The caller's key.
    pub key: String,
    /// SHA-256 of the body's canonical JSON.
    pub body_hash: [u8; 32],
}

impl IdempotencyKey {
    /// The route of names of sessions.
    const NAMES: &'static str = "session";

    /// The name that a caller gives to a session, of which the tenant has one with this name: a request that creates it
    /// gets the one that exists, whatever else it says. Unlike other keys it is kept as long as the session, and only
    /// [`create_sessions`](super::Sessions::create_sessions) takes it.
    pub fn session(tenant: TenantId, name: String) -> Self {
        Self {
            tenant,
            route: Self::NAMES.to_owned(),
            key: name,
            body_hash: [0; 32],
        }
    }

    /// Whether it is the name of a session.
    pub fn names_session(&self) -> bool {
        self.route == Self::NAMES
    }
}

/// The outcome of taking a key for a request that creates several resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOutcome {
    /// It was free; now it belongs to this request.
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
    /// The input.
    pub input: Vec<ContentPart>,
    /// The sender's options.
    pub options: SendOptions,
    /// The parent's call that is settled when it ends.
    pub reports_to: Option<String>,
    /// The run leaf that it belongs to, if any.
    pub run: Option<RunLeaf>,
    /// The request's idempotency key.
    pub idempotency: Option<IdempotencyKey>,
    /// Maximum number of queued sends of a session; the same for all sends of a call.
    pub queued_max: i64,
    /// The worker's boot to which the session should be granted with the accept, if possible: see
    /// [`Accepted::granted`].
    pub keeper: Option<BootId>,
}

impl AcceptSend {
    /// The parent of the session that is created with the send, which must exist. Not for leaves of
    /// a run: when the parent session is deleted, the run is asked to end.
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

    /// Approximate size of its rows in bytes.
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

/// The outcome of accepting a send.
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
    /// Another transaction has held the session's lock for longer than the other items should wait.
    /// Nothing was written; try again later.
    Locked,
}

/// An accepted send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Its position in the session; `None` while it is delayed.
    pub position: Option<i64>,
    /// The number of its step.
    pub step: i64,
    /// When, by the database's clock.
    pub created_at: Timestamp,
    /// Set if its session became ready and was not granted to anyone: the caller must enqueue it.
    pub enqueue: Option<ReadySession>,
    /// Set if its session was idle and was granted to the send's [keeper](AcceptSend::keeper), as
    /// if the keeper had claimed it right after the accept.
    ///
    /// The send is then running, and its id is the grant's token. The caller must notify the
    /// keeper, which releases sessions that it owns but was not told of. `None` if the keeper's
    /// lease has expired, it serves another pool, or the tenant has a limit of sends in flight, and
    /// for a session that is created with the send.
    pub granted: Option<Box<GrantedSend>>,
}

/// What the keeper of a session must know about its grant, besides the send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedSend {
    /// The session, to be enqueued if the keeper cannot be notified and the grant was released.
    pub ready: ReadySession,
    /// The number of the grant.
    pub epoch: i64,
    /// The hot row's counters.
    pub counters: Counters,
    /// What the session has spent, if its agent has a budget.
    pub spent: Option<Spent>,
    /// The version of the session's agent that the send is pinned to.
    pub agent_version: i32,
}

/// Why a send was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefuseReason {
    /// There is no such session, or no such parent of the session to create.
    SessionNotFound,
    /// The session is closed.
    SessionClosed,
    /// `on_busy: reject`, and a send of the session is not final.
    Busy,
    /// The session has the maximum number of queued sends.
    QueueFull,
}

/// The outcome of a cancel.
#[derive(Debug, Clone, PartialEq)]
pub enum CancelOutcome {
    /// It ended here.
    Cancelled {
        /// The final send.
        send: Box<SendRecord>,
        /// The number of its final step.
        step: i64,
        /// Set if its end made the session ready for its next send: the caller must enqueue it.
        enqueue: Option<ReadySession>,
    },
    /// It is running; its worker must be notified.
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
    /// Another transaction has held the session's lock for longer than the other items should wait.
    /// Nothing was written; try again later.
    Locked,
}
