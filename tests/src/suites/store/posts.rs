//! Results and approvals posted from outside.

use mainspring_shared::agent::Priority;
use mainspring_shared::error::Code;
use mainspring_shared::id::{SessionKey, TenantId};
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::session::SIGNAL_RESULT;
use mainspring_shared::store::{
    CallAnswer, CallBegin, CallStep, Claimed, Inspect, ParkOutcome, ParkUntil, PostOutcome,
    PostResult, ReadySession, Renewal,
};
use mainspring_shared::tool::{Approval, CallResult, CallState, Reply};
use serde_json::json;

use super::prelude::*;

fn result(text: &str) -> CallAnswer {
    CallAnswer::Result(CallResult::text(text))
}

fn refusal(text: &str) -> CallAnswer {
    CallAnswer::Refuse(CallResult::error(Code::ToolDenied, text))
}

/// Send 1 waits for the calls of its first round, which have these initial states.
async fn parked(store: &dyn Inspect, on: WaitingOn, begins: Vec<CallBegin>) -> Claimed {
    let claimed = running(store).await;
    wait_for_calls(store, 20, &claimed, on, begins).await;
    claimed
}

pub async fn a_posted_result_wakes_the_send_that_waits_for_it(store: &dyn Inspect) {
    register(store, 1).await;
    accept(store, 0, with(opening(1, 1), until(9_000))).await;
    let claimed = claim(store, 10, 1, 1, 1).await;
    wait_for_calls(
        store,
        20,
        &claimed,
        WaitingOn::Tool,
        vec![waits(WaitingOn::Tool)],
    )
    .await;
    let id = call(&claimed, 0, 0);
    let outcome = post_text(store, 40, 1, &id, "found").await;
    let enqueue = ReadySession {
        key: key(1),
        pool: "default".to_owned(),
        priority: Priority::High,
        ready_since: time(40),
    };
    let expected = PostOutcome::Accepted {
        key: key(1),
        send_id: send(1),
        enqueue: Some(enqueue),
        owner: None,
    };
    assert_eq!(outcome, expected);
    let found = call_of(store, &id).await;
    assert_eq!(found.result, Some(CallResult::text("found")));
    assert_eq!((found.waits_on, found.settled_at), (None, at(40)));
    let record = stored(store, 1).await;
    assert_eq!(
        (record.status, record.alarm_at),
        (SendStatus::Waiting, at(9_000))
    );
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.ready_since, hot.signals), (at(40), SIGNAL_RESULT));
    assert_eq!(steps(store, 1).await.len(), 3, "an answer is no step");
    let again = claim(store, 50, 1, 1, 2).await;
    assert_eq!(again.counters.signals, SIGNAL_RESULT);
    let step = last_step(store, 1).await;
    assert_eq!(step.refs.reason.as_deref(), Some("result"));
    let messages = answers_of(store, &again, 0).await;
    let mut item = changing(&again, 0, Vec::new());
    item.messages = messages;
    let (first_seq, _, counters) = append(store, 60, item).await;
    assert_eq!((first_seq, counters.signals), (3, SIGNAL_RESULT));
    assert_eq!(signals(store, 1).await, 0, "the worker has read it");
}

pub async fn only_the_last_answer_of_a_round_wakes(store: &dyn Inspect) {
    let begins = vec![
        waits(WaitingOn::Tool),
        settled(),
        asks(900),
        CallBegin::Requested,
    ];
    let claimed = parked(store, WaitingOn::Human, begins).await;
    let first = post_text(store, 30, 1, &call(&claimed, 0, 0), "a").await;
    assert_eq!(told(first), (None, None));
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.ready_since, hot.signals), (None, SIGNAL_RESULT));
    let last = post(store, 40, 1, &call(&claimed, 0, 2), CallAnswer::Approve).await;
    let (enqueue, owner) = told(last);
    assert_eq!(
        enqueue.expect("nothing waits any more").ready_since,
        time(40)
    );
    assert_eq!(owner, None);
}

pub async fn answers_of_one_call_see_those_before_them(store: &dyn Inspect) {
    let begins = vec![waits(WaitingOn::Tool), waits(WaitingOn::Human)];
    let claimed = parked(store, WaitingOn::Tool, begins).await;
    let item = |place, text| PostResult {
        key: key(1),
        call_id: call(&claimed, 0, place),
        answer: result(text),
    };
    let unknown = PostResult {
        call_id: "call_unknown".to_owned(),
        ..item(0, "x")
    };
    let items = vec![item(1, "b"), item(1, "late"), unknown, item(0, "a")];
    let outcomes = store.at(time(40)).post_results(items).await;
    let outcomes = outcomes.expect("the store answers");
    let [b, late, unknown, a] = &outcomes[..] else {
        panic!("four outcomes were expected: {outcomes:?}");
    };
    assert_eq!(told(b.clone()), (None, None));
    assert_eq!(late, &PostOutcome::AlreadySettled);
    assert_eq!(unknown, &PostOutcome::Unknown);
    assert!(told(a.clone()).0.is_some());
    let texts = calls_of(store, &claimed, 0).await.into_iter();
    let texts: Vec<_> = texts.map(|c| c.result.map(|r| r.whole_text())).collect();
    assert_eq!(texts, [Some("a".to_owned()), Some("b".to_owned())]);
}

pub async fn the_first_answer_counts(store: &dyn Inspect) {
    let claimed = parked(store, WaitingOn::Tool, vec![waits(WaitingOn::Tool)]).await;
    let id = call(&claimed, 0, 0);
    post_text(store, 30, 1, &id, "first").await;
    let before = store.dump().await.expect("the store answers");
    for answer in [result("second"), CallAnswer::Approve] {
        let outcome = post(store, 40, 1, &id, answer).await;
        assert_eq!(outcome, PostOutcome::AlreadySettled);
    }
    assert_eq!(store.dump().await.expect("the store answers"), before);
}

pub async fn a_running_send_is_told_of_a_result(store: &dyn Inspect) {
    let claimed = running(store).await;
    let begins = vec![waits(WaitingOn::Tool), CallBegin::Started];
    append(store, 20, asking(&claimed, 0, begins)).await;
    let outcome = post_text(store, 30, 1, &call(&claimed, 0, 0), "found").await;
    assert_eq!(told(outcome), (None, Some(boot(1))));
    let renewal = store.at(time(40)).renew_boot(boot(1), millis(TTL), 1).await;
    let expected = Renewal::Renewed {
        at: time(40),
        signals: vec![(key(1), SIGNAL_RESULT)],
    };
    assert_eq!(renewal.expect("the store answers"), expected);
    let changes = vec![settling(call(&claimed, 0, 1), "done")];
    let (_, _, counters) = append(store, 50, changing(&claimed, 0, changes)).await;
    assert_eq!(counters.signals, SIGNAL_RESULT);
    assert_eq!(signals(store, 1).await, 0);
}

pub async fn a_released_send_hears_of_a_result_when_it_is_claimed(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, asking(&claimed, 0, vec![waits(WaitingOn::Tool)])).await;
    release(store, 25, &claimed).await;
    let outcome = post_text(store, 30, 1, &call(&claimed, 0, 0), "found").await;
    assert_eq!(told(outcome), (None, None));
    let again = claim(store, 40, 1, 1, 2).await;
    assert_eq!(again.counters.signals, SIGNAL_RESULT);
}

pub async fn a_send_that_waits_for_something_else_is_not_woken(store: &dyn Inspect) {
    register(store, 1).await;
    for (n, on) in [
        (1, WaitingOn::Retry),
        (2, WaitingOn::Recovery),
        (3, WaitingOn::Timer),
    ] {
        accept(store, 0, opening(n, n)).await;
        let claimed = claim(store, 10, 1, n, n).await;
        wait_for_calls(store, 20, &claimed, on, vec![waits(WaitingOn::Tool)]).await;
        let outcome = post_text(store, 30, n, &call(&claimed, 0, 0), "found").await;
        assert_eq!(told(outcome), (None, None), "{on:?}");
        let hot = dumped(store, n).await.hot;
        assert_eq!((hot.ready_since, hot.signals), (None, SIGNAL_RESULT));
    }
}

pub async fn a_call_that_waits_for_nothing_outside_takes_no_answer(store: &dyn Inspect) {
    let begins = vec![
        CallBegin::Requested,
        CallBegin::Started,
        waits(WaitingOn::Agent),
        waits(WaitingOn::Run),
        waits(WaitingOn::Timer),
    ];
    let claimed = parked(store, WaitingOn::Agent, begins).await;
    let before = store.dump().await.expect("the store answers");
    for place in 0..5 {
        for answer in [result("x"), CallAnswer::Approve] {
            let outcome = post(store, 30, 1, &call(&claimed, 0, place), answer).await;
            assert_eq!(outcome, PostOutcome::NotWaiting, "call {place}");
        }
    }
    assert_eq!(store.dump().await.expect("the store answers"), before);
}

pub async fn permission_lets_the_worker_run_the_call(store: &dyn Inspect) {
    let claimed = parked(store, WaitingOn::Human, vec![asks(900)]).await;
    let id = call(&claimed, 0, 0);
    let (enqueue, _) = told(post(store, 30, 1, &id, CallAnswer::Approve).await);
    assert_eq!(enqueue.expect("it can go on").ready_since, time(30));
    let found = call_of(store, &id).await;
    assert_eq!(found.approval, Approval::Given);
    assert_eq!((found.waits_on, found.deadline_at), (None, None));
    assert_eq!(found.state(), CallState::Requested);
    for answer in [CallAnswer::Approve, refusal("too late")] {
        let again = post(store, 40, 1, &id, answer).await;
        assert_eq!(again, PostOutcome::AlreadySettled, "permission was given");
    }
    let again = post(store, 40, 1, &id, result("no")).await;
    assert_eq!(again, PostOutcome::NotWaiting, "it is the worker's now");
}

pub async fn a_second_approval_is_not_the_result(store: &dyn Inspect) {
    let claimed = parked(store, WaitingOn::Human, vec![asks(900)]).await;
    let id = call(&claimed, 0, 0);
    let early = post(store, 29, 1, &id, result("paid")).await;
    assert_eq!(early, PostOutcome::NotWaiting, "nobody has allowed it yet");
    told(post(store, 30, 1, &id, CallAnswer::Approve).await);
    // A worker hands the call to the client, whose result it now waits for.
    let again = claim(store, 40, 1, 1, 2).await;
    let on = WaitingOn::Tool;
    let step = CallStep::Waits { on, deadline: None };
    append(
        store,
        50,
        changing(&again, 0, vec![change(id.clone(), step)]),
    )
    .await;
    let before = store.dump().await.expect("the store answers");
    for answer in [CallAnswer::Approve, refusal("I changed my mind")] {
        let outcome = post(store, 60, 1, &id, answer).await;
        assert_eq!(outcome, PostOutcome::AlreadySettled, "permission was given");
    }
    assert_eq!(store.dump().await.expect("the store answers"), before);
    told(post(store, 61, 1, &id, result("paid")).await);
    let found = call_of(store, &id).await;
    assert_eq!(found.result, Some(CallResult::text("paid")));
}

pub async fn of_answers_at_once_one_counts_for_each_question(store: &dyn Inspect) {
    let claimed = parked(
        store,
        WaitingOn::Human,
        vec![asks(900), waits(WaitingOn::Tool)],
    )
    .await;
    for (place, answer) in [(0, CallAnswer::Approve), (1, result("done"))] {
        let id = call(&claimed, 0, place);
        let item = PostResult {
            key: key(1),
            call_id: id.clone(),
            answer,
        };
        let then = store.at(time(40));
        let posts = (0..8).map(|_| then.post_results(vec![item.clone()]));
        let outcomes = futures::future::join_all(posts).await;
        let outcomes = outcomes
            .into_iter()
            .map(|o| o.expect("the store answers").remove(0));
        let (first, others): (Vec<_>, Vec<_>) =
            outcomes.partition(|outcome| matches!(outcome, PostOutcome::Accepted { .. }));
        assert_eq!(first.len(), 1, "{others:?}");
        let late = |outcome: &PostOutcome| *outcome == PostOutcome::AlreadySettled;
        assert!(others.iter().all(late), "{others:?}");
    }
}

fn reply(question: usize, reply: Reply) -> CallAnswer {
    CallAnswer::Reply { question, reply }
}

pub async fn the_first_answer_to_a_question_lets_the_call_go_on(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 12, asking(&claimed, 0, vec![CallBegin::Started])).await;
    let id = call(&claimed, 0, 0);
    let asked = CallStep::Asks {
        asked: vec![question("sure?", 1)],
        deadline: Some(millis(900)),
    };
    append(store, 15, changing(&claimed, 0, vec![change(&id, asked)])).await;
    let mut item = waiting(&claimed, WaitingOn::Human, ParkUntil::Asked);
    item.totals = totals(1);
    let parked = park(store, 20, item).await;
    assert!(matches!(parked, ParkOutcome::Parked { .. }), "{parked:?}");
    let unasked = post(store, 25, 1, &id, reply(2, Reply::Decline {})).await;
    assert_eq!(unasked, PostOutcome::NotWaiting, "there is one question");
    let content = json!({"sure": true}).as_object().cloned();
    let yes = Reply::Accept { content };
    let (enqueue, _) = told(post(store, 30, 1, &id, reply(1, yes.clone())).await);
    assert_eq!(enqueue.expect("it can go on").ready_since, time(30));
    let found = call_of(store, &id).await;
    assert_eq!(found.asked[0].reply, Some(yes.clone()));
    assert_eq!((found.waits_on, found.deadline_at), (None, None));
    assert_eq!(found.state(), CallState::Requested, "nobody makes it yet");
    let late = post(store, 35, 1, &id, reply(1, Reply::Decline {})).await;
    assert_eq!(late, PostOutcome::AlreadySettled);
    assert_eq!(call_of(store, &id).await.asked[0].reply, Some(yes.clone()));
    let again = claim(store, 40, 1, 1, 2).await;
    let begun = vec![change(&id, CallStep::Started)];
    append(store, 50, changing(&again, 0, begun)).await;
    let found = call_of(store, &id).await;
    assert_eq!(found.asked[0].reply, Some(yes));
    assert!(
        matches!(found.state(), CallState::Started { .. }),
        "{found:?}"
    );
    assert_eq!(found.attempt, 2);
}

pub async fn a_question_ends_with_a_result_as_well(store: &dyn Inspect) {
    let begins = vec![waits(WaitingOn::Human)];
    let claimed = parked(store, WaitingOn::Human, begins).await;
    let id = call(&claimed, 0, 0);
    let none = post(store, 25, 1, &id, reply(1, Reply::Cancel {})).await;
    assert_eq!(
        none,
        PostOutcome::NotWaiting,
        "it waits, but has asked nothing"
    );
    let (enqueue, _) = told(post_text(store, 30, 1, &id, "given up").await);
    assert!(enqueue.is_some());
    let late = post(store, 35, 1, &id, reply(1, Reply::Cancel {})).await;
    assert_eq!(late, PostOutcome::AlreadySettled);
}

pub async fn permission_is_refused_with_a_result(store: &dyn Inspect) {
    let claimed = parked(store, WaitingOn::Human, vec![asks(900)]).await;
    let id = call(&claimed, 0, 0);
    let answer = refusal("not on a Sunday");
    let expected = answer.result().cloned();
    let (enqueue, _) = told(post(store, 30, 1, &id, answer).await);
    assert!(enqueue.is_some());
    let found = call_of(store, &id).await;
    assert_eq!(found.approval, Approval::Asked);
    assert_eq!((found.result, found.settled_at), (expected, at(30)));
}

pub async fn permission_is_only_for_those_who_ask(store: &dyn Inspect) {
    let begins = vec![waits(WaitingOn::Human), waits(WaitingOn::Tool)];
    let claimed = parked(store, WaitingOn::Human, begins).await;
    for place in 0..2 {
        let id = call(&claimed, 0, place);
        let outcome = post(store, 30, 1, &id, CallAnswer::Approve).await;
        assert_eq!(outcome, PostOutcome::NotWaiting);
        assert_eq!(call_of(store, &id).await.approval, Approval::None);
    }
}

pub async fn calls_of_others_are_unknown(store: &dyn Inspect) {
    let claimed = parked(store, WaitingOn::Tool, vec![waits(WaitingOn::Tool)]).await;
    accept(store, 25, opening(2, 2)).await;
    let id = call(&claimed, 0, 0);
    let before = store.dump().await.expect("the store answers");
    for session in [2, 9] {
        let outcome = post_text(store, 30, session, &id, "x").await;
        assert_eq!(outcome, PostOutcome::Unknown, "session {session}");
    }
    assert_eq!(post_text(store, 30, 1, "", "x").await, PostOutcome::Unknown);
    let foreign = PostResult {
        key: SessionKey {
            tenant: TenantId(2),
            ..key(1)
        },
        call_id: id.clone(),
        answer: result("x"),
    };
    let outcomes = store.at(time(30)).post_results(vec![foreign]).await;
    assert_eq!(outcomes.expect("the store answers"), [PostOutcome::Unknown]);
    assert_eq!(store.dump().await.expect("the store answers"), before);
    let deleted = store
        .at(time(40))
        .delete_session(key(1), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    let outcome = post_text(store, 50, 1, &id, "x").await;
    assert_eq!(outcome, PostOutcome::Unknown, "it went with its session");
}

/// Sessions 1, 2 and 3, each a child of the one before. The last waits for two tools.
async fn family(store: &dyn Inspect) -> Claimed {
    let top = running(store).await;
    let begins = vec![waits(WaitingOn::Agent), waits(WaitingOn::Tool)];
    wait_for_calls(store, 20, &top, WaitingOn::Agent, begins).await;
    accept(store, 30, child(2, 2, 1, &call(&top, 0, 0))).await;
    let middle = claim(store, 31, 1, 2, 2).await;
    wait_for_calls(
        store,
        32,
        &middle,
        WaitingOn::Agent,
        vec![waits(WaitingOn::Agent)],
    )
    .await;
    accept(store, 40, child(3, 3, 2, &call(&middle, 0, 0))).await;
    let last = claim(store, 41, 1, 3, 3).await;
    let begins = vec![waits(WaitingOn::Tool), waits(WaitingOn::Tool)];
    wait_for_calls(store, 42, &last, WaitingOn::Tool, begins).await;
    last
}

pub async fn an_ancestor_may_answer(store: &dyn Inspect) {
    let last = family(store).await;
    let middle = post_text(store, 50, 2, &call(&last, 0, 0), "from the middle").await;
    assert_eq!(told(middle), (None, None));
    let top = post_text(store, 51, 1, &call(&last, 0, 1), "from the top").await;
    let PostOutcome::Accepted {
        key: asked,
        send_id,
        enqueue,
        ..
    } = top
    else {
        panic!("an accepted answer was expected: {top:?}");
    };
    assert_eq!(
        (asked, send_id),
        (key(3), send(3)),
        "the session that asked"
    );
    assert_eq!(enqueue.expect("nothing waits any more").key, key(3));
    let hot = dumped(store, 1).await.hot;
    assert_eq!(
        (hot.ready_since, hot.signals),
        (None, 0),
        "the top still waits"
    );
}

/// Sessions 2 to `last`, each a child of the one before, starting below session 1; the last one
/// asks a person.
async fn chain(store: &dyn Inspect, last: u128) -> Claimed {
    running(store).await;
    for n in 2..=last {
        accept(store, 20, child(n, n, n - 1, &format!("call_{n}"))).await;
    }
    let asking = claim(store, 21, 1, last, last).await;
    let begins = vec![waits(WaitingOn::Human)];
    wait_for_calls(store, 22, &asking, WaitingOn::Human, begins).await;
    asking
}

pub async fn an_ancestor_answers_from_sixteen_steps_above_and_no_further(store: &dyn Inspect) {
    let last = chain(store, 18).await;
    accept(store, 30, child(19, 19, 17, "call_19")).await;
    let asked = call(&last, 0, 0);
    let sibling = post_text(store, 40, 19, &asked, "x").await;
    assert_eq!(sibling, PostOutcome::Unknown);
    let far = post_text(store, 40, 1, &asked, "x").await;
    assert_eq!(far, PostOutcome::Unknown);
    let near = post_text(store, 41, 2, &asked, "yes").await;
    assert!(told(near).0.is_some());
}

pub async fn nobody_answers_for_a_session_above(store: &dyn Inspect) {
    family(store).await;
    let of_the_top = mainspring_shared::tool::call_id(send(1), 0, 1);
    for session in [2, 3] {
        let outcome = post_text(store, 50, session, &of_the_top, "x").await;
        assert_eq!(outcome, PostOutcome::Unknown);
    }
    assert!(
        told(post_text(store, 50, 1, &of_the_top, "x").await)
            .0
            .is_none()
    );
}

pub async fn a_deleted_session_answers_for_nobody(store: &dyn Inspect) {
    let last = family(store).await;
    let deleted = store
        .at(time(45))
        .delete_session(key(2), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    for session in [1, 2] {
        let outcome = post_text(store, 50, session, &call(&last, 0, 0), "x").await;
        assert_eq!(outcome, PostOutcome::Unknown, "session {session}");
    }
    told(post_text(store, 51, 3, &call(&last, 0, 0), "x").await);
}

pub async fn a_call_that_ended_with_its_send_is_settled(store: &dyn Inspect) {
    let claimed = parked(store, WaitingOn::Tool, vec![waits(WaitingOn::Tool)]).await;
    cancel(store, 30, 1).await;
    let outcome = post_text(store, 40, 1, &call(&claimed, 0, 0), "late").await;
    assert_eq!(outcome, PostOutcome::AlreadySettled);
    assert_eq!(signals(store, 1).await, 0);
}

pub async fn an_answer_that_came_before_the_park_wakes_at_once(store: &dyn Inspect) {
    let claimed = running(store).await;
    append(store, 20, asking(&claimed, 0, vec![waits(WaitingOn::Tool)])).await;
    post_text(store, 30, 1, &call(&claimed, 0, 0), "quick").await;
    let mut item = waiting(&claimed, WaitingOn::Tool, ParkUntil::Asked);
    item.unless = SIGNAL_RESULT;
    let outcome = park(store, 40, item).await;
    let expected = ParkOutcome::Woken {
        signals: SIGNAL_RESULT,
    };
    assert_eq!(outcome, expected);
    assert_eq!(stored(store, 1).await.status, SendStatus::Running);
}
