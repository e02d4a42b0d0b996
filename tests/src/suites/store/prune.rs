//! Pruning old messages.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::store::{
    AfterSend, AuditOptions, ClaimOutcome, ClaimSession, Claimed, Inspect, PruneOutcome,
    PruneSession, PruneTo, ReadInbox, SessionPatch, prune_all,
};

use super::prelude::*;

async fn prune(store: &dyn Inspect, ms: i64, to: PruneTo, dry_run: bool) -> (i64, i64) {
    let item = PruneSession {
        key: key(1),
        to,
        dry_run,
        limit: 100,
    };
    let outcome = store.at(time(ms)).prune_session(item).await;
    match outcome.expect("the store answers") {
        PruneOutcome::Pruned {
            removed,
            first_seq,
            until,
        } => {
            assert_eq!(first_seq, until);
            (removed, first_seq)
        }
        PruneOutcome::NotFound => panic!("session 1 is there"),
    }
}

async fn assert_sound(store: &dyn Inspect, ms: i64) {
    let violations = store.at(time(ms)).audit(AuditOptions::default()).await;
    assert_eq!(violations.expect("the store answers"), []);
}

/// Messages 1 to 4 belong to a send with a call, 5 and 6 to one without; session 1 is idle.
async fn told(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, round(&claimed, 0)).await;
    let mut item = ending(&claimed, AfterSend::Release);
    item.messages = vec![answer("done", 1, &[])];
    item.usage = vec![usage_row(1, 2)];
    item.round = Some(round_ref(1));
    item.totals = totals(2);
    complete(store, 30, item).await;
    accept(store, 40, sending(2, 1)).await;
    let claimed = claim(store, 50, 1, 1, 2).await;
    complete(store, 60, ending(&claimed, AfterSend::Release)).await;
    assert_eq!(seqs(&transcript(store, 1).await), [1, 2, 3, 4, 5, 6]);
}

pub async fn old_messages_go_and_the_rest_keeps_its_numbers(store: &dyn Inspect) {
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
    complete(store, 95, ending(&claimed, AfterSend::Release)).await;
    assert_eq!(seqs(&transcript(store, 1).await), [5, 6, 7, 8]);
    assert_sound(store, 96).await;
}

pub async fn a_call_stays_with_its_results_and_the_last_message_stays(store: &dyn Inspect) {
    told(store).await;
    // The result at 3 belongs to the call at 2.
    assert_eq!(prune(store, 70, PruneTo::Before(3), false).await, (1, 2));
    assert_eq!(dumped(store, 1).await.calls.len(), 1);
    assert_sound(store, 71).await;
    assert_eq!(prune(store, 72, PruneTo::KeepLast(0), false).await, (4, 6));
    assert_eq!(seqs(&transcript(store, 1).await), [6]);
    assert_sound(store, 73).await;
}

pub async fn what_the_open_send_wrote_stays(store: &dyn Inspect) {
    told(store).await;
    accept(store, 80, sending(3, 1)).await;
    let claimed = claim(store, 90, 1, 1, 3).await;
    append(store, 100, round(&claimed, 0)).await;
    assert_eq!(prune(store, 110, PruneTo::KeepLast(1), false).await, (6, 7));
    assert_eq!(seqs(&transcript(store, 1).await), [7, 8, 9]);
    assert_sound(store, 111).await;
}

pub async fn a_pruned_message_may_have_come_through_the_inbox(store: &dyn Inspect) {
    let claimed = running(store).await;
    delivered(store, 15, item("a", 1, OnBusy::Steer)).await;
    let mut first = round(&claimed, 0);
    first.messages.insert(
        1,
        mainspring_shared::message::NewMessage::user(news("a"), 0),
    );
    first.deliveries = vec![delivery("a", 1)];
    append(store, 20, first).await;
    let mut item = ending(&claimed, AfterSend::Release);
    item.messages = vec![answer("done", 1, &[])];
    item.usage = vec![usage_row(1, 2)];
    item.round = Some(round_ref(1));
    item.totals = totals(2);
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

pub async fn nothing_is_pruned_of_what_is_not_there(store: &dyn Inspect) {
    register(store, SCHEDULER).await;
    let item = PruneSession {
        key: key(1),
        to: PruneTo::KeepLast(1),
        dry_run: false,
        limit: 100,
    };
    let unknown = store.at(time(0)).prune_session(item).await;
    assert_eq!(unknown.expect("the store answers"), PruneOutcome::NotFound);
    let created = store
        .at(time(1))
        .create_sessions(vec![(new_session(1), None)])
        .await;
    created.expect("the store answers");
    assert_eq!(prune(store, 2, PruneTo::KeepLast(1), false).await, (0, 1));
    assert_sound(store, 3).await;
    let deleted = store
        .at(time(4))
        .delete_session(key(1), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    let gone = store.at(time(5)).prune_session(item).await;
    assert_eq!(gone.expect("the store answers"), PruneOutcome::NotFound);
}

/// One page of a pruning: how many messages were removed, where the transcript begins, and where it
/// will begin in the end.
async fn page(store: &dyn Inspect, ms: i64, to: PruneTo, limit: u32) -> (i64, i64, i64) {
    let item = PruneSession {
        key: key(1),
        to,
        dry_run: false,
        limit,
    };
    let outcome = store.at(time(ms)).prune_session(item).await;
    match outcome.expect("the store answers") {
        PruneOutcome::Pruned {
            removed,
            first_seq,
            until,
        } => (removed, first_seq, until),
        PruneOutcome::NotFound => panic!("session 1 is there"),
    }
}

pub async fn a_long_transcript_goes_page_by_page(store: &dyn Inspect) {
    told(store).await;
    for n in 3..=8 {
        accept(store, 100, sending(n, 1)).await;
        let claimed = claim(store, 100, 1, 1, n).await;
        complete(store, 100, ending(&claimed, AfterSend::Release)).await;
    }
    assert_eq!(transcript(store, 1).await.len(), 18);
    // 3 answers 2, so a page that would end between them ends before 2 or after 3.
    assert_eq!(page(store, 110, PruneTo::Before(17), 1).await, (1, 2, 17));
    assert_sound(store, 110).await;
    assert_eq!(page(store, 110, PruneTo::Before(17), 1).await, (2, 4, 17));
    assert!(dumped(store, 1).await.calls.is_empty());
    assert_sound(store, 110).await;
    assert_eq!(page(store, 110, PruneTo::Before(17), 5).await, (5, 9, 17));
    assert_sound(store, 110).await;
    let item = PruneSession {
        key: key(1),
        to: PruneTo::KeepLast(2),
        dry_run: false,
        limit: 3,
    };
    let pruned = prune_all(&*store.at(time(111)), item).await;
    let expected = PruneOutcome::Pruned {
        removed: 8,
        first_seq: 17,
        until: 17,
    };
    assert_eq!(pruned.expect("the store answers"), expected);
    assert_eq!(seqs(&transcript(store, 1).await), [17, 18]);
    assert_sound(store, 111).await;
}

/// Claims session 1 for a worker that has it cached from the start, under this version; returns
/// what was missing, and the version.
async fn claim_cached(
    store: &dyn Inspect,
    ms: i64,
    token_n: u128,
    next_seq: i64,
    version: i64,
) -> (Claimed, i64) {
    let item = ClaimSession {
        cached_next_seq: next_seq,
        cached_from_seq: 1,
        cached_version: version,
        ..cold_claim(1, token_n)
    };
    let outcomes = store.at(time(ms)).claim_sessions(boot(1), vec![item]).await;
    match one(outcomes.expect("the store answers")) {
        ClaimOutcome::Claimed(claimed) => {
            let version = claimed.counters.context_version;
            (*claimed, version)
        }
        other => panic!("a claim was expected: {other:?}"),
    }
}

pub async fn what_was_cached_before_a_prune_counts_for_nothing(store: &dyn Inspect) {
    told(store).await;
    accept(store, 80, sending(3, 1)).await;
    let (claimed, version) = claim_cached(store, 81, 3, 7, 0).await;
    assert_eq!(
        (seqs(&claimed.window), version),
        (vec![], 0),
        "it is all there"
    );
    complete(store, 82, ending(&claimed, AfterSend::Release)).await;
    prune(store, 90, PruneTo::KeepLast(3), true).await;
    assert_eq!(
        dumped(store, 1).await.hot.context_version,
        0,
        "nothing went"
    );
    prune(store, 90, PruneTo::KeepLast(3), false).await;
    prune(store, 90, PruneTo::KeepLast(3), false).await;
    assert_eq!(dumped(store, 1).await.hot.context_version, 1, "one did");
    accept(store, 100, sending(4, 1)).await;
    accept(store, 100, sending(5, 1)).await;
    let (claimed, version) = claim_cached(store, 101, 4, 9, 0).await;
    assert_eq!((seqs(&claimed.window), version), (vec![6, 7, 8], 1));
    // The holder of the session learns of it with the next send.
    prune(store, 102, PruneTo::KeepLast(1), false).await;
    let completed = complete(store, 103, ending(&claimed, AfterSend::Continue)).await;
    let (next, counters) = completed.next.expect("a send is queued");
    assert_eq!(counters.context_version, 2);
    let item = ending_of(&claimed, &next.record, AfterSend::Release);
    complete(store, 104, item).await;
    accept(store, 110, sending(6, 1)).await;
    let (claimed, version) = claim_cached(store, 111, 5, 13, 2).await;
    assert_eq!((seqs(&claimed.window), version), (vec![], 2));
}

pub async fn another_agent_is_another_context(store: &dyn Inspect) {
    told(store).await;
    let changed = async |patch| store.at(time(70)).update_session(key(1), patch).await;
    let patch = SessionPatch {
        closed: Some(false),
        ..SessionPatch::default()
    };
    changed(patch).await.expect("the store answers");
    assert_eq!(dumped(store, 1).await.hot.context_version, 0);
    let patch = SessionPatch {
        agent: Some(new_session(1).agent),
        ..SessionPatch::default()
    };
    changed(patch).await.expect("the store answers");
    accept(store, 80, sending(3, 1)).await;
    let (claimed, version) = claim_cached(store, 81, 3, 7, 0).await;
    assert_eq!((claimed.window.len(), version), (6, 1));
    let (.., counters) = append(store, 82, round(&claimed, 0)).await;
    assert_eq!(counters.context_version, 1);
}
