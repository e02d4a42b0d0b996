//! Outside events that reach a session while a send is active: inbox items, results of calls and
//! the ends of children.

use super::{Change, Grant, wake};
use crate::agent::OnBusy;
use crate::id::{BootId, SendId};
use crate::inbox::ItemKind;
use crate::send::{SendStatus, WaitingOn};
use crate::session::fold::FoldRef;
use crate::session::hot::{HotRow, SendState};
use crate::session::{SIGNAL_INBOX, SIGNAL_INTERRUPT, SIGNAL_RESULT};
use crate::step::{StepKind, StepRefs};
use crate::store::CallAnswer;
use crate::time::Timestamp;
use crate::tool::{Approval, CallRecord, CallResult, Claim, unknown_outcome};

/// What a delivery needs to know about the session besides its hot row.
#[derive(Debug, Clone, Copy)]
pub struct DeliveryFacts<'f> {
    /// The head. Ignored for `coalesce`.
    pub head: Option<&'f SendState>,
    /// The queued send with the highest position. Used only for `coalesce`.
    pub last_queued: Option<SendId>,
    /// Number of undelivered items.
    pub pending_items: i64,
}

/// The effect of a delivery.
#[derive(Debug, Clone, PartialEq)]
pub enum Delivery {
    /// The session has the maximum number of pending items.
    Full,
    /// No send can absorb the item: accept it as a send instead.
    Idle,
    /// The content is merged into the input of a queued send, which delivers the item.
    Joined {
        /// What is stored.
        change: Change,
        /// The item's position.
        n: i64,
        /// The send.
        send: SendId,
    },
    /// The item is stored as pending.
    Stored(Stored),
}

/// A pending item that is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// What is stored.
    pub change: Change,
    /// The item's position.
    pub n: i64,
    /// The send that will absorb it; `None` if it waits for the session's next send.
    pub send: Option<SendId>,
    /// Whether to settle the calls that the send waits for as interrupted.
    pub interrupts: bool,
}

/// The effect of an outside answer on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Post {
    /// It becomes the call's result.
    Settles,
    /// The call may run.
    Approves,
    /// It answers what the call's tool asks: the call may go on.
    Replies,
    /// The call waits on, and is someone's, or nobody's, from now on.
    Claims,
    /// Nothing: someone else has the call, or had it last.
    ClaimLost,
    /// Nothing: the call has its result.
    AlreadySettled,
    /// Nothing: the call is waiting for something else, or for nothing from outside.
    NotWaiting,
}

/// What happens to a report if the call that requested the work is already settled and the session
/// is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtRest {
    /// It waits in the inbox for the session's next send.
    Keep,
    /// It becomes a send.
    Send,
}

/// The signals that a pending item raises.
pub fn item_signals(mode: OnBusy) -> i32 {
    match mode {
        OnBusy::Interrupt => SIGNAL_INBOX | SIGNAL_INTERRUPT,
        OnBusy::Enqueue | OnBusy::Coalesce | OnBusy::Steer | OnBusy::Reject => SIGNAL_INBOX,
    }
}

/// Why a fold of an idle session is not attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotFolded {
    /// A worker holds the session; the fold may be attached later.
    Busy,
    /// The session's context changed since the fold was started: another fold was attached, or
    /// messages were pruned.
    Changed,
}

/// Attaches a fold that was written while the session was idle, in a step of the send that was then
/// its last one. Messages appended since then follow the fold.
pub fn fold_at_rest(
    hot: &HotRow,
    context_version: i64,
    (send, boot): (SendId, BootId),
    fold: FoldRef,
    now: Timestamp,
) -> Result<Change, NotFolded> {
    if hot.context_version != context_version {
        return Err(NotFolded::Changed);
    }
    if hot.owner.is_some() {
        return Err(NotFolded::Busy);
    }
    let mut hot = hot.clone();
    hot.context_version += 1;
    let refs = StepRefs {
        fold: Some(fold),
        ..StepRefs::default()
    };
    let change = Change::of(hot);
    Ok(change.with_step(send, StepKind::Folded, Grant::none(boot), now, refs))
}

/// Delivers an item to a session that may be busy.
///
/// If no send is active, a report of the session's own work is kept for its next send; a message is not.
pub fn deliver(
    hot: &HotRow,
    facts: DeliveryFacts<'_>,
    mode: OnBusy,
    kind: ItemKind,
    items_max: i64,
    now: Timestamp,
) -> Delivery {
    if facts.pending_items >= items_max {
        return Delivery::Full;
    }
    match mode {
        OnBusy::Coalesce => facts.last_queued.map_or(Delivery::Idle, |send| {
            let mut hot = hot.clone();
            let n = hot.take_position();
            let change = Change::of(hot);
            Delivery::Joined { change, n, send }
        }),
        OnBusy::Steer | OnBusy::Interrupt => {
            if facts.head.is_none() && kind == ItemKind::Message {
                return Delivery::Idle;
            }
            Delivery::Stored(store(hot, facts.head, mode, now))
        }
        // These modes create sends, never items.
        OnBusy::Enqueue | OnBusy::Reject => Delivery::Idle,
    }
}

/// Stores a pending item and tells the active send: a running one is notified through its worker,
/// one that waits for a retry or a timer continues at once, and one that waits for calls continues
/// only if it is interrupted.
fn store(hot: &HotRow, head: Option<&SendState>, mode: OnBusy, now: Timestamp) -> Stored {
    let mut hot = hot.clone();
    let n = hot.take_position();
    hot.signals |= item_signals(mode);
    let owner = hot.owner;
    let runs = head.is_some_and(|head| head.status == SendStatus::Running);
    let on = head.and_then(|head| Some((head, head.waiting_on?)));
    let (change, interrupts) = match on {
        Some((head, WaitingOn::Retry | WaitingOn::Timer)) => (wake(hot, head, now), false),
        Some((head, on)) if waits_for_calls(on) && mode == OnBusy::Interrupt => {
            (wake(hot, head, now), true)
        }
        Some(_) | None => (Change::of(hot), false),
    };
    let mut stored = Stored {
        change,
        n,
        send: head.map(|head| head.id),
        interrupts,
    };
    stored.change.notify.owner = owner.filter(|_| runs);
    stored
}

/// Decides the effect of an outside answer on a call. Each question takes one answer; an answer to one
/// question is never taken for an answer to the other.
pub fn post(call: &CallRecord, answer: &CallAnswer, now: Timestamp) -> Post {
    if call.result.is_some() {
        return Post::AlreadySettled;
    }
    if let Some(claims) = claims(call, answer, now) {
        return claims;
    }
    if let CallAnswer::Reply { question, .. } = answer {
        let is_open = call
            .open_question()
            .is_some_and(|(open, _)| open == *question);
        let earlier = question
            .checked_sub(1)
            .and_then(|place| call.asked.get(place));
        return match earlier {
            Some(_) if is_open => Post::Replies,
            Some(one) if one.reply.is_some() => Post::AlreadySettled,
            Some(_) | None => Post::NotWaiting,
        };
    }
    match (call.approval, answer, call.waits_on) {
        (Approval::Asked, CallAnswer::Approve, Some(_)) => Post::Approves,
        (Approval::Given, CallAnswer::Approve | CallAnswer::Refuse(_), _) => Post::AlreadySettled,
        (Approval::Asked, CallAnswer::Refuse(_), Some(_))
        | (
            Approval::None | Approval::Given,
            CallAnswer::Result(_),
            Some(WaitingOn::Tool | WaitingOn::Human),
        ) => Post::Settles,
        (Approval::None | Approval::Asked | Approval::Given, _, _) => Post::NotWaiting,
    }
}

/// Decides the effect of what concerns the claim on a call; `None` for all other answers.
fn claims(call: &CallRecord, answer: &CallAnswer, now: Timestamp) -> Option<Post> {
    let waits = call.waits_on == Some(WaitingOn::Tool) && call.approval != Approval::Asked;
    let holds = |token| call.claimed_with(token).is_some();
    let (is_possible, then) = match answer {
        CallAnswer::Claim { token, .. } => (call.is_claimable(*token, now), Post::Claims),
        CallAnswer::Renew { token, .. } | CallAnswer::GiveBack { token } => {
            (holds(*token), Post::Claims)
        }
        CallAnswer::Report { token, .. } => (holds(*token), Post::Settles),
        CallAnswer::Lapse => (call.is_lapsed(now), Post::Settles),
        CallAnswer::Result(_)
        | CallAnswer::Approve
        | CallAnswer::Reply { .. }
        | CallAnswer::Refuse(_) => return None,
    };
    Some(match (waits, is_possible) {
        (false, _) => Post::NotWaiting,
        (true, false) => Post::ClaimLost,
        (true, true) => then,
    })
}

/// Stores an answer on its call. [`post`] has allowed it.
pub fn take(call: &mut CallRecord, answer: CallAnswer, now: Timestamp) {
    match answer {
        CallAnswer::Result(result)
        | CallAnswer::Refuse(result)
        | CallAnswer::Report { result, .. } => settle(call, result, now),
        CallAnswer::Lapse => settle(call, unknown_outcome(), now),
        CallAnswer::Approve => {
            call.approval = Approval::Given;
            call.waits_on = None;
            call.deadline_at = None;
        }
        CallAnswer::Reply { reply, .. } => call.take_reply(reply),
        CallAnswer::Claim { token, lease } => {
            let again = call.claimed_with(token).map(|claim| claim.n);
            let n = again.unwrap_or(1 + call.claim.map_or(0, |claim| claim.n));
            let until = now.after(lease);
            call.claim = Some(Claim { token, until, n });
        }
        CallAnswer::Renew { lease, .. } => {
            if let Some(claim) = &mut call.claim {
                claim.until = now.after(lease);
            }
        }
        CallAnswer::GiveBack { .. } => call.claim = None,
    }
}

/// Stores a call's result.
pub fn settle(call: &mut CallRecord, result: CallResult, now: Timestamp) {
    call.result = Some(result);
    call.settled_at = Some(now);
    call.waits_on = None;
}

/// Handles that a call of the send `by` was settled or approved from outside.
///
/// `round_waits` is whether any call of its round is still waiting for someone; it matters only if
/// the send is waiting.
pub fn answer(
    hot: &HotRow,
    head: Option<&SendState>,
    by: SendId,
    round_waits: bool,
    now: Timestamp,
) -> Change {
    let mut hot = hot.clone();
    // An answer to a send that has ended notifies nobody.
    let Some(send) = head.filter(|head| head.id == by && head.is_active()) else {
        return Change::of(hot);
    };
    hot.signals |= SIGNAL_RESULT;
    if send.status == SendStatus::Running {
        let mut change = Change::of(hot);
        change.notify.owner = change.hot.owner;
        return change;
    }
    if send.waiting_on.is_some_and(waits_for_calls) && !round_waits {
        return wake(hot, send, now);
    }
    Change::of(hot)
}

/// Handles the end of a child or run whose call is already settled, because it worked in the
/// background or the parent was interrupted.
///
/// `None` if the report is to be accepted as a send. If the call is still open, its result is
/// settled instead and [`answer`] decides.
pub fn report(
    hot: &HotRow,
    head: Option<&SendState>,
    at_rest: AtRest,
    now: Timestamp,
) -> Option<Stored> {
    let to_send = head.is_none() && at_rest == AtRest::Send;
    (!to_send).then(|| store(hot, head, OnBusy::Steer, now))
}

/// Lets a head that waits for `recovery` continue. `None` if the head does not wait for that.
pub fn resume(hot: &HotRow, head: Option<&SendState>, now: Timestamp) -> Option<Change> {
    let head = head.filter(|head| head.waiting_on == Some(WaitingOn::Recovery))?;
    Some(wake(hot.clone(), head, now))
}

fn waits_for_calls(on: WaitingOn) -> bool {
    match on {
        WaitingOn::Tool | WaitingOn::Human | WaitingOn::Agent | WaitingOn::Run => true,
        WaitingOn::Retry | WaitingOn::Timer | WaitingOn::Recovery => false,
    }
}
