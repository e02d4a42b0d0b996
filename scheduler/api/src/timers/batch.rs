//! Batches of timers.

use std::sync::Arc;

use axum::http::StatusCode;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::agents::Resolver;
use mainspring_scheduler::services::blobs;
use mainspring_scheduler::services::limits::KeySends;
use mainspring_scheduler::{App, each};
use mainspring_shared::id::{TenantId, TimerId};
use mainspring_shared::store::{CreateTimerOutcome, IdempotencyKey, NewTimer};
use mainspring_shared::timer::TimerView;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;

use super::super::batch::{Batch, Creation, Permits, items};
use super::super::problem::ProblemDocument;
use super::super::validate::Checks;
use super::{TimerBody, not_found, tell};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw<'a> {
    #[serde(borrow)]
    timers: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Checked {
    #[serde(rename = "timers")]
    _timers: Vec<serde::de::IgnoredAny>,
}

/// Timers to create in one request.
#[derive(Debug, utoipa::ToSchema)]
#[expect(
    dead_code,
    reason = "only its schema is used: the items are parsed one by one"
)]
pub(crate) struct TimerBatchBody {
    /// At most 1000.
    timers: Vec<TimerBody>,
}

/// The schema of an answer.
#[derive(Debug, utoipa::ToSchema)]
#[schema(as = TimerBatchResults)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct ResultsShape {
    /// One per item, in order.
    results: Vec<ResultShape>,
}

/// The outcome of one item: it has either `timer` or `problem`.
#[derive(Debug, utoipa::ToSchema)]
#[schema(as = TimerBatchResult)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct ResultShape {
    /// The status that the item alone would have been answered with.
    status: u16,
    /// The timer.
    timer: Option<TimerView>,
    /// Why nothing was stored.
    problem: Option<ProblemDocument>,
}

/// `POST /v1/timers:batch`
pub(crate) struct Timers;

impl Batch for Timers {
    const ITEMS: &'static str = "timers";
    const ITEM: &'static str = "timer";
    const ROUTE: &'static str = "POST /v1/timers:batch";
    const STATUS: StatusCode = StatusCode::CREATED;
    type Input = TimerBody;
    type Item = (NewTimer, Option<IdempotencyKey>);
    type Id = TimerId;
    type View = TimerView;

    fn items(json: &[u8]) -> Result<Vec<&RawValue>, Error> {
        items::<Raw<'_>, Checked>(json, Self::ITEMS).map(|raw| raw.timers)
    }

    fn take_key(input: &mut TimerBody) -> Option<String> {
        input.idempotency_key.take()
    }

    async fn item(
        agents: &mut Resolver<'_>,
        app: &App,
        tenant: TenantId,
        checks: Checks,
        input: TimerBody,
        key: Option<IdempotencyKey>,
    ) -> Result<Self::Item, Error> {
        let timer = input
            .timer(agents, app, tenant, checks, key.as_ref())
            .await?;
        Ok((timer, key))
    }

    async fn prepare(app: &App, item: &mut Self::Item, at: &str) -> Result<(), Error> {
        blobs::prepare_timer(app, &mut item.0, at).await
    }

    /// Reserves nothing: a batch of timers is a single statement, whatever its size.
    fn room(_: &App, _: usize) -> Result<Option<OwnedSemaphorePermit>, Error> {
        Ok(None)
    }

    /// Creates the timers in one transaction, and notifies the schedulers.
    async fn store(
        app: &Arc<App>,
        items: Vec<Self::Item>,
        permits: Permits,
        _: Option<KeySends>,
    ) -> Vec<Result<Creation<TimerId, TimerView>, Error>> {
        let outcomes = each(&items, |items| app.store.create_timers(items)).await;
        let armed: Vec<_> = outcomes
            .iter()
            .filter_map(|outcome| match outcome {
                Ok(CreateTimerOutcome::Created(record)) => Some((**record).clone()),
                Ok(_) | Err(_) => None,
            })
            .collect();
        drop(permits);
        tell(app, &armed);
        let outcomes = outcomes.into_iter().map(|outcome| match outcome? {
            CreateTimerOutcome::Created(record) => Ok(Creation::New(TimerView::from(*record))),
            CreateTimerOutcome::Replayed(id) => Ok(Creation::Replayed(id)),
            CreateTimerOutcome::Mismatch => Err(Error::mismatch()),
            CreateTimerOutcome::Refused(reason) => Err(Error::from(reason)),
        });
        outcomes.collect()
    }

    async fn read(app: &App, tenant: TenantId, ids: Vec<TimerId>) -> Vec<Result<TimerView, Error>> {
        let named = ids.iter().map(|id| (tenant, *id)).collect();
        match app.store.get_timers(named).await {
            Ok(found) => {
                let views = found.into_iter();
                let views = views.map(|timer| timer.map(TimerView::from));
                views.map(|view| view.ok_or_else(not_found)).collect()
            }
            Err(error) => ids.iter().map(|_| Err(Error::from(&error))).collect(),
        }
    }
}
