//! Retention: removes old rows, in small transactions.

mod idle;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use mainspring_shared::id::{BootId, RunId, SendId, SessionId, SessionKey, TenantId, first_id};
use mainspring_shared::store::{
    self, ListRuns, ListTenants, ReadNodes, RetireDeliveries, RetireSends,
};
use mainspring_shared::time::{Span, Timestamp};
use mainspring_shared::workflow::nodes::Lifecycle;
use mainspring_shared::workflow::run::{DETACHED, RunRecord};

use super::{Health, causes, jittered, pause};
use crate::app::App;
use crate::deleting;
use crate::metrics::{RETENTION_SKIPPED, RETIRED};
use crate::services::pressure::Work;

/// Consecutive rounds before the loop pauses, to leave capacity for other work.
const ROUNDS_MAX: u32 = 100;

/// Sends per transaction, and nodes per read.
const PAGE: u32 = 500;

/// Runs per pass.
const RUNS: u32 = 20;

/// A retention period that never expires.
const FOR_EVER: Duration = Duration::from_hours(1_000_000);

/// Removes old rows until shutdown.
pub(crate) async fn run(app: &App) {
    let mut health = Health::new("retention");
    let mut progress = Progress::default();
    loop {
        let mut wait = jittered(app, app.config.retention_interval);
        for _ in 0..ROUNDS_MAX {
            if app.acceptor.refuses(Work::Bulk) {
                // Old rows can wait a little longer.
                break;
            }
            match sweep(app, &mut progress).await {
                Ok(rows) => {
                    health.succeeded();
                    metrics::counter!(RETIRED).increment(rows);
                    progress.removed += rows;
                    // A page with nothing to remove may be followed by pages with something.
                    if progress.tenants.is_empty() && std::mem::take(&mut progress.removed) == 0 {
                        break;
                    }
                }
                Err(error) => {
                    wait = health.failed(&error, app.entropy.fraction());
                    break;
                }
            }
            if app.process.lifecycle.is_stopping() {
                return;
            }
        }
        if !pause(app, wait).await {
            return;
        }
    }
}

/// The progress of the current pass over all tenants.
#[derive(Debug, Default)]
struct Progress {
    /// Tenants still to be processed, the current one first; empty at the start of a pass.
    tenants: VecDeque<TenantId>,
    /// The current tenant's cursors.
    send: Option<SendId>,
    run: Option<RunId>,
    session: Option<SessionId>,
    /// Rows that this pass removed.
    removed: u64,
    /// Tenants known to have no sends left from leaves of removed runs. Empty at first, because an
    /// earlier process may have removed runs.
    swept: BTreeSet<TenantId>,
    /// Old sends and runs that this pass has kept.
    skipped: Skipped,
}

/// Old sends and runs that were kept, because they are open or still needed.
#[derive(Debug, Default)]
struct Skipped {
    sends: u64,
    runs: u64,
    sessions: u64,
}

impl Skipped {
    /// Publishes and resets a count at the end of a pass.
    fn show(count: &mut u64, kind: &'static str) {
        metrics::gauge!(RETENTION_SKIPPED, "kind" => kind).set(std::mem::take(count) as f64);
    }
}

impl Progress {
    /// The current tenant. After the last one, a new pass starts with the first.
    async fn tenant(&mut self, app: &App) -> Result<TenantId, store::Error> {
        if self.tenants.is_empty() {
            self.tenants = all_tenants(app).await?;
        }
        Ok(self.tenants.front().copied().unwrap_or(TenantId::DEFAULT))
    }

    /// Moves on to the next tenant once the current one has no pages left.
    fn advance(&mut self) {
        if self.send.is_some() || self.run.is_some() || self.session.is_some() {
            return;
        }
        self.tenants.pop_front();
        if self.tenants.is_empty() {
            Skipped::show(&mut self.skipped.sends, "send");
            Skipped::show(&mut self.skipped.runs, "run");
            Skipped::show(&mut self.skipped.sessions, "session");
        }
    }
}

async fn all_tenants(app: &App) -> Result<VecDeque<TenantId>, store::Error> {
    let mut all = VecDeque::new();
    loop {
        let query = ListTenants {
            after: all.back().copied(),
            limit: PAGE,
        };
        let page = app.store.list_tenants(query).await?;
        all.extend(page.data.iter().map(|tenant| tenant.id));
        if !page.more || page.data.is_empty() {
            return Ok(all);
        }
    }
}

/// Removes one page of each kind, starting at `progress`. Returns the number of removed rows.
async fn sweep(app: &App, progress: &mut Progress) -> Result<u64, store::Error> {
    let config = &app.config;
    let tenant = progress.tenant(app).await?;
    // Read again for each page, so that a hold set in the meantime takes effect.
    let own = app.store.get_tenant(tenant).await?;
    let own = own.map(|tenant| tenant.retention).unwrap_or_default();
    let least = config.idempotency_keep;
    let mut rows = app.store.sweep_retention(least).await?;
    rows += app.store.sweep_timers(config.timer_keep).await?;
    rows += app.store.expire_memories(PAGE).await?;
    let old = RetireDeliveries {
        keep: config.webhook_keep,
        limit: PAGE,
    };
    rows += app.store.retire_deliveries(old).await?;
    if own.hold {
        (progress.send, progress.run, progress.session) = (None, None, None);
        progress.advance();
        return Ok(rows);
    }
    // A repeated request must find its result for as long as its idempotency key is kept.
    let kept = |own: Option<Span>, all: Option<Duration>| {
        own.map(|own| own.0).or(all).map(|keep| keep.max(least))
    };
    let send_keep = kept(own.sends, config.send_keep);
    let run_keep = kept(own.runs, config.run_keep);
    if let Some(keep) = kept(own.sessions, config.session_keep) {
        rows += idle::sweep(app, tenant, keep, progress).await?;
    }
    if let Some(keep) = run_keep {
        let removed = runs(app, tenant, keep, progress).await?;
        if removed > 0 {
            progress.swept.remove(&tenant);
        }
        rows += removed;
    }
    // If sends are kept forever, only those of removed runs' leaves have to be found.
    let left = !progress.swept.contains(&tenant);
    let wanted = send_keep.is_some() || left || progress.send.is_some();
    let young = send_keep.into_iter().chain(run_keep).min();
    if let Some(young) = young.filter(|_| wanted) {
        if progress.send.is_none() {
            progress.swept.insert(tenant);
        }
        let query = RetireSends {
            tenant,
            keep: send_keep.unwrap_or(FOR_EVER),
            young,
            after: progress.send,
            limit: PAGE,
        };
        let retired = app.store.retire_sends(query).await?;
        progress.send = retired.next;
        progress.skipped.sends += retired.skipped;
        rows += retired.rows;
    }
    progress.advance();
    Ok(rows)
}

/// Checks one page of old runs, newest first. Removes the sessions of the leaves of those that
/// ended before the limit, and then the runs.
async fn runs(
    app: &App,
    tenant: TenantId,
    keep: Duration,
    progress: &mut Progress,
) -> Result<u64, store::Error> {
    let Some(boot) = app.process.registration.id() else {
        return Ok(0);
    };
    let before = Timestamp(app.store.now().await?.0 - keep.as_millis() as i64);
    let query = ListRuns {
        tenant,
        before: Some(progress.run.unwrap_or_else(|| RunId(first_id(before)))),
        status: None,
        session: None,
        limit: RUNS,
    };
    let page = app.store.list_runs(query).await?;
    let last = page.data.last().map(|run| run.key.run);
    let mut old = Vec::new();
    for run in &page.data {
        if run.finished_at.is_some_and(|ended| ended >= before) {
            continue;
        }
        if run.finished_at.is_none() {
            progress.skipped.runs += 1;
            continue;
        }
        // A run whose leaves cannot be removed must not block the others.
        let removed = match remove_leaves(app, run, boot).await {
            Ok(()) => true,
            Err(error) if error.is_of_data() => {
                let error = causes(&error);
                tracing::warn!(
                    run.id = %run.key.run,
                    error,
                    "could not remove the leaves of a run; keeping the run for now"
                );
                false
            }
            Err(error) => return Err(error),
        };
        if removed {
            old.push(run.key);
        } else {
            progress.skipped.runs += 1;
        }
    }
    progress.run = last.filter(|_| page.more);
    if old.is_empty() {
        return Ok(0);
    }
    app.store.forget_runs(old).await
}

/// Whether a leaf's session is detached from its run.
async fn is_detached(app: &App, key: SessionKey) -> Result<bool, store::Error> {
    let found = app.store.get_session(key).await?;
    Ok(found.is_some_and(|session| session.metadata.contains_key(DETACHED)))
}

/// Deletes the sessions of all attempts of a run's leaves, except for detached ones.
async fn remove_leaves(app: &App, run: &RunRecord, boot: BootId) -> Result<(), store::Error> {
    // Sessions are only read if the spec has detached leaves, which is rare.
    let keeps_detached = run.spec.to_string().contains(Lifecycle::Detached.as_str());
    let run = run.key;
    let mut after = 0;
    loop {
        let query = ReadNodes {
            key: run,
            prefix: None,
            after,
            limit: PAGE,
        };
        let nodes = app.store.read_nodes(query).await?;
        for node in &nodes {
            let earlier = node.earlier.iter().filter_map(|attempt| attempt.session_id);
            for session in earlier.chain(node.session) {
                let key = SessionKey {
                    tenant: run.tenant,
                    session,
                };
                if keeps_detached && is_detached(app, key).await? {
                    continue;
                }
                deleting::delete(app, boot, key).await?;
            }
        }
        match nodes.last() {
            Some(last) if nodes.len() == PAGE as usize => after = last.n,
            _ => return Ok(()),
        }
    }
}
