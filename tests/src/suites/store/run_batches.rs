//! Advances of several runs in one call: if one is lost, the others are not affected.

use mainspring_shared::store::{
    AcceptSend, AdvanceOutcome, AdvanceRun, Inspect, SessionPatch, Target,
};
use mainspring_shared::workflow::run::RunRecord;

use super::prelude::*;
use super::runs::{
    advance_of, claim_runs, created, dumped_run, leaf, new_run, read_run, under_way,
};

/// Leaves that all runs of a tenant may have in flight.
const BOUND: Option<u32> = Some(3);

async fn advances(
    store: &dyn Inspect,
    ms: i64,
    boot_n: u128,
    items: Vec<AdvanceRun>,
) -> Vec<AdvanceOutcome> {
    let outcomes = store.at(time(ms)).advance_runs(boot(boot_n), items).await;
    outcomes.expect("the store answers")
}

/// An advance that starts two leaves under the bound, the sends `first` and `first + 1`.
fn starting(record: &RunRecord, step: i64, first: u128) -> AdvanceRun {
    let mut item = advance_of(record, step);
    item.run.counts.live = 2;
    item.start = (first..first + 2)
        .map(|n| leaf(n, record.key.run.0.as_u128()))
        .collect();
    item.leaves_max = BOUND;
    item
}

fn is_advanced(outcome: &AdvanceOutcome) -> bool {
    matches!(outcome, AdvanceOutcome::Advanced { .. })
}

/// Process 1 owns run 1, which was advanced once, and run 2, which was not advanced.
async fn two_runs(store: &dyn Inspect) -> (RunRecord, RunRecord) {
    let first = under_way(store, 1..1).await;
    created(store, 3, new_run(2)).await;
    claim_runs(store, 4, 1).await;
    (first, read_run(store, 2).await)
}

pub async fn a_lost_advance_takes_no_room_for_leaves(store: &dyn Inspect) {
    let (first, second) = two_runs(store).await;
    let items = vec![starting(&first, 0, 11), starting(&second, 0, 21)];
    let outcomes = advances(store, 5, 1, items).await;
    assert_eq!(outcomes[0], AdvanceOutcome::Lost);
    assert!(is_advanced(&outcomes[1]), "{outcomes:?}");
}

pub async fn an_advance_of_another_ones_run_is_lost_with_or_without_room(store: &dyn Inspect) {
    let (first, second) = two_runs(store).await;
    register(store, 2).await;
    let begun = advances(store, 5, 1, vec![starting(&first, 1, 11)]).await;
    assert!(is_advanced(&begun[0]), "{begun:?}");
    let foreign = advances(store, 6, 2, vec![starting(&second, 0, 21)]).await;
    assert_eq!(foreign, [AdvanceOutcome::Lost]);
    let stale = advances(store, 7, 1, vec![starting(&second, 1, 21)]).await;
    assert_eq!(stale, [AdvanceOutcome::Lost]);
    let own = advances(store, 8, 1, vec![starting(&second, 0, 21)]).await;
    assert_eq!(own, [AdvanceOutcome::NoRoom]);
}

/// The leaf of run 1 has ended, and the session in which the next one should continue is closed.
pub async fn a_leaf_that_cannot_go_on_loses_the_advance_of_its_run_only(store: &dyn Inspect) {
    let first = under_way(store, 11..12).await;
    created(store, 3, new_run(2)).await;
    claim_runs(store, 4, 1).await;
    let second = read_run(store, 2).await;
    cancel(store, 5, 11).await;
    let patch = SessionPatch {
        closed: Some(true),
        ..SessionPatch::default()
    };
    let closed = store.at(time(6)).update_session(key(11), patch).await;
    closed.expect("the store answers");
    let going_on = |leaves_max| AdvanceRun {
        start: vec![AcceptSend {
            target: Target::Existing(key(11)),
            ..leaf(12, 1)
        }],
        leaves_max,
        ..advance_of(&first, 1)
    };
    let before = dumped_run(store, 1).await;
    let items = vec![going_on(None), starting(&second, 0, 21)];
    let outcomes = advances(store, 7, 1, items).await;
    assert_eq!(outcomes[0], AdvanceOutcome::Lost);
    assert!(is_advanced(&outcomes[1]), "{outcomes:?}");
    // It is lost even if there is no room either.
    let outcomes = advances(store, 8, 1, vec![going_on(Some(0))]).await;
    assert_eq!(outcomes, [AdvanceOutcome::Lost]);
    assert_eq!(dumped_run(store, 1).await, before);
}
