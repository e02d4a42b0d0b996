//! Accepts sends. Sends of concurrent requests share a transaction.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mainspring_runtime::telemetry::{self, spans};
use mainspring_runtime::{Group, Weight};
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::bus::StepNotice;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::id::{SendId, SessionKey, TenantId};
use mainspring_shared::inbox::InboxItem;
use mainspring_shared::send::{SendStatus, SendView, ShownOptions};
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, Accepted, CreateOutcome, IdempotencyKey, NewSession, Store, Target,
};
use mainspring_shared::time::Clock;
use mainspring_shared::tool::ToolFault;
use mainspring_shared::usage::Usage;
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::Instrument as _;

use super::deliver::{Delivery, deliver, delivery};
use super::dispatch::Dispatches;
use super::limits::{KeySends, PlaceTaker, take_place, take_places};
use super::pressure::{Filled, Pressure, Work};
use super::watch::{read_and_wait, wait_for};
use crate::SchedulerConfig;
use crate::app::{App, each};
use crate::error::Error;
use crate::known_tools::KnownTools;
use crate::metrics::{ACCEPT_GROUP, ACCEPTED};

/// Groups of single sends that are committed concurrently. With one at a time, groups grow with the
/// load, and the number of commits is minimal.
const GROUPS_IN_FLIGHT: usize = 1;

/// Groups of batches in flight: while one is being committed, the next one's rows are written.
const BATCHES_IN_FLIGHT: usize = 2;

/// Pause before a retry of a send to a locked session.
const LOCKED_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of retries. Together they outlast the locks of a process that is paused in a
/// transaction.
const LOCKED_MAX: u32 = 50;

/// A session to create, with the idempotency key of the request.
pub type Creation = (NewSession, Option<IdempotencyKey>);

/// The outcome of one send, or an error if the outcome is not known.
pub type AcceptResult = Result<AcceptOutcome, Error>;

/// Accepts sends and creates sessions, in groups.
pub struct Acceptor {
    group: Group<AcceptSend, AcceptResult>,
    /// Retries of sends whose sessions were locked. They are kept apart so that they do not delay
    /// other sends.
    locked: Group<AcceptSend, AcceptResult>,
    clock: Arc<dyn Clock>,
    permits: Arc<Semaphore>,
    batches: Semaphore,
    accepting_max: usize,
    /// How long the database takes for groups.
    pressure: Pressure,
    /// Creates sessions; concurrent creations share a transaction.
    creations: Group<Creation, Result<CreateOutcome, Error>>,
    /// Places for sends of tenants with a limit on open sends.
    pub(super) places: PlaceTaker,
    /// The tools that workers publish.
    tools: KnownTools,
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor").finish_non_exhaustive()
    }
}

impl Acceptor {
    /// Starts the groups' tasks. They hold the application weakly, so they end with it.
    pub fn new(
        app: &std::sync::Weak<App>,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        config: &SchedulerConfig,
    ) -> Self {
        let group = || {
            let app = app.clone();
            let weight = Weight {
                bytes_max: config.group_bytes_max,
                bytes_of: AcceptSend::weight,
            };
            Group::weighed(GROUPS_IN_FLIGHT, weight, move |items: Vec<AcceptSend>| {
                let app = app.clone();
                async move {
                    match app.upgrade() {
                        Some(app) => commit(&app, items).await,
                        None => vec![Err(Error::stopping()); items.len()],
                    }
                }
            })
        };
        Self {
            group: group(),
            locked: group(),
            places: PlaceTaker::new(store.clone(), clock.clone(), entropy),
            clock,
            permits: Arc::new(Semaphore::new(config.accepting_max)),
            batches: Semaphore::new(BATCHES_IN_FLIGHT),
            accepting_max: config.accepting_max,
            pressure: Pressure::new(config.shed_after),
            creations: Group::spawn(1, move |items: Vec<Creation>| {
                let store = store.clone();
                async move { each(&items, |items| store.create_sessions(items)).await }
            }),
            tools: KnownTools::default(),
        }
    }

    /// Accepts one send. Fails with `limit.exceeded` if too many are in flight. Retries for some
    /// seconds while the session is locked, and then returns [`AcceptOutcome::Locked`].
    pub async fn accept(&self, mut item: AcceptSend) -> AcceptResult {
        let span = spans::accept(item.target.key(), item.id, 1);
        item.options.traceparent = span.in_scope(telemetry::traceparent);
        self.accept_in_group(item).instrument(span).await
    }

    async fn accept_in_group(&self, item: AcceptSend) -> AcceptResult {
        let _permit = self.reserve(1)?;
        let mut lane = &self.group;
        for _ in 0..LOCKED_MAX {
            let accepting = lane.submit(item.clone()).await;
            match accepting.unwrap_or_else(|_| Err(Error::stopping())) {
                Ok(AcceptOutcome::Locked) => {
                    lane = &self.locked;
                    self.clock.sleep(LOCKED_PAUSE).await;
                }
                answer => return answer,
            }
        }
        Ok(AcceptOutcome::Locked)
    }

    /// Creates a session.
    pub async fn create(&self, creation: Creation) -> Result<CreateOutcome, Error> {
        let outcome = self.creations.submit(creation).await;
        outcome.unwrap_or_else(|_| Err(Error::stopping()))
    }

    /// The names in an agent's `tools` that no worker of its pool has.
    pub async fn missing_tools(&self, app: &App, agent: &AgentSpec) -> Vec<ToolFault> {
        let (store, clock) = (app.store.as_ref(), app.clock.as_ref());
        self.tools.missing(store, clock, agent).await
    }

    /// The model, as `PROVIDER/MODEL`, if the workers of this pool do not know its price.
    pub(crate) async fn lacks_price(&self, app: &App, of: (&str, Option<&str>)) -> Option<String> {
        let (store, clock) = (app.store.as_ref(), app.clock.as_ref());
        self.tools.lacks_price(store, clock, of).await
    }

    /// Whether this kind of work is refused because the database is slow or too many sends wait for
    /// it.
    pub fn refuses(&self, work: Work) -> bool {
        let free = self.permits.available_permits();
        let filled = Filled {
            now: self.accepting_max.saturating_sub(free),
            max: self.accepting_max,
        };
        self.pressure.refuses(work, filled, self.clock.monotonic())
    }

    /// Reserves capacity for `count` sends in flight. Fails with `limit.exceeded` if there is not
    /// enough.
    pub fn reserve(&self, count: usize) -> Result<OwnedSemaphorePermit, Error> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let permits = self.permits.clone();
        permits
            .try_acquire_many_owned(count)
            .map_err(|_| Error::too_much("accept"))
    }
}

/// Accepts the sends of one batch, all of one tenant, in order, in transactions of at most
/// `batch_group_max` sends. Sends that exceed the tenant's or the key's limit on open sends are
/// refused; the others are not affected.
pub async fn accept_many(
    app: &Arc<App>,
    mut items: Vec<AcceptSend>,
    limited: Option<KeySends>,
) -> Vec<AcceptResult> {
    let Some(first) = items.first() else {
        return Vec::new();
    };
    let span = spans::accept(first.target.key(), first.id, items.len());
    let traceparent = span.in_scope(telemetry::traceparent);
    for item in &mut items {
        item.options.traceparent.clone_from(&traceparent);
    }
    accept_all(app, items, limited).instrument(span).await
}

async fn accept_all(
    app: &Arc<App>,
    items: Vec<AcceptSend>,
    limited: Option<KeySends>,
) -> Vec<AcceptResult> {
    let places = match take_places(app, &items, limited).await {
        Ok(places) => places,
        Err(error) => return vec![Err(error); items.len()],
    };
    let ids: Vec<SendId> = items.iter().map(|item| item.id).collect();
    let refusals: Vec<_> = ids.iter().map(|id| places.refusal(*id)).collect();
    let fit = items.into_iter().zip(&refusals);
    let fit = fit.filter(|(_, refusal)| refusal.is_none());
    let mut outcomes = accept_groups(app, fit.map(|(item, _)| item).collect())
        .await
        .into_iter();
    let outcomes = refusals.into_iter().map(|refusal| match refusal {
        Some(refusal) => Err(refusal),
        None => outcomes.next().unwrap_or_else(|| Err(Error::internal())),
    });
    let outcomes: Vec<AcceptResult> = outcomes.collect();
    let accepted = ids.into_iter().zip(&outcomes);
    let accepted = accepted.filter(|(_, it)| matches!(it, Ok(AcceptOutcome::Accepted(_))));
    let accepted: Vec<SendId> = accepted.map(|(id, _)| id).collect();
    places.give_back(app, &accepted).await;
    outcomes
}

async fn accept_groups(app: &Arc<App>, mut items: Vec<AcceptSend>) -> Vec<AcceptResult> {
    let mut outcomes = Vec::with_capacity(items.len());
    while !items.is_empty() {
        let rest = items.split_off(group_len(&items, &app.config));
        let group = std::mem::replace(&mut items, rest);
        let Ok(lane) = app.acceptor.batches.acquire().await else {
            outcomes.extend(vec![Err(Error::stopping()); group.len()]);
            continue;
        };
        let accepted = commit(app, group.clone()).await;
        drop(lane);
        let is_locked = |outcome: &AcceptResult| matches!(outcome, Ok(AcceptOutcome::Locked));
        let step = |left| commit(app, left);
        outcomes.extend(retry_locked(app, group, accepted, is_locked, step).await);
    }
    outcomes
}

/// How many of these items, from the first one, share one transaction.
fn group_len(items: &[AcceptSend], config: &SchedulerConfig) -> usize {
    let mut bytes = 0_usize;
    let fits = items
        .iter()
        .take(config.batch_group_max)
        .take_while(|item| {
            bytes = bytes.saturating_add(item.weight());
            bytes <= config.group_bytes_max
        });
    fits.count().max(1)
}

/// Repeats `step` for the locked items, with pauses, until none is locked or the retries are used
/// up. Returns `known` with their new outcomes.
pub async fn retry_locked<T, R, F, Fut>(
    app: &App,
    items: Vec<T>,
    mut known: Vec<R>,
    is_locked: fn(&R) -> bool,
    step: F,
) -> Vec<R>
where
    T: Clone,
    F: Fn(Vec<T>) -> Fut,
    Fut: Future<Output = Vec<R>>,
{
    for _ in 0..LOCKED_MAX {
        let locked = known.iter().enumerate();
        let locked = locked.filter(|(_, outcome)| is_locked(outcome));
        let locked: Vec<usize> = locked.map(|(index, _)| index).collect();
        if locked.is_empty() {
            break;
        }
        app.clock.sleep(LOCKED_PAUSE).await;
        let left = locked.iter().map(|index| items[*index].clone()).collect();
        for (index, outcome) in locked.into_iter().zip(step(left).await) {
            known[index] = outcome;
        }
    }
    known
}

/// Commits one transaction, then publishes its notifications.
async fn commit(app: &Arc<App>, items: Vec<AcceptSend>) -> Vec<AcceptResult> {
    let count = items.len();
    let boot = match app.boot_id() {
        Ok(boot) => boot,
        Err(error) => return vec![Err(error); count],
    };
    let items = if app.bus().is_available() {
        app.known.keepers.name(items, app.clock.monotonic())
    } else {
        items
    };
    let storing = each(&items, |items| app.store.accept_sends(boot, items));
    let storing = storing.instrument(spans::statements("accept_sends", count));
    let timed = app.acceptor.pressure.timed(app.clock.as_ref(), storing);
    let mut outcomes = timed.await;
    let mut notices = Vec::with_capacity(count);
    let mut dispatches = Dispatches::default();
    for (item, outcome) in items.into_iter().zip(&mut outcomes) {
        if let Ok(AcceptOutcome::Accepted(accepted)) = outcome {
            notices.push(StepNotice::new(
                item.target.key(),
                item.id,
                accepted.step,
                false,
            ));
            app.notifier.enqueue(accepted.enqueue.take());
            dispatches.add(item, accepted);
        }
    }
    dispatches.tell(app);
    metrics::counter!(ACCEPTED).increment(notices.len() as u64);
    metrics::histogram!(ACCEPT_GROUP).record(count as f64);
    app.notifier.publish_steps(&notices);
    outcomes
}

/// A new session without a parent.
pub fn new_session(
    app: &App,
    tenant: TenantId,
    agent: AgentSpec,
    metadata: Map<String, Value>,
) -> NewSession {
    NewSession {
        key: app.new_session_key(tenant),
        agent,
        metadata,
        parent: None,
    }
}

/// The result of submitting a send.
#[derive(Debug)]
pub struct Submitted {
    /// The new send, or the running or queued send to which the message was delivered.
    pub send: SendView,
    /// The inbox item, if the message was delivered to another send.
    pub inbox_item: Option<InboxItem>,
    /// Whether it was created by an earlier request with the same idempotency key.
    pub replayed: bool,
}

/// Accepts a send, or delivers its message to an open send if its `on_busy` asks for that. Then
/// waits up to `wait` for the send to settle. `held` is dropped once the send is stored. `limited`
/// is the request's key if that has a limit on open sends.
pub async fn submit<H>(
    app: &App,
    mut item: AcceptSend,
    held: H,
    wait: Option<Duration>,
    limited: Option<KeySends>,
) -> Result<Submitted, Error> {
    let key = item.target.key();
    if let Some(delivery) = delivery(&item) {
        let mut delivered = deliver(app, vec![delivery]).await;
        if let Some(joined) = delivered.pop().ok_or_else(Error::internal)?? {
            drop(held);
            let (id, inbox_item) = match joined {
                Delivery::Delivered(id, item) => (id, Some(*item)),
                Delivery::Replayed(id) => (id, None),
            };
            return Ok(Submitted {
                send: existing(app, key.tenant, id, wait).await?,
                replayed: inbox_item.is_none(),
                inbox_item,
            });
        }
    }
    let warnings = match &item.target {
        Target::New(session) => {
            let (store, clock) = (app.store.as_ref(), app.clock.as_ref());
            let tools = &app.acceptor.tools;
            tools.missing_cached(store, clock, &session.agent).await
        }
        Target::Existing(_) => Vec::new(),
    };
    let shown = ShownOptions::from(&item.options);
    let places = take_place(app, &mut item, limited).await?;
    let id = item.id;
    // The watcher is registered before the send exists, so that its end cannot be missed.
    let waiting = wait.map(|wait| (app.watch.send(id), wait));
    if let Some(refusal) = places.refusal(id) {
        places.give_back(app, &[]).await;
        return Err(refusal);
    }
    let outcome = app.acceptor.accept(item).await?;
    let is_accepted = matches!(outcome, AcceptOutcome::Accepted(_));
    let accepted: &[SendId] = if is_accepted { &[id] } else { &[] };
    places.give_back(app, accepted).await;
    drop(held);
    let (send, replayed) = match outcome {
        AcceptOutcome::Accepted(accepted) => {
            let ended = match waiting {
                Some((watcher, wait)) => wait_for(app, &watcher, key.tenant, None, wait).await,
                None => Ok(None),
            };
            // The send is accepted even if reading it fails. Then it is returned as it was
            // accepted.
            let view = match ended {
                Ok(Some(send)) => send,
                Ok(None) | Err(_) => accepted_view(key, id, shown, &accepted),
            };
            (SendView { warnings, ..view }, false)
        }
        AcceptOutcome::Replayed(first) => (existing(app, key.tenant, first, wait).await?, true),
        AcceptOutcome::Mismatch => return Err(Error::mismatch()),
        AcceptOutcome::Refused(reason) => return Err(Error::from(reason)),
        AcceptOutcome::Locked => return Err(Error::locked()),
    };
    Ok(Submitted {
        send,
        inbox_item: None,
        replayed,
    })
}

/// An existing send, as it is when the wait ends.
async fn existing(
    app: &App,
    tenant: TenantId,
    id: SendId,
    wait: Option<Duration>,
) -> Result<SendView, Error> {
    let found = match wait {
        Some(wait) => read_and_wait(app, app.watch.send(id), tenant, wait).await?,
        None => app.watch.read_send(tenant, id).await?.map(SendView::from),
    };
    found.ok_or_else(Error::send_not_found)
}

/// The view of a send that has just been accepted, built without reading it.
pub fn accepted_view(
    key: SessionKey,
    id: SendId,
    options: ShownOptions,
    accepted: &Accepted,
) -> SendView {
    SendView {
        id,
        session_id: key.session,
        status: SendStatus::Queued,
        stop_reason: None,
        output_text: None,
        output: None,
        error: None,
        usage: Usage::default(),
        rounds: 0,
        attempts: 0,
        waiting_on: None,
        agent_ref: options.agent_ref,
        metadata: options.metadata,
        memory: None,
        position: accepted.position,
        created_at: accepted.created_at,
        started_at: None,
        finished_at: None,
        warnings: Vec::new(),
    }
}
