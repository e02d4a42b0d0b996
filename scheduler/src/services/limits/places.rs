//! Places among the open sends of a tenant that may have only so many.
//!
//! They are rows, so that all schedulers together keep to the limit. Requests of the same moment take theirs in one
//! transaction, and of a tenant that sends much [some are taken ahead](super::ahead).

use std::sync::Arc;

use futures::future::join_all;
use mainspring_runtime::Group;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::id::{SendId, TenantId};
use mainspring_shared::store::{AcceptSend, Store, places_by_tenant};
use mainspring_shared::time::Clock;

use super::ahead::Ahead;
use super::too_many;
use crate::app::App;
use crate::error::Error;

/// Places that the sends of a request want, and those of requests to come.
#[derive(Debug)]
struct Wanted {
    tenant: TenantId,
    max: u32,
    sends: Vec<SendId>,
    /// How many of the sends, at their end, nobody has made yet.
    ahead: usize,
    /// Places to be given back: their sends will not be made.
    old: Vec<SendId>,
}

/// Takes places for sends.
#[derive(Debug)]
pub(crate) struct PlaceTaker {
    group: Group<Wanted, Result<usize, Error>>,
    ahead: Arc<Ahead>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl PlaceTaker {
    /// Starts the task of its group.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        let ahead = Arc::new(Ahead::default());
        let (puts, now) = (ahead.clone(), clock.clone());
        let group = Group::spawn(1, move |items: Vec<Wanted>| {
            let (store, ahead, clock) = (store.clone(), puts.clone(), now.clone());
            async move { reserve(&*store, &ahead, &*clock, items).await }
        });
        Self {
            group,
            ahead,
            clock,
            entropy,
        }
    }

    /// Takes places for so many of the first of these sends as have one.
    pub(super) async fn take(
        &self,
        tenant: TenantId,
        max: u32,
        sends: Vec<SendId>,
    ) -> Result<usize, Error> {
        let wanted = Wanted {
            tenant,
            max,
            sends,
            ahead: 0,
            old: Vec::new(),
        };
        let taken = self.group.submit(wanted).await;
        taken.unwrap_or_else(|_| Err(Error::stopping()))
    }

    /// Takes a place for a send that nobody has heard of yet. It may get another id for that. Returns whether it
    /// has one.
    pub(super) async fn take_one(
        &self,
        tenant: TenantId,
        max: u32,
        send: &mut AcceptSend,
    ) -> Result<bool, Error> {
        let found = self.ahead.next(tenant, max, self.clock.monotonic());
        if found.more > 0 || !found.old.is_empty() {
            let sends = (0..found.more).map(|_| SendId(self.entropy.ordered_id()));
            let wanted = Wanted {
                tenant,
                max,
                sends: sends.collect(),
                ahead: found.more,
                old: found.old,
            };
            let group = self.group.clone();
            // Nobody waits for these: where it fails, requests take places for themselves.
            tokio::spawn(async move { group.submit(wanted).await });
        }
        if let Some(place) = found.place {
            send.id = place;
            return Ok(true);
        }
        Ok(self.take(tenant, max, vec![send.id]).await? > 0)
    }
}

/// Takes the places that requests of the same moment want, those of a tenant in one transaction: how many each of
/// them got. What nobody has asked for comes last.
async fn reserve(
    store: &dyn Store,
    ahead: &Ahead,
    clock: &dyn Clock,
    mut items: Vec<Wanted>,
) -> Vec<Result<usize, Error>> {
    let mut outcomes: Vec<_> = items.iter().map(|_| Ok(0)).collect();
    let mut olds = Vec::new();
    for item in &mut items {
        if !item.old.is_empty() {
            olds.push((item.tenant, std::mem::take(&mut item.old)));
        }
    }
    for (tenant, old) in olds {
        give_back(store, tenant, old).await;
    }
    let items = &items;
    let tenants = places_by_tenant(items, |item| item.tenant);
    let takes = tenants.into_iter().map(async |(tenant, mut requests)| {
        requests.sort_by_key(|request| items[*request].ahead > 0);
        // The newest limit that any of them knows.
        let newest = requests.iter().max();
        let max = newest.map_or(0, |newest| items[*newest].max);
        let sends = requests.iter().flat_map(|of| items[*of].sends.clone());
        let taken = store.reserve_sends(tenant, sends.collect(), max).await;
        (requests, taken)
    });
    for (requests, taken) in join_all(takes).await {
        let mut left = taken.map(|taken| usize::try_from(taken).unwrap_or(usize::MAX));
        for request in requests {
            let item = &items[request];
            outcomes[request] = match &mut left {
                Ok(left) => {
                    let mine = item.sends.len().min(*left);
                    *left -= mine;
                    Ok(mine)
                }
                Err(error) => Err(Error::from(&*error)),
            };
            if item.ahead > 0 {
                let taken = *outcomes[request].as_ref().unwrap_or(&0);
                let places = item.sends.iter().take(taken).copied();
                ahead.put(item.tenant, places, clock.monotonic());
            }
        }
    }
    outcomes
}

async fn give_back(store: &dyn Store, tenant: TenantId, sends: Vec<SendId>) {
    if let Err(error) = store.release_sends(tenant, sends).await {
        tracing::debug!(%error, "places of sends that were not accepted are free later");
    }
}

/// The places of the sends of a request.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(super) of: Option<TenantId>,
    pub(super) taken: Vec<SendId>,
    pub(super) refused: Vec<SendId>,
    pub(super) why: Option<Error>,
}

impl Places {
    /// What was taken of a tenant that may have `max` open sends.
    pub(super) fn of(tenant: TenantId, max: u32, taken: Vec<SendId>, refused: Vec<SendId>) -> Self {
        Self {
            of: Some(tenant),
            taken,
            refused,
            why: Some(too_many(max)),
        }
    }

    /// Why a send is not to be accepted, if it has no place.
    pub(crate) fn refusal(&self, send: SendId) -> Option<Error> {
        let why = self.why.as_ref()?;
        self.refused.contains(&send).then(|| why.clone())
    }

    /// Gives the places back of sends that were not accepted. Where that fails they are free a minute later.
    pub(crate) async fn give_back(self, app: &App, accepted: &[SendId]) {
        let Some(tenant) = self.of else {
            return;
        };
        let left = self.taken.into_iter();
        let left: Vec<SendId> = left.filter(|send| !accepted.contains(send)).collect();
        if !left.is_empty() {
            give_back(&*app.store, tenant, left).await;
        }
    }
}
