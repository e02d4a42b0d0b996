//! Batches of sends.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::http::StatusCode;
use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::accept::{accept_many, accepted_view};
use mainspring_scheduler::services::agents::Resolver;
use mainspring_scheduler::services::blobs;
use mainspring_scheduler::services::deliver::{Delivery, deliver, delivery};
use mainspring_scheduler::services::limits::KeySends;
use mainspring_scheduler::services::skills::pin_item;
use mainspring_shared::id::{SendId, SessionKey, TenantId};
use mainspring_shared::send::{SendRecord, SendView, ShownOptions};
use mainspring_shared::store::{AcceptOutcome, AcceptSend, DeliverItem, IdempotencyKey};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;

use super::{Batch, Creation, Permits, items};
use crate::bodies::SendAnywhereBody;
use crate::deliver::AcceptedSend;
use crate::problem::ProblemDocument;
use crate::validate::Checks;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw<'a> {
    #[serde(borrow)]
    sends: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Checked {
    #[serde(rename = "sends")]
    _sends: Vec<serde::de::IgnoredAny>,
}

/// The schema of an answer.
#[derive(Debug, utoipa::ToSchema)]
#[schema(as = BatchResults)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct ResultsShape {
    /// One per item, in order.
    results: Vec<ResultShape>,
}

/// The outcome of one item: it has either `send` or `problem`.
#[derive(Debug, utoipa::ToSchema)]
#[schema(as = BatchResult)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct ResultShape {
    /// The status that the item alone would have been answered with.
    status: u16,
    /// The accepted send, or the open send to which the message was delivered.
    send: Option<AcceptedSend>,
    /// Why nothing was stored.
    problem: Option<ProblemDocument>,
}

/// `POST /v1/sends:batch`
pub(crate) struct Sends;

impl Batch for Sends {
    const ITEMS: &'static str = "sends";
    const ITEM: &'static str = "send";
    const ROUTE: &'static str = "POST /v1/sends:batch";
    const STATUS: StatusCode = StatusCode::ACCEPTED;
    type Input = SendAnywhereBody;
    type Item = AcceptSend;
    type Id = SendId;
    type View = AcceptedSend;

    fn items(json: &[u8]) -> Result<Vec<&RawValue>, Error> {
        items::<Raw<'_>, Checked>(json, Self::ITEMS).map(|raw| raw.sends)
    }

    fn take_key(input: &mut SendAnywhereBody) -> Option<String> {
        input.idempotency_key.take()
    }

    async fn item(
        agents: &mut Resolver<'_>,
        app: &App,
        tenant: TenantId,
        checks: Checks,
        input: SendAnywhereBody,
        key: Option<IdempotencyKey>,
    ) -> Result<AcceptSend, Error> {
        let mut checks = checks;
        let ask = input.ask(&mut checks);
        checks.finish()?;
        ask.item(agents, app, tenant, key).await
    }

    async fn prepare(app: &App, item: &mut AcceptSend, at: &str) -> Result<(), Error> {
        pin_item(app.store.as_ref(), item, &format!("{at}/session/agent")).await?;
        blobs::prepare_send(app, item, at).await
    }

    fn room(app: &App, count: usize) -> Result<Option<OwnedSemaphorePermit>, Error> {
        app.acceptor.reserve(count).map(Some)
    }

    async fn store(
        app: &Arc<App>,
        items: Vec<AcceptSend>,
        permits: Permits,
        limited: Option<KeySends>,
    ) -> Vec<Result<Creation<SendId, AcceptedSend>, Error>> {
        let count = items.len();
        let app = app.clone();
        let work = tokio::spawn(async move {
            let mut outcomes = Vec::with_capacity(count);
            for part in parts(items) {
                outcomes.extend(store_part(&app, part, limited).await);
            }
            drop(permits);
            outcomes
        });
        let lost = || (0..count).map(|_| Err(Error::internal())).collect();
        work.await.unwrap_or_else(|_| lost())
    }

    async fn read(
        app: &App,
        tenant: TenantId,
        ids: Vec<SendId>,
    ) -> Vec<Result<AcceptedSend, Error>> {
        let found = records(app, ids.into_iter().map(|id| (tenant, id)).collect())
            .await
            .into_iter();
        let views = found.map(|send| send.map(|send| SendView::from(send).into()));
        views.collect()
    }
}

/// Reads sends by id, in order.
async fn records(app: &App, named: Vec<(TenantId, SendId)>) -> Vec<Result<SendRecord, Error>> {
    let count = named.len();
    match app.store.get_sends(named).await {
        Ok(found) => {
            let found = found.into_iter();
            found
                .map(|send| send.ok_or_else(Error::send_not_found))
                .collect()
        }
        Err(error) => (0..count).map(|_| Err(Error::from(&error))).collect(),
    }
}

/// Splits a batch into parts to be stored one after the other. A message for a busy session never
/// shares a part with an earlier item for the same session, since that item may be what makes the
/// session busy.
fn parts(items: Vec<AcceptSend>) -> Vec<Vec<AcceptSend>> {
    let mut parts = Vec::new();
    let mut part = Vec::new();
    let mut named = BTreeSet::new();
    for item in items {
        let key = item.target.key();
        if delivery(&item).is_some() && named.contains(&key) {
            parts.push(std::mem::take(&mut part));
            named.clear();
        }
        named.insert(key);
        part.push(item);
    }
    parts.push(part);
    parts
}

type Outcome = Result<Creation<SendId, AcceptedSend>, Error>;

/// Delivers messages to busy sessions, and accepts the remaining items in order.
async fn store_part(
    app: &Arc<App>,
    items: Vec<AcceptSend>,
    limited: Option<KeySends>,
) -> Vec<Outcome> {
    let deliveries: Vec<Option<DeliverItem>> = items.iter().map(delivery).collect();
    let wanted: Vec<DeliverItem> = deliveries.iter().flatten().cloned().collect();
    let told = if wanted.is_empty() {
        Vec::new()
    } else {
        deliver(app, wanted).await
    };
    let mut told = told.into_iter();
    let told: Vec<_> = deliveries
        .iter()
        .map(|delivery| match delivery {
            Some(_) => told.next().unwrap_or_else(|| Err(Error::internal())),
            None => Ok(None),
        })
        .collect();
    let own = items.into_iter().zip(&told);
    let own: Vec<AcceptSend> = own
        .filter(|(_, told)| matches!(told, Ok(None)))
        .map(|(item, _)| item)
        .collect();
    let mut accepted = accept(app, own, limited).await.into_iter();
    let joined = deliveries.iter().zip(&told);
    let joined = joined.filter_map(|(delivery, told)| match told {
        Ok(Some(Delivery::Delivered(send, _))) => delivery
            .as_ref()
            .map(|delivery| (delivery.key.tenant, *send)),
        Ok(Some(Delivery::Replayed(_)) | None) | Err(_) => None,
    });
    let joined: Vec<_> = joined.collect();
    let mut joined = if joined.is_empty() {
        Vec::new().into_iter()
    } else {
        records(app, joined).await.into_iter()
    };
    let outcomes = told.into_iter().map(|told| match told? {
        None => accepted.next().unwrap_or_else(|| Err(Error::internal())),
        Some(Delivery::Replayed(send)) => Ok(Creation::Replayed(send)),
        Some(Delivery::Delivered(_, item)) => {
            let send = joined.next().unwrap_or_else(|| Err(Error::internal()))?;
            Ok(Creation::New(AcceptedSend::joined(send, *item)))
        }
    });
    outcomes.collect()
}

async fn accept(app: &Arc<App>, items: Vec<AcceptSend>, limited: Option<KeySends>) -> Vec<Outcome> {
    if items.is_empty() {
        return Vec::new();
    }
    let keys = items.iter().map(|item| {
        let shown = ShownOptions::from(&item.options);
        (item.target.key(), item.id, shown)
    });
    let keys: Vec<(SessionKey, SendId, ShownOptions)> = keys.collect();
    let outcomes = accept_many(app, items, limited).await.into_iter().zip(keys);
    let outcomes = outcomes.map(|(outcome, (key, id, shown))| match outcome? {
        AcceptOutcome::Accepted(accepted) => Ok(Creation::New(
            accepted_view(key, id, shown, &accepted).into(),
        )),
        AcceptOutcome::Replayed(first) => Ok(Creation::Replayed(first)),
        AcceptOutcome::Mismatch => Err(Error::mismatch()),
        AcceptOutcome::Refused(reason) => Err(Error::from(reason)),
        AcceptOutcome::Locked => Err(Error::locked()),
    });
    outcomes.collect()
}
