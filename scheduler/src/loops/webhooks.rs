//! Delivers events to webhook endpoints. Any number of schedulers may do so at the same time.
//!
//! A message is posted while its delivery is leased. If a scheduler dies after the post but before
//! recording it, the next one posts the message again under the same id. So an endpoint gets each
//! message at least once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mainspring_runtime::may_take;
use mainspring_shared::id::{TenantId, WebhookId};
use mainspring_shared::store::{
    self, ChangeWebhook, ClaimDeliveries, ClaimedDelivery, DeliveryEnd, SettleDelivery, one_by_one,
    scoped,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::webhook::{
    DeliveryRecord, Outgoing, Posted, Poster, WebhookRecord, retry_wait,
};
use tokio::task::JoinSet;

use super::{Health, jittered};
use crate::app::App;
use crate::metrics::{WEBHOOK_ATTEMPTS, WEBHOOK_OLDEST_DUE, WEBHOOKS_DISABLED};
use crate::services::webhooks::body;

/// Events per fan-out.
const EVENTS: u32 = 200;

/// Maximum number of fan-outs before deliveries get their turn.
const FAN_OUTS_MAX: u32 = 20;

/// How much longer a lease is than a post may take: time to wait for its turn, and to settle it.
const LEASE_MARGIN: Duration = Duration::from_secs(30);

/// Maximum number of outcomes that wait for their databases.
const ENDED_MAX: usize = 10_000;

/// Into how many claims a full load of posts is divided.
const SLICES: u32 = 8;

/// How many times what is left for the others the posts of one tenant may take.
const TENANT_PARTS: usize = 3;

/// The status by which an endpoint says that it is gone for good.
const GONE: u16 = 410;

type Endpoint = (TenantId, WebhookId);

/// A finished attempt to post a message.
struct Attempt {
    endpoint: Endpoint,
    settle: SettleDelivery,
    /// Whether the endpoint is gone and wants no more messages.
    gone: bool,
}

/// Posts in flight, and the outcomes of finished ones.
#[derive(Default)]
struct Posts {
    tasks: JoinSet<Attempt>,
    of: BTreeMap<Endpoint, u32>,
    /// Attempts to be settled. They stay here while the database is unavailable.
    ended: Vec<Attempt>,
}

impl Posts {
    /// The tenants that have their share of the posts in flight, while there is room for so many
    /// more.
    fn busy_tenants(&self, room: u32) -> Vec<TenantId> {
        let mut held: BTreeMap<TenantId, usize> = BTreeMap::new();
        for ((tenant, _), count) in &self.of {
            *held.entry(*tenant).or_default() += *count as usize;
        }
        let busy = held.into_iter();
        let busy = busy.filter(|(_, held)| !may_take(*held, room as usize, TENANT_PARTS));
        busy.map(|(tenant, _)| tenant).collect()
    }

    fn note(&mut self, attempt: Attempt) {
        if let Some(count) = self.of.get_mut(&attempt.endpoint) {
            *count -= 1;
        }
        self.of.retain(|_, count| *count > 0);
        self.ended.push(attempt);
    }

    /// Collects finished posts without waiting.
    fn collect(&mut self) {
        while let Some(joined) = self.tasks.try_join_next() {
            self.note_joined(joined);
        }
    }

    fn note_joined(&mut self, joined: Result<Attempt, tokio::task::JoinError>) {
        match joined {
            Ok(attempt) => self.note(attempt),
            // Its lease expires. Its endpoint is unknown, so it counts as in flight until no post
            // is.
            Err(error) => tracing::error!(%error, "a delivery task failed; its lease will expire"),
        }
        if self.tasks.is_empty() {
            self.of.clear();
        }
    }
}

/// Delivers webhooks until shutdown, then lets posts in flight finish.
pub(crate) async fn run(app: &Arc<App>) {
    let Some(poster) = app.outside.webhooks.poster.clone() else {
        return;
    };
    let mut health = Health::new("webhooks");
    let mut posts = Posts::default();
    loop {
        let wait = match pass(app, &poster, &mut posts).await {
            Ok(()) => {
                health.succeeded();
                jittered(app, app.config.webhook_interval)
            }
            Err(error) => health.failed(&error, app.entropy.fraction()),
        };
        let wait = app.clock.sleep(wait);
        tokio::select! {
            biased;
            () = app.process.lifecycle.stopping() => break,
            // An endpoint with more deliveries does not wait for the interval.
            Some(joined) = posts.tasks.join_next() => posts.note_joined(joined),
            () = wait => {}
        }
    }
    while let Some(joined) = posts.tasks.join_next().await {
        posts.note_joined(joined);
        settle(app, &mut posts).await;
    }
}

async fn pass(
    app: &Arc<App>,
    poster: &Arc<dyn Poster>,
    posts: &mut Posts,
) -> Result<(), store::Error> {
    posts.collect();
    settle(app, posts).await;
    for _ in 0..FAN_OUTS_MAX {
        if app.store.fan_out(EVENTS).await?.events < u64::from(EVENTS) {
            break;
        }
    }
    let mut is_first = true;
    while claim(app, poster, posts, is_first).await? {
        is_first = false;
    }
    Ok(())
}

/// Begins some posts, if there is room. Returns whether there may be more to do: only so many at
/// once that no tenant gets far beyond its share before the others' turn.
async fn claim(
    app: &Arc<App>,
    poster: &Arc<dyn Poster>,
    posts: &mut Posts,
    is_first: bool,
) -> Result<bool, store::Error> {
    let config = &app.config;
    let under_way: u32 = posts.of.values().sum();
    let all = config.webhooks_in_flight_max;
    let room = all.saturating_sub(under_way);
    if room == 0 {
        return Ok(false);
    }
    // Half of an endpoint's quota per claim, so that a slow endpoint does not hold up the others.
    let most = config.webhooks_in_flight_each;
    let each = most.div_ceil(2);
    let busy = posts.of.iter().filter(|(_, count)| **count + each > most);
    let limit = room.min((all / SLICES).max(1));
    let claim = ClaimDeliveries {
        lease: config.webhook_timeout + LEASE_MARGIN,
        each,
        limit,
        busy: busy.map(|(endpoint, _)| *endpoint).collect(),
        busy_tenants: posts.busy_tenants(room),
    };
    let claimed = app.store.claim_deliveries(claim).await?;
    if is_first {
        let oldest = claimed.oldest_due.map(|due| claimed.now.since(due));
        let oldest = oldest.unwrap_or(Duration::ZERO);
        metrics::gauge!(WEBHOOK_OLDEST_DUE).set(oldest.as_secs_f64());
    }
    let more = claimed.deliveries.len() >= limit as usize;
    for delivery in claimed.deliveries {
        let endpoint = (delivery.webhook.tenant, delivery.webhook.id);
        *posts.of.entry(endpoint).or_default() += 1;
        let (app, poster, now) = (app.clone(), poster.clone(), claimed.now);
        posts
            .tasks
            .spawn(async move { attempt(&app, poster.as_ref(), delivery, now).await });
    }
    Ok(more)
}

/// Posts one message.
async fn attempt(
    app: &App,
    poster: &dyn Poster,
    claimed: ClaimedDelivery,
    now: Timestamp,
) -> Attempt {
    let ClaimedDelivery { delivery, webhook } = claimed;
    let (answer, error, retry_after, again) =
        match post(app, poster, &delivery, &webhook, now).await {
            Attempted::Posted(Posted::Answered { status, .. }) if (200..300).contains(&status) => {
                (Some(status), None, None, false)
            }
            Attempted::Posted(Posted::Answered {
                status,
                retry_after,
            }) => {
                let error = Some(format!("answered {status}"));
                (Some(status), error, retry_after, status != GONE)
            }
            Attempted::Posted(Posted::Failed { why }) | Attempted::Not(why) => {
                (None, Some(why), None, true)
            }
            Attempted::Nothing => {
                let error = Some("what it is about is gone".to_owned());
                (None, error, None, false)
            }
        };
    let wait = retry_wait(delivery.tried, retry_after, app.entropy.fraction());
    let (end, outcome) = match (&error, wait) {
        (None, _) => (DeliveryEnd::Delivered, "delivered"),
        (Some(_), Some(wait)) if again => (DeliveryEnd::Again(wait), "failed"),
        (Some(_), _) => (DeliveryEnd::Dead, "dead"),
    };
    metrics::counter!(WEBHOOK_ATTEMPTS, "outcome" => outcome).increment(1);
    Attempt {
        endpoint: (webhook.tenant, webhook.id),
        gone: answer == Some(GONE),
        settle: SettleDelivery {
            tenant: delivery.tenant,
            webhook: delivery.webhook,
            event: delivery.event,
            attempt: delivery.attempts,
            answer,
            error,
            end,
        },
    }
}

/// The outcome of trying to post a message.
enum Attempted {
    Posted(Posted),
    /// It could not be attempted for now.
    Not(String),
    /// The subject of the message is gone, so there is nothing to post.
    Nothing,
}

async fn post(
    app: &App,
    poster: &dyn Poster,
    delivery: &DeliveryRecord,
    webhook: &WebhookRecord,
    now: Timestamp,
) -> Attempted {
    let keys = match app.outside.webhooks.keys(webhook, now) {
        Ok(keys) => keys,
        Err(why) => {
            tracing::warn!(
                webhook.id = %webhook.id,
                why,
                "no usable key to sign a webhook's message with"
            );
            return Attempted::Not(why);
        }
    };
    let (body, traceparent) = match body(app, delivery).await {
        Ok(Some(made)) => made,
        Ok(None) => return Attempted::Nothing,
        Err(error) => {
            tracing::debug!(
                webhook.id = %webhook.id,
                %error,
                "could not build a webhook's message"
            );
            return Attempted::Not("the message could not be made".to_owned());
        }
    };
    let message = Outgoing {
        url: webhook.url.clone(),
        id: delivery.event.to_string(),
        body,
        keys,
        traceparent,
    };
    let limit = app.config.webhook_timeout;
    tokio::select! {
        biased;
        posted = scoped(webhook.tenant, poster.post(message)) => Attempted::Posted(posted),
        () = app.clock.sleep(limit) => Attempted::Posted(Posted::Failed {
            why: format!("took longer than {} s", limit.as_secs_f64()),
        }),
    }
}

/// Records the outcomes of posts, and disables endpoints that are gone. What cannot be recorded now
/// is kept, and nobody else waits for it: the database of some tenants may be away.
async fn settle(app: &App, posts: &mut Posts) {
    if posts.ended.is_empty() {
        return;
    }
    let ended = std::mem::take(&mut posts.ended);
    let all = ended.iter().map(|attempt| attempt.settle.clone());
    if app.store.settle_deliveries(all.collect()).await.is_ok() {
        disable_gone(app, ended).await;
        return;
    }
    let mut of: BTreeMap<TenantId, Vec<Attempt>> = BTreeMap::new();
    for attempt in ended {
        of.entry(attempt.endpoint.0).or_default().push(attempt);
    }
    for attempts in of.into_values() {
        let items: Vec<_> = attempts.iter().map(|it| it.settle.clone()).collect();
        match one_by_one(&items, |items| app.store.settle_deliveries(items)).await {
            // Those that are refused are made again when their leases have expired.
            Ok(_) => disable_gone(app, attempts).await,
            Err(error) => {
                tracing::debug!(%error, "could not record the outcome of deliveries; will retry");
                posts.ended.extend(attempts);
            }
        }
    }
    // Beyond that they are made again, which endpoints have to expect.
    let surplus = posts.ended.len().saturating_sub(ENDED_MAX);
    posts.ended.drain(..surplus);
}

/// Disables the endpoints of these attempts that said that they are gone.
async fn disable_gone(app: &App, attempts: Vec<Attempt>) {
    for attempt in attempts.into_iter().filter(|attempt| attempt.gone) {
        let (tenant, id) = attempt.endpoint;
        let change = ChangeWebhook {
            disabled: Some(Some("the endpoint answered 410 Gone".to_owned())),
            ..ChangeWebhook::nothing(tenant, id)
        };
        match app.store.change_webhook(change).await {
            Ok(Some(_)) => {
                metrics::counter!(WEBHOOKS_DISABLED).increment(1);
                tracing::warn!(
                    tenant = %tenant,
                    webhook.id = %id,
                    "a webhook's endpoint answered 410; the webhook is disabled"
                );
            }
            Ok(None) => {}
            // It says so again to the next message.
            Err(error) => tracing::debug!(%error, "could not disable a webhook"),
        }
    }
}
