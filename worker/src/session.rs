//! One activation of one session: claim it, run its sends while it is warm, give it back.

mod window;

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, PoisonError};

use futures::FutureExt as _;
use mainspring_runtime::telemetry::spans::{self, Invocation};
use mainspring_runtime::telemetry::{about, carrying};
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::budget::Spent;
use mainspring_shared::error::{Code, Failure};
use mainspring_shared::id::{LeaseToken, SendId, SessionKey};
use mainspring_shared::lease::Lease;
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::{SendResult, StopReason};
use mainspring_shared::session::projection::Projected;
use mainspring_shared::session::window::{Window, from_seq};
use mainspring_shared::store::{
    CallChange, CallStep, ClaimOutcome, ClaimSession, Claimed, CompleteOutcome, CompleteSend,
    Counters, FoldAtRest, Lost, ReadInbox, ReadMessages, ReleaseSession, SendTotals, StartedSend,
    Then, UsageRow,
};
use mainspring_shared::tool::{answers, cancelled_call};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use self::window::{assemble, reload};
pub(crate) use self::window::{read_messages, read_window};
use crate::admit::{Control, Handed};
use crate::boot::Life;
use crate::cache::Cached;
use crate::fold::resting;
use crate::metrics::Claim;
use crate::partial_answer::PartialAnswer;
use crate::patience::Outage;
use crate::send::{LeasedSend, PendingMessages, Run, RunOutcome, SendHandles};
use crate::suspects::{Admitted, SUSPECT_FROM};
use crate::writes::Began;
use crate::{Kernel, metrics, writes};

/// Items of the inbox that the end of a broken run tells.
const ITEMS_MAX: u32 = 64;

/// A session that was claimed.
struct Granted {
    claimed: Box<Claimed>,
    life: Life,
    cached: Option<Cached>,
    suspect: Option<Admitted>,
}

/// Runs what the session has to do, if it can be had.
pub(crate) async fn run(kernel: &Arc<Kernel>, key: SessionKey) {
    if kernel.pauses.now().holds_pool(&kernel.parts.config.pool) {
        // It stays ready: the sweep enqueues it again.
        return;
    }
    // Boxed: what it takes to claim is not kept while the send waits.
    if let Some(granted) = Box::pin(claim(kernel, key)).await {
        work(kernel, key, granted).await;
    }
}

/// Runs a send whose session was granted with it, and those behind it.
pub(crate) async fn run_granted(kernel: &Arc<Kernel>, handed: Handed) {
    let key = handed.dispatch.key();
    if let Some(granted) = Box::pin(take(kernel, handed)).await {
        work(kernel, key, granted).await;
    }
}

/// What was granted, with the window that the cache has; with what the database has, where that is no other than
/// the session's now. None where it cannot be had: then the session goes back.
async fn take(kernel: &Kernel, handed: Handed) -> Option<Granted> {
    let Handed { life, dispatch } = handed;
    let (key, lease) = (dispatch.key(), dispatch.lease(life.id));
    let granted = &dispatch.granted;
    let (counters, version) = (granted.counters, granted.agent_version);
    let spent = granted.spent.unwrap_or_default();
    let mut cached = kernel.kept.cache.take(key);
    if let Some(ahead) = cached.take_if(|cached| cached.window.next_seq() > counters.next_seq) {
        // The message came twice: what it is about is done.
        kernel.kept.cache.put(key, ahead);
        return None;
    }
    let agent = cached.as_mut().and_then(|cached| cached.agent.take());
    let agent = match agent.filter(|(kept, _)| *kept == version) {
        Some((_, agent)) => Some(*agent),
        None => agent_of(kernel, key, (version, counters)).await,
    };
    // Boxed: it is only moved, whatever is awaited in between.
    let send = agent.map(|agent| Box::new(dispatch.started(agent)));
    if let Some(send) = send {
        let is_shown = |cached: &Cached| {
            cached.version == counters.context_version
                && cached.window.next_seq() == counters.next_seq
                && cached.window.from_seq() <= send.window_from(counters.next_seq)
        };
        let mut cached = cached.filter(is_shown);
        if cached.is_none() {
            let window = reload(kernel, key, &send, counters.next_seq).await;
            cached = window.map(|window| Cached {
                window,
                version: counters.context_version,
                agent: None,
            });
        }
        if let Some(cached) = cached {
            let claimed = Claimed {
                key,
                lease,
                counters,
                send: *send,
                spent,
                folds: Vec::new(),
                projected: Projected::default(),
                seated: false,
                window: Vec::new(),
            };
            metrics::claim(Claim::Granted);
            return Some(Granted {
                claimed: Box::new(claimed),
                life,
                cached: Some(cached),
                suspect: None,
            });
        }
    }
    disown(kernel, key, lease.token, Lost::Nothing).await;
    None
}

/// A session's agent, where it is still the one of this version and nothing was said since.
async fn agent_of(
    kernel: &Kernel,
    key: SessionKey,
    (version, counters): (i32, Counters),
) -> Option<AgentSpec> {
    let session = kernel.parts.store.get_session(key).await.ok()??;
    let is_current =
        session.agent_version == version && session.last_seq() + 1 == counters.next_seq;
    is_current.then_some(session.agent)
}

/// Runs what was granted.
async fn work(kernel: &Arc<Kernel>, key: SessionKey, granted: Granted) {
    let Granted {
        claimed,
        life,
        cached,
        suspect,
    } = granted;
    let crashes = claimed.send.record.crashes;
    let suspect = suspect.filter(|_| crashes >= SUSPECT_FROM);
    if let Some(suspect) = &suspect {
        suspect.begin(crashes);
    }
    let lease = claimed.lease;
    if life.lost.is_cancelled() {
        // The life ended while the claim was under way: what it gave back does not hold this.
        Box::pin(give_back(kernel, key, lease)).await;
        return;
    }
    // The life's end ends the run; so does the loss of this one session.
    let lost = life.lost.child_token();
    let seated = claimed.seated;
    let held = AssertUnwindSafe(held(kernel, claimed, cached, &lost)).catch_unwind();
    if held.await.is_err() {
        Box::pin(end_panicked(kernel, key, lease)).await;
    }
    drop(suspect);
    if seated {
        Box::pin(call_seats(kernel, key)).await;
    }
}

/// Has the next called of those that wait for a seat of this session's tenant. What is missed here, the sweep
/// calls.
async fn call_seats(kernel: &Kernel, key: SessionKey) {
    match kernel.parts.store.call_seats(Some(key.tenant)).await {
        Ok(called) => {
            for ready in called.enqueue {
                writes::enqueue(&kernel.parts, ready);
            }
        }
        Err(error) => tracing::debug!(tenant = %key.tenant, %error, "the sweep calls to seats"),
    }
}

/// Claims a session.
async fn claim(kernel: &Arc<Kernel>, key: SessionKey) -> Option<Granted> {
    let cached = kernel.kept.cache.take(key);
    let token = LeaseToken(kernel.parts.entropy.random_id());
    let claim = ClaimSession {
        cached_fold_end: cached.as_ref().map_or(0, |c| c.window.fold_end()),
        key,
        token,
        cached_next_seq: cached.as_ref().map_or(0, |c| c.window.next_seq()),
        cached_from_seq: cached.as_ref().map_or(0, |c| c.window.from_seq()),
        cached_version: cached.as_ref().map_or(0, |c| c.version),
        crashes_below: SUSPECT_FROM,
        orphans: kernel.boot.takes_orphans(&kernel.parts),
    };
    let mut suspect = None;
    let span = spans::claim(key);
    let asked = kernel.writes.claim(claim.clone());
    let mut answer = asked.instrument(span.clone()).await;
    if matches!(answer, Ok((ClaimOutcome::Suspect, _)))
        && let Some(admitted) = kernel.kept.suspects.admit()
    {
        let crashes_below = admitted.crashes_below;
        suspect = Some(admitted);
        let claim = ClaimSession {
            crashes_below,
            ..claim
        };
        answer = kernel.writes.claim(claim).instrument(span.clone()).await;
    }
    let outcome = claimed_as(&answer);
    spans::claimed(&span, outcome.as_str());
    metrics::claim(outcome);
    match answer {
        Ok((ClaimOutcome::Claimed(claimed), Some(life))) => Some(Granted {
            claimed,
            life,
            cached,
            suspect,
        }),
        Ok(_) => {
            if let Some(cached) = cached {
                kernel.kept.cache.put(key, cached);
            }
            None
        }
        Err(error) => {
            tracing::debug!(session.id = %key.session, %error, "not claimed; the sweep tries on");
            disown(kernel, key, token, Lost::Nothing).await;
            None
        }
    }
}

/// What an answer to a claim means.
fn claimed_as(answer: &Result<(ClaimOutcome, Option<Life>), writes::SharedError>) -> Claim {
    match answer {
        Ok((ClaimOutcome::Claimed(claimed), Some(_))) => Claim::Claimed {
            taken_over: claimed.send.record.crashes > 0,
        },
        Ok(_) => Claim::Busy,
        Err(_) => Claim::Failed,
    }
}

/// Gives back what was granted to a life that is over. Whoever takes it otherwise counts a death.
async fn give_back(kernel: &Kernel, key: SessionKey, lease: Lease) {
    let release = ReleaseSession {
        key,
        lease,
        lost: Lost::Nothing,
    };
    if let Err(error) = kernel.writes.release(release).await {
        tracing::debug!(session.id = %key.session, %error, "left to its lease");
    }
}

/// Ends the send whose run panicked: asked again it would most likely panic again. The session's
/// lease is this process's and would be renewed with all others, so it is given back here.
async fn end_panicked(kernel: &Arc<Kernel>, key: SessionKey, lease: Lease) {
    tracing::error!(session.id = %key.session, "a run panicked; its send ends");
    if let Some(CompleteOutcome::Completed(completed)) = fail(kernel, key, lease).await {
        metrics::send_ended(completed.status);
        if let Some(ready) = completed.enqueue {
            writes::enqueue(&kernel.parts, ready);
        }
    } else {
        disown(kernel, key, lease.token, Lost::ModelCall).await;
    }
}

/// Ends the send as failed, with what its calls of models cost. Of that, what was beside the rounds is stored without a
/// lease where the end cannot be: the next owner repeats the round's call, and none of these.
async fn fail(kernel: &Arc<Kernel>, key: SessionKey, lease: Lease) -> Option<CompleteOutcome> {
    let control = kernel.running.control(key)?;
    let (send_id, lease) = (control.send, control.handles.lease(lease));
    let (rows, session) = {
        let owed = &control.handles.owed;
        owed.lock().unwrap_or_else(PoisonError::into_inner).settle()
    };
    let beside = rows.iter().filter(|row| !row.is_of_round());
    let beside: Vec<_> = beside.cloned().collect();
    let ended = complete_failed(kernel, (key, lease), send_id, (rows, session)).await;
    if !matches!(ended, Some(CompleteOutcome::Completed(_))) && !beside.is_empty() {
        let unpaid = FoldAtRest {
            key,
            send_id,
            boot: lease.boot,
            context_version: 0,
            fold: None,
            usage: beside,
        };
        resting::spawn_pay(kernel, unpaid);
    }
    ended
}

/// Stores the end of a failed send; none where the database does not say what it was.
async fn complete_failed(
    kernel: &Arc<Kernel>,
    (key, lease): (SessionKey, Lease),
    send_id: SendId,
    (rows, session): (Vec<UsageRow>, Option<Spent>),
) -> Option<CompleteOutcome> {
    let ids = vec![(key.tenant, send_id)];
    let record = kernel.parts.store.get_sends(ids).await.ok()?.pop()??;
    let began = Began::of(&record);
    let failure = Failure::new(Code::Internal, "a defect ended the run of this send");
    let mut pending_messages = PendingMessages::default();
    if record.rounds == 0 {
        pending_messages.input(NewMessage::user(record.input.clone(), 0));
    } else {
        let (changes, answers) = unanswered(kernel, key, send_id).await?;
        pending_messages.answers(answers, changes);
    }
    // Their signal may have been lowered: nobody would look for them again.
    let query = ReadInbox {
        key,
        pending: true,
        after: 0,
        limit: ITEMS_MAX,
    };
    let items = kernel.parts.store.read_inbox(query).await.ok()?;
    pending_messages.items(items, send_id, record.rounds);
    let PendingMessages {
        messages,
        changes,
        deliveries,
        ..
    } = pending_messages;
    let mut usage = record.usage;
    for row in &rows {
        usage.add(&row.usage);
    }
    let mut of_rounds = rows.iter().filter(|row| row.is_of_round());
    let attempts = of_rounds.by_ref().map(|row| row.attempt).max();
    let attempts = attempts.unwrap_or_default().max(record.attempts);
    let item = CompleteSend {
        key,
        lease,
        send_id,
        messages,
        changes,
        deliveries,
        unless: 0,
        usage: rows,
        round: None,
        totals: SendTotals {
            usage,
            attempts,
            ..record.totals(session)
        },
        result: SendResult::failed(StopReason::Internal, failure),
        // The next send that ends stores what is shown of this one.
        projections: Vec::new(),
        // The next send is for a run whose state is not in doubt.
        then: Then::Release,
    };
    kernel.writes.complete(item, began).await.ok()
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
async fn disown(kernel: &Kernel, key: SessionKey, token: LeaseToken, lost: Lost) {
    let mut outage = Outage::default();
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
            .release(ReleaseSession { key, lease, lost })
            .await
            .is_ok()
        {
            return;
        }
        let forever = std::future::pending();
        outage.pause(&kernel.parts, forever).await;
    }
}

/// What a run of a session begins with.
struct Opened {
    key: SessionKey,
    lease: Lease,
    seated: bool,
    spent: Spent,
    /// The `context_version` of the window.
    version: i64,
    /// None where what is known of the transcript has a gap.
    window: Option<Window>,
    begins: Box<(StartedSend, Counters)>,
}

fn open(claimed: Box<Claimed>, cached: Option<Cached>) -> Opened {
    let Claimed {
        key,
        lease,
        counters,
        send,
        spent,
        folds,
        projected,
        window,
        seated,
    } = *claimed;
    // What was cached under another version was not compared with what the claim brought.
    let version = counters.context_version;
    let cached = cached.filter(|cached| cached.version == version);
    let cached = cached.map(|cached| cached.window);
    let brought = (projected, window);
    Opened {
        key,
        lease,
        seated,
        spent,
        version,
        window: assemble(cached, folds, brought, counters.next_seq),
        begins: Box::new((send, counters)),
    }
}

/// Runs sends under a lease. A send waits in here for its model: what is large is boxed, or moved out before
/// anything is awaited.
async fn held(
    kernel: &Arc<Kernel>,
    claimed: Box<Claimed>,
    cached: Option<Cached>,
    lost: &CancellationToken,
) {
    let Opened {
        key,
        lease,
        seated,
        mut spent,
        mut version,
        window,
        begins,
    } = open(claimed, cached);
    let Some(mut window) = window else {
        tracing::error!(session.id = %key.session, "the transcript has a gap; session released");
        Box::pin(release(kernel, key, lease, lost)).await;
        return;
    };
    let mut next = Some(begins);
    let writes = Arc::default();
    let mut in_a_row = 0;
    let mut trimmed = None;
    let mut agent = None;
    while let Some(begins) = next.take() {
        let (send, counters) = &*begins;
        if Box::pin(belongs_elsewhere(kernel, key, send)).await {
            Box::pin(release(kernel, key, lease, lost)).await;
            return;
        }
        let lacks = trimmed.is_some_and(|from| send.window_from(counters.next_seq) < from);
        if counters.context_version != version || lacks {
            // Something went meanwhile that whoever begins here would not see, or the agent of the send
            // before had a shorter window than its own.
            version = counters.context_version;
            let Some(reloaded) = Box::pin(reload(kernel, key, send, counters.next_seq)).await
            else {
                Box::pin(release(kernel, key, lease, lost)).await;
                return;
            };
            window = reloaded;
        }
        in_a_row += 1;
        // With a seat, the next send stands behind those that wait for one.
        let more = !seated && in_a_row < kernel.parts.config.sends_in_a_row_max;
        let then = if more { Then::Continue } else { Then::Release };
        let handles = SendHandles {
            lost: lost.clone(),
            cancel: CancellationToken::new(),
            news: Arc::default(),
            interrupt: Arc::default(),
            writes: Arc::clone(&writes),
            owed: Arc::default(),
            said: Arc::new(PartialAnswer::new(key, send.record.id, kernel.live.clone())),
        };
        let (id, origin) = (send.record.id, send.record.options.traceparent.clone());
        let span = traced(kernel, lease, send);
        let bound = send.agent.context.last_messages;
        let mut run = begin(
            kernel,
            LeasedSend {
                lease,
                begins,
                window: &mut window,
                version: &mut version,
                spent: &mut spent,
                handles,
                then,
            },
        );
        let left = Box::pin(carrying(
            origin,
            about(key.session, id, run.drive().instrument(span)),
        ))
        .await;
        agent = run.into_agent();
        kernel.parts.tools.left(key, id);
        let from = from_seq(window.next_seq(), bound);
        window.trim(from);
        trimmed = Some(from);
        match left {
            RunOutcome::Done(following) => next = following,
            RunOutcome::Lost => return,
        }
    }
    let cached = Cached {
        window,
        version,
        agent,
    };
    kernel.kept.cache.put(key, cached);
}

/// Whether the session is for workers of another pool: one that was enqueued, or was run, before its
/// agent was given another.
async fn belongs_elsewhere(kernel: &Kernel, key: SessionKey, send: &StartedSend) -> bool {
    let pool = &kernel.parts.config.pool;
    if send.agent.pool() == pool {
        return false;
    }
    // A send that was begun keeps the agent it began with; where it is enqueued is the session's.
    match kernel.parts.store.get_session(key).await {
        Ok(Some(session)) => session.agent.pool() != pool,
        // Nothing is run where it is not known that it may be.
        Ok(None) | Err(_) => true,
    }
}

/// The span of a send that is worked on.
fn traced(kernel: &Kernel, lease: Lease, send: &StartedSend) -> tracing::Span {
    let (record, config) = (&send.record, &kernel.parts.config);
    let agent = send.agent.reference();
    let invocation = Invocation {
        session: record.key,
        send: record.id,
        agent: agent.map(|agent| (agent.name.as_str(), agent.version)),
        epoch: lease.epoch,
        attempt: record.attempts,
        rounds: record.rounds,
        worker: &config.name,
        pool: &config.pool,
        origin: record.options.traceparent.as_deref(),
    };
    spans::invoke_agent(&invocation, config.propagation)
}

/// The run of a send, for whoever wants something of it.
fn begin<'a>(kernel: &'a Arc<Kernel>, turn: LeasedSend<'a>) -> Box<Run<'a>> {
    let control = Control {
        send: turn.begins.0.record.id,
        handles: turn.handles.clone(),
    };
    kernel.running.at(turn.begins.0.record.key, control);
    Box::new(Run::new(kernel, turn))
}

/// Gives a session back as it is: it stays ready for the sweep and for others.
async fn release(kernel: &Kernel, key: SessionKey, lease: Lease, lost: &CancellationToken) {
    if !lost.is_cancelled() {
        disown(kernel, key, lease.token, Lost::Nothing).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of<A, F: Future>(_: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }

    /// Thousands of sends wait at once. What is large and not needed meanwhile is boxed.
    #[test]
    fn a_send_that_waits_keeps_little() {
        let task = bytes_of(|(kernel, key): (&'static Arc<Kernel>, SessionKey)| run(kernel, key));
        let driven = bytes_of(|run: &'static mut Run<'static>| run.drive());
        let state = size_of::<Run<'static>>();
        assert!(task + driven + state < 8 << 10, "{task} {driven} {state}");
    }
}
