//! One activation of one session: claim it, run its sends while it is warm, release it.

mod panicked;
mod window;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use mainspring_runtime::telemetry::spans::{self, Invocation};
use mainspring_runtime::telemetry::{about, carrying};
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::budget::Spent;
use mainspring_shared::id::{LeaseToken, SessionKey};
use mainspring_shared::lease::Lease;
use mainspring_shared::session::projection::Projected;
use mainspring_shared::session::window::{Window, from_seq};
use mainspring_shared::store::{
    AfterSend, ClaimOutcome, ClaimSession, Claimed, Counters, ReleaseLoss, ReleaseSession,
    StartedSend,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use self::panicked::end_panicked;
use self::window::{assemble, reload};
pub(crate) use self::window::{read_messages, read_window};
use crate::admit::{Control, Handed};
use crate::boot::Life;
use crate::cache::Cached;
use crate::db_retry::Outage;
use crate::metrics::Claim;
use crate::partial_answer::PartialAnswer;
use crate::send::{LeasedSend, Run, RunOutcome, SendHandles};
use crate::suspects::{Admitted, SUSPECT_FROM};
use crate::{Kernel, metrics, writes};

/// A session that was claimed.
struct Granted {
    claimed: Box<Claimed>,
    life: Life,
    cached: Option<Cached>,
    suspect: Option<Admitted>,
    /// How often connections to the database had been lost before the grant.
    losses: u64,
}

/// Claims a session and runs its sends, if it can be claimed.
pub(crate) async fn run(kernel: &Arc<Kernel>, key: SessionKey) {
    if kernel.pauses.now().holds_pool(&kernel.parts.config.pool) {
        // It stays ready, and the sweep enqueues it again.
        return;
    }
    // Boxed, so that the state of the claim is not kept while the send waits.
    if let Some(granted) = Box::pin(claim(kernel, key)).await {
        work(kernel, key, granted).await;
    }
}

/// Runs a send whose session was granted with it, and the sends after it.
pub(crate) async fn run_granted(kernel: &Arc<Kernel>, handed: Handed) {
    let key = handed.dispatch.key();
    if let Some(granted) = Box::pin(take(kernel, handed)).await {
        work(kernel, key, granted).await;
    }
}

/// Prepares a granted session with its cached window, or with one read from the database if that
/// matches the grant. Returns `None` after releasing the session if neither works.
async fn take(kernel: &Kernel, handed: Handed) -> Option<Granted> {
    let Handed { life, dispatch } = handed;
    let (key, lease) = (dispatch.key(), dispatch.lease(life.id));
    let granted = &dispatch.granted;
    let (counters, version) = (granted.counters, granted.agent_version);
    let spent = granted.spent.unwrap_or_default();
    let losses = kernel.parts.store.losses();
    kernel.kept.cache.trust(losses);
    let mut cached = kernel.kept.cache.take(key);
    if let Some(ahead) = cached.take_if(|cached| cached.window.next_seq() > counters.next_seq) {
        // The message arrived twice; its send has already run.
        kernel.kept.cache.put(key, ahead);
        return None;
    }
    let agent = cached.as_mut().and_then(|cached| cached.agent.take());
    let agent = match agent.filter(|(kept, _)| *kept == version) {
        Some((_, agent)) => Some(*agent),
        None => agent_of(kernel, key, (version, counters)).await,
    };
    // Boxed: it is only moved across the awaits below.
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
                losses,
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
                losses,
            });
        }
    }
    disown(kernel, key, lease.token, ReleaseLoss::Nothing).await;
    None
}

/// A session's agent, if it still has this version and no message was added since.
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

/// Runs a granted session.
async fn work(kernel: &Arc<Kernel>, key: SessionKey, granted: Granted) {
    let Granted {
        claimed,
        life,
        cached,
        suspect,
        losses,
    } = granted;
    let crashes = claimed.send.record.crashes;
    let suspect = suspect.filter(|_| crashes >= SUSPECT_FROM);
    if let Some(suspect) = &suspect {
        suspect.begin(crashes);
    }
    let lease = claimed.lease;
    if life.lost.is_cancelled() {
        // The boot ended while the claim was in flight; what it released does not include this
        // session.
        Box::pin(give_back(kernel, key, lease)).await;
        return;
    }
    // The end of the boot ends the run; so does the loss of this one session.
    let lost = life.lost.child_token();
    let seated = claimed.seated;
    let held = AssertUnwindSafe(held(kernel, claimed, (cached, losses), &lost)).catch_unwind();
    if held.await.is_err() {
        Box::pin(end_panicked(kernel, key, lease)).await;
    }
    drop(suspect);
    if seated {
        Box::pin(call_seats(kernel, key)).await;
    }
}

/// Calls the next session that waits for a seat of this session's tenant. If that fails, the sweep
/// does it.
async fn call_seats(kernel: &Kernel, key: SessionKey) {
    match kernel.parts.store.call_seats(Some(key.tenant)).await {
        Ok(called) => {
            for ready in called.enqueue {
                writes::enqueue(&kernel.parts, ready);
            }
        }
        Err(error) => tracing::debug!(tenant = %key.tenant, %error, "could not give out seats"),
    }
}

/// Claims a session.
async fn claim(kernel: &Arc<Kernel>, key: SessionKey) -> Option<Granted> {
    let losses = kernel.parts.store.losses();
    kernel.kept.cache.trust(losses);
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
        Ok((ClaimOutcome::Claimed(claimed), Some(life))) => {
            tell_of_loss(kernel, &claimed, cached.as_ref());
            Some(Granted {
                claimed,
                life,
                cached,
                suspect,
                losses,
            })
        }
        Ok(_) => {
            if let Some(cached) = cached {
                kernel.kept.cache.put(key, cached);
            }
            None
        }
        Err(error) => {
            tracing::debug!(
                session.id = %key.session,
                %error,
                "could not claim a session; the sweep will retry"
            );
            disown(kernel, key, token, ReleaseLoss::Nothing).await;
            None
        }
    }
}

/// Tells if the database lacks messages that this worker has stored there.
fn tell_of_loss(kernel: &Kernel, claimed: &Claimed, cached: Option<&Cached>) {
    let kept = cached.map(|cached| cached.window.next_seq());
    let doubted = kernel.kept.cache.doubted(claimed.key);
    let known = kept.into_iter().chain(doubted).max().unwrap_or_default();
    let found = claimed.counters.next_seq;
    if known > found {
        metrics::went_back();
        tracing::error!(
            session.id = %claimed.key.session,
            known,
            found,
            "the database has lost messages that it had stored: it went back in time, as after a \
             failover to a server that lacked the last commits"
        );
    }
}

/// Classifies the answer to a claim, for metrics.
fn claimed_as(answer: &Result<(ClaimOutcome, Option<Life>), writes::SharedError>) -> Claim {
    match answer {
        Ok((ClaimOutcome::Claimed(claimed), Some(_))) => Claim::Claimed {
            taken_over: claimed.send.record.crashes > 0,
        },
        Ok(_) => Claim::Busy,
        Err(_) => Claim::Failed,
    }
}

/// Releases a session granted to a boot that is over. Otherwise its next owner would count a crash.
async fn give_back(kernel: &Kernel, key: SessionKey, lease: Lease) {
    let release = ReleaseSession {
        key,
        lease,
        lost: ReleaseLoss::Nothing,
    };
    if let Err(error) = kernel.writes.release(release).await {
        tracing::debug!(
            session.id = %key.session,
            %error,
            "could not release a session; its lease will expire"
        );
    }
}

/// Releases a session that this process owns, or may own after a claim whose answer was lost.
/// Retries for as long as the boot lives: renewals would otherwise keep a session that nobody works
/// on.
async fn disown(kernel: &Kernel, key: SessionKey, token: LeaseToken, lost: ReleaseLoss) {
    let mut outage = Outage::default();
    // A boot that ends releases everything by itself.
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

/// The initial state of a run of a session.
struct Opened {
    key: SessionKey,
    lease: Lease,
    seated: bool,
    spent: Spent,
    /// The `context_version` of the window.
    version: i64,
    /// `None` if the known part of the transcript has a gap.
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
    // A window cached under another version was not compared with what the claim returned.
    let version = counters.context_version;
    let is_of_now = |cached: &Cached| {
        cached.version == version && cached.window.next_seq() <= counters.next_seq
    };
    let cached = cached.filter(is_of_now);
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

/// Runs sends under a lease. Sends wait for their model inside this future, so whatever is large is
/// boxed, or moved out before an await.
async fn held(
    kernel: &Arc<Kernel>,
    claimed: Box<Claimed>,
    (cached, losses): (Option<Cached>, u64),
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
            // Something changed that the next send would not see, or the agent of the previous send
            // had a shorter window than this one needs.
            version = counters.context_version;
            let Some(reloaded) = Box::pin(reload(kernel, key, send, counters.next_seq)).await
            else {
                Box::pin(release(kernel, key, lease, lost)).await;
                return;
            };
            window = reloaded;
        }
        in_a_row += 1;
        // The next send queues behind the sessions that wait for this seat.
        let more = !seated && in_a_row < kernel.parts.config.sends_in_a_row_max;
        let then = if more {
            AfterSend::Continue
        } else {
            AfterSend::Release
        };
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
        losses,
        agent,
    };
    kernel.kept.cache.put(key, cached);
}

/// Whether the session belongs to another pool: it was enqueued, or last run, before its agent was
/// changed to one of that pool.
async fn belongs_elsewhere(kernel: &Kernel, key: SessionKey, send: &StartedSend) -> bool {
    let pool = &kernel.parts.config.pool;
    if send.agent.pool() == pool {
        return false;
    }
    // A started send keeps its agent, but the session's agent decides where it is enqueued.
    match kernel.parts.store.get_session(key).await {
        Ok(Some(session)) => session.agent.pool() != pool,
        // Nothing runs unless it is known to be allowed here.
        Ok(None) | Err(_) => true,
    }
}

/// The span of this worker's work on a send.
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

/// Creates the run of a send and registers it so that others can signal it.
fn begin<'a>(kernel: &'a Arc<Kernel>, turn: LeasedSend<'a>) -> Box<Run<'a>> {
    let control = Control {
        send: turn.begins.0.record.id,
        handles: turn.handles.clone(),
    };
    kernel.running.at(turn.begins.0.record.key, control);
    Box::new(Run::new(kernel, turn))
}

/// Releases a session as it is: it stays ready for the sweep and for other workers.
async fn release(kernel: &Kernel, key: SessionKey, lease: Lease, lost: &CancellationToken) {
    if !lost.is_cancelled() {
        disown(kernel, key, lease.token, ReleaseLoss::Nothing).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of<A, F: Future>(_: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }

    /// Thousands of sends wait at once, so whatever is large and not needed meanwhile is boxed.
    #[test]
    fn a_send_that_waits_keeps_little() {
        let task = bytes_of(|(kernel, key): (&'static Arc<Kernel>, SessionKey)| run(kernel, key));
        let driven = bytes_of(|run: &'static mut Run<'static>| run.drive());
        let state = size_of::<Run<'static>>();
        assert!(task + driven + state < 8 << 10, "{task} {driven} {state}");
    }
}
