//! The sweep: sessions that have work and that nobody seems to know of are rung for again.
//!
//! It covers crashes, lost rings and emptied queues, and it feeds a queue that cannot hold all
//! that is ready. Any number of schedulers may sweep: a ring too many costs a claim that fails.

use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::agent::{DEFAULT_POOL, Priority};
use mainspring_shared::id::SessionKey;
use mainspring_shared::queue::Lane;
use mainspring_shared::store::{self, ReadySession, Role, SweepReady};
use mainspring_shared::time::Timestamp;

use super::{Health, jittered, pause};
use crate::app::App;
use crate::metrics::SWEPT;
use crate::ring::{by_lane, pack};

/// Sessions read at once.
const PAGE: u32 = 256;

/// Pages read of a pool in one pass: enough to fill both lanes. What lies behind comes next time,
/// so that a backlog for a full lane is not read to its end again and again.
const PAGES_MAX: u32 = 40;

/// Where the sweep of a pool goes on: behind what it last rang for.
type Cursors = BTreeMap<String, (Timestamp, SessionKey)>;

/// Sweeps until a stop begins.
pub(crate) async fn run(app: &App) {
    let mut health = Health::new("sweep");
    let mut cursors = Cursors::new();
    loop {
        let wait = match sweep(app, &mut cursors).await {
            Ok(more) => {
                health.works();
                let interval = app.config.sweep_interval;
                jittered(app, if more { interval / 4 } else { interval })
            }
            Err(error) => health.fails(&error, app.entropy.fraction()),
        };
        if !pause(app, wait).await {
            return;
        }
    }
}

/// One pass over the pools that have workers. True when a queue took all that it wanted before
/// all was rung for.
async fn sweep(app: &App, cursors: &mut Cursors) -> Result<bool, store::Error> {
    let boots = app.store.list_boots(None).await?;
    let served = boots.into_iter().filter(|boot| boot.role == Role::Worker);
    let mut pools: BTreeSet<String> = served
        .filter(|boot| boot.dead_at.is_none())
        .map(|boot| boot.pool)
        .collect();
    pools.insert(DEFAULT_POOL.to_owned());
    cursors.retain(|pool, _| pools.contains(pool));
    let mut more = false;
    for pool in pools {
        more |= sweep_pool(app, cursors, pool).await?;
    }
    Ok(more)
}

async fn sweep_pool(app: &App, cursors: &mut Cursors, pool: String) -> Result<bool, store::Error> {
    let mut room = Room::of(app, &pool).await;
    if room.is_empty() {
        return Ok(false);
    }
    // Without a cursor this pass begins with the oldest and ends with the youngest. With one it
    // ends at the end, and the next begins anew: what it rings for again has waited a whole round.
    let mut after = cursors.remove(&pool);
    let mut pages = 0;
    let mut rung = 0;
    loop {
        let query = SweepReady {
            pool: Some(pool.clone()),
            older_than_ms: i64::try_from(app.config.sweep_age.as_millis()).unwrap_or(i64::MAX),
            after,
            limit: PAGE,
        };
        let swept = app.store.sweep_ready(None, query).await?;
        let last = swept
            .sessions
            .last()
            .map(|session| (session.ready_since, session.key));
        rung += ring(app, &mut room, swept.sessions).await;
        after = swept.next;
        pages += 1;
        if after.is_none() && !room.is_empty() {
            return Ok(false);
        }
        if room.is_empty() || pages == PAGES_MAX || app.lifecycle.is_stopping() {
            if let Some(last) = last {
                cursors.insert(pool, last);
            }
            return Ok(rung > 0);
        }
    }
}

/// Jobs that the lanes of one pool still want.
struct Room(BTreeMap<Lane, u64>);

impl Room {
    async fn of(app: &App, pool: &str) -> Self {
        let mut lanes = BTreeMap::new();
        for priority in [Priority::High, Priority::Low] {
            let lane = Lane {
                pool: pool.to_owned(),
                priority,
            };
            // A queue that is away takes nothing: its workers poll the database meanwhile.
            if let Some(depth) = app.queue.depth(&lane).await
                && depth <= app.config.sweep_depth_low
            {
                lanes.insert(lane, app.config.sweep_depth_high.saturating_sub(depth));
            }
        }
        Self(lanes)
    }

    fn is_empty(&self) -> bool {
        self.0.values().all(|room| *room == 0)
    }
}

/// Pushes sessions into the lanes that want them. Returns how many went.
async fn ring(app: &App, room: &mut Room, sessions: Vec<ReadySession>) -> u64 {
    let mut rung = 0;
    for (lane, sessions) in by_lane(sessions) {
        let Some(left) = room.0.get_mut(&lane).filter(|left| **left > 0) else {
            continue;
        };
        let count = sessions.len() as u64;
        let jobs = pack(sessions);
        *left = left.saturating_sub(jobs.len() as u64);
        if app.queue.push(&lane, jobs).await {
            rung += count;
        } else {
            *left = 0;
        }
    }
    metrics::counter!(SWEPT).increment(rung);
    rung
}
