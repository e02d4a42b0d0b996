//! Every write method of the port in one place: a repeated call takes effect once, and a stale
//! writer changes nothing.

mod beginnings;
mod stale;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::{ErasureId, MemoryId, TenantId};
use mainspring_shared::lease::Lease;
use mainspring_shared::list::{Bounds, Change, List, ListName, NewEntry, WhenFull};
use mainspring_shared::memory::Embedding;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::{
    AppendCopies, CallAnswer, CallBegin, ChangeMemory, ChangeTimer, ChangeWebhook, ClaimDeliveries,
    ClaimRuns, ClaimUnembedded, Claimed, DeliveryEnd, Dump, EXTRACT_ROUND, EraseMemories,
    FoldAtRest, IdempotencyKey, ImportSession, Inspect, NewBoot, ParkUntil, PostResult,
    PruneSession, PruneTo, ReleaseLoss, ReleaseSession, ReserveMoney, RetireSends, Role, RotateKey,
    SessionPatch, SetEmbedding, SettleDelivery, TenantPatch, WriteList,
};
use mainspring_shared::timer::TimerChange;
use mainspring_shared::tool::CallResult;
use mainspring_shared::webhook::event_id;
use mainspring_shared::workflow::run::{DSL_VERSION, RunAsk};

pub(super) use self::beginnings::new_blob;
use self::beginnings::{
    BLUE, RETIRE_BLOBS, answered, asked, blob_begun, blob_stored, blue, blue_erasing, blue_key,
    claimed, remember, remembered, run_under_way,
};
use self::stale::{Stale, changes_nothing};
use super::accounts::paid_vectors;
use super::agent_money;
use super::agents::{agent_key, pointing, publish, publishing};
use super::calibrations::learned;
use super::copies::copied;
use super::extractions::{claiming, ending_with, owed};
use super::folds::new_fold;
use super::harness::Opened;
use super::mcp_lists::mcp_list;
use super::money;
use super::pauses::{agent_key as paused_agent, awaiting, parked, pausing};
use super::prelude::*;
use super::projections::projected;
use super::provider_keys::setting;
use super::runs::{advance_of, claim_runs, created, new_run, read_run, run_key};
use super::seats::one_waits;
use super::skills::{skill, uploaded};
use super::tenants::{new, new_key};
use super::timers::{once, session, timer_id};
use super::webhooks::{endpoint, new_webhook, under_delivery, webhook_id};
use uuid::Uuid;

/// A write method with a situation in which it writes something.
#[derive(Debug, Clone, Copy)]
pub struct Write {
    /// The method's name.
    pub name: &'static str,
    /// Whether it needs the lease obtained by `prepare`.
    pub leased: bool,
    /// Whether a repeat is a new request, which takes effect again.
    pub adds: bool,
    /// Sets up the situation, the same each time.
    pub prepare: for<'s> fn(&'s dyn Inspect) -> BoxFuture<'s, Option<Claimed>>,
    /// Makes the call, with the same arguments each time; returns whether it succeeded.
    pub call: for<'s> fn(&'s dyn Inspect, Option<&'s Claimed>) -> BoxFuture<'s, bool>,
}

/// When calls are made: after everything that was prepared.
const NOW: i64 = 1_000;

macro_rules! writes {
    ($($name:ident $([$flag:ident])? : |$before:ident| $prepare:expr, |$store:ident, $claimed:ident| $call:expr;)*) => {
        /// All write methods.
        pub const WRITES: &[Write] = &[$(Write {
            name: stringify!($name),
            leased: has(&[$(stringify!($flag))?], "leased"),
            adds: has(&[$(stringify!($flag))?], "adds"),
            prepare: |$before| async move { $prepare }.boxed(),
            call: |$store, $claimed| async move { $call.is_ok() }.boxed(),
        },)*];
    };
}

/// Whether a flag is given.
const fn has(flags: &[&str], flag: &str) -> bool {
    // Flags differ in their first letter.
    !flags.is_empty() && flags[0].as_bytes()[0] == flag.as_bytes()[0]
}

fn held(claimed: Option<&Claimed>) -> &Claimed {
    claimed.expect("a session was claimed")
}

writes! {
    register_boot: |_store| None, |store, _c| store.at(time(NOW)).register_boot(NewBoot {
        id: boot(7),
        role: Role::Worker,
        name: "seven".to_owned(),
        pool: "default".to_owned(),
        concurrency: 4,
        ttl: millis(TTL),
        protocol: mainspring_shared::store::PROTOCOL,
        tools: mainspring_shared::tool::Published::default(),
    }).await;
    renew_boot: |store| { register(store, 1).await; None },
        |store, _c| store.at(time(NOW)).renew_boot(boot(1), millis(TTL), 3).await;
    stop_boot: |store| claimed(store).await, |store, _c| store.at(time(NOW)).stop_boot(boot(1)).await;
    save_calibrations: |_store| None,
        |store, _c| store.at(time(NOW)).save_calibrations(vec![learned("m", 1_500_000, 1)]).await;
    save_mcp_list: |_store| None,
        |store, _c| store.at(time(NOW)).save_mcp_list(mcp_list("a", "[]")).await;
    create_sessions: |_store| None,
        |store, _c| store.at(time(NOW)).create_sessions(vec![(new_session(1), None)]).await;
    import_session: |_store| None, |store, _c| store.at(time(NOW)).import_session(ImportSession {
        projections: Vec::new(),
        folds: Vec::new(),
        session: new_session(1),
        messages: Vec::new(),
        todo: List::default(),
        notes: List::default(),
        idempotency: None, behind: 0, more: false, }).await;
    append_copies: |store| { session(store, 1).await; None },
        |store, _c| store.at(time(NOW)).append_copies(AppendCopies {
            key: key(1),
            messages: vec![copied(7)],
        }).await;
    update_session: |store| { session(store, 1).await; None },
        |store, _c| store.at(time(NOW)).update_session(key(1), SessionPatch {
            metadata: Some(serde_json::Map::from_iter([("a".to_owned(), 1.into())])),
            ..SessionPatch::default()
        }).await;
    delete_session: |store| claimed(store).await,
        |store, _c| store.at(time(NOW)).delete_session(key(1), boot(SCHEDULER)).await;
    erase_session: |store| {
        answered(store).await;
        let deleted = store.at(time(NOW - 1)).delete_session(key(1), boot(SCHEDULER)).await;
        deleted.expect("the store answers");
        None
    }, |store, _c| store.at(time(NOW)).erase_session(key(1), 500).await;
    prune_session: |store| answered(store).await,
        |store, _c| store.at(time(NOW)).prune_session(PruneSession {
            key: key(1),
            to: PruneTo::KeepLast(1),
            dry_run: false,
            limit: 500,
        }).await;
    fold_at_rest: |store| answered(store).await,
        |store, _c| store.at(time(NOW)).fold_at_rest(FoldAtRest {
            key: key(1),
            send_id: send(1),
            boot: boot(1),
            context_version: 0,
            fold: Some(new_fold(1, 2, 0)),
            usage: vec![usage_row(EXTRACT_ROUND, 77)],
        }).await;
    publish_agent: |_store| None,
        |store, _c| store.at(time(NOW)).publish_agent(publishing("reviewer", "Review.")).await;
    set_alias: |store| { publish(store, 0, "reviewer", "Review.").await; None },
        |store, _c| store.at(time(NOW)).set_alias(pointing("reviewer", "live", Some(1))).await;
    archive_agent: |store| { publish(store, 0, "reviewer", "Review.").await; None },
        |store, _c| store.at(time(NOW)).archive_agent(agent_key("reviewer"), true).await;
    publish_skill: |_store| None,
        |store, _c| store.at(time(NOW)).publish_skill(uploaded(&skill("pdf", "a"))).await;
    note_broken_skill: |_store| None, |store, _c| store.at(time(NOW)).note_broken_skill(
        TenantId::DEFAULT, "pdf".to_owned(), Vec::new(),
    ).await;
    remove_skill: |store| {
        let published = store.at(time(0)).publish_skill(uploaded(&skill("pdf", "a"))).await;
        published.expect("the store answers");
        None
    }, |store, _c| store.at(time(NOW)).remove_skill(
        TenantId::DEFAULT, "pdf".to_owned(), true,
    ).await;
    create_tenant: |_store| None,
        |store, _c| store.at(time(NOW)).create_tenant(new("blue"), None).await;
    update_tenant: |store| { blue(store).await; None },
        |store, _c| store.at(time(NOW)).update_tenant(BLUE, TenantPatch {
            name: Some("green".to_owned()),
            ..TenantPatch::default()
        }).await;
    delete_tenant: |store| { blue(store).await; None },
        |store, _c| store.at(time(NOW)).delete_tenant(BLUE).await;
    begin_tenant_erasure: |store| { blue_key(store).await; None },
        |store, _c| store.at(time(NOW)).begin_tenant_erasure(BLUE).await;
    erase_tenant_rows: |store| { blue_erasing(store).await; None },
        |store, _c| store.at(time(NOW)).erase_tenant_rows(BLUE, 100).await;
    note_tenant_erasure: |store| { blue_erasing(store).await; None },
        |store, _c| store.at(time(NOW)).note_tenant_erasure(BLUE, Some("x".to_owned())).await;
    create_key: |store| { blue(store).await; None },
        |store, _c| store.at(time(NOW)).create_key(new_key(1, BLUE), None).await;
    rotate_key: |store| { blue_key(store).await; None },
        |store, _c| store.at(time(NOW)).rotate_key(RotateKey {
            tenant: BLUE,
            id: new_key(1, BLUE).id,
            hash: [9; 32],
            overlap_ms: 1_000,
        }).await;
    revoke_key: |store| { blue_key(store).await; None },
        |store, _c| store.at(time(NOW)).revoke_key(BLUE, new_key(1, BLUE).id).await;
    touch_keys: |store| { blue_key(store).await; None },
        |store, _c| store.at(time(NOW)).touch_keys(vec![new_key(1, BLUE).id]).await;
    create_webhook: |_store| None,
        |store, _c| store.at(time(NOW)).create_webhook(new_webhook(1, &["*"]), None).await;
    change_webhook: |store| { endpoint(store, 1, &["*"]).await; None },
        |store, _c| store.at(time(NOW)).change_webhook(ChangeWebhook {
            url: Some("https://new.example".to_owned()),
            ..ChangeWebhook::nothing(TenantId::DEFAULT, webhook_id(1))
        }).await;
    delete_webhook: |store| { endpoint(store, 1, &["*"]).await; None },
        |store, _c| store.at(time(NOW)).delete_webhook(TenantId::DEFAULT, webhook_id(1)).await;
    settle_deliveries: |store| {
        under_delivery(store).await;
        let claim = ClaimDeliveries { lease: millis(10), each: 1, limit: 1, busy: Vec::new(), busy_tenants: Vec::new() };
        store.at(time(40)).claim_deliveries(claim).await.expect("the store answers");
        None
    }, |store, _c| {
        let event = event_id(TenantId::DEFAULT, key(1).session.0, 2, time(20));
        store.at(time(NOW)).settle_deliveries(vec![SettleDelivery {
            tenant: TenantId::DEFAULT,
            webhook: webhook_id(1),
            event,
            attempt: 1,
            answer: Some(200),
            error: None,
            end: DeliveryEnd::Delivered,
        }]).await
    };
    redeliver: |store| { under_delivery(store).await; None }, |store, _c| {
        let event = event_id(TenantId::DEFAULT, key(1).session.0, 2, time(20));
        store.at(time(NOW)).redeliver(TenantId::DEFAULT, webhook_id(1), event).await
    };
    reserve_sends: |_store| None,
        |store, _c| store.at(time(NOW)).reserve_sends(TenantId::DEFAULT, None, vec![send(1)], 1).await;
    release_sends: |store| {
        let taken = store.at(time(0)).reserve_sends(TenantId::DEFAULT, None, vec![send(1)], 1).await;
        taken.expect("the store answers");
        None
    }, |store, _c| store.at(time(NOW)).release_sends(TenantId::DEFAULT, None, vec![send(1)]).await;
    call_seats: |store| { one_waits(store).await; None },
        |store, _c| store.at(time(NOW)).call_seats(None).await;
    pause: |_store| None, |store, _c| store.at(time(NOW)).pause(pausing()).await;
    resume: |store| {
        store.at(time(0)).pause(pausing()).await.expect("the store answers");
        None
    }, |store, _c| store.at(time(NOW)).resume(paused_agent()).await;
    await_resume: |store| claimed(store).await,
        |store, _c| store.at(time(NOW)).await_resume(awaiting(paused_agent())).await;
    wake_paused: |store| {
        store.at(time(0)).pause(pausing()).await.expect("the store answers");
        parked(store, &paused_agent()).await;
        store.at(time(30)).resume(paused_agent()).await.expect("the store answers");
        None
    }, |store, _c| store.at(time(NOW)).wake_paused(10).await;
    reserve_money: |store| { limited(store).await; None },
        |store, _c| store.at(time(NOW)).reserve_money(both_ask()).await;
    settle_money: |store| {
        limited(store).await;
        money::reserve(store, 10, both_ask()).await;
        None
    }, |store, _c| store.at(time(NOW)).settle_money(vec![
        money::costing(1, Some(7)),
        money::costing(2, Some(5)),
    ]).await;
    sweep_money: |store| {
        limited(store).await;
        money::reserve(store, 10, both_ask()).await;
        None
    }, |store, _c| store.at(time(NOW)).sweep_money(10).await;
    set_provider_key: |_store| None,
        |store, _c| store.at(time(NOW)).set_provider_key(setting("main", "v1.x")).await;
    delete_provider_key: |store| {
        let set = store.at(time(0)).set_provider_key(setting("main", "v1.x")).await;
        set.expect("the store answers");
        None
    }, |store, _c| store.at(time(NOW)).delete_provider_key(TenantId::DEFAULT, "main".to_owned()).await;
    owe_extraction: |_store| None,
        |store, _c| store.at(time(NOW)).owe_extraction(owed("user/1")).await;
    claim_extractions: |store| {
        answered(store).await;
        let owed = store.at(time(30)).owe_extraction(owed("user/1")).await;
        owed.expect("the store answers");
        None
    }, |store, _c| store.at(time(NOW)).claim_extractions(
        claiming(Some((TenantId::DEFAULT, send(1)))),
    ).await;
    end_extraction: |store| {
        answered(store).await;
        let owed = store.at(time(30)).owe_extraction(owed("user/1")).await;
        owed.expect("the store answers");
        let taken = claiming(Some((TenantId::DEFAULT, send(1))));
        store.at(time(40)).claim_extractions(taken).await.expect("the store answers");
        None
    }, |store, _c| store.at(time(NOW)).end_extraction(ending_with(Uuid::from_u128(0x70))).await;
    save_memory: |_store| None,
        |store, _c| store.at(time(NOW)).save_memory(remembered(None)).await;
    change_memory: |store| { remember(store).await; None },
        |store, _c| store.at(time(NOW)).change_memory(ChangeMemory {
            tenant: TenantId::DEFAULT,
            id: MemoryId(Uuid::from_u128(1)),
            text: Some("other".to_owned()),
            metadata: None,
            expires_at: None,
            source: None,
        }).await;
    delete_memory: |store| { remember(store).await; None },
        |store, _c| store.at(time(NOW)).delete_memory(
            TenantId::DEFAULT, None, MemoryId(Uuid::from_u128(1)),
        ).await;
    erase_memories: |store| { remember(store).await; None },
        |store, _c| store.at(time(NOW)).erase_memories(EraseMemories {
            tenant: TenantId::DEFAULT,
            namespace: "user".parse().expect("a namespace"),
            erasure: ErasureId(Uuid::from_u128(3)),
            fingerprint: "print".to_owned(),
            by: "operator".to_owned(),
            limit: 500,
        }).await;
    claim_unembedded: |store| { remember(store).await; None },
        |store, _c| store.at(time(NOW)).claim_unembedded(ClaimUnembedded {
            lease: Duration::from_mins(5),
            limit: 10,
        }).await;
    set_embedding: |store| { remember(store).await; None },
        |store, _c| store.at(time(NOW)).set_embedding(SetEmbedding {
            tenant: TenantId::DEFAULT,
            id: MemoryId(Uuid::from_u128(1)),
            text: "likes tea".to_owned(),
            embedding: Some(Embedding { model: "m".to_owned(), vector: vec![1.0, 0.0] }),
            paid: None,
        }).await;
    pay_for_vectors: |_store| None,
        |store, _c| store.at(time(NOW)).pay_for_vectors(
            TenantId::DEFAULT, vec![paid_vectors(1, None)],
        ).await;
    expire_memories: |store| {
        let saved = store.at(time(0)).save_memory(remembered(Some(time(NOW)))).await;
        saved.expect("the store answers");
        None
    }, |store, _c| store.at(time(NOW)).expire_memories(500).await;
    begin_blob: |_store| None, |store, _c| store.at(time(NOW)).begin_blob(new_blob()).await;
    finish_blob: |store| blob_begun(store).await, |store, _c| {
        let owner = Some(key(1).session.into());
        store.at(time(NOW)).finish_blob(new_blob().place, owner).await
    };
    hold_blobs: |store| blob_stored(store).await, |store, _c| {
        let (place, owner) = (new_blob().place, key(1).session.into());
        store.at(time(NOW)).hold_blobs(place.tenant, owner, vec![place.sha256]).await
    };
    retire_blobs: |store| blob_stored(store).await,
        |store, _c| store.at(time(NOW)).retire_blobs(RETIRE_BLOBS).await;
    forget_blob: |store| {
        blob_stored(store).await;
        let marked = store.at(time(NOW - 1)).retire_blobs(RETIRE_BLOBS).await;
        marked.expect("the store answers");
        None
    }, |store, _c| store.at(time(NOW)).forget_blob(new_blob().place).await;
    write_blob_chunk: |_store| None,
        |store, _c| store.write_blob_chunk(new_blob().place, 0, Bytes::from_static(b"x")).await;
    drop_blob_chunks: |_store| None,
        |store, _c| store.drop_blob_chunks(new_blob().place, 1).await;
    write_list: |store| { session(store, 1).await; None },
        |store, _c| store.at(time(NOW)).write_list(WriteList {
            name: ListName::Notes(key(1).session),
            session: key(1),
            call_id: "call".to_owned(),
            change: Change::Add(NewEntry { text: "note".to_owned(), ..NewEntry::default() }),
            bounds: Bounds { entries_max: 3, chars_max: 100, when_full: WhenFull::Reject },
        }).await;
    accept_sends: |store| { session(store, 1).await; None },
        |store, _c| store.at(time(NOW)).accept_sends(boot(SCHEDULER), vec![sending(1, 1)]).await;
    take_key: |_store| None, |store, _c| store.at(time(NOW)).take_key(IdempotencyKey {
        tenant: TenantId::DEFAULT,
        route: "POST /v1/sends:batch".to_owned(),
        key: "once".to_owned(),
        body_hash: [7; 32],
    }).await;
    cancel_sends: |store| asked(store).await,
        |store, _c| store.at(time(NOW)).cancel_sends(
            boot(SCHEDULER), vec![(TenantId::DEFAULT, send(1))],
        ).await;
    deliver_items: |store| claimed(store).await,
        |store, _c| store.at(time(NOW)).deliver_items(
            boot(SCHEDULER), vec![item("a", 1, OnBusy::Interrupt)],
        ).await;
    post_results: |store| asked(store).await,
        |store, c| store.at(time(NOW)).post_results(vec![PostResult {
            key: key(1),
            call_id: call(held(c), 0, 0),
            answer: CallAnswer::Result(CallResult::text("x")),
        }]).await;
    report_children: |store| {
        let parent = running(store).await;
        let begins = vec![waits(WaitingOn::Agent)];
        wait_for_calls(store, 20, &parent, WaitingOn::Agent, begins).await;
        accept(store, 30, child(2, 2, 1, &call(&parent, 0, 0))).await;
        cancel(store, 31, 2).await;
        None
    }, |store, _c| store.at(time(NOW)).report_children(None, 10).await;
    resume_recovery: |store| {
        let claimed = running(store).await;
        park(store, 20, waiting(&claimed, WaitingOn::Recovery, ParkUntil::Asked)).await;
        None
    }, |store, _c| store.at(time(NOW)).resume_recovery(boot(SCHEDULER), key(1)).await;
    create_timers: |store| { session(store, 1).await; None },
        |store, _c| store.at(time(NOW)).create_timers(vec![(once(1, 1, 50), None)]).await;
    change_timers: |store| {
        session(store, 1).await;
        let made = store.at(time(0)).create_timers(vec![(once(1, 1, 50), None)]).await;
        made.expect("the store answers");
        None
    }, |store, _c| store.at(time(NOW)).change_timers(vec![ChangeTimer {
        tenant: TenantId::DEFAULT,
        id: timer_id(1),
        session: None,
        change: TimerChange::Cancel,
    }]).await;
    fire_timers: |store| {
        session(store, 1).await;
        let made = store.at(time(0)).create_timers(vec![(once(1, 1, 50), None)]).await;
        made.expect("the store answers");
        None
    }, |store, _c| store.at(time(NOW)).fire_timers(boot(SCHEDULER), 10).await;
    sweep_timers: |store| {
        session(store, 1).await;
        let made = store.at(time(0)).create_timers(vec![(once(1, 1, 50), None)]).await;
        made.expect("the store answers");
        let fired = store.at(time(60)).fire_timers(boot(SCHEDULER), 10).await;
        fired.expect("the store answers");
        None
    }, |store, _c| store.at(time(NOW)).sweep_timers(millis(10)).await;
    claim_sessions: |store| {
        register(store, 1).await;
        accept(store, 0, opening(1, 1)).await;
        None
    }, |store, _c| store.at(time(NOW)).claim_sessions(boot(1), vec![cold_claim(1, 9)]).await;
    append_rounds[leased]: |store| {
        let claimed = running(store).await;
        append(store, 20, asking(&claimed, 0, vec![CallBegin::Started])).await;
        Some(Claimed { lease: Lease { write: 1, ..claimed.lease }, ..claimed })
    }, |store, c| {
        let id = call(held(c), 0, 0);
        let mut item = changing(held(c), 0, vec![settling(&id, "seen")]);
        item.messages = vec![tool_result(&id, 0, 1)];
        store.at(time(NOW)).append_rounds(vec![item]).await
    };
    complete_sends[leased]: |store| {
        let claimed = running(store).await;
        accept(store, 11, sending(2, 1)).await;
        Some(claimed)
    }, |store, c| store.at(time(NOW)).complete_sends(vec![projected(held(c))]).await;
    park_sends[leased]: |store| claimed(store).await, |store, c| {
        let wait = waiting(held(c), WaitingOn::Retry, ParkUntil::After(millis(5)));
        store.at(time(NOW)).park_sends(vec![wait]).await
    };
    release_sessions[leased]: |store| claimed(store).await,
        |store, c| store.at(time(NOW)).release_sessions(vec![ReleaseSession {
            key: held(c).key,
            lease: held(c).lease,
            lost: ReleaseLoss::Nothing,
        }]).await;
    create_runs: |_store| None, |store, _c| store.at(time(NOW)).create_runs(vec![new_run(1)]).await;
    ask_runs[adds]: |store| run_under_way(store).await,
        |store, _c| store.at(time(NOW)).ask_runs(
            vec![(run_key(1), RunAsk::Cancel { reason: None })],
        ).await;
    claim_runs: |store| {
        register(store, 1).await;
        created(store, 0, new_run(1)).await;
        None
    }, |store, _c| store.at(time(NOW)).claim_runs(ClaimRuns {
        boot: boot(1),
        limit: 10,
        ends_max: 10,
        leaves_max: None,
        dsl_max: DSL_VERSION,
        aside: Vec::new(),
    }).await;
    advance_runs: |store| {
        register(store, 1).await;
        created(store, 0, new_run(1)).await;
        claim_runs(store, 1, 1).await;
        None
    }, |store, _c| {
        let record = read_run(store, 1).await;
        store.at(time(NOW)).advance_runs(boot(1), vec![advance_of(&record, 0)]).await
    };
    release_runs: |store| run_under_way(store).await,
        |store, _c| store.release_runs(boot(1), vec![run_key(1)]).await;
    forget_runs: |store| run_under_way(store).await,
        |store, _c| store.forget_runs(vec![run_key(1)]).await;
    sweep_alarms: |store| { accept(store, 0, with(opening(1, 1), delayed(50))).await; None },
        |store, _c| store.at(time(NOW)).sweep_alarms(boot(SCHEDULER), 10).await;
    sweep_retention: |store| { register(store, 1).await; None },
        |store, _c| store.at(time(NOW)).sweep_retention(millis(1)).await;
    retire_sends: |store| answered(store).await, |store, _c| store.at(time(NOW)).retire_sends(RetireSends {
        tenant: TenantId::DEFAULT,
        keep: millis(10),
        young: millis(10),
        after: None,
        limit: 100,
    }).await;
}

/// Limits the money of the default tenant and of one of its agents.
async fn limited(store: &dyn Inspect) {
    money::limit(store, 0, Some(100), None).await;
    agent_money::limit_agent(store, 0, "support", agent_money::of_day(50)).await;
}

/// A call by that agent, and one without an agent.
fn both_ask() -> Vec<ReserveMoney> {
    let of_agent = agent_money::asked_by("support", 2, 30);
    vec![money::asking(1, 60), of_agent]
}

async fn dumped(store: &dyn Inspect) -> Dump {
    store.dump().await.expect("the store answers")
}

/// The state after one call, or after two if a repeat takes effect again.
pub async fn once_done(write: &Write, store: &dyn Inspect) -> Dump {
    let claimed = (write.prepare)(store).await;
    assert!(
        (write.call)(store, claimed.as_ref()).await,
        "{}",
        write.name
    );
    if write.adds {
        (write.call)(store, claimed.as_ref()).await;
    }
    dumped(store).await
}

/// Makes every write twice, and every write under a lease as a stale writer, each on a store of its
/// own. Does nothing if the store cannot be opened here.
pub fn assert_written_once<O, F>(open: impl Fn() -> F)
where
    O: Opened,
    F: Future<Output = Option<O>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime starts");
    runtime.block_on(async {
        for write in WRITES.iter().filter(|write| !write.adds) {
            let Some(opened) = open().await else { return };
            let store = opened.store();
            let claimed = (write.prepare)(store).await;
            assert!(
                (write.call)(store, claimed.as_ref()).await,
                "{}",
                write.name
            );
            let once = dumped(store).await;
            // A repeat may be answered as such.
            (write.call)(store, claimed.as_ref()).await;
            assert_eq!(dumped(store).await, once, "{}", write.name);
            opened.close().await;
        }
        for write in WRITES.iter().filter(|write| write.leased) {
            for stale in Stale::ALL {
                let Some(opened) = open().await else { return };
                changes_nothing(write, stale, opened.store()).await;
                opened.close().await;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_write_of_the_port_is_listed() {
        let mut methods = Vec::new();
        macro_rules! note {
            ($noun:ident: $($kind:ident $name:ident($($args:tt)*) -> $out:ty;)*) => {
                methods.extend([$((stringify!($kind), stringify!($name))),*]);
            };
        }
        mainspring_shared::store_methods!(note);
        let listed: Vec<&str> = WRITES.iter().map(|write| write.name).collect();
        for (kind, name) in &methods {
            let is_missing = *kind == "write" && !listed.contains(name);
            assert!(!is_missing, "{name} writes and is not listed");
        }
        for name in listed {
            let is_known = methods.iter().any(|(_, method)| *method == name);
            assert!(is_known, "{name} is no method of the port");
        }
    }
}
