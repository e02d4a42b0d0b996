//! One row that cannot be read never stops a loop. Every text of every table is spoilt in turn, for
//! one tenant; then each method that reads rows of many must serve the others.

use std::time::Duration;

use mainspring_shared::id::TenantId;
use mainspring_shared::store::{
    ClaimDeliveries, ClaimOutcome, ClaimRuns, ClaimSession, Inspect, SweepOrphans, SweepReady,
};
use mainspring_tests::suites::store::furnished::{session_of, two_tenants};
use mainspring_tests::suites::store::prelude::*;

/// The tenant whose rows are spoilt, and one that has to be served all the same.
pub(crate) struct Two {
    pub(crate) sick: TenantId,
    well: TenantId,
}

impl Two {
    /// Gives two tenants one of many kinds of things each.
    pub(crate) async fn furnished(store: &dyn Inspect) -> Self {
        let (sick, well) = two_tenants(store).await;
        Self { sick, well }
    }
}

/// Runs all that loops do, and asserts that none of it fails and that the other tenant is served.
pub(crate) async fn loops_go_on(store: &dyn Inspect, two: &Two, spoilt: &str) {
    let now = &*store.at(time(9_000));
    let went = |what: &str, done: mainspring_shared::store::Result<()>| {
        if let Err(error) = done {
            panic!("{what}, with {spoilt} spoilt: {error:?}");
        }
    };
    went("list_boots", now.list_boots().await.map(drop));
    went("list_tools", now.list_tools().await.map(drop));
    went(
        "owned_sessions",
        now.owned_sessions(boot(1), None, 100).await.map(drop),
    );
    let ready = SweepReady {
        pool: None,
        older_than_ms: 0,
        after: None,
        limit: 100,
    };
    let swept = now.sweep_ready(ready).await;
    let swept =
        swept.unwrap_or_else(|error| panic!("sweep_ready, with {spoilt} spoilt: {error:?}"));
    let finds = swept.sessions.iter().any(|it| it.key.tenant == two.well);
    assert!(finds, "sweep_ready, with {spoilt} spoilt");
    went(
        "sweep_alarms",
        now.sweep_alarms(boot(SCHEDULER), 100).await.map(drop),
    );
    let orphans = SweepOrphans {
        older_than: Duration::ZERO,
        after: None,
        limit: 100,
    };
    went("sweep_orphans", now.sweep_orphans(orphans).await.map(drop));
    let fired = now.fire_timers(boot(SCHEDULER), 100).await;
    let fired =
        fired.unwrap_or_else(|error| panic!("fire_timers, with {spoilt} spoilt: {error:?}"));
    assert!(
        fired.served >= 1,
        "fire_timers, with {spoilt} spoilt: {fired:?}"
    );
    went(
        "sweep_timers",
        now.sweep_timers(Duration::ZERO).await.map(drop),
    );
    runs_and_deliveries_go_on(now, two, spoilt).await;
    went("expire_memories", now.expire_memories(10).await.map(drop));
    went("sweep_money", now.sweep_money(10).await.map(drop));
    went("money_tenants", now.money_tenants().await.map(drop));
    went("wake_paused", now.wake_paused(10).await.map(drop));
    went(
        "deleted_sessions",
        now.deleted_sessions(None, 10).await.map(drop),
    );
    went("erasing_tenants", now.erasing_tenants().await.map(drop));
    went("tenant_pools", now.tenant_pools().await.map(drop));
    went(
        "list_calibrations",
        now.list_calibrations(10).await.map(drop),
    );
    went("queue_stats", now.queue_stats().await.map(drop));
    went("call_seats", now.call_seats(None).await.map(drop));
    claims_go_on(now, two, spoilt).await;
}

/// That the other tenant's run and delivery are claimed.
async fn runs_and_deliveries_go_on(now: &dyn Inspect, two: &Two, spoilt: &str) {
    let runs = ClaimRuns {
        boot: boot(SCHEDULER),
        limit: 16,
        ends_max: 100,
        leaves_max: None,
        dsl_max: 100,
        aside: Vec::new(),
    };
    let claimed = now.claim_runs(runs).await;
    let claimed =
        claimed.unwrap_or_else(|error| panic!("claim_runs, with {spoilt} spoilt: {error:?}"));
    let finds = claimed.runs.iter().any(|it| it.key.tenant == two.well);
    assert!(finds, "claim_runs, with {spoilt} spoilt");
    let fanned = now.fan_out(100).await;
    fanned.unwrap_or_else(|error| panic!("fan_out, with {spoilt} spoilt: {error:?}"));
    let deliveries = ClaimDeliveries {
        lease: Duration::from_secs(10),
        each: 8,
        limit: 8,
        busy: Vec::new(),
        busy_tenants: Vec::new(),
    };
    let claimed = now.claim_deliveries(deliveries).await;
    let claimed =
        claimed.unwrap_or_else(|error| panic!("claim_deliveries, with {spoilt} spoilt: {error:?}"));
    let finds = claimed
        .deliveries
        .iter()
        .any(|it| it.webhook.tenant == two.well);
    assert!(finds, "claim_deliveries, with {spoilt} spoilt");
}

/// That the other tenant's session is claimed.
async fn claims_go_on(now: &dyn Inspect, two: &Two, spoilt: &str) {
    let claims = [two.sick, two.well].into_iter().zip([1, 2]);
    let claims = claims.map(|(tenant, n)| ClaimSession {
        key: session_of(tenant, n),
        token: token(n),
        cached_fold_end: 0,
        cached_next_seq: 0,
        cached_from_seq: 0,
        cached_version: 0,
        crashes_below: i32::MAX,
        orphans: true,
    });
    // Where one transaction claims all, a row that cannot be read fails it, and the caller asks one
    // by one.
    let claims: Vec<_> = claims.collect();
    let outcomes = match now.claim_sessions(boot(1), claims.clone()).await {
        Ok(outcomes) => outcomes,
        Err(error) if error.is_of_data() => {
            let well = vec![claims[1].clone()];
            let claimed = now.claim_sessions(boot(1), well).await;
            claimed.unwrap_or_else(|error| panic!("claim, with {spoilt} spoilt: {error:?}"))
        }
        Err(error) => panic!("claim, with {spoilt} spoilt: {error:?}"),
    };
    let last = outcomes.last().expect("one each");
    assert!(
        matches!(last, ClaimOutcome::Claimed(_)),
        "claim, with {spoilt} spoilt: {last:?}"
    );
}
