//! The sweep: sessions that have work and that nobody seems to know of are rung for again.
//!
//! It covers crashes, lost rings and emptied queues, and it feeds a queue that cannot hold all
//! that is ready. Any number of schedulers may sweep: a ring too many costs a claim that fails.

use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::agent::{DEFAULT_POOL, Priority};
use mainspring_shared::id::SessionKey;
use mainspring_shared::queue::{ACTIVATION_SESSIONS_MAX, Lane};
use mainspring_shared::store::{self, ReadySession, Role, SweepReady};
use mainspring_shared::time::Timestamp;

use super::{Health, below, jittered, pause};
use crate::app::App;
use crate::deleting;
use crate::metrics::SWEPT;
use crate::services::notify::pack;

/// Sessions read at once.
const PAGE: u32 = 256;

/// Pages read of a pool in one pass: enough to fill both lanes. What lies behind comes next time,
/// so that a backlog for a full lane is not read to its end again and again.
const PAGES_MAX: u32 = 40;

/// Passes from one look for orphans to the next: nobody waits for one.
const ORPHANS_EVERY: u32 = 5;

/// Where the next pass over a lane goes on: behind what was last brought into it.
type Place = (Timestamp, SessionKey);

/// Lanes that were filled before their end was reached.
type Cursors = BTreeMap<Lane, Place>;

/// Sweeps until a stop begins.
pub(crate) async fn run(app: &App) {
    let mut health = Health::new("sweep");
    let mut cursors = Cursors::new();
    let mut deletions = Health::new("deletions");
    let mut deleted = None;
    let mut orphaned = Health::new("orphans");
    let mut looked = None;
    let (mut passes, mut is_due) = (0_u32, false);
    loop {
        let interval = app.config.sweep_interval;
        let mut wait = match sweep(app, &mut cursors).await {
            Ok(more) => {
                health.works();
                jittered(app, if more { interval / 4 } else { interval })
            }
            Err(error) => health.fails(&error, app.entropy.fraction()),
        };
        // Behind what has to be rung for: nobody waits for these.
        let deleted = deleting::sweep(app, &mut deleted).await;
        let mut more = deletions.tells(app, deleted);
        passes = passes.wrapping_add(1);
        is_due |= passes.is_multiple_of(ORPHANS_EVERY);
        if is_due {
            let ended = below::sweep(app, &mut looked).await;
            is_due = ended.is_err() || looked.is_some();
            more |= orphaned.tells(app, ended);
        }
        if more {
            wait = wait.min(interval / 4);
        }
        if !pause(app, wait).await {
            return;
        }
    }
}

/// One pass over the pools that have workers. True when a lane was filled and more is ready.
async fn sweep(app: &App, cursors: &mut Cursors) -> Result<bool, store::Error> {
    let boots = app.store.list_boots(None).await?;
    let served = boots.into_iter().filter(|boot| boot.role == Role::Worker);
    let mut pools: BTreeSet<String> = served
        .filter(|boot| boot.dead_at.is_none())
        .map(|boot| boot.pool)
        .collect();
    pools.insert(DEFAULT_POOL.to_owned());
    cursors.retain(|lane, _| pools.contains(&lane.pool));
    let mut more = false;
    for pool in pools {
        // Lanes that go on at the same place, most of the time at the oldest, share a pass.
        let mut passes: BTreeMap<Option<Place>, Vec<Wanting>> = BTreeMap::new();
        for wanting in wanting(app, &pool).await {
            let from = cursors.get(&wanting.lane).copied();
            passes.entry(from).or_default().push(wanting);
        }
        for (from, lanes) in passes {
            more |= pass(app, cursors, &pool, from, lanes).await?;
        }
    }
    Ok(more)
}

/// A lane that has room, in jobs.
struct Wanting {
    lane: Lane,
    room: u64,
}

async fn wanting(app: &App, pool: &str) -> Vec<Wanting> {
    let mut lanes = Vec::new();
    for priority in [Priority::High, Priority::Low] {
        let lane = Lane {
            pool: pool.to_owned(),
            priority,
        };
        // A queue that is away takes nothing: its workers poll the database meanwhile.
        if let Some(depth) = app.notifier.queue.depth(&lane).await
            && depth <= app.config.sweep_depth_low
        {
            let room = app.config.sweep_depth_high.saturating_sub(depth);
            lanes.push(Wanting { lane, room });
        }
    }
    lanes
}

/// Brings the ready sessions behind `from` into the lanes, as far as these want. True when one of
/// them was filled.
async fn pass(
    app: &App,
    cursors: &mut Cursors,
    pool: &str,
    from: Option<Place>,
    mut lanes: Vec<Wanting>,
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
        let swept = app.store.sweep_ready(None, query).await?;
        let mut open = Vec::new();
        for mut wanting in lanes {
            match fill(app, &mut wanting, &swept.sessions).await {
                Fill::Open => open.push(wanting),
                Fill::Full(last) => {
                    filled = true;
                    cursors.insert(wanting.lane, last);
                }
                // It takes no more than it has: the same again next time.
                Fill::Refused => {}
            }
        }
        lanes = open;
        after = swept.next;
        if after.is_none() || lanes.is_empty() || app.lifecycle.is_stopping() {
            break;
        }
    }
    // Whoever has reached the end begins anew: what is rung for again has waited a whole round.
    for wanting in lanes {
        match after {
            Some(place) => cursors.insert(wanting.lane, place),
            None => cursors.remove(&wanting.lane),
        };
    }
    Ok(filled)
}

/// What became of a lane.
enum Fill {
    /// It wants more.
    Open,
    /// It has enough; the next pass goes on behind this.
    Full(Place),
    /// It took less than was offered.
    Refused,
}

/// Pushes the sessions of a page that belong into a lane.
async fn fill(app: &App, wanting: &mut Wanting, page: &[ReadySession]) -> Fill {
    let Wanting { lane, room } = wanting;
    let mine = page
        .iter()
        .filter(|session| session.priority == lane.priority && session.pool == lane.pool);
    let fits = (*room as usize).saturating_mul(ACTIVATION_SESSIONS_MAX);
    let mine: Vec<_> = mine.take(fits).collect();
    let Some(last) = mine.last() else {
        return Fill::Open;
    };
    let last = (last.ready_since, last.key);
    let count = mine.len() as u64;
    let jobs = pack(&mine.iter().map(|session| session.key).collect::<Vec<_>>());
    *room = room.saturating_sub(jobs.len() as u64);
    if !app.notifier.queue.push(lane, jobs).await {
        return Fill::Refused;
    }
    metrics::counter!(SWEPT).increment(count);
    if *room == 0 {
        Fill::Full(last)
    } else {
        Fill::Open
    }
}
