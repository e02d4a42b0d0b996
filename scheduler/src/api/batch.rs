//! Many sends in one request.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use mainspring_shared::id::{SendId, SessionKey, TenantId};
use mainspring_shared::send::SendView;
use mainspring_shared::store::{AcceptOutcome, AcceptSend};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::extract::{Params, json_body, parse};
use super::idempotency;
use super::problem::Problem;
use super::respond;
use super::sends::{accepted_view, build};
use super::validate::{Checks, SendAnywhereBody};
use crate::accept::{Accepting, many};
use crate::app::App;

const ROUTE: &str = "POST /v1/sends:batch";

/// The body with its items unread: one that makes no sense must not harm the others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw<'a> {
    #[serde(borrow)]
    sends: Vec<&'a RawValue>,
}

/// The same, for pointing at what is wrong with it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Checked {
    #[serde(rename = "sends")]
    _sends: Vec<serde::de::IgnoredAny>,
}

/// What became of one item.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ItemResult {
    Send { status: u16, send: Box<SendView> },
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
#[schema(as = BatchResults)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct ResultsShape {
    /// One per item, in order.
    results: Vec<ResultShape>,
}

/// What became of one item: `send` or `problem` is there.
#[derive(Debug, utoipa::ToSchema)]
#[schema(as = BatchResult)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct ResultShape {
    /// The status that the item alone would have been answered with.
    status: u16,
    /// The accepted send.
    send: Option<SendView>,
    /// Why nothing was stored.
    problem: Option<super::problem::ProblemDocument>,
}

/// `POST /v1/sends:batch`
pub(super) async fn create(
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
            Ok(_) => Problem::invalid("/sends", "cannot be read"),
        });
    };
    let sends_max = app.config.batch_sends_max;
    if raw.sends.len() > sends_max {
        let detail = format!("a batch has at most {sends_max} sends");
        return Err(Problem::invalid("/sends", detail));
    }
    let whole = match batch_key {
        Some(key) => Some((key, idempotency::body_hash(&json)?)),
        None => None,
    };
    let mut results: Vec<Option<ItemResult>> = Vec::with_capacity(raw.sends.len());
    let mut items = Vec::with_capacity(raw.sends.len());
    for (index, text) in raw.sends.iter().enumerate() {
        match item(&app, index, text.get(), whole) {
            Ok(item) => {
                items.push(item);
                results.push(None);
            }
            Err(problem) => results.push(Some(problem.into())),
        }
    }
    let _room = app.accept.take_room(items.len())?;
    let (outcomes, keys) = accept(&app, items, whole.is_some()).await?;
    let replayed = fill(&app, &mut results, outcomes, &keys).await;
    let results = results
        .into_iter()
        .map(|result| result.unwrap_or(Problem::internal().into()));
    let mut response = respond::json(
        StatusCode::OK,
        &Results {
            results: results.collect(),
        },
    )?;
    if replayed && whole.is_some() {
        respond::mark_replayed(&mut response);
    }
    Ok(response)
}

/// The send that an item asks for.
fn item(
    app: &App,
    index: usize,
    text: &str,
    whole: Option<(&str, [u8; 32])>,
) -> Result<AcceptSend, Problem> {
    let at = format!("/sends/{index}");
    let mut body: SendAnywhereBody = parse(text.as_bytes(), &at)?;
    let key = match (body.idempotency_key.take(), whole) {
        (Some(own), _) => {
            idempotency::check(&own, &format!("{at}/idempotency_key"))?;
            Some(idempotency::key(
                ROUTE,
                &own,
                idempotency::body_hash(text.as_bytes())?,
            ))
        }
        (None, Some((key, hash))) => Some(idempotency::key(ROUTE, &format!("{key}#{index}"), hash)),
        (None, None) => None,
    };
    build(app, Checks::at(at), body, key)
}

type Keys = Vec<(SessionKey, SendId)>;

/// Accepts the items in order. With a key for the whole batch the first goes ahead alone: when it
/// says that the key was used for another batch, nothing of this one is stored.
async fn accept(
    app: &Arc<App>,
    mut items: Vec<AcceptSend>,
    probe: bool,
) -> Result<(Vec<Accepting>, Keys), Problem> {
    let keys: Keys = items
        .iter()
        .map(|item| (item.target.key(), item.id))
        .collect();
    let mut outcomes = Vec::with_capacity(items.len());
    if probe && !items.is_empty() {
        let rest = items.split_off(1);
        outcomes = many(app, items).await;
        if matches!(outcomes.as_slice(), [Ok(AcceptOutcome::Mismatch)]) {
            return Err(Problem::mismatch());
        }
        items = rest;
    }
    if !items.is_empty() {
        outcomes.extend(many(app, items).await);
    }
    Ok((outcomes, keys))
}

/// Puts the outcomes where nothing stands yet. Returns whether any item had been accepted before.
async fn fill(
    app: &App,
    results: &mut [Option<ItemResult>],
    outcomes: Vec<Accepting>,
    keys: &[(SessionKey, SendId)],
) -> bool {
    let replays = replayed(app, &outcomes).await;
    let open = results.iter_mut().filter(|result| result.is_none());
    for ((result, outcome), (key, id)) in open.zip(outcomes).zip(keys) {
        *result = Some(match outcome {
            Ok(AcceptOutcome::Accepted(accepted)) => ItemResult::Send {
                status: StatusCode::ACCEPTED.as_u16(),
                send: Box::new(accepted_view(*key, *id, &accepted)),
            },
            Ok(AcceptOutcome::Replayed(first)) => match replays.get(&first) {
                Some(Ok(send)) => ItemResult::Send {
                    status: StatusCode::ACCEPTED.as_u16(),
                    send: Box::new(send.clone()),
                },
                Some(Err(problem)) => problem.clone().into(),
                None => Problem::send_not_found().into(),
            },
            Ok(AcceptOutcome::Mismatch) => Problem::mismatch().into(),
            Ok(AcceptOutcome::Refused(reason)) => Problem::from(reason).into(),
            Err(problem) => problem.into(),
        });
    }
    !replays.is_empty()
}

/// The present state of what had been accepted before.
async fn replayed(
    app: &App,
    outcomes: &[Accepting],
) -> BTreeMap<SendId, Result<SendView, Problem>> {
    let ids: Vec<_> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Ok(AcceptOutcome::Replayed(id)) => Some((TenantId::DEFAULT, *id)),
            _ => None,
        })
        .collect();
    if ids.is_empty() {
        return BTreeMap::new();
    }
    let found = app.store.get_sends(ids.clone()).await;
    let ids = ids.into_iter().map(|(_, id)| id);
    match found {
        Ok(found) => {
            let views = found
                .into_iter()
                .map(|send| send.map(SendView::from).ok_or_else(Problem::send_not_found));
            ids.zip(views).collect()
        }
        Err(error) => ids.map(|id| (id, Err(Problem::from(&error)))).collect(),
    }
}
