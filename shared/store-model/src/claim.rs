//! Taking the lease of a session that has work.

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::{BootId, SendId};
use mainspring_shared::lease::Lease;
use mainspring_shared::message::{Message, Role};
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::Lifecycle;
use mainspring_shared::step::{StepKind, StepRefs};
use mainspring_shared::store::{ClaimOutcome, ClaimSession, Claimed, Resumed, StartedSend};
use mainspring_shared::time::Timestamp;

use crate::boots;
use crate::session::{Session, Writer};
use crate::state::State;

pub(crate) fn claim(
    state: &mut State,
    now: Timestamp,
    boot: BootId,
    item: &ClaimSession,
) -> ClaimOutcome {
    let Some(session) = state.sessions.get(&item.key) else {
        return ClaimOutcome::Idle;
    };
    if session.hot.lifecycle == Lifecycle::Deleted || session.hot.ready_since.is_none() {
        return ClaimOutcome::Idle;
    }
    let is_dead = state
        .boots
        .get(&boot)
        .is_some_and(|boot| boot.dead_at.is_some());
    let is_orphan = session.hot.owner.is_some();
    // Nobody takes over from itself, however late it is: it would be declared dead by that.
    let is_own = session.hot.owner == Some(boot);
    if state.is_held(session, now) || is_own || (is_orphan && !item.orphans) || is_dead {
        return ClaimOutcome::Busy;
    }
    let orphaned_by = session.hot.owner;
    if let Some(dead) = orphaned_by {
        boots::declare_dead(state, now, dead);
    }
    let Some(session) = state.sessions.get_mut(&item.key) else {
        return ClaimOutcome::Idle;
    };
    let head = session.head();
    let Some((head, status, crashes)) = head.map(|send| (send.id, send.status, send.crashes))
    else {
        session.hot.owner = None;
        session.hot.token = None;
        session.hot.ready_since = None;
        return ClaimOutcome::Idle;
    };
    let orphaned = is_orphan && status == SendStatus::Running;
    if crashes + i32::from(orphaned) >= item.crashes_below {
        session.hot.owner = None;
        session.hot.token = None;
        if let Some(send) = session.sends.get_mut(&head).filter(|_| orphaned) {
            send.crashes += 1;
            send.attempts += 1;
        }
        return ClaimOutcome::Suspect;
    }
    let writer = session.grant(boot);
    session.hot.owner = Some(boot);
    session.hot.token = Some(item.token);
    session.hot.writes = 0;
    let started = match status {
        SendStatus::Queued => session.start_head(now),
        SendStatus::Running | SendStatus::Waiting => {
            take_over(session, head, orphaned, writer, now)
        }
        // The head is open.
        SendStatus::Completed | SendStatus::Failed | SendStatus::Cancelled => None,
    };
    let Some(send) = started else {
        return ClaimOutcome::Idle;
    };
    ClaimOutcome::Claimed(Box::new(Claimed {
        key: item.key,
        lease: Lease {
            boot,
            token: item.token,
            epoch: writer.epoch,
            write: 0,
        },
        counters: session.counters(),
        spent: session.hot.spent.unwrap_or_default(),
        window: window(session, &send.agent, item),
        send,
    }))
}

/// Goes on with a send that had begun: it was running when its worker died or left, or it waited
/// and what it waited for has come.
fn take_over(
    session: &mut Session,
    id: SendId,
    orphaned: bool,
    writer: Writer,
    now: Timestamp,
) -> Option<StartedSend> {
    let send = session.sends.get_mut(&id)?;
    let reason = match send.waiting_on.take() {
        Some(on) => {
            send.status = SendStatus::Running;
            send.alarm_at = send.deadline_at;
            Resumed::from_wait(on)
        }
        None if orphaned => {
            send.crashes += 1;
            send.attempts += 1;
            Resumed::Takeover
        }
        None if send.crashes > 0 => Resumed::Takeover,
        None => Resumed::Handover,
    };
    let refs = StepRefs {
        reason: Some(reason.as_str().to_owned()),
        ..StepRefs::default()
    };
    session.write_step(id, StepKind::Resumed, writer, now, refs);
    session.started(id, Some(reason))
}

/// The messages of the active window that the claimer's cache lacks.
fn window(session: &Session, agent: &AgentSpec, item: &ClaimSession) -> Vec<Message> {
    let next_seq = session.hot.next_seq;
    let bound = agent.context.last_messages;
    let mut from = bound.map_or(1, |last| (next_seq - i64::from(last)).max(1));
    if let Some(first) = session.messages.get(&from)
        && first.role == Role::Tool
    {
        from = first.asked_at_seq.unwrap_or(from);
    }
    let is_ours = item.cached_version == session.hot.context_version;
    let reaches_back = is_ours && item.cached_next_seq > 0 && item.cached_from_seq <= from;
    let lacking = if reaches_back && item.cached_next_seq > from {
        item.cached_next_seq
    } else if reaches_back && item.cached_next_seq == next_seq {
        next_seq
    } else {
        from
    };
    let lacking = session.messages.range(lacking..);
    lacking.map(|(_, message)| message.clone()).collect()
}
