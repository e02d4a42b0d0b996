//! Limits of tenants, their keys and their agents. The limit on open sends is kept here; the limits
//! on spending are checked in `spending`.
//!
//! Requests pass a gate that reads a tenant's limits, at most some seconds old, and notes them
//! here. Work that no request asks for (leaves of runs, children, sends of timers) is not limited.
//! For a tenant without limits, none of this costs a statement.

mod agents;
mod ahead;
mod places;

use std::collections::{HashMap, HashSet};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::error::Code;
use mainspring_shared::id::{KeyId, SendId, TenantId};
use mainspring_shared::send::SendStatus;
use mainspring_shared::store::{AcceptSend, ListSends};
use mainspring_shared::tenant::Limits;

use crate::app::App;
use crate::error::{Error, Quota};
use crate::services::spending;

use self::agents::OfAgent;

pub use self::agents::KnownAgents;
pub(crate) use self::places::{PlaceHolder, PlaceOwner, PlaceTaker, Places};

/// How long a client should wait if its tenant has no place for a send. Sends end all the time, and
/// nobody knows which is next.
const WAIT: Duration = Duration::from_secs(1);

/// Open sends per page.
const OPEN_PAGE: u32 = 200;

/// The limits of tenants that sent requests, if they have any besides the limit on requests.
#[derive(Debug, Default)]
pub struct KnownLimits(RwLock<HashMap<TenantId, Limits>>);

impl KnownLimits {
    /// Records a tenant's limits.
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

    /// The limits of a tenant, if it has any.
    pub fn of(&self, tenant: TenantId) -> Option<Limits> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&tenant).cloned()
    }
}

/// A request's API key with a limit on open sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeySends {
    /// The API key.
    pub key: KeyId,
    /// The maximum number of open sends.
    pub max: u32,
}

/// Takes places for sends of one tenant, and of the API key that they came with. Sends without a
/// place are to be refused, except those that repeat an earlier request, which get its response.
pub(crate) async fn take_places(
    app: &App,
    items: &[AcceptSend],
    key: Option<KeySends>,
) -> Result<Places, Error> {
    let mut places = Places::default();
    let Some(first) = items.first() else {
        return Ok(places);
    };
    let tenant = first.target.key().tenant;
    let Admission::Within(max) = admit(app, tenant, items, &mut places).await? else {
        return Ok(places);
    };
    match take_or_refuse_all(app, &mut places, items, (tenant, key, max)).await {
        Ok(()) => Ok(places),
        Err(error) => {
            places.give_back(app, &[]).await;
            Err(error)
        }
    }
}

/// Takes the places of a key, then of agents, then of a tenant. A send that finds no place takes
/// none of the later ones.
async fn take_or_refuse_all(
    app: &App,
    places: &mut Places,
    items: &[AcceptSend],
    (tenant, key, max): (TenantId, Option<KeySends>, Option<u32>),
) -> Result<(), Error> {
    let mut left: Vec<&AcceptSend> = items.iter().collect();
    if let Some(KeySends { key, max }) = key {
        left = take_or_refuse(app, places, (PlaceOwner::key(tenant, key), max), left).await?;
    }
    for of in agents::limited(app, tenant, &left).await? {
        let its: HashSet<SendId> = of.sends.iter().map(|item| item.id).collect();
        let had = take_or_refuse_agent(app, places, tenant, of).await?;
        let had: HashSet<SendId> = had.iter().map(|item| item.id).collect();
        left.retain(|item| !its.contains(&item.id) || had.contains(&item.id));
    }
    if let Some(max) = max {
        take_or_refuse(app, places, (PlaceOwner::tenant(tenant), max), left).await?;
    }
    Ok(())
}

/// Refuses the sends of an agent that has used up its budget, or else takes the agent's places.
/// Returns the sends that are left.
async fn take_or_refuse_agent<'a>(
    app: &App,
    places: &mut Places,
    tenant: TenantId,
    of: OfAgent<'a>,
) -> Result<Vec<&'a AcceptSend>, Error> {
    let OfAgent {
        agent,
        limits,
        sends,
    } = of;
    if let Some(why) = spending::agent_refusal(app, tenant, &agent, &limits).await? {
        places.refuse(new_among(app, sends.into_iter()).await?, &why);
        return Ok(Vec::new());
    }
    match limits.sends_open {
        Some(max) => {
            take_or_refuse(app, places, (PlaceOwner::agent(tenant, &agent), max), sends).await
        }
        None => Ok(sends),
    }
}

/// Takes places of one owner for as many of these sends as possible, in order. Returns the sends
/// that have one.
async fn take_or_refuse<'a>(
    app: &App,
    places: &mut Places,
    (of, max): (PlaceOwner, u32),
    left: Vec<&'a AcceptSend>,
) -> Result<Vec<&'a AcceptSend>, Error> {
    let sends: Vec<SendId> = left.iter().map(|item| item.id).collect();
    let taken = app.acceptor.places.take(of, max, sends.clone()).await?;
    let (had, others) = left.split_at(taken.min(left.len()));
    places.took(of, &sends[..had.len()]);
    let refused = new_among(app, others.iter().copied()).await?;
    places.refuse(refused, &too_many(of, max));
    Ok(had.to_vec())
}

/// Takes a place for one send that nobody has heard of yet, and so may still get another id.
pub(crate) async fn take_place(
    app: &App,
    item: &mut AcceptSend,
    key: Option<KeySends>,
) -> Result<Places, Error> {
    let mut places = Places::default();
    let tenant = item.target.key().tenant;
    let one = std::slice::from_ref(item);
    let Admission::Within(max) = admit(app, tenant, one, &mut places).await? else {
        return Ok(places);
    };
    let taker = &app.acceptor.places;
    if let Some(max) = max {
        let of = PlaceOwner::tenant(tenant);
        if !taker.take_one(tenant, max, &mut item.id).await? {
            let refused = new_among(app, std::iter::once(&*item)).await?;
            places.refuse(refused, &too_many(of, max));
            return Ok(places);
        }
        places.took(of, &[item.id]);
    }
    let one = std::slice::from_ref(item);
    match take_or_refuse_all(app, &mut places, one, (tenant, key, None)).await {
        Ok(()) => Ok(places),
        Err(error) => {
            places.give_back(app, &[]).await;
            Err(error)
        }
    }
}

/// How a tenant's limits apply to its sends.
enum Admission {
    /// It may have this many open sends, or any number if absent.
    Within(Option<u32>),
    /// None of them is accepted.
    Refused,
}

/// Refuses the sends of a tenant that has used up its budget.
async fn admit(
    app: &App,
    tenant: TenantId,
    items: &[AcceptSend],
    places: &mut Places,
) -> Result<Admission, Error> {
    let Some(limits) = app.known.limits.of(tenant) else {
        return Ok(Admission::Within(None));
    };
    if let Some(why) = spending::refusal(app, tenant, &limits).await? {
        places.refuse(new_among(app, items.iter()).await?, &why);
        return Ok(Admission::Refused);
    }
    Ok(Admission::Within(limits.sends_open))
}

/// Why a send of a tenant with this agent would be refused at the moment. Takes no place. Open
/// sends are counted by listing them, which may include sends that no request made. An agent's open
/// sends are not counted.
pub(crate) async fn refusals(
    app: &App,
    tenant: TenantId,
    agent: &AgentSpec,
) -> Result<Vec<Error>, Error> {
    let mut refusals = Vec::new();
    if let Some(limits) = app.known.limits.of(tenant) {
        refusals.extend(spending::refusal(app, tenant, &limits).await?);
        if let Some(max) = limits.sends_open
            && open_sends(app, tenant, max).await? >= max
        {
            refusals.push(too_many(PlaceOwner::tenant(tenant), max));
        }
    }
    let limited = app.known.agents.of(tenant).unwrap_or_default();
    if let Some(agent) = agent.reference()
        && let Some(limits) = limited.get(&agent.name)
    {
        let why = spending::agent_refusal(app, tenant, &agent.name, limits);
        refusals.extend(why.await?);
    }
    Ok(refusals)
}

/// The number of a tenant's open sends. Counting stops at `max`.
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

/// Those of some sends that do not repeat an earlier request.
async fn new_among(
    app: &App,
    items: impl Iterator<Item = &AcceptSend>,
) -> Result<Vec<SendId>, Error> {
    let mut new = Vec::new();
    for item in items {
        let repeats = match &item.idempotency {
            Some(key) => app.store.keyed_resource(key.clone()).await?.is_some(),
            None => false,
        };
        if !repeats {
            new.push(item.id);
        }
    }
    Ok(new)
}

fn too_many(of: PlaceOwner, max: u32) -> Error {
    let (whose, name) = match of.holder {
        PlaceHolder::Tenant => ("tenant", "sends-open"),
        PlaceHolder::Key(_) => ("API key", "key-sends-open"),
        PlaceHolder::Agent(_) => ("agent", "agent-sends-open"),
    };
    let detail = format!("the {whose} may have at most {max} open sends");
    let quota = Quota {
        name,
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
