//! Folds: attached with a step, and read with the window.

use mainspring_shared::list::List;
use mainspring_shared::session::fold::{Fold, FoldKind, NewFold, copies};
use mainspring_shared::step::StepKind;
use mainspring_shared::store::{
    AfterSend, AppendOutcome, AppendRound, AuditOptions, ClaimOutcome, ClaimSession, Claimed,
    CreateOutcome, EXTRACT_ROUND, FoldAtRest, FoldedAtRest, ImportSession, Inspect, PruneSession,
    PruneTo, SendTotals, UsageRow,
};
use mainspring_shared::usage::Purpose;
use uuid::Uuid;

use super::prelude::*;

/// Messages 1 to 4 belong to a send with a call, 5 and 6 to one without; send 3 is claimed with token 3.
async fn third(store: &dyn Inspect) -> Claimed {
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
    accept(store, 70, sending(3, 1)).await;
    claim(store, 80, 1, 1, 3).await
}

pub(super) fn new_fold(from_seq: i64, to_seq: i64, level: i32) -> NewFold {
    NewFold {
        from_seq,
        to_seq,
        level,
        kind: FoldKind::Summary,
        text: format!("\u{e9}{from_seq} to {to_seq}: \"quoted\", 'so'"),
        model: Some("m".to_owned()),
        tokens_before: 1_000,
        tokens_after: 50,
    }
}

fn folding(claimed: &Claimed, fold: NewFold) -> AppendRound {
    AppendRound {
        key: claimed.key,
        lease: claimed.lease,
        send_id: claimed.send.record.id,
        messages: Vec::new(),
        calls: Vec::new(),
        changes: Vec::new(),
        deliveries: Vec::new(),
        usage: Vec::new(),
        round: None,
        fold: Some(fold),
        totals: SendTotals::default(),
    }
}

async fn folds(store: &dyn Inspect, n: u128) -> Vec<Fold> {
    store.read_folds(key(n)).await.expect("the store answers")
}

/// What a claim returns for a cached window from `from_seq` up to message 6.
async fn claimed_with(store: &dyn Inspect, from_seq: i64, version: i64, fold_end: i64) -> Claimed {
    let item = ClaimSession {
        cached_next_seq: 7,
        cached_from_seq: from_seq,
        cached_version: version,
        cached_fold_end: fold_end,
        ..cold_claim(1, 9)
    };
    let outcomes = store
        .at(time(200))
        .claim_sessions(boot(1), vec![item])
        .await;
    match one(outcomes.expect("the store answers")) {
        ClaimOutcome::Claimed(claimed) => *claimed,
        other => panic!("a claim was expected: {other:?}"),
    }
}

async fn assert_sound(store: &dyn Inspect) {
    let violations = store.at(time(300)).audit(AuditOptions::default()).await;
    assert_eq!(violations.expect("the store answers"), []);
}

pub async fn a_fold_takes_the_place_of_its_messages_in_the_window(store: &dyn Inspect) {
    let claimed = third(store).await;
    let before = claimed.counters.context_version;
    let (_, step, counters) = append(store, 90, folding(&claimed, new_fold(1, 4, 0))).await;
    assert_eq!(
        (counters.context_version, counters.next_seq),
        (before + 1, 7)
    );
    let send = claimed.send.record.id;
    let expected = new_fold(1, 4, 0).at(before + 1, send, time(90));
    assert_eq!(folds(store, 1).await, std::slice::from_ref(&expected));
    let steps = store.read_steps(key(1), step - 1, 10).await;
    let steps = steps.expect("the store answers");
    assert_eq!((steps[0].kind, steps[0].send_id), (StepKind::Folded, send));
    assert_eq!(steps[0].refs.fold, Some(new_fold(1, 4, 0).reference()));
    release(store, 100, &claimed).await;
    // The transcript itself is unchanged.
    assert_eq!(seqs(&transcript(store, 1).await), [1, 2, 3, 4, 5, 6]);
    let again = claim(store, 110, 1, 1, 4).await;
    assert_eq!(again.folds, [expected]);
    assert_eq!(seqs(&again.window), [5, 6]);
    assert_sound(store).await;
}

pub async fn a_cache_with_the_same_folds_gets_nothing(store: &dyn Inspect) {
    let claimed = third(store).await;
    let (.., counters) = append(store, 90, folding(&claimed, new_fold(1, 4, 0))).await;
    release(store, 100, &claimed).await;
    let again = claimed_with(store, 5, counters.context_version, 4).await;
    assert_eq!((again.folds, again.window), (Vec::new(), Vec::new()));
}

pub async fn a_cache_from_before_a_fold_gets_the_window_behind_it(store: &dyn Inspect) {
    let claimed = third(store).await;
    append(store, 90, folding(&claimed, new_fold(1, 4, 0))).await;
    release(store, 100, &claimed).await;
    let again = claimed_with(store, 1, claimed.counters.context_version, 0).await;
    assert_eq!(again.folds.len(), 1);
    assert_eq!(seqs(&again.window), [5, 6]);
}

pub async fn a_later_fold_covers_those_whose_messages_it_names(store: &dyn Inspect) {
    let claimed = third(store).await;
    append(store, 90, folding(&claimed, new_fold(1, 4, 0))).await;
    append(store, 91, folding(&claimed, new_fold(5, 6, 0))).await;
    append(store, 92, folding(&claimed, new_fold(1, 6, 1))).await;
    let all = folds(store, 1).await;
    let last = all[2].n;
    let covered: Vec<_> = all.iter().map(|fold| fold.covered_by).collect();
    assert_eq!(covered, [Some(last), Some(last), None]);
    release(store, 100, &claimed).await;
    let again = claim(store, 110, 1, 1, 4).await;
    assert_eq!(again.folds, all[2..]);
    assert_eq!(again.window, []);
    assert_sound(store).await;
}

pub async fn folds_that_stand_side_by_side_come_in_order(store: &dyn Inspect) {
    let claimed = third(store).await;
    append(store, 90, folding(&claimed, new_fold(1, 4, 0))).await;
    append(store, 91, folding(&claimed, new_fold(5, 6, 0))).await;
    release(store, 100, &claimed).await;
    let again = claim(store, 110, 1, 1, 4).await;
    let ends: Vec<i64> = again.folds.iter().map(|fold| fold.to_seq).collect();
    assert_eq!(ends, [4, 6]);
}

pub async fn a_fold_that_is_sent_again_is_attached_once(store: &dyn Inspect) {
    let claimed = third(store).await;
    let item = folding(&claimed, new_fold(1, 4, 0));
    let mut steps = Vec::new();
    for ms in [90, 91] {
        let outcome = store.at(time(ms)).append_rounds(vec![item.clone()]).await;
        match one(outcome.expect("the store answers")) {
            AppendOutcome::Appended { step, .. } => steps.push(step),
            other => panic!("the lease was expected to hold: {other:?}"),
        }
    }
    assert_eq!(steps[0], steps[1]);
    assert_eq!(folds(store, 1).await.len(), 1);
}

pub async fn of_two_who_fold_the_one_without_the_lease_attaches_nothing(store: &dyn Inspect) {
    let claimed = third(store).await;
    release(store, 90, &claimed).await;
    let other = claim(store, 91, 1, 1, 4).await;
    let late = store.at(time(92));
    let late = late.append_rounds(vec![folding(&claimed, new_fold(1, 4, 0))]);
    let late = one(late.await.expect("the store answers"));
    assert_eq!(late, AppendOutcome::LeaseLost);
    assert_eq!(folds(store, 1).await, []);
    append(store, 93, folding(&other, new_fold(1, 6, 0))).await;
    let ends: Vec<i64> = folds(store, 1)
        .await
        .iter()
        .map(|fold| fold.to_seq)
        .collect();
    assert_eq!(ends, [6]);
}

/// A fold of session 1 after send 3, which cost one call.
fn at_rest(claimed: &Claimed, fold: Option<NewFold>) -> FoldAtRest {
    let usage = usage_row(0, 1);
    let usage = UsageRow::of_fold_at_rest(Uuid::from_u128(77), usage.model, usage.usage);
    FoldAtRest {
        key: claimed.key,
        send_id: claimed.send.record.id,
        boot: boot(1),
        context_version: claimed.counters.context_version,
        fold,
        usage: vec![usage],
    }
}

/// Send 3 has ended with message 8, and nothing is in flight.
async fn rested(store: &dyn Inspect) -> Claimed {
    let claimed = third(store).await;
    complete(store, 90, ending(&claimed, AfterSend::Release)).await;
    claimed
}

async fn fold_at_rest(store: &dyn Inspect, ms: i64, item: FoldAtRest) -> FoldedAtRest {
    let attached = store.at(time(ms)).fold_at_rest(item).await;
    attached.expect("the store answers")
}

async fn paid_at_rest(store: &dyn Inspect) -> usize {
    let dumped = dumped(store, 1).await;
    let rows = dumped.usage.iter();
    rows.filter(|(_, round, _)| *round == EXTRACT_ROUND).count()
}

pub async fn a_fold_at_rest_is_attached_and_paid_for_once(store: &dyn Inspect) {
    let claimed = rested(store).await;
    let item = at_rest(&claimed, Some(new_fold(1, 6, 0)));
    let once = fold_at_rest(store, 100, item.clone()).await;
    let twice = fold_at_rest(store, 101, item).await;
    let step = last_step(store, 1).await;
    assert_eq!(step.kind, StepKind::Folded);
    assert_eq!(once, FoldedAtRest::Attached { step: step.n });
    assert_eq!(twice, FoldedAtRest::Dropped);
    assert_eq!(
        (folds(store, 1).await.len(), paid_at_rest(store).await),
        (1, 1)
    );
    let usage = store.session_usage(key(1)).await;
    let own = usage
        .expect("the store answers")
        .expect("the session is there")
        .own;
    let folded = own.iter().filter(|part| part.purpose == Purpose::Fold);
    assert_eq!(folded.map(|part| part.calls).sum::<u64>(), 1);
    assert_sound(store).await;
    accept(store, 110, sending(4, 1)).await;
    let again = claim(store, 120, 1, 1, 4).await;
    assert_eq!((again.folds.len(), seqs(&again.window)), (1, vec![7, 8]));
    append(store, 130, folding(&again, new_fold(1, 8, 1))).await;
    assert_sound(store).await;
}

pub async fn a_fold_at_rest_waits_for_the_worker_that_has_the_session(store: &dyn Inspect) {
    let claimed = rested(store).await;
    let item = at_rest(&claimed, Some(new_fold(1, 6, 0)));
    accept(store, 100, sending(4, 1)).await;
    let owned = claim(store, 110, 1, 1, 4).await;
    let busy = fold_at_rest(store, 120, item.clone()).await;
    assert_eq!(busy, FoldedAtRest::Busy);
    // Its cost is stored anyway.
    assert_eq!(folds(store, 1).await, []);
    assert_eq!(paid_at_rest(store).await, 1);
    complete(store, 130, ending(&owned, AfterSend::Release)).await;
    let later = fold_at_rest(store, 140, item).await;
    let step = last_step(store, 1).await.n;
    assert_eq!(later, FoldedAtRest::Attached { step });
    assert_eq!(paid_at_rest(store).await, 1);
    assert_sound(store).await;
    accept(store, 150, sending(5, 1)).await;
    let again = claim(store, 160, 1, 1, 5).await;
    assert_eq!(seqs(&again.window), [7, 8, 9, 10]);
}

pub async fn what_a_fold_cost_is_stored_whoever_has_the_session(store: &dyn Inspect) {
    let claimed = rested(store).await;
    accept(store, 100, sending(4, 1)).await;
    let owned = claim(store, 110, 1, 1, 4).await;
    let item = at_rest(&claimed, None);
    for ms in [120, 121] {
        let paid = fold_at_rest(store, ms, item.clone()).await;
        assert_eq!(paid, FoldedAtRest::Dropped);
    }
    assert_eq!(paid_at_rest(store).await, 1);
    // The holder of the session was not disturbed.
    complete(store, 130, ending(&owned, AfterSend::Release)).await;
    assert_sound(store).await;
}

/// The charged calls of session 1 for this purpose.
async fn calls_for(store: &dyn Inspect, purpose: Purpose) -> u64 {
    let usage = store.session_usage(key(1)).await;
    let own = usage.expect("the store answers").expect("it is there").own;
    let own = own.iter().filter(|part| part.purpose == purpose);
    own.map(|part| part.calls).sum()
}

pub async fn what_a_worker_paid_for_that_lost_its_lease_is_stored_once(store: &dyn Inspect) {
    let claimed = third(store).await;
    let (epoch, model) = (claimed.lease.epoch, "m".to_owned());
    let known = UsageRow::of_fold(epoch, 1, model.clone(), cost(5));
    let mut stored = folding(&claimed, new_fold(1, 4, 0));
    stored.usage = vec![known.clone()];
    stored.totals.usage = cost(5);
    append(store, 90, stored).await;
    release(store, 100, &claimed).await;
    let owned = claim(store, 110, 1, 1, 4).await;
    // The old owner does not know that the first fold is stored.
    let item = FoldAtRest {
        usage: vec![
            known,
            UsageRow::of_fold(epoch, 2, model.clone(), cost(7)),
            UsageRow::of_vectors(epoch, 1, model, cost(9)),
        ],
        ..at_rest(&claimed, None)
    };
    for ms in [120, 121] {
        let paid = fold_at_rest(store, ms, item.clone()).await;
        assert_eq!(paid, FoldedAtRest::Dropped);
    }
    assert_eq!(calls_for(store, Purpose::Fold).await, 2);
    assert_eq!(calls_for(store, Purpose::Embed).await, 1);
    // The send's own total is up to its new owner: the stored fold, and its round.
    let mut end = ending(&owned, AfterSend::Release);
    end.totals.usage.add(&cost(5));
    complete(store, 130, end).await;
    assert_sound(store).await;
}

pub async fn a_fold_at_rest_is_dropped_where_another_was_attached(store: &dyn Inspect) {
    let claimed = rested(store).await;
    let item = at_rest(&claimed, Some(new_fold(1, 6, 0)));
    accept(store, 100, sending(4, 1)).await;
    let owned = claim(store, 110, 1, 1, 4).await;
    append(store, 120, folding(&owned, new_fold(1, 4, 0))).await;
    let dropped = fold_at_rest(store, 130, item.clone()).await;
    assert_eq!(dropped, FoldedAtRest::Dropped);
    complete(store, 140, ending(&owned, AfterSend::Release)).await;
    let dropped = fold_at_rest(store, 150, item).await;
    assert_eq!(dropped, FoldedAtRest::Dropped);
    assert_eq!(folds(store, 1).await.len(), 1);
    assert_sound(store).await;
}

pub async fn nothing_is_stored_of_a_fold_whose_session_is_gone(store: &dyn Inspect) {
    let claimed = rested(store).await;
    let deleted = store
        .at(time(100))
        .delete_session(key(1), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    let item = at_rest(&claimed, Some(new_fold(1, 6, 0)));
    let dropped = fold_at_rest(store, 110, item).await;
    assert_eq!(dropped, FoldedAtRest::Dropped);
    assert_eq!(paid_at_rest(store).await, 0);
}

pub async fn pruning_removes_messages_and_keeps_what_stands_for_them(store: &dyn Inspect) {
    let claimed = third(store).await;
    append(store, 90, folding(&claimed, new_fold(1, 4, 0))).await;
    release(store, 100, &claimed).await;
    let item = PruneSession {
        key: key(1),
        to: PruneTo::Before(5),
        dry_run: false,
        limit: 100,
    };
    let pruned = store.at(time(110)).prune_session(item).await;
    pruned.expect("the store answers");
    assert_eq!(folds(store, 1).await.len(), 1);
    let again = claim(store, 120, 1, 1, 4).await;
    assert_eq!((again.folds.len(), seqs(&again.window)), (1, vec![5, 6]));
    append(store, 130, folding(&again, new_fold(1, 6, 1))).await;
    assert_sound(store).await;
}

pub async fn a_copy_shows_the_folds_of_its_messages(store: &dyn Inspect) {
    let claimed = third(store).await;
    append(store, 90, folding(&claimed, new_fold(1, 4, 0))).await;
    append(store, 91, folding(&claimed, new_fold(1, 6, 1))).await;
    let copied = copies(folds(store, 1).await, 0, 6);
    let mut messages = transcript(store, 1).await;
    for (n, behind) in [(2, 0), (3, 4)] {
        let page = |messages, folds, behind, more| ImportSession {
            session: new_session(n),
            messages,
            projections: Vec::new(),
            folds,
            todo: List::default(),
            notes: List::default(),
            idempotency: None,
            behind,
            more,
        };
        if behind > 0 {
            let rest = messages.split_off(4);
            let first = page(std::mem::replace(&mut messages, rest), Vec::new(), 0, true);
            let staged = store.at(time(100)).import_session(first).await;
            assert_eq!(staged.expect("the store answers"), CreateOutcome::Staged);
        }
        let last = page(messages.clone(), copied.clone(), behind, false);
        let made = store.at(time(101)).import_session(last).await;
        let made = made.expect("the store answers");
        assert!(matches!(made, CreateOutcome::Created(_)), "{made:?}");
        assert_eq!(folds(store, n).await, copied);
        accept(store, 110, sending(n * 10, n)).await;
        let claimed = claim(store, 120, 1, n, 20 + n).await;
        assert_eq!(claimed.counters.context_version, 2);
        assert_eq!(claimed.folds, copied[1..]);
        assert_eq!(claimed.window, []);
        append(store, 130, folding(&claimed, new_fold(1, 6, 2))).await;
        assert_eq!(folds(store, n).await.len(), 3);
    }
    assert_sound(store).await;
}

pub async fn the_folds_of_a_deleted_session_go_with_it(store: &dyn Inspect) {
    let claimed = third(store).await;
    append(store, 90, folding(&claimed, new_fold(1, 4, 0))).await;
    release(store, 100, &claimed).await;
    let deleted = store
        .at(time(110))
        .delete_session(key(1), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    assert_eq!(folds(store, 1).await, []);
    while dumped(store, 1).await.erasing {
        let step = store.at(time(100_000)).erase_session(key(1), 2).await;
        step.expect("the store answers");
    }
    assert_eq!(dumped(store, 1).await.folds, []);
    assert_sound(store).await;
}
