//! Which runs are claimed first if not all of them can be.

use mainspring_shared::store::{AdvanceOutcome, ClaimRuns, Inspect};
use mainspring_shared::workflow::run::DSL_VERSION;

use super::prelude::*;
use super::runs::{
    advance, advance_of, created, dumped_run, leaf, new_run, read_run, run_key, under_way,
};

fn claiming(limit: u32, ends_max: u32) -> ClaimRuns {
    ClaimRuns {
        boot: boot(1),
        limit,
        ends_max,
        leaves_max: None,
        dsl_max: DSL_VERSION,
        aside: Vec::new(),
    }
}

/// The claimed runs, by number, with how many ends each is told.
async fn taken(store: &dyn Inspect, ms: i64, claim: ClaimRuns) -> Vec<(u128, usize)> {
    let claimed = store.at(time(ms)).claim_runs(claim).await;
    let runs = claimed.expect("the store answers").runs.into_iter();
    runs.map(|news| (news.key.run.0.as_u128(), news.ends.len()))
        .collect()
}

pub async fn the_run_that_was_looked_at_last_comes_last(store: &dyn Inspect) {
    register(store, 1).await;
    for n in 1..=3 {
        created(store, 0, new_run(n)).await;
    }
    let mut order = Vec::new();
    for ms in 1..=7 {
        // Each stays due, and still does not get ahead of the others more than once.
        let (n, _) = one(taken(store, ms, claiming(1, 10)).await);
        let record = read_run(store, n).await;
        let step = dumped_run(store, n).await.step;
        let mut item = advance_of(&record, step);
        item.run.alarm_at = at(0);
        let advanced = advance(store, ms, 1, item).await;
        assert!(matches!(advanced, AdvanceOutcome::Advanced { .. }));
        order.push(n);
    }
    assert_eq!(order, [1, 2, 3, 1, 2, 3, 1]);
    created(store, 8, new_run(4)).await;
    assert_eq!(taken(store, 9, claiming(1, 10)).await, [(2, 0)]);
    let found = taken(store, 9, claiming(4, 10)).await;
    assert_eq!(found, [(2, 0), (3, 0), (1, 0), (4, 0)]);
}

pub async fn a_wide_run_leaves_ends_to_the_others(store: &dyn Inspect) {
    under_way(store, 1..9).await;
    let second = created(store, 3, new_run(2)).await;
    taken(store, 4, claiming(10, 10)).await;
    let mut item = advance_of(&second, 0);
    item.start = vec![leaf(20, 2)];
    advance(store, 5, 1, item).await;
    for n in 1..9 {
        cancel(store, 10, n).await;
    }
    cancel(store, 11, 20).await;
    let found = taken(store, 12, claiming(10, 4)).await;
    assert_eq!(found, [(1, 2), (2, 1)]);
    // Alone, it is told of more.
    let alone = ClaimRuns {
        aside: vec![run_key(2)],
        ..claiming(10, 4)
    };
    assert_eq!(taken(store, 12, alone).await, [(1, 4)]);
}

pub async fn runs_that_were_set_aside_are_left_out(store: &dyn Inspect) {
    register(store, 1).await;
    for n in 1..=3 {
        created(store, 0, new_run(n)).await;
    }
    let but = ClaimRuns {
        aside: vec![run_key(1), run_key(3), run_key(9)],
        ..claiming(10, 10)
    };
    assert_eq!(taken(store, 1, but).await, [(2, 0)]);
    assert_eq!(dumped_run(store, 1).await.owner, None);
}

pub async fn runs_of_a_later_language_are_left_to_others(store: &dyn Inspect) {
    register(store, 1).await;
    created(store, 0, new_run(1)).await;
    let mut later = new_run(2);
    later.dsl_version = DSL_VERSION + 1;
    created(store, 0, later).await;
    assert_eq!(taken(store, 1, claiming(10, 10)).await, [(1, 0)]);
    assert_eq!(dumped_run(store, 2).await.owner, None);
    let knowing = ClaimRuns {
        dsl_max: DSL_VERSION + 1,
        aside: vec![run_key(1)],
        ..claiming(10, 10)
    };
    assert_eq!(taken(store, 2, knowing).await, [(2, 0)]);
}
