//! All writes of the worker, in groups: concurrent sends share a transaction.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use mainspring_runtime::telemetry::spans;
use mainspring_runtime::{Group, GroupEnded, Lifecycle, Weight};
use mainspring_shared::bus::{Ended, StepNotice, Topic};
use mainspring_shared::id::{BootId, SendId, SessionKey, TenantId};
use mainspring_shared::queue::{Activation, Lane};
use mainspring_shared::send::{MemoryView, SendRecord, SendView, ShownOptions};
use mainspring_shared::store::{
    self, AppendOutcome, AppendRound, ClaimOutcome, ClaimSession, CompleteOutcome, CompleteSend,
    Error, ParkOutcome, ParkSend, ReadySession, ReleaseSession,
};
use mainspring_shared::time::Timestamp;
use tracing::Instrument as _;

use crate::boot::{Boot, Life};
use crate::config::WorkerConfig;
use crate::slots::Slots;
use crate::{Parts, metrics};

/// A database error, shared by all items of the group that it affects.
pub(crate) type SharedError = Arc<Error>;

type Answer<T> = Result<T, SharedError>;

/// A send that is about to end, with what its end does not contain.
#[derive(Debug)]
struct Ending {
    item: CompleteSend,
    began: Began,
}

/// What is known about a send since it began.
#[derive(Debug, Clone)]
pub(crate) struct Began {
    position: Option<i64>,
    options: ShownOptions,
    created_at: Timestamp,
    started_at: Option<Timestamp>,
}

impl Began {
    /// The values for a running send.
    pub(crate) fn of(record: &SendRecord) -> Self {
        Self {
            position: record.position,
            options: ShownOptions::from(&record.options),
            created_at: record.created_at,
            started_at: record.started_at,
        }
    }
}

impl Ending {
    /// The send as it will be once it has ended, except for the time. `None` if it is too large for
    /// a notice.
    fn view(&self) -> Option<SendView> {
        let CompleteSend { result, totals, .. } = &self.item;
        let text = result.output_text.as_ref();
        if text.is_some_and(|text| text.len() > Ended::BYTES_MAX) {
            return None;
        }
        let shown = totals.shown.as_ref();
        let memory = shown.and_then(|shown| shown.memory.clone());
        let began = self.began.clone();
        Some(SendView {
            id: self.item.send_id,
            session_id: self.item.key.session,
            status: result.status,
            stop_reason: Some(result.stop_reason),
            output_text: result.output_text.clone(),
            output: result.output.clone(),
            error: result.error.clone(),
            usage: totals.usage,
            rounds: totals.rounds,
            attempts: totals.attempts,
            waiting_on: None,
            agent_ref: began.options.agent_ref,
            metadata: began.options.metadata,
            memory: memory.map(MemoryView::from),
            position: began.position,
            created_at: began.created_at,
            started_at: began.started_at,
            finished_at: None,
            warnings: Vec::new(),
        })
    }
}

/// Whether the worker takes sends without a claim: it must not be stopping, and must have slots to
/// spare or the tenant must have few. Beyond that, the queue distributes work among workers in the
/// tenants' turns.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    slots: Arc<Slots>,
    /// How many of them may be in use.
    used_max: usize,
    lifecycle: Lifecycle,
}

impl Room {
    pub(crate) fn new(config: &WorkerConfig, slots: Arc<Slots>, lifecycle: Lifecycle) -> Self {
        Self {
            slots,
            used_max: config.concurrency as usize * config.direct_percent as usize / 100,
            lifecycle,
        }
    }

    /// Whether there is room for the next send of a session of this tenant.
    fn is_for(&self, tenant: TenantId) -> bool {
        // The send that ends still has its slot.
        let is_some = self.slots.used() <= self.used_max || self.slots.is_light(tenant);
        is_some && self.used_max > 0 && !self.lifecycle.is_stopping()
    }
}

/// The grouped writes.
#[derive(Debug, Clone)]
pub(crate) struct Writes {
    claims: Group<ClaimSession, Answer<(ClaimOutcome, Option<Life>)>>,
    rounds: Group<AppendRound, Answer<AppendOutcome>>,
    completions: Group<Ending, Answer<CompleteOutcome>>,
    parks: Group<ParkSend, Answer<ParkOutcome>>,
    releases: Group<ReleaseSession, Answer<bool>>,
}

impl Writes {
    /// Starts the groups' tasks.
    pub(crate) fn spawn(parts: &Parts, boot: &Arc<Boot>, room: Room) -> Self {
        let bytes_max = parts.config.group_bytes_max;
        let rounds = Weight {
            bytes_max,
            bytes_of: AppendRound::weight,
        };
        let ends = Weight {
            bytes_max,
            bytes_of: |ending: &Ending| ending.item.weight(),
        };
        Self {
            claims: Group::spawn(1, {
                let (parts, boot) = (parts.clone(), boot.clone());
                move |items| claim(parts.clone(), boot.clone(), items)
            }),
            rounds: Group::weighed(1, rounds, {
                let parts = parts.clone();
                move |items: Vec<AppendRound>| {
                    let parts = parts.clone();
                    async move {
                        let about: Vec<_> = items.iter().map(|i| (i.key, i.send_id)).collect();
                        let answers = each("append_rounds", items, |items| {
                            parts.store.append_rounds(items)
                        });
                        let answers = answers.await;
                        let is_lost = |outcome: &_| matches!(outcome, AppendOutcome::LeaseLost);
                        metrics::fenced("round", &answers, is_lost);
                        publish(&parts, &about, &answers, |outcome| match outcome {
                            AppendOutcome::Appended { step, .. } => Some((*step, false)),
                            AppendOutcome::LeaseLost | AppendOutcome::Locked => None,
                        });
                        answers
                    }
                }
            }),
            completions: Group::weighed(1, ends, {
                let parts = parts.clone();
                move |endings: Vec<Ending>| {
                    let (parts, room) = (parts.clone(), room.clone());
                    async move {
                        let views: Vec<_> = endings.iter().map(Ending::view).collect();
                        let about: Vec<_> = endings
                            .iter()
                            .map(|end| (end.item.key, end.item.send_id, end.item.lease.boot))
                            .collect();
                        let items = endings.into_iter().map(|ending| ending.item).collect();
                        let answers = each("complete_sends", items, |items| {
                            parts.store.complete_sends(items)
                        });
                        let answers = answers.await;
                        let is_lost = |outcome: &_| matches!(outcome, CompleteOutcome::LeaseLost);
                        metrics::fenced("end", &answers, is_lost);
                        let ended = about.into_iter().zip(views).zip(&answers);
                        let notices: Vec<_> = ended
                            .filter_map(|((about, view), answer)| {
                                ended_notice(about, view, answer, &room)
                            })
                            .collect();
                        tell(&parts, &notices);
                        answers
                    }
                }
            }),
            parks: Group::spawn(1, {
                let parts = parts.clone();
                move |items: Vec<ParkSend>| {
                    let parts = parts.clone();
                    async move {
                        let about: Vec<_> = items.iter().map(|i| (i.key, i.send_id)).collect();
                        let answers =
                            each("park_sends", items, |items| parts.store.park_sends(items));
                        let answers = answers.await;
                        let is_lost = |outcome: &_| matches!(outcome, ParkOutcome::LeaseLost);
                        metrics::fenced("park", &answers, is_lost);
                        publish(&parts, &about, &answers, |outcome| match outcome {
                            ParkOutcome::Parked { step } | ParkOutcome::Cancelled { step, .. } => {
                                Some((*step, true))
                            }
                            ParkOutcome::Woken { .. }
                            | ParkOutcome::LeaseLost
                            | ParkOutcome::Locked => None,
                        });
                        answers
                    }
                }
            }),
            releases: Group::spawn(1, {
                let parts = parts.clone();
                move |items| {
                    let parts = parts.clone();
                    async move {
                        each("release_sessions", items, |items| {
                            parts.store.release_sessions(items)
                        })
                        .await
                    }
                }
            }),
        }
    }

    // None of these is an `async fn`, whose future would hold memory for the item until the
    // database has answered.

    /// Claims a session; also returns the boot that it was claimed under.
    pub(crate) fn claim(
        &self,
        item: ClaimSession,
    ) -> impl Future<Output = Answer<(ClaimOutcome, Option<Life>)>> + use<> {
        answered(self.claims.submit(item))
    }

    /// Stores a round.
    pub(crate) fn append(
        &self,
        item: AppendRound,
    ) -> impl Future<Output = Answer<AppendOutcome>> + use<> {
        answered(self.rounds.submit(item))
    }

    /// Makes a send final.
    pub(crate) fn complete(
        &self,
        item: CompleteSend,
        began: Began,
    ) -> impl Future<Output = Answer<CompleteOutcome>> + use<> {
        answered(self.completions.submit(Ending { item, began }))
    }

    /// Parks a send.
    pub(crate) fn park(&self, item: ParkSend) -> impl Future<Output = Answer<ParkOutcome>> + use<> {
        answered(self.parks.submit(item))
    }

    /// Releases a lease.
    pub(crate) fn release(
        &self,
        item: ReleaseSession,
    ) -> impl Future<Output = Answer<bool>> + use<> {
        answered(self.releases.submit(item))
    }
}

fn answered<T>(
    answer: impl Future<Output = Result<Answer<T>, GroupEnded>>,
) -> impl Future<Output = Answer<T>> {
    answer.map(|answer| answer.unwrap_or_else(|_| Err(ended())))
}

/// If a group ends without an answer, it may or may not have written, as with a broken connection.
fn ended() -> SharedError {
    let source =
        Box::<dyn std::error::Error + Send + Sync>::from("the write ended without an answer");
    Arc::new(Error::Unavailable { source })
}

async fn claim(
    parts: Parts,
    boot: Arc<Boot>,
    items: Vec<ClaimSession>,
) -> Vec<Answer<(ClaimOutcome, Option<Life>)>> {
    let Some(life) = boot.current() else {
        // Nothing is claimed between two boots; the sweep enqueues these sessions again.
        return items
            .iter()
            .map(|_| Ok((ClaimOutcome::Busy, None)))
            .collect();
    };
    let answers = each("claim_sessions", items, |items| {
        parts.store.claim_sessions(life.id, items)
    })
    .await;
    answers
        .into_iter()
        .map(|answer| answer.map(|outcome| (outcome, Some(life.clone()))))
        .collect()
}

/// Runs a store call and gives each item its own answer. If the database rejects the data of a
/// group, its items run one by one, so that one bad item does not fail the others.
async fn each<T, R, F, Fut>(operation: &'static str, items: Vec<T>, call: F) -> Vec<Answer<R>>
where
    T: Clone,
    F: Fn(Vec<T>) -> Fut,
    Fut: Future<Output = store::Result<Vec<R>>>,
{
    let span = spans::statements(operation, items.len());
    let error = match call(items.clone()).instrument(span).await {
        Ok(outcomes) => return outcomes.into_iter().map(Ok).collect(),
        Err(error) => error,
    };
    if items.len() == 1 || !error.is_of_data() {
        let error = Arc::new(error);
        return items.iter().map(|_| Err(error.clone())).collect();
    }
    let mut answers = Vec::with_capacity(items.len());
    for item in items {
        let answer = call(vec![item]).await.map_err(Arc::new);
        answers.extend(
            answer
                .map(|outcomes| outcomes.into_iter().next())
                .transpose(),
        );
    }
    answers
}

/// Notifies watchers of the steps that a group committed.
fn publish<T>(
    parts: &Parts,
    about: &[(SessionKey, SendId)],
    answers: &[Answer<T>],
    step: impl Fn(&T) -> Option<(i64, bool)>,
) {
    let notices: Vec<StepNotice> = about
        .iter()
        .zip(answers)
        .filter_map(|((key, send), answer)| {
            let (n, settled) = step(answer.as_ref().ok()?)?;
            Some(StepNotice::new(*key, *send, n, settled))
        })
        .collect();
    tell(parts, &notices);
}

/// The notice of a durable end: it contains the send itself, unless the stored outcome is not the
/// one that was asked for.
fn ended_notice(
    (key, send, boot): (SessionKey, SendId, BootId),
    view: Option<SendView>,
    answer: &Answer<CompleteOutcome>,
    room: &Room,
) -> Option<StepNotice> {
    let Ok(CompleteOutcome::Completed(completed)) = answer else {
        return None;
    };
    let as_asked = view.filter(|view| view.status == completed.status);
    let ended = as_asked.map(|view| SendView {
        finished_at: Some(completed.at),
        ..view
    });
    Some(StepNotice {
        ended: ended.as_ref().and_then(Ended::of),
        keeper: (completed.rests() && room.is_for(key.tenant)).then_some(boot),
        ..StepNotice::new(key, send, completed.step, true)
    })
}

/// Notifies watchers of a step that was committed outside a group and settled nothing.
pub(crate) fn publish_step(parts: &Parts, key: SessionKey, send: SendId, n: i64) {
    tell(parts, &[StepNotice::new(key, send, n, false)]);
}

fn tell(parts: &Parts, notices: &[StepNotice]) {
    if notices.is_empty() {
        return;
    }
    match serde_json::to_vec(notices) {
        Ok(json) => parts.bus.publish(Topic::Steps, Bytes::from(json)),
        Err(error) => tracing::error!(%error, "could not serialize step notices"),
    }
}

/// Enqueues a session that was left with work.
pub(crate) fn enqueue(parts: &Parts, ready: ReadySession) {
    let queue = parts.queue.clone();
    tokio::spawn(async move {
        let lane = Lane {
            pool: ready.pool,
            priority: ready.priority,
        };
        // If it does not fit, the sweep finds it.
        queue
            .push(
                &lane,
                vec![Activation {
                    sessions: vec![ready.key],
                }],
            )
            .await;
    });
}
