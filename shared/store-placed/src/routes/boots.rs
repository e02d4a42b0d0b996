//! Leases of processes: on every database, under the same id. An outage of one affects only its
//! sessions: the process lives as long as its lease is renewed on any database.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::id::{BootId, SessionKey, TenantId};
use mainspring_shared::store::{
    BootRecord, Boots, Connections, NewBoot, Owned, PoolTools, Renewal, Result, WentBack,
};
use mainspring_shared::time::Timestamp;
use tokio::time::Instant;

use super::by_tenant::placed;
use crate::merge::Answers;
use crate::place::Place;
use crate::store::{GRACE, PlacedStore};

/// How long a renewal that succeeded on one database waits for the others, which then continue in
/// the background.
const RENEWS: Duration = Duration::from_millis(300);

/// How often, and how many times, a boot is stopped on a database that was away: for an hour. After
/// that its lease is long over.
const STOPS_AGAIN: Duration = Duration::from_millis(500);
const STOPS_MAX: u32 = 7_200;

placed! { Boots {
        fn connections(&self) -> Vec<Connections> {
            connections(self)
        }

        fn has_lapsed(&self, boot: BootId, tenant: TenantId) -> bool {
            let known = self.catalogue.known(tenant);
            known.is_ok_and(|known| self.place(known).has_lapsed(boot))
        }

        fn losses(&self) -> u64 {
            self.places().iter().map(|place| place.store.losses()).sum()
        }

        fn went_back(&self) -> Option<WentBack> {
            let all = self.places().iter().filter_map(|place| place.store.went_back());
            all.max_by_key(|it| it.at)
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

/// The connections to all databases, summed per pool.
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
    // On an unavailable database it is registered later, by a renewal.
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
    // Counted from before the database was asked, and with a margin, as the process does itself.
    // It looks at that with each renewal, six of which are made in a lease.
    let usable = ttl.saturating_sub((ttl / 5).min(Duration::from_secs(2)));
    let until = Instant::now() + usable.saturating_sub(ttl / 6);
    let renew = |place: Arc<Place>| async move {
        let renewal = place.store.renew_boot(boot, ttl, in_flight).await?;
        match renewal {
            Renewal::Renewed { .. } => place.holds(boot, until),
            Renewal::Dead => {}
        }
        Ok(renewal)
    };
    let answers = store.each(RENEWS, renew).await.some()?;
    let is_told =
        |it: &Renewal| matches!(it, Renewal::Renewed { signals, .. } if !signals.is_empty());
    if answers.iter().any(|(_, answer)| is_told(answer)) {
        // Refresh the catalogue: a process busy with one send may call nothing else, and its tenant
        // may have moved meanwhile.
        store.catalogue.find(TenantId::DEFAULT).await?;
    }
    let mut renewed_at = None;
    let mut signals = Vec::new();
    let mut dead = Vec::new();
    for (index, answer) in answers {
        match answer {
            Renewal::Renewed { at, signals: more } => {
                renewed_at.get_or_insert(at);
                // Ignore signals of rows that a moved tenant left behind.
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
        // In the background, so as not to delay the renewals on other databases.
        tokio::spawn(async move { live_again(&place, boot, ttl, new).await });
    }
    Ok(Renewal::Renewed { at, signals })
}

/// Revives a boot on a database that was unavailable for longer than its lease, or registers it if
/// the database was unavailable when the boot started.
async fn live_again(place: &Arc<Place>, boot: BootId, ttl: Duration, new: Option<NewBoot>) {
    let revived = place.ask(place.placements.revive_boot(boot, ttl)).await;
    let entered = match (revived, new) {
        (Ok(false), Some(new)) => place.ask(place.store.register_boot(new)).await,
        (revived, _) => revived.map(drop),
    };
    match entered {
        Ok(()) => {
            tracing::info!(
                place = place.name,
                boot.id = %boot,
                "renewed an expired or missing lease on a database"
            );
        }
        Err(error) => tracing::debug!(place = place.name, %error, "could not renew the lease"),
    }
}

async fn stop(store: &PlacedStore, boot: BootId) -> Result<()> {
    let stop = move |place: Arc<Place>| async move { place.store.stop_boot(boot).await };
    let stopped = store.each(GRACE, stop).await.0;
    for (index, answer) in &stopped {
        let place = store.places()[*index].clone();
        place.forgets(boot);
        if answer.is_err() {
            // When the database is back, others would take its sessions over and count a crash.
            tokio::spawn(async move { stop_later(&place, boot).await });
        }
    }
    Answers(stopped).some()?;
    store.boots().retain(|other| other.id != boot);
    Ok(())
}

/// Stops a boot on a database that was away.
async fn stop_later(place: &Arc<Place>, boot: BootId) {
    let mut again = tokio::time::interval(STOPS_AGAIN);
    for _ in 0..STOPS_MAX {
        again.tick().await;
        if place.ask(place.store.stop_boot(boot)).await.is_ok() {
            return;
        }
    }
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
        // Sessions of other databases after this cursor are returned again.
        all.next = all.next.into_iter().chain(part.next).min();
    }
    Ok(all)
}

/// Merges the boots: a process is alive if it is alive on any database.
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

/// Asks the first available database, since all have the same tools.
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
