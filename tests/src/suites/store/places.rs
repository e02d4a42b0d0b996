//! Reserved places among a tenant's open sends, and what its sends used.

use mainspring_shared::id::{KeyId, SendId, TenantId};
use mainspring_shared::store::{
    AfterSend, DeleteTenantOutcome, Inspect, PLACE_KEPT_MS, TenantUsage, TenantUsageQuery,
};
use uuid::Uuid;

use super::prelude::*;
use super::tenants::new;

/// The default tenant, which always exists.
const MINE: TenantId = TenantId::DEFAULT;

fn sends(ns: impl IntoIterator<Item = u128>) -> Vec<SendId> {
    ns.into_iter().map(send).collect()
}

async fn reserve(store: &dyn Inspect, ms: i64, ids: Vec<SendId>, max: u32) -> u32 {
    let taken = store.at(time(ms)).reserve_sends(MINE, None, ids, max).await;
    taken.expect("the store answers")
}

async fn release(store: &dyn Inspect, ids: Vec<SendId>) {
    let released = store.release_sends(MINE, None, ids).await;
    released.expect("the store answers");
}

pub async fn as_many_sends_have_a_place_as_the_limit_says(store: &dyn Inspect) {
    assert_eq!(reserve(store, 0, sends([1, 2]), 3).await, 2);
    assert_eq!(reserve(store, 0, sends([3, 4, 5]), 3).await, 1);
    assert_eq!(reserve(store, 0, sends([6]), 3).await, 0);
    // A higher limit makes room; a lower one takes nothing away.
    assert_eq!(reserve(store, 0, sends([6]), 4).await, 1);
    assert_eq!(reserve(store, 0, sends([7]), 1).await, 0);
    assert_eq!(reserve(store, 0, Vec::new(), 4).await, 0);
}

pub async fn a_repeat_keeps_its_places_and_takes_no_others(store: &dyn Inspect) {
    assert_eq!(reserve(store, 0, sends([1, 2, 3]), 2).await, 2);
    assert_eq!(reserve(store, 0, sends([1, 2, 3]), 2).await, 2);
    assert_eq!(reserve(store, 0, sends([1, 2, 3]), 3).await, 3);
    assert_eq!(reserve(store, 0, sends([4]), 3).await, 0);
}

pub async fn a_place_is_free_again_once_its_send_has_ended(store: &dyn Inspect) {
    register(store, 1).await;
    assert_eq!(reserve(store, 0, sends([1, 2]), 2).await, 2);
    accept(store, 0, opening(1, 1)).await;
    accept(store, 0, opening(2, 2)).await;
    // They are still open long after they were accepted.
    let later = 2 * PLACE_KEPT_MS;
    assert_eq!(reserve(store, later, sends([3]), 2).await, 0);
    let claimed = claim(store, later, 1, 1, 1).await;
    complete(store, later, ending(&claimed, AfterSend::Release)).await;
    cancel(store, later, 2).await;
    assert_eq!(reserve(store, later, sends([3, 4, 5]), 2).await, 2);
}

pub async fn a_place_of_a_send_that_was_not_accepted_is_free_again(store: &dyn Inspect) {
    assert_eq!(reserve(store, 0, sends([1, 2]), 2).await, 2);
    release(store, sends([2])).await;
    assert_eq!(reserve(store, 0, sends([3]), 2).await, 1);
    // These were never released: a process died.
    assert_eq!(reserve(store, PLACE_KEPT_MS, sends([4]), 2).await, 0);
    assert_eq!(reserve(store, PLACE_KEPT_MS + 1, sends([4]), 2).await, 1);
    release(store, sends([9])).await;
}

pub async fn the_places_of_a_tenant_are_its_own_and_go_with_it(store: &dyn Inspect) {
    let created = store.at(time(0)).create_tenant(new("blue"), None).await;
    created.expect("creates");
    let blue = TenantId(2);
    assert_eq!(reserve(store, 0, sends([1]), 1).await, 1);
    let theirs = store
        .at(time(0))
        .reserve_sends(blue, None, sends([2]), 1)
        .await;
    assert_eq!(theirs.expect("the store answers"), 1);
    let deleted = store.at(time(10)).delete_tenant(blue).await;
    assert_eq!(deleted.expect("deletes"), DeleteTenantOutcome::Deleted);
    let again = store
        .at(time(20))
        .reserve_sends(blue, None, sends([3]), 1)
        .await;
    assert_eq!(again.expect("the store answers"), 1);
    assert_eq!(reserve(store, 20, sends([4]), 1).await, 0);
}

pub async fn a_key_has_places_beside_those_of_its_tenant(store: &dyn Inspect) {
    let key = |n| Some(KeyId(Uuid::from_u128(n)));
    let take = async |ms, of, ids, max| {
        let taken = store.at(time(ms)).reserve_sends(MINE, of, ids, max).await;
        taken.expect("the store answers")
    };
    register(store, 1).await;
    assert_eq!(take(0, key(1), sends([1, 2, 3]), 2).await, 2);
    assert_eq!(take(0, key(1), sends([1, 2, 3]), 2).await, 2, "a repeat");
    assert_eq!(take(0, key(2), sends([3]), 1).await, 1);
    assert_eq!(take(0, None, sends([1, 2, 3]), 3).await, 3);
    // Room is made by sends that end, places that are released and, after a minute, sends that were
    // never made.
    accept(store, 0, opening(1, 1)).await;
    cancel(store, 10, 1).await;
    assert_eq!(take(20, key(1), sends([4, 5]), 2).await, 1);
    let released = store.release_sends(MINE, key(1), sends([2, 3])).await;
    released.expect("the store answers");
    assert_eq!(take(20, key(1), sends([5, 6]), 2).await, 1);
    assert_eq!(take(20, key(2), sends([7]), 1).await, 0, "that is its own");
    let later = PLACE_KEPT_MS + 21;
    assert_eq!(take(later, key(1), sends([8, 9, 10]), 2).await, 2);
    assert_eq!(take(later, key(2), sends([7]), 1).await, 1);
    // Places are deleted with their tenant.
    let created = store.at(time(0)).create_tenant(new("blue"), None).await;
    created.expect("creates");
    let blue = TenantId(2);
    for ms in [0, 20] {
        let ids = sends([11 + u128::from(ms > 0)]);
        let taken = store.at(time(ms)).reserve_sends(blue, key(3), ids, 1).await;
        assert_eq!(taken.expect("the store answers"), 1);
        if ms == 0 {
            let deleted = store.at(time(10)).delete_tenant(blue).await;
            assert_eq!(deleted.expect("deletes"), DeleteTenantOutcome::Deleted);
        }
    }
}

async fn used(store: &dyn Inspect, tenant: TenantId, from: u128, until: u128) -> TenantUsage {
    let query = TenantUsageQuery {
        tenant,
        from: Uuid::from_u128(send(from).0.as_u128()),
        until: Uuid::from_u128(send(until).0.as_u128()),
    };
    let used = store.tenant_usage(query).await;
    used.expect("the store answers")
}

pub async fn what_sends_used_is_summed_by_a_range_of_their_ids(store: &dyn Inspect) {
    assert_eq!(used(store, MINE, 1, 9).await, TenantUsage::default());
    register(store, 1).await;
    for n in 1..=3 {
        accept(store, 0, opening(n, n)).await;
        let claimed = claim(store, 10, 1, n, n).await;
        complete(store, 20, ending(&claimed, AfterSend::Release)).await;
    }
    accept(store, 30, opening(4, 4)).await;
    let one = used(store, MINE, 1, 2).await;
    assert_eq!(one.sends, 1);
    assert!(one.calls > 0 && one.usage.input_tokens + one.usage.output_tokens > 0);
    let two = used(store, MINE, 2, 4).await;
    assert_eq!((two.sends, two.calls), (2, 2 * one.calls));
    assert_eq!(two.usage.input_tokens, 2 * one.usage.input_tokens);
    assert_eq!(two.usage.output_tokens, 2 * one.usage.output_tokens);
    assert_eq!(two.usage.cost_usd, one.usage.cost_usd.map(|usd| usd * 2.0));
    let open = used(store, MINE, 4, 9).await;
    assert_eq!((open.sends, open.calls), (1, 0));
    let first = async |tenant, from: u128| {
        let first = store.first_open_send(tenant, send(from)).await;
        first.expect("the store answers")
    };
    assert_eq!(first(MINE, 1).await, Some(send(4)), "the others have ended");
    assert_eq!(first(MINE, 4).await, Some(send(4)));
    assert_eq!(first(MINE, 5).await, None);
    assert_eq!(first(TenantId(2), 1).await, None);
    assert_eq!(used(store, TenantId(2), 1, 9).await, TenantUsage::default());
    assert_eq!(
        store.tenant_bytes(MINE).await.expect("the store answers"),
        0
    );
}
