//! Places for the open sends of a tenant, a key or an agent that has a limit on them.
//!
//! Places are rows, so that all schedulers together keep the limit. Concurrent requests take theirs
//! in one transaction, and for a tenant that sends a lot [some are taken ahead](super::ahead).

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::join_all;
use mainspring_runtime::Group;
use mainspring_shared::agent::AgentName;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::id::{KeyId, SendId, TenantId};
use mainspring_shared::store::Store;
use mainspring_shared::time::Clock;

use super::ahead::{Found, KEPT, SparePlaces};
use crate::app::App;
use crate::error::Error;

/// Whose places they are: a tenant's, or those of one of its keys or agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PlaceOwner {
    tenant: TenantId,
    pub(super) holder: PlaceHolder,
}

/// The holder of places within a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PlaceHolder {
    Tenant,
    Key(KeyId),
    /// An agent. Its places are stored like those of a key with this id.
    Agent(KeyId),
}

impl PlaceOwner {
    pub(super) fn tenant(tenant: TenantId) -> Self {
        let holder = PlaceHolder::Tenant;
        Self { tenant, holder }
    }

    pub(super) fn key(tenant: TenantId, key: KeyId) -> Self {
        let holder = PlaceHolder::Key(key);
        Self { tenant, holder }
    }

    pub(super) fn agent(tenant: TenantId, agent: &AgentName) -> Self {
        let holder = PlaceHolder::Agent(agent.holder());
        Self { tenant, holder }
    }

    /// The key id that its places are stored under; none for the tenant itself.
    fn kept_under(self) -> Option<KeyId> {
        match self.holder {
            PlaceHolder::Tenant => None,
            PlaceHolder::Key(key) | PlaceHolder::Agent(key) => Some(key),
        }
    }
}

/// Places that sends want.
#[derive(Debug)]
struct Wanted {
    of: PlaceOwner,
    max: u32,
    sends: Vec<SendId>,
}

/// Takes places for sends.
#[derive(Debug, Clone)]
pub(crate) struct PlaceTaker {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    group: Group<Wanted, Result<usize, Error>>,
    spares: Arc<SparePlaces>,
}

impl PlaceTaker {
    /// Starts its group's task.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        let rows = store.clone();
        let group = Group::spawn(1, move |items: Vec<Wanted>| {
            let store = rows.clone();
            async move { reserve(&*store, items).await }
        });
        Self {
            store,
            clock,
            entropy,
            group,
            spares: Arc::new(SparePlaces::default()),
        }
    }

    /// Takes places for as many of these sends as possible, in order. Returns how many.
    pub(super) async fn take(
        &self,
        of: PlaceOwner,
        max: u32,
        sends: Vec<SendId>,
    ) -> Result<usize, Error> {
        if of.holder == PlaceHolder::Tenant {
            let old = self
                .spares
                .discard_spares(of.tenant, self.clock.monotonic());
            self.give_back(of, old).await;
        }
        self.reserve(of, max, sends).await
    }

    /// Takes a place for a send that nobody has heard of yet, and which may get another id with it.
    /// Returns whether it has a place.
    pub(super) async fn take_one(
        &self,
        tenant: TenantId,
        max: u32,
        send: &mut SendId,
    ) -> Result<bool, Error> {
        let of = PlaceOwner::tenant(tenant);
        let (found, begins) = self.spares.next(tenant, max, self.clock.monotonic());
        if begins {
            let taker = self.clone();
            tokio::spawn(async move { taker.fill(tenant).await });
        }
        let place = match found {
            Found::Place(place) => Some(place),
            Found::Wait(place) => place.await.unwrap_or_default(),
            Found::Nothing => None,
        };
        let place = match place {
            Some(place) => place,
            None if self.reserve(of, max, vec![*send]).await? > 0 => *send,
            // The place that is missing may be among those that were taken ahead.
            None => match self.spares.left(tenant, self.clock.monotonic()) {
                Some(place) => place,
                None => return Ok(false),
            },
        };
        *send = place;
        Ok(true)
    }

    /// Takes places ahead until there are enough, and gives back those that are not used.
    async fn fill(&self, tenant: TenantId) {
        let of = PlaceOwner::tenant(tenant);
        while let Some(fill) = self.spares.fill(tenant, self.clock.monotonic()) {
            let sends = (0..fill.count).map(|_| SendId(self.entropy.ordered_id()));
            let sends: Vec<SendId> = sends.collect();
            let taken = self.reserve(of, fill.max, sends.clone()).await;
            // If it fails, the waiting requests try for themselves and get the error.
            let taken = taken.unwrap_or_default().min(sends.len());
            let left = self.spares.put(tenant, fill, &sends[..taken]);
            self.give_back(of, left).await;
        }
        self.clock.sleep(KEPT).await;
        let old = self.spares.expired(tenant, self.clock.monotonic());
        self.give_back(of, old).await;
    }

    async fn reserve(&self, of: PlaceOwner, max: u32, sends: Vec<SendId>) -> Result<usize, Error> {
        let wanted = Wanted { of, max, sends };
        let taken = self.group.submit(wanted).await;
        taken.unwrap_or_else(|_| Err(Error::stopping()))
    }

    /// Gives back the places of sends that were not made. If that fails, they become free a minute
    /// later.
    async fn give_back(&self, of: PlaceOwner, sends: Vec<SendId>) {
        if sends.is_empty() {
            return;
        }
        if let Err(error) = self
            .store
            .release_sends(of.tenant, of.kept_under(), sends)
            .await
        {
            tracing::debug!(
                %error,
                "could not release the places of sends that were not accepted; they will expire"
            );
        }
    }
}

/// Takes places for concurrent requests, with one transaction per owner. Returns how many each
/// request got.
async fn reserve(store: &dyn Store, items: Vec<Wanted>) -> Vec<Result<usize, Error>> {
    let items = &items;
    let mut owners: BTreeMap<PlaceOwner, Vec<usize>> = BTreeMap::new();
    for (place, item) in items.iter().enumerate() {
        owners.entry(item.of).or_default().push(place);
    }
    let takes = owners.into_iter().map(async |(of, requests)| {
        // The most recent limit that any of them knows.
        let max = requests.last().map_or(0, |last| items[*last].max);
        let sends = requests.iter().flat_map(|of| items[*of].sends.clone());
        let taken = store
            .reserve_sends(of.tenant, of.kept_under(), sends.collect(), max)
            .await;
        (requests, taken)
    });
    let mut outcomes: Vec<_> = items.iter().map(|_| Ok(0)).collect();
    for (requests, taken) in join_all(takes).await {
        let mut left = taken.map(|taken| usize::try_from(taken).unwrap_or(usize::MAX));
        for request in requests {
            outcomes[request] = match &mut left {
                Ok(left) => {
                    let mine = items[request].sends.len().min(*left);
                    *left -= mine;
                    Ok(mine)
                }
                Err(error) => Err(Error::from(&*error)),
            };
        }
    }
    outcomes
}

/// The places of a request's sends.
#[derive(Debug, Default)]
pub(crate) struct Places {
    taken: Vec<(PlaceOwner, Vec<SendId>)>,
    refused: Vec<(SendId, Error)>,
}

impl Places {
    /// Records that these sends have a place.
    pub(super) fn took(&mut self, of: PlaceOwner, sends: &[SendId]) {
        if !sends.is_empty() {
            self.taken.push((of, sends.to_vec()));
        }
    }

    /// Records that these sends have none.
    pub(super) fn refuse(&mut self, sends: Vec<SendId>, why: &Error) {
        let refused = sends.into_iter().map(|send| (send, why.clone()));
        self.refused.extend(refused);
    }

    /// Why a send must be refused; none if it has a place.
    pub(crate) fn refusal(&self, send: SendId) -> Option<Error> {
        let found = self.refused.iter().find(|(refused, _)| *refused == send);
        found.map(|(_, why)| why.clone())
    }

    /// Gives back the places of sends that were not accepted. If that fails, they become free a
    /// minute later.
    pub(crate) async fn give_back(self, app: &App, accepted: &[SendId]) {
        for (of, taken) in self.taken {
            let left = taken.into_iter();
            let left = left.filter(|send| !accepted.contains(send)).collect();
            app.acceptor.places.give_back(of, left).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use mainspring_runtime::{OsEntropy, SystemClock};
    use mainspring_store_model::ModelStore;

    use super::*;

    const TENANT: TenantId = TenantId::DEFAULT;

    const OF: PlaceOwner = PlaceOwner {
        tenant: TENANT,
        holder: PlaceHolder::Tenant,
    };

    const MAX: u32 = 640;

    /// Two schedulers with one database.
    fn two() -> (PlaceTaker, PlaceTaker) {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let store: Arc<dyn Store> = Arc::new(ModelStore::open(clock.clone()));
        let taker = || PlaceTaker::new(store.clone(), clock.clone(), Arc::new(OsEntropy));
        (taker(), taker())
    }

    fn ids(count: usize) -> Vec<SendId> {
        let new = |_| SendId(OsEntropy.ordered_id());
        (0..count).map(new).collect()
    }

    /// The ids of `count` concurrent sends that got a place, before and after taking it.
    async fn take(taker: &PlaceTaker, count: usize) -> Vec<(SendId, SendId)> {
        let asks = ids(count).into_iter().map(async |before| {
            let mut after = before;
            let has_place = taker.take_one(TENANT, MAX, &mut after).await;
            has_place.expect("it is asked").then_some((before, after))
        });
        join_all(asks).await.into_iter().flatten().collect()
    }

    #[tokio::test]
    async fn of_many_at_once_most_get_what_one_took_for_all_and_none_too_many() {
        let (taker, other) = two();
        let first = take(&taker, 400).await;
        assert_eq!(first.len(), 400);
        let own = first.iter().filter(|(before, after)| before == after);
        assert_eq!(own.count(), 3);
        let second = take(&taker, 400).await;
        let all: HashSet<SendId> = first.into_iter().chain(second).map(|it| it.1).collect();
        assert_eq!(all.len(), 640);
        let others = other.take(OF, MAX, ids(1)).await;
        assert_eq!(others.expect("it is asked"), 0);
    }

    #[tokio::test]
    async fn a_key_has_places_of_its_own_over_all_schedulers() {
        let (taker, other) = two();
        let key = PlaceOwner::key(TENANT, KeyId(OsEntropy.random_id()));
        let another = PlaceOwner::key(TENANT, KeyId(OsEntropy.random_id()));
        let take = async |taker: &PlaceTaker, of, count| {
            let taken = taker.take(of, 3, ids(count)).await;
            taken.expect("it is asked")
        };
        assert_eq!(take(&taker, key, 2).await, 2);
        assert_eq!(take(&other, key, 2).await, 1);
        assert_eq!(take(&other, another, 4).await, 3);
        assert_eq!(take(&taker, OF, 4).await, 3);
    }

    #[tokio::test]
    async fn what_nobody_needed_is_left_to_others() {
        let (taker, other) = two();
        assert_eq!(take(&taker, 40).await.len(), 40);
        // A batch on the same scheduler gets the spare places at once.
        let batch = taker.take(OF, MAX, ids(500)).await;
        assert_eq!(batch.expect("it is asked"), 500);
        assert_eq!(take(&taker, 40).await.len(), 40);
        let rest = ids(60);
        let all = async {
            while other.take(OF, MAX, rest.clone()).await.ok() != Some(60) {
                tokio::task::yield_now().await;
            }
        };
        let found = tokio::time::timeout(Duration::from_secs(30), all).await;
        found.expect("nothing is kept for long");
    }
}
