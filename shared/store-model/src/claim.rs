//! Taking the lease of a session that has work.

use mainspring_shared::id::BootId;
use mainspring_shared::message::{Message, Role};
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::fold;
use mainspring_shared::session::projection::Projected;
use mainspring_shared::session::transition::{self, ClaimFacts, ClaimRefusal, Claimer, Granted};
use mainspring_shared::store::{ClaimOutcome, ClaimSession, Claimed};
use mainspring_shared::time::Timestamp;

use crate::boots;
use crate::seats::SeatRequest;
use crate::session::Session;
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
    let claimer = Claimer {
        boot,
        token: item.token,
        crashes_below: item.crashes_below,
        orphans: item.orphans,
    };
    let known = state.processes.boots.get(&boot);
    let facts = ClaimFacts {
        owner_lives: state.is_held(session, now),
        claimer_dead: known.is_some_and(|boot| boot.dead_at.is_some()),
    };
    match transition::refuse_claim(&session.hot, claimer, facts) {
        Some(ClaimRefusal::Idle) => return ClaimOutcome::Idle,
        Some(ClaimRefusal::Busy) => return ClaimOutcome::Busy,
        None => {}
    }
    let head = session.head_state();
    let seated = state.tenants.seat_limits.contains_key(&item.key.tenant);
    // A running send keeps its seat.
    let starts = head.filter(|head| !matches!(head.status, SendStatus::Running));
    let wants = starts.and_then(|head| session.sends.get(&head.id));
    let wants = wants.map(|send| SeatRequest::new(session, send));
    if let Some(wants) = wants
        && !state.take_seat(item.key, &wants, now)
    {
        return ClaimOutcome::Waits;
    }
    let Some(session) = state.sessions.get(&item.key) else {
        return ClaimOutcome::Idle;
    };
    let claim = transition::claim(&session.hot, head.as_ref(), claimer, now);
    if let Some(dead) = claim.dead {
        boots::declare_dead(state, now, dead);
    }
    let Some(session) = state.sessions.get_mut(&item.key) else {
        return ClaimOutcome::Idle;
    };
    session.commit(claim.change, Vec::new());
    let (lease, resumed) = match claim.granted {
        Granted::Idle => return ClaimOutcome::Idle,
        Granted::Suspect => return ClaimOutcome::Suspect,
        Granted::Lease(lease, resumed) => (lease, resumed),
    };
    let started = head.and_then(|head| {
        session.pin(head.id);
        session.started(head.id, resumed)
    });
    let Some(send) = started else {
        return ClaimOutcome::Idle;
    };
    let is_ours = item.has_valid_cache(session.hot.next_seq, session.hot.context_version);
    let shown = session
        .transcript
        .folds
        .iter()
        .filter(|fold| fold.covered_by.is_none());
    let mut folds: Vec<_> = shown.filter(|_| !is_ours).cloned().collect();
    folds.sort_by_key(|fold| fold.from_seq);
    let from = fold::begin(
        send.window_from(session.hot.next_seq),
        fold::end(&session.transcript.folds),
    );
    let reaches_back = is_ours && item.cached_next_seq > 0 && item.cached_from_seq <= from;
    let is_at_end = item.cached_next_seq == session.hot.next_seq;
    let reaches_back = reaches_back && (item.cached_next_seq > from || is_at_end);
    let rows = session.transcript.projections.range(from..);
    let rows = rows.filter(|_| !reaches_back && send.agent.context.representation.is_stored());
    let rows = rows.map(|(_, row)| row.clone()).collect();
    let projected = Projected::of(
        rows,
        from.max(session.transcript.first_seq),
        &send.agent.context,
    );
    ClaimOutcome::Claimed(Box::new(Claimed {
        key: item.key,
        lease,
        counters: session.hot.counters(),
        spent: session.hot.spent.unwrap_or_default(),
        seated,
        folds,
        window: window(session, projected.behind(from), item, reaches_back),
        projected,
        send,
    }))
}

/// The messages of the active window that the claimer's cache lacks.
fn window(
    session: &Session,
    mut from: i64,
    item: &ClaimSession,
    reaches_back: bool,
) -> Vec<Message> {
    if let Some(first) = session.transcript.messages.get(&from)
        && first.role == Role::Tool
    {
        from = first.asked_at_seq.unwrap_or(from);
    }
    let lacking = if reaches_back {
        item.cached_next_seq
    } else {
        from
    };
    let lacking = session.transcript.messages.range(lacking..);
    lacking.map(|(_, message)| message.clone()).collect()
}
