//! Nouns whose items come in groups of several tenants, which are split by database.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::agent::AgentName;
use mainspring_shared::id::WebhookEventId;
use mainspring_shared::id::{BootId, RunKey, SendId, SessionKey, TenantId, TimerId, WebhookId};
use mainspring_shared::inbox::InboxItem;
use mainspring_shared::send::SendRecord;
use mainspring_shared::session::SessionRecord;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, AdvanceOutcome, AdvanceRun, AppendCopies, AppendOutcome,
    AppendRound, Calls, CancelOutcome, ChangeTimer, ChangeTimerOutcome, ChangeWebhook,
    ClaimDeliveries, ClaimOutcome, ClaimRuns, ClaimSession, ClaimableCalls, ClaimedDeliveries,
    ClaimedRuns, CompleteOutcome, CompleteSend, CopiesOutcome, CreateOutcome, CreateRunOutcome,
    CreateTimerOutcome, CreateWebhookOutcome, DeleteOutcome, DeletedSession, DeliverItem,
    DeliverOutcome, Erased, Error, FannedOut, Fired, FoldAtRest, FoldedAtRest, IdempotencyKey,
    ImportSession, KeyOutcome, Leases, ListDeliveries, ListOccurrences, ListRuns, ListSends,
    ListSessions, ListTimers, ListWaitingCalls, ListWebhooks, Money, NewRun, NewSession, NewTimer,
    NewWebhook, Page, ParkOutcome, ParkSend, PostOutcome, PostResult, PruneOutcome, PruneSession,
    ReadInbox, ReadNodes, ReleaseSession, ReportOutcome, ReserveMoney, ReserveMoneyOutcome, Result,
    RetireDeliveries, RetireSends, Retired, RunStep, Runs, Sends, SessionPatch, SessionUsage,
    Sessions, SettleDelivery, SettleMoney, Timers, UpdateOutcome, Webhooks,
};
use mainspring_shared::tenant::LedgerSpent;
use mainspring_shared::timer::{Occurrence, TimerRecord};
use mainspring_shared::tool::CallRecord;
use mainspring_shared::webhook::{DeliveryRecord, WebhookRecord};
use mainspring_shared::workflow::run::{NodeRecord, RunAsk, RunRecord};

use uuid::Uuid;

use super::by_tenant::placed;
use super::{claims, everywhere};
use crate::store::PlacedStore;

placed! { Sends:
    fn accept_sends(boot: BootId, items: Vec<AcceptSend>) -> Vec<AcceptOutcome> = by (accept_sends);
    fn take_key(key: IdempotencyKey) -> KeyOutcome = at (key.tenant);
    fn keyed_resource(key: IdempotencyKey) -> Option<Uuid> = at (key.tenant);
    fn cancel_sends(
        boot: BootId,
        items: Vec<(TenantId, SendId)>,
    ) -> Vec<CancelOutcome> = by (cancel_sends);
    fn deliver_items(
        boot: BootId,
        items: Vec<DeliverItem>,
    ) -> Vec<DeliverOutcome> = by (deliver_items);
    fn resume_recovery(boot: BootId, key: SessionKey) -> Option<SendId> = at (key.tenant);
    fn retire_sends(query: RetireSends) -> Retired = at (query.tenant);
    fn get_sends(ids: Vec<(TenantId, SendId)>) -> Vec<Option<SendRecord>> = by (get_sends);
    fn list_sends(query: ListSends) -> Page<SendRecord> = at (query.tenant);
}

async fn accept_sends(
    store: &PlacedStore,
    boot: BootId,
    items: Vec<AcceptSend>,
) -> Result<Vec<AcceptOutcome>> {
    let tenant = |item: &AcceptSend| item.target.key().tenant;
    let later = Some(AcceptOutcome::Locked);
    let call = |place: Shared, items| async move { place.store.accept_sends(boot, items).await };
    store.split(items, tenant, later, call).await
}

async fn cancel_sends(
    store: &PlacedStore,
    boot: BootId,
    items: Vec<(TenantId, SendId)>,
) -> Result<Vec<CancelOutcome>> {
    let later = Some(CancelOutcome::Locked);
    let call = |place: Shared, items| async move { place.store.cancel_sends(boot, items).await };
    store.split(items, |(tenant, _)| *tenant, later, call).await
}

async fn deliver_items(
    store: &PlacedStore,
    boot: BootId,
    items: Vec<DeliverItem>,
) -> Result<Vec<DeliverOutcome>> {
    let later = Some(DeliverOutcome::Locked);
    let call = |place: Shared, items| async move { place.store.deliver_items(boot, items).await };
    store
        .split(items, |item| item.key.tenant, later, call)
        .await
}

async fn get_sends(
    store: &PlacedStore,
    ids: Vec<(TenantId, SendId)>,
) -> Result<Vec<Option<SendRecord>>> {
    let call = |place: Shared, ids| async move { place.store.get_sends(ids).await };
    store.split(ids, |(tenant, _)| *tenant, None, call).await
}

/// A database, for the closure that calls it.
type Shared = std::sync::Arc<crate::place::Place>;

placed! { Leases:
    fn claim_sessions(boot: BootId, items: Vec<ClaimSession>) -> Vec<ClaimOutcome> = by (claim_sessions);
    fn append_rounds(items: Vec<AppendRound>) -> Vec<AppendOutcome> = by (append_rounds);
    fn complete_sends(items: Vec<CompleteSend>) -> Vec<CompleteOutcome> = by (complete_sends);
    fn park_sends(items: Vec<ParkSend>) -> Vec<ParkOutcome> = by (park_sends);
    fn release_sessions(items: Vec<ReleaseSession>) -> Vec<bool> = by (release_sessions);
}

async fn claim_sessions(
    store: &PlacedStore,
    boot: BootId,
    items: Vec<ClaimSession>,
) -> Result<Vec<ClaimOutcome>> {
    let call = |place: Shared, mut items: Vec<ClaimSession>| async move {
        // After an outage of this database the owners of its sessions may be alive and need time to
        // renew their leases.
        let is_settled = place.is_settled();
        for item in &mut items {
            item.orphans &= is_settled;
        }
        place.store.claim_sessions(boot, items).await
    };
    // A session that was granted all the same is released later, as one that its owner does not
    // run.
    let later = Some(ClaimOutcome::Busy);
    store
        .split(items, |item| item.key.tenant, later, call)
        .await
}

async fn append_rounds(store: &PlacedStore, items: Vec<AppendRound>) -> Result<Vec<AppendOutcome>> {
    let later = Some(AppendOutcome::Locked);
    let call = |place: Shared, items| async move { place.store.append_rounds(items).await };
    store
        .split(items, |item| item.key.tenant, later, call)
        .await
}

async fn complete_sends(
    store: &PlacedStore,
    items: Vec<CompleteSend>,
) -> Result<Vec<CompleteOutcome>> {
    let later = Some(CompleteOutcome::Locked);
    let call = |place: Shared, items| async move { place.store.complete_sends(items).await };
    store
        .split(items, |item| item.key.tenant, later, call)
        .await
}

async fn park_sends(store: &PlacedStore, items: Vec<ParkSend>) -> Result<Vec<ParkOutcome>> {
    let later = Some(ParkOutcome::Locked);
    let call = |place: Shared, items| async move { place.store.park_sends(items).await };
    store
        .split(items, |item| item.key.tenant, later, call)
        .await
}

async fn release_sessions(store: &PlacedStore, items: Vec<ReleaseSession>) -> Result<Vec<bool>> {
    // Sessions that could not be released are found later, as ones that their owner does not run.
    let call = |place: Shared, items| async move { place.store.release_sessions(items).await };
    store
        .split(items, |item| item.key.tenant, Some(false), call)
        .await
}

placed! { Calls:
    fn post_results(items: Vec<PostResult>) -> Vec<PostOutcome> = by (post_results);
    fn report_children(
        sends: Option<Vec<(TenantId, SendId)>>,
        limit: u32,
    ) -> Vec<ReportOutcome> = by (report_children);
    fn read_round(key: SessionKey, send: SendId, round: i32) -> Vec<CallRecord> = at (key.tenant);
    fn get_calls(ids: Vec<(TenantId, String)>) -> Vec<Option<CallRecord>> = by (get_calls);
    fn list_waiting_calls(query: ListWaitingCalls) -> Page<CallRecord> = at (query.tenant);
    fn claimable_calls(query: ClaimableCalls) -> Page<CallRecord> = at (query.tenant);
    fn lapsed_calls(limit: u32) -> Vec<(SessionKey, String)> = by (everywhere::lapsed_calls);
    fn read_inbox(query: ReadInbox) -> Vec<InboxItem> = at (query.key.tenant);
}

async fn post_results(store: &PlacedStore, items: Vec<PostResult>) -> Result<Vec<PostOutcome>> {
    let later = Some(PostOutcome::Locked);
    let call = |place: Shared, items| async move { place.store.post_results(items).await };
    store
        .split(items, |item| item.key.tenant, later, call)
        .await
}

async fn report_children(
    store: &PlacedStore,
    sends: Option<Vec<(TenantId, SendId)>>,
    limit: u32,
) -> Result<Vec<ReportOutcome>> {
    let Some(sends) = sends else {
        return everywhere::report_children(store, limit).await;
    };
    let mut parts: BTreeMap<usize, Vec<(TenantId, SendId)>> = BTreeMap::new();
    for send in sends {
        let known = store.catalogue.find(send.0).await?;
        parts.entry(known.place).or_default().push(send);
    }
    let mut reported = Vec::new();
    for (place, sends) in parts {
        let place = &store.places()[place];
        let report = place.store.report_children(Some(sends), limit);
        reported.extend(place.ask(report).await?);
    }
    Ok(reported)
}

async fn get_calls(
    store: &PlacedStore,
    ids: Vec<(TenantId, String)>,
) -> Result<Vec<Option<CallRecord>>> {
    let call = |place: Shared, ids| async move { place.store.get_calls(ids).await };
    store.split(ids, |(tenant, _)| *tenant, None, call).await
}

placed! { Money:
    fn reserve_money(items: Vec<ReserveMoney>) -> Vec<ReserveMoneyOutcome> = by (reserve_money);
    fn settle_money(items: Vec<SettleMoney>) -> () = by (settle_money);
    fn sweep_money(limit: u32) -> u32 = by (everywhere::sweep_money);
    fn spent_money(tenant: TenantId, agent: Option<AgentName>) -> Option<LedgerSpent> = at (tenant);
    fn money_tenants() -> Vec<TenantId> = by (everywhere::money_tenants);
}

async fn reserve_money(
    store: &PlacedStore,
    items: Vec<ReserveMoney>,
) -> Result<Vec<ReserveMoneyOutcome>> {
    // The caller retries.
    let later = Some(ReserveMoneyOutcome::Busy);
    let call = |place: Shared, items| async move { place.store.reserve_money(items).await };
    store.split(items, |item| item.tenant, later, call).await
}

async fn settle_money(store: &PlacedStore, items: Vec<SettleMoney>) -> Result<()> {
    let call = |place: Shared, items: Vec<SettleMoney>| async move {
        let count = items.len();
        place.store.settle_money(items).await?;
        Ok::<_, Error>(vec![(); count])
    };
    store
        .split(items, |item| item.tenant, None, call)
        .await
        .map(drop)
}

placed! { Runs:
    fn create_runs(items: Vec<NewRun>) -> Vec<CreateRunOutcome> = by (create_runs);
    fn ask_runs(items: Vec<(RunKey, RunAsk)>) -> Vec<bool> = by (ask_runs);
    fn claim_runs(claim: ClaimRuns) -> ClaimedRuns = by (everywhere::claim_runs);
    fn advance_runs(boot: BootId, items: Vec<AdvanceRun>) -> Vec<AdvanceOutcome> = by (advance_runs);
    fn release_runs(boot: BootId, keys: Vec<RunKey>) -> () = by (release_runs);
    fn get_runs(keys: Vec<RunKey>) -> Vec<Option<RunRecord>> = by (get_runs);
    fn read_asks(keys: Vec<RunKey>) -> Vec<Vec<RunAsk>> = by (read_asks);
    fn list_runs(query: ListRuns) -> Page<RunRecord> = at (query.tenant);
    fn forget_runs(keys: Vec<RunKey>) -> u64 = by (forget_runs);
    fn read_nodes(query: ReadNodes) -> Vec<NodeRecord> = at (query.key.tenant);
    fn live_leaves(key: RunKey) -> Vec<SendId> = at (key.tenant);
    fn read_run_steps(key: RunKey, after: i64, limit: u32) -> Vec<RunStep> = at (key.tenant);
}

async fn create_runs(store: &PlacedStore, items: Vec<NewRun>) -> Result<Vec<CreateRunOutcome>> {
    let call = |place: Shared, items| async move { place.store.create_runs(items).await };
    store.split(items, |item| item.key.tenant, None, call).await
}

async fn ask_runs(store: &PlacedStore, items: Vec<(RunKey, RunAsk)>) -> Result<Vec<bool>> {
    let call = |place: Shared, items| async move { place.store.ask_runs(items).await };
    store.split(items, |(run, _)| run.tenant, None, call).await
}

async fn advance_runs(
    store: &PlacedStore,
    boot: BootId,
    items: Vec<AdvanceRun>,
) -> Result<Vec<AdvanceOutcome>> {
    let later = Some(AdvanceOutcome::Locked);
    let call = |place: Shared, items| async move { place.store.advance_runs(boot, items).await };
    store
        .split(items, |item| item.run.key.tenant, later, call)
        .await
}

async fn release_runs(store: &PlacedStore, boot: BootId, keys: Vec<RunKey>) -> Result<()> {
    let call = |place: Shared, keys: Vec<RunKey>| async move {
        let count = keys.len();
        place.store.release_runs(boot, keys).await?;
        Ok::<_, Error>(vec![(); count])
    };
    // A run that is not released stays the process's until its lease expires, and is returned by
    // its next claim.
    store
        .split(keys, |key| key.tenant, Some(()), call)
        .await
        .map(drop)
}

async fn get_runs(store: &PlacedStore, keys: Vec<RunKey>) -> Result<Vec<Option<RunRecord>>> {
    let call = |place: Shared, keys| async move { place.store.get_runs(keys).await };
    store.split(keys, |key| key.tenant, None, call).await
}

async fn read_asks(store: &PlacedStore, keys: Vec<RunKey>) -> Result<Vec<Vec<RunAsk>>> {
    let call = |place: Shared, keys| async move { place.store.read_asks(keys).await };
    store.split(keys, |key| key.tenant, None, call).await
}

async fn forget_runs(store: &PlacedStore, keys: Vec<RunKey>) -> Result<u64> {
    // The store returns one number for all keys: attribute it to the first one.
    let call = |place: Shared, keys: Vec<RunKey>| async move {
        let mut counts = vec![0; keys.len()];
        let forgotten = place.store.forget_runs(keys).await?;
        counts
            .iter_mut()
            .take(1)
            .for_each(|count| *count = forgotten);
        Ok::<_, Error>(counts)
    };
    let counts: Vec<u64> = store.split(keys, |key| key.tenant, None, call).await?;
    Ok(counts.iter().sum())
}

placed! { Sessions:
    fn create_sessions(
        items: Vec<(NewSession, Option<IdempotencyKey>)>,
    ) -> Vec<CreateOutcome> = by (create_sessions);
    fn import_session(item: ImportSession) -> CreateOutcome = at (item.session.key.tenant);
    fn append_copies(item: AppendCopies) -> CopiesOutcome = at (item.key.tenant);
    fn prune_session(item: PruneSession) -> PruneOutcome = at (item.key.tenant);
    fn fold_at_rest(item: FoldAtRest) -> FoldedAtRest = at (item.key.tenant);
    fn update_session(key: SessionKey, patch: SessionPatch) -> UpdateOutcome = at (key.tenant);
    fn delete_session(key: SessionKey, boot: BootId) -> DeleteOutcome = at (key.tenant);
    fn deleted_sessions(
        after: Option<DeletedSession>,
        limit: u32,
    ) -> Vec<DeletedSession> = by (everywhere::deleted_sessions);
    fn erase_session(key: SessionKey, limit: u32) -> Erased = at (key.tenant);
    fn get_session(key: SessionKey) -> Option<SessionRecord> = at (key.tenant);
    fn list_sessions(query: ListSessions) -> Page<SessionRecord> = at (query.tenant);
    fn list_children(key: SessionKey) -> Vec<SessionKey> = at (key.tenant);
    fn session_usage(key: SessionKey) -> Option<SessionUsage> = at (key.tenant);
    fn open_children(key: SessionKey) -> u64 = at (key.tenant);
}

async fn create_sessions(
    store: &PlacedStore,
    items: Vec<(NewSession, Option<IdempotencyKey>)>,
) -> Result<Vec<CreateOutcome>> {
    let call = |place: Shared, items| async move { place.store.create_sessions(items).await };
    store
        .split(items, |(new, _)| new.key.tenant, None, call)
        .await
}

placed! { Timers:
    fn create_timers(
        items: Vec<(NewTimer, Option<IdempotencyKey>)>,
    ) -> Vec<CreateTimerOutcome> = by (create_timers);
    fn change_timers(items: Vec<ChangeTimer>) -> Vec<ChangeTimerOutcome> = by (change_timers);
    fn fire_timers(boot: BootId, limit: u32) -> Fired = by (everywhere::fire_timers);
    fn sweep_timers(keep: Duration) -> u64 = by (everywhere::sweep_timers);
    fn get_timers(ids: Vec<(TenantId, TimerId)>) -> Vec<Option<TimerRecord>> = by (get_timers);
    fn list_timers(query: ListTimers) -> Page<TimerRecord> = at (query.tenant);
    fn list_occurrences(query: ListOccurrences) -> Page<Occurrence> = at (query.tenant);
}

async fn create_timers(
    store: &PlacedStore,
    items: Vec<(NewTimer, Option<IdempotencyKey>)>,
) -> Result<Vec<CreateTimerOutcome>> {
    let call = |place: Shared, items| async move { place.store.create_timers(items).await };
    store.split(items, |(new, _)| new.tenant, None, call).await
}

async fn change_timers(
    store: &PlacedStore,
    items: Vec<ChangeTimer>,
) -> Result<Vec<ChangeTimerOutcome>> {
    let call = |place: Shared, items| async move { place.store.change_timers(items).await };
    store.split(items, |item| item.tenant, None, call).await
}

async fn get_timers(
    store: &PlacedStore,
    ids: Vec<(TenantId, TimerId)>,
) -> Result<Vec<Option<TimerRecord>>> {
    let call = |place: Shared, ids| async move { place.store.get_timers(ids).await };
    store.split(ids, |(tenant, _)| *tenant, None, call).await
}

placed! { Webhooks:
    fn create_webhook(
        new: NewWebhook,
        key: Option<IdempotencyKey>,
    ) -> CreateWebhookOutcome = at (new.tenant);
    fn get_webhook(tenant: TenantId, id: WebhookId) -> Option<WebhookRecord> = at (tenant);
    fn list_webhooks(query: ListWebhooks) -> Page<WebhookRecord> = at (query.tenant);
    fn change_webhook(change: ChangeWebhook) -> Option<WebhookRecord> = at (change.tenant);
    fn delete_webhook(tenant: TenantId, id: WebhookId) -> bool = at (tenant);
    fn fan_out(limit: u32) -> FannedOut = by (everywhere::fan_out);
    fn claim_deliveries(claim: ClaimDeliveries) -> ClaimedDeliveries = by (claims::claim_deliveries);
    fn settle_deliveries(items: Vec<SettleDelivery>) -> Vec<bool> = by (settle_deliveries);
    fn list_deliveries(query: ListDeliveries) -> Page<DeliveryRecord> = at (query.tenant);
    fn redeliver(
        tenant: TenantId,
        webhook: WebhookId,
        event: WebhookEventId,
    ) -> Option<DeliveryRecord> = at (tenant);
    fn retire_deliveries(query: RetireDeliveries) -> u64 = by (everywhere::retire_deliveries);
}

async fn settle_deliveries(store: &PlacedStore, items: Vec<SettleDelivery>) -> Result<Vec<bool>> {
    let call = |place: Shared, items| async move { place.store.settle_deliveries(items).await };
    store.split(items, |item| item.tenant, None, call).await
}
