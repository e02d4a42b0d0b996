//! The ends of runs, and who is told of them.

use mainspring_shared::inbox::Fate;
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::session::SIGNAL_INBOX;
use mainspring_shared::store::{
    AdvanceOutcome, AdvanceRun, AfterSend, AuditOptions, Inspect, ReadNodes, RunReport, RunWords,
};
use mainspring_shared::tool::CallResult;
use mainspring_shared::workflow::run::{RunAsk, RunRecord, RunStatus};
use serde_json::json;

use super::prelude::*;
use super::runs::{
    advance, advance_of, claim_runs, created, dumped_run, new_run, of_session_one, read_run,
    run_key, under_way,
};

/// The end of a run, with its report.
fn ending_of_run(record: &RunRecord, step: i64, report: Option<RunReport>) -> AdvanceRun {
    let mut item = advance_of(record, step);
    item.run.status = RunStatus::Completed;
    item.run.result = Some(json!("done"));
    item.run.finished_at = Some(time(900));
    item.report = report;
    item
}

fn words(n: u128) -> RunWords {
    RunWords {
        item_id: "run:1:1".to_owned(),
        send: send(n),
        content: vec![ContentPart::text("the run has ended")],
        wake: true,
        ended_run: None,
    }
}

/// Run 3 belongs to no session and is not due.
async fn under_way_beside(store: &dyn Inspect) {
    let record = created(store, 32, new_run(3)).await;
    claim_runs(store, 33, 1).await;
    advance(store, 34, 1, advance_of(&record, 0)).await;
    let record = read_run(store, 2).await;
    advance(store, 35, 1, advance_of(&record, 0)).await;
}

pub async fn a_final_run_has_no_owner_and_keeps_its_result(store: &dyn Inspect) {
    let record = under_way(store, 1..2).await;
    cancel(store, 10, 1).await;
    let mut item = ending_of_run(&record, 1, None);
    item.ends = vec![send(1)];
    advance(store, 900, 1, item).await;
    let dump = dumped_run(store, 1).await;
    assert_eq!((dump.owner, dump.step), (None, 2));
    assert_eq!(dump.run.result, Some(json!("done")));
    assert_eq!(dump.run.finished_at, at(900));
    assert_eq!(claim_runs(store, 901, 1).await.runs, []);
    let retry = RunAsk::Retry { max_tokens: None };
    let asked = store
        .at(time(902))
        .ask_runs(vec![(run_key(1), retry)])
        .await;
    assert_eq!(asked.expect("the store answers"), [true]);
    assert_eq!(claim_runs(store, 903, 1).await.runs.len(), 1);
}

/// Run 2 belongs to session 1, whose send started it.
pub async fn a_final_run_can_be_forgotten(store: &dyn Inspect) {
    let record = under_way(store, 1..2).await;
    created(store, 5, new_run(2)).await;
    cancel(store, 10, 1).await;
    claim_runs(store, 11, 1).await;
    let early = store.forget_runs(vec![run_key(1)]).await;
    assert_eq!(early.expect("the store answers"), 0);
    advance(store, 12, 1, ending_of_run(&record, 1, None)).await;
    let dumped = dumped_run(store, 1).await;
    let rows = 1 + dumped.nodes.len() + dumped.asks.len() + dumped.steps.len();
    let keys = vec![run_key(1), run_key(2), run_key(9)];
    let gone = store.forget_runs(keys).await;
    assert_eq!(gone.expect("the store answers"), rows as u64);
    let found = store.get_runs(vec![run_key(1), run_key(2)]).await;
    let found = found.expect("the store answers");
    assert!(found[0].is_none() && found[1].is_some());
    let query = ReadNodes {
        key: run_key(1),
        prefix: None,
        after: 0,
        limit: 10,
    };
    let nodes = store.read_nodes(query).await.expect("the store answers");
    assert_eq!(nodes, []);
    let violations = store.at(time(13)).audit(AuditOptions::default()).await;
    assert_eq!(violations.expect("the store answers"), []);
}

pub async fn the_end_of_a_run_is_the_result_of_the_call_that_waits(store: &dyn Inspect) {
    let claimed = running(store).await;
    let begins = vec![waits(WaitingOn::Run)];
    wait_for_calls(store, 12, &claimed, WaitingOn::Run, begins).await;
    let id = call(&claimed, 0, 0);
    let record = of_session_one(store, Some(id.clone())).await;
    let report = RunReport {
        session: key(1),
        call: Some((id.clone(), CallResult::text("its result"))),
        words: Some(words(50)),
    };
    let item = ending_of_run(&record, 0, Some(report));
    let AdvanceOutcome::Advanced {
        enqueue, notify, ..
    } = advance(store, 900, 1, item).await
    else {
        panic!("the run is its own");
    };
    assert_eq!((one(enqueue).key, notify), (key(1), None));
    let settled = call_of(store, &id).await;
    assert_eq!(settled.result, Some(CallResult::text("its result")));
    assert_eq!(dumped(store, 1).await.inbox, [], "told once");
    let again = claim(store, 910, 1, 1, 9).await;
    assert_eq!(again.send.record.id, send(1));
}

pub async fn a_busy_session_finds_the_end_of_a_run_in_its_inbox(store: &dyn Inspect) {
    running(store).await;
    let record = of_session_one(store, None).await;
    let report = RunReport {
        session: key(1),
        call: None,
        words: Some(words(50)),
    };
    let item = ending_of_run(&record, 0, Some(report));
    let AdvanceOutcome::Advanced {
        enqueue, notify, ..
    } = advance(store, 900, 1, item).await
    else {
        panic!("the run is its own");
    };
    assert_eq!((enqueue, notify), (Vec::new(), Some((key(1), boot(1)))));
    let item = one(dumped(store, 1).await.inbox);
    assert_eq!((item.id.as_str(), item.fate), ("run:1:1", Fate::Pending));
    assert_eq!(item.content, words(50).content);
}

pub async fn a_session_at_rest_is_woken_by_the_end_of_a_run(store: &dyn Inspect) {
    let claimed = running(store).await;
    complete(store, 20, ending(&claimed, AfterSend::Continue)).await;
    let record = of_session_one(store, None).await;
    let report = RunReport {
        session: key(1),
        call: None,
        words: Some(RunWords {
            ended_run: Some(run_key(1).run),
            ..words(50)
        }),
    };
    let item = ending_of_run(&record, 0, Some(report));
    let AdvanceOutcome::Advanced { enqueue, .. } = advance(store, 900, 1, item.clone()).await
    else {
        panic!("the run is its own");
    };
    assert_eq!(one(enqueue).key, key(1));
    let told = stored(store, 50).await;
    assert_eq!(told.input, words(50).content);
    assert_eq!(told.options.ended_run, Some(run_key(1).run));
    let late = advance(store, 901, 1, item).await;
    assert_eq!(late, AdvanceOutcome::Lost, "each is told once");
    assert_eq!(dumped(store, 1).await.sends.len(), 2);
}

pub async fn a_session_at_rest_may_be_told_with_its_next_send(store: &dyn Inspect) {
    let claimed = running(store).await;
    complete(store, 20, ending(&claimed, AfterSend::Continue)).await;
    let record = of_session_one(store, None).await;
    let report = RunReport {
        session: key(1),
        call: None,
        words: Some(RunWords {
            wake: false,
            ..words(50)
        }),
    };
    let item = ending_of_run(&record, 0, Some(report));
    let AdvanceOutcome::Advanced {
        enqueue, notify, ..
    } = advance(store, 900, 1, item).await
    else {
        panic!("the run is its own");
    };
    assert_eq!((enqueue, notify), (Vec::new(), None));
    let dump = dumped(store, 1).await;
    assert_eq!(dump.sends.len(), 1, "nobody is woken");
    let item = one(dump.inbox);
    assert_eq!((item.id.as_str(), item.fate), ("run:1:1", Fate::Pending));
    assert_eq!(item.send_id, None);
    accept(store, 910, sending(2, 1)).await;
    let next = claim(store, 911, 2, 1, 9).await;
    assert_ne!(
        next.counters.signals & SIGNAL_INBOX,
        0,
        "its next send looks"
    );
}

pub async fn the_runs_of_a_deleted_session_are_asked_to_end(store: &dyn Inspect) {
    running(store).await;
    of_session_one(store, None).await;
    under_way_beside(store).await;
    let deleted = store
        .at(time(40))
        .delete_session(key(1), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    assert_eq!(dumped_run(store, 2).await.asks, [RunAsk::session_deleted()]);
    assert_eq!(dumped_run(store, 3).await.asks, []);
    let news = one(claim_runs(store, 41, 1).await.runs);
    assert_eq!((news.key, news.asks.len()), (run_key(2), 1));
    let report = RunReport {
        session: key(1),
        call: None,
        words: Some(words(50)),
    };
    let record = read_run(store, 2).await;
    let item = ending_of_run(&record, 1, Some(report));
    let AdvanceOutcome::Advanced {
        enqueue, notify, ..
    } = advance(store, 900, 1, item).await
    else {
        panic!("the run is its own");
    };
    assert_eq!(
        (enqueue, notify),
        (Vec::new(), None),
        "nobody is left to tell"
    );
}
