//! A tenant that has one of many kinds of things.

use mainspring_shared::agent::{AgentKey, AgentLimits, AgentName, AgentSpec};
use mainspring_shared::id::{MemoryId, RunKey, SessionKey, TenantId, TimerId};
use mainspring_shared::store::{
    AcceptSend, IdempotencyKey, Inspect, NewMemory, NewRun, NewSession, NewTimer, PublishAgent,
    ReserveMoney, SaveMemory, Target,
};
use mainspring_shared::tenant::Usd;
use mainspring_shared::timer::TimerTarget;
use serde_json::Map;
use uuid::Uuid;

use super::money;
use super::prelude::*;
use super::runs::new_run;
use super::tenants::{new_key, tenant};
use super::timers::once;
use super::webhooks::new_webhook;

/// The n-th session of a tenant.
pub fn session_of(tenant: TenantId, n: u128) -> SessionKey {
    SessionKey { tenant, ..key(n) }
}

/// Gives a tenant one of many kinds of things, with IDs that differ from other tenants'.
pub async fn furnish(store: &dyn Inspect, tenant: TenantId, n: u128) {
    let store = &*store.at(time(0));
    let request = |route: &str| IdempotencyKey {
        tenant,
        route: route.to_owned(),
        key: "k".to_owned(),
        body_hash: [1; 32],
    };
    store
        .create_key(new_key(n, tenant), Some(request("keys")))
        .await
        .expect("creates");
    let session = NewSession {
        key: session_of(tenant, n),
        ..new_session(n)
    };
    store
        .create_sessions(vec![(session, Some(request("sessions")))])
        .await
        .expect("creates");
    let sending = AcceptSend {
        target: Target::Existing(session_of(tenant, n)),
        ..sending(n, n)
    };
    store
        .accept_sends(boot(SCHEDULER), vec![sending])
        .await
        .expect("accepts");
    let timer = once(n, n, 5_000);
    let timer = NewTimer {
        id: TimerId(Uuid::from_u128(n)),
        tenant,
        target: match timer.target {
            TimerTarget::Send { input, options, .. } => TimerTarget::Send {
                session: session_of(tenant, n).session,
                input,
                options,
            },
            other @ TimerTarget::Run { .. } => other,
        },
        ..timer
    };
    store
        .create_timers(vec![(timer, None)])
        .await
        .expect("creates");
    let memory = SaveMemory {
        tenant,
        entry: NewMemory {
            id: MemoryId(Uuid::from_u128(n)),
            namespace: "user/1".parse().expect("a namespace"),
            text: "likes tea".to_owned(),
            metadata: Map::new(),
            source: None,
            expires_at: None,
        },
        idempotency: None,
    };
    store.save_memory(memory).await.expect("saves");
    let name: AgentName = "helper".parse().expect("a name");
    let limits = AgentLimits {
        usd_per_day: Some(Usd(50)),
        ..AgentLimits::default()
    };
    let agent = PublishAgent {
        key: AgentKey {
            tenant,
            name: name.clone(),
        },
        spec: AgentSpec::default(),
        limits: Some(limits),
        idempotency: None,
    };
    store.publish_agent(agent).await.expect("publishes");
    let aside = ReserveMoney {
        tenant,
        agent: Some(name),
        ..money::asking(n, 5)
    };
    let had = store.reserve_money(vec![aside]).await.expect("answers");
    assert_eq!(had, [money::granted(5)]);
    let webhook = mainspring_shared::store::NewWebhook {
        tenant,
        ..new_webhook(n, &["*"])
    };
    store.create_webhook(webhook, None).await.expect("creates");
    let of_key = Some(mainspring_shared::id::KeyId(Uuid::from_u128(n)));
    for key in [None, of_key] {
        let places = vec![send(n + 500)];
        let taken = store.reserve_sends(tenant, key, places, 5).await;
        taken.expect("reserves");
    }
}

/// A tenant, and one more, each with one of many kinds of things.
pub async fn two_tenants(store: &dyn Inspect) -> (TenantId, TenantId) {
    let now = &*store.at(time(0));
    let (one, other) = (tenant(now, "one").await.id, tenant(now, "other").await.id);
    for (tenant, n) in [(one, 1), (other, 2)] {
        furnish(store, tenant, n).await;
        register(store, n).await;
        // An event for the tenant's webhook.
        let item = AcceptSend {
            target: Target::Existing(session_of(tenant, n)),
            ..sending(n + 20, n)
        };
        let accepted = now.accept_sends(boot(SCHEDULER), vec![item]).await;
        accepted.expect("accepts");
        let sends = vec![(tenant, send(n + 20))];
        now.cancel_sends(boot(SCHEDULER), sends)
            .await
            .expect("cancels");
        let run = new_run(n);
        let run = NewRun {
            key: RunKey { tenant, ..run.key },
            ..run
        };
        now.create_runs(vec![run]).await.expect("creates");
    }
    (one, other)
}
