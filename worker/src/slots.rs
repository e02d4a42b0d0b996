//! Slots: how many sessions a worker works on at once, and whose.
//!
//! Sends end when they end: a worker whose slots are all taken has none for a tenant that comes, however much its
//! turn it is. So while a worker is used by several tenants, its last few slots are for those who have few.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::id::{SessionKey, TenantId};
use mainspring_shared::queue::FairOrder;
use mainspring_shared::time::Clock;
use tokio::sync::oneshot;

/// For how long after a tenant used the worker others leave slots free for it.
const REMEMBERED: Duration = Duration::from_mins(1);
/// One slot in so many is for those who have few, in workers that have as many.
const RESERVED: usize = 8;

/// The slots of a worker.
#[derive(Debug)]
pub(crate) struct Slots {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    in_use: InUse,
    /// Sessions that wait for a slot, in the turns of their tenants. The weights of tenants count where
    /// sessions go on the queue; here are few.
    order: FairOrder,
    waiting: HashMap<SessionKey, oneshot::Sender<Slot>>,
}

/// Who has how many slots, and who wanted one.
#[derive(Debug)]
struct InUse {
    total: usize,
    used: usize,
    taken: HashMap<TenantId, usize>,
    /// The two tenants that wanted a slot or gave one back last, and when: the newest first.
    latest: [Option<(TenantId, Duration)>; 2],
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Slots>,
    tenant: TenantId,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let granted = {
            let now = self.slots.clock.monotonic();
            let mut state = self.slots.lock();
            state.in_use.saw(self.tenant, now);
            state.in_use.give_back(self.tenant);
            self.slots.grant(&mut state, now)
        };
        hand_out(granted);
    }
}

type Granted = Vec<(oneshot::Sender<Slot>, Slot)>;

/// Outside of the lock: a slot that nobody waits for any more is dropped here.
fn hand_out(granted: Granted) {
    for (waiter, slot) in granted {
        drop(waiter.send(slot));
    }
}

impl InUse {
    fn of(&self, tenant: TenantId) -> usize {
        self.taken.get(&tenant).copied().unwrap_or(0)
    }

    /// Slots that are for tenants with fewer than that.
    const fn reserve(&self) -> usize {
        self.total / RESERVED
    }

    fn saw(&mut self, tenant: TenantId, now: Duration) {
        if self.latest[0].is_some_and(|(latest, _)| latest != tenant) {
            self.latest[1] = self.latest[0];
        }
        self.latest[0] = Some((tenant, now));
    }

    /// Whether another tenant uses the worker, or did lately.
    fn is_shared(&self, tenant: TenantId, now: Duration) -> bool {
        let mut latest = self.latest.iter().flatten();
        self.taken.keys().any(|other| *other != tenant)
            || latest.any(|(other, at)| *other != tenant && now.saturating_sub(*at) < REMEMBERED)
    }

    /// Whether a tenant may have one slot more now.
    fn allows(&self, tenant: TenantId, now: Duration) -> bool {
        let has_few = self.of(tenant) < self.reserve();
        let left = if has_few || !self.is_shared(tenant, now) {
            0
        } else {
            self.reserve()
        };
        self.used + left < self.total
    }

    fn take(&mut self, tenant: TenantId) {
        self.used += 1;
        *self.taken.entry(tenant).or_default() += 1;
    }

    fn give_back(&mut self, tenant: TenantId) {
        self.used -= 1;
        if let Some(taken) = self.taken.get_mut(&tenant) {
            *taken -= 1;
            if *taken == 0 {
                self.taken.remove(&tenant);
            }
        }
    }
}

impl Slots {
    pub(crate) fn new(total: usize, clock: Arc<dyn Clock>) -> Arc<Self> {
        let in_use = InUse {
            total,
            used: 0,
            taken: HashMap::new(),
            latest: [None; 2],
        };
        Arc::new(Self {
            clock,
            state: Mutex::new(State {
                in_use,
                order: FairOrder::default(),
                waiting: HashMap::new(),
            }),
        })
    }

    /// Slots that nobody has.
    pub(crate) fn free(&self) -> usize {
        let state = self.lock();
        state.in_use.total - state.in_use.used
    }

    /// Slots that somebody has.
    pub(crate) fn used(&self) -> usize {
        self.lock().in_use.used
    }

    /// Whether a tenant has few slots, and would get one.
    pub(crate) fn is_light(&self, tenant: TenantId) -> bool {
        let in_use = &self.lock().in_use;
        // The send that ends has its slot still.
        in_use.used < in_use.total && in_use.of(tenant) <= in_use.reserve()
    }

    /// Whether a tenant has to wait, and has more than few slots: it is to be in nobody's way.
    pub(crate) fn is_at_its_share(&self, tenant: TenantId) -> bool {
        let now = self.clock.monotonic();
        let in_use = &self.lock().in_use;
        in_use.of(tenant) >= in_use.reserve().max(1) && !in_use.allows(tenant, now)
    }

    /// A slot for a session of a tenant, if there is one now.
    pub(crate) fn try_take(self: &Arc<Self>, tenant: TenantId) -> Option<Slot> {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        state.in_use.saw(tenant, now);
        let allows = state.in_use.allows(tenant, now);
        allows.then(|| self.slot(&mut state, tenant))
    }

    /// A slot for a session, when its turn has come; none if somebody else waits for the session already. A
    /// caller that gives up takes none.
    pub(crate) async fn take(self: &Arc<Self>, key: SessionKey) -> Option<Slot> {
        let mut waiter = {
            let now = self.clock.monotonic();
            let mut state = self.lock();
            state.in_use.saw(key.tenant, now);
            if state.in_use.allows(key.tenant, now) {
                return Some(self.slot(&mut state, key.tenant));
            }
            if state.waiting.get(&key).is_some_and(|it| !it.is_closed()) {
                return None;
            }
            let (grant, waiter) = oneshot::channel();
            state.waiting.insert(key, grant);
            state.order.put(key);
            waiter
        };
        loop {
            tokio::select! {
                biased;
                slot = &mut waiter => return slot.ok(),
                // By then slots may be free that were left for somebody who is not heard of any more.
                () = self.clock.sleep(REMEMBERED) => {
                    let now = self.clock.monotonic();
                    let granted = self.grant(&mut self.lock(), now);
                    hand_out(granted);
                }
            }
        }
    }

    fn slot(self: &Arc<Self>, state: &mut State, tenant: TenantId) -> Slot {
        state.in_use.take(tenant);
        Slot {
            slots: self.clone(),
            tenant,
        }
    }

    /// Gives what is free to those who wait and may have it.
    fn grant(self: &Arc<Self>, state: &mut State, now: Duration) -> Granted {
        let mut granted = Vec::new();
        loop {
            let State { in_use, order, .. } = &mut *state;
            let next = order.take_of(|tenant| in_use.allows(tenant, now), |_| 1);
            let Some(key) = next else { return granted };
            if let Some(waiter) = state.waiting.remove(&key)
                && !waiter.is_closed()
            {
                granted.push((waiter, self.slot(state, key.tenant)));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing between two statements under this lock can panic, so it is never half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
