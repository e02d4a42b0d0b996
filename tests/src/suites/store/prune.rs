//! Old messages are removed.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::store::{
    AuditOptions, PruneOutcome, PruneSession, PruneTo, ReadInbox, Store, Then,
};

use super::prelude::*;

async fn prune(store: &dyn Store, ms: i64, to: PruneTo, dry_run: bool) -> (i64, i64) {
    let item = PruneSession {
        key: key(1),
        to,
        dry_run,
    };
    let outcome = store.prune_session(at(ms), item).await;
    match outcome.expect("the store answers") {
        PruneOutcome::Pruned { removed, first_seq } => (removed, first_seq),
        PruneOutcome::NotFound => panic!("session 1 is there"),
    }
}

async fn assert_sound(store: &dyn Store, ms: i64) {
    let violations = store.audit(at(ms), AuditOptions::default()).await;
    assert_eq!(violations.expect("the store answers"), []);
}

/// Messages 1 to 4 of a send with a call, 5 and 6 of one without; session 1 is idle.
async fn told(store: &dyn Store) {
    let claimed = running(store).await;
    append(store, 20, round(&claimed, 0)).await;
    let mut item = ending(&claimed, Then::Release);
    item.messages = vec![answer("done", 1, &[])];
    item.usage = vec![usage_row(1, 2)];
    complete(store, 30, item).await;
    accept(store, 40, sending(2, 1)).await;
    let claimed = claim(store, 50, 1, 1, 2).await;
    complete(store, 60, ending(&claimed, Then::Release)).await;
    assert_eq!(seqs(&transcript(store, 1).await), [1, 2, 3, 4, 5, 6]);
}

pub async fn old_messages_go_and_the_rest_keeps_its_numbers(store: &dyn Store) {
    told(store).await;
    assert_eq!(prune(store, 70, PruneTo::Before(5), true).await, (4, 5));
    assert_eq!(transcript(store, 1).await.len(), 6);
    assert_eq!(prune(store, 70, PruneTo::KeepLast(2), false).await, (4, 5));
    assert_eq!(seqs(&transcript(store, 1).await), [5, 6]);
    let record = store.get_session(key(1)).await.expect("the store answers");
    let record = record.expect("it is there");
    assert_eq!(
        (record.messages, record.first_seq, record.last_seq()),
        (2, 5, 6)
    );
    assert!(dumped(store, 1).await.calls.is_empty());
    assert_eq!(prune(store, 71, PruneTo::Before(3), false).await, (0, 5));
    assert_sound(store, 72).await;
    accept(store, 80, sending(3, 1)).await;
    let claimed = claim(store, 90, 1, 1, 3).await;
    assert_eq!(seqs(&claimed.window), [5, 6]);
    complete(store, 95, ending(&claimed, Then::Release)).await;
    assert_eq!(seqs(&transcript(store, 1).await), [5, 6, 7, 8]);
    assert_sound(store, 96).await;
}

pub async fn a_call_stays_with_its_results_and_the_last_message_stays(store: &dyn Store) {
    told(store).await;
    // The result at 3 was asked for at 2.
    assert_eq!(prune(store, 70, PruneTo::Before(3), false).await, (1, 2));
    assert_eq!(dumped(store, 1).await.calls.len(), 1);
    assert_sound(store, 71).await;
    assert_eq!(prune(store, 72, PruneTo::KeepLast(0), false).await, (4, 6));
    assert_eq!(seqs(&transcript(store, 1).await), [6]);
    assert_sound(store, 73).await;
}

pub async fn what_the_open_send_wrote_stays(store: &dyn Store) {
    told(store).await;
    accept(store, 80, sending(3, 1)).await;
    let claimed = claim(store, 90, 1, 1, 3).await;
    append(store, 100, round(&claimed, 0)).await;
    assert_eq!(prune(store, 110, PruneTo::KeepLast(1), false).await, (6, 7));
    assert_eq!(seqs(&transcript(store, 1).await), [7, 8, 9]);
    assert_sound(store, 111).await;
}

pub async fn a_pruned_message_may_have_come_through_the_inbox(store: &dyn Store) {
    let claimed = running(store).await;
    delivered(store, 15, item("a", 1, OnBusy::Steer)).await;
    let mut first = round(&claimed, 0);
    first.messages.insert(
        1,
        mainspring_shared::message::NewMessage::user(news("a"), 0),
    );
    first.deliveries = vec![delivery("a", 1)];
    append(store, 20, first).await;
    let mut item = ending(&claimed, Then::Release);
    item.messages = vec![answer("done", 1, &[])];
    item.usage = vec![usage_row(1, 2)];
    complete(store, 30, item).await;
    prune(store, 40, PruneTo::KeepLast(1), false).await;
    let query = ReadInbox {
        key: key(1),
        pending: false,
        after: 0,
        limit: 9,
    };
    let items = store.read_inbox(query).await.expect("the store answers");
    assert_eq!(items.len(), 1);
    assert_sound(store, 41).await;
}

pub async fn nothing_is_pruned_of_what_is_not_there(store: &dyn Store) {
    register(store, SCHEDULER).await;
    let item = PruneSession {
        key: key(1),
        to: PruneTo::KeepLast(1),
        dry_run: false,
    };
    let unknown = store.prune_session(at(0), item).await;
    assert_eq!(unknown.expect("the store answers"), PruneOutcome::NotFound);
    let created = store.create_sessions(at(1), vec![(new_session(1), None)]);
    created.await.expect("the store answers");
    assert_eq!(prune(store, 2, PruneTo::KeepLast(1), false).await, (0, 1));
    assert_sound(store, 3).await;
    let deleted = store.delete_session(at(4), key(1), boot(SCHEDULER)).await;
    deleted.expect("the store answers");
    let gone = store.prune_session(at(5), item).await;
    assert_eq!(gone.expect("the store answers"), PruneOutcome::NotFound);
}
