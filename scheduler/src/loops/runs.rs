//! Advances workflow runs that have new events.
//!
//! A scheduler caches the runs that it owns between advances. The cache is fenced by the run's
//! step, and dropped after every error. Any number of schedulers may run: each claims runs that no
//! live scheduler owns.

mod advance;
mod memory;
mod skipped;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use futures::StreamExt;
use mainspring_shared::bus::{Notice, RunNotice, Topic};
use mainspring_shared::id::{BootId, RunKey, SessionKey, TenantId};
use mainspring_shared::store::{self, AdvanceOutcome, AdvanceRun, ClaimRuns, RunNews, one_by_one};
use mainspring_shared::time::Timestamp;
use mainspring_shared::workflow::run::DSL_VERSION;

use self::advance::{Prepared, Start};
use self::memory::Memory;
use super::Health;
use super::orphans;
use crate::app::App;
use crate::deleting;
use crate::engine::ADVANCE_WORK;
use crate::metrics::{ADVANCE_ENDS, ADVANCES, ADVANCES_LOST};

/// Runs per claim.
const RUNS: u32 = 16;

/// Ended leaves per claim.
const ENDS: u32 = 512;

/// How many schedulers in a row may die of a run before it is failed: by then it is more likely
/// than chance that the run is the cause.
const CLAIMS_MAX: i32 = 3;

/// Maximum pause between two claims.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// Minimum pause: a run that stays due must not cause a busy loop.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// Advances runs until shutdown, then releases those it owns.
pub(crate) async fn run(app: &App) {
    let mut health = Health::new("runs");
    let mut memory = Memory::default();
    let mut notices = app.bus().subscribe(Topic::Runs).await;
    loop {
        let wait = match pass(app, &mut memory).await {
            Ok(wait) => {
                health.succeeded();
                wait
            }
            Err(error) => {
                memory.forget_all();
                health.failed(&error, app.entropy.fraction())
            }
        };
        let mut pause = app.clock.sleep(wait);
        loop {
            tokio::select! {
                biased;
                () = app.process.lifecycle.stopping() => {
                    release_all(app, &memory).await;
                    return;
                }
                notice = notices.next() => match notice {
                    Some(Notice::Payload(payload)) => {
                        if handle_notices(app, &payload) {
                            break;
                        }
                    }
                    Some(Notice::Gap) => break,
                    None => {
                        app.clock.sleep(PAUSE_MAX).await;
                        notices = app.bus().subscribe(Topic::Runs).await;
                        break;
                    }
                },
                () = app.notifier.runs_woken() => break,
                () = &mut pause => break,
            }
        }
    }
}

/// Wakes the watchers of advanced runs. Returns whether any run has new events.
fn handle_notices(app: &App, payload: &[u8]) -> bool {
    let notices: Vec<RunNotice> = match serde_json::from_slice(payload) {
        Ok(notices) => notices,
        Err(error) => {
            tracing::debug!(error = %error, "a notification could not be parsed");
            return false;
        }
    };
    let mut news = false;
    for notice in notices {
        match notice.step {
            Some(_) => app.watch.advanced(&notice.key),
            None => news = true,
        }
    }
    news
}

async fn release_all(app: &App, memory: &Memory) {
    let keys = memory.keys();
    if let Some(boot) = app.process.registration.id()
        && !keys.is_empty()
        && let Err(error) = app.store.release_runs(boot, keys).await
    {
        tracing::debug!(error = %error, "could not release runs; their leases will expire");
    }
}

/// Advances runs with new events. Returns the pause until the next pass.
async fn pass(app: &App, memory: &mut Memory) -> Result<Duration, store::Error> {
    let Some(boot) = app.process.registration.id() else {
        memory.forget_all();
        return Ok(PAUSE_MAX);
    };
    memory.belongs_to(boot);
    let claim = ClaimRuns {
        boot,
        limit: RUNS,
        ends_max: ENDS,
        leaves_max: app.config.leaves_max.map(NonZeroU32::get),
        dsl_max: DSL_VERSION,
        aside: memory.skipped.keys(),
    };
    let claimed = app.store.claim_runs(claim.clone()).await?;
    memory.skipped.tick(claimed.now);
    let share = claim.share(claimed.runs.len()) as usize;
    let more = claimed.runs.iter().any(|news| news.ends.len() >= share);
    let full = claimed.runs.len() >= RUNS as usize || more;
    let mut prepared = Vec::with_capacity(claimed.runs.len());
    let mut started = LeavesStarted::default();
    for mut news in claimed.runs {
        let tenant = news.key.tenant;
        news.live_max = news.live_max.map(|max| started.remaining(tenant, max));
        let key = news.key;
        if started.worked(tenant) >= ADVANCE_WORK {
            // Its tenant's other runs have done enough for this pass.
            memory.skipped.pause([key]);
            continue;
        }
        match prepare(app, memory, news, claimed.now).await {
            Ok(Some(one)) => {
                started.count(tenant, one.grown, one.worked);
                prepared.push(one);
            }
            Ok(None) => app.store.release_runs(boot, vec![key]).await?,
            Err(error) if error.is_of_data() => {
                memory.skipped.skip(key, &error.to_string());
                app.store.release_runs(boot, vec![key]).await?;
            }
            Err(error) => return Err(error),
        }
    }
    if !prepared.is_empty() {
        let Uncancelled { locked, unreadable } = cancel(app, boot, &prepared).await?;
        for key in &unreadable {
            if !memory.skipped.is_exhausted(*key) {
                memory
                    .skipped
                    .skip(*key, "a leaf to be cancelled cannot be read");
                app.store.release_runs(boot, vec![*key]).await?;
            }
        }
        // Their cached state already contains the advance, so it is dropped and they are loaded
        // again. A run that was looked at for long enough goes on without its leaf.
        prepared.retain(|one| {
            let key = &one.item.run.key;
            let waits = unreadable.contains(key) && !memory.skipped.is_exhausted(*key);
            !locked.contains(key) && !waits
        });
        memory.skipped.pause(locked);
        forget(app, boot, &prepared).await?;
        commit(app, boot, memory, prepared).await?;
        memory.shrink();
    }
    if full {
        return Ok(Duration::ZERO);
    }
    let until = claimed.next_alarm.map(|next| next.since(claimed.now));
    Ok(until.unwrap_or(PAUSE_MAX).clamp(PAUSE_MIN, PAUSE_MAX))
}

/// Leaves started by the advances of one pass, and their work, by tenant: slots taken by one run
/// are not available to the next.
#[derive(Default)]
struct LeavesStarted(BTreeMap<TenantId, (i64, u64)>);

impl LeavesStarted {
    fn remaining(&self, tenant: TenantId, max: u32) -> u32 {
        let (grown, _) = self.0.get(&tenant).copied().unwrap_or_default();
        (i64::from(max) - grown).clamp(0, i64::from(u32::MAX)) as u32
    }

    fn worked(&self, tenant: TenantId) -> u64 {
        self.0.get(&tenant).map_or(0, |(_, worked)| *worked)
    }

    fn count(&mut self, tenant: TenantId, grown: i64, worked: u64) {
        let so_far = self.0.entry(tenant).or_default();
        so_far.0 += grown;
        so_far.1 += worked;
    }
}

/// Applies new events to a run, loading it unless it is cached. Returns none if the run is skipped
/// because it cannot be read; a later release may be able to read it.
async fn prepare(
    app: &App,
    memory: &mut Memory,
    news: RunNews,
    now: Timestamp,
) -> Result<Option<Prepared>, store::Error> {
    let is_exhausted = memory.skipped.is_exhausted(news.key);
    if news.unreadable && !is_exhausted {
        memory.skipped.skip(news.key, "its news cannot be read");
        return Ok(None);
    }
    let start = match memory.take(news.key, news.step) {
        _ if news.claims > CLAIMS_MAX => memory::quarantined(app, news.key).await?,
        Some(kept) => Start::Kept(kept),
        None => memory::load(app, news.key, news.step, is_exhausted).await?,
    };
    let spare = is_exhausted.then(|| (start.record().clone(), news.clone()));
    let prepared = match (advance::prepare(app, start, news, now).await, spare) {
        // A row of one of its leaves cannot be read.
        (Err(error), Some((record, news))) if error.is_of_data() => {
            tracing::error!(
                run.id = %record.key.run,
                error = %error,
                "could not advance a run; failing it"
            );
            let start = Start::Broken(Box::new(record), memory::unreadable());
            advance::prepare(app, start, news, now).await?
        }
        (prepared, _) => prepared?,
    };
    Ok(Some(prepared))
}

/// Runs with a send that could not be cancelled.
#[derive(Default)]
struct Uncancelled {
    /// Its session is locked; the advance must wait.
    locked: BTreeSet<RunKey>,
    /// It cannot be read.
    unreadable: BTreeSet<RunKey>,
}

/// Cancels the sends that the advances want cancelled, before the advances are committed. If this
/// process dies in between, the next owner gets the ends as events and makes the same decisions.
async fn cancel(
    app: &App,
    boot: BootId,
    prepared: &[Prepared],
) -> Result<Uncancelled, store::Error> {
    let wanted = prepared.iter().flat_map(|one| {
        let key = one.item.run.key;
        one.cancel.iter().map(move |send| (key, *send))
    });
    let (runs, sends): (Vec<RunKey>, Vec<_>) =
        wanted.map(|(key, send)| (key, (key.tenant, send))).unzip();
    let mut left = Uncancelled::default();
    if sends.is_empty() {
        return Ok(left);
    }
    let mut ended = Vec::new();
    let outcomes = one_by_one(&sends, |sends| app.store.cancel_sends(boot, sends)).await?;
    for (run, outcome) in runs.into_iter().zip(outcomes) {
        let Some(outcome) = outcome else {
            left.unreadable.insert(run);
            continue;
        };
        match outcome {
            store::CancelOutcome::Signalled { send, .. } => app.notifier.signal(send.key, 0),
            store::CancelOutcome::Cancelled { send, enqueue, .. } => {
                app.notifier.enqueue(enqueue);
                ended.push((send.key, send.id));
            }
            store::CancelOutcome::Locked => {
                left.locked.insert(run);
            }
            store::CancelOutcome::AlreadyFinal(_) | store::CancelOutcome::NotFound => {}
        }
    }
    if !ended.is_empty() {
        // The ends are new events.
        app.notifier.wake_runs();
        orphans::cancel_work_of(app, boot, ended).await?;
    }
    Ok(left)
}

/// Deletes the sessions of ephemeral leaves before the advances are committed. The results of their
/// sends are kept, so that the next owner makes the same decisions if this process dies in between.
async fn forget(app: &App, boot: BootId, prepared: &[Prepared]) -> Result<(), store::Error> {
    for one in prepared {
        let tenant = one.item.run.key.tenant;
        for session in &one.forget {
            let session = *session;
            deleting::delete(app, boot, SessionKey { tenant, session }).await?;
        }
    }
    Ok(())
}

/// Commits advances, then publishes their notifications.
async fn commit(
    app: &App,
    boot: BootId,
    memory: &mut Memory,
    prepared: Vec<Prepared>,
) -> Result<(), store::Error> {
    if prepared.is_empty() {
        return Ok(());
    }
    let items: Vec<AdvanceRun> = prepared.iter().map(|one| one.item.clone()).collect();
    let outcomes = match app.store.advance_runs(boot, items).await {
        Ok(outcomes) => outcomes,
        Err(error) if error.is_of_data() && prepared.len() > 1 => {
            for one in prepared {
                let item = vec![one.item.clone()];
                match app.store.advance_runs(boot, item).await {
                    Ok(outcomes) => settle(app, memory, vec![one], outcomes),
                    Err(error) if error.is_of_data() => {
                        refused(app, boot, memory, &one, &error).await?;
                    }
                    Err(error) => return Err(error),
                }
            }
            return Ok(());
        }
        Err(error) if error.is_of_data() => {
            if let Some(one) = prepared.first() {
                refused(app, boot, memory, one, &error).await?;
            }
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    settle(app, memory, prepared, outcomes);
    Ok(())
}

/// Fails a run whose advance the database rejects, and cancels its leaves. If that is rejected too,
/// the run is skipped for a while.
async fn refused(
    app: &App,
    boot: BootId,
    memory: &mut Memory,
    one: &Prepared,
    error: &store::Error,
) -> Result<(), store::Error> {
    let key = one.item.run.key;
    tracing::error!(
        run.id = %key.run,
        error = super::causes(error),
        "the database rejected a run's advance; failing the run"
    );
    let found = app.store.get_runs(vec![key]).await?;
    let Some(record) = found.into_iter().flatten().next() else {
        return Ok(());
    };
    let (ends, asks) = (one.item.ends.clone(), one.item.asks.clone());
    let now = app.store.now().await?;
    let broken = Prepared {
        item: advance::broken(
            app,
            &record,
            &memory::unreadable(),
            one.item.step,
            (ends, asks),
            now,
        ),
        cancel: app.store.live_leaves(key).await?,
        forget: Vec::new(),
        grown: 0,
        worked: 0,
        kept: None,
    };
    let sends = std::slice::from_ref(&broken);
    // What cannot be read cannot be cancelled either; its run fails all the same.
    if !cancel(app, boot, sends).await?.locked.is_empty() {
        // The next pass retries; the sessions may be unlocked by then.
        memory.skipped.pause([key]);
        return Ok(());
    }
    let item = vec![broken.item.clone()];
    match app.store.advance_runs(boot, item).await {
        Ok(outcomes) => settle(app, memory, vec![broken], outcomes),
        Err(error) if error.is_of_data() => {
            memory.skipped.skip(key, &error.to_string());
            app.store.release_runs(boot, vec![key]).await?;
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Enqueues sessions, publishes notifications, and caches the runs.
fn settle(app: &App, memory: &mut Memory, prepared: Vec<Prepared>, outcomes: Vec<AdvanceOutcome>) {
    let mut notices = Vec::new();
    for (one, outcome) in prepared.into_iter().zip(outcomes) {
        let key = one.item.run.key;
        match outcome {
            AdvanceOutcome::Advanced {
                step,
                enqueue,
                notify,
            } => {
                memory.skipped.forget(key);
                metrics::counter!(ADVANCES).increment(1);
                metrics::histogram!(ADVANCE_ENDS).record(one.item.ends.len() as f64);
                app.notifier.enqueue(enqueue);
                if let Some((session, _)) = notify {
                    app.notifier
                        .signal(session, mainspring_shared::session::SIGNAL_INBOX);
                }
                app.watch.advanced(&key);
                notices.push(RunNotice {
                    key,
                    step: Some(step),
                });
                if let Some(kept) = one.kept
                    && !one.item.run.status.is_final()
                {
                    memory.keep(key, step, kept);
                }
            }
            AdvanceOutcome::NoRoom => {
                // Its events are still pending: the next pass loads the run again and starts fewer
                // leaves.
                tracing::debug!(
                    run.id = %key.run,
                    "other runs took the free slots for a run's leaves; will retry"
                );
                app.notifier.wake_runs();
            }
            AdvanceOutcome::Locked => {
                tracing::debug!(
                    run.id = %key.run,
                    "a run's advance needs a locked session; will retry"
                );
                memory.skipped.pause([key]);
            }
            AdvanceOutcome::Lost => {
                metrics::counter!(ADVANCES_LOST).increment(1);
                tracing::debug!(
                    run.id = %key.run,
                    "a run's advance was superseded; nothing was stored"
                );
            }
        }
    }
    app.notifier.publish_runs(&notices);
}
