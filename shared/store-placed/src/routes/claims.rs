//! Claims up to a limit, which is the claimer's free capacity: what one database leaves of it is
//! claimed from the others.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mainspring_shared::store::{
    ClaimDeliveries, ClaimExtractions, ClaimUnembedded, ClaimedDeliveries, Extraction, Result,
    Unembedded,
};

use super::everywhere::{by_clock, sooner};
use crate::merge::Answers;
use crate::place::Place;
use crate::store::PlacedStore;

pub(super) async fn claim_extractions(
    store: &PlacedStore,
    claim: ClaimExtractions,
) -> Result<Vec<Extraction>> {
    if let Some((tenant, _)) = claim.only {
        let look = |place: Arc<Place>| {
            let claim = claim.clone();
            async move { place.store.claim_extractions(claim).await }
        };
        return store.at(tenant, look).await;
    }
    let look = |place: Arc<Place>, limit| {
        let claim = ClaimExtractions {
            limit,
            ..claim.clone()
        };
        async move { place.store.claim_extractions(claim).await }
    };
    let parts = up_to(store, claim.limit, Vec::len, look).await?;
    Ok(parts.into_iter().flatten().collect())
}

pub(super) async fn claim_unembedded(
    store: &PlacedStore,
    claim: ClaimUnembedded,
) -> Result<Vec<Unembedded>> {
    let look = |place: Arc<Place>, limit| {
        let claim = ClaimUnembedded { limit, ..claim };
        async move { place.store.claim_unembedded(claim).await }
    };
    let parts = up_to(store, claim.limit, Vec::len, look).await?;
    Ok(parts.into_iter().flatten().collect())
}

pub(super) async fn claim_deliveries(
    store: &PlacedStore,
    claim: ClaimDeliveries,
) -> Result<ClaimedDeliveries> {
    let look = |place: Arc<Place>, limit| {
        let claim = ClaimDeliveries {
            limit,
            ..claim.clone()
        };
        async move { place.store.claim_deliveries(claim).await }
    };
    let count = |part: &ClaimedDeliveries| part.deliveries.len();
    let mut parts = up_to(store, claim.limit, count, look).await?.into_iter();
    let mut all = parts.next().unwrap_or_default();
    for part in parts {
        all.deliveries.extend(part.deliveries);
        let due = part.oldest_due.map(|at| by_clock(at, part.now, all.now));
        all.oldest_due = sooner(all.oldest_due, due);
    }
    Ok(all)
}

/// Claims from one database after the other, up to the rest of the limit. Starts with a different
/// one each time, so that a busy database does not starve the others.
async fn up_to<T, Fut>(
    store: &PlacedStore,
    limit: u32,
    count: impl Fn(&T) -> usize,
    call: impl Fn(Arc<Place>, u32) -> Fut,
) -> Result<Vec<T>>
where
    T: Send + 'static,
    Fut: Future<Output = Result<T>> + Send + 'static,
{
    let places = store.places();
    let first = store.claims.fetch_add(1, Ordering::Relaxed) % places.len();
    let mut left = limit;
    let mut answers = Vec::with_capacity(places.len());
    for index in (first..places.len()).chain(0..first) {
        if left == 0 {
            break;
        }
        let answer = store
            .call_with_timeout(index, call(places[index].clone(), left))
            .await;
        if let Ok(part) = &answer {
            left = left.saturating_sub(u32::try_from(count(part)).unwrap_or(u32::MAX));
        }
        answers.push((index, answer));
    }
    let parts = Answers(answers).some()?;
    Ok(parts.into_iter().map(|(_, part)| part).collect())
}
