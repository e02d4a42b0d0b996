//! Retention: what nobody can ask for any more is removed, a little at a time.

use std::time::Duration;

use mainspring_shared::id::{BootId, RunId, SendId, SessionKey, TenantId};
use mainspring_shared::store::{self, ListRuns, ReadNodes, RetireSends};
use mainspring_shared::time::Timestamp;
use mainspring_shared::workflow::nodes::Lifecycle;
use mainspring_shared::workflow::run::{DETACHED, RunRecord};
use uuid::Uuid;

use super::{Health, causes, jittered, pause};
use crate::app::App;
use crate::deleting;
use crate::metrics::{RETENTION_SKIPPED, RETIRED};

/// Removals in a row before the loop rests: other work gets its turn.
const ROUNDS_MAX: u32 = 100;

/// Sends that one transaction looks at, and nodes that are read at once.
const PAGE: u32 = 500;

/// Runs that are looked at before other work gets its turn.
const RUNS: u32 = 20;

/// Longer than anything is kept.
const FOR_EVER: Duration = Duration::from_hours(1_000_000);

/// Removes until a stop begins.
pub(crate) async fn run(app: &App) {
    let mut health = Health::new("retention");
    let mut place = Place {
        send: None,
        run: None,
        leaves: true,
        skipped: Skipped::default(),
    };
    loop {
        let mut wait = jittered(app, app.config.retention_interval);
        for _ in 0..ROUNDS_MAX {
            match sweep(app, &mut place).await {
                // Behind a page of sends that all stay there may be others.
                Ok(0) if place.is_start() => {
                    health.works();
                    break;
                }
                Ok(rows) => {
                    health.works();
                    metrics::counter!(RETIRED).increment(rows);
                }
                Err(error) => {
                    wait = health.fails(&error, app.entropy.fraction());
                    break;
                }
            }
            if app.lifecycle.is_stopping() {
                return;
            }
        }
        if !pause(app, wait).await {
            return;
        }
    }
}

/// Where the next pages begin; from the start when none.
#[derive(Debug)]
struct Place {
    send: Option<SendId>,
    run: Option<RunId>,
    /// Whether runs went whose leaves' sends may still be there: before this process, too.
    leaves: bool,
    /// What was left of sends and runs since the start.
    skipped: Skipped,
}

/// What is as old as what goes, and stays.
#[derive(Debug, Default)]
struct Skipped {
    sends: u64,
    runs: u64,
}

impl Skipped {
    /// Says how much of a kind a whole pass has left.
    fn show(count: &mut u64, kind: &'static str) {
        metrics::gauge!(RETENTION_SKIPPED, "kind" => kind).set(std::mem::take(count) as f64);
    }
}

impl Place {
    fn is_start(&self) -> bool {
        self.send.is_none() && self.run.is_none()
    }
}

/// Removes a little of each kind; returns how many rows went. Sends and runs are looked at page by
/// page, from `place` on.
async fn sweep(app: &App, place: &mut Place) -> Result<u64, store::Error> {
    let config = &app.config;
    let least = config.idempotency_keep;
    let mut rows = app.store.sweep_retention(None, least).await?;
    rows += app.store.sweep_timers(None, config.timer_keep).await?;
    // A repeated request finds what it made for as long as its key is known.
    let send_keep = config.send_keep.map(|keep| keep.max(least));
    let run_keep = config.run_keep.map(|keep| keep.max(least));
    if let Some(keep) = run_keep {
        let removed = runs(app, keep, place).await?;
        place.leaves |= removed > 0;
        rows += removed;
    }
    // Where sends stay for ever, they are gone through only for the leaves of runs that went.
    let wanted = send_keep.is_some() || place.leaves || place.send.is_some();
    let young = send_keep.into_iter().chain(run_keep).min();
    if let Some(young) = young.filter(|_| wanted) {
        if place.send.is_none() {
            place.leaves = false;
        }
        let query = RetireSends {
            tenant: TenantId::DEFAULT,
            keep: send_keep.unwrap_or(FOR_EVER),
            young,
            after: place.send,
            limit: PAGE,
        };
        let retired = app.store.retire_sends(None, query).await?;
        place.send = retired.next;
        place.skipped.sends += retired.skipped;
        if place.send.is_none() {
            Skipped::show(&mut place.skipped.sends, "send");
        }
        rows += retired.rows;
    }
    Ok(rows)
}

/// Looks at a page of the runs that were made long ago, newest first, and removes those that ended
/// long ago, after their leaves' sessions. A run that was not reached goes the next time.
async fn runs(app: &App, keep: Duration, place: &mut Place) -> Result<u64, store::Error> {
    let Some(boot) = app.registration.id() else {
        return Ok(0);
    };
    let before = Timestamp(app.store.now().await?.0 - keep.as_millis() as i64);
    let query = ListRuns {
        tenant: TenantId::DEFAULT,
        before: Some(place.run.unwrap_or_else(|| first_of(before))),
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
            place.skipped.runs += 1;
            continue;
        }
        // One whose leaves cannot be removed keeps no other one.
        let removed = match remove_leaves(app, run, boot).await {
            Ok(()) => true,
            Err(error) if error.is_of_data() => {
                let error = causes(&error);
                tracing::warn!(run.id = %run.key.run, error, "its leaves cannot be removed");
                false
            }
            Err(error) => return Err(error),
        };
        if removed {
            old.push(run.key);
        } else {
            place.skipped.runs += 1;
        }
    }
    place.run = last.filter(|_| page.more);
    if place.run.is_none() {
        Skipped::show(&mut place.skipped.runs, "run");
    }
    if old.is_empty() {
        return Ok(0);
    }
    app.store.forget_runs(old).await
}

/// An id before which are all that were made before this time: ids begin with their time.
fn first_of(at: Timestamp) -> RunId {
    RunId(Uuid::from_u128(u128::from(at.0.unsigned_abs()) << 80))
}

/// Whether a leaf's session is not its run's.
async fn is_detached(app: &App, key: SessionKey) -> Result<bool, store::Error> {
    let found = app.store.get_session(key).await?;
    Ok(found.is_some_and(|session| session.metadata.contains_key(DETACHED)))
}

/// Deletes the sessions of a run's leaves, those of all attempts, but for detached ones.
async fn remove_leaves(app: &App, run: &RunRecord, boot: BootId) -> Result<(), store::Error> {
    // Few runs have any: only their sessions are read.
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
