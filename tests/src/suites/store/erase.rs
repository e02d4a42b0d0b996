//! Deleted sessions are erased page by page, whichever process dies in between.

use std::time::Duration;

use mainspring_shared::agent::{OnBusy, SendOptions};
use mainspring_shared::id::{SessionKey, TenantId};
use mainspring_shared::list::List;
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::{SendRecord, SendStatus, WaitingOn};
use mainspring_shared::store::{
    AcceptOutcome, AfterSend, AuditOptions, DeleteOutcome, DeletedSession, ERASED_AT_ONCE,
    ERASED_MS_MIN, Erased, ImportSession, Inspect, NewSession, Parent, ReadInbox, RefuseReason,
    SessionPatch, erase_step,
};
use mainspring_shared::time::Span;

use super::prelude::*;

async fn delete(store: &dyn Inspect, ms: i64, n: u128) -> DeleteOutcome {
    let outcome = store
        .at(time(ms))
        .delete_session(key(n), boot(SCHEDULER))
        .await;
    outcome.expect("the store answers")
}

async fn erase(store: &dyn Inspect, ms: i64, n: u128, limit: u32) -> Erased {
    let erased = store.at(time(ms)).erase_session(key(n), limit).await;
    erased.expect("the store answers")
}

async fn due(store: &dyn Inspect, ms: i64) -> Vec<DeletedSession> {
    let due = store.at(time(ms)).deleted_sessions(None, 100).await;
    due.expect("the store answers")
}

async fn assert_sound(store: &dyn Inspect, ms: i64) {
    let violations = store.at(time(ms)).audit(AuditOptions::default()).await;
    assert_eq!(violations.expect("the store answers"), []);
}

/// Whether everything that a delete removes from a session is gone.
async fn is_empty(store: &dyn Inspect, n: u128) -> bool {
    let left = dumped(store, n).await;
    left.messages.is_empty()
        && left.calls.is_empty()
        && left.usage.is_empty()
        && left.inbox.is_empty()
}

/// Session 1 with a call, two answers, two versions of its agent, and an item for the running send.
async fn busy(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, round(&claimed, 0)).await;
    let mut item = ending(&claimed, AfterSend::Release);
    item.messages = vec![answer("done", 1, &[])];
    item.usage = vec![usage_row(1, 2)];
    (item.round, item.totals) = (Some(round_ref(1)), totals(2));
    complete(store, 30, item).await;
    let patch = SessionPatch {
        agent: Some(new_session(1).agent),
        ..SessionPatch::default()
    };
    let updated = store.at(time(35)).update_session(key(1), patch).await;
    updated.expect("the store answers");
    accept(store, 40, sending(2, 1)).await;
    let again = claim(store, 50, 1, 1, 2).await;
    append(store, 51, asking(&again, 0, vec![waits(WaitingOn::Tool)])).await;
    delivered(store, 52, item_for(1)).await;
}

fn item_for(session: u128) -> mainspring_shared::store::DeliverItem {
    item("a", session, OnBusy::Steer)
}

pub async fn what_a_deleted_session_left_is_nobodys(store: &dyn Inspect) {
    busy(store).await;
    let call = dumped(store, 1).await.calls[0].call_id.clone();
    let open = format!("call_{}_0_0", send(2).0.simple());
    delete(store, 60, 1).await;
    let left = dumped(store, 1).await;
    assert!(left.erasing && left.messages.len() > 4 && left.calls.len() == 2);
    assert_eq!(transcript(store, 1).await, []);
    let ids = vec![(TenantId::DEFAULT, call), (TenantId::DEFAULT, open.clone())];
    let found = store.get_calls(ids).await.expect("the store answers");
    assert_eq!(found, [None, None]);
    let round = store.read_round(key(1), send(2), 0).await;
    assert_eq!(round.expect("the store answers"), []);
    for pending in [true, false] {
        let query = ReadInbox {
            key: key(1),
            pending,
            after: 0,
            limit: 9,
        };
        let items = store.read_inbox(query).await.expect("the store answers");
        assert_eq!(items, []);
    }
    let answered = post_text(store, 61, 1, &open, "late").await;
    assert_eq!(answered, mainspring_shared::store::PostOutcome::Unknown);
    let refused = offer(store, 62, sending(3, 1)).await;
    let not_found = AcceptOutcome::Refused(RefuseReason::SessionNotFound);
    assert_eq!(refused, not_found);
    assert_eq!(stored(store, 2).await.status, SendStatus::Cancelled);
    assert_sound(store, 100_000).await;
}

pub async fn a_deleted_session_goes_page_by_page(store: &dyn Inspect) {
    busy(store).await;
    assert_eq!(due(store, 60).await, []);
    assert_eq!(erase(store, 60, 1, 100).await, Erased::default());
    assert!(!is_empty(store, 1).await, "it is not deleted");
    delete(store, 60, 1).await;
    let marked = DeletedSession {
        due_at: time(60),
        key: key(1),
    };
    assert_eq!(due(store, 61).await, [marked]);
    assert_eq!(due(store, 59).await, []);
    let mut pages = 0;
    loop {
        let before = dumped(store, 1).await;
        let page = erase(store, 70, 1, 2).await;
        let after = dumped(store, 1).await;
        assert_sound(store, 71).await;
        assert!(before.messages.len() <= after.messages.len() + 2);
        assert!(before.usage.len() <= after.usage.len() + 2);
        pages += 1;
        if !page.more {
            break;
        }
        assert!(after.erasing && pages < 20);
    }
    assert!(pages > 2 && is_empty(store, 1).await);
    // It is checked once more, when nothing can be started below it any longer.
    let end = 60 + ERASED_MS_MIN;
    assert_eq!(due(store, end - 1).await, []);
    assert_eq!(due(store, end).await.len(), 1);
    assert_eq!(erase(store, end, 1, 2).await, Erased::default());
    assert_eq!(due(store, end).await, []);
    let left = dumped(store, 1).await;
    assert!(!left.erasing && left.sends.len() == 2 && !left.steps.is_empty());
    // What was said and answered is gone; that there was a send, and its end, are kept.
    for send in left.sends {
        let said = (
            send.input.len(),
            send.output_text,
            send.output,
            send.options,
        );
        assert_eq!(said, (0, None, None, SendOptions::default()));
        assert!(send.status.is_final() && send.stop_reason.is_some());
    }
    assert_sound(store, end).await;
}

/// Creates a child session.
async fn below(store: &dyn Inspect, ms: i64, n: u128, parent: u128, root: u128, depth: i32) {
    let new = NewSession {
        parent: Some(Parent {
            session: key(parent).session,
            call_id: format!("call_{parent}"),
            root: key(root).session,
            depth,
        }),
        ..new_session(n)
    };
    let created = store.at(time(ms)).create_sessions(vec![(new, None)]).await;
    created.expect("the store answers");
    accept(store, ms, sending(n, n)).await;
}

/// A tree of five sessions numbered from `first`: a root, two children, and a child of each of
/// these. Each has an answered send and an open one.
async fn tree(store: &dyn Inspect, ms: i64, first: u128) -> Vec<u128> {
    let created = store
        .at(time(ms))
        .create_sessions(vec![(new_session(first), None)])
        .await;
    created.expect("the store answers");
    accept(store, ms, sending(first, first)).await;
    below(store, ms, first + 1, first, first, 1).await;
    below(store, ms, first + 2, first, first, 1).await;
    below(store, ms, first + 3, first + 1, first, 2).await;
    below(store, ms, first + 4, first + 2, first, 2).await;
    let all: Vec<u128> = (first..first + 5).collect();
    for n in &all {
        let claimed = claim(store, ms, 1, *n, *n).await;
        append(store, ms, round(&claimed, 0)).await;
        let mut item = ending(&claimed, AfterSend::Release);
        item.messages = vec![answer("done", 1, &[])];
        item.usage = vec![usage_row(1, 2)];
        (item.round, item.totals) = (Some(round_ref(1)), totals(2));
        complete(store, ms, item).await;
        accept(store, ms, sending(n + 50, *n)).await;
    }
    all
}

/// One transaction of the erasure; false if nothing is left to do.
async fn one_write(store: &dyn Inspect, ms: i64) -> bool {
    for found in due(store, ms).await {
        let children = store.list_children(found.key).await;
        if let Some(child) = children.expect("the store answers").first() {
            let deleted = store
                .at(time(ms))
                .delete_session(*child, boot(SCHEDULER))
                .await;
            deleted.expect("the store answers");
            return true;
        }
        let page = store.at(time(ms)).erase_session(found.key, 1).await;
        if page.expect("the store answers") != Erased::default() {
            return true;
        }
    }
    false
}

pub async fn a_tree_goes_wherever_its_removal_broke_off(store: &dyn Inspect) {
    register(store, 1).await;
    for died_after in 0..22 {
        let ms = 1_000 + died_after;
        let all = tree(store, ms, died_after as u128 * 100 + 1).await;
        delete(store, ms, all[0]).await;
        let mut is_over = false;
        for _ in 0..died_after {
            is_over = !one_write(store, ms).await;
        }
        assert!(!is_over, "there are more places than that");
        assert_sound(store, ms).await;
        // A process that takes over later knows nothing of it.
        let mut left = due(store, ms).await;
        while !left.is_empty() {
            for found in &left {
                let step = erase_step(&*store.at(time(ms)), boot(SCHEDULER), found.key, 3).await;
                step.expect("the store answers");
            }
            left = due(store, ms).await;
        }
        for n in &all {
            let found = store.get_session(key(*n)).await;
            assert_eq!(found.expect("the store answers"), None, "{died_after}: {n}");
            assert!(is_empty(store, *n).await, "{died_after}: {n}");
            assert_eq!(stored(store, n + 50).await.status, SendStatus::Cancelled);
        }
        assert_sound(store, ms).await;
    }
}

pub async fn who_is_created_below_a_deleted_session_goes_too(store: &dyn Inspect) {
    register(store, 1).await;
    let created = store
        .at(time(0))
        .create_sessions(vec![(new_session(1), None)])
        .await;
    created.expect("the store answers");
    delete(store, 1, 1).await;
    let step = erase_step(&*store.at(time(2)), boot(SCHEDULER), key(1), 100).await;
    assert!(!step.expect("the store answers").page.more);
    // Created by a transaction that had begun before.
    below(store, 3, 2, 1, 1, 1).await;
    assert_sound(store, 3).await;
    let end = 1 + ERASED_MS_MIN;
    let found: Vec<SessionKey> = due(store, end).await.iter().map(|d| d.key).collect();
    assert_eq!(found, [key(1)]);
    let step = erase_step(&*store.at(time(end)), boot(SCHEDULER), key(1), 100).await;
    let deleted = step.expect("the store answers").deleted;
    assert_eq!(deleted.len(), 1);
    assert_eq!(stored(store, 2).await.status, SendStatus::Cancelled);
    assert_eq!(due(store, end).await.len(), 1, "what went below it is due");
    assert_sound(store, end).await;
}

pub async fn a_huge_session_goes_beside_everybody_elses_work(store: &dyn Inspect) {
    const MESSAGES: usize = 2_000;
    let said = (0..MESSAGES)
        .map(|n| NewMessage::user(words(n as u128), 0).at(1 + n as i64, send(900), time(0), 0));
    let item = ImportSession {
        projections: Vec::new(),
        folds: Vec::new(),
        session: new_session(1),
        messages: said.collect(),
        todo: List::default(),
        notes: List::default(),
        idempotency: None,
        behind: 0,
        more: false,
    };
    let imported = store.at(time(0)).import_session(item).await;
    imported.expect("the store answers");
    let created = store
        .at(time(0))
        .create_sessions(vec![(new_session(2), None)])
        .await;
    created.expect("the store answers");
    delete(store, 1, 1).await;
    let removing = async {
        let mut pages = 0;
        loop {
            let page = erase(store, 2, 1, 20).await;
            assert!(page.rows <= 21, "{page:?}");
            pages += 1;
            tokio::task::yield_now().await;
            if !page.more {
                return pages;
            }
        }
    };
    let sending_on = async {
        for n in 1..=20 {
            accept(store, 2, sending(n, 2)).await;
            tokio::task::yield_now().await;
        }
        dumped(store, 1).await.messages.len()
    };
    let (pages, left) = tokio::join!(removing, sending_on);
    assert!(pages >= MESSAGES / 20);
    assert!(left > 0, "twenty sends waited for {pages} pages");
    assert!(is_empty(store, 1).await);
}

pub async fn very_many_open_sends_end_page_by_page(store: &dyn Inspect) {
    const QUEUED: u128 = 1_100;
    let at_once = ERASED_AT_ONCE as usize;
    register(store, 1).await;
    // The deletion of the second one is interrupted after each page, and the sweep finishes it.
    for (session, breaks_off) in [(1_u128, false), (2, true)] {
        let first = session * 10_000;
        let id = |n: u128| first + n;
        accept(store, 0, opening(id(0), session)).await;
        claim(store, 1, 1, session, id(0)).await;
        let queued = (1..=QUEUED).map(|n| {
            let mut item = sending(id(n), session);
            item.queued_max = i64::MAX;
            if n % 100 == 0 {
                item.options.delay = Some(Span(Duration::from_hours(1)));
            }
            item
        });
        let accepted = store
            .at(time(2))
            .accept_sends(boot(SCHEDULER), queued.collect())
            .await;
        accepted.expect("the store answers");
        let mut ended = Vec::new();
        for page in 0..2 {
            let outcome = delete(store, 3, session).await;
            let DeleteOutcome::Ending { cancelled, .. } = outcome else {
                panic!("page {page}: {outcome:?}");
            };
            assert_eq!(cancelled.len(), at_once);
            ended.extend(cancelled);
            assert_sound(store, 3).await;
            let marked: Vec<SessionKey> = due(store, 3).await.iter().map(|d| d.key).collect();
            assert_eq!(marked, [key(session)]);
            assert_eq!(erase(store, 3, session, 9).await, Erased::default());
            let refused = offer(store, 3, sending(first - 1, session)).await;
            let closed = AcceptOutcome::Refused(RefuseReason::SessionClosed);
            assert_eq!(refused, closed);
            assert_eq!(stored(store, id(0)).await.status, SendStatus::Running);
            if breaks_off {
                break;
            }
        }
        if breaks_off {
            let step = erase_step(&*store.at(time(4)), boot(SCHEDULER), key(session), 100).await;
            let deleted = step.expect("the store answers").deleted;
            assert_eq!(deleted.len(), 2, "another page, and the rest");
        } else {
            let outcome = delete(store, 4, session).await;
            let DeleteOutcome::Deleted {
                cancelled, owner, ..
            } = outcome
            else {
                panic!("{outcome:?}");
            };
            assert_eq!((cancelled[0], owner), (send(id(0)), Some(boot(1))));
            ended.extend(cancelled);
            ended.sort_unstable();
            let all: Vec<_> = (0..=QUEUED).map(|n| send(id(n))).collect();
            assert_eq!(ended, all, "each is told once");
        }
        let left = dumped(store, session).await;
        let is_cancelled = |send: &SendRecord| send.status == SendStatus::Cancelled;
        assert!(left.sends.iter().all(is_cancelled));
        let found = store.get_session(key(session)).await;
        assert_eq!(found.expect("the store answers"), None);
        assert_sound(store, 4).await;
        let end = 4 + ERASED_MS_MIN;
        while !due(store, end).await.is_empty() {
            let step = erase_step(&*store.at(time(end)), boot(SCHEDULER), key(session), 100).await;
            step.expect("the store answers");
        }
        assert_sound(store, end).await;
    }
}
