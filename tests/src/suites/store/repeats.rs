//! Repeated writes under a lease: each takes effect once.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::lease::Lease;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_RESULT};
use mainspring_shared::store::{
    AfterSend, AppendOutcome, AppendRound, CallBegin, CallStep, Claimed, CompleteOutcome,
    DeliverItem, Inspect, ParkOutcome, ParkSend, ParkUntil,
};

use super::prelude::*;

/// The lease as its n-th write carries it.
fn nth(claimed: &Claimed, n: i64) -> Lease {
    Lease {
        write: n,
        ..claimed.lease
    }
}

async fn appended(store: &dyn Inspect, ms: i64, item: &AppendRound) -> AppendOutcome {
    let outcomes = store.at(time(ms)).append_rounds(vec![item.clone()]).await;
    one(outcomes.expect("the store answers"))
}

/// A steering message for the running send.
fn steer(id: &str, session: u128) -> DeliverItem {
    item(id, session, OnBusy::Steer)
}

/// The part of an answer that is the same for every repeat.
fn told(outcome: &AppendOutcome) -> (i64, i64, i64) {
    match outcome {
        AppendOutcome::Appended {
            first_seq,
            step,
            counters,
            ..
        } => (*first_seq, *step, counters.next_seq),
        AppendOutcome::LeaseLost | AppendOutcome::Locked => {
            panic!("the lease was held all the time")
        }
    }
}

/// A round with a started call, and the step with its result.
async fn with_result(store: &dyn Inspect) -> (Claimed, AppendRound) {
    let claimed = running(store).await;
    append(store, 20, asking(&claimed, 0, vec![CallBegin::Started])).await;
    let id = call(&claimed, 0, 0);
    let mut item = changing(&claimed, 0, vec![settling(&id, "seen")]);
    item.messages = vec![tool_result(&id, 0, 1)];
    item.lease = nth(&claimed, 1);
    (claimed, item)
}

pub async fn results_that_are_sent_again_are_stored_once(store: &dyn Inspect) {
    let (_, item) = with_result(store).await;
    let first = appended(store, 30, &item).await;
    assert_eq!(told(&first), (3, 3, 4));
    let before = store.dump().await.expect("the store answers");
    let again = appended(store, 40, &item).await;
    assert_eq!(told(&again), told(&first));
    let AppendOutcome::Appended { at, counters, .. } = again else {
        panic!("{again:?}");
    };
    assert_eq!(at, time(30), "when it was stored");
    assert_eq!(counters.signals, SIGNAL_RESULT, "who asks looks once more");
    assert_eq!(store.dump().await.expect("the store answers"), before);
}

pub async fn a_repeat_tells_again_of_what_lies_in_the_inbox(store: &dyn Inspect) {
    let (_, item) = with_result(store).await;
    delivered(store, 25, steer("a", 1)).await;
    appended(store, 30, &item).await;
    let AppendOutcome::Appended { counters, .. } = appended(store, 40, &item).await else {
        panic!("the lease was held all the time");
    };
    assert_eq!(counters.signals, SIGNAL_INBOX | SIGNAL_RESULT);
}

pub async fn a_call_that_is_begun_again_by_the_same_step_was_begun_once(store: &dyn Inspect) {
    let claimed = running(store).await;
    let waits_first = vec![waits(WaitingOn::Human)];
    append(store, 20, asking(&claimed, 0, waits_first)).await;
    let id = call(&claimed, 0, 0);
    let item = AppendRound {
        lease: nth(&claimed, 1),
        ..changing(&claimed, 0, vec![change(&id, CallStep::Started)])
    };
    appended(store, 30, &item).await;
    let before = store.dump().await.expect("the store answers");
    appended(store, 31, &item).await;
    assert_eq!(store.dump().await.expect("the store answers"), before);
    assert_eq!(call_of(store, &id).await.attempt, 1);
}

pub async fn an_older_write_under_the_same_lease_changes_nothing(store: &dyn Inspect) {
    let (claimed, item) = with_result(store).await;
    appended(store, 30, &item).await;
    let item = AppendRound {
        lease: nth(&claimed, 2),
        ..round(&claimed, 1)
    };
    appended(store, 40, &item).await;
    let before = store.dump().await.expect("the store answers");
    let mut late = changing(&claimed, 0, Vec::new());
    late.messages = vec![tool_result("late", 0, 1)];
    late.lease = nth(&claimed, 1);
    assert_eq!(appended(store, 50, &late).await, AppendOutcome::LeaseLost);
    let end = ending(&claimed, AfterSend::Continue);
    let ended = store.at(time(51)).complete_sends(vec![end]).await;
    let ended = one(ended.expect("the store answers"));
    assert_eq!(ended, CompleteOutcome::LeaseLost);
    let wait = waiting(&claimed, WaitingOn::Retry, ParkUntil::Asked);
    let parked = store.at(time(52)).park_sends(vec![wait]).await;
    let parked = one(parked.expect("the store answers"));
    assert_eq!(parked, ParkOutcome::LeaseLost);
    assert_eq!(store.dump().await.expect("the store answers"), before);
}

pub async fn an_end_that_was_kept_back_does_not_end_by_its_repeat(store: &dyn Inspect) {
    let claimed = running(store).await;
    delivered(store, 15, steer("a", 1)).await;
    let mut end = ending(&claimed, AfterSend::Continue);
    end.unless = SIGNAL_INBOX;
    let kept = store.at(time(20)).complete_sends(vec![end.clone()]).await;
    let kept = one(kept.expect("the store answers"));
    assert_eq!(kept, CompleteOutcome::Undelivered);
    let before = store.dump().await.expect("the store answers");
    // The signal is lowered by now, but the item that raised it was not delivered yet.
    let again = store.at(time(21)).complete_sends(vec![end.clone()]).await;
    let again = one(again.expect("the store answers"));
    assert_eq!(again, CompleteOutcome::LeaseLost);
    assert_eq!(store.dump().await.expect("the store answers"), before);
    end.lease = nth(&claimed, 1);
    complete(store, 22, end).await;
}

pub async fn a_wait_that_was_woken_does_not_begin_by_its_repeat(store: &dyn Inspect) {
    let claimed = running(store).await;
    delivered(store, 15, steer("a", 1)).await;
    let wait = ParkSend {
        unless: SIGNAL_INBOX,
        ..waiting(&claimed, WaitingOn::Retry, ParkUntil::Asked)
    };
    let woken = store.at(time(20)).park_sends(vec![wait.clone()]).await;
    let woken = one(woken.expect("the store answers"));
    let signals = SIGNAL_INBOX;
    assert_eq!(woken, ParkOutcome::Woken { signals });
    let again = store.at(time(21)).park_sends(vec![wait]).await;
    let again = one(again.expect("the store answers"));
    assert_eq!(again, ParkOutcome::LeaseLost);
    complete(store, 22, ending(&claimed, AfterSend::Release)).await;
}

pub async fn numbers_begin_anew_with_each_grant(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, round(&claimed, 0)).await;
    assert!(release(store, 30, &claimed).await);
    let again = claim(store, 40, 1, 1, 2).await;
    assert_eq!(again.lease.write, 0);
    let item = round(&again, 1);
    assert_eq!(told(&appended(store, 50, &item).await), (4, 4, 6));
}
