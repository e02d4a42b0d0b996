//! Sums the usage of sends without summing a tenant's history each time: ended sends are summed
//! only once.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use mainspring_shared::id::{SendId, TenantId, first_id};
use mainspring_shared::store::{Result, Store, TenantUsage, TenantUsageQuery};
use mainspring_shared::time::Timestamp;
use uuid::Uuid;

/// Maximum lag, in milliseconds, of the scheduler clocks that generate the ids of sends. Younger
/// sends are read each time.
const SKEW_MS: i64 = 5_000;

/// How often everything is summed from scratch: ended sends may have gained usage (from entries
/// that were extracted from them), been accepted by a scheduler with a wrong clock, or been
/// removed.
pub(super) const SUMMED_ANEW: Duration = Duration::from_mins(5);

/// The usage of sends that have all ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settled {
    /// The id after the last of them.
    until: Uuid,
    usage: TenantUsage,
    /// When they were last summed from scratch.
    summed: Duration,
}

/// A sum of usage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sum {
    pub(super) usage: TenantUsage,
    /// What the sum would be without corrections found by summing from scratch; none if that was
    /// not done.
    pub(super) without: Option<TenantUsage>,
}

/// The sends of a tenant.
pub(super) trait Book: Sync {
    /// The first open send from an id on.
    fn first_open(&self, from: Uuid) -> BoxFuture<'_, Result<Option<Uuid>>>;

    /// The usage of the sends whose ids lie in a range.
    fn used(&self, from: Uuid, until: Uuid) -> BoxFuture<'_, Result<TenantUsage>>;
}

impl Book for (Arc<dyn Store>, TenantId) {
    fn first_open(&self, from: Uuid) -> BoxFuture<'_, Result<Option<Uuid>>> {
        Box::pin(async move {
            let first = self.0.first_open_send(self.1, SendId(from)).await?;
            Ok(first.map(|send| send.0))
        })
    }

    fn used(&self, from: Uuid, until: Uuid) -> BoxFuture<'_, Result<TenantUsage>> {
        let tenant = self.1;
        let query = TenantUsageQuery {
            tenant,
            from,
            until,
        };
        self.0.tenant_usage(query)
    }
}

impl Settled {
    /// Sums the usage of the sends that were accepted since a time, reusing what is known of ended
    /// ones. As long as a send is open, all sends after it are read each time.
    pub(super) async fn sum(
        known: Option<Self>,
        book: &dyn Book,
        (from, now): (Timestamp, Timestamp),
        time: Duration,
    ) -> Result<(Self, Sum)> {
        let is_old = |known: &Self| time.saturating_sub(known.summed) >= SUMMED_ANEW;
        let (old, known) = match known {
            Some(known) if is_old(&known) => (Some(known), None),
            known => (None, known),
        };
        let mut settled = known.unwrap_or(Self {
            until: first_id(from),
            usage: TenantUsage::default(),
            summed: time,
        });
        // Determined before summing, so that a send that ends in the meantime is among those read
        // each time.
        let open = book.first_open(settled.until).await?;
        let young = first_id(Timestamp(now.0.saturating_sub(SKEW_MS)));
        let until = open.map_or(young, |open| open.min(young));
        if until > settled.until {
            let more = book.used(settled.until, until).await?;
            (settled.until, settled.usage) = (until, both(settled.usage, more));
        }
        let open = book.used(settled.until, Uuid::max()).await?;
        let without = match old {
            Some(old) => Some(both(old.usage, book.used(old.until, Uuid::max()).await?)),
            None => None,
        };
        let usage = both(settled.usage, open);
        Ok((settled, Sum { usage, without }))
    }
}

fn both(one: TenantUsage, other: TenantUsage) -> TenantUsage {
    let mut usage = one.usage;
    usage.add(&other.usage);
    TenantUsage {
        sends: one.sends + other.sends,
        calls: one.calls + other.calls,
        usage,
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Mutex;

    use super::*;

    /// Sends, each with when it was accepted in milliseconds, its tokens, and whether it is open.
    #[derive(Debug, Default)]
    struct Sends {
        all: Vec<(i64, u64, bool)>,
        /// Number of sends that were read since the last check.
        read: Mutex<usize>,
    }

    fn id(at: i64) -> Uuid {
        first_id(Timestamp(at))
    }

    impl Book for Sends {
        fn first_open(&self, from: Uuid) -> BoxFuture<'_, Result<Option<Uuid>>> {
            let open = self.all.iter().filter(|(_, _, is_open)| *is_open);
            let open = open.map(|(at, ..)| id(*at)).filter(|id| *id >= from);
            Box::pin(ready(Ok(open.min())))
        }

        fn used(&self, from: Uuid, until: Uuid) -> BoxFuture<'_, Result<TenantUsage>> {
            let mut used = TenantUsage::default();
            let range = from..until;
            for (_, tokens, _) in self.all.iter().filter(|(at, ..)| range.contains(&id(*at))) {
                *self.read.lock().expect("nobody panics under it") += 1;
                used.sends += 1;
                used.usage.input_tokens += tokens;
            }
            Box::pin(ready(Ok(used)))
        }
    }

    const FROM: i64 = 1_000_000;

    struct World {
        sends: Sends,
        known: Option<Settled>,
        /// Milliseconds since `FROM`.
        time: u64,
    }

    impl World {
        fn new() -> Self {
            Self {
                sends: Sends::default(),
                known: None,
                time: 0,
            }
        }

        /// The sum of tokens, that sum without corrections, and how many sends were read for it.
        async fn sum(&mut self) -> (u64, Option<u64>, usize) {
            let now = Timestamp(FROM + i64::try_from(self.time).expect("small"));
            let time = Duration::from_millis(self.time);
            let summed = Settled::sum(self.known, &self.sends, (Timestamp(FROM), now), time);
            let (settled, sum) = summed.await.expect("it answers");
            self.known = Some(settled);
            let read = std::mem::take(&mut *self.sends.read.lock().expect("nobody panics"));
            let without = sum.without.map(|used| used.usage.input_tokens);
            (sum.usage.usage.input_tokens, without, read)
        }

        fn whole(&self) -> u64 {
            let sends = self.sends.all.iter().filter(|(at, ..)| *at >= FROM);
            sends.map(|(_, tokens, _)| tokens).sum()
        }

        fn accept(&mut self, tokens: u64, is_open: bool) {
            let at = FROM + i64::try_from(self.time).expect("small");
            self.sends.all.push((at, tokens, is_open));
        }
    }

    #[tokio::test]
    async fn the_sum_is_whole_and_what_has_ended_is_read_once() {
        let mut world = World::new();
        let mut most = 0;
        for n in 0..140 {
            world.time = n * 2_000;
            world.accept(n, false);
            let (sum, without, read) = world.sum().await;
            assert_eq!((sum, without), (world.whole(), None), "{n}");
            most = most.max(read);
        }
        assert!(most <= 6, "those of the last seconds: {most}");
    }

    #[tokio::test]
    async fn what_open_sends_take_counts_however_long_they_are_open() {
        let mut world = World::new();
        world.sends.all.push((FROM - 1, 1_000_000, true));
        for n in 0..60 {
            world.time = n * 2_000;
            world.accept(1, n == 7);
            // The open send uses some with each round.
            if let Some(open) = world.sends.all.get_mut(8) {
                open.1 += 100;
            }
            assert_eq!(world.sum().await.0, world.whole(), "{n}");
        }
        world.sends.all[8].2 = false;
        world.sends.all[8].1 += 100;
        assert_eq!(world.sum().await.0, world.whole(), "with its last round");
        let read = world.sum().await.2;
        assert!(read <= 6, "now that has ended: {read}");
    }

    #[tokio::test]
    async fn what_came_to_ended_sends_is_found_and_told_minutes_later() {
        let mut world = World::new();
        for n in 0..60 {
            world.time = n * 2_000;
            world.accept(10, false);
            world.sum().await;
        }
        world.sends.all[3].1 += 500;
        world.time = 299_999;
        assert_eq!(world.sum().await.0, world.whole() - 500);
        world.time = 300_000;
        world.accept(10, false);
        let whole = world.whole();
        let (sum, without, _) = world.sum().await;
        assert_eq!((sum, without), (whole, Some(whole - 500)));
        world.sends.all.drain(..10);
        world.time = 600_000;
        let (sum, without, _) = world.sum().await;
        assert_eq!((sum, without), (world.whole(), Some(whole)), "retention");
    }
}
