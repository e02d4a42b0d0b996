//! Accepting sends: what concurrent requests bring shares a transaction.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mainspring_runtime::{Group, Weight};
use mainspring_shared::bus::{Bus, StepNotice, Topic};
use mainspring_shared::id::SessionKey;
use mainspring_shared::store::{AcceptOutcome, AcceptSend, CancelOutcome};
use mainspring_shared::time::Clock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::SchedulerConfig;
use crate::app::{App, each};
use crate::error::Error;
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

/// What became of one send, or why nothing is known to have become of it.
pub(crate) type Accepting = Result<AcceptOutcome, Error>;

/// The way into the database for sends.
pub(crate) struct Accept {
    group: Group<AcceptSend, Accepting>,
    /// Sends to sessions that were found locked: they keep no others waiting.
    locked: Group<AcceptSend, Accepting>,
    clock: Arc<dyn Clock>,
    room: Arc<Semaphore>,
    batches: Semaphore,
}

impl Accept {
    /// Starts the group's task. It holds the application weakly, so that it ends with it.
    pub(crate) fn new(
        app: &std::sync::Weak<App>,
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
        }
    }

    /// Accepts one send. Refuses with `limit.exceeded` while too many are on their way.
    pub(crate) async fn one(&self, item: AcceptSend) -> Accepting {
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

    /// Room for `count` sends on their way.
    pub(crate) fn take_room(&self, count: usize) -> Result<OwnedSemaphorePermit, Error> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let room = self.room.clone();
        room.try_acquire_many_owned(count)
            .map_err(|_| Error::too_much("accept"))
    }
}

/// Accepts many sends of one caller, in order, in transactions of at most `batch_group_max`.
pub(crate) async fn many(app: &App, mut items: Vec<AcceptSend>) -> Vec<Accepting> {
    let mut outcomes = Vec::with_capacity(items.len());
    while !items.is_empty() {
        let rest = items.split_off(group_of(&items, &app.config));
        let group = std::mem::replace(&mut items, rest);
        let Ok(lane) = app.accept.batches.acquire().await else {
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
pub(crate) async fn again<T, R, F, Fut>(
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
            app.ringer.ring(accepted.ring.take());
        }
    }
    metrics::counter!(ACCEPTED).increment(notices.len() as u64);
    metrics::histogram!(ACCEPT_GROUP).record(count as f64);
    publish_steps(app.bus.as_ref(), &notices);
    outcomes
}

/// Tells every scheduler of steps that were committed here.
pub(crate) fn publish_steps(bus: &dyn Bus, notices: &[StepNotice]) {
    if notices.is_empty() {
        return;
    }
    match serde_json::to_vec(notices) {
        Ok(json) => bus.publish(Topic::Steps, Bytes::from(json)),
        Err(error) => tracing::error!(error = %error, "notices could not be written"),
    }
}

/// Tells the workers that something about this session concerns whoever runs it: these signals, or
/// what the database says when there are none.
pub(crate) fn signal(app: &App, key: SessionKey, signals: i32) {
    match serde_json::to_vec(&[(key, signals)]) {
        Ok(json) => app.bus.publish(Topic::Signals, Bytes::from(json)),
        Err(error) => tracing::error!(error = %error, "a signal could not be written"),
    }
}

/// Tells whom the ends of sends concern. False where some could not be asked to end, because someone
/// else has their sessions locked.
pub(crate) fn tell_ends(app: &App, outcomes: Vec<CancelOutcome>) -> bool {
    let mut all = true;
    for outcome in outcomes {
        match outcome {
            CancelOutcome::Signalled { send, .. } => signal(app, send.key, 0),
            CancelOutcome::Cancelled { send, step, ring } => {
                app.ringer.ring(ring);
                let notice = StepNotice {
                    key: send.key,
                    send: send.id,
                    n: step,
                    settled: true,
                };
                publish_steps(app.bus.as_ref(), &[notice]);
            }
            CancelOutcome::Locked => all = false,
            CancelOutcome::AlreadyFinal(_) | CancelOutcome::NotFound => {}
        }
    }
    all
}
