//! Slots: how many sessions a worker works on at once, and for which tenants.
//!
//! Sends cannot be preempted: a worker whose slots are all taken has none for a tenant whose turn
//! has come. So while several tenants use a worker, its last few slots are reserved for tenants
//! that have few.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::id::{SessionKey, TenantId};
use mainspring_shared::queue::FairOrder;
use mainspring_shared::time::Clock;
use tokio::sync::oneshot;

/// For how long after a tenant used the worker slots are reserved for it.
const REMEMBERED: Duration = Duration::from_mins(1);
/// One in this many slots is reserved for tenants with few slots, in workers that have as many.
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
    /// Sessions that wait for a slot, in the tenants' turns. Tenant weights are applied when
    /// sessions are enqueued; here only few wait.
    order: FairOrder,
    waiting: HashMap<SessionKey, oneshot::Sender<Slot>>,
}

/// How many slots each tenant has, and which tenants asked for one last.
#[derive(Debug)]
struct InUse {
    total: usize,
    used: usize,
    taken: HashMap<TenantId, usize>,
    /// The last two tenants that asked for a slot or returned one, with the time; newest first.
    latest: [Option<(TenantId, Duration)>; 2],
}

/// One slot, held until it is dropped.
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

/// Called outside the lock, because a slot that nobody waits for any longer is dropped here.
fn hand_out(granted: Granted) {
    for (waiter, slot) in granted {
        drop(waiter.send(slot));
    }
}

impl InUse {
    fn of(&self, tenant: TenantId) -> usize {
        self.taken.get(&tenant).copied().unwrap_or(0)
    }

    /// The number of slots reserved for tenants that have fewer than this number.
    const fn reserve(&self) -> usize {
        self.total / RESERVED
    }

    fn saw(&mut self, tenant: TenantId, now: Duration) {
        if self.latest[0].is_some_and(|(latest, _)| latest != tenant) {
            self.latest[1] = self.latest[0];
        }
        self.latest[0] = Some((tenant, now));
    }

    /// Whether another tenant uses the worker, or did recently.
    fn is_shared(&self, tenant: TenantId, now: Duration) -> bool {
        let mut latest = self.latest.iter().flatten();
        self.taken.keys().any(|other| *other != tenant)
            || latest.any(|(other, at)| *other != tenant && now.saturating_sub(*at) < REMEMBERED)
    }

    /// Whether a tenant may have one more slot.
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

    /// The number of free slots.
    pub(crate) fn free(&self) -> usize {
        let state = self.lock();
        state.in_use.total - state.in_use.used
    }

    /// The number of slots in use.
    pub(crate) fn used(&self) -> usize {
        self.lock().in_use.used
    }

    /// Whether a tenant has few slots and could get one.
    pub(crate) fn is_light(&self, tenant: TenantId) -> bool {
        let in_use = &self.lock().in_use;
        // The send that ends still has its slot.
        in_use.used < in_use.total && in_use.of(tenant) <= in_use.reserve()
    }

    /// Whether a tenant has to wait and already has more than few slots, so that its work should
    /// stay out of the others' way.
    pub(crate) fn is_at_its_share(&self, tenant: TenantId) -> bool {
        let now = self.clock.monotonic();
        let in_use = &self.lock().in_use;
        in_use.of(tenant) >= in_use.reserve().max(1) && !in_use.allows(tenant, now)
    }

    /// A slot for a session of this tenant, if one is free now.
    pub(crate) fn try_take(self: &Arc<Self>, tenant: TenantId) -> Option<Slot> {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        state.in_use.saw(tenant, now);
        let allows = state.in_use.allows(tenant, now);
        allows.then(|| self.slot(&mut state, tenant))
    }

    /// Waits for a session's turn and returns its slot; `None` if another caller already waits for
    /// this session. A caller that gives up takes none.
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
                // By now, slots may be free that were reserved for a tenant that is not active any
                // longer.
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

    /// Grants free slots to those who wait and may have them.
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
        // No code under this lock can panic midway, so the value is never half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
