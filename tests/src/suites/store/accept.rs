//! Accepting sends.

use mainspring_shared::agent::{AgentSpec, OnBusy, Priority, SendOptions};
use mainspring_shared::budget::Held;
use mainspring_shared::send::{SendRecord, SendStatus, WaitingOn};
use mainspring_shared::step::{Step, StepKind, StepRefs};
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, AfterSend, Inspect, NewSession, ParkUntil, ReadySession,
    RefuseReason, Target,
};
use mainspring_shared::usage::Usage;

use super::prelude::*;

fn rejecting() -> SendOptions {
    SendOptions {
        on_busy: OnBusy::Reject,
        ..SendOptions::default()
    }
}

async fn offer_all(store: &dyn Inspect, ms: i64, items: Vec<AcceptSend>) -> Vec<AcceptOutcome> {
    let outcomes = store
        .at(time(ms))
        .accept_sends(boot(SCHEDULER), items)
        .await;
    outcomes.expect("the store answers")
}

/// The positions of accepted sends; `None` for other outcomes.
fn places(outcomes: &[AcceptOutcome]) -> Vec<Option<i64>> {
    let places = outcomes.iter().map(|outcome| match outcome {
        AcceptOutcome::Accepted(accepted) => accepted.position,
        _ => None,
    });
    places.collect()
}

fn refused(outcome: AcceptOutcome) -> RefuseReason {
    match outcome {
        AcceptOutcome::Refused(reason) => reason,
        other => panic!("a refusal was expected: {other:?}"),
    }
}

pub async fn an_accepted_send_is_stored_as_queued(store: &dyn Inspect) {
    let item = with(opening(1, 1), until(500));
    let options = item.options.clone();
    let accepted = accept(store, 0, item).await;
    assert_eq!((accepted.position, accepted.step), (Some(1), 1));
    assert_eq!(accepted.created_at, time(0));
    let expected = SendRecord {
        id: send(1),
        key: key(1),
        position: Some(1),
        status: SendStatus::Queued,
        waiting_on: None,
        stop_reason: None,
        input: words(1),
        options,
        agent_version: None,
        output_text: None,
        output: None,
        error: None,
        usage: Usage::default(),
        held: Held::default(),
        rounds: 0,
        attempts: 0,
        counted: 0,
        not_failed: 0,
        shown: None,
        crashes: 0,
        cancel_requested: false,
        reports_to: None,
        run: None,
        deadline_at: at(500),
        alarm_at: at(500),
        first_step: 1,
        created_at: time(0),
        started_at: None,
        finished_at: None,
    };
    assert_eq!(stored(store, 1).await, expected);
    let step = Step {
        n: 1,
        send_id: send(1),
        kind: StepKind::Accepted,
        epoch: 0,
        boot: boot(SCHEDULER),
        at: time(0),
        refs: StepRefs::default(),
    };
    assert_eq!(steps(store, 1).await, [step]);
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.pending, hot.ready_since), (1, at(0)));
    assert_eq!((hot.epoch, hot.owner), (0, None));
}

pub async fn only_the_send_that_makes_a_session_ready_rings(store: &dyn Inspect) {
    let first = accept(store, 5, opening(1, 1)).await;
    let enqueue = ReadySession {
        key: key(1),
        pool: "default".to_owned(),
        priority: Priority::High,
        ready_since: time(5),
    };
    assert_eq!(first.enqueue, Some(enqueue));
    let second = accept(store, 6, sending(2, 1)).await;
    assert_eq!(second.enqueue, None);
    assert_eq!(dumped(store, 1).await.hot.ready_since, at(5));
}

pub async fn sends_of_one_call_keep_their_order(store: &dyn Inspect) {
    let items = vec![
        opening(3, 1),
        sending(1, 1),
        opening(4, 2),
        sending(2, 1),
        sending(5, 2),
    ];
    let outcomes = offer_all(store, 0, items).await;
    let expected = [Some(1), Some(2), Some(1), Some(3), Some(2)];
    assert_eq!(places(&outcomes), expected);
    let enqueue: Vec<bool> = outcomes
        .iter()
        .map(|outcome| matches!(outcome, AcceptOutcome::Accepted(a) if a.enqueue.is_some()))
        .collect();
    assert_eq!(enqueue, [true, false, true, false, false]);
    let order: Vec<_> = steps(store, 1).await.iter().map(|s| s.send_id).collect();
    assert_eq!(order, [send(3), send(1), send(2)]);
}

pub async fn a_send_may_create_its_session(store: &dyn Inspect) {
    let session = NewSession {
        agent: AgentSpec {
            pool: Some("gpu".to_owned()),
            ..AgentSpec::default()
        },
        ..new_session(1)
    };
    let item = AcceptSend {
        target: Target::New(Box::new(session.clone())),
        ..sending(1, 1)
    };
    let accepted = accept(store, 0, item).await;
    assert_eq!(accepted.enqueue.expect("it is ready").pool, "gpu");
    let record = store.get_session(key(1)).await.expect("the store answers");
    let record = record.expect("it exists");
    assert_eq!((record.agent, record.agent_version), (session.agent, 1));
    assert_eq!(record.created_at, time(0));
}

pub async fn a_delayed_send_has_no_place_and_rings_nobody(store: &dyn Inspect) {
    let accepted = accept(store, 0, with(opening(1, 1), delayed(300))).await;
    assert_eq!((accepted.position, accepted.step), (None, 1));
    assert_eq!(accepted.enqueue, None);
    let record = stored(store, 1).await;
    assert_eq!((record.status, record.position), (SendStatus::Queued, None));
    assert_eq!((record.alarm_at, record.deadline_at), (at(300), None));
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.pending, hot.ready_since), (0, None));
    let next = accept(store, 1, sending(2, 1)).await;
    assert_eq!(next.position, Some(1), "a delayed send took no place");
    assert!(next.enqueue.is_some());
}

pub async fn the_alarm_is_the_earlier_of_delay_and_deadline(store: &dyn Inspect) {
    for (n, delay, deadline, alarm) in [(1, 300, 900, 300), (2, 900, 300, 300)] {
        let options = SendOptions {
            delay: span(delay),
            ..until(deadline)
        };
        accept(store, 0, with(opening(n, n), options)).await;
        let record = stored(store, n).await;
        assert_eq!(record.alarm_at, at(alarm));
        assert_eq!(record.deadline_at, at(deadline));
    }
}

pub async fn an_unknown_session_is_refused(store: &dyn Inspect) {
    let reason = refused(offer(store, 0, sending(1, 1)).await);
    assert_eq!(reason, RefuseReason::SessionNotFound);
    let found = store.get_sends(vec![(key(1).tenant, send(1))]).await;
    assert_eq!(found.expect("the store answers"), [None]);
}

pub async fn reject_is_refused_while_any_send_is_open(store: &dyn Inspect) {
    let first = offer(store, 0, with(opening(1, 1), rejecting())).await;
    assert!(matches!(first, AcceptOutcome::Accepted(_)), "{first:?}");
    let second = offer(store, 1, with(sending(2, 1), rejecting())).await;
    assert_eq!(refused(second), RefuseReason::Busy);
    register(store, 1).await;
    let claimed = claim(store, 2, 1, 1, 1).await;
    let third = offer(store, 3, with(sending(3, 1), rejecting())).await;
    assert_eq!(refused(third), RefuseReason::Busy, "a running send");
    complete(store, 4, ending(&claimed, AfterSend::Release)).await;
    accept(store, 5, with(sending(4, 1), delayed(100))).await;
    let fifth = offer(store, 6, with(sending(5, 1), rejecting())).await;
    assert_eq!(refused(fifth), RefuseReason::Busy, "a delayed send");
}

pub async fn reject_sees_the_sends_before_it_in_the_same_call(store: &dyn Inspect) {
    let items = vec![
        opening(1, 1),
        with(sending(2, 1), rejecting()),
        sending(3, 1),
    ];
    let mut outcomes = offer_all(store, 0, items).await;
    assert_eq!(places(&outcomes), [Some(1), None, Some(2)]);
    assert_eq!(refused(outcomes.remove(1)), RefuseReason::Busy);
}

pub async fn a_full_session_refuses_until_a_send_starts(store: &dyn Inspect) {
    let bounded = |n| AcceptSend {
        queued_max: 2,
        ..sending(n, 1)
    };
    accept(store, 0, opening(1, 1)).await;
    let items = vec![bounded(2), bounded(3)];
    let mut outcomes = offer_all(store, 1, items).await;
    assert_eq!(places(&outcomes), [Some(2), None]);
    assert_eq!(refused(outcomes.remove(1)), RefuseReason::QueueFull);
    register(store, 1).await;
    claim(store, 2, 1, 1, 1).await;
    let accepted = accept(store, 3, bounded(4)).await;
    assert_eq!(accepted.position, Some(3), "a refused send took no place");
}

pub async fn a_refused_item_does_not_harm_its_neighbours(store: &dyn Inspect) {
    let items = vec![opening(1, 1), sending(2, 9), sending(3, 1), opening(4, 2)];
    let outcomes = offer_all(store, 0, items).await;
    assert_eq!(places(&outcomes), [Some(1), None, Some(2), Some(1)]);
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.pending, hot.next_step, hot.next_position), (2, 3, 3));
}

pub async fn a_send_behind_a_running_one_rings_nobody(store: &dyn Inspect) {
    running(store).await;
    let accepted = accept(store, 20, sending(2, 1)).await;
    assert_eq!((accepted.position, accepted.enqueue), (Some(2), None));
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.pending, hot.ready_since), (1, at(0)));
}

pub async fn a_send_behind_a_waiting_one_makes_nothing_ready(store: &dyn Inspect) {
    let claimed = running(store).await;
    let item = waiting(&claimed, WaitingOn::Human, ParkUntil::Asked);
    park(store, 20, item).await;
    let accepted = accept(store, 30, sending(2, 1)).await;
    assert_eq!((accepted.position, accepted.enqueue), (Some(2), None));
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.pending, hot.ready_since), (1, None));
}

pub async fn the_ring_has_the_priority_of_the_send_that_rings(store: &dyn Inspect) {
    let low = SendOptions {
        priority: Priority::Low,
        ..SendOptions::default()
    };
    let accepted = accept(store, 0, with(opening(1, 1), low)).await;
    let enqueue = accepted.enqueue.expect("the session became ready");
    assert_eq!(enqueue.priority, Priority::Low);
    register(store, 1).await;
    let claimed = claim(store, 1, 1, 1, 1).await;
    complete(store, 2, ending(&claimed, AfterSend::Release)).await;
    let accepted = accept(store, 3, sending(2, 1)).await;
    let enqueue = accepted.enqueue.expect("the session became ready again");
    assert_eq!(enqueue.priority, Priority::High);
}
