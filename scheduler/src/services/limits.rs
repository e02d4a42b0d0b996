//! Limits of tenants: the open sends that they have at a time, and who is asked about the others.
//!
//! Requests pass a gate that looks a tenant's limits up, at most some seconds ago, and notes them here. What no
//! request asks for (leaves of runs, children, sends of timers) is not held to them. For a tenant without a
//! limit none of this costs a statement.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::future::join_all;
use mainspring_runtime::Group;
use mainspring_shared::error::Code;
use mainspring_shared::id::{SendId, TenantId};
use mainspring_shared::send::SendStatus;
use mainspring_shared::store::{AcceptSend, ListSends, Store, places_by_tenant};
use mainspring_shared::tenant::Limits;

use crate::app::App;
use crate::error::{Error, Quota};
use crate::services::spending;

/// What a client is asked to wait whose tenant has no place for a send: some end every moment, and nobody knows
/// which.
const WAIT: Duration = Duration::from_secs(1);

/// Open sends that are listed at once.
const OPEN_PAGE: u32 = 200;

/// The limits of the tenants that sent requests, where they have any but that of requests.
#[derive(Debug, Default)]
pub struct KnownLimits(RwLock<HashMap<TenantId, Limits>>);

impl KnownLimits {
    /// Takes note of a tenant's limits.
    pub fn note(&self, tenant: TenantId, limits: &Limits) {
        let others = Limits {
            requests_per_second: None,
            ..limits.clone()
        };
        let is_limited = others != Limits::default();
        if self.of(tenant).unwrap_or_default() == others {
            return;
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if is_limited {
            known.insert(tenant, others);
        } else {
            known.remove(&tenant);
        }
    }

    /// The limits of a tenant that has any.
    pub fn of(&self, tenant: TenantId) -> Option<Limits> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&tenant).cloned()
    }
}

/// Takes places for sends of one tenant. Returns which of them have none, and are to be refused; none are
/// refused that repeat an earlier request, whose answer they get.
pub(crate) async fn take_places(app: &App, items: &[AcceptSend]) -> Result<Places, Error> {
    let Some(first) = items.first() else {
        return Ok(Places::default());
    };
    let tenant = first.target.key().tenant;
    let Some(limits) = app.limits.of(tenant) else {
        return Ok(Places::default());
    };
    if let Some(why) = spending::refusal(app, tenant, &limits).await? {
        let refused = new_among(app, items).await?;
        return Ok(Places {
            refused,
            why: Some(why),
            ..Places::default()
        });
    }
    let Some(max) = limits.sends_open else {
        return Ok(Places::default());
    };
    let ids: Vec<SendId> = items.iter().map(|item| item.id).collect();
    let wanted = Wanted {
        tenant,
        sends: ids.clone(),
        max,
    };
    let taken = app.acceptor.places.submit(wanted).await;
    let taken = taken.unwrap_or_else(|_| Err(Error::stopping()))?;
    let refused = new_among(app, items.get(taken..).unwrap_or_default()).await?;
    Ok(Places {
        of: Some(tenant),
        taken: ids.into_iter().take(taken).collect(),
        why: Some(too_many(max)),
        refused,
    })
}

/// Places that the sends of a request want.
#[derive(Debug)]
pub(super) struct Wanted {
    tenant: TenantId,
    sends: Vec<SendId>,
    max: u32,
}

/// Takes the places that requests of the same moment want, those of a tenant in one transaction: how many each of
/// them got.
pub(super) fn places(store: Arc<dyn Store>) -> Group<Wanted, Result<usize, Error>> {
    Group::spawn(1, move |items: Vec<Wanted>| {
        let store = store.clone();
        async move {
            let tenants = places_by_tenant(&items, |item| item.tenant);
            let takes = tenants.into_iter().map(async |(tenant, requests)| {
                let of = |request: &usize| &items[*request];
                // The newest limit that any of them knows.
                let max = requests.last().map_or(0, |last| of(last).max);
                let sends = requests
                    .iter()
                    .flat_map(|request| of(request).sends.clone());
                let taken = store.reserve_sends(tenant, sends.collect(), max).await;
                (requests, taken)
            });
            let takes = join_all(takes).await;
            let mut outcomes: Vec<Result<usize, Error>> = items.iter().map(|_| Ok(0)).collect();
            for (requests, taken) in takes {
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
    })
}

/// Why a send of a tenant would be refused now. Takes no place: how many are open is counted by what is listed,
/// which may have some that no request made.
pub(crate) async fn refusals(app: &App, tenant: TenantId) -> Result<Vec<Error>, Error> {
    let Some(limits) = app.limits.of(tenant) else {
        return Ok(Vec::new());
    };
    let mut refusals: Vec<Error> = spending::refusal(app, tenant, &limits)
        .await?
        .into_iter()
        .collect();
    if let Some(max) = limits.sends_open
        && open_sends(app, tenant, max).await? >= max
    {
        refusals.push(too_many(max));
    }
    Ok(refusals)
}

/// How many sends of a tenant are open, as far as it matters.
async fn open_sends(app: &App, tenant: TenantId, max: u32) -> Result<u32, Error> {
    let mut open = 0;
    for status in [SendStatus::Running, SendStatus::Waiting, SendStatus::Queued] {
        let mut before = None;
        while open < max {
            let query = ListSends {
                tenant,
                session: None,
                status: Some(status),
                before,
                limit: (max - open).min(OPEN_PAGE),
            };
            let page = app.store.list_sends(query).await?;
            open += u32::try_from(page.data.len()).unwrap_or(u32::MAX);
            before = page.data.last().map(|send| send.id);
            if !page.more || before.is_none() {
                break;
            }
        }
    }
    Ok(open)
}

/// Which of some sends repeat no earlier request.
async fn new_among(app: &App, items: &[AcceptSend]) -> Result<Vec<SendId>, Error> {
    let mut new = Vec::new();
    for item in items {
        let repeats = match &item.idempotency {
            Some(key) => app.store.has_key(key.clone()).await?,
            None => false,
        };
        if !repeats {
            new.push(item.id);
        }
    }
    Ok(new)
}

/// The places of some sends.
#[derive(Debug, Default)]
pub(crate) struct Places {
    of: Option<TenantId>,
    taken: Vec<SendId>,
    refused: Vec<SendId>,
    why: Option<Error>,
}

impl Places {
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
        if left.is_empty() {
            return;
        }
        if let Err(error) = app.store.release_sends(tenant, left).await {
            tracing::debug!(%error, "places of sends that were not accepted are free later");
        }
    }
}

fn too_many(max: u32) -> Error {
    let detail = format!("the tenant may have {max} open sends at a time");
    let quota = Quota {
        name: "sends-open",
        unit: Some("concurrent-requests"),
        quota: u64::from(max),
        window: None,
        left: 0,
        reset: WAIT,
    };
    Error::new(Code::LimitSends, detail)
        .after(WAIT)
        .with_quota(quota)
}
