//! Children, and how their ends reach their parents.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::{SendId, SessionKey, TenantId};
use mainspring_shared::inbox::{Fate, ItemKind};
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_RESULT};
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptSend, CallBegin, CallChange, CallStep, Claimed, NewSession, Parent, ParkUntil,
    ReportOutcome, Target, Then,
};
use mainspring_shared::tool::{CallResult, call_id, child_item, child_result};
use mainspring_store_sqlite::SqliteStore;

use crate::steps::*;

fn parent_of(place: usize) -> Parent {
    Parent {
        session: key(1).session,
        call_id: call_id(send(1), 0, place),
        root: key(1).session,
        depth: 1,
    }
}

/// A child of session 1, with a send of the same number that answers the call at `place`.
fn child(n: u128, place: usize) -> AcceptSend {
    let new = NewSession {
        parent: Some(parent_of(place)),
        ..new_session(n)
    };
    AcceptSend {
        target: Target::New(Box::new(new)),
        reports_to: Some(call_id(send(1), 0, place)),
        run: None,
        ..sending(n, n)
    }
}

/// Accepts, runs and ends the send of a child.
async fn end_child(store: &SqliteStore, ms: i64, item: AcceptSend) {
    let n = item.id.0.as_u128();
    accept(store, ms, item).await;
    let claimed = claim(store, ms, 1, n, 100 + n).await;
    let end = ending(&claimed, &claimed.send.record, Then::Continue);
    complete(store, ms, end).await;
}

async fn report(
    store: &SqliteStore,
    ms: i64,
    sends: Option<Vec<u128>>,
    limit: u32,
) -> Vec<ReportOutcome> {
    let named = |sends: Vec<u128>| -> Vec<(TenantId, SendId)> {
        let ids = sends.into_iter().map(|n| (TenantId::DEFAULT, send(n)));
        ids.collect()
    };
    let reported = store.report_children(at(ms), sends.map(named), limit).await;
    reported.expect("answers")
}

fn sends(outcomes: &[ReportOutcome]) -> Vec<SendId> {
    outcomes.iter().map(|outcome| outcome.send_id).collect()
}

/// Settles the call at a place, so that its child works in the background.
async fn detach(store: &SqliteStore, ms: i64, parent: &Claimed, place: usize) {
    let change = CallChange {
        call_id: call_id(send(1), 0, place),
        change: CallStep::Settled(CallResult::text("it works")),
    };
    append(store, ms, results(parent, vec![change])).await;
}

#[tokio::test]
async fn a_childs_end_is_its_parents_result() {
    let Opened { store, dir: _dir } = open().await;
    waiting(&store, vec![waits(WaitingOn::Agent)], WaitingOn::Agent).await;
    end_child(&store, 30, child(2, 0)).await;
    assert_eq!(hot(&store, 1).await.ready_since, None);
    let outcomes = report(&store, 40, None, 10).await;
    assert_eq!(sends(&outcomes), [send(2)]);
    assert_eq!(outcomes[0].parent, key(1));
    let ring = outcomes[0].ring.as_ref().expect("the parent goes on");
    assert_eq!((ring.key, Some(ring.ready_since)), (key(1), at(40)));
    let ended = stored(&store, 2).await;
    let call = call(&store, 1, 0).await;
    assert_eq!(call.result, Some(child_result(&ended)));
    assert_eq!(call.settled_at, at(40));
    assert_eq!(hot(&store, 1).await.signals, SIGNAL_RESULT);
    assert_eq!(
        report(&store, 41, None, 10).await,
        [],
        "each is reported once"
    );
    assert_eq!(inbox(&store, 1).await, []);
    assert_sound(&store, 100_000).await;
}

#[tokio::test]
async fn a_parent_goes_on_once_all_its_children_have_ended() {
    let Opened { store, dir: _dir } = open().await;
    let begins = vec![waits(WaitingOn::Agent), waits(WaitingOn::Agent)];
    waiting(&store, begins, WaitingOn::Agent).await;
    end_child(&store, 30, child(3, 1)).await;
    end_child(&store, 31, child(2, 0)).await;
    let first = report(&store, 40, None, 1).await;
    assert_eq!(sends(&first), [send(3)], "the oldest");
    assert_eq!(first[0].ring, None);
    let second = report(&store, 41, None, 1).await;
    assert_eq!(sends(&second), [send(2)]);
    assert!(second[0].ring.is_some());
}

#[tokio::test]
async fn only_those_that_are_named_are_reported() {
    let Opened { store, dir: _dir } = open().await;
    let begins = vec![waits(WaitingOn::Agent); 3];
    waiting(&store, begins, WaitingOn::Agent).await;
    for (n, place) in [(4, 0), (3, 1), (2, 2)] {
        end_child(&store, 30, child(n, place)).await;
    }
    accept(&store, 31, sending(5, 2)).await;
    let named = Some(vec![4, 1, 5, 99, 4, 3]);
    let outcomes = report(&store, 40, named.clone(), 1).await;
    assert_eq!(sends(&outcomes), [send(3)], "by id where the times are one");
    let outcomes = report(&store, 41, named, 10).await;
    assert_eq!(sends(&outcomes), [send(4)]);
    assert_eq!(sends(&report(&store, 42, None, 10).await), [send(2)]);
}

#[tokio::test]
async fn the_end_of_a_child_in_the_background_is_an_item() {
    let Opened { store, dir: _dir } = open().await;
    let parent = running(&store).await;
    append(&store, 20, calling(&parent, vec![CallBegin::Started])).await;
    detach(&store, 21, &parent, 0).await;
    end_child(&store, 30, child(2, 0)).await;
    let outcomes = report(&store, 40, None, 10).await;
    assert_eq!(
        (&outcomes[0].ring, outcomes[0].owner),
        (&None, Some(boot(1)))
    );
    let items = inbox(&store, 1).await;
    let ended = stored(&store, 2).await;
    let (id, content) = child_item(&ended, &call_id(send(1), 0, 0));
    assert_eq!((&items[0].id, &items[0].content), (&id, &content));
    assert_eq!(
        (items[0].kind, items[0].mode),
        (ItemKind::Child, OnBusy::Steer)
    );
    assert_eq!(
        (items[0].fate, items[0].send_id),
        (Fate::Pending, Some(send(1)))
    );
    assert_eq!(hot(&store, 1).await.signals, SIGNAL_INBOX);
    assert_eq!(
        call(&store, 1, 0).await.result,
        Some(CallResult::text("it works"))
    );
    assert_sound(&store, 41).await;
}

#[tokio::test]
async fn news_for_a_parent_at_rest_wait_for_its_next_send() {
    let Opened { store, dir: _dir } = open().await;
    let parent = running(&store).await;
    append(&store, 20, calling(&parent, vec![CallBegin::Started])).await;
    detach(&store, 21, &parent, 0).await;
    let mut end = ending(&parent, &parent.send.record, Then::Release);
    end.messages = answers(&store, 1, 1).await;
    end.messages.push(answer("done", 1));
    end.usage[0].round = 1;
    complete(&store, 22, end).await;
    end_child(&store, 30, child(2, 0)).await;
    let outcomes = report(&store, 40, None, 10).await;
    assert_eq!((&outcomes[0].ring, outcomes[0].owner), (&None, None));
    assert_eq!(inbox(&store, 1).await[0].send_id, None);
    assert_eq!(hot(&store, 1).await.ready_since, None);
    accept(&store, 50, sending(5, 1)).await;
    let next = claim(&store, 51, 1, 1, 5).await;
    assert_eq!(next.counters.signals, SIGNAL_INBOX);
    assert_sound(&store, 52).await;
}

#[tokio::test]
async fn news_end_a_parents_wait_for_time_alone() {
    let Opened { store, dir: _dir } = open().await;
    let parent = running(&store).await;
    append(&store, 20, calling(&parent, vec![CallBegin::Started])).await;
    detach(&store, 21, &parent, 0).await;
    end_child(&store, 30, child(2, 0)).await;
    park(&store, 31, &parent, WaitingOn::Retry, ParkUntil::Asked).await;
    let outcomes = report(&store, 40, None, 10).await;
    assert!(outcomes[0].ring.is_some());
    assert_eq!(hot(&store, 1).await.ready_since, at(40));
}

#[tokio::test]
async fn a_parent_hears_of_a_child_that_was_deleted() {
    let Opened { store, dir: _dir } = open().await;
    waiting(&store, vec![waits(WaitingOn::Agent)], WaitingOn::Agent).await;
    accept(&store, 30, child(2, 0)).await;
    let deleted = store.delete_session(at(31), key(2), SCHEDULER).await;
    deleted.expect("answers");
    let outcomes = report(&store, 40, None, 10).await;
    assert!(outcomes[0].ring.is_some());
    let ended = stored(&store, 2).await;
    assert_eq!(ended.status, SendStatus::Cancelled);
    let result = call(&store, 1, 0).await.result;
    assert_eq!(result, Some(child_result(&ended)));
}

#[tokio::test]
async fn nobody_is_told_when_the_parent_is_gone() {
    let Opened { store, dir: _dir } = open().await;
    waiting(&store, vec![waits(WaitingOn::Agent)], WaitingOn::Agent).await;
    end_child(&store, 30, child(2, 0)).await;
    let deleted = store.delete_session(at(31), key(1), SCHEDULER).await;
    deleted.expect("answers");
    let before = hot(&store, 1).await;
    assert_eq!(report(&store, 40, None, 10).await, []);
    assert_eq!(hot(&store, 1).await, before);
    assert_sound(&store, 100_000).await;
}

#[tokio::test]
async fn children_are_known_by_their_parent() {
    let Opened { store, dir: _dir } = open().await;
    let children = async || -> Vec<SessionKey> {
        let children = store.list_children(key(1)).await;
        children.expect("answers")
    };
    waiting(&store, vec![waits(WaitingOn::Agent)], WaitingOn::Agent).await;
    assert_eq!(children().await, []);
    for n in [3, 2] {
        accept(&store, 30, child(n, 0)).await;
    }
    let created = NewSession {
        parent: Some(parent_of(0)),
        ..new_session(4)
    };
    let created = store.create_sessions(at(31), vec![(created, None)]).await;
    created.expect("answers");
    assert_eq!(children().await, [key(2), key(3), key(4)]);
    let dump = store.dump().await.expect("answers");
    let parents: Vec<_> = dump.sessions.iter().map(|s| s.parent.clone()).collect();
    let known = Some(parent_of(0));
    assert_eq!(parents, [None, known.clone(), known.clone(), known.clone()]);
    for (n, parent) in [(1, None), (2, known)] {
        let record = store.get_session(key(n)).await.expect("answers");
        assert_eq!(record.expect("it exists").parent, parent);
    }
    let reports_to = stored(&store, 2).await.reports_to;
    assert_eq!(reports_to, Some(call_id(send(1), 0, 0)));
    let deleted = store.delete_session(at(32), key(3), SCHEDULER).await;
    deleted.expect("answers");
    assert_eq!(children().await, [key(2), key(4)]);
}
