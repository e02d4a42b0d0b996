//! Child sessions, and what a parent is told of them.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::error::{Code, Failure};
use mainspring_shared::id::{SendId, SessionKey, TenantId};
use mainspring_shared::inbox::{Fate, InboxItem, ItemKind};
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::{SendResult, SendStatus, StopReason, WaitingOn};
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_RESULT};
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, AfterSend, AuditOptions, CallBegin, Claimed, ERASED_MS_MIN,
    IdempotencyKey, Inspect, NewRun, NewSession, Parent, ParkUntil, RefuseReason, ReportOutcome,
    SessionPatch, SweepOrphans, Target, erase_step,
};
use mainspring_shared::tool::{CallResult, child_item, child_result};

use super::prelude::*;
use super::runs::{created, new_run};

async fn children(store: &dyn Inspect, session: u128) -> Vec<SessionKey> {
    let children = store.list_children(key(session)).await;
    children.expect("the store answers")
}

/// Send 1 runs in session 1 and has made calls with these initial states.
async fn asked(store: &dyn Inspect, begins: Vec<CallBegin>) -> Claimed {
    let claimed = running(store).await;
    append(store, 12, asking(&claimed, 0, begins)).await;
    claimed
}

/// Send 1 waits for this many children.
async fn waits_for(store: &dyn Inspect, children: usize) -> Claimed {
    let claimed = running(store).await;
    let begins = (0..children).map(|_| waits(WaitingOn::Agent)).collect();
    wait_for_calls(store, 12, &claimed, WaitingOn::Agent, begins).await;
    claimed
}

/// The n-th send, for a call of session 1, runs in session `n` and completes at `ms`.
async fn answers_at(store: &dyn Inspect, ms: i64, n: u128, call_id: &str) {
    accept(store, 20, child(n, n, 1, call_id)).await;
    let claimed = claim(store, 21, 1, n, n).await;
    complete(store, ms, ending(&claimed, AfterSend::Continue)).await;
}

pub async fn a_child_knows_its_parent(store: &dyn Inspect) {
    let parent = Parent {
        session: key(1).session,
        call_id: "call_x".to_owned(),
        root: key(7).session,
        depth: 3,
    };
    let created = NewSession {
        parent: Some(parent.clone()),
        ..new_session(3)
    };
    let created = store
        .at(time(0))
        .create_sessions(vec![(created, None)])
        .await;
    created.expect("the store answers");
    accept(store, 0, opening(1, 1)).await;
    accept(store, 0, child(2, 2, 1, "call_y")).await;
    accept(store, 0, child(4, 4, 2, "call_z")).await;
    let read = store.get_session(key(3)).await.expect("the store answers");
    assert_eq!(read.expect("it exists").parent, Some(parent.clone()));
    assert_eq!(dumped(store, 3).await.parent, Some(parent));
    let second = dumped(store, 2).await.parent.expect("it is a child");
    assert_eq!((second.session, second.depth), (key(1).session, 1));
    assert_eq!(second.call_id, "call_y");
    assert_eq!(dumped(store, 1).await.parent, None);
    assert_eq!(stored(store, 2).await.reports_to.as_deref(), Some("call_y"));
    assert_eq!(stored(store, 1).await.reports_to, None);
    assert_eq!(children(store, 1).await, [key(2), key(3)]);
    assert_eq!(children(store, 2).await, [key(4)]);
    assert_eq!(children(store, 4).await, []);
    let foreign = SessionKey {
        tenant: TenantId(2),
        ..key(1)
    };
    let found = store.list_children(foreign).await;
    assert_eq!(found.expect("the store answers"), []);
    let deleted = store
        .at(time(9))
        .delete_session(key(2), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    assert_eq!(children(store, 1).await, [key(3)]);
    assert_eq!(
        dumped(store, 2).await.parent,
        None,
        "it went with the session"
    );
}

pub async fn a_child_is_open_as_long_as_it_has_work(store: &dyn Inspect) {
    async fn open(store: &dyn Inspect, session: u128) -> u64 {
        let count = store.open_children(key(session)).await;
        count.expect("the store answers")
    }
    accept(store, 0, opening(1, 1)).await;
    assert_eq!(open(store, 1).await, 0);
    accept(store, 1, child(2, 2, 1, "call_y")).await;
    accept(store, 1, child(3, 3, 1, "call_z")).await;
    assert_eq!((open(store, 1).await, open(store, 2).await), (2, 0));
    let claimed = claim(store, 21, 1, 2, 2).await;
    assert_eq!(open(store, 1).await, 2, "one of them runs");
    complete(store, 22, ending(&claimed, AfterSend::Continue)).await;
    assert_eq!(open(store, 1).await, 1);
    assert_eq!(children(store, 1).await.len(), 2);
    let foreign = SessionKey {
        tenant: TenantId(2),
        ..key(1)
    };
    let count = store.open_children(foreign).await;
    assert_eq!(count.expect("the store answers"), 0);
}

pub async fn the_end_of_a_child_is_the_result_of_its_call(store: &dyn Inspect) {
    let parent = waits_for(store, 1).await;
    let id = call(&parent, 0, 0);
    answers_at(store, 30, 2, &id).await;
    let record = stored(store, 2).await;
    assert_eq!(
        call_of(store, &id).await.result,
        None,
        "until it is reported"
    );
    let reported = one(report(store, 40).await);
    assert_eq!((reported.send_id, reported.parent), (send(2), key(1)));
    assert_eq!(
        reported.enqueue.expect("the parent goes on").ready_since,
        time(40)
    );
    assert_eq!(reported.owner, None);
    let found = call_of(store, &id).await;
    assert_eq!(found.result, Some(child_result(&record)));
    assert_eq!((found.waits_on, found.settled_at), (None, at(40)));
    assert_eq!(stored(store, 2).await, record, "the child stays as it is");
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.ready_since, hot.signals), (at(40), SIGNAL_RESULT));
    assert_eq!(report(store, 50).await, [], "each is reported once");
    let again = claim(store, 60, 1, 1, 9).await;
    let step = last_step(store, 1).await;
    assert_eq!(step.refs.reason.as_deref(), Some("result"));
    assert_eq!(again.counters.signals, SIGNAL_RESULT);
}

pub async fn only_the_last_child_wakes_its_parent(store: &dyn Inspect) {
    let parent = waits_for(store, 2).await;
    answers_at(store, 30, 2, &call(&parent, 0, 0)).await;
    assert_eq!(one(report(store, 31).await).enqueue, None);
    answers_at(store, 32, 3, &call(&parent, 0, 1)).await;
    assert!(one(report(store, 33).await).enqueue.is_some());
}

pub async fn a_child_that_failed_is_an_error(store: &dyn Inspect) {
    let parent = waits_for(store, 2).await;
    accept(store, 20, child(2, 2, 1, &call(&parent, 0, 0))).await;
    let claimed = claim(store, 21, 1, 2, 2).await;
    let mut item = ending(&claimed, AfterSend::Continue);
    let failure = Failure::new(Code::LlmAuth, "the key is refused");
    item.result = SendResult::failed(StopReason::ProviderError, failure);
    complete(store, 30, item).await;
    accept(store, 31, child(3, 3, 1, &call(&parent, 0, 1))).await;
    cancel(store, 32, 3).await;
    assert_eq!(report(store, 40).await.len(), 2);
    let failed = call_of(store, &call(&parent, 0, 0)).await.result;
    let text = "the child ended failed: provider_error: the key is refused";
    let told = |result: Option<CallResult>| result.map(|r| CallResult { value: None, ..r });
    let value = failed.as_ref().and_then(|result| result.value.clone());
    let record = stored(store, 2).await;
    assert_eq!(
        value.expect("says what it cost")["usage"],
        serde_json::json!(record.usage)
    );
    assert_eq!(
        told(failed),
        Some(CallResult::error(Code::ToolFailed, text))
    );
    let cancelled = call_of(store, &call(&parent, 0, 1)).await.result;
    let text = "the child ended cancelled: cancelled";
    assert_eq!(
        told(cancelled),
        Some(CallResult::error(Code::ToolFailed, text))
    );
}

pub async fn a_parent_that_runs_is_told(store: &dyn Inspect) {
    let parent = asked(store, vec![CallBegin::Started]).await;
    answers_at(store, 30, 2, &call(&parent, 0, 0)).await;
    let reported = one(report(store, 40).await);
    assert_eq!((reported.enqueue, reported.owner), (None, Some(boot(1))));
    assert_eq!(signals(store, 1).await, SIGNAL_RESULT);
    let found = call_of(store, &call(&parent, 0, 0)).await;
    assert!(found.result.is_some(), "before it was said to wait");
}

pub async fn a_child_in_the_background_reaches_the_inbox(store: &dyn Inspect) {
    let parent = asked(store, vec![settled()]).await;
    let id = call(&parent, 0, 0);
    answers_at(store, 30, 2, &id).await;
    let reported = one(report(store, 40).await);
    let expected = ReportOutcome {
        send_id: send(2),
        parent: key(1),
        enqueue: None,
        owner: Some(boot(1)),
    };
    assert_eq!(reported, expected);
    let (item_id, content) = child_item(&stored(store, 2).await, &id);
    let expected = InboxItem {
        id: item_id,
        n: 2,
        kind: ItemKind::Child,
        mode: OnBusy::Steer,
        send_id: Some(send(1)),
        content,
        fate: Fate::Pending,
        seq: None,
        created_at: time(40),
        settled_at: None,
    };
    assert_eq!(inbox(store, 1).await, [expected]);
    assert_eq!(signals(store, 1).await, SIGNAL_INBOX);
    let result = call_of(store, &id).await.result;
    assert_eq!(
        result,
        Some(CallResult::text("seen")),
        "it keeps its result"
    );
}

pub async fn news_of_a_child_wake_a_parent_that_waits_for_time(store: &dyn Inspect) {
    register(store, 1).await;
    for (n, on) in [
        (1, WaitingOn::Retry),
        (2, WaitingOn::Timer),
        (3, WaitingOn::Tool),
    ] {
        accept(store, 0, opening(n, n)).await;
        let claimed = claim(store, 10, 1, n, n).await;
        let begins = vec![settled(), waits(WaitingOn::Tool)];
        wait_for_calls(store, 12, &claimed, on, begins).await;
        let sub = 10 + n;
        accept(store, 20, child(sub, sub, n, &call(&claimed, 0, 0))).await;
        cancel(store, 21, sub).await;
        let reported = one(report(store, 30).await);
        assert_eq!(reported.enqueue.is_some(), on != WaitingOn::Tool, "{on:?}");
        let hot = dumped(store, n).await.hot;
        assert_eq!(hot.ready_since.is_some(), on != WaitingOn::Tool);
        assert_eq!(hot.signals, SIGNAL_INBOX);
        assert_eq!(inbox(store, n).await[0].send_id, Some(send(n)));
    }
}

pub async fn news_for_a_parent_at_rest_wait_for_its_next_send(store: &dyn Inspect) {
    let parent = asked(store, vec![settled()]).await;
    let mut item = ending(&parent, AfterSend::Continue);
    item.messages = answers_of(store, &parent, 0).await;
    item.messages.push(answer("done", 1, &[]));
    item.usage = vec![usage_row(1, 2)];
    item.round = Some(round_ref(1));
    item.totals = totals(2);
    complete(store, 15, item).await;
    answers_at(store, 30, 2, &call(&parent, 0, 0)).await;
    let reported = one(report(store, 40).await);
    assert_eq!((reported.enqueue, reported.owner), (None, None));
    assert_eq!(dumped(store, 1).await.hot.ready_since, None);
    assert_eq!(inbox(store, 1).await[0].send_id, None);
    accept(store, 50, sending(3, 1)).await;
    let claimed = claim(store, 51, 1, 1, 9).await;
    assert_eq!(claimed.counters.signals, SIGNAL_INBOX);
    let items = inbox(store, 1).await;
    let mut told = ending(&claimed, AfterSend::Continue);
    told.messages
        .insert(1, NewMessage::user(items[0].content.clone(), 0));
    told.deliveries = vec![delivery(&items[0].id, 1)];
    complete(store, 60, told).await;
    let items = inbox(store, 1).await;
    assert_eq!((items[0].fate, items[0].seq), (Fate::Delivered, Some(6)));
    assert_eq!(items[0].send_id, Some(send(3)), "which said it");
}

pub async fn an_interrupted_call_hears_of_its_child_through_the_inbox(store: &dyn Inspect) {
    let parent = waits_for(store, 1).await;
    delivered(store, 20, item("a", 1, OnBusy::Interrupt)).await;
    answers_at(store, 30, 2, &call(&parent, 0, 0)).await;
    assert_eq!(report(store, 40).await.len(), 1);
    let kinds: Vec<_> = inbox(store, 1).await.iter().map(|i| i.kind).collect();
    assert_eq!(kinds, [ItemKind::Message, ItemKind::Child]);
    let result = call_of(store, &call(&parent, 0, 0)).await.result;
    assert_eq!(result.and_then(|r| r.code), Some(Code::ToolInterrupted));
}

pub async fn a_second_end_for_a_call_reaches_the_inbox(store: &dyn Inspect) {
    let parent = waits_for(store, 1).await;
    let id = call(&parent, 0, 0);
    answers_at(store, 30, 2, &id).await;
    let more = AcceptSend {
        reports_to: Some(id.clone()),
        run: None,
        ..sending(3, 2)
    };
    accept(store, 31, more).await;
    let claimed = claim(store, 32, 1, 2, 9).await;
    complete(store, 33, ending(&claimed, AfterSend::Continue)).await;
    let sends: Vec<_> = report(store, 40).await.iter().map(|r| r.send_id).collect();
    assert_eq!(sends, [send(2), send(3)]);
    let first = stored(store, 2).await;
    assert_eq!(call_of(store, &id).await.result, Some(child_result(&first)));
    let (item_id, _) = child_item(&stored(store, 3).await, &id);
    let ids: Vec<_> = inbox(store, 1).await.into_iter().map(|i| i.id).collect();
    assert_eq!(ids, [item_id]);
}

pub async fn the_oldest_ends_are_reported_first(store: &dyn Inspect) {
    let parent = waits_for(store, 4).await;
    for (n, ms) in [(2, 33), (3, 31), (5, 32), (4, 32)] {
        let place = usize::try_from(n).expect("it is small") - 2;
        answers_at(store, ms, n, &call(&parent, 0, place)).await;
    }
    let some = async |sends: Option<Vec<u128>>, limit| {
        let named = |n| (TenantId::DEFAULT, send(n));
        let sends = sends.map(|sends| sends.into_iter().map(named).collect());
        let reported = store.at(time(40)).report_children(sends, limit).await;
        let reported = reported.expect("the store answers");
        reported.iter().map(|r| r.send_id).collect::<Vec<_>>()
    };
    assert!(some(Some(Vec::new()), 9).await.is_empty());
    assert!(some(Some(vec![1, 9]), 9).await.is_empty());
    let named = Some(vec![5, 1, 9, 4, 5]);
    assert_eq!(some(named.clone(), 1).await, [send(4)], "by id at one time");
    assert_eq!(some(named, 9).await, [send(5)]);
    assert_eq!(some(None, 1).await, [send(3)]);
    assert_eq!(some(None, 2).await, [send(2)]);
    assert!(some(None, 2).await.is_empty());
}

pub async fn an_open_send_is_not_reported(store: &dyn Inspect) {
    let parent = waits_for(store, 1).await;
    accept(store, 20, child(2, 2, 1, &call(&parent, 0, 0))).await;
    assert_eq!(report(store, 21).await, []);
    let claimed = claim(store, 22, 1, 2, 2).await;
    assert_eq!(report(store, 23).await, []);
    let item = waiting(&claimed, WaitingOn::Human, ParkUntil::Asked);
    park(store, 24, item).await;
    let named = vec![(TenantId::DEFAULT, send(2))];
    let reported = store.at(time(25)).report_children(Some(named), 9).await;
    assert_eq!(reported.expect("the store answers"), []);
    cancel(store, 26, 1).await;
    assert_eq!(report(store, 27).await, [], "send 1 has no parent");
}

pub async fn nobody_hears_of_a_child_whose_parent_is_gone(store: &dyn Inspect) {
    let parent = waits_for(store, 1).await;
    answers_at(store, 30, 2, &call(&parent, 0, 0)).await;
    let deleted = store
        .at(time(40))
        .delete_session(key(1), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    let before = store.dump().await.expect("the store answers");
    assert_eq!(report(store, 50).await, []);
    assert_eq!(store.dump().await.expect("the store answers"), before);
}

pub async fn a_parent_hears_of_a_child_that_was_deleted(store: &dyn Inspect) {
    let parent = waits_for(store, 1).await;
    let id = call(&parent, 0, 0);
    accept(store, 20, child(2, 2, 1, &id)).await;
    let deleted = store
        .at(time(30))
        .delete_session(key(2), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    let reported = one(report(store, 40).await);
    assert!(reported.enqueue.is_some(), "it would wait for ever");
    let record = stored(store, 2).await;
    assert_eq!(record.status, SendStatus::Cancelled);
    assert_eq!(
        call_of(store, &id).await.result,
        Some(child_result(&record))
    );
}

pub async fn a_child_whose_parent_ended_reaches_the_inbox(store: &dyn Inspect) {
    let parent = waits_for(store, 1).await;
    let id = call(&parent, 0, 0);
    answers_at(store, 30, 2, &id).await;
    cancel(store, 35, 1).await;
    let reported = one(report(store, 40).await);
    assert_eq!((reported.enqueue, reported.owner), (None, None));
    let result = call_of(store, &id).await.result;
    assert_eq!(result.and_then(|r| r.code), Some(Code::ToolCancelled));
    assert_eq!(inbox(store, 1).await.len(), 1);
}

pub async fn a_child_may_create_its_session_for_a_parent_of_its_own(store: &dyn Inspect) {
    let parent = waits_for(store, 1).await;
    let outer = call(&parent, 0, 0);
    accept(store, 20, child(2, 2, 1, &outer)).await;
    let middle = claim(store, 21, 1, 2, 2).await;
    wait_for_calls(
        store,
        22,
        &middle,
        WaitingOn::Agent,
        vec![waits(WaitingOn::Agent)],
    )
    .await;
    let inner = call(&middle, 0, 0);
    let mut item = child(3, 3, 2, &inner);
    if let Target::New(new) = &mut item.target
        && let Some(parent) = &mut new.parent
    {
        (parent.root, parent.depth) = (key(1).session, 2);
    }
    accept(store, 30, item).await;
    let last = claim(store, 31, 1, 3, 3).await;
    complete(store, 32, ending(&last, AfterSend::Continue)).await;
    let reported = one(report(store, 40).await);
    assert_eq!(reported.parent, key(2), "the one that asked");
    assert!(call_of(store, &inner).await.result.is_some());
    assert_eq!(call_of(store, &outer).await.result, None);
    let parent = dumped(store, 3).await.parent.expect("it is a child");
    assert_eq!((parent.root, parent.depth), (key(1).session, 2));
}

pub async fn a_child_of_a_session_that_is_gone_is_not_created(store: &dyn Inspect) {
    let no_parent = AcceptOutcome::Refused(RefuseReason::SessionNotFound);
    let early = offer(store, 0, child(9, 9, 1, "call_x")).await;
    assert_eq!(early, no_parent);
    accept(store, 0, opening(1, 1)).await;
    let keyed = |n: u128| AcceptSend {
        idempotency: Some(IdempotencyKey {
            tenant: TenantId::DEFAULT,
            route: "spawn".to_owned(),
            key: format!("call_{n}"),
            body_hash: [0; 32],
        }),
        ..child(n, n, 1, "call_x")
    };
    accept(store, 1, keyed(2)).await;
    let patch = SessionPatch {
        closed: Some(true),
        ..SessionPatch::default()
    };
    let closed = store.at(time(2)).update_session(key(1), patch).await;
    closed.expect("the store answers");
    accept(store, 3, child(3, 3, 1, "call_y")).await;
    let deleted = store
        .at(time(4))
        .delete_session(key(1), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    for (n, expected) in [
        (2, AcceptOutcome::Replayed(send(2))),
        (4, no_parent.clone()),
    ] {
        assert_eq!(offer(store, 5, keyed(n)).await, expected);
    }
    // Also after the final check of what was deleted.
    let end = 4 + ERASED_MS_MIN;
    while !due(store, end).await.is_empty() {
        for found in due(store, end).await {
            let step = erase_step(&*store.at(time(end)), boot(SCHEDULER), found, 100).await;
            step.expect("the store answers");
        }
    }
    let mut both = vec![child(5, 5, 1, "call_z"), opening(6, 6)];
    both.push(child(7, 7, 6, "call_z"));
    let outcomes = store
        .at(time(end + 1))
        .accept_sends(boot(SCHEDULER), both)
        .await;
    let outcomes = outcomes.expect("the store answers");
    assert_eq!(outcomes[0], no_parent);
    let is_accepted = |outcome: &_| matches!(outcome, AcceptOutcome::Accepted(_));
    assert!(outcomes[1..].iter().all(is_accepted), "{outcomes:?}");
    for n in [4, 5, 9] {
        let read = store.get_session(key(n)).await;
        assert_eq!(read.expect("the store answers"), None, "{n}");
    }
    let violations = store.at(time(end + 2)).audit(AuditOptions::default()).await;
    assert_eq!(violations.expect("the store answers"), []);
}

async fn due(store: &dyn Inspect, ms: i64) -> Vec<SessionKey> {
    let due = store.at(time(ms)).deleted_sessions(None, 100).await;
    let due = due.expect("the store answers").into_iter();
    due.map(|found| found.key).collect()
}

/// Orphans whose parent send ended at least half a second ago, starting with the first page.
async fn orphans(store: &dyn Inspect, ms: i64, limit: u32) -> Vec<(SessionKey, SendId)> {
    let mut found = Vec::new();
    let mut query = SweepOrphans {
        older_than: millis(500),
        after: None,
        limit,
    };
    loop {
        let page = store.at(time(ms)).sweep_orphans(query).await;
        let page = page.expect("the store answers");
        found.extend(page.of);
        query.after = page.next;
        if query.after.is_none() {
            return found;
        }
    }
}

pub async fn what_works_for_a_send_that_ended_is_found(store: &dyn Inspect) {
    let parent = waits_for(store, 2).await;
    let calls = [call(&parent, 0, 0), call(&parent, 0, 1)];
    accept(store, 20, child(2, 2, 1, &calls[0])).await;
    let detached = AcceptSend {
        reports_to: Some(calls[1].clone()),
        ..opening(3, 3)
    };
    accept(store, 21, detached).await;
    assert_eq!(orphans(store, 9_000, 10).await, [], "somebody waits");
    cancel(store, 9_000, 1).await;
    assert_eq!(orphans(store, 9_500, 10).await, [], "it has just ended");
    assert_eq!(orphans(store, 9_501, 10).await, [(key(1), send(1))]);
    let claimed = claim(store, 9_502, 1, 2, 2).await;
    assert_eq!(orphans(store, 9_600, 10).await, [(key(1), send(1))]);
    complete(store, 9_601, ending(&claimed, AfterSend::Continue)).await;
    assert_eq!(
        orphans(store, 9_700, 10).await,
        [],
        "a detached session goes on"
    );
    let run = NewRun {
        session: Some(key(1).session),
        reports_to: Some(calls[1].clone()),
        ..new_run(1)
    };
    created(store, 9_701, run).await;
    assert_eq!(orphans(store, 9_800, 10).await, [(key(1), send(1))]);
}

pub async fn what_works_for_sends_is_looked_at_in_pages(store: &dyn Inspect) {
    let parent = waits_for(store, 3).await;
    for place in 0..3 {
        let n = 2 + u128::try_from(place).expect("small");
        accept(store, 20, child(n, n, 1, &call(&parent, 0, place))).await;
    }
    cancel(store, 30, 1).await;
    let of = [(key(1), send(1))];
    assert_eq!(orphans(store, 9_000, 3).await, of, "once in a page");
    assert_eq!(orphans(store, 9_000, 2).await, [of, of].concat());
    assert_eq!(orphans(store, 9_000, 1).await, [of, of, of].concat());
}
