//! Turns between tenants on a queue that knows none.
//!
//! What a queue holds is served in the order in which it came. So that a tenant that floods it delays only
//! itself, little is in the queue: what a lane does not need yet is kept here, in the process that pushes,
//! and goes on the lane as workers empty it, tenant by tenant by their weights. How much a lane needs follows
//! from how fast it is emptied. A tenant with little to do never waits here, and passes what is on the lane. All
//! of it is a hint: what a process forgets when it ends, or has no room for, the sweep finds in the database.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use mainspring_shared::id::TenantId;
use mainspring_shared::queue::{
    ACTIVATION_SESSIONS_MAX, ACTIVATION_SPREAD, Activation, FairOrder, Handler, Lane, Queue,
};
use mainspring_shared::time::Clock;

/// Counter: sessions that waited for their tenant's turn before they went on the queue.
const HELD: &str = "mainspring_fair_held_total";
/// Gauge: sessions of this process that wait for their tenants' turns.
const HOLDING: &str = "mainspring_fair_waiting_sessions";

/// Sessions that are kept for one lane; the sweep brings what is beyond.
const HELD_MAX: usize = 16_384;
/// Jobs whose sizes are remembered; more than a lane is given at once.
const SIZES_MAX: usize = 4_096;
/// Lanes whose state is kept; far more than anybody has.
const LANES_MAX: usize = 1_024;
/// Weights that are known; those of others are 1.
const WEIGHTS_MAX: usize = 65_536;

/// Sessions that a lane has at least: fewer could leave a slot empty between two looks.
const WINDOW_MIN: u64 = 4;
/// What went lately is counted in parts of a session: of few, nothing would be left between two looks that follow
/// each other quickly.
const LATELY_UNIT: u128 = 1_000;
/// Sessions that a lane has at most.
const WINDOW_MAX: u64 = 2_048;
/// Between two looks at a lane that is emptied, and at one that is not.
const LOOK: Duration = Duration::from_millis(5);
const LOOK_IDLE: Duration = Duration::from_millis(20);
/// The same while a lane is empty and little was put on it: nobody knows yet how much it needs.
const LOOK_QUICK: Duration = Duration::from_millis(1);
/// For how long a look tells what a lane needs.
const LOOK_VALID: Duration = Duration::from_millis(50);

/// Sessions that a tenant of weight 1 may push in [`LIGHT_SPAN`] without waiting for its turn, as long as none
/// of its sessions wait.
const LIGHT: u32 = 4;
const LIGHT_SPAN: Duration = Duration::from_millis(250);
/// Tenants whose pushes are remembered longer than that.
const LIGHT_MAX: usize = 4_096;

/// A queue on which tenants take turns.
#[derive(Debug)]
pub struct FairQueue {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    inner: Arc<dyn Queue>,
    clock: Arc<dyn Clock>,
    /// Those other than 1.
    weights: RwLock<HashMap<TenantId, u32>>,
    lanes: Mutex<HashMap<Lane, LaneState>>,
}

/// What a process knows of a lane.
#[derive(Debug)]
struct LaneState {
    order: FairOrder,
    /// Whether somebody looks at the lane, and moves what is held onto it.
    moves: bool,
    /// When somebody looked at it last.
    looked_at: Duration,
    /// The sizes of the jobs that this process put on it and that it may have still, oldest first.
    sizes: VecDeque<usize>,
    /// Sessions that went in the last [`LOOK_VALID`].
    lately: u128,
    /// Sessions that it should have.
    window: u64,
    /// Sessions that may go on it before somebody looks at it again.
    room: u64,
    /// What tenants pushed without waiting, since when.
    light: BTreeMap<TenantId, (Duration, u32)>,
}

impl Default for LaneState {
    fn default() -> Self {
        Self {
            order: FairOrder::default(),
            moves: false,
            looked_at: Duration::ZERO,
            sizes: VecDeque::new(),
            lately: 0,
            window: WINDOW_MIN,
            room: WINDOW_MIN,
            light: BTreeMap::new(),
        }
    }
}

impl LaneState {
    /// Whether a session of a tenant may pass, because the tenant has had little to do.
    fn is_light(&mut self, tenant: TenantId, weight: u32, now: Duration) -> bool {
        if self.order.has(tenant) {
            return false;
        }
        if self.light.len() >= LIGHT_MAX {
            self.light
                .retain(|_, (since, _)| now.saturating_sub(*since) < LIGHT_SPAN);
        }
        let (since, pushed) = self.light.entry(tenant).or_insert((now, 0));
        if now.saturating_sub(*since) >= LIGHT_SPAN {
            (*since, *pushed) = (now, 0);
        }
        *pushed += 1;
        *pushed <= LIGHT.saturating_mul(weight)
    }

    /// Learns from a look at the lane how much it needs: what went since the look before, and a quarter more
    /// where it was empty. More would only wait there, in front of whoever comes. Returns how many sessions went.
    fn look(&mut self, now: Duration, jobs: u64) -> u64 {
        // The lane is emptied from its front: what it has is what went on it last. Of jobs of other processes
        // nobody here knows the size.
        let mine =
            usize::try_from(jobs).map_or(self.sizes.len(), |jobs| jobs.min(self.sizes.len()));
        let left = self.sizes.split_off(self.sizes.len() - mine);
        let gone = self.sizes.iter().sum::<usize>() as u64;
        self.sizes = left;
        let depth = self.sizes.iter().sum::<usize>() as u64 + (jobs - mine as u64);
        let (since, valid) = (now.saturating_sub(self.looked_at), LOOK_VALID.as_micros());
        let went = u128::from(gone) * LATELY_UNIT;
        let lately = if since < LOOK_VALID {
            // Of what went before, the part that is not too long ago yet.
            let still = valid - since.as_micros();
            went + self.lately * still / valid
        } else {
            went * valid / since.as_micros()
        };
        self.lately = lately.min(u128::from(WINDOW_MAX) * LATELY_UNIT);
        let need = u64::try_from(self.lately / LATELY_UNIT).unwrap_or(WINDOW_MAX);
        let more = if jobs == 0 { need / 4 } else { 0 };
        self.window = (need + more).clamp(WINDOW_MIN, WINDOW_MAX);
        self.room = self.window.saturating_sub(depth);
        self.looked_at = now;
        gone
    }

    /// Whether what a look told is too old; then little passes until there is another one.
    fn is_stale(&mut self, now: Duration) -> bool {
        let is_stale = now.saturating_sub(self.looked_at) > LOOK_VALID;
        if is_stale && !self.moves {
            self.room = self.room.min(WINDOW_MIN);
        }
        is_stale
    }

    /// Jobs went on the lane.
    fn went(&mut self, jobs: &[Activation]) {
        let sizes = jobs.iter().map(|job| job.sessions.len());
        self.sizes.extend(sizes);
        let beyond = self.sizes.len().saturating_sub(SIZES_MAX);
        self.sizes.drain(..beyond);
    }

    /// Takes what there is room for, in the tenants' turns, as jobs. Where a lane is emptied slowly a job is
    /// one session: the others of it would wait in a worker that has no slot for them. One that was found
    /// empty has workers to spare, and a job's fetch is shared by some sessions.
    fn next(&mut self, was_empty: bool, weight: impl Fn(TenantId) -> u32) -> Vec<Activation> {
        let mut sessions = Vec::new();
        while self.room > 0
            && let Some(key) = self.order.take(&weight)
        {
            self.room -= 1;
            sessions.push(key);
        }
        let least = if was_empty {
            (sessions.len() / 4).min(ACTIVATION_SPREAD)
        } else {
            1
        };
        let size = usize::try_from(self.window / 32).unwrap_or(1).max(least);
        let size = size.clamp(1, ACTIVATION_SESSIONS_MAX);
        let jobs = sessions.chunks(size).map(|sessions| Activation {
            sessions: sessions.to_vec(),
        });
        let jobs: Vec<Activation> = jobs.collect();
        self.went(&jobs);
        jobs
    }
}

impl Shared {
    fn lanes(&self) -> MutexGuard<'_, HashMap<Lane, LaneState>> {
        // A panic under the lock leaves hints behind that are wrong at worst.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn weight(&self, tenant: TenantId) -> u32 {
        let weights = self.weights.read().unwrap_or_else(PoisonError::into_inner);
        weights.get(&tenant).copied().unwrap_or(1)
    }

    /// With the state of a lane.
    fn on<T>(&self, lane: &Lane, act: impl FnOnce(&mut LaneState) -> T) -> T {
        let mut lanes = self.lanes();
        if lanes.len() >= LANES_MAX && !lanes.contains_key(lane) {
            lanes.retain(|_, state| state.moves);
        }
        if let Some(state) = lanes.get_mut(lane) {
            return act(state);
        }
        act(lanes.entry(lane.clone()).or_default())
    }

    /// Splits what is pushed.
    fn admit(&self, lane: &Lane, activations: Vec<Activation>) -> Admitted {
        let now = self.clock.monotonic();
        self.on(lane, |state| {
            let mut admitted = Admitted::default();
            let mut heavy = 0;
            let is_stale = state.is_stale(now);
            for activation in activations {
                let mut sessions = Vec::with_capacity(activation.sessions.len());
                let mut ahead = Vec::new();
                for key in activation.sessions {
                    if state.order.holds(key) {
                        continue;
                    }
                    let is_light = state.is_light(key.tenant, self.weight(key.tenant), now);
                    heavy += u64::from(!is_light);
                    if is_light && lane.has_way_past() {
                        ahead.push(key);
                    } else if is_light || (state.order.is_empty() && state.room > 0) {
                        state.room = state.room.saturating_sub(1);
                        sessions.push(key);
                    } else if state.order.len() < HELD_MAX {
                        state.order.put(key);
                        metrics::counter!(HELD).increment(1);
                    } else {
                        admitted.refused = true;
                    }
                }
                if !sessions.is_empty() {
                    admitted.passing.push(Activation { sessions });
                }
                if !ahead.is_empty() {
                    admitted.ahead.push(Activation { sessions: ahead });
                }
            }
            state.went(&admitted.passing);
            // Looked at before the room is used up, so that nothing has to wait where workers keep up.
            let is_low =
                state.room < state.window / 2 && now.saturating_sub(state.looked_at) >= LOOK;
            let needs = !state.order.is_empty() || (heavy > 0 && (is_stale || is_low));
            admitted.looks = needs && !state.moves;
            state.moves |= admitted.looks;
            admitted
        })
    }

    /// Looks at a lane, and moves what is held onto it as it is emptied, until nothing is held.
    async fn move_on(self: Arc<Self>, lane: Lane) {
        loop {
            let Some(jobs) = self.inner.depth(&lane).await else {
                // The queue is away. Its workers poll the database, and the sweep fills it when it is back.
                self.forget(&lane);
                return;
            };
            let now = self.clock.monotonic();
            let (activations, moved, is_last) = self.on(&lane, |state| {
                let gone = state.look(now, jobs);
                let activations = state.next(jobs == 0, |tenant| self.weight(tenant));
                state.moves = !state.order.is_empty();
                let moved = gone + activations.len() as u64;
                (activations, moved, !state.moves)
            });
            if !activations.is_empty() && !self.inner.push(&lane, activations).await {
                self.forget(&lane);
                return;
            }
            self.measure();
            if is_last {
                return;
            }
            let wait = match moved {
                0 => LOOK_IDLE,
                _ if jobs == 0 && moved < WINDOW_MAX / 2 => LOOK_QUICK,
                _ => LOOK,
            };
            self.clock.sleep(wait).await;
        }
    }

    fn forget(&self, lane: &Lane) {
        self.on(lane, |state| *state = LaneState::default());
        self.measure();
    }

    fn measure(&self) {
        let held: usize = self.lanes().values().map(|state| state.order.len()).sum();
        #[expect(clippy::cast_precision_loss, reason = "nobody has so many sessions")]
        metrics::gauge!(HOLDING).set(held as f64);
    }
}

/// What is pushed, split.
#[derive(Debug, Default)]
struct Admitted {
    /// What goes on the lane now.
    passing: Vec<Activation>,
    /// What goes ahead of it.
    ahead: Vec<Activation>,
    /// Whether some of the rest could not be kept.
    refused: bool,
    /// Whether its caller has somebody look at the lane.
    looks: bool,
}

impl FairQueue {
    /// Turns between tenants on this queue.
    pub fn new(inner: Arc<dyn Queue>, clock: Arc<dyn Clock>) -> Self {
        Self {
            shared: Arc::new(Shared {
                inner,
                clock,
                weights: RwLock::default(),
                lanes: Mutex::default(),
            }),
        }
    }
}

#[async_trait]
impl Queue for FairQueue {
    async fn push(&self, lane: &Lane, activations: Vec<Activation>) -> bool {
        let admitted = self.shared.admit(lane, activations);
        if admitted.looks {
            // Before anything is awaited: whoever pushes may go away.
            tokio::spawn(self.shared.clone().move_on(lane.clone()));
        }
        let (passing, ahead) = (admitted.passing, admitted.ahead);
        let inner = &self.shared.inner;
        let ahead = ahead.is_empty() || inner.push_ahead(lane, ahead).await;
        let passing = passing.is_empty() || inner.push(lane, passing).await;
        ahead && passing && !admitted.refused
    }

    async fn depth(&self, lane: &Lane) -> Option<u64> {
        let jobs = self.shared.inner.depth(lane).await?;
        let held = self.shared.on(lane, |state| state.order.len());
        Some(jobs + held.div_ceil(ACTIVATION_SESSIONS_MAX) as u64)
    }

    fn is_available(&self) -> bool {
        self.shared.inner.is_available()
    }

    fn weigh(&self, tenant: TenantId, weight: u32) {
        if self.shared.weight(tenant) == weight {
            return;
        }
        let weights = &self.shared.weights;
        let mut weights = weights.write().unwrap_or_else(PoisonError::into_inner);
        if weight == 1 {
            weights.remove(&tenant);
        } else if weights.len() < WEIGHTS_MAX {
            weights.insert(tenant, weight);
        }
    }

    async fn run(&self, pool: &str, handler: Arc<dyn Handler>, stop: BoxFuture<'static, ()>) {
        self.shared.inner.run(pool, handler, stop).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One session goes each millisecond, and somebody looks as often.
    #[test]
    fn what_a_lane_needs_does_not_depend_on_how_often_it_is_looked_at() {
        for every in [1, 5, 25] {
            let mut state = LaneState::default();
            for look in 1..=200 {
                state.sizes = std::iter::repeat_n(1, 100).collect();
                let jobs = 100 - every;
                state.look(Duration::from_millis(look * every), jobs);
            }
            // 50 go in the time for which a look is valid.
            assert!(
                (40..=60).contains(&state.window),
                "a look every {every} ms: {}",
                state.window
            );
        }
    }
}
