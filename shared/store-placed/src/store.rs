//! The store over all databases, and the three ways in which a step is routed: to a tenant's
//! database, to all of them, or item by item.

use std::future::Future;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};
use mainspring_shared::id::{BootId, TenantId};
use mainspring_shared::store::placements::Elsewhere;
use mainspring_shared::store::{Error, NewBoot, Result, scope, scoped};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::catalogue::{Catalogue, Known};
use crate::merge::Answers;
use crate::place::{Away, Database, Place};

/// How long to wait for the other databases once one has answered. Later answers are ignored, but
/// their calls take effect, which the next search finds.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// How often to compare the copies of tenants' limits with the home.
const FOLLOWS_EVERY: Duration = Duration::from_mins(1);

/// How long a group waits for the only database that it needs.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a group waits for a database once another one has answered.
const GRACE_OF_GROUPS: Duration = Duration::from_secs(1);

/// One of several databases that a group needs is unavailable. Reported as `Refused`, so that the
/// items are run one by one, as with bad data, and those of other databases do not fail with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a database of some of the items is away")]
struct Apart;

impl From<Apart> for Error {
    fn from(apart: Apart) -> Self {
        Self::Refused {
            source: Box::new(apart),
        }
    }
}

/// The store port over several databases.
#[derive(Debug)]
pub struct PlacedStore {
    /// The first one is the home.
    places: Vec<Arc<Place>>,
    pub(crate) catalogue: Catalogue,
    /// The boots of this process, to register them on a database that was unavailable when they
    /// started.
    boots: Mutex<Vec<NewBoot>>,
    /// Counts the searches for sends that wait for the end of a pause: some of them compare the
    /// pauses.
    pub(crate) looks: AtomicU32,
    /// Counts the claims up to a limit: each starts with another database.
    pub(crate) claims: AtomicUsize,
    /// When tenants' limits were last compared.
    followed: Mutex<Option<Instant>>,
}

impl PlacedStore {
    /// Creates the store over these databases.
    pub fn new(home: Database, others: Vec<Database>) -> Self {
        let databases = std::iter::once(home).chain(others);
        let places: Vec<_> = databases.map(|it| Arc::new(Place::new(it))).collect();
        Self {
            catalogue: Catalogue::new(&places),
            places,
            boots: Mutex::default(),
            looks: AtomicU32::default(),
            claims: AtomicUsize::default(),
            followed: Mutex::default(),
        }
    }

    pub(crate) fn home(&self) -> &Arc<Place> {
        &self.places[0]
    }

    pub(crate) fn others(&self) -> &[Arc<Place>] {
        &self.places[1..]
    }

    pub(crate) fn places(&self) -> &[Arc<Place>] {
        &self.places
    }

    pub(crate) fn place(&self, known: Known) -> &Arc<Place> {
        &self.places[known.place]
    }

    pub(crate) fn boots(&self) -> MutexGuard<'_, Vec<NewBoot>> {
        self.boots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The boot of this process with this id.
    pub(crate) fn own_boot(&self, id: BootId) -> Option<NewBoot> {
        self.boots().iter().find(|boot| boot.id == id).cloned()
    }

    /// Whether to compare tenants' limits now. The cost grows with the number of tenants that are
    /// not at home.
    pub(crate) fn follows_now(&self) -> bool {
        let mut last = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|at| at.elapsed() >= FOLLOWS_EVERY);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }

    /// Whether a tenant is on this database, rather than having left rows on it when it moved.
    pub(crate) fn is_at(&self, place: usize, tenant: TenantId) -> bool {
        let known = self.catalogue.known(tenant);
        known.is_ok_and(|known| known.place == place)
    }

    /// Calls the tenant's database; again if the tenant has just moved to another one.
    pub(crate) async fn at<T, Fut>(
        &self,
        tenant: TenantId,
        call: impl Fn(Arc<Place>) -> Fut,
    ) -> Result<T>
    where
        Fut: Future<Output = Result<T>> + Send,
    {
        let mut known = self.catalogue.find(tenant).await?;
        loop {
            let place = self.place(known);
            match place.ask(call(place.clone())).await {
                Err(error) if Elsewhere::is_cause_of(&error) => {
                    let now = self.catalogue.find_again(tenant).await?;
                    if now.place == known.place {
                        return Err(error);
                    }
                    known = now;
                }
                answer if self.catalogue.is_fresh() => return answer,
                // The call took longer than the catalogue is relied on: the tenant may have moved
                // meanwhile, and then the answer of its old database does not count.
                answer => match self.catalogue.find(tenant).await {
                    Ok(now) if now.place != known.place => known = now,
                    Ok(_) | Err(_) => return answer,
                },
            }
        }
    }

    /// Calls all databases concurrently.
    pub(crate) async fn each<T, Fut>(
        &self,
        grace: Duration,
        call: impl Fn(Arc<Place>) -> Fut,
    ) -> Answers<T>
    where
        T: Send + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let calls = self.places.iter().enumerate();
        let calls = calls.map(|(index, place)| (index, call(place.clone())));
        Answers(self.together(grace, calls.collect()).await)
    }

    /// Calls databases concurrently. After each answer once one has succeeded, waits at most
    /// `grace` for the next; missing answers count as failures.
    async fn together<T, Fut>(
        &self,
        grace: Duration,
        calls: Vec<(usize, Fut)>,
    ) -> Vec<(usize, Result<T>)>
    where
        T: Send + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let mut missing: Vec<usize> = calls.iter().map(|(index, _)| *index).collect();
        let mut running: FuturesUnordered<_> = calls
            .into_iter()
            .map(|(index, call)| {
                let task = self.started(index, call);
                async move { (index, task.await) }
            })
            .collect();
        let mut answers = Vec::with_capacity(missing.len());
        let mut any = false;
        loop {
            let next = if any {
                timeout(grace, running.next()).await.unwrap_or(None)
            } else {
                running.next().await
            };
            let Some((index, answer)) = next else { break };
            missing.retain(|other| *other != index);
            let answer = answer.unwrap_or_else(|_| Err(self.away(index)));
            any |= answer.is_ok();
            answers.push((index, answer));
        }
        for index in missing {
            self.places[index].failed();
            answers.push((index, Err(self.away(index))));
        }
        answers.sort_by_key(|(index, _)| *index);
        answers
    }

    /// Calls a database, and waits long enough for a step to take effect if the database is
    /// available.
    pub(crate) async fn call_with_timeout<T, Fut>(&self, index: usize, call: Fut) -> Result<T>
    where
        T: Send + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let task = self.started(index, call);
        let Ok(answer) = timeout(CALL_TIMEOUT, task).await else {
            self.places[index].failed();
            return Err(self.away(index));
        };
        answer.unwrap_or_else(|_| Err(self.away(index)))
    }

    /// Calls a database in a separate task, in the caller's tenant scope: the step is completed
    /// even if nothing waits for it any more.
    fn started<T, Fut>(&self, index: usize, call: Fut) -> JoinHandle<Result<T>>
    where
        T: Send + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let (place, tenant) = (self.places[index].clone(), scope());
        tokio::spawn(async move {
            match tenant {
                Some(tenant) => scoped(tenant, place.ask(call)).await,
                None => place.ask(call).await,
            }
        })
    }

    fn away(&self, index: usize) -> Error {
        Away(self.places[index].name.clone()).into()
    }

    /// Routes each item to its tenant's database, and returns the outcomes in the order of the
    /// items. An item whose database is unavailable or whose tenant is moving gets the outcome
    /// `later`: its caller retries, and a retried item takes effect once. Without `later`, the call
    /// fails with an error that makes the caller run the items one by one.
    pub(crate) async fn split<I, O, Fut>(
        &self,
        items: Vec<I>,
        tenant: impl Fn(&I) -> TenantId,
        later: Option<O>,
        call: impl Fn(Arc<Place>, Vec<I>) -> Fut,
    ) -> Result<Vec<O>>
    where
        O: Clone + Send + 'static,
        Fut: Future<Output = Result<Vec<O>>> + Send + 'static,
    {
        let tenants: Vec<TenantId> = items.iter().map(tenant).collect();
        let mut parts: Vec<Vec<(usize, I)>> = Vec::new();
        parts.resize_with(self.places.len(), Vec::new);
        let mut outcomes: Vec<Option<O>> = vec![None; tenants.len()];
        let mut asked: Vec<usize> = Vec::with_capacity(tenants.len());
        for (n, item) in items.into_iter().enumerate() {
            let known = self.catalogue.find(tenants[n]).await?;
            asked.push(known.place);
            match &later {
                Some(later) if known.phase.is_frozen() => outcomes[n] = Some(later.clone()),
                Some(_) | None => parts[known.place].push((n, item)),
            }
        }
        let mut calls = Vec::new();
        let mut numbers = Vec::new();
        for (index, part) in parts.into_iter().enumerate() {
            if part.is_empty() {
                continue;
            }
            let (of, items): (Vec<usize>, Vec<I>) = part.into_iter().unzip();
            numbers.push(of);
            calls.push((index, call(self.places[index].clone(), items)));
        }
        let answers = match calls.len() {
            // The usual case. Waits only so long, since the next group, which may be for another
            // database, waits for this one to end.
            1 if later.is_some() => {
                let (index, call) = calls.remove(0);
                vec![(index, self.call_with_timeout(index, call).await)]
            }
            _ => self.together(GRACE_OF_GROUPS, calls).await,
        };
        let alone = answers.len() == 1 && numbers.first().map(Vec::len) == Some(tenants.len());
        for ((_, answer), of) in answers.into_iter().zip(numbers) {
            match answer {
                Ok(part) => {
                    for (n, outcome) in of.into_iter().zip(part) {
                        outcomes[n] = Some(outcome);
                    }
                }
                Err(error) => {
                    let is_moving = Elsewhere::is_cause_of(&error);
                    if is_moving {
                        let first = of.first().map_or(TenantId::DEFAULT, |n| tenants[*n]);
                        self.catalogue.find_again(first).await?;
                    }
                    let later = match (&error, &later) {
                        (Error::Unavailable { .. }, Some(later)) if is_moving || !alone => later,
                        (Error::Unavailable { .. }, None) if !alone => return Err(Apart.into()),
                        _ => return Err(error),
                    };
                    for n in of {
                        outcomes[n] = Some(later.clone());
                    }
                }
            }
        }
        if !self.catalogue.is_fresh() {
            // As in `at`.
            for (n, place) in asked.into_iter().enumerate() {
                let now = self.catalogue.find(tenants[n]).await;
                if now.is_ok_and(|now| now.place != place) {
                    outcomes[n] = Some(later.clone().ok_or(Elsewhere)?);
                }
            }
        }
        Ok(outcomes.into_iter().flatten().collect())
    }
}
