//! The order in which the sessions of several tenants go on a queue: start-time fair queuing.
//!
//! Each tenant's sessions keep their order. Between tenants a virtual time decides: it is the start of the session
//! that was taken last, and each session lasts for as long as its tenant's weight is small. So tenants with a
//! backlog take turns by their weights, and one that comes after a pause begins now: it owes nothing for what others took
//! meanwhile, and has saved nothing either.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::id::{SessionKey, TenantId};

/// How long a session of a tenant with weight 1 lasts. Its multiples of weights are whole enough.
const LENGTH: u64 = 1 << 20;

/// The largest weight of a tenant.
pub const WEIGHT_MAX: u32 = 1_000;

/// Sessions that wait for their turn.
#[derive(Debug, Default)]
pub struct FairOrder {
    /// The start of the session that was taken last.
    now: u64,
    lines: BTreeMap<TenantId, Line>,
    /// The starts of all first sessions, the earliest first.
    heads: BTreeSet<(u64, TenantId)>,
    /// All of them, so that none waits twice.
    held: BTreeSet<SessionKey>,
}

/// The sessions of a tenant.
#[derive(Debug, Default)]
struct Line {
    sessions: VecDeque<SessionKey>,
    /// When the last one that was taken ends.
    end: u64,
}

impl FairOrder {
    /// Sessions that wait.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether a session waits.
    pub fn holds(&self, key: SessionKey) -> bool {
        self.held.contains(&key)
    }

    /// Whether sessions of a tenant wait.
    pub fn has(&self, tenant: TenantId) -> bool {
        let line = self.lines.get(&tenant);
        line.is_some_and(|line| !line.sessions.is_empty())
    }

    /// Tenants whose sessions wait.
    pub fn tenants(&self) -> usize {
        self.heads.len()
    }

    /// Adds a session behind those of its tenant, unless it waits already.
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

    /// Takes the session whose turn it is; `weight` says how many of a tenant are taken for each of one with
    /// weight 1.
    pub fn take(&mut self, weight: impl Fn(TenantId) -> u32) -> Option<SessionKey> {
        self.take_of(|_| true, weight)
    }

    /// The same among the tenants that are allowed. The others keep their turns.
    pub fn take_of(
        &mut self,
        is_allowed: impl Fn(TenantId) -> bool,
        weight: impl Fn(TenantId) -> u32,
    ) -> Option<SessionKey> {
        let mut heads = self.heads.iter();
        let head = *heads.find(|(_, tenant)| is_allowed(*tenant))?;
        self.heads.remove(&head);
        let (start, tenant) = head;
        // Whoever was passed by is next, and has saved no more than that.
        let start = start.max(self.now.saturating_sub(LENGTH));
        let line = self.lines.get_mut(&tenant)?;
        let key = line.sessions.pop_front()?;
        self.held.remove(&key);
        // Somebody who was passed by may begin earlier.
        self.now = self.now.max(start);
        let weight = weight(tenant).clamp(1, WEIGHT_MAX);
        line.end = start + LENGTH / u64::from(weight);
        if !line.sessions.is_empty() {
            self.heads.insert((line.end, tenant));
        }
        if self.heads.is_empty() {
            // Nobody is ahead of anybody any more.
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
        // Next, and not until it has caught up.
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
