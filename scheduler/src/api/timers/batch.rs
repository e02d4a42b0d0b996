//! Many timers in one request.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::{CreateTimerOutcome, IdempotencyKey, NewTimer};
use mainspring_shared::timer::TimerView;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::super::extract::{Params, json_body, parse};
use super::super::idempotency;
use super::super::problem::{Problem, ProblemDocument};
use super::super::respond;
use super::super::validate::Checks;
use super::{TimerBody, not_found, tell};
use crate::app::{App, each};

const ROUTE: &str = "POST /v1/timers:batch";

/// The body with its items unread: one that makes no sense must not harm the others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw<'a> {
    #[serde(borrow)]
    timers: Vec<&'a RawValue>,
}

/// The same, for pointing at what is wrong with it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Checked {
    #[serde(rename = "timers")]
    _timers: Vec<serde::de::IgnoredAny>,
}

/// Timers to make in one request.
#[derive(Debug, utoipa::ToSchema)]
#[expect(
    dead_code,
    reason = "only its schema is used: the items are parsed one by one"
)]
pub(in crate::api) struct TimerBatchBody {
    /// At most 1000.
    timers: Vec<TimerBody>,
}

/// What became of one item.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ItemResult {
    Timer { status: u16, timer: Box<TimerView> },
    Problem { status: u16, problem: Box<Problem> },
}

impl From<Problem> for ItemResult {
    fn from(problem: Problem) -> Self {
        Self::Problem {
            status: problem.status(),
            problem: Box::new(problem),
        }
    }
}

/// What became of the items, in their order.
#[derive(Debug, Serialize)]
struct Results {
    results: Vec<ItemResult>,
}

/// The shape of an answer.
#[derive(Debug, utoipa::ToSchema)]
#[schema(as = TimerBatchResults)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::api) struct ResultsShape {
    /// One per item, in order.
    results: Vec<ResultShape>,
}

/// What became of one item: `timer` or `problem` is there.
#[derive(Debug, utoipa::ToSchema)]
#[schema(as = TimerBatchResult)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::api) struct ResultShape {
    /// The status that the item alone would have been answered with.
    status: u16,
    /// The timer.
    timer: Option<TimerView>,
    /// Why nothing was stored.
    problem: Option<ProblemDocument>,
}

type Item = (NewTimer, Option<IdempotencyKey>);

/// `POST /v1/timers:batch`
pub(in crate::api) async fn create(
    State(app): State<Arc<App>>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    params.finish()?;
    let batch_key = idempotency::header(&headers)?;
    let json = json_body(&app, &headers, body, app.config.batch_bytes_max).await?;
    let Ok(raw) = serde_json::from_slice::<Raw<'_>>(&json) else {
        return Err(match parse::<Checked>(&json, "") {
            Err(problem) => problem,
            Ok(_) => Problem::invalid("/timers", "cannot be read"),
        });
    };
    let count_max = app.config.batch_sends_max;
    if raw.timers.len() > count_max {
        let detail = format!("a batch has at most {count_max} timers");
        return Err(Problem::invalid("/timers", detail));
    }
    let whole = match batch_key {
        Some(key) => Some((key, idempotency::body_hash(&json)?)),
        None => None,
    };
    let mut results: Vec<Option<ItemResult>> = Vec::with_capacity(raw.timers.len());
    let mut items = Vec::with_capacity(raw.timers.len());
    for (index, text) in raw.timers.iter().enumerate() {
        match item(&app, index, text.get(), whole) {
            Ok(item) => {
                items.push(item);
                results.push(None);
            }
            Err(problem) => results.push(Some(problem.into())),
        }
    }
    let outcomes = make(&app, items).await;
    if whole.is_some() && matches!(outcomes.first(), Some(Ok(CreateTimerOutcome::Mismatch))) {
        return Err(Problem::mismatch());
    }
    let replayed = fill(&app, &mut results, outcomes).await;
    let results = results
        .into_iter()
        .map(|result| result.unwrap_or(Problem::internal().into()));
    let results = Results {
        results: results.collect(),
    };
    let mut response = respond::json(StatusCode::OK, &results)?;
    if replayed && whole.is_some() {
        respond::mark_replayed(&mut response);
    }
    Ok(response)
}

/// The timer that an item asks for.
fn item(
    app: &App,
    index: usize,
    text: &str,
    whole: Option<(&str, [u8; 32])>,
) -> Result<Item, Problem> {
    let at = format!("/timers/{index}");
    let mut body: TimerBody = parse(text.as_bytes(), &at)?;
    let key = match (body.idempotency_key.take(), whole) {
        (Some(own), _) => {
            idempotency::check(&own, &format!("{at}/idempotency_key"))?;
            let hash = idempotency::body_hash(text.as_bytes())?;
            Some(idempotency::key(ROUTE, &own, hash))
        }
        (None, Some((key, hash))) => Some(idempotency::key(ROUTE, &format!("{key}#{index}"), hash)),
        (None, None) => None,
    };
    Ok((body.timer(app, Checks::at(at))?, key))
}

/// Makes the timers in order, in one transaction, and tells the schedulers.
async fn make(app: &App, items: Vec<Item>) -> Vec<Result<CreateTimerOutcome, Problem>> {
    if items.is_empty() {
        return Vec::new();
    }
    let outcomes = each(items, |items| app.store.create_timers(None, items)).await;
    let armed: Vec<_> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Ok(CreateTimerOutcome::Created(record)) => Some((**record).clone()),
            Ok(_) | Err(_) => None,
        })
        .collect();
    tell(app, &armed);
    outcomes
}

/// Puts the outcomes where nothing stands yet. Returns whether any item had been made before.
async fn fill(
    app: &App,
    results: &mut [Option<ItemResult>],
    outcomes: Vec<Result<CreateTimerOutcome, Problem>>,
) -> bool {
    let mut replayed = false;
    let open = results.iter_mut().filter(|result| result.is_none());
    for (result, outcome) in open.zip(outcomes) {
        let shown = |record| ItemResult::Timer {
            status: StatusCode::CREATED.as_u16(),
            timer: Box::new(TimerView::from(record)),
        };
        *result = Some(match outcome {
            Ok(CreateTimerOutcome::Created(record)) => shown(*record),
            Ok(CreateTimerOutcome::Replayed(id)) => {
                replayed = true;
                match app.store.get_timers(vec![(TenantId::DEFAULT, id)]).await {
                    Ok(found) => match found.into_iter().flatten().next() {
                        Some(record) => shown(record),
                        None => not_found().into(),
                    },
                    Err(error) => Problem::from(&error).into(),
                }
            }
            Ok(CreateTimerOutcome::Mismatch) => Problem::mismatch().into(),
            Ok(CreateTimerOutcome::Refused(reason)) => Problem::from(reason).into(),
            Err(problem) => problem.into(),
        });
    }
    replayed
}
