//! The window returned with a claim.

use mainspring_shared::agent::{AgentSpec, ContextSpec};
use mainspring_shared::message::Message;
use mainspring_shared::session::shown::Shown;
use mainspring_shared::store::{
    AcceptSend, AfterSend, ClaimOutcome, ClaimSession, Inspect, NewSession, Target,
};

use super::prelude::*;

/// A session of eight messages: an input, two rounds with a call each and an answer (seqs 1 to 6),
/// then an input and its answer (7 and 8). Its agent sees `last_messages`. One more send is queued.
async fn prepare(store: &dyn Inspect, last_messages: Option<u32>) -> Vec<Message> {
    register(store, 1).await;
    let session = NewSession {
        agent: AgentSpec {
            context: ContextSpec {
                last_messages,
                ..ContextSpec::default()
            },
            ..AgentSpec::default()
        },
        ..new_session(1)
    };
    let item = AcceptSend {
        target: Target::New(Box::new(session)),
        ..sending(1, 1)
    };
    accept(store, 0, item).await;
    accept(store, 0, sending(2, 1)).await;
    accept(store, 0, sending(3, 1)).await;
    let claimed = claim(store, 1, 1, 1, 1).await;
    append(store, 2, round(&claimed, 0)).await;
    append(store, 3, round(&claimed, 1)).await;
    let mut item = ending(&claimed, AfterSend::Continue);
    item.messages = vec![answer("done", 2, &[])];
    item.usage = vec![usage_row(2, 3)];
    item.round = Some(round_ref(2));
    item.totals = totals(3);
    let (next, _) = complete(store, 4, item).await.next.expect("send 2 goes on");
    let item = ending_of(&claimed, &next.record, AfterSend::Release);
    complete(store, 5, item).await;
    let all = transcript(store, 1).await;
    assert_eq!(seqs(&all), [1, 2, 3, 4, 5, 6, 7, 8]);
    all
}

async fn window(store: &dyn Inspect, cached_from_seq: i64, cached_next_seq: i64) -> Vec<Message> {
    let item = ClaimSession {
        cached_fold_end: 0,
        key: key(1),
        token: token(9),
        cached_next_seq,
        cached_from_seq,
        cached_version: 0,
        crashes_below: i32::MAX,
        orphans: true,
    };
    let outcomes = store.at(time(10)).claim_sessions(boot(1), vec![item]).await;
    match one(outcomes.expect("the store answers")) {
        ClaimOutcome::Claimed(claimed) => claimed.window,
        other => panic!("a claim was expected: {other:?}"),
    }
}

pub async fn without_a_cache_the_whole_window_comes(store: &dyn Inspect) {
    let all = prepare(store, None).await;
    assert_eq!(window(store, 0, 0).await, all);
}

/// A failover to a server that lacked the last commits: the model must be shown what is stored, and
/// neither nothing nor what is gone.
pub async fn a_cache_that_is_ahead_of_the_row_is_none(store: &dyn Inspect) {
    let all = prepare(store, None).await;
    assert_eq!(window(store, 1, 12).await, all);
}

pub async fn the_agent_bounds_the_window(store: &dyn Inspect) {
    prepare(store, Some(4)).await;
    assert_eq!(seqs(&window(store, 0, 0).await), [7, 8]);
}

pub async fn a_bound_beyond_the_transcript_is_the_whole_of_it(store: &dyn Inspect) {
    let all = prepare(store, Some(50)).await;
    assert_eq!(window(store, 0, 0).await, all);
}

pub async fn a_window_never_begins_between_a_call_and_its_result(store: &dyn Inspect) {
    prepare(store, Some(5)).await;
    assert_eq!(seqs(&window(store, 0, 0).await), [4, 5, 6, 7, 8]);
}

pub async fn a_full_cache_gets_nothing(store: &dyn Inspect) {
    prepare(store, None).await;
    assert_eq!(window(store, 1, 9).await, []);
}

pub async fn a_cache_that_reaches_back_gets_what_is_new(store: &dyn Inspect) {
    prepare(store, None).await;
    assert_eq!(seqs(&window(store, 1, 7).await), [7, 8]);
}

pub async fn a_cache_that_begins_too_late_gets_the_whole_window(store: &dyn Inspect) {
    prepare(store, Some(5)).await;
    assert_eq!(seqs(&window(store, 6, 9).await), [4, 5, 6, 7, 8]);
}

pub async fn a_cache_that_ends_before_the_window_gets_the_whole_window(store: &dyn Inspect) {
    prepare(store, Some(4)).await;
    assert_eq!(seqs(&window(store, 1, 5).await), [7, 8]);
}

pub async fn a_cache_of_a_bounded_window_gets_what_is_new(store: &dyn Inspect) {
    prepare(store, Some(5)).await;
    assert_eq!(seqs(&window(store, 4, 8).await), [8]);
}

pub async fn the_rounds_of_a_send_do_not_move_its_window(store: &dyn Inspect) {
    prepare(store, Some(5)).await;
    let claimed = claim(store, 10, 1, 1, 9).await;
    assert_eq!(seqs(&claimed.window), [4, 5, 6, 7, 8]);
    let shown = Some(Shown {
        from_seq: Some(claimed.send.window_from(claimed.counters.next_seq)),
        ..Shown::default()
    });
    let mut item = round(&claimed, 0);
    item.totals.shown = shown.clone();
    let added = item.messages.len() as i64;
    append(store, 11, item).await;
    release(store, 12, &claimed).await;
    let again = claim(store, 13, 1, 1, 10).await;
    assert_eq!(again.send.record.shown, shown);
    let all: Vec<i64> = (4..9 + added).collect();
    assert_eq!(seqs(&again.window), all);
}
