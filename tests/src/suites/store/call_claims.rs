//! Calls of external tools that several programs could make, each claimed by one of them.

use std::time::Duration;

use mainspring_shared::id::TenantId;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::{
    CallAnswer, CallBegin, ClaimableCalls, Claimed, Inspect, ListWaitingCalls, PostOutcome,
    PostResult,
};
use mainspring_shared::tool::{CallResult, Claim, Repeat, unknown_outcome};
use uuid::Uuid;

use super::prelude::*;

const LEASE: Duration = Duration::from_millis(100);

fn claim_by(who: u128) -> CallAnswer {
    CallAnswer::Claim {
        token: Uuid::from_u128(who),
        lease: LEASE,
    }
}

fn renewal_by(who: u128) -> CallAnswer {
    CallAnswer::Renew {
        token: Uuid::from_u128(who),
        lease: LEASE,
    }
}

fn given_back_by(who: u128) -> CallAnswer {
    CallAnswer::GiveBack {
        token: Uuid::from_u128(who),
    }
}

fn report_by(who: u128, text: &str) -> CallAnswer {
    CallAnswer::Report {
        token: Uuid::from_u128(who),
        result: CallResult::text(text),
    }
}

fn held(who: u128, until: i64, n: i32) -> PostOutcome {
    PostOutcome::Claimed(Claim {
        token: Uuid::from_u128(who),
        until: time(until),
        n,
    })
}

/// A send that waits for calls of these kinds, all of the tool `look`.
async fn parked(store: &dyn Inspect, repeat: Repeat, begins: Vec<CallBegin>) -> Claimed {
    let claimed = running(store).await;
    let mut item = asking(&claimed, 0, begins);
    for call in &mut item.calls {
        call.repeat = repeat;
    }
    append(store, 20, item).await;
    claimed
}

fn claimables(names: &[&str], who: u128) -> ClaimableCalls {
    ClaimableCalls {
        tenant: key(1).tenant,
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        token: Uuid::from_u128(who),
        after: None,
        limit: 10,
    }
}

async fn claimable(store: &dyn Inspect, ms: i64, names: &[&str]) -> Vec<String> {
    let nobody = claimables(names, 0);
    let found = store.at(time(ms)).claimable_calls(nobody).await;
    let found = found.expect("the store answers").data.into_iter();
    found.map(|call| call.call_id).collect()
}

async fn lapsed(store: &dyn Inspect, ms: i64) -> Vec<String> {
    let found = store.at(time(ms)).lapsed_calls(10).await;
    let found = found.expect("the store answers").into_iter();
    found.map(|(_, call_id)| call_id).collect()
}

pub async fn a_claimed_call_is_nobody_elses_until_the_claim_lapses(store: &dyn Inspect) {
    let begins = vec![waits(WaitingOn::Tool), waits(WaitingOn::Human)];
    let claimed = parked(store, Repeat::Keyed, begins).await;
    let id = call(&claimed, 0, 0);
    assert_eq!(
        claimable(store, 30, &["look", "other"]).await,
        [id.as_str()]
    );
    assert!(claimable(store, 30, &["other"]).await.is_empty());
    let post = async |ms, answer| post(store, ms, 1, &id, answer).await;
    assert_eq!(post(30, claim_by(1)).await, held(1, 130, 1));
    assert!(claimable(store, 129, &["look"]).await.is_empty());
    assert_eq!(post(40, claim_by(2)).await, PostOutcome::ClaimLost);
    // A request whose response was lost is sent again, and finds what it got.
    let again = store.at(time(40));
    let again = again.claimable_calls(claimables(&["look"], 1)).await;
    assert_eq!(again.expect("the store answers").data.len(), 1);
    assert_eq!(post(40, claim_by(1)).await, held(1, 140, 1));
    assert_eq!(claimable(store, 140, &["look"]).await, [id.as_str()]);
    assert!(lapsed(store, 140).await.is_empty(), "another may make it");
    assert_eq!(post(150, claim_by(2)).await, held(2, 250, 2));
    for answer in [
        renewal_by(1),
        given_back_by(1),
        report_by(1, "late"),
        CallAnswer::Lapse,
    ] {
        assert_eq!(post(160, answer).await, PostOutcome::ClaimLost);
    }
    let (enqueue, owner) = told(post(160, report_by(2, "found")).await);
    assert_eq!((enqueue.is_some(), owner.is_some()), (false, true));
    let found = call_of(store, &id).await;
    assert_eq!(found.result, Some(CallResult::text("found")));
    for answer in [claim_by(3), renewal_by(2), report_by(2, "again")] {
        assert_eq!(post(170, answer).await, PostOutcome::AlreadySettled);
    }
    assert!(claimable(store, 400, &["look"]).await.is_empty());
}

pub async fn a_lapsed_call_that_must_not_be_repeated_goes_to_nobody(store: &dyn Inspect) {
    let begins = vec![waits(WaitingOn::Tool), waits(WaitingOn::Tool)];
    let claimed = parked(store, Repeat::Once, begins).await;
    let (id, other) = (call(&claimed, 0, 0), call(&claimed, 0, 1));
    let post = async |ms, answer| post(store, ms, 1, &id, answer).await;
    assert_eq!(post(30, CallAnswer::Lapse).await, PostOutcome::ClaimLost);
    assert_eq!(post(30, claim_by(1)).await, held(1, 130, 1));
    assert_eq!(post(129, CallAnswer::Lapse).await, PostOutcome::ClaimLost);
    assert!(lapsed(store, 129).await.is_empty());
    assert_eq!(claimable(store, 300, &["look"]).await, [other]);
    assert_eq!(post(300, claim_by(2)).await, PostOutcome::ClaimLost);
    assert_eq!(lapsed(store, 130).await, [id.as_str()]);
    // Its program is late, but it is there.
    assert_eq!(post(140, renewal_by(1)).await, held(1, 240, 1));
    assert!(lapsed(store, 150).await.is_empty());
    told(post(240, CallAnswer::Lapse).await);
    let found = call_of(store, &id).await;
    assert_eq!(found.result, Some(unknown_outcome()));
    assert_eq!(
        post(250, report_by(1, "done")).await,
        PostOutcome::AlreadySettled
    );
    assert!(lapsed(store, 900).await.is_empty());
}

pub async fn a_call_that_is_given_back_goes_to_the_next(store: &dyn Inspect) {
    let claimed = parked(store, Repeat::Once, vec![waits(WaitingOn::Tool)]).await;
    let id = call(&claimed, 0, 0);
    let post = async |ms, answer| post(store, ms, 1, &id, answer).await;
    assert_eq!(post(30, claim_by(1)).await, held(1, 130, 1));
    assert_eq!(told(post(40, given_back_by(1)).await), (None, None));
    assert_eq!(claimable(store, 40, &["look"]).await, [id.as_str()]);
    assert_eq!(post(50, claim_by(2)).await, held(2, 150, 1));
    let answer = CallAnswer::Result(CallResult::text("by hand"));
    told(post(60, answer).await);
    let found = call_of(store, &id).await;
    assert_eq!(found.result, Some(CallResult::text("by hand")));
}

pub async fn only_calls_that_wait_for_a_program_are_claimed(store: &dyn Inspect) {
    let for_permission = CallBegin::Waits {
        on: WaitingOn::Tool,
        approval: true,
        deadline: None,
    };
    let begins = vec![
        for_permission,
        waits(WaitingOn::Human),
        waits(WaitingOn::Agent),
        CallBegin::Requested,
        CallBegin::Started,
    ];
    let claimed = parked(store, Repeat::Safe, begins).await;
    assert!(claimable(store, 30, &["look"]).await.is_empty());
    for place in 0..5 {
        let id = call(&claimed, 0, place);
        let outcome = post(store, 30, 1, &id, claim_by(1)).await;
        assert_eq!(outcome, PostOutcome::NotWaiting, "call {place}");
    }
}

pub async fn of_claims_at_once_one_counts(store: &dyn Inspect) {
    let claimed = parked(store, Repeat::Once, vec![waits(WaitingOn::Tool)]).await;
    let then = store.at(time(30));
    let claims = (1..=8).map(|who| {
        then.post_results(vec![PostResult {
            key: key(1),
            call_id: call(&claimed, 0, 0),
            answer: claim_by(who),
        }])
    });
    let outcomes = futures::future::join_all(claims).await.into_iter();
    let outcomes: Vec<_> = outcomes
        .map(|one| one.expect("the store answers"))
        .collect();
    let won = outcomes
        .iter()
        .filter(|one| matches!(one[..], [PostOutcome::Claimed(_)]));
    assert_eq!(won.count(), 1, "{outcomes:?}");
}

pub async fn what_waits_for_others_is_listed_by_pages(store: &dyn Inspect) {
    let begins = vec![
        waits(WaitingOn::Tool),
        waits(WaitingOn::Human),
        asks(900),
        waits(WaitingOn::Agent),
        CallBegin::Requested,
        settled(),
    ];
    let claimed = parked(store, Repeat::Keyed, begins).await;
    let list = async |on, after, limit| {
        let query = ListWaitingCalls {
            tenant: key(1).tenant,
            on,
            after,
            limit,
        };
        let page = store.list_waiting_calls(query).await;
        page.expect("the store answers")
    };
    let expected = [0, 1, 2].map(|place| call(&claimed, 0, place));
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = list(None, after.take(), 2).await;
        let last = page.data.last().expect("a page is not empty");
        after = Some((last.requested_at, last.call_id.clone()));
        found.extend(page.data);
        if !page.more {
            break;
        }
    }
    let ids: Vec<_> = found.iter().map(|call| call.call_id.clone()).collect();
    assert_eq!(ids, expected);
    let people = list(Some(WaitingOn::Human), None, 9).await.data;
    assert_eq!(people, found[1..]);
    let tools = list(Some(WaitingOn::Tool), None, 9).await.data;
    assert_eq!(tools, found[..1]);
    let query = ListWaitingCalls {
        tenant: TenantId(key(1).tenant.0 + 1),
        on: None,
        after: None,
        limit: 9,
    };
    let others = store.list_waiting_calls(query).await;
    assert!(others.expect("the store answers").data.is_empty());
    let deleted = store
        .at(time(40))
        .delete_session(key(1), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    assert!(
        list(None, None, 9).await.data.is_empty(),
        "it went with its session"
    );
    assert!(claimable(store, 40, &["look"]).await.is_empty());
}

pub async fn who_comes_again_finds_what_it_has_and_nothing_else(store: &dyn Inspect) {
    let begins = (0..5).map(|_| waits(WaitingOn::Tool)).collect();
    let claimed = parked(store, Repeat::Keyed, begins).await;
    let ids: Vec<String> = (0..5).map(|place| call(&claimed, 0, place)).collect();
    let claim = async |place: usize, who| post(store, 30, 1, &ids[place], claim_by(who)).await;
    for place in 0..3 {
        assert_eq!(claim(place, 7).await, held(7, 130, 1));
    }
    assert_eq!(claim(3, 8).await, held(8, 130, 1));
    // Older ones are free again by now.
    let later = store.at(time(200));
    let page = async |query| {
        let page = later.claimable_calls(query).await;
        let page = page.expect("the store answers");
        let ids: Vec<String> = page.data.iter().map(|call| call.call_id.clone()).collect();
        (
            ids,
            page.more,
            page.data
                .last()
                .map(|call| (call.requested_at, call.call_id.clone())),
        )
    };
    let (own, more, _) = page(claimables(&["look"], 8)).await;
    assert_eq!((own, more), (vec![ids[3].clone()], false));
    let (other_tool, ..) = page(claimables(&["other"], 8)).await;
    assert!(other_tool.is_empty());
    // All others go through what nobody has, page by page.
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let query = ClaimableCalls {
            after: after.take(),
            limit: 2,
            ..claimables(&["look", "other"], 9)
        };
        let (ids, more, last) = page(query).await;
        found.extend(ids);
        after = last;
        if !more {
            break;
        }
    }
    assert_eq!(found, ids);
}
