//! One activation of one session: claim it, run its sends while it is warm, give it back.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use mainspring_shared::error::{Code, Failure};
use mainspring_shared::id::{LeaseToken, SendId, SessionKey};
use mainspring_shared::lease::Lease;
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::{SendResult, StopReason};
use mainspring_shared::session::window::Window;
use mainspring_shared::store::{
    CallChange, CallStep, ClaimOutcome, ClaimSession, Claimed, CompleteOutcome, CompleteSend,
    ReadMessages, ReleaseSession, SendTotals, StartedSend, Then,
};
use mainspring_shared::tool::{answers, cancelled_call};
use tokio_util::sync::CancellationToken;

use crate::admit::Control;
use crate::send::{Left, Reach, Run, Turn};
use crate::{Kernel, metrics, writes};

/// Deaths of workers under a send from which on it runs alone among its like: whatever kills the
/// process must not take other suspects along.
const SUSPECT_FROM: i32 = 2;

/// Runs what the session has to do, if it can be had.
pub(crate) async fn run(kernel: &Arc<Kernel>, key: SessionKey) {
    let cached = kernel.cache.take(key);
    let token = LeaseToken(kernel.parts.entropy.random_id());
    let claim = ClaimSession {
        key,
        token,
        cached_next_seq: cached.as_ref().map_or(0, Window::next_seq),
        cached_from_seq: cached.as_ref().map_or(0, Window::from_seq),
    };
    let (claimed, life) = match kernel.writes.claim(claim).await {
        Ok((ClaimOutcome::Claimed(claimed), Some(life))) => (*claimed, life),
        Ok(_) => {
            if let Some(window) = cached {
                kernel.cache.put(key, window);
            }
            return;
        }
        Err(error) => {
            tracing::debug!(session.id = %key.session, %error, "not claimed; the sweep tries on");
            disown(kernel, key, token).await;
            return;
        }
    };
    // The life's end ends the run; so does the loss of this one session.
    let lost = life.lost.child_token();
    let lease = claimed.lease;
    let held = AssertUnwindSafe(held(kernel, claimed, cached, &lost)).catch_unwind();
    if held.await.is_err() {
        end_panicked(kernel, key, lease).await;
    }
}

/// Ends the send whose run panicked: asked again it would most likely panic again. The session's
/// lease is this process's and would be renewed with all others, so it is given back here.
async fn end_panicked(kernel: &Kernel, key: SessionKey, lease: Lease) {
    tracing::error!(session.id = %key.session, "a run panicked; its send ends");
    if let Some(CompleteOutcome::Completed(completed)) = fail(kernel, key, lease).await {
        metrics::send_ended(completed.status);
        if let Some(ready) = completed.ring {
            writes::ring(&kernel.parts, ready);
        }
    } else {
        disown(kernel, key, lease.token).await;
    }
}

async fn fail(kernel: &Kernel, key: SessionKey, lease: Lease) -> Option<CompleteOutcome> {
    let control = kernel.running.control(key)?;
    let (send_id, lease) = (control.send, control.reach.lease(lease));
    let ids = vec![(key.tenant, send_id)];
    let record = kernel.parts.store.get_sends(ids).await.ok()?.pop()??;
    let failure = Failure::new(Code::Internal, "a defect ended the run of this send");
    let (mut changes, mut messages) = (Vec::new(), Vec::new());
    if record.rounds == 0 {
        messages.push(NewMessage::user(record.input, 0));
    } else {
        (changes, messages) = unanswered(kernel, key, send_id).await?;
    }
    let item = CompleteSend {
        key,
        lease,
        send_id,
        messages,
        changes,
        deliveries: Vec::new(),
        unless: 0,
        usage: Vec::new(),
        round: None,
        totals: SendTotals {
            usage: record.usage,
            held: record.held,
            session: None,
            rounds: record.rounds,
            attempts: record.attempts,
        },
        result: SendResult::failed(StopReason::Internal, failure),
        // The next send is for a run whose state is not in doubt.
        then: Then::Release,
    };
    kernel.writes.complete(item).await.ok()
}

/// The answers that the last message of the transcript asks for, where it is one of this send's with
/// calls; what is open of them is settled as ended.
async fn unanswered(
    kernel: &Kernel,
    key: SessionKey,
    send: SendId,
) -> Option<(Vec<CallChange>, Vec<NewMessage>)> {
    let store = &kernel.parts.store;
    let last = store.get_session(key).await.ok()??.last_seq();
    let query = ReadMessages {
        key,
        after: last - 1,
        limit: 1,
    };
    let last = store.read_messages(query).await.ok()?.pop();
    let asking = last.filter(|last| last.send_id == send && !last.tool_calls.is_empty());
    let Some(asking) = asking else {
        return Some((Vec::new(), Vec::new()));
    };
    let mut calls = store.read_round(key, send, asking.round).await.ok()?;
    let mut changes = Vec::new();
    for call in calls.iter_mut().filter(|call| call.result.is_none()) {
        call.result = Some(cancelled_call());
        changes.push(CallChange {
            call_id: call.call_id.clone(),
            change: CallStep::Settled(cancelled_call()),
        });
    }
    Some((changes, answers(&calls)?))
}

/// Gives back what this process holds, or may hold by a claim whose answer it never heard. Tries for
/// as long as the life lasts: its renewals would keep a session that nobody here works on.
async fn disown(kernel: &Kernel, key: SessionKey, token: LeaseToken) {
    let mut pause = Duration::from_millis(50);
    // A life that ends gives everything back by itself.
    while let Some(life) = kernel.boot.current() {
        let lease = Lease {
            boot: life.id,
            token,
            epoch: 0,
            write: 0,
        };
        if kernel
            .writes
            .release(ReleaseSession { key, lease })
            .await
            .is_ok()
        {
            return;
        }
        kernel.parts.clock.sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// Runs sends under a lease.
async fn held(
    kernel: &Arc<Kernel>,
    claimed: Claimed,
    cached: Option<Window>,
    lost: &CancellationToken,
) {
    let Claimed {
        key,
        lease,
        counters,
        send,
        mut spent,
        window,
    } = claimed;
    let suspect = if send.record.crashes >= SUSPECT_FROM {
        let Ok(permit) = kernel.suspects.clone().try_acquire_owned() else {
            release(kernel, key, lease, lost).await;
            return;
        };
        Some(permit)
    } else {
        None
    };
    let Some(mut window) = assemble(cached, window, counters.next_seq) else {
        tracing::error!(session.id = %key.session, "the transcript has a gap; session released");
        release(kernel, key, lease, lost).await;
        return;
    };
    let mut next = Some((send, counters));
    let writes = Arc::default();
    let mut in_a_row = 0;
    while let Some((send, counters)) = next.take() {
        if belongs_elsewhere(kernel, key, &send).await {
            release(kernel, key, lease, lost).await;
            return;
        }
        in_a_row += 1;
        let more = in_a_row < kernel.parts.config.sends_in_a_row_max;
        let then = if more { Then::Continue } else { Then::Release };
        let reach = Reach {
            lost: lost.clone(),
            cancel: CancellationToken::new(),
            news: Arc::default(),
            interrupt: Arc::default(),
            writes: Arc::clone(&writes),
        };
        let bound = send.agent.context.last_messages;
        let turn = Turn {
            key,
            lease,
            send,
            counters,
            window: &mut window,
            spent: &mut spent,
            reach,
            then,
        };
        let left = one(kernel, turn).await;
        window.trim(bound);
        match left {
            Left::Done(following) => next = following.map(|next| *next),
            Left::Lost => return,
        }
    }
    drop(suspect);
    kernel.cache.put(key, window);
}

/// Whether the session is for workers of another pool: one that was rung, or was run, before its
/// agent was given another.
async fn belongs_elsewhere(kernel: &Kernel, key: SessionKey, send: &StartedSend) -> bool {
    let pool = &kernel.parts.config.pool;
    if send.agent.pool() == pool {
        return false;
    }
    // A send that was begun keeps the agent it began with; where it is rung is the session's.
    match kernel.parts.store.get_session(key).await {
        Ok(Some(session)) => session.agent.pool() != pool,
        // Nothing is run where it is not known that it may be.
        Ok(None) | Err(_) => true,
    }
}

/// Runs one send.
async fn one(kernel: &Arc<Kernel>, turn: Turn<'_>) -> Left {
    let control = Control {
        send: turn.send.record.id,
        reach: turn.reach.clone(),
    };
    kernel.running.at(turn.key, control);
    let at = (turn.key, turn.send.record.id);
    let run = Run::new(kernel, turn);
    // Boxed, so that what a waiting send holds is counted once, not in each caller's frame.
    let left = Box::pin(run.drive()).await;
    kernel.parts.tools.left(at.0, at.1);
    left
}

/// The window from what the cache held and what the claim brought; none when they do not fit.
fn assemble(
    cached: Option<Window>,
    brought: Vec<mainspring_shared::message::Message>,
    next_seq: i64,
) -> Option<Window> {
    if let Some(mut window) = cached {
        let continues = brought.first().map_or(next_seq, |first| first.seq) == window.next_seq();
        if continues && window.extend(brought.iter().cloned()).is_ok() {
            return (window.next_seq() == next_seq).then_some(window);
        }
    }
    Window::new(brought, next_seq).ok()
}

/// Gives a session back as it is: it stays ready for the sweep and for others.
async fn release(kernel: &Kernel, key: SessionKey, lease: Lease, lost: &CancellationToken) {
    if !lost.is_cancelled() {
        disown(kernel, key, lease.token).await;
    }
}
