//! The order in which sessions of several tenants are enqueued: start-time fair queuing.
//!
//! Each tenant's sessions keep their order. Between tenants a virtual time decides: it is the start
//! time of the last taken session, and each session has a length inversely proportional to its
//! tenant's weight. So tenants with a backlog take turns by weight, and a tenant that comes back
//! after a pause starts at the current time: it neither owes anything for turns that others took in
//! the meantime, nor has saved any.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::id::{SessionKey, TenantId};

/// The virtual length of a session of a tenant with weight 1; large enough to be divided by any weight.
const LENGTH: u64 = 1 << 20;

/// The largest weight of a tenant.
pub const WEIGHT_MAX: u32 = 1_000;

/// Sessions waiting for their turn.
#[derive(Debug, Default)]
pub struct FairOrder {
    /// The virtual start time of the last taken session.
    now: u64,
    lines: BTreeMap<TenantId, Line>,
    /// The start times of each tenant's first session, earliest first.
    heads: BTreeSet<(u64, TenantId)>,
    /// All waiting sessions, so that none is added twice.
    held: BTreeSet<SessionKey>,
}

/// The sessions of a tenant.
#[derive(Debug, Default)]
struct Line {
    sessions: VecDeque<SessionKey>,
    /// The virtual end time of the last taken session.
    end: u64,
}

impl FairOrder {
    /// Number of waiting sessions.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether no sessions are waiting.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether this session is waiting.
    pub fn holds(&self, key: SessionKey) -> bool {
        self.held.contains(&key)
    }

    /// Whether sessions of this tenant are waiting.
    pub fn has(&self, tenant: TenantId) -> bool {
        let line = self.lines.get(&tenant);
        line.is_some_and(|line| !line.sessions.is_empty())
    }

    /// Number of tenants with waiting sessions.
    pub fn tenants(&self) -> usize {
        self.heads.len()
    }

    /// Adds a session after those of its tenant, unless it is already waiting.
    pub fn put(&mut self, key: SessionKey) {
        if !self.held.insert(key) {
            return;
        }
        let line = self.lines.entry(key.tenant).or_default();
        if line.sessions.is_empty() {
            self.heads.insert((line.end.max(self.now), key.tenant));
        }
        line.sessions.push_back(key);
    }

    /// Takes the session whose turn it is. `weight` is how many sessions of a tenant are taken for
    /// each one of a tenant with weight 1.
    pub fn take(&mut self, weight: impl Fn(TenantId) -> u32) -> Option<SessionKey> {
        self.take_of(|_| true, weight)
    }

    /// Like [`take`](Self::take), only among allowed tenants. The others keep their turns.
    pub fn take_of(
        &mut self,
        is_allowed: impl Fn(TenantId) -> bool,
        weight: impl Fn(TenantId) -> u32,
    ) -> Option<SessionKey> {
        let mut heads = self.heads.iter();
        let head = *heads.find(|(_, tenant)| is_allowed(*tenant))?;
        self.heads.remove(&head);
        let (start, tenant) = head;
        // A tenant that was passed over goes next, but cannot save up more than one turn.
        let start = start.max(self.now.saturating_sub(LENGTH));
        let line = self.lines.get_mut(&tenant)?;
        let key = line.sessions.pop_front()?;
        self.held.remove(&key);
        // A tenant that was passed over may have an earlier start.
        self.now = self.now.max(start);
        let weight = weight(tenant).clamp(1, WEIGHT_MAX);
        line.end = start + LENGTH / u64::from(weight);
        if !line.sessions.is_empty() {
            self.heads.insert((line.end, tenant));
        }
        if self.heads.is_empty() {
            // Nobody is waiting, so reset the virtual time.
            *self = Self::default();
        } else {
            let now = self.now;
            self.lines
                .retain(|_, line| !line.sessions.is_empty() || line.end > now);
        }
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::id::SessionId;

    fn key(tenant: i32, n: u32) -> SessionKey {
        SessionKey {
            tenant: TenantId(tenant),
            session: SessionId(Uuid::from_u128(u128::from(n))),
        }
    }

    fn even(_: TenantId) -> u32 {
        1
    }

    #[test]
    fn a_tenant_that_comes_late_is_next_however_many_wait() {
        let mut order = FairOrder::default();
        (0..1_000).for_each(|n| order.put(key(1, n)));
        for n in 0..500 {
            assert_eq!(order.take(even), Some(key(1, n)));
        }
        order.put(key(2, 0));
        let next: Vec<_> = (0..2).filter_map(|_| order.take(even)).collect();
        assert!(next.contains(&key(2, 0)), "{next:?}");
    }

    #[test]
    fn tenants_with_a_backlog_take_turns_by_their_weights() {
        let mut order = FairOrder::default();
        for n in 0..400 {
            order.put(key(1, n));
            order.put(key(2, n));
        }
        let weight = |tenant: TenantId| if tenant.0 == 2 { 3 } else { 1 };
        let taken: Vec<_> = (0..400).filter_map(|_| order.take(weight)).collect();
        let of_two = taken.iter().filter(|key| key.tenant.0 == 2).count();
        assert!((295..=305).contains(&of_two), "{of_two}");
    }

    #[test]
    fn who_is_passed_by_keeps_the_turn() {
        let mut order = FairOrder::default();
        for n in 0..60 {
            order.put(key(1, n));
            order.put(key(2, n));
        }
        let second = |tenant: TenantId| tenant.0 == 2;
        let passed: Vec<_> = (0..40)
            .filter_map(|_| order.take_of(second, even))
            .collect();
        assert_eq!(passed.len(), 40);
        assert_eq!(order.take(even), Some(key(1, 0)));
        // It goes next, but only for one turn, not until it has caught up.
        let next: Vec<_> = (0..10).filter_map(|_| order.take(even)).collect();
        let of_one = next.iter().filter(|key| key.tenant.0 == 1).count();
        assert!((5..=7).contains(&of_one), "{next:?}");
        assert_eq!(order.take_of(|_| false, even), None);
        assert_eq!(order.len(), 120 - 51);
    }

    #[test]
    fn a_session_that_waits_does_not_wait_twice() {
        let mut order = FairOrder::default();
        order.put(key(1, 7));
        order.put(key(1, 7));
        assert_eq!((order.len(), order.tenants()), (1, 1));
        assert_eq!(order.take(even), Some(key(1, 7)));
        assert_eq!(order.take(even), None);
        assert!(order.is_empty() && !order.holds(key(1, 7)));
        order.put(key(1, 7));
        assert_eq!(order.len(), 1, "later it may");
    }

    proptest! {
        /// Whatever comes when: each session is taken once, those of a tenant in order, and while two tenants
        /// have a backlog neither is ahead of its share by more than a turn.
        #[test]
        fn nothing_is_lost_and_nobody_is_ahead_of_their_share(
            steps in prop::collection::vec((0_i32..4, 1_u32..30, 0_usize..40), 1..30),
            weights in prop::array::uniform4(1_u32..6),
        ) {
            let mut order = FairOrder::default();
            let weight = |tenant: TenantId| weights[tenant.0.unsigned_abs() as usize];
            let (mut n, mut put, mut taken) = (0, Vec::new(), Vec::new());
            for (tenant, count, take) in steps {
                for _ in 0..count {
                    n += 1;
                    order.put(key(tenant, n));
                    put.push(key(tenant, n));
                }
                // While nothing is added, shares of those that wait throughout are compared.
                let mut shares = [0_u32; 4];
                for _ in 0..take {
                    let waiting: Vec<i32> = (0..4).filter(|t| order.has(TenantId(*t))).collect();
                    let Some(key) = order.take(weight) else { break };
                    shares[key.tenant.0.unsigned_abs() as usize] += 1;
                    taken.push(key);
                    let turns = |t: i32| {
                        let t = t.unsigned_abs() as usize;
                        f64::from(shares[t]) / f64::from(weights[t])
                    };
                    for other in waiting.iter().filter(|t| order.has(TenantId(**t))) {
                        prop_assert!(turns(key.tenant.0) <= turns(*other) + 2.001);
                    }
                }
            }
            while let Some(key) = order.take(weight) {
                taken.push(key);
            }
            for tenant in 0..4 {
                let of = |keys: &[SessionKey]| -> Vec<SessionKey> {
                    keys.iter().copied().filter(|key| key.tenant.0 == tenant).collect()
                };
                prop_assert_eq!(of(&put), of(&taken));
            }
        }
    }
}
