//! The path of a send, and what may befall it on the way.

use std::collections::BTreeMap;
use std::time::Duration;

use mainspring_shared::agent::SendOptions;
use mainspring_shared::error::Code;
use mainspring_shared::send::{SendStatus, StopReason, WaitingOn};
use mainspring_shared::step::StepKind;
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, AppendOutcome, CancelOutcome, ClaimOutcome, CompleteOutcome, Error,
    IdempotencyKey, ListSessions, ParkOutcome, ParkUntil, ReadMessages, Then,
};
use mainspring_shared::time::Span;

use crate::steps::*;

fn spans(delay: Option<u64>, deadline: Option<u64>) -> SendOptions {
    let span = |ms| Span(Duration::from_millis(ms));
    SendOptions {
        delay: delay.map(span),
        deadline: deadline.map(span),
        ..SendOptions::default()
    }
}

#[tokio::test]
async fn a_send_is_accepted_claimed_run_and_completed() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    assert_eq!(claimed.lease.epoch, 1);
    assert!(matches!(
        append(&store, 20, round(&claimed)).await,
        AppendOutcome::Appended { first_seq: 1, .. }
    ));
    let mut end = ending(&claimed, &claimed.send.record, Then::Continue);
    end.messages.remove(0);
    let done = complete(&store, 30, end).await;
    assert_eq!(done.status, SendStatus::Completed);
    assert_eq!((done.first_seq, done.next, done.ring), (3, None, None));
    let send = stored(&store, 1).await;
    assert_eq!(send.output_text.as_deref(), Some("done"));
    let query = ReadMessages {
        key: key(1),
        after: 0,
        limit: 10,
    };
    let messages = store.read_messages(query).await.expect("answers");
    let seqs: Vec<i64> = messages.iter().map(|message| message.seq).collect();
    assert_eq!(seqs, [1, 2, 3]);
    let steps = store.read_steps(key(1), 0, 10).await.expect("answers");
    let kinds: Vec<StepKind> = steps.iter().map(|step| step.kind).collect();
    assert_eq!(
        kinds,
        [StepKind::Accepted, StepKind::Round, StepKind::Finished]
    );
    assert_sound(&store, 40).await;
}

#[tokio::test]
async fn completing_takes_the_next_send_under_the_same_lease() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    accept(&store, 11, sending(2, 1)).await;
    let item = ending(&claimed, &claimed.send.record, Then::Continue);
    let (next, counters) = complete(&store, 20, item).await.next.expect("send 2");
    assert_eq!((next.record.id, next.resumed), (send(2), None));
    assert_eq!((counters.next_seq, counters.pending), (3, 0));
    assert!(matches!(
        try_claim(&store, 21, 1, 1, 2).await,
        ClaimOutcome::Busy
    ));
    let item = ending(&claimed, &claimed.send.record, Then::Continue);
    let again = try_complete(&store, 22, item).await;
    assert_eq!(again, CompleteOutcome::LeaseLost, "send 1 no longer runs");
    assert_sound(&store, 30).await;
}

#[tokio::test]
async fn a_repeated_request_is_answered_with_its_first_send() {
    let Opened { store, dir: _dir } = open().await;
    accept(&store, 0, opening(1, 1)).await;
    let keyed = |n: u128, hash: u8| AcceptSend {
        idempotency: Some(IdempotencyKey {
            tenant: key(1).tenant,
            route: "POST /v1/sends".to_owned(),
            key: "k".to_owned(),
            body_hash: [hash; 32],
        }),
        ..sending(n, 1)
    };
    let refused = AcceptSend {
        queued_max: 0,
        ..keyed(2, 1)
    };
    assert!(matches!(
        offer(&store, 1, refused).await,
        AcceptOutcome::Refused(_)
    ));
    accept(&store, 2, keyed(3, 1)).await;
    assert_eq!(
        offer(&store, 3, keyed(4, 1)).await,
        AcceptOutcome::Replayed(send(3))
    );
    assert_eq!(offer(&store, 4, keyed(5, 2)).await, AcceptOutcome::Mismatch);
    let removed = store
        .sweep_retention(at(10_000), Duration::from_secs(1))
        .await;
    assert_eq!(removed.expect("answers"), 1);
    accept(&store, 10_001, keyed(6, 2)).await;
    assert_sound(&store, 10_002).await;
}

#[tokio::test]
async fn an_item_that_is_refused_by_the_database_leaves_nothing_of_its_call() {
    let Opened { store, dir: _dir } = open().await;
    accept(&store, 0, opening(1, 1)).await;
    let before = store.dump().await.expect("answers");
    let items = vec![sending(2, 1), sending(1, 1)];
    let outcome = store.accept_sends(at(1), SCHEDULER, items).await;
    assert!(matches!(outcome, Err(Error::Refused { .. })), "{outcome:?}");
    assert_eq!(store.dump().await.expect("answers"), before);
    accept(&store, 2, sending(2, 1)).await;
}

#[tokio::test]
async fn a_takeover_fences_the_former_owner() {
    let Opened { store, dir: _dir } = open().await;
    let first = running(&store).await;
    register(&store, TTL, 2).await;
    assert!(matches!(
        try_claim(&store, TTL, 2, 1, 2).await,
        ClaimOutcome::Busy
    ));
    let second = claim(&store, TTL + 1, 2, 1, 2).await;
    assert_eq!((second.lease.epoch, second.send.record.crashes), (2, 1));
    assert!(second.send.resumed.is_some());
    let late = append(&store, TTL + 2, round(&first)).await;
    assert_eq!(late, AppendOutcome::LeaseLost);
    let item = ending(&first, &first.send.record, Then::Continue);
    assert_eq!(
        try_complete(&store, TTL + 3, item).await,
        CompleteOutcome::LeaseLost
    );
    let parked = park(&store, TTL + 4, &first, WaitingOn::Retry, ParkUntil::Asked).await;
    assert_eq!(parked, ParkOutcome::LeaseLost);
    let ttl = Duration::from_secs(10);
    let renewal = store.renew_boot(at(TTL + 5), boot(1), ttl, 0).await;
    assert_eq!(
        renewal.expect("answers"),
        mainspring_shared::store::Renewal::Dead
    );
    let item = ending(&second, &second.send.record, Then::Continue);
    complete(&store, TTL + 6, item).await;
    assert_sound(&store, TTL + 7).await;
}

#[tokio::test]
async fn a_cancel_ends_a_send_in_any_status() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    accept(&store, 11, sending(2, 1)).await;
    assert!(matches!(
        cancel(&store, 12, 2).await,
        CancelOutcome::Cancelled { .. }
    ));
    assert!(matches!(
        cancel(&store, 13, 1).await,
        CancelOutcome::Signalled { .. }
    ));
    let item = ending(&claimed, &claimed.send.record, Then::Continue);
    assert_eq!(
        complete(&store, 14, item).await.status,
        SendStatus::Cancelled
    );
    assert!(matches!(
        cancel(&store, 15, 1).await,
        CancelOutcome::AlreadyFinal(_)
    ));
    assert_eq!(cancel(&store, 16, 99).await, CancelOutcome::NotFound);

    accept(&store, 20, sending(3, 1)).await;
    let claimed = claim(&store, 21, 1, 1, 2).await;
    accept(&store, 22, sending(4, 1)).await;
    park(&store, 23, &claimed, WaitingOn::Human, ParkUntil::Asked).await;
    let outcome = cancel(&store, 24, 3).await;
    let CancelOutcome::Cancelled {
        send: ended, ring, ..
    } = outcome
    else {
        panic!("a waiting send ends at once: {outcome:?}");
    };
    assert_eq!(*ended, stored(&store, 3).await);
    assert_eq!(ring.expect("send 4 can go on").key, key(1));
    let dump = store.dump().await.expect("answers");
    let last = dump.sessions[0].messages.last().expect("messages");
    assert_eq!(
        (last.send_id, last.epoch),
        (send(3), 3),
        "its input was said"
    );
    assert_sound(&store, 25).await;
}

#[tokio::test]
async fn a_parked_retry_goes_on_when_its_alarm_is_due() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    let wait = ParkUntil::After(Duration::from_millis(100));
    park(&store, 20, &claimed, WaitingOn::Retry, wait).await;
    assert!(matches!(
        try_claim(&store, 21, 1, 1, 2).await,
        ClaimOutcome::Idle
    ));
    let early = store
        .sweep_alarms(at(119), SCHEDULER, 10)
        .await
        .expect("answers");
    assert_eq!((early.served, early.next_alarm_at), (0, at(120)));
    let due = store
        .sweep_alarms(at(120), SCHEDULER, 10)
        .await
        .expect("answers");
    assert_eq!(
        (due.served, due.ring.len(), due.next_alarm_at),
        (1, 1, None)
    );
    let again = claim(&store, 121, 1, 1, 2).await;
    assert!(again.send.resumed.is_some());
    let steps = store.read_steps(key(1), 0, 10).await.expect("answers");
    let resumed = steps.last().expect("steps");
    assert_eq!(resumed.refs.reason.as_deref(), Some("retry"));
    assert_sound(&store, 122).await;
}

#[tokio::test]
async fn a_send_that_waits_for_a_word_goes_on_when_it_is_given() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    park(&store, 20, &claimed, WaitingOn::Recovery, ParkUntil::Asked).await;
    let resumed = store.resume_recovery(at(21), SCHEDULER, key(1)).await;
    assert_eq!(resumed.expect("answers"), Some(send(1)));
    claim(&store, 22, 1, 1, 2).await;
    let nothing = store.resume_recovery(at(23), SCHEDULER, key(1)).await;
    assert_eq!(nothing.expect("answers"), None);
    assert_sound(&store, 24).await;
}

#[tokio::test]
async fn a_delayed_send_gets_its_place_when_it_is_due() {
    let Opened { store, dir: _dir } = open().await;
    register(&store, 0, 1).await;
    let delayed = AcceptSend {
        options: spans(Some(100), None),
        ..opening(1, 1)
    };
    let accepted = accept(&store, 0, delayed).await;
    assert_eq!((accepted.position, accepted.ring), (None, None));
    accept(&store, 1, sending(2, 1)).await;
    let swept = store
        .sweep_alarms(at(100), SCHEDULER, 10)
        .await
        .expect("answers");
    assert_eq!(
        (swept.served, swept.ring),
        (1, vec![]),
        "it was ready for send 2"
    );
    assert_eq!(stored(&store, 1).await.position, Some(2));
    assert_eq!(claim(&store, 101, 1, 1, 1).await.send.record.id, send(2));
    assert_sound(&store, 102).await;
}

#[tokio::test]
async fn a_deadline_ends_what_nobody_runs() {
    let Opened { store, dir: _dir } = open().await;
    register(&store, 0, 1).await;
    for n in 1..=3 {
        let options = spans(None, Some(100));
        accept(
            &store,
            0,
            AcceptSend {
                options,
                ..opening(n, n)
            },
        )
        .await;
    }
    let parked = claim(&store, 1, 1, 1, 1).await;
    park(&store, 2, &parked, WaitingOn::Tool, ParkUntil::Asked).await;
    claim(&store, 3, 1, 2, 2).await;
    let swept = store
        .sweep_alarms(at(100), SCHEDULER, 10)
        .await
        .expect("answers");
    let ended: Vec<_> = swept.finished.iter().map(|(_, send, _)| *send).collect();
    assert_eq!((swept.served, ended), (3, vec![send(1), send(3)]));
    for n in [1, 3] {
        let record = stored(&store, n).await;
        assert_eq!(record.stop_reason, Some(StopReason::Deadline));
        assert_eq!(record.error.expect("an error").code, Code::SendDeadline);
    }
    let running = stored(&store, 2).await;
    assert_eq!(
        (running.status, running.alarm_at),
        // When nobody may hold its lease any more.
        (SendStatus::Running, at(TTL + 1))
    );
    assert_sound(&store, 101).await;
}

#[tokio::test]
async fn a_deleted_session_keeps_its_sends_and_its_epoch() {
    let Opened { store, dir: _dir } = open().await;
    let claimed = running(&store).await;
    append(&store, 20, round(&claimed)).await;
    accept(&store, 21, sending(2, 1)).await;
    let deleted = store.delete_session(at(22), key(1), SCHEDULER).await;
    let mainspring_shared::store::DeleteOutcome::Deleted {
        cancelled,
        owner,
        last_step,
    } = deleted.expect("answers")
    else {
        panic!("it was there");
    };
    assert_eq!(
        (cancelled, owner, last_step),
        (vec![send(1), send(2)], Some(boot(1)), 5)
    );
    let item = ending(&claimed, &claimed.send.record, Then::Continue);
    assert_eq!(
        try_complete(&store, 23, item).await,
        CompleteOutcome::LeaseLost
    );
    assert_eq!(store.get_session(key(1)).await.expect("answers"), None);
    assert_eq!(stored(&store, 1).await.status, SendStatus::Cancelled);
    let erased = store.erase_session(at(24), key(1), 100).await;
    assert!(!erased.expect("answers").more);
    let dump = store.dump().await.expect("answers");
    assert_eq!(
        (dump.sessions[0].hot.epoch, dump.sessions[0].messages.len()),
        (2, 0)
    );
    assert_sound(&store, 24).await;
}

#[tokio::test]
async fn sessions_are_found_by_members_of_their_metadata_whatever_their_names() {
    let Opened { store, dir: _dir } = open().await;
    let metadata = serde_json::json!({
        "plain": "a", "with \"quotes\".and[0]": "b", "\u{e9}\n": "c", "number": 1, "list": ["d"],
    });
    let mut new = new_session(1);
    new.metadata = metadata.as_object().expect("an object").clone();
    let sessions = vec![(new, None), (new_session(2), None)];
    store
        .create_sessions(at(0), sessions)
        .await
        .expect("answers");
    for (name, text, found) in [
        ("plain", "a", 1),
        ("with \"quotes\".and[0]", "b", 1),
        ("\u{e9}\n", "c", 1),
        ("plain", "b", 0),
        ("number", "1", 0),
        ("list", "d", 0),
        ("absent", "a", 0),
    ] {
        let query = ListSessions {
            tenant: key(1).tenant,
            status: None,
            agent: None,
            metadata: BTreeMap::from([(name.to_owned(), text.to_owned())]),
            before: None,
            limit: 10,
        };
        let page = store.list_sessions(query).await.expect("answers");
        assert_eq!(page.data.len(), found, "{name} = {text}");
    }
}
