//! Accepting sends: what concurrent requests bring shares a transaction.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mainspring_runtime::{Group, Weight};
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::bus::StepNotice;
use mainspring_shared::id::{SendId, SessionKey, TenantId};
use mainspring_shared::inbox::InboxItem;
use mainspring_shared::send::{SendStatus, SendView};
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, Accepted, CreateOutcome, IdempotencyKey, NewSession, Store, Target,
};
use mainspring_shared::time::Clock;
use mainspring_shared::tool::ToolFault;
use mainspring_shared::usage::Usage;
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::deliver::{Joined, deliver, delivery};
use super::watch::{wait_for, watched};
use crate::SchedulerConfig;
use crate::app::{App, each};
use crate::error::Error;
use crate::known_tools::KnownTools;
use crate::metrics::{ACCEPT_GROUP, ACCEPTED};

/// Groups of single sends under way at once. With one, a group is as large as the load allows,
/// and the fewest commits carry the most sends.
const LANES: usize = 1;

/// Groups of batches under way at once: while one commits, the next is being written.
const BATCH_LANES: usize = 2;

/// Pause before a send to a locked session is tried again.
const LOCKED_PAUSE: Duration = Duration::from_millis(100);

/// How often that is done: longer than a process that is stopped within a step keeps its locks.
const LOCKED_MAX: u32 = 50;

/// A session to create and what makes a repeat harmless.
pub type Creation = (NewSession, Option<IdempotencyKey>);

/// What became of one send, or why nothing is known to have become of it.
pub type Accepting = Result<AcceptOutcome, Error>;

/// The way into the database for sends.
pub struct Acceptor {
    group: Group<AcceptSend, Accepting>,
    /// Sends to sessions that were found locked: they keep no others waiting.
    locked: Group<AcceptSend, Accepting>,
    clock: Arc<dyn Clock>,
    room: Arc<Semaphore>,
    batches: Semaphore,
    /// Creations of sessions that share a transaction.
    creations: Group<Creation, Result<CreateOutcome, Error>>,
    /// What agents may name.
    tools: KnownTools,
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor").finish_non_exhaustive()
    }
}

impl Acceptor {
    /// Starts the group's task. It holds the application weakly, so that it ends with it.
    pub fn new(
        app: &std::sync::Weak<App>,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        config: &SchedulerConfig,
    ) -> Self {
        let group = || {
            let app = app.clone();
            let weight = Weight {
                bytes_max: config.group_bytes_max,
                bytes_of: AcceptSend::weight,
            };
            Group::weighed(LANES, weight, move |items: Vec<AcceptSend>| {
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
            clock,
            room: Arc::new(Semaphore::new(config.accepting_max)),
            batches: Semaphore::new(BATCH_LANES),
            creations: Group::spawn(1, move |items: Vec<Creation>| {
                let store = store.clone();
                async move { each(items, |items| store.create_sessions(None, items)).await }
            }),
            tools: KnownTools::default(),
        }
    }

    /// Accepts one send. Refuses with `limit.exceeded` while too many are on their way.
    pub async fn one(&self, item: AcceptSend) -> Accepting {
        let _room = self.take_room(1)?;
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

    /// What an agent names that no worker of its pool has.
    pub async fn lacks(&self, app: &App, agent: &AgentSpec) -> Vec<ToolFault> {
        let (store, clock) = (app.store.as_ref(), app.clock.as_ref());
        self.tools.lacks(store, clock, agent).await
    }

    /// Room for `count` sends on their way.
    pub fn take_room(&self, count: usize) -> Result<OwnedSemaphorePermit, Error> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let room = self.room.clone();
        room.try_acquire_many_owned(count)
            .map_err(|_| Error::too_much("accept"))
    }
}

/// Accepts many sends of one caller, in order, in transactions of at most `batch_group_max`.
pub async fn many(app: &App, mut items: Vec<AcceptSend>) -> Vec<Accepting> {
    let mut outcomes = Vec::with_capacity(items.len());
    while !items.is_empty() {
        let rest = items.split_off(group_of(&items, &app.config));
        let group = std::mem::replace(&mut items, rest);
        let Ok(lane) = app.acceptor.batches.acquire().await else {
            outcomes.extend(vec![Err(Error::stopping()); group.len()]);
            continue;
        };
        let accepted = commit(app, group.clone()).await;
        drop(lane);
        let is_locked = |outcome: &Accepting| matches!(outcome, Ok(AcceptOutcome::Locked));
        let step = |left| commit(app, left);
        outcomes.extend(again(app, group, accepted, is_locked, step).await);
    }
    outcomes
}

/// How many of these share one transaction.
fn group_of(items: &[AcceptSend], config: &SchedulerConfig) -> usize {
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

/// Tries on with those whose sessions were locked; the others of their step are done.
pub async fn again<T, R, F, Fut>(
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

/// One transaction, and after it the rings and the notices that it calls for.
async fn commit(app: &App, items: Vec<AcceptSend>) -> Vec<Accepting> {
    let count = items.len();
    let boot = match app.boot_id() {
        Ok(boot) => boot,
        Err(error) => return vec![Err(error); count],
    };
    let sends: Vec<_> = items
        .iter()
        .map(|item| (item.target.key(), item.id))
        .collect();
    let mut outcomes = each(items, |items| app.store.accept_sends(None, boot, items)).await;
    let mut notices = Vec::with_capacity(count);
    for ((key, send), outcome) in sends.into_iter().zip(&mut outcomes) {
        if let Ok(AcceptOutcome::Accepted(accepted)) = outcome {
            notices.push(StepNotice {
                key,
                send,
                n: accepted.step,
                settled: false,
            });
            app.notifier.ring(accepted.ring.take());
        }
    }
    metrics::counter!(ACCEPTED).increment(notices.len() as u64);
    metrics::histogram!(ACCEPT_GROUP).record(count as f64);
    app.notifier.steps(&notices);
    outcomes
}

/// A session to create, without a parent.
pub fn new_session(app: &App, agent: AgentSpec, metadata: Map<String, Value>) -> NewSession {
    NewSession {
        key: app.new_session_key(TenantId::DEFAULT),
        agent,
        metadata,
        parent: None,
    }
}

/// What a request to accept a send is answered with.
#[derive(Debug)]
pub struct Submitted {
    /// The send, or the one that took its words in.
    pub send: SendView,
    /// The item in the session's inbox, where the words went to a send under way.
    pub inbox_item: Option<InboxItem>,
    /// Whether an earlier request had brought the same.
    pub replayed: bool,
}

/// Accepts a send, or brings its words to the one under way where its sender asks for that, and
/// waits for the send if asked to. What is `held` is held until it is stored.
pub async fn submit<H>(
    app: &App,
    item: AcceptSend,
    held: H,
    wait: Option<Duration>,
) -> Result<Submitted, Error> {
    let (key, id) = (item.target.key(), item.id);
    if let Some(delivery) = delivery(&item) {
        let mut delivered = deliver(app, vec![delivery]).await;
        if let Some(joined) = delivered.pop().ok_or_else(Error::internal)?? {
            drop(held);
            let (id, inbox_item) = match joined {
                Joined::Now(id, item) => (id, Some(*item)),
                Joined::Before(id) => (id, None),
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
            tools.lacks_lately(store, clock, &session.agent).await
        }
        Target::Existing(_) => Vec::new(),
    };
    // Whoever waits is in place before the send exists, so that its end cannot be missed.
    let waiting = wait.map(|wait| (app.watch.send(id), wait));
    let outcome = app.acceptor.one(item).await?;
    drop(held);
    let (send, replayed) = match outcome {
        AcceptOutcome::Accepted(accepted) => {
            let ended = match waiting {
                Some((watching, wait)) => wait_for(app, &watching, key.tenant, None, wait).await,
                None => Ok(None),
            };
            // The send stands whatever happens to the reads: without an answer it is shown as it
            // was accepted.
            let view = match ended {
                Ok(Some(send)) => SendView::from(send),
                Ok(None) | Err(_) => accepted_view(key, id, &accepted),
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

/// A send that exists already, as it is once the wait is over.
async fn existing(
    app: &App,
    tenant: TenantId,
    id: SendId,
    wait: Option<Duration>,
) -> Result<SendView, Error> {
    let found = match wait {
        Some(wait) => watched(app, app.watch.send(id), tenant, wait).await?,
        None => app.watch.read_send(tenant, id).await?,
    };
    found.map(SendView::from).ok_or_else(Error::send_not_found)
}

/// A send that was accepted this moment, as a read would show it.
pub fn accepted_view(key: SessionKey, id: SendId, accepted: &Accepted) -> SendView {
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
        position: accepted.position,
        created_at: accepted.created_at,
        started_at: None,
        finished_at: None,
        warnings: Vec::new(),
    }
}
