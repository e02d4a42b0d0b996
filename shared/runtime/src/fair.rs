//! Fair turns between tenants on a queue that does not know tenants.
//!
//! A queue serves jobs in the order in which they came. To make a tenant that floods it delay only
//! itself, the queue is kept short: sessions that a lane does not need yet are held here, in the
//! process that pushes them, and move to the lane as workers drain it, tenant by tenant according
//! to their weights. How many a lane needs follows from how fast it is drained. A tenant with
//! little to do never waits here and overtakes what is on the lane. All of this is a hint: sessions
//! that are lost when the process ends, or that there is no room for, are found in the database by
//! the sweep.

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

/// Maximum number of sessions held per lane; the sweep enqueues the rest.
const HELD_MAX: usize = 16_384;
/// Maximum number of jobs whose sizes are remembered; more than a lane is given at once.
const SIZES_MAX: usize = 4_096;
/// Maximum number of lanes whose state is kept; far more than any deployment has.
const LANES_MAX: usize = 1_024;
/// Maximum number of weights that are stored; all other tenants have weight 1.
const WEIGHTS_MAX: usize = 65_536;

/// Minimum number of sessions on a lane: with fewer, a slot could stay empty between two looks.
const WINDOW_MIN: u64 = 4;
/// Resolution of the count of sessions that left a lane. In whole sessions, a small count would
/// decay to nothing between two looks in quick succession.
const DEPARTURES_UNIT: u128 = 1_000;
/// Maximum number of sessions on a lane.
const WINDOW_MAX: u64 = 2_048;
/// Time between two looks at a lane that is being drained, and at one that is not.
const LOOK: Duration = Duration::from_millis(5);
const LOOK_IDLE: Duration = Duration::from_millis(20);
/// Time between two looks while a lane is empty and little was put on it, so its need is still
/// unknown.
const LOOK_QUICK: Duration = Duration::from_millis(1);
/// How long the result of a look is valid.
const LOOK_VALID: Duration = Duration::from_millis(50);

/// Sessions that a tenant of weight 1 may push in [`LIGHT_SPAN`] without waiting for its turn, as
/// long as no session of the tenant waits.
const LIGHT: u32 = 4;
const LIGHT_SPAN: Duration = Duration::from_millis(250);
/// Number of tenants above which push counts older than that are dropped.
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
    /// Weights other than 1.
    weights: RwLock<HashMap<TenantId, u32>>,
    lanes: Mutex<HashMap<Lane, LaneState>>,
}

/// What this process knows about a lane.
#[derive(Debug)]
struct LaneState {
    order: FairOrder,
    /// Whether a task is looking at the lane and moving held sessions onto it.
    is_polled: bool,
    /// When a task last looked at it.
    looked_at: Duration,
    /// The sizes of the jobs that this process put on it and that may still be there, oldest first.
    sizes: VecDeque<usize>,
    /// Sessions that left the lane in the last [`LOOK_VALID`], in units of 1 / `DEPARTURES_UNIT`.
    departures: u128,
    /// Sessions that it should hold.
    window: u64,
    /// Sessions that may be pushed to it before the next look.
    room: u64,
    /// When each tenant's current `LIGHT_SPAN` began, and how many sessions it has pushed in it.
    light: BTreeMap<TenantId, (Duration, u32)>,
}

impl Default for LaneState {
    fn default() -> Self {
        Self {
            order: FairOrder::default(),
            is_polled: false,
            looked_at: Duration::ZERO,
            sizes: VecDeque::new(),
            departures: 0,
            window: WINDOW_MIN,
            room: WINDOW_MIN,
            light: BTreeMap::new(),
        }
    }
}

impl LaneState {
    /// Whether a tenant's session may pass because the tenant had little to do lately. Counts the
    /// session.
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

    /// Estimates from a look at the lane how much it needs: the sessions that left it lately, plus
    /// a quarter if it was empty. More would only delay later arrivals. Returns how many sessions
    /// left since the previous look.
    fn look(&mut self, now: Duration, jobs: u64) -> u64 {
        // The lane is drained from its front, so the jobs left on it are the ones pushed last. The
        // sizes of other processes' jobs are unknown; each counts as one session.
        let mine =
            usize::try_from(jobs).map_or(self.sizes.len(), |jobs| jobs.min(self.sizes.len()));
        let left = self.sizes.split_off(self.sizes.len() - mine);
        let gone = self.sizes.iter().sum::<usize>() as u64;
        self.sizes = left;
        let depth = self.sizes.iter().sum::<usize>() as u64 + (jobs - mine as u64);
        let (since, valid) = (now.saturating_sub(self.looked_at), LOOK_VALID.as_micros());
        let went = u128::from(gone) * DEPARTURES_UNIT;
        let departures = if since < LOOK_VALID {
            // The share of the earlier departures that is still within the valid time.
            let still = valid - since.as_micros();
            went + self.departures * still / valid
        } else {
            went * valid / since.as_micros()
        };
        self.departures = departures.min(u128::from(WINDOW_MAX) * DEPARTURES_UNIT);
        let need = u64::try_from(self.departures / DEPARTURES_UNIT).unwrap_or(WINDOW_MAX);
        let more = if jobs == 0 { need / 4 } else { 0 };
        self.window = (need + more).clamp(WINDOW_MIN, WINDOW_MAX);
        self.room = self.window.saturating_sub(depth);
        self.looked_at = now;
        gone
    }

    /// Whether the last look is out of date. If so, and no task is looking, little may pass until
    /// the next look.
    fn is_stale(&mut self, now: Duration) -> bool {
        let is_stale = now.saturating_sub(self.looked_at) > LOOK_VALID;
        if is_stale && !self.is_polled {
            self.room = self.room.min(WINDOW_MIN);
        }
        is_stale
    }

    /// Records jobs that were pushed to the lane.
    fn went(&mut self, jobs: &[Activation]) {
        let sizes = jobs.iter().map(|job| job.sessions.len());
        self.sizes.extend(sizes);
        let beyond = self.sizes.len().saturating_sub(SIZES_MAX);
        self.sizes.drain(..beyond);
    }

    /// Takes as many held sessions as there is room for, in the tenants' turns, and packs them into
    /// jobs. On a slowly drained lane a job holds one session: further ones would wait in a worker
    /// without a free slot. A lane that was found empty has idle workers, so a few sessions share
    /// the fetch of a job.
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
        // A panic under the lock leaves wrong hints at worst.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn weight(&self, tenant: TenantId) -> u32 {
        let weights = self.weights.read().unwrap_or_else(PoisonError::into_inner);
        weights.get(&tenant).copied().unwrap_or(1)
    }

    /// Runs `act` on the state of a lane.
    fn on<T>(&self, lane: &Lane, act: impl FnOnce(&mut LaneState) -> T) -> T {
        let mut lanes = self.lanes();
        if lanes.len() >= LANES_MAX && !lanes.contains_key(lane) {
            lanes.retain(|_, state| state.is_polled);
        }
        if let Some(state) = lanes.get_mut(lane) {
            return act(state);
        }
        act(lanes.entry(lane.clone()).or_default())
    }

    /// Splits pushed sessions into those that go on the lane and those that are held.
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
            // Look before the room is used up, so that nothing has to wait while workers keep up.
            let is_low =
                state.room < state.window / 2 && now.saturating_sub(state.looked_at) >= LOOK;
            let needs = !state.order.is_empty() || (heavy > 0 && (is_stale || is_low));
            admitted.looks = needs && !state.is_polled;
            state.is_polled |= admitted.looks;
            admitted
        })
    }

    /// Looks at a lane repeatedly and moves held sessions onto it as it is drained, until none are
    /// held.
    async fn drain_held(self: Arc<Self>, lane: Lane) {
        loop {
            let Some(jobs) = self.inner.depth(&lane).await else {
                // The queue is unavailable. Its workers poll the database, and the sweep refills
                // the queue once it is back.
                self.forget(&lane);
                return;
            };
            let now = self.clock.monotonic();
            let (activations, moved, is_last) = self.on(&lane, |state| {
                let gone = state.look(now, jobs);
                let activations = state.next(jobs == 0, |tenant| self.weight(tenant));
                state.is_polled = !state.order.is_empty();
                let moved = gone + activations.len() as u64;
                (activations, moved, !state.is_polled)
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

/// Pushed sessions, split.
#[derive(Debug, Default)]
struct Admitted {
    /// Jobs for the end of the lane.
    passing: Vec<Activation>,
    /// Jobs that overtake the lane.
    ahead: Vec<Activation>,
    /// Whether some of the rest could not be held.
    refused: bool,
    /// Whether the caller has to start a task that looks at the lane.
    looks: bool,
}

impl FairQueue {
    /// Adds turns between tenants to this queue.
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
            // Spawn before the first await: the caller may drop this future.
            tokio::spawn(self.shared.clone().drain_held(lane.clone()));
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

    fn trouble(&self) -> Option<String> {
        self.shared.inner.trouble()
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

    /// One session leaves each millisecond, whatever the interval between looks.
    #[test]
    fn what_a_lane_needs_does_not_depend_on_how_often_it_is_looked_at() {
        for every in [1, 5, 25] {
            let mut state = LaneState::default();
            for look in 1..=200 {
                state.sizes = std::iter::repeat_n(1, 100).collect();
                let jobs = 100 - every;
                state.look(Duration::from_millis(look * every), jobs);
            }
            // 50 sessions leave in the time for which a look is valid.
            assert!(
                (40..=60).contains(&state.window),
                "a look every {every} ms: {}",
                state.window
            );
        }
    }
}
