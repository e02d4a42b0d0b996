//! The sweep re-enqueues ready sessions that no worker has claimed.
//!
//! It covers crashes, lost jobs and flushed queues, and refills a queue that cannot hold all ready
//! sessions. Any number of schedulers may sweep: a duplicate job only costs a failed claim.

use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::agent::{DEFAULT_POOL, Priority};
use mainspring_shared::id::SessionKey;
use mainspring_shared::queue::{ACTIVATION_SESSIONS_MAX, Lane};
use mainspring_shared::store::{self, CalledSeats, ReadySession, Role, SweepReady};
use mainspring_shared::time::Timestamp;

use super::{Health, jittered, orphans, pause};
use crate::app::App;
use crate::deleting;
use crate::metrics::{MONEY_LEFT, QUEUE_OLDEST, QUEUE_READY, QUEUE_RUNNING, SEATS_WAITING, SWEPT};
use crate::services::claims;
use crate::services::notify::pack;

/// Sessions per read.
const PAGE: u32 = 256;

/// Pages per pool and pass: enough to fill both lanes. The next pass reads the rest, so that a
/// backlog for a full lane is not read to its end every time.
const PAGES_MAX: u32 = 40;

/// Maximum number of sends per transaction that are woken after a pause.
pub(crate) const WOKEN: u32 = 500;

/// Maximum number of dead workers' reservations that are settled at once.
const MONEY_SWEPT: u32 = 500;

/// Every how many passes orphans are swept, which is not urgent.
const ORPHANS_EVERY: u32 = 5;

/// Every how many passes the queue metrics are measured.
const MEASURED_EVERY: u32 = 15;

/// The last session that was enqueued; the next pass over the lane continues after it.
type Cursor = (Timestamp, SessionKey);

/// The cursors of lanes that became full.
type LaneCursors = BTreeMap<Lane, Cursor>;

/// Sweeps until shutdown.
pub(crate) async fn run(app: &App) {
    let mut health = Health::new("sweep");
    let mut cursors = LaneCursors::new();
    let mut resumed = Health::new("resumed");
    let mut seats = Health::new("seats");
    let mut money = Health::new("money");
    let mut lapses = Health::new("lapses");
    let mut deletions = Health::new("deletions");
    let mut deleted = None;
    let mut orphaned = Health::new("orphans");
    let mut looked = None;
    let (mut passes, mut is_due) = (0_u32, false);
    let mut measured = Measured::default();
    loop {
        let interval = app.config.sweep_interval;
        let mut wait = match sweep(app, &mut cursors).await {
            Ok(more) => {
                health.succeeded();
                jittered(app, if more { interval / 4 } else { interval })
            }
            Err(error) => health.failed(&error, app.entropy.fraction()),
        };
        if passes.is_multiple_of(MEASURED_EVERY) {
            measured.look(app).await;
        }
        let woken = app.store.wake_paused(WOKEN).await;
        let mut more = resumed.record(app, woken.map(|woken| woken >= WOKEN));
        let called = app.store.call_seats(None).await;
        seats.record(app, called.map(|called| note_called(app, called)));
        let swept = app.store.sweep_money(MONEY_SWEPT).await;
        more |= money.record(app, swept.map(note_swept));
        more |= lapses.record(app, claims::sweep(app).await);
        // Deletions come after the ready sessions, since they are not urgent.
        let deleted = deleting::sweep(app, &mut deleted).await;
        more |= deletions.record(app, deleted);
        passes = passes.wrapping_add(1);
        is_due |= passes.is_multiple_of(ORPHANS_EVERY);
        if is_due {
            let ended = orphans::sweep(app, &mut looked).await;
            is_due = ended.is_err() || looked.is_some();
            more |= orphaned.record(app, ended);
        }
        if more {
            wait = wait.min(interval / 4);
        }
        if !pause(app, wait).await {
            return;
        }
    }
}

/// Enqueues the sessions that were given a seat. Returns false: nothing more is to be done at once.
pub(crate) fn note_called(app: &App, called: CalledSeats) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "nobody has so many sessions")]
    metrics::gauge!(SEATS_WAITING).set(called.waiting as f64);
    app.notifier.enqueue(called.enqueue);
    false
}

/// Reports the reservations that dead workers left behind. Returns true if there may be more.
fn note_swept(swept: u32) -> bool {
    metrics::counter!(MONEY_LEFT).increment(u64::from(swept));
    if swept > 0 {
        tracing::warn!(
            calls = swept,
            "charging calls of dead workers at their maximum: their cost was never recorded"
        );
    }
    swept >= MONEY_SWEPT
}

/// The pools that metrics are set for: the default pool, and all that have had work.
#[derive(Debug)]
struct Measured {
    pools: BTreeSet<String>,
}

impl Default for Measured {
    fn default() -> Self {
        Self {
            pools: BTreeSet::from([DEFAULT_POOL.to_owned()]),
        }
    }
}

impl Measured {
    /// Sets the metrics of each pool: how many sessions wait and run.
    async fn look(&mut self, app: &App) {
        let Ok(found) = app.store.queue_stats().await else {
            // The sweep itself reports that the database is unavailable.
            return;
        };
        self.pools
            .extend(found.iter().map(|stats| stats.pool.clone()));
        for pool in &self.pools {
            let stats = found.iter().find(|stats| stats.pool == *pool);
            let counts = stats.map_or((0, 0), |stats| (stats.ready, stats.running));
            let oldest = stats.map_or(0, |stats| stats.oldest_ready_ms);
            set(pool, counts, std::time::Duration::from_millis(oldest));
        }
    }
}

fn set(pool: &str, (ready, running): (u64, u64), oldest: std::time::Duration) {
    let pool = metrics::SharedString::from(pool.to_owned());
    #[expect(clippy::cast_precision_loss, reason = "nobody has so many sessions")]
    let (ready, running) = (ready as f64, running as f64);
    metrics::gauge!(QUEUE_READY, "pool" => pool.clone()).set(ready);
    metrics::gauge!(QUEUE_RUNNING, "pool" => pool.clone()).set(running);
    metrics::gauge!(QUEUE_OLDEST, "pool" => pool).set(oldest.as_secs_f64());
}

/// Makes one pass over the pools that have workers. Returns true if a lane became full and more
/// sessions are ready.
async fn sweep(app: &App, cursors: &mut LaneCursors) -> Result<bool, store::Error> {
    let boots = app.store.list_boots().await?;
    let served = boots.into_iter().filter(|boot| boot.role == Role::Worker);
    let mut pools: BTreeSet<String> = served
        .filter(|boot| boot.dead_at.is_none())
        .map(|boot| boot.pool)
        .collect();
    pools.insert(DEFAULT_POOL.to_owned());
    cursors.retain(|lane, _| pools.contains(&lane.pool));
    let mut more = false;
    for pool in pools {
        // Lanes with the same cursor, usually none, share a pass.
        let mut passes: BTreeMap<Option<Cursor>, Vec<OpenLane>> = BTreeMap::new();
        for open_lane in open_lanes(app, &pool).await {
            let from = cursors.get(&open_lane.lane).copied();
            passes.entry(from).or_default().push(open_lane);
        }
        for (from, lanes) in passes {
            more |= pass(app, cursors, &pool, from, lanes).await?;
        }
    }
    Ok(more)
}

/// A lane with free capacity.
struct OpenLane {
    lane: Lane,
    jobs_left: u64,
}

async fn open_lanes(app: &App, pool: &str) -> Vec<OpenLane> {
    let mut lanes = Vec::new();
    for priority in [Priority::High, Priority::Low] {
        let lane = Lane {
            pool: pool.to_owned(),
            priority,
        };
        // An unavailable queue accepts nothing. Its workers poll the database in the meantime.
        if let Some(depth) = app.notifier.queue.depth(&lane).await
            && depth <= app.config.sweep_depth_low
        {
            let jobs_left = app.config.sweep_depth_high.saturating_sub(depth);
            lanes.push(OpenLane { lane, jobs_left });
        }
    }
    lanes
}

/// Enqueues the ready sessions after `from` until the lanes are full. Returns true if one of them
/// became full.
async fn pass(
    app: &App,
    cursors: &mut LaneCursors,
    pool: &str,
    from: Option<Cursor>,
    mut lanes: Vec<OpenLane>,
) -> Result<bool, store::Error> {
    let mut filled = false;
    let mut after = from;
    for _ in 0..PAGES_MAX {
        let query = SweepReady {
            pool: Some(pool.to_owned()),
            older_than_ms: i64::try_from(app.config.sweep_age.as_millis()).unwrap_or(i64::MAX),
            after,
            limit: PAGE,
        };
        let swept = app.store.sweep_ready(query).await?;
        let mut open = Vec::new();
        for mut open_lane in lanes {
            match fill(app, &mut open_lane, &swept.sessions).await {
                Fill::Open => open.push(open_lane),
                Fill::Full(last) => {
                    filled = true;
                    cursors.insert(open_lane.lane, last);
                }
                // The queue rejected jobs: the next pass retries.
                Fill::Refused => {}
            }
        }
        lanes = open;
        after = swept.next;
        if after.is_none() || lanes.is_empty() || app.process.lifecycle.is_stopping() {
            break;
        }
    }
    // At the end of the list, a lane starts over, so a session is re-enqueued after a whole pass at
    // the earliest.
    for open_lane in lanes {
        match after {
            Some(cursor) => cursors.insert(open_lane.lane, cursor),
            None => cursors.remove(&open_lane.lane),
        };
    }
    Ok(filled)
}

/// The outcome of filling a lane.
enum Fill {
    /// It has capacity left.
    Open,
    /// It is full; the next pass continues after this session.
    Full(Cursor),
    /// The queue rejected jobs.
    Refused,
}

/// Enqueues the sessions of a page that belong to a lane.
async fn fill(app: &App, open_lane: &mut OpenLane, page: &[ReadySession]) -> Fill {
    let OpenLane { lane, jobs_left } = open_lane;
    let mine = page
        .iter()
        .filter(|session| session.priority == lane.priority && session.pool == lane.pool);
    let fits = (*jobs_left as usize).saturating_mul(ACTIVATION_SESSIONS_MAX);
    let mine: Vec<_> = mine.take(fits).collect();
    let Some(last) = mine.last() else {
        return Fill::Open;
    };
    let last = (last.ready_since, last.key);
    let count = mine.len() as u64;
    let jobs = pack(&mine.iter().map(|session| session.key).collect::<Vec<_>>());
    *jobs_left = jobs_left.saturating_sub(jobs.len() as u64);
    if !app.notifier.queue.push(lane, jobs).await {
        return Fill::Refused;
    }
    metrics::counter!(SWEPT).increment(count);
    if *jobs_left == 0 {
        Fill::Full(last)
    } else {
        Fill::Open
    }
}
