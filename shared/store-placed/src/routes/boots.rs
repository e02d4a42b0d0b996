//! A process has its lease on every database, under one id. One that is away concerns its own sessions: the process lives
//! as long as its lease is renewed somewhere.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::id::{BootId, SessionKey, TenantId};
use mainspring_shared::store::{
    BootRecord, Boots, Connections, NewBoot, Owned, PoolTools, Renewal, Result,
};
use mainspring_shared::time::Timestamp;

use super::by_tenant::placed;
use crate::place::Place;
use crate::store::{GRACE, PlacedStore};

/// How long a renewal on one database waits for those on others. They go on without it.
const RENEWS: Duration = Duration::from_millis(300);

placed! { Boots {
        fn connections(&self) -> Vec<Connections> {
            connections(self)
        }
    }:
    fn register_boot(boot: NewBoot) -> () = by (register);
    fn renew_boot(boot: BootId, ttl: Duration, in_flight: u32) -> Renewal = by (renew);
    fn stop_boot(boot: BootId) -> () = by (stop);
    fn owned_sessions(
        boot: BootId,
        after: Option<(Timestamp, SessionKey)>,
        limit: u32,
    ) -> Owned = by (owned);
    fn list_boots() -> Vec<BootRecord> = by (list);
    fn list_tools() -> Vec<PoolTools> = by (tools);
}

/// Those to all databases, as one set of pools.
fn connections(store: &PlacedStore) -> Vec<Connections> {
    let mut all: Vec<Connections> = Vec::new();
    for used in store.places().iter().flat_map(|it| it.store.connections()) {
        match all.iter_mut().find(|known| known.pool == used.pool) {
            Some(known) => {
                known.open += used.open;
                known.idle += used.idle;
                known.waiting += used.waiting;
            }
            None => all.push(used),
        }
    }
    all
}

async fn register(store: &PlacedStore, boot: NewBoot) -> Result<()> {
    store.boots().push(boot.clone());
    let register = |place: Arc<Place>| {
        let boot = boot.clone();
        async move { place.store.register_boot(boot).await }
    };
    // A database that is away has it entered with a renewal.
    let registered = store.each(GRACE, register).await.some();
    if registered.is_err() {
        store.boots().retain(|other| other.id != boot.id);
    }
    registered.map(drop)
}

async fn renew(
    store: &PlacedStore,
    boot: BootId,
    ttl: Duration,
    in_flight: u32,
) -> Result<Renewal> {
    let renew =
        |place: Arc<Place>| async move { place.store.renew_boot(boot, ttl, in_flight).await };
    let answers = store.each(RENEWS, renew).await.some()?;
    let mut renewed_at = None;
    let mut signals = Vec::new();
    let mut dead = Vec::new();
    for (index, answer) in answers {
        match answer {
            Renewal::Renewed { at, signals: more } => {
                renewed_at.get_or_insert(at);
                // What a tenant left behind where it was is not looked at.
                let more = more.into_iter();
                signals.extend(more.filter(|(key, _)| store.is_at(index, key.tenant)));
            }
            Renewal::Dead => dead.push(index),
        }
    }
    let Some(at) = renewed_at else {
        return Ok(Renewal::Dead);
    };
    for index in dead {
        let place = store.places()[index].clone();
        let new = store.own_boot(boot);
        // Not waited for: the lease elsewhere is renewed in time.
        tokio::spawn(async move { live_again(&place, boot, ttl, new).await });
    }
    Ok(Renewal::Renewed { at, signals })
}

/// Has a boot live on a database that was away for longer than its lease, or when it began.
async fn live_again(place: &Place, boot: BootId, ttl: Duration, new: Option<NewBoot>) {
    let revived = place.ask(place.placements.revive_boot(boot, ttl)).await;
    let entered = match (revived, new) {
        (Ok(false), Some(new)) => place.ask(place.store.register_boot(new)).await,
        (revived, _) => revived.map(drop),
    };
    match entered {
        Ok(()) => {
            tracing::info!(place = place.name, boot.id = %boot, "a lease begins anew on a database");
        }
        Err(error) => tracing::debug!(place = place.name, %error, "a lease does not begin anew"),
    }
}

async fn stop(store: &PlacedStore, boot: BootId) -> Result<()> {
    let stop = move |place: Arc<Place>| async move { place.store.stop_boot(boot).await };
    // Where a database is away the lease runs out.
    store.each(GRACE, stop).await.some()?;
    store.boots().retain(|other| other.id != boot);
    Ok(())
}

async fn owned(
    store: &PlacedStore,
    boot: BootId,
    after: Option<(Timestamp, SessionKey)>,
    limit: u32,
) -> Result<Owned> {
    store.catalogue.find(TenantId::DEFAULT).await?;
    let look = move |place: Arc<Place>| async move {
        place.store.owned_sessions(boot, after, limit).await
    };
    let found = store.each(GRACE, look).await.some()?;
    let mut all = Owned::default();
    for (index, part) in found {
        let mine = part.sessions.into_iter();
        all.sessions
            .extend(mine.filter(|(key, _)| store.is_at(index, key.tenant)));
        // What another one has behind this place is told once more.
        all.next = all.next.into_iter().chain(part.next).min();
    }
    Ok(all)
}

/// A process lives as long as it does on one database.
async fn list(store: &PlacedStore) -> Result<Vec<BootRecord>> {
    let look = |place: Arc<Place>| async move { place.store.list_boots().await };
    let found = store.each(GRACE, look).await.some()?;
    let mut boots: BTreeMap<BootId, BootRecord> = BTreeMap::new();
    for boot in found.into_iter().flat_map(|(_, part)| part) {
        match boots.get_mut(&boot.id) {
            None => {
                boots.insert(boot.id, boot);
            }
            Some(known) => {
                known.lease_until = known.lease_until.max(boot.lease_until);
                known.in_flight = known.in_flight.max(boot.in_flight);
                known.dead_at = known
                    .dead_at
                    .zip(boot.dead_at)
                    .map(|(one, other)| one.max(other));
            }
        }
    }
    Ok(boots.into_values().collect())
}

/// They say the same everywhere: the first one that answers.
async fn tools(store: &PlacedStore) -> Result<Vec<PoolTools>> {
    let mut last = None;
    for place in store.places() {
        match place.ask(place.store.list_tools()).await {
            Ok(tools) => return Ok(tools),
            Err(error) => last = Some(error),
        }
    }
    last.map_or(Ok(Vec::new()), Err)
}
