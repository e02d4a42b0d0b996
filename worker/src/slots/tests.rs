use std::pin::Pin;

use async_trait::async_trait;
use futures::FutureExt;
use mainspring_shared::id::SessionId;
use mainspring_shared::time::Timestamp;
use uuid::Uuid;

use super::*;
use crate::manual_clock::ManualClock;

const LOUD: TenantId = TenantId(1);
const QUIET: TenantId = TenantId(2);

fn key(tenant: TenantId, n: u128) -> SessionKey {
    SessionKey {
        tenant,
        session: SessionId(Uuid::from_u128(n)),
    }
}

fn slots(total: usize) -> (Arc<ManualClock>, Arc<Slots>) {
    let clock = Arc::new(ManualClock::default());
    (clock.clone(), Slots::new(total, clock))
}

/// All slots that a tenant can get.
fn all(slots: &Arc<Slots>, tenant: TenantId) -> Vec<Slot> {
    std::iter::from_fn(|| slots.try_take(tenant)).collect()
}

type Waiting<'a> = Pin<Box<dyn Future<Output = Option<Slot>> + 'a>>;

fn wait(slots: &Arc<Slots>, key: SessionKey) -> Waiting<'_> {
    let mut waiting: Waiting<'_> = Box::pin(slots.take(key));
    assert!((&mut waiting).now_or_never().is_none(), "it has to wait");
    waiting
}

#[test]
fn a_tenant_that_is_alone_has_all_and_leaves_some_as_soon_as_another_comes() {
    let (clock, slots) = slots(32);
    let mut loud = all(&slots, LOUD);
    assert_eq!((loud.len(), slots.free()), (32, 0));
    assert!(slots.is_at_its_share(LOUD));
    assert!(slots.try_take(QUIET).is_none());
    assert!(!slots.is_at_its_share(QUIET), "it waits for the next one");
    loud.truncate(30);
    assert!(slots.try_take(LOUD).is_none() && slots.is_at_its_share(LOUD));
    let quiet = all(&slots, QUIET);
    assert_eq!(quiet.len(), 2);
    loud.truncate(20);
    let more = all(&slots, LOUD);
    assert_eq!(more.len(), 6, "all but four of 32");
    clock.at(Duration::from_mins(5));
    assert!(
        slots.try_take(LOUD).is_none(),
        "the other one is at it still"
    );
    drop((quiet, more));
    clock.at(Duration::from_secs(359));
    assert_eq!(all(&slots, LOUD).len(), 8);
    clock.at(Duration::from_mins(6));
    assert_eq!(all(&slots, LOUD).len(), 12, "it is alone again");
}

#[test]
fn two_busy_tenants_leave_some_to_a_third_one() {
    let (_, slots) = slots(32);
    let busy: Vec<Slot> = (0..40)
        .filter_map(|n| slots.try_take(if n % 2 == 0 { LOUD } else { TenantId(3) }))
        .collect();
    assert_eq!(busy.len(), 28);
    let quiet = all(&slots, QUIET);
    assert_eq!(quiet.len(), 4);
    assert!(slots.is_at_its_share(QUIET), "four are not few");
}

#[test]
fn a_small_worker_leaves_none() {
    let (_, slots) = slots(7);
    drop(slots.try_take(QUIET));
    let loud = all(&slots, LOUD);
    assert_eq!(loud.len(), 7);
    assert!(slots.is_at_its_share(LOUD) && !slots.is_at_its_share(QUIET));
    assert!(!slots.is_light(QUIET));
}

#[test]
fn who_has_few_is_light() {
    let (_, slots) = slots(16);
    let mut quiet = Vec::new();
    for taken in 0..5 {
        assert_eq!(slots.is_light(QUIET), taken <= 2, "{taken}");
        quiet.extend(slots.try_take(QUIET));
    }
    assert_eq!(slots.used(), 5);
}

#[test]
fn slots_go_to_those_who_wait_in_the_turns_of_their_tenants() {
    let (_, slots) = slots(4);
    let mut taken = all(&slots, LOUD);
    let mut loud: Vec<_> = (0..3).map(|n| wait(&slots, key(LOUD, n))).collect();
    let mut quiet = wait(&slots, key(QUIET, 9));
    taken.pop();
    let ready: Vec<_> = loud
        .iter_mut()
        .filter_map(FutureExt::now_or_never)
        .collect();
    assert!(matches!(ready[..], [Some(_)]), "{ready:?}");
    taken.pop();
    assert!((&mut quiet).now_or_never().flatten().is_some());
}

#[test]
fn who_may_have_none_is_passed_by_and_keeps_the_turn() {
    let (_, slots) = slots(8);
    let mut loud = all(&slots, LOUD);
    let mut heavy = wait(&slots, key(LOUD, 1));
    let mut light = wait(&slots, key(QUIET, 2));
    loud.pop();
    let quiet = (&mut light).now_or_never().flatten();
    assert!(quiet.is_some(), "one of eight is left for others");
    assert!((&mut heavy).now_or_never().is_none());
    drop(quiet);
    assert!((&mut heavy).now_or_never().is_none(), "it is still left");
    assert_eq!(slots.free(), 1);
    loud.pop();
    assert!((&mut heavy).now_or_never().flatten().is_some());
}

#[test]
fn a_session_waits_once_and_whoever_gives_up_takes_none() {
    let (_, slots) = slots(1);
    let first = slots.try_take(LOUD);
    let gone = wait(&slots, key(LOUD, 1));
    let twice = slots.take(key(LOUD, 1)).now_or_never();
    assert!(matches!(twice, Some(None)), "somebody waits for it");
    drop(gone);
    let mut again = wait(&slots, key(LOUD, 1));
    let mut behind = wait(&slots, key(LOUD, 2));
    drop(first);
    let slot = (&mut again).now_or_never().flatten();
    assert!(slot.is_some() && (&mut behind).now_or_never().is_none());
    // Granted, but given up before it was polled.
    drop(slot);
    drop(behind);
    assert_eq!((slots.used(), slots.free()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_served_when_the_other_tenant_has_been_forgotten() {
    #[derive(Debug)]
    struct Ticking(tokio::time::Instant);

    #[async_trait]
    impl Clock for Ticking {
        fn now(&self) -> Timestamp {
            Timestamp(0)
        }

        fn monotonic(&self) -> Duration {
            self.0.elapsed()
        }

        #[expect(clippy::disallowed_methods, reason = "this is the clock")]
        async fn sleep(&self, duration: Duration) {
            tokio::time::sleep(duration).await;
        }
    }

    let clock = Arc::new(Ticking(tokio::time::Instant::now()));
    let slots = Slots::new(8, clock.clone());
    drop(slots.try_take(QUIET));
    let loud = all(&slots, LOUD);
    assert_eq!(loud.len(), 7);
    assert!(slots.take(key(LOUD, 1)).await.is_some());
    assert_eq!(clock.monotonic(), REMEMBERED);
}
