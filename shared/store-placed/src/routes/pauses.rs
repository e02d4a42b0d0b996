//! Pauses, which are on every database, since sends that wait for the end of one are woken where
//! they are. The home decides what is paused; the others follow.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use mainspring_shared::pause::{PauseKey, PauseRecord};
use mainspring_shared::store::{ListPauses, NewPause, Page, PauseWait, Pauses, Result};

use super::by_tenant::placed;
use crate::place::Place;
use crate::store::{GRACE, PlacedStore};

/// One in so many searches for sends to wake compares the pauses first.
const COMPARES_EVERY: u32 = 10;

/// Pauses per page.
const PAGE: u32 = 500;

placed! { Pauses:
    fn pause(item: NewPause) -> PauseRecord = by (pause);
    fn resume(key: PauseKey) -> () = by (resume);
    fn list_pauses(query: ListPauses) -> Page<PauseRecord> = home ();
    fn await_resume(item: PauseWait) -> () = at (item.tenant);
    fn wake_paused(limit: u32) -> u32 = by (wake_paused);
}

async fn pause(store: &PlacedStore, item: NewPause) -> Result<PauseRecord> {
    let home = store.home();
    let record = home.ask(home.store.pause(item.clone())).await?;
    for place in store.others() {
        // An unavailable one follows once it is back.
        if let Err(error) = place.ask(place.store.pause(item.clone())).await {
            tracing::warn!(
                place = place.name,
                %error,
                "could not store a pause on a database; will retry"
            );
        }
    }
    Ok(record)
}

async fn resume(store: &PlacedStore, key: PauseKey) -> Result<()> {
    let home = store.home();
    home.ask(home.store.resume(key.clone())).await?;
    for place in store.others() {
        if let Err(error) = place.ask(place.store.resume(key.clone())).await {
            tracing::warn!(
                place = place.name,
                %error,
                "could not end a pause on a database; will retry"
            );
        }
    }
    Ok(())
}

async fn wake_paused(store: &PlacedStore, limit: u32) -> Result<u32> {
    let look = store.looks.fetch_add(1, Ordering::Relaxed);
    if look.is_multiple_of(COMPARES_EVERY)
        && let Err(error) = follow(store).await
    {
        tracing::debug!(%error, "could not synchronize the pauses of the databases");
    }
    let wake = move |place: Arc<Place>| async move { place.store.wake_paused(limit).await };
    let woken: u32 = store.each(GRACE, wake).await.sum()?;
    Ok(woken.min(limit))
}

/// Brings the pauses of the other databases in line with the home.
async fn follow(store: &PlacedStore) -> Result<()> {
    let mut copies = Vec::new();
    for place in store.others() {
        if let Ok(found) = paused(place).await {
            copies.push((place, found));
        }
    }
    // Read the home last, so that its state is at least as new as what was read from the others.
    let wanted = paused(store.home()).await?;
    for (place, found) in copies {
        for (key, record) in &wanted {
            if !found.contains_key(key) {
                let item = NewPause {
                    key: key.clone(),
                    reason: record.reason.clone(),
                };
                place.ask(place.store.pause(item)).await?;
            }
        }
        for key in found.keys().filter(|key| !wanted.contains_key(*key)) {
            place.ask(place.store.resume(key.clone())).await?;
        }
    }
    Ok(())
}

async fn paused(place: &Arc<Place>) -> Result<BTreeMap<PauseKey, PauseRecord>> {
    let mut all = BTreeMap::new();
    let mut after = None;
    loop {
        let query = ListPauses {
            tenant: None,
            after,
            limit: PAGE,
        };
        let page = place.ask(place.store.list_pauses(query)).await?;
        after = page.data.last().map(|record| record.key.clone());
        all.extend(page.data.into_iter().map(|it| (it.key.clone(), it)));
        if !page.more || after.is_none() {
            return Ok(all);
        }
    }
}
