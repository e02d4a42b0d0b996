//! A tenant that has one of many kinds of things.

use mainspring_shared::agent::OnBusy;
use mainspring_shared::agent::{AgentKey, AgentLimits, AgentName, AgentSpec};
use mainspring_shared::blob::BlobPlace;
use mainspring_shared::id::{MemoryId, RunKey, SessionKey, TenantId, TimerId};
use mainspring_shared::list::{Bounds, Change, ListName, NewEntry, WhenFull};
use mainspring_shared::pause::PauseKey;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::skill::SkillFault;
use mainspring_shared::store::{
    AcceptSend, AfterSend, ClaimOutcome, ClaimSession, CompleteSend, DeliverItem, EXTRACT_ROUND,
    EraseMemories, FoldAtRest, IdempotencyKey, Inspect, NewBlob, NewExtraction, NewMemory,
    NewPause, NewRun, NewSession, NewTimer, PauseWait, PublishAgent, PublishSkill, ReserveMoney,
    SaveMemory, SetAlias, SetProviderKey, Target, WriteList,
};
use mainspring_shared::tenant::Usd;
use mainspring_shared::timer::TimerTarget;
use mainspring_shared::workflow::run::RunAsk;
use serde_json::Map;
use uuid::Uuid;

use super::accounts::paid_vectors;
use super::agents::pointing;
use super::calibrations::learned;
use super::extractions::owed;
use super::folds::new_fold;
use super::mcp_lists::mcp_list;
use super::memories::erasure;
use super::money;
use super::pauses::{agent_key as paused_agent, pausing};
use super::prelude::one as one_of;
use super::prelude::*;
use super::projections::projected;
use super::provider_keys::setting;
use super::runs::new_run;
use super::skills::{skill, uploaded};
use super::tenants::{new_key, tenant};
use super::timers::once;
use super::webhooks::new_webhook;
use super::writes::new_blob;

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
    let name = IdempotencyKey::session(tenant, "its name".to_owned());
    store
        .create_sessions(vec![(session, Some(name))])
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

/// The session at rest whose send has ended, of the n-th tenant.
const RESTS: u128 = 10;
/// The session whose send waits for someone outside.
const WAITS: u128 = 11;

/// A tenant, and one more, each with one of nearly everything. What they have is numbered from
/// `from` on, so that more than one such pair fits into a store.
pub async fn two_tenants(store: &dyn Inspect, from: u128) -> (TenantId, TenantId) {
    let now = &*store.at(time(0));
    let (one, other) = (
        tenant(now, &format!("one-{from}")).await.id,
        tenant(now, &format!("other-{from}")).await.id,
    );
    for (tenant, n) in [(one, from + 1), (other, from + 2)] {
        furnish(store, tenant, n).await;
        register(store, n).await;
        works(store, tenant, n * 100).await;
        keeps(now, tenant, n * 100).await;
        event(now, tenant, n, 20).await;
        now.fan_out(100).await.expect("fans out");
        let run = new_run(n);
        let run = NewRun {
            key: RunKey { tenant, ..run.key },
            ..run
        };
        let key = run.key;
        now.create_runs(vec![run]).await.expect("creates");
        let ask = RunAsk::Cancel { reason: None };
        now.ask_runs(vec![(key, ask)]).await.expect("asks");
    }
    // Of these nobody has been told.
    for (tenant, n) in [(one, from + 1), (other, from + 2)] {
        event(now, tenant, n, 30).await;
    }
    (one, other)
}

/// Makes an event for a tenant's webhook: the end of one more send.
async fn event(now: &dyn Inspect, tenant: TenantId, n: u128, place: u128) {
    let id = n * 100 + place;
    let item = AcceptSend {
        target: Target::Existing(session_of(tenant, n)),
        ..sending(id, n)
    };
    let accepted = now.accept_sends(boot(SCHEDULER), vec![item]).await;
    accepted.expect("accepts");
    let sends = vec![(tenant, send(id))];
    now.cancel_sends(boot(SCHEDULER), sends)
        .await
        .expect("cancels");
}

/// One send that has ended, and one that waits for an answer, with words for it.
async fn works(store: &dyn Inspect, tenant: TenantId, n: u128) {
    let now = &*store.at(time(0));
    let worker = n / 100;
    for session in [n + RESTS, n + WAITS] {
        let new = NewSession {
            key: session_of(tenant, session),
            ..new_session(session)
        };
        let item = AcceptSend {
            target: Target::New(Box::new(new)),
            ..sending(session, session)
        };
        accept(store, 0, item).await;
        let item = ClaimSession {
            key: session_of(tenant, session),
            ..cold_claim(session, session)
        };
        let claimed = now.claim_sessions(boot(worker), vec![item]).await;
        let ClaimOutcome::Claimed(claimed) = one_of(claimed.expect("answers")) else {
            panic!("a claim was expected");
        };
        if session == n + WAITS {
            let begins = vec![waits(WaitingOn::Tool), settled()];
            wait_for_calls(store, 1, &claimed, WaitingOn::Tool, begins).await;
        } else {
            let item = CompleteSend {
                then: AfterSend::Release,
                ..projected(&claimed)
            };
            complete(store, 1, item).await;
        }
    }
    let words = DeliverItem {
        key: session_of(tenant, n + WAITS),
        ..item(&format!("item-{n}"), 1, OnBusy::Steer)
    };
    deliver(store, 3, words).await;
    let fold = FoldAtRest {
        key: session_of(tenant, n + RESTS),
        send_id: send(n + RESTS),
        boot: boot(worker),
        context_version: 0,
        fold: Some(new_fold(1, 2, 0)),
        usage: vec![usage_row(EXTRACT_ROUND, 77)],
    };
    let folded = store.at(time(3)).fold_at_rest(fold).await;
    folded.expect("folds");
    let owed = NewExtraction {
        key: session_of(tenant, n + RESTS),
        send_id: send(n + RESTS),
        ..owed("user/2")
    };
    store.at(time(3)).owe_extraction(owed).await.expect("owes");
    // A timer that has fired.
    let rule = once(n, n, 1);
    let fired = NewTimer {
        id: TimerId(Uuid::from_u128(n)),
        tenant,
        target: match rule.target {
            TimerTarget::Send { input, options, .. } => TimerTarget::Send {
                session: session_of(tenant, n + RESTS).session,
                input,
                options,
            },
            other @ TimerTarget::Run { .. } => other,
        },
        ..rule
    };
    now.create_timers(vec![(fired, None)])
        .await
        .expect("creates");
    let fired = store.at(time(4)).fire_timers(boot(SCHEDULER), 10).await;
    fired.expect("fires");
}

/// What a tenant has beside its work.
async fn keeps(now: &dyn Inspect, tenant: TenantId, n: u128) {
    let skill = PublishSkill {
        tenant,
        ..uploaded(&skill("pdf", "a"))
    };
    now.publish_skill(skill).await.expect("publishes");
    let faults = vec![SkillFault::of("SKILL.md", "is missing")];
    now.note_broken_skill(tenant, "broken".to_owned(), faults)
        .await
        .expect("notes");
    let provider = SetProviderKey {
        tenant,
        ..setting("main", "v1.x")
    };
    now.set_provider_key(provider).await.expect("sets");
    let pause = PauseKey {
        tenant,
        ..paused_agent()
    };
    let pausing = NewPause {
        key: pause.clone(),
        ..pausing()
    };
    now.pause(pausing).await.expect("pauses");
    let wait = PauseWait {
        tenant,
        send: send(n + WAITS),
        pause,
    };
    now.await_resume(wait).await.expect("notes");
    let session = session_of(tenant, n + RESTS);
    let list = WriteList {
        name: ListName::Notes(session.session),
        session,
        call_id: "call".to_owned(),
        change: Change::Add(NewEntry {
            text: "note".to_owned(),
            ..NewEntry::default()
        }),
        bounds: Bounds {
            entries_max: 3,
            chars_max: 100,
            when_full: WhenFull::Reject,
        },
    };
    now.write_list(list).await.expect("writes");
    let erasure = EraseMemories {
        tenant,
        ..erasure(n, "nobody", 10)
    };
    now.erase_memories(erasure).await.expect("erases");
    now.pay_for_vectors(tenant, vec![paid_vectors(n, None)])
        .await
        .expect("pays");
    let alias = SetAlias {
        key: AgentKey {
            tenant,
            name: "helper".parse().expect("a name"),
        },
        ..pointing("helper", "live", Some(1))
    };
    now.set_alias(alias).await.expect("points");
    let blob = new_blob();
    let place = BlobPlace {
        tenant,
        generation: Uuid::from_u128(n),
        ..blob.place
    };
    let blob = NewBlob { place, ..blob };
    now.begin_blob(blob).await.expect("begins");
    let stored = now.finish_blob(place, Some(session.session.into())).await;
    assert!(stored.expect("finishes"));
    now.write_blob_chunk(place, 0, bytes::Bytes::from_static(b"x"))
        .await
        .expect("writes");
    now.save_calibrations(vec![learned(&format!("m{n}"), 1_500_000, 1)])
        .await
        .expect("saves");
    now.save_mcp_list(mcp_list(&format!("server-{n}"), "[]"))
        .await
        .expect("saves");
}
