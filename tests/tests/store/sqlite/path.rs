//! The life of a send, and what can happen to it on the way.

use mainspring_shared::store::{AfterSend, ClaimOutcome, CompleteOutcome, Error, Inspect as _};

use crate::sqlite::opened::{Opened, open};
use crate::sqlite::steps::*;

#[tokio::test]
async fn completing_takes_the_next_send_under_the_same_lease() {
    let Opened { store, place: _dir } = open().await;
    let claimed = running(&store).await;
    accept(&store, 11, sending(2, 1)).await;
    let item = ending(&claimed, &claimed.send.record, AfterSend::Continue);
    let (next, counters) = complete(&store, 20, item).await.next.expect("send 2");
    assert_eq!((next.record.id, next.resumed), (send(2), None));
    assert_eq!((counters.next_seq, counters.pending), (3, 0));
    assert!(matches!(
        try_claim(&store, 21, 1, 1, 2).await,
        ClaimOutcome::Busy
    ));
    let item = ending(&claimed, &claimed.send.record, AfterSend::Continue);
    let again = try_complete(&store, 22, item).await;
    assert_eq!(again, CompleteOutcome::LeaseLost, "send 1 no longer runs");
    assert_sound(&store, 30).await;
}

#[tokio::test]
async fn an_item_that_is_refused_by_the_database_leaves_nothing_of_its_call() {
    let Opened { store, place: _dir } = open().await;
    accept(&store, 0, opening(1, 1)).await;
    let before = store.dump().await.expect("answers");
    let items = vec![sending(2, 1), sending(1, 1)];
    let outcome = store.at(time(1)).accept_sends(SCHEDULER, items).await;
    assert!(matches!(outcome, Err(Error::Refused { .. })), "{outcome:?}");
    assert_eq!(store.dump().await.expect("answers"), before);
    accept(&store, 2, sending(2, 1)).await;
}
