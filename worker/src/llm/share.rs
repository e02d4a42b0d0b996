//! This process's share of what a provider allows. Provider limits apply to an account, and the
//! workers of an installation divide them by their slots.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mainspring_shared::id::BootId;
use mainspring_shared::store::{BootRecord, Role, alive};

/// This process's share of each limit; 1 is all of it. Clones share the value.
#[derive(Debug, Clone)]
pub struct Share(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bits: AtomicU64,
    is_wanted: AtomicBool,
}

impl Default for Share {
    fn default() -> Self {
        Self(Arc::new(Inner {
            bits: AtomicU64::new(1.0_f64.to_bits()),
            is_wanted: AtomicBool::new(false),
        }))
    }
}

impl Share {
    /// The share.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.bits.load(Ordering::Relaxed))
    }

    /// Sets the share.
    pub fn set(&self, share: f64) {
        self.0.bits.store(share.to_bits(), Ordering::Relaxed);
    }

    /// Records that a limit exists, so that the share matters.
    pub fn want(&self) {
        self.0.is_wanted.store(true, Ordering::Relaxed);
    }

    /// Whether the share matters.
    pub fn is_wanted(&self) -> bool {
        self.0.is_wanted.load(Ordering::Relaxed)
    }

    /// The share of boot `own`: its slots divided by those of all workers of its pool and of those
    /// workers of other pools that have sends in flight.
    pub fn of(boots: &[BootRecord], own: BootId) -> f64 {
        let workers = alive(boots).filter(|boot| boot.role == Role::Worker);
        let Some(mine) = workers.clone().find(|boot| boot.id == own) else {
            return 1.0 / (workers.count() + 1) as f64;
        };
        let slots = |boot: &BootRecord| f64::from(boot.concurrency.max(1));
        let counts = |boot: &&BootRecord| boot.pool == mine.pool || boot.in_flight > 0;
        slots(mine) / workers.filter(counts).map(slots).sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mainspring_shared::time::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn boot(id: u128, pool: &str, concurrency: u32, in_flight: u32) -> BootRecord {
        BootRecord {
            id: BootId(Uuid::from_u128(id)),
            role: Role::Worker,
            name: String::new(),
            pool: pool.to_owned(),
            concurrency,
            in_flight,
            started_at: Timestamp(0),
            lease_until: Timestamp(0),
            ttl: Duration::ZERO,
            protocol: 0,
            dead_at: None,
        }
    }

    fn in_eighths(share: f64) -> u32 {
        (share * 8.0).round() as u32
    }

    fn eighths(boots: &[BootRecord], own: BootId) -> u32 {
        in_eighths(Share::of(boots, own))
    }

    #[test]
    fn limits_are_divided_by_slots_among_those_that_may_ask() {
        let mut boots = vec![boot(1, "a", 10, 0)];
        let own = boots[0].id;
        assert_eq!(eighths(&boots, own), 8);
        boots.push(boot(2, "a", 30, 0));
        assert_eq!(eighths(&boots, own), 2);
        // A worker of another pool with no sends in flight asks nobody.
        boots.push(boot(3, "b", 40, 0));
        assert_eq!(eighths(&boots, own), 2);
        boots[2].in_flight = 1;
        assert_eq!(eighths(&boots, own), 1);
        // Workers with sends in flight divide all of it.
        for boot in &mut boots {
            boot.in_flight = 1;
        }
        let all: u32 = boots.iter().map(|boot| eighths(&boots, boot.id)).sum();
        assert_eq!(all, 8);
        let dead_at = Some(Timestamp(1));
        boots.push(BootRecord {
            dead_at,
            ..boot(4, "a", 100, 5)
        });
        boots.push(BootRecord {
            role: Role::Scheduler,
            ..boot(5, "a", 100, 5)
        });
        assert_eq!(eighths(&boots, own), 1);
        // A boot that is not registered yet counts in addition.
        assert_eq!(eighths(&boots, BootId(Uuid::nil())), 2);
    }

    #[test]
    fn clones_are_the_same_one() {
        let share = Share::default();
        let other = share.clone();
        assert_eq!(in_eighths(other.get()), 8);
        assert!(!share.is_wanted());
        other.want();
        share.set(0.5);
        assert_eq!(in_eighths(other.get()), 4);
        assert!(share.is_wanted());
    }
}
