//! Claiming a session.

use super::{Change, start};
use crate::id::{BootId, LeaseToken};
use crate::lease::Lease;
use crate::send::SendStatus;
use crate::session::Lifecycle;
use crate::session::hot::{HotRow, SendState};
use crate::step::{StepKind, StepRefs};
use crate::store::{ReadySession, Resumed};
use crate::time::Timestamp;

/// Who claims a session, and on what terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claimer {
    /// The claiming process.
    pub boot: BootId,
    /// The fencing token of the grant, drawn by the claimer.
    pub token: LeaseToken,
    /// A send with this many worker deaths, counting the worker it is taken from, is left alone.
    pub crashes_below: i32,
    /// Whether it takes over from a boot whose lease has expired.
    pub orphans: bool,
}

/// What is known of the boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimFacts {
    /// Whether the owner's lease is still valid.
    pub owner_lives: bool,
    /// Whether the claimer was declared dead.
    pub claimer_dead: bool,
}

/// Why nothing was claimed and nothing changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimRefusal {
    /// The session has nothing to do.
    Idle,
    /// Another boot holds it, or the claimer may not take it.
    Busy,
}

/// The effect of a claim that was not refused.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// What is stored.
    pub change: Change,
    /// The boot that the session is taken from; it must be declared dead, so that it cannot renew.
    pub dead: Option<BootId>,
    /// What the claimer gets.
    pub granted: Granted,
}

/// What the claimer gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granted {
    /// Nothing: the session had no open send after all and is now idle.
    Idle,
    /// Nothing: too many workers died while running its send.
    Suspect,
    /// The lease; the head is running. `resumed` says why it is resumed; `None` if it starts.
    Lease(Lease, Option<Resumed>),
}

/// Whether a session can be claimed at all.
pub fn refuse_claim(hot: &HotRow, claimer: Claimer, facts: ClaimFacts) -> Option<ClaimRefusal> {
    if hot.lifecycle == Lifecycle::Deleted || hot.ready_since.is_none() {
        return Some(ClaimRefusal::Idle);
    }
    // A boot never takes over from itself, even if its lease has expired: it would declare itself dead.
    let is_own = hot.owner == Some(claimer.boot);
    let is_orphan = hot.owner.is_some();
    let busy = facts.owner_lives || is_own || (is_orphan && !claimer.orphans) || facts.claimer_dead;
    busy.then_some(ClaimRefusal::Busy)
}

/// Claims a session that [`refuse_claim`] does not refuse.
pub fn claim(hot: &HotRow, head: Option<&SendState>, claimer: Claimer, now: Timestamp) -> Claim {
    let dead = hot.owner;
    let mut hot = hot.clone();
    let Some(head) = head.filter(|head| !head.status.is_final()) else {
        hot.clear_lease();
        hot.ready_since = None;
        return Claim {
            change: Change::of(hot),
            dead,
            granted: Granted::Idle,
        };
    };
    // A queued send counts no crash: nobody was running it, even if the session had an owner.
    let orphaned = dead.is_some() && head.status == SendStatus::Running;
    let mut send = *head;
    if orphaned {
        send.crashes += 1;
        // The dead worker may have started a model call that no step records.
        send.attempts += 1;
    }
    if send.crashes >= claimer.crashes_below {
        hot.clear_lease();
        return Claim {
            change: Change {
                send: orphaned.then_some(send),
                ..Change::of(hot)
            },
            dead,
            granted: Granted::Suspect,
        };
    }
    let grant = hot.grant(claimer.boot);
    hot.owner = Some(claimer.boot);
    hot.token = Some(claimer.token);
    hot.writes = 0;
    let lease = Lease {
        boot: claimer.boot,
        token: claimer.token,
        epoch: grant.epoch,
        write: 0,
    };
    if send.status == SendStatus::Queued {
        let send = start(&mut hot, &send, now);
        return Claim {
            // No step is appended, because the claim's commit may be asynchronous and get lost.
            change: Change::of(hot).with_send(send),
            dead,
            granted: Granted::Lease(lease, None),
        };
    }
    let resumed = resume(&mut send, orphaned);
    let refs = StepRefs {
        reason: Some(resumed.as_str().to_owned()),
        ..StepRefs::default()
    };
    let change =
        Change::of(hot)
            .with_send(send)
            .with_step(send.id, StepKind::Resumed, grant, now, refs);
    Claim {
        change,
        dead,
        granted: Granted::Lease(lease, Some(resumed)),
    }
}

/// A session that is granted in the same transaction as the accept that made it ready.
#[derive(Debug, Clone, PartialEq)]
pub struct GrantedAccept {
    /// What is stored instead of the accept's change.
    pub change: Change,
    /// The grant.
    pub lease: Lease,
    /// What to enqueue if the keeper cannot be notified.
    pub ready: ReadySession,
}

/// Grants a session to its keeper, as a claim right after the accept would.
///
/// `None` unless the accept made an idle session ready.
pub fn grant_accepted(accepted: &Change, keeper: BootId, now: Timestamp) -> Option<GrantedAccept> {
    let send = accepted.send.as_ref()?;
    let ready = accepted.notify.ready.clone()?;
    if accepted.hot.owner.is_some() || accepted.hot.pending != 1 {
        return None;
    }
    let claimer = Claimer {
        boot: keeper,
        token: LeaseToken(send.id.0),
        crashes_below: 1,
        orphans: false,
    };
    let claim = claim(&accepted.hot, Some(send), claimer, now);
    let Granted::Lease(lease, None) = claim.granted else {
        return None;
    };
    let change = Change {
        step: accepted.step.clone(),
        ..claim.change
    };
    Some(GrantedAccept {
        change,
        lease,
        ready,
    })
}

/// Continues a send that had started: its worker died or released it, or what it waited for arrived.
fn resume(send: &mut SendState, orphaned: bool) -> Resumed {
    match send.waiting_on.take() {
        Some(on) => {
            send.status = SendStatus::Running;
            send.alarm_at = send.deadline_at;
            Resumed::from_wait(on)
        }
        None if orphaned || send.crashes > 0 => Resumed::Takeover,
        None => Resumed::Handover,
    }
}
