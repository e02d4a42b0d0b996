//! Ending sends under a lease.

use mainspring_shared::agent::Priority;
use mainspring_shared::error::{Code, Failure};
use mainspring_shared::send::{SendResult, SendStatus, StopReason};
use mainspring_shared::step::{Step, StepKind, StepRefs};
use mainspring_shared::store::{
    AfterSend, CompleteOutcome, CompleteSend, Counters, Inspect, ReadySession,
};
use serde_json::json;

use super::prelude::*;

pub async fn a_completed_send_is_final(store: &dyn Inspect) {
    register(store, 1).await;
    accept(store, 0, with(opening(1, 1), until(5_000))).await;
    let claimed = claim(store, 10, 1, 1, 1).await;
    let mut item = ending(&claimed, AfterSend::Continue);
    item.result.output = Some(json!({ "answer": [42] }));
    let completed = complete(store, 20, item).await;
    assert_eq!(completed.status, SendStatus::Completed);
    assert_eq!((completed.first_seq, completed.step), (1, 2));
    assert_eq!(completed.at, time(20));
    assert_eq!((completed.next, completed.enqueue), (None, None));
    let record = stored(store, 1).await;
    assert_eq!(record.status, SendStatus::Completed);
    assert_eq!(record.stop_reason, Some(StopReason::End));
    assert_eq!(record.output_text.as_deref(), Some("done"));
    assert_eq!(record.output, Some(json!({ "answer": [42] })));
    assert_eq!(record.error, None);
    assert_eq!((record.finished_at, record.alarm_at), (at(20), None));
    assert_eq!(record.deadline_at, at(5_000));
    assert_eq!((record.usage, record.rounds), (cost(10), 1));
    assert_eq!(seqs(&transcript(store, 1).await), [1, 2]);
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.owner, hot.token, hot.ready_since), (None, None, None));
}

pub async fn a_final_step_says_what_it_wrote(store: &dyn Inspect) {
    let claimed = running(store).await;
    complete(store, 20, ending(&claimed, AfterSend::Continue)).await;
    let expected = Step {
        n: 2,
        send_id: send(1),
        kind: StepKind::Finished,
        epoch: 1,
        boot: boot(1),
        at: time(20),
        refs: StepRefs {
            fold: None,
            first_seq: Some(1),
            messages: 2,
            round: Some(round_ref(0)),
            reason: Some("end".to_owned()),
            status: Some("completed".to_owned()),
        },
    };
    assert_eq!(last_step(store, 1).await, expected);
}

pub async fn a_failed_send_keeps_its_error(store: &dyn Inspect) {
    let claimed = running(store).await;
    let failure = Failure::new(Code::LlmAuth, "the provider refused the key");
    let item = CompleteSend {
        messages: Vec::new(),
        usage: Vec::new(),
        round: None,
        result: SendResult::failed(StopReason::ProviderError, failure.clone()),
        ..ending(&claimed, AfterSend::Continue)
    };
    let completed = complete(store, 20, item).await;
    assert_eq!(completed.status, SendStatus::Failed);
    let record = stored(store, 1).await;
    assert_eq!(record.error, Some(failure));
    assert_eq!(record.stop_reason, Some(StopReason::ProviderError));
    assert_eq!(record.output_text, None);
    let refs = StepRefs {
        reason: Some("provider_error".to_owned()),
        status: Some("failed".to_owned()),
        ..StepRefs::default()
    };
    assert_eq!(last_step(store, 1).await.refs, refs);
}

pub async fn the_next_send_goes_on_under_the_same_lease(store: &dyn Inspect) {
    let claimed = running(store).await;
    accept(store, 11, with(sending(2, 1), until(9_000))).await;
    accept(store, 12, sending(3, 1)).await;
    let completed = complete(store, 20, ending(&claimed, AfterSend::Continue)).await;
    assert_eq!(completed.enqueue, None);
    let (next, counters) = completed.next.expect("a send is queued");
    let expected = Counters {
        next_seq: 3,
        pending: 1,
        signals: 0,
        context_version: 0,
    };
    assert_eq!(counters, expected);
    assert!(next.resumed.is_none());
    assert_eq!(next.agent, new_session(1).agent);
    assert_eq!(next.record, stored(store, 2).await);
    assert_eq!(next.record.status, SendStatus::Running);
    assert_eq!(next.record.started_at, at(20));
    assert_eq!(next.record.agent_version, Some(1));
    assert_eq!(next.record.alarm_at, at(9_011));
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.owner, hot.token), (Some(boot(1)), Some(token(1))));
    assert_eq!((hot.epoch, hot.ready_since), (1, at(0)));
    let item = ending_of(&claimed, &next.record, AfterSend::Continue);
    let completed = complete(store, 30, item).await;
    let (last, _) = completed.next.expect("the third send goes on");
    assert_eq!(last.record.id, send(3));
}

pub async fn a_worker_that_leaves_gives_the_rest_to_others(store: &dyn Inspect) {
    let claimed = running(store).await;
    accept(store, 11, sending(2, 1)).await;
    let completed = complete(store, 20, ending(&claimed, AfterSend::Release)).await;
    assert_eq!(completed.next, None);
    let enqueue = ReadySession {
        key: key(1),
        pool: "default".to_owned(),
        priority: Priority::High,
        ready_since: time(20),
    };
    assert_eq!(completed.enqueue, Some(enqueue));
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.owner, hot.token), (None, None));
    assert_eq!((hot.pending, hot.ready_since), (1, at(20)));
    assert_eq!(stored(store, 2).await.status, SendStatus::Queued);
}

pub async fn a_raised_cancel_wins_over_the_result(store: &dyn Inspect) {
    let claimed = running(store).await;
    accept(store, 11, sending(2, 1)).await;
    cancel(store, 12, 1).await;
    let completed = complete(store, 20, ending(&claimed, AfterSend::Continue)).await;
    assert_eq!(completed.status, SendStatus::Cancelled);
    let record = stored(store, 1).await;
    assert_eq!(record.status, SendStatus::Cancelled);
    assert_eq!(record.stop_reason, Some(StopReason::Cancelled));
    assert_eq!((record.output_text, record.output), (None, None));
    assert_eq!(record.error, None);
    assert_eq!(record.usage, cost(10), "what was paid for stays");
    let dump = dumped(store, 1).await;
    assert_eq!((dump.messages.len(), dump.usage.len()), (2, 1));
    let refs = last_step(store, 1).await.refs;
    assert_eq!(refs.status.as_deref(), Some("cancelled"));
    assert_eq!(refs.reason.as_deref(), Some("cancelled"));
    let (next, counters) = completed.next.expect("the second send goes on");
    assert_eq!((next.record.id, counters.signals), (send(2), 0));
    assert!(!next.record.cancel_requested);
    let item = ending_of(&claimed, &next.record, AfterSend::Continue);
    let completed = complete(store, 30, item).await;
    assert_eq!(
        completed.status,
        SendStatus::Completed,
        "it hit send 1 only"
    );
}

pub async fn a_delayed_send_that_is_left_makes_nothing_ready(store: &dyn Inspect) {
    let claimed = running(store).await;
    accept(store, 11, with(sending(2, 1), delayed(500))).await;
    for (ms, then) in [(20, AfterSend::Continue), (30, AfterSend::Release)] {
        let claimed = match then {
            AfterSend::Continue => claimed.clone(),
            AfterSend::Release => {
                accept(store, ms - 1, sending(3, 1)).await;
                claim(store, ms - 1, 1, 1, 2).await
            }
        };
        let completed = complete(store, ms, ending(&claimed, then)).await;
        assert_eq!((completed.next, completed.enqueue), (None, None));
        let hot = dumped(store, 1).await.hot;
        assert_eq!((hot.owner, hot.ready_since), (None, None));
    }
}

pub async fn completions_of_one_call_have_each_their_outcome(store: &dyn Inspect) {
    let first = running(store).await;
    accept(store, 0, opening(2, 2)).await;
    accept(store, 0, opening(3, 3)).await;
    let second = claim(store, 11, 1, 2, 2).await;
    let third = claim(store, 12, 1, 3, 3).await;
    release(store, 13, &second).await;
    let items = vec![
        ending(&third, AfterSend::Continue),
        ending(&second, AfterSend::Continue),
        ending(&first, AfterSend::Continue),
    ];
    let outcomes = store.at(time(20)).complete_sends(items).await;
    let outcomes = outcomes.expect("the store answers");
    let statuses = outcomes.iter().map(|outcome| match outcome {
        CompleteOutcome::Completed(completed) => Some(completed.status),
        CompleteOutcome::Undelivered | CompleteOutcome::LeaseLost | CompleteOutcome::Locked => None,
    });
    let statuses: Vec<_> = statuses.collect();
    let completed = Some(SendStatus::Completed);
    assert_eq!(statuses, [completed, None, completed]);
    assert_eq!(stored(store, 2).await.status, SendStatus::Running);
}

pub async fn a_send_is_completed_once(store: &dyn Inspect) {
    let claimed = running(store).await;
    complete(store, 20, ending(&claimed, AfterSend::Continue)).await;
    let again = store
        .at(time(21))
        .complete_sends(vec![ending(&claimed, AfterSend::Continue)])
        .await;
    assert_eq!(
        again.expect("the store answers"),
        [CompleteOutcome::LeaseLost]
    );
    assert_eq!(steps(store, 1).await.len(), 2);
}
