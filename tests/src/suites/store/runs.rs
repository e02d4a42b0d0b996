//! Runs: their news and advances.

use mainspring_shared::budget::Spent;
use mainspring_shared::id::{BootId, RunId, RunKey, TenantId};
use mainspring_shared::send::SendStatus;
use mainspring_shared::store::{
    AcceptSend, AdvanceOutcome, AdvanceRun, AfterSend, ClaimRuns, ClaimedRuns, CreateRunOutcome,
    DumpRun, IdempotencyKey, Inspect, ListRuns, NewRun, ReadNodes, SessionPatch, Target,
};
use mainspring_shared::usage::Usage;
use mainspring_shared::workflow::nodes::NodeKind;
use mainspring_shared::workflow::run::{
    DSL_VERSION, NodeRecord, NodeState, RunAsk, RunLeaf, RunOptions, RunRecord, RunStatus,
};
use serde_json::json;
use uuid::Uuid;

use super::prelude::*;

pub(super) fn run_key(n: u128) -> RunKey {
    RunKey {
        tenant: TenantId::DEFAULT,
        run: RunId(Uuid::from_u128(n)),
    }
}

pub(super) fn new_run(n: u128) -> NewRun {
    NewRun {
        key: run_key(n),
        name: format!("run {n}"),
        spec: json!({ "name": "run", "root": {} }),
        dsl_version: DSL_VERSION,
        input: json!("tea"),
        options: RunOptions {
            max_tokens: Some(100),
            ..RunOptions::default()
        },
        session: None,
        reports_to: None,
        depth: 1,
        idempotency: None,
    }
}

async fn create(store: &dyn Inspect, ms: i64, new: NewRun) -> CreateRunOutcome {
    let outcomes = store.at(time(ms)).create_runs(vec![new]).await;
    one(outcomes.expect("the store answers"))
}

pub(super) async fn created(store: &dyn Inspect, ms: i64, new: NewRun) -> RunRecord {
    match create(store, ms, new).await {
        CreateRunOutcome::Created(run) => *run,
        other => panic!("a run was expected: {other:?}"),
    }
}

pub(super) async fn claim_runs(store: &dyn Inspect, ms: i64, boot_n: u128) -> ClaimedRuns {
    let claim = ClaimRuns {
        boot: boot(boot_n),
        limit: 10,
        ends_max: 100,
        leaves_max: None,
        dsl_max: DSL_VERSION,
        aside: Vec::new(),
    };
    let claimed = store.at(time(ms)).claim_runs(claim).await;
    claimed.expect("the store answers")
}

pub(super) async fn read_run(store: &dyn Inspect, n: u128) -> RunRecord {
    let found = store.get_runs(vec![run_key(n)]).await;
    one(found.expect("the store answers")).expect("the run exists")
}

pub(super) async fn dumped_run(store: &dyn Inspect, n: u128) -> DumpRun {
    let dump = store.dump().await.expect("the store answers");
    let mut runs = dump.runs.into_iter();
    runs.find(|run| run.run.key == run_key(n))
        .expect("the run exists")
}

pub(super) fn node(path: &str, n: i64, state: NodeState) -> NodeRecord {
    NodeRecord {
        path: path.to_owned(),
        n,
        kind: NodeKind::Agent,
        id: Some("plan".to_owned()),
        state,
        tolerated: false,
        attempt: 1,
        session: None,
        send: None,
        frozen: None,
        text: None,
        payload: Some(json!({ "a": [1] })),
        error: None,
        usage: Usage::default(),
        kept: Spent::default(),
        reserved: Spent::default(),
        due_at: None,
        amended: false,
        steered: Vec::new(),
        earlier: Vec::new(),
        started_at: time(0),
        settled_at: None,
        extra: mainspring_shared::stored::Extra::default(),
    }
}

/// The n-th send, in the session of the same number, as the leaf at `/n`.
pub(super) fn leaf(n: u128, run: u128) -> AcceptSend {
    AcceptSend {
        run: Some(RunLeaf {
            run: run_key(run).run,
            path: format!("/{n}"),
            attempt: 1,
        }),
        ..opening(n, n)
    }
}

/// An advance that only sets the run to running.
pub(super) fn advance_of(record: &RunRecord, step: i64) -> AdvanceRun {
    AdvanceRun {
        step,
        run: RunRecord {
            status: RunStatus::Running,
            alarm_at: None,
            started_at: Some(record.created_at),
            ..record.clone()
        },
        nodes: Vec::new(),
        start: Vec::new(),
        ends: Vec::new(),
        asks: Vec::new(),
        changes: json!({ "status": "running" }),
        report: None,
        release: false,
        leaves_max: None,
    }
}

pub(super) async fn advance(
    store: &dyn Inspect,
    ms: i64,
    boot_n: u128,
    item: AdvanceRun,
) -> AdvanceOutcome {
    let outcomes = store
        .at(time(ms))
        .advance_runs(boot(boot_n), vec![item])
        .await;
    one(outcomes.expect("the store answers"))
}

/// Process 1 owns run 1, whose leaves are the sends `leaves`.
pub(super) async fn under_way(store: &dyn Inspect, leaves: std::ops::Range<u128>) -> RunRecord {
    register(store, 1).await;
    let record = created(store, 0, new_run(1)).await;
    claim_runs(store, 1, 1).await;
    let mut item = advance_of(&record, 0);
    item.start = leaves.map(|n| leaf(n, 1)).collect();
    let started = item.start.len();
    match advance(store, 2, 1, item).await {
        AdvanceOutcome::Advanced {
            step,
            enqueue,
            notify,
        } => {
            assert_eq!((step, enqueue.len(), notify), (1, started, None));
        }
        other => panic!("the run is its own: {other:?}"),
    }
    read_run(store, 1).await
}

pub async fn a_created_run_reads_back_and_is_due_at_once(store: &dyn Inspect) {
    register(store, 1).await;
    let record = created(store, 5, new_run(1)).await;
    assert_eq!(record, new_run(1).record(time(5)));
    assert_eq!(read_run(store, 1).await, record);
    let unknown = store.get_runs(vec![run_key(2)]).await;
    assert_eq!(unknown.expect("the store answers"), [None]);
    assert_eq!(claim_runs(store, 4, 1).await.runs, []);
    assert_eq!(claim_runs(store, 4, 1).await.next_alarm, at(5));
    let claimed = claim_runs(store, 5, 1).await;
    assert_eq!(claimed.now, time(5));
    let news = one(claimed.runs);
    assert_eq!((news.key, news.step), (run_key(1), 0));
    assert_eq!((news.ends, news.asks), (Vec::new(), Vec::new()));
    assert_eq!(dumped_run(store, 1).await.owner, Some(boot(1)));
}

pub async fn a_repeated_creation_creates_nothing(store: &dyn Inspect) {
    let keyed = |n: u128, hash: u8| NewRun {
        idempotency: Some(IdempotencyKey {
            tenant: TenantId::DEFAULT,
            route: "POST /v1/runs".to_owned(),
            key: "k".to_owned(),
            body_hash: [hash; 32],
        }),
        ..new_run(n)
    };
    created(store, 0, keyed(1, 1)).await;
    let again = create(store, 1, keyed(2, 1)).await;
    assert_eq!(again, CreateRunOutcome::Replayed(run_key(1).run));
    let other = create(store, 2, keyed(3, 2)).await;
    assert_eq!(other, CreateRunOutcome::Mismatch);
    let homeless = NewRun {
        session: Some(key(9).session),
        ..new_run(4)
    };
    let refused = create(store, 3, homeless).await;
    assert_eq!(refused, CreateRunOutcome::SessionNotFound);
    let dump = store.dump().await.expect("the store answers");
    assert_eq!(dump.runs.len(), 1);
}

pub async fn every_end_of_a_leaf_is_news_until_it_is_noted(store: &dyn Inspect) {
    let record = under_way(store, 1..4).await;
    assert_eq!(claim_runs(store, 3, 1).await.runs, [], "nothing ended");
    let claimed = claim(store, 10, 1, 1, 1).await;
    let leaf_of_one = claimed.send.record.run.clone();
    assert_eq!(leaf_of_one.expect("it is a leaf").path, "/1");
    complete(store, 11, ending(&claimed, AfterSend::Continue)).await;
    cancel(store, 12, 2).await;
    let gone = store
        .at(time(13))
        .delete_session(key(3), boot(SCHEDULER))
        .await;
    gone.expect("the store answers");
    let news = one(claim_runs(store, 20, 1).await.runs);
    assert_eq!(news.step, 1);
    let ends = news.ends.iter();
    let ends: Vec<_> = ends
        .map(|ended| (ended.path.as_str(), ended.attempt, ended.end.status))
        .collect();
    let cancelled = SendStatus::Cancelled;
    let expected = [
        ("/1", 1, SendStatus::Completed),
        ("/2", 1, cancelled),
        ("/3", 1, cancelled),
    ];
    assert_eq!(ends, expected);
    let first = &news.ends[0].end;
    assert_eq!((first.send, first.text.as_deref()), (send(1), Some("done")));
    assert_eq!(first.usage, cost(10));
    let again = one(claim_runs(store, 21, 1).await.runs);
    assert_eq!(again, news, "until an advance notes them");
    let mut item = advance_of(&record, 1);
    item.ends = vec![send(1), send(2)];
    advance(store, 22, 1, item).await;
    let left = one(claim_runs(store, 23, 1).await.runs);
    assert_eq!(left.step, 2);
    assert_eq!(one(left.ends).path, "/3");
}

pub async fn a_stale_advance_changes_nothing(store: &dyn Inspect) {
    let record = under_way(store, 1..2).await;
    register(store, 2).await;
    let before = store.dump().await.expect("the store answers");
    for (boot_n, step) in [(1, 0), (1, 2), (2, 1)] {
        let mut item = advance_of(&record, step);
        item.run.status = RunStatus::Waiting;
        item.nodes = vec![node("/1", 1, NodeState::Running)];
        item.start = vec![leaf(7, 1)];
        item.ends = vec![send(1)];
        let outcome = advance(store, 30, boot_n, item).await;
        assert_eq!(outcome, AdvanceOutcome::Lost, "{boot_n} at {step}");
    }
    let after = store.dump().await.expect("the store answers");
    assert_eq!(after, before);
}

pub async fn one_lost_advance_leaves_its_neighbours_alone(store: &dyn Inspect) {
    let first = under_way(store, 1..2).await;
    let second = created(store, 3, new_run(2)).await;
    claim_runs(store, 4, 1).await;
    let mut stale = advance_of(&first, 0);
    stale.start = vec![leaf(7, 1)];
    let mut good = advance_of(&second, 0);
    good.start = vec![leaf(8, 2), leaf(9, 2)];
    let outcomes = store
        .at(time(5))
        .advance_runs(boot(1), vec![stale, good])
        .await;
    let outcomes = outcomes.expect("the store answers");
    assert_eq!(outcomes[0], AdvanceOutcome::Lost);
    let AdvanceOutcome::Advanced { enqueue, .. } = &outcomes[1] else {
        panic!("the second is its own");
    };
    let enqueue: Vec<_> = enqueue.iter().map(|enqueue| enqueue.key).collect();
    assert_eq!(enqueue, [key(8), key(9)]);
    let unknown = store.get_sends(vec![(TenantId::DEFAULT, send(7))]).await;
    assert_eq!(unknown.expect("the store answers"), [None]);
}

pub async fn a_run_is_taken_from_a_dead_process_only(store: &dyn Inspect) {
    let record = under_way(store, 1..2).await;
    register(store, 2).await;
    cancel(store, 10, 1).await;
    assert_eq!(claim_runs(store, 11, 2).await.runs, [], "its owner lives");
    store
        .at(time(12))
        .stop_boot(boot(1))
        .await
        .expect("it answers");
    let news = one(claim_runs(store, 13, 2).await.runs);
    assert_eq!((news.step, news.ends.len()), (1, 1));
    let late = advance(store, 14, 1, advance_of(&record, 1)).await;
    assert_eq!(late, AdvanceOutcome::Lost);
    let own = advance(store, 15, 2, advance_of(&record, 1)).await;
    assert!(matches!(own, AdvanceOutcome::Advanced { step: 2, .. }));
    let steps = store.read_run_steps(run_key(1), 1, 10).await;
    let step = one(steps.expect("the store answers"));
    assert_eq!((step.n, step.boot, step.at), (2, boot(2), time(15)));
    assert_eq!(step.changes, json!({ "status": "running" }));
}

pub async fn how_often_a_run_outlived_its_owners_is_counted(store: &dyn Inspect) {
    let record = under_way(store, 1..2).await;
    for n in 2..=5 {
        register(store, n).await;
    }
    cancel(store, 10, 1).await;
    let claims = async |ms: i64, n: u128| one(claim_runs(store, ms, n).await.runs).claims;
    let stop = async |ms: i64, n: u128| {
        let stopped = store.at(time(ms)).stop_boot(boot(n)).await;
        stopped.expect("it answers");
    };
    assert_eq!(claims(11, 1).await, 0, "its owner has advanced it");
    stop(12, 1).await;
    assert_eq!(claims(13, 2).await, 1);
    assert_eq!(claims(14, 2).await, 1, "the same owner looks again");
    stop(15, 2).await;
    assert_eq!(claims(16, 3).await, 2);
    let released = store.release_runs(boot(3), vec![run_key(1)]).await;
    released.expect("the store answers");
    assert_eq!(claims(17, 4).await, 1, "who gives it back has outlived it");
    stop(18, 4).await;
    assert_eq!(claims(19, 5).await, 2);
    let advanced = advance(store, 20, 5, advance_of(&record, 1)).await;
    assert!(matches!(advanced, AdvanceOutcome::Advanced { .. }));
    stop(21, 5).await;
    register(store, 6).await;
    assert_eq!(
        claims(22, 6).await,
        1,
        "an advance that is committed ends the count"
    );
}

pub async fn a_run_that_is_given_up_can_be_taken(store: &dyn Inspect) {
    let record = under_way(store, 1..2).await;
    register(store, 2).await;
    cancel(store, 10, 1).await;
    let foreign = store.release_runs(boot(2), vec![run_key(1)]).await;
    foreign.expect("the store answers");
    assert_eq!(claim_runs(store, 11, 2).await.runs, []);
    let mut item = advance_of(&record, 1);
    item.release = true;
    advance(store, 12, 1, item).await;
    assert_eq!(claim_runs(store, 13, 2).await.runs.len(), 1);
    let released = store.release_runs(boot(2), vec![run_key(1)]).await;
    released.expect("the store answers");
    assert_eq!(dumped_run(store, 1).await.owner, None);
}

pub async fn asks_are_news_until_they_are_noted(store: &dyn Inspect) {
    let record = under_way(store, 1..2).await;
    let cancel = RunAsk::Cancel { reason: None };
    let retry = RunAsk::Retry {
        max_tokens: Some(3),
    };
    let items = vec![
        (run_key(1), cancel.clone()),
        (run_key(9), cancel.clone()),
        (run_key(1), retry.clone()),
    ];
    let asked = store.at(time(5)).ask_runs(items).await;
    assert_eq!(asked.expect("the store answers"), [true, false, true]);
    let news = one(claim_runs(store, 6, 1).await.runs);
    let (numbers, asks): (Vec<_>, Vec<_>) = news.asks.into_iter().unzip();
    assert_eq!(asks, [cancel, retry.clone()]);
    let mut item = advance_of(&record, 1);
    item.asks = vec![numbers[0]];
    advance(store, 7, 1, item).await;
    assert_eq!(dumped_run(store, 1).await.asks, [retry]);
}

pub async fn nodes_are_written_over_and_read_in_pieces(store: &dyn Inspect) {
    let record = under_way(store, 1..2).await;
    let mut item = advance_of(&record, 1);
    item.nodes = vec![
        node("/0:plan", 1, NodeState::Queued),
        node("/1:all", 2, NodeState::Running),
        node("/1:all[0]/r", 3, NodeState::Ready),
        node("/1:all[1]/r", 4, NodeState::Ready),
    ];
    advance(store, 3, 1, item).await;
    let mut item = advance_of(&record, 2);
    let settled = NodeRecord {
        text: Some("done".to_owned()),
        settled_at: at(4),
        ..node("/0:plan", 1, NodeState::Completed)
    };
    item.nodes = vec![settled.clone()];
    advance(store, 4, 1, item).await;
    let read = async |prefix: Option<&str>, after, limit| {
        let query = ReadNodes {
            key: run_key(1),
            prefix: prefix.map(ToOwned::to_owned),
            after,
            limit,
        };
        store.read_nodes(query).await.expect("the store answers")
    };
    let all = read(None, 0, 10).await;
    assert_eq!(all[0], settled);
    let paths = |nodes: &[NodeRecord]| nodes.iter().map(|n| n.path.clone()).collect::<Vec<_>>();
    assert_eq!(
        paths(&all),
        ["/0:plan", "/1:all", "/1:all[0]/r", "/1:all[1]/r"]
    );
    assert_eq!(paths(&read(None, 1, 2).await), ["/1:all", "/1:all[0]/r"]);
    assert_eq!(paths(&read(Some("/1:all["), 3, 10).await), ["/1:all[1]/r"]);
    assert_eq!(read(Some("/1_"), 0, 10).await, [], "a prefix is no pattern");
}

pub async fn an_alarm_makes_a_run_due(store: &dyn Inspect) {
    let record = under_way(store, 1..2).await;
    let mut item = advance_of(&record, 1);
    item.run.alarm_at = at(500);
    item.run.status = RunStatus::Waiting;
    advance(store, 10, 1, item).await;
    let early = claim_runs(store, 499, 1).await;
    assert_eq!((early.runs, early.next_alarm), (Vec::new(), at(500)));
    let due = claim_runs(store, 500, 1).await;
    assert_eq!((one(due.runs).key, due.next_alarm), (run_key(1), None));
}

pub async fn a_bound_over_all_runs_of_a_tenant_holds(store: &dyn Inspect) {
    const BOUND: Option<u32> = Some(3);
    let live = |record: &RunRecord, step, count: u32, leaves: std::ops::Range<u128>| {
        let mut item = advance_of(record, step);
        item.run.counts.live = count;
        item.start = leaves
            .map(|n| leaf(n, record.key.run.0.as_u128()))
            .collect();
        item.leaves_max = BOUND;
        item
    };
    let claim = ClaimRuns {
        boot: boot(1),
        limit: 10,
        ends_max: 100,
        leaves_max: BOUND,
        dsl_max: DSL_VERSION,
        aside: Vec::new(),
    };
    let first = under_way(store, 1..1).await;
    let begun = advance(store, 3, 1, live(&first, 1, 2, 11..13)).await;
    assert!(
        matches!(begun, AdvanceOutcome::Advanced { .. }),
        "{begun:?}"
    );
    let second = created(store, 4, new_run(2)).await;
    let claimed = store.at(time(5)).claim_runs(claim).await;
    let news = one(claimed.expect("the store answers").runs);
    assert_eq!((news.key, news.live_max), (second.key, Some(1)));
    // An advance that does not take the first run's leaves into account changes nothing.
    let refused = advance(store, 6, 1, live(&second, 0, 2, 21..23)).await;
    assert_eq!(refused, AdvanceOutcome::NoRoom);
    let unchanged = dumped_run(store, 2).await;
    assert_eq!((unchanged.step, unchanged.run.counts.live), (0, 0));
    // Both in one call: the second sees what the first took.
    let ends = live(&first, 2, 3, 13..14);
    let both = vec![ends, live(&second, 0, 1, 21..22)];
    let outcomes = store.at(time(7)).advance_runs(boot(1), both).await;
    let outcomes = outcomes.expect("the store answers");
    assert!(matches!(
        outcomes[0],
        AdvanceOutcome::Advanced { step: 3, .. }
    ));
    assert_eq!(outcomes[1], AdvanceOutcome::NoRoom);
    // An advance that starts nothing is never refused, and what it frees is available to others.
    let given = advance(store, 8, 1, live(&first, 3, 1, 14..14)).await;
    assert!(
        matches!(given, AdvanceOutcome::Advanced { .. }),
        "{given:?}"
    );
    let taken = advance(store, 9, 1, live(&second, 0, 2, 21..23)).await;
    assert!(
        matches!(taken, AdvanceOutcome::Advanced { step: 1, .. }),
        "{taken:?}"
    );
    let unbounded = claim_runs(store, 10, 1).await;
    assert!(unbounded.runs.iter().all(|news| news.live_max.is_none()));
}

pub async fn a_leaf_goes_on_in_a_session_that_takes_sends(store: &dyn Inspect) {
    let record = under_way(store, 11..12).await;
    cancel(store, 5, 11).await;
    let further = |step, n: u128| AdvanceRun {
        ends: vec![send(11)],
        start: vec![AcceptSend {
            target: Target::Existing(key(11)),
            ..leaf(n, 1)
        }],
        ..advance_of(&record, step)
    };
    let again = advance(store, 6, 1, further(1, 12)).await;
    let AdvanceOutcome::Advanced { step, enqueue, .. } = again else {
        panic!("the session is open: {again:?}");
    };
    assert_eq!((step, enqueue.len(), enqueue[0].key), (2, 1, key(11)));
    // Once the session is closed, nothing of the advance is stored.
    cancel(store, 7, 12).await;
    let patch = SessionPatch {
        closed: Some(true),
        ..SessionPatch::default()
    };
    let closed = store.at(time(8)).update_session(key(11), patch).await;
    closed.expect("the store answers");
    let before = dumped_run(store, 1).await;
    let refused = advance(store, 9, 1, further(2, 13)).await;
    assert_eq!(refused, AdvanceOutcome::Lost);
    assert_eq!(dumped_run(store, 1).await, before);
}

pub(super) async fn of_session_one(store: &dyn Inspect, call_id: Option<String>) -> RunRecord {
    let new = NewRun {
        session: Some(key(1).session),
        reports_to: call_id,
        ..new_run(2)
    };
    let record = created(store, 30, new).await;
    assert_eq!(record.session, Some(key(1).session));
    claim_runs(store, 31, 1).await;
    record
}

pub async fn runs_are_listed_newest_first(store: &dyn Inspect) {
    running(store).await;
    created(store, 0, new_run(1)).await;
    of_session_one(store, None).await;
    created(store, 40, new_run(3)).await;
    let list = async |query: ListRuns| {
        let page = store.list_runs(query).await.expect("the store answers");
        let ids = page.data.iter().map(|run| run.key.run.0.as_u128());
        (ids.collect::<Vec<_>>(), page.more)
    };
    let all = ListRuns {
        tenant: TenantId::DEFAULT,
        status: None,
        session: None,
        before: None,
        limit: 2,
    };
    assert_eq!(list(all.clone()).await, (vec![3, 2], true));
    let next = ListRuns {
        before: Some(run_key(2).run),
        ..all.clone()
    };
    assert_eq!(list(next).await, (vec![1], false));
    let of_session = ListRuns {
        session: Some(key(1).session),
        ..all.clone()
    };
    assert_eq!(list(of_session).await, (vec![2], false));
    let final_ones = ListRuns {
        status: Some(RunStatus::Completed),
        ..all
    };
    assert_eq!(list(final_ones).await, (vec![], false));
}

pub async fn an_unowned_boot_is_nobody(store: &dyn Inspect) {
    let record = created(store, 0, new_run(1)).await;
    let nobody = BootId(Uuid::nil());
    let item = advance_of(&record, 0);
    let outcomes = store.at(time(1)).advance_runs(nobody, vec![item]).await;
    assert_eq!(
        one(outcomes.expect("the store answers")),
        AdvanceOutcome::Lost
    );
}

pub async fn what_is_asked_can_be_read_until_an_advance_takes_it(store: &dyn Inspect) {
    let record = under_way(store, 1..1).await;
    created(store, 5, new_run(2)).await;
    let retry = RunAsk::Retry { max_tokens: None };
    let cancel = RunAsk::Cancel { reason: None };
    let asks = vec![(run_key(1), retry.clone()), (run_key(1), cancel.clone())];
    let asked = store.at(time(6)).ask_runs(asks).await;
    assert_eq!(asked.expect("the store answers"), [true, true]);
    let keys = || vec![run_key(2), run_key(1), run_key(9)];
    let found = store.read_asks(keys()).await.expect("the store answers");
    assert_eq!(found, [vec![], vec![retry, cancel], vec![]]);
    let claimed = claim_runs(store, 7, 1).await;
    let news = claimed.runs.into_iter().find(|news| news.key == run_key(1));
    let news = news.expect("asked");
    let mut item = advance_of(&record, news.step);
    item.asks = news.asks.iter().map(|(n, _)| *n).collect();
    advance(store, 8, 1, item).await;
    let found = store.read_asks(keys()).await.expect("the store answers");
    assert_eq!(found, [const { Vec::<RunAsk>::new() }; 3]);
}
