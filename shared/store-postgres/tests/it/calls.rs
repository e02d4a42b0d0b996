//! Tool calls: their rows under a lease, and results from outside.

use std::time::Duration;

use mainspring_shared::error::Code;
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::session::{SIGNAL_CANCEL, SIGNAL_INBOX, SIGNAL_RESULT};
use mainspring_shared::step::StepKind;
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AppendRound, CallBegin, CallChange, CallStep, ClaimOutcome, CompleteOutcome, CompleteSend,
    DeleteOutcome, ParkOutcome, ParkSend, PostOutcome, Then,
};
use mainspring_shared::tool::{Approval, CallRecord, CallResult, CallState};

use crate::tools::{answered, approval, asking, ids, only_calls, outside, park_on, result, waits};
use crate::world::{TENANT, answer, id, in_second_round, says, to, with_world};

fn change(call_id: &str, change: CallStep) -> CallChange {
    CallChange {
        call_id: call_id.to_owned(),
        change,
    }
}

fn settled(call_id: &str, text: &str) -> CallChange {
    change(call_id, CallStep::Settled(CallResult::text(text)))
}

#[tokio::test]
async fn a_call_begins_as_asked_and_changes_until_it_is_settled() {
    with_world("call_life", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        let wait = CallBegin::Waits {
            on: WaitingOn::Human,
            approval: true,
            deadline: Some(Duration::from_secs(7)),
        };
        let begins = [CallBegin::Started, CallBegin::Requested, wait];
        world.append(10, asking(&claimed, begins)).await;
        let ids = ids(&claimed, 3);
        let send = claimed.send.record.id;
        let round = world.store.read_round(key, send, 0).await.expect("reads");
        let states: Vec<_> = round.iter().map(CallRecord::state).collect();
        let epoch = claimed.lease.epoch;
        let began = CallState::Started { epoch };
        let human = CallState::Waits(WaitingOn::Human);
        assert_eq!(states, [began, CallState::Requested, human]);
        let attempts: Vec<_> = round.iter().map(|call| call.attempt).collect();
        assert_eq!(attempts, [1, 0, 0]);
        assert_eq!(round[2].approval, Approval::Asked);
        assert_eq!(round[2].deadline_at, world.at(7_010));

        let mut step = only_calls(&claimed);
        step.changes = vec![
            settled(&ids[0], "done"),
            settled(&ids[0], "done again"),
            change(&ids[1], CallStep::Started),
            change(&ids[1], CallStep::Started),
            change(&ids[2], CallStep::Started),
            change(
                &ids[2],
                CallStep::Waits {
                    on: WaitingOn::Tool,
                    deadline: None,
                },
            ),
        ];
        world.append(20, step).await;
        let first = world.call(&ids[0]).await;
        assert_eq!(first.result, Some(CallResult::text("done")));
        assert_eq!(first.settled_at, world.at(20));
        let second = world.call(&ids[1]).await;
        assert_eq!((second.state(), second.attempt), (began, 2));
        let third = world.call(&ids[2]).await;
        assert_eq!(third.state(), CallState::Waits(WaitingOn::Tool));
        assert_eq!((third.attempt, third.deadline_at), (1, None));
        assert_eq!(third.approval, Approval::Asked, "what was asked stays");

        let mut late = only_calls(&claimed);
        late.changes = vec![settled(&ids[0], "late"), change(&ids[0], CallStep::Started)];
        world.append(30, late).await;
        assert_eq!(world.call(&ids[0]).await, first);
        let unknown = world.store.get_calls(vec![(TENANT, "call_x".to_owned())]);
        assert_eq!(unknown.await.expect("reads"), [None]);
        world.assert_sound(30).await;
    })
    .await;
}

#[tokio::test]
async fn results_ride_with_the_next_round_or_go_alone() {
    with_world("call_ride", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        let first = asking(&claimed, [CallBegin::Started, CallBegin::Started]);
        let asked = first.messages[1].clone();
        world.append(3, first).await;
        let ids = ids(&claimed, 2);

        // Without a model's answer the step is of calls; with nothing to say it is still written.
        let mut alone = only_calls(&claimed);
        alone.changes = vec![settled(&ids[0], "one")];
        let (first_seq, _) = world.append(4, alone).await;
        assert_eq!(first_seq, 3);
        let mut last = answer(&claimed, Then::Release);
        last.messages = answered(&asked);
        last.messages
            .push(says(mainspring_shared::message::Role::Assistant, "hi", 1));
        in_second_round(&mut last);
        last.changes = vec![settled(&ids[1], "two")];
        world.complete(5, last).await;
        let steps = world.store.read_steps(key, 0, 10).await.expect("reads");
        let kinds: Vec<_> = steps.iter().map(|step| step.kind).collect();
        assert_eq!(
            kinds,
            [
                StepKind::Accepted,
                StepKind::Round,
                StepKind::Calls,
                StepKind::Finished
            ]
        );
        assert_eq!((steps[2].refs.first_seq, steps[2].refs.messages), (None, 0));
        let second = world.call(&ids[1]).await;
        assert_eq!(second.result, Some(CallResult::text("two")));
        let dump = world.store.dump().await.expect("dumps");
        let asked_at: Vec<_> = dump.sessions[0]
            .messages
            .iter()
            .map(|m| m.asked_at_seq)
            .collect();
        assert_eq!(asked_at, [None, None, Some(2), Some(2), None]);
        world.assert_sound(5).await;
    })
    .await;
}

#[tokio::test]
async fn a_stale_owner_changes_no_call() {
    with_world("call_fence", async |world| {
        let (old, new) = (world.boot(0).await, world.boot(5_000).await);
        let key = world.session().await;
        world.send(1, to(key)).await;
        let stale = world.claim(2, old, key).await;
        world.append(3, asking(&stale, [CallBegin::Started])).await;
        world.claim(10_500, new, key).await;
        let call_id = &ids(&stale, 1)[0];
        let late = AppendRound {
            changes: vec![settled(call_id, "late")],
            ..only_calls(&stale)
        };
        let outcome = world.try_append(10_501, late).await;
        assert_eq!(outcome, mainspring_shared::store::AppendOutcome::LeaseLost);
        let last = CompleteSend {
            messages: Vec::new(),
            changes: vec![settled(call_id, "late")],
            ..answer(&stale, Then::Release)
        };
        assert_eq!(
            world.try_complete(10_502, last).await,
            CompleteOutcome::LeaseLost
        );
        assert_eq!(world.call(call_id).await.result, None);
    })
    .await;
}

#[tokio::test]
async fn the_last_result_from_outside_wakes_the_send() {
    with_world("post", async |world| {
        let (claimed, worker) = world.waiting(WaitingOn::Tool, [outside(), outside()]).await;
        let (key, send) = (claimed.key, claimed.send.record.id);
        let ids = ids(&claimed, 2);
        let first = world.post(10, vec![result(key, &ids[0], "one")]).await;
        let quiet = PostOutcome::Accepted {
            key,
            send_id: send,
            ring: None,
            owner: None,
        };
        assert_eq!(first, [quiet]);
        assert_eq!(world.signals(key).await, SIGNAL_RESULT);
        assert_eq!(world.try_claim(11, worker, key).await, ClaimOutcome::Idle);

        // Both results of one call in a group: the first one counts.
        let items = vec![
            result(key, &ids[1], "two"),
            result(key, &ids[1], "twice"),
            result(key, &ids[0], "again"),
        ];
        let posted = world.post(12, items).await;
        let PostOutcome::Accepted {
            ring: Some(ring), ..
        } = &posted[0]
        else {
            panic!("{posted:?}");
        };
        assert_eq!((ring.key, ring.ready_since), (key, world.time(12)));
        let late = PostOutcome::AlreadySettled;
        assert_eq!(posted[1..], [late.clone(), late]);
        let second = world.call(&ids[1]).await;
        assert_eq!(second.result, Some(CallResult::text("two")));
        assert_eq!((second.waits_on, second.settled_at), (None, world.at(12)));
        world.assert_sound(12).await;

        let again = world.claim(13, worker, key).await;
        assert_eq!(
            again.counters.signals, SIGNAL_RESULT,
            "the claim carries it"
        );
        let (_, counters) = world.append(14, only_calls(&again)).await;
        assert_eq!(counters.signals, SIGNAL_RESULT, "as they were");
        assert_eq!(world.signals(key).await, 0, "and lowered");
        let steps = world.store.read_steps(key, 0, 10).await.expect("reads");
        let reason = steps.iter().find(|step| step.kind == StepKind::Resumed);
        let reason = reason.and_then(|step| step.refs.reason.as_deref());
        assert_eq!(reason, Some("result"));
    })
    .await;
}

#[tokio::test]
async fn a_result_for_a_running_send_is_a_signal_that_keeps_it_from_waiting() {
    with_world("post_running", async |world| {
        let worker = world.boot(0).await;
        let key = world.session().await;
        world.send(1, to(key)).await;
        let claimed = world.claim(2, worker, key).await;
        world.append(3, asking(&claimed, [outside()])).await;
        let call_id = ids(&claimed, 1).remove(0);
        let posted = world.post(4, vec![result(key, &call_id, "early")]).await;
        assert!(
            matches!(posted[0], PostOutcome::Accepted { ring: None, owner: Some(owner), .. } if owner == worker),
            "{posted:?}"
        );
        let park = ParkSend {
            unless: SIGNAL_RESULT | SIGNAL_INBOX,
            ..park_on(&claimed, WaitingOn::Tool)
        };
        let woken = world.park(5, park.clone()).await;
        let signals = SIGNAL_RESULT;
        assert_eq!(woken, ParkOutcome::Woken { signals });
        assert_eq!(world.signals(key).await, 0);
        let record = world.record(claimed.send.record.id).await;
        assert_eq!(record.status, SendStatus::Running);
        assert_eq!(world.call(&call_id).await.settled_at, world.at(4));

        // The results of calls that were settled from outside are not overwritten by the worker's.
        let mut late = only_calls(&claimed);
        late.changes = vec![settled(&call_id, "the worker's")];
        world.append(6, late).await;
        let call = world.call(&call_id).await;
        assert_eq!(call.result, Some(CallResult::text("early")));
        assert!(matches!(world.park(7, park).await, ParkOutcome::Parked { .. }));
        world.assert_sound(7).await;
    })
    .await;
}

#[tokio::test]
async fn a_cancel_goes_before_what_would_keep_a_send_from_waiting_or_ending() {
    with_world("call_cancel", async |world| {
        let worker = world.boot(0).await;
        for parks in [true, false] {
            let key = world.session().await;
            let (send, _) = world.send(1, to(key)).await;
            let claimed = world.claim(2, worker, key).await;
            world.append(3, asking(&claimed, [outside()])).await;
            let call_id = ids(&claimed, 1).remove(0);
            world.post(4, vec![result(key, &call_id, "x")]).await;
            let scheduler = mainspring_shared::id::BootId(id());
            let cancelled = world
                .store
                .cancel_sends(world.at(5), scheduler, vec![(TENANT, send)]);
            cancelled.await.expect("cancels");
            assert_eq!(world.signals(key).await, SIGNAL_RESULT | SIGNAL_CANCEL);
            if parks {
                let park = ParkSend {
                    unless: SIGNAL_RESULT,
                    ..park_on(&claimed, WaitingOn::Tool)
                };
                let ended = world.park(6, park).await;
                assert!(matches!(ended, ParkOutcome::Cancelled { .. }), "{ended:?}");
            } else {
                let mut last = answer(&claimed, Then::Continue);
                last.messages = answered(&asking(&claimed, [outside()]).messages[1]);
                last.usage.clear();
                last.round = None;
                last.unless = SIGNAL_RESULT;
                let done = world.complete(6, last).await;
                assert_eq!(done.status, SendStatus::Cancelled);
            }
            assert_eq!(world.record(send).await.status, SendStatus::Cancelled);
            assert_eq!(world.signals(key).await, 0);
            world.assert_sound(6).await;
        }
    })
    .await;
}

#[tokio::test]
async fn permission_lets_the_worker_run_a_call_and_a_result_refuses_it() {
    with_world("approve", async |world| {
        let asks = || waits(WaitingOn::Human, true);
        let begins = [asks(), asks(), outside()];
        let (claimed, worker) = world.waiting(WaitingOn::Human, begins).await;
        let key = claimed.key;
        let ids = ids(&claimed, 3);
        let items = vec![
            approval(key, &ids[0]),
            approval(key, &ids[0]),
            approval(key, &ids[2]),
            result(key, &ids[1], "no"),
        ];
        let posted = world.post(10, items).await;
        assert!(matches!(posted[0], PostOutcome::Accepted { .. }));
        assert_eq!(
            posted[1..3],
            [PostOutcome::NotWaiting, PostOutcome::NotWaiting]
        );
        assert!(matches!(
            posted[3],
            PostOutcome::Accepted { ring: None, .. }
        ));
        let given = world.call(&ids[0]).await;
        assert_eq!(given.approval, Approval::Given);
        assert_eq!(
            (given.state(), given.deadline_at),
            (CallState::Requested, None)
        );
        // What a worker has to run is no longer anyone else's to answer.
        let posted = world.post(11, vec![result(key, &ids[0], "mine")]).await;
        assert_eq!(posted, [PostOutcome::NotWaiting]);
        let posted = world.post(12, vec![result(key, &ids[2], "ok")]).await;
        assert!(matches!(
            &posted[0],
            PostOutcome::Accepted { ring: Some(_), .. }
        ));
        let again = world.claim(13, worker, key).await;
        assert!(again.send.resumed.is_some());
        world.assert_sound(13).await;
    })
    .await;
}

#[tokio::test]
async fn calls_that_wait_for_others_are_not_answered_from_outside() {
    with_world("post_not", async |world| {
        let others = [WaitingOn::Agent, WaitingOn::Run, WaitingOn::Timer];
        let begins = others.map(|on| waits(on, false));
        let (claimed, _) = world.waiting(WaitingOn::Agent, begins).await;
        let (key, other) = (claimed.key, world.session().await);
        let calls = ids(&claimed, 3);
        let items = calls.iter().map(|call| result(key, call, "x")).collect();
        let posted = world.post(10, items).await;
        assert_eq!(posted, vec![PostOutcome::NotWaiting; 3]);
        let items = vec![result(other, &calls[0], "x"), result(key, "call_none", "x")];
        assert_eq!(world.post(11, items).await, vec![PostOutcome::Unknown; 2]);
        assert_eq!(world.signals(key).await, 0);
    })
    .await;
}

#[tokio::test]
async fn deleting_a_session_takes_its_calls_and_items_along() {
    with_world("call_delete", async |world| {
        let (claimed, _) = world.waiting(WaitingOn::Tool, [outside()]).await;
        let (kept, _) = world.waiting(WaitingOn::Tool, [outside()]).await;
        let key = claimed.key;
        let steer = crate::tools::words(key, "i", mainspring_shared::agent::OnBusy::Steer);
        world.deliver(5, vec![steer]).await;
        let scheduler = mainspring_shared::id::BootId(id());
        let deleted = world
            .store
            .delete_session(world.at(6), key, scheduler)
            .await;
        assert!(matches!(deleted, Ok(DeleteOutcome::Deleted { .. })));
        let (gone, left) = (ids(&claimed, 1).remove(0), ids(&kept, 1).remove(0));
        let wanted = vec![(TENANT, gone.clone()), (TENANT, left)];
        let found = world.store.get_calls(wanted).await.expect("reads");
        assert!(found[0].is_none() && found[1].is_some());
        assert_eq!(world.inbox(key, false).await, []);
        let posted = world.post(7, vec![result(key, &gone, "x")]).await;
        assert_eq!(posted, [PostOutcome::Unknown]);
        world.assert_sound(7).await;
    })
    .await;
}

#[tokio::test]
async fn a_send_that_ends_without_a_worker_answers_its_open_calls() {
    with_world("call_end", async |world| {
        let (claimed, worker) = world.waiting(WaitingOn::Tool, [outside(), outside()]).await;
        let (key, send) = (claimed.key, claimed.send.record.id);
        let calls = ids(&claimed, 2);
        world.send(5, to(key)).await;
        world.post(6, vec![result(key, &calls[1], "seen")]).await;
        let scheduler = mainspring_shared::id::BootId(id());
        let cancelled = world
            .store
            .cancel_sends(world.at(7), scheduler, vec![(TENANT, send)]);
        cancelled.await.expect("cancels");
        let dump = world.store.dump().await.expect("dumps");
        let session = &dump.sessions[0];
        let answers = &session.messages[2..];
        let told: Vec<_> = answers
            .iter()
            .map(|m| (m.tool_call_id.as_deref(), m.failed, m.asked_at_seq, m.epoch))
            .collect();
        assert_eq!(
            told,
            [
                (Some(calls[0].as_str()), true, Some(2), 2),
                (Some(calls[1].as_str()), false, Some(2), 2)
            ]
        );
        let ended = world.call(&calls[0]).await.result.expect("is settled");
        assert_eq!(ended.code, Some(Code::ToolCancelled));
        let refs = &session.steps.last().expect("steps").refs;
        assert_eq!((refs.first_seq, refs.messages), (Some(3), 2));
        assert_eq!(session.hot.signals, 0);
        world.assert_sound(7).await;
        let next = world.claim(8, worker, key).await;
        assert_eq!(next.window.len(), 4);
        world.complete(9, answer(&next, Then::Continue)).await;
        world.assert_sound(9).await;
    })
    .await;
}
