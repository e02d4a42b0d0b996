//! Asks workers for what only they have, over the bus. Nothing is stored, and if no worker answers, there is no
//! answer.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use mainspring_shared::bus::{Notice, Topic};
use mainspring_shared::id::BootId;
use mainspring_shared::store::Role;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::app::App;
use crate::error::Error;

/// Maximum number of workers that are asked, one after the other.
pub(super) const ASKED_MAX: usize = 2;

/// The live workers of a pool, least loaded first.
pub(super) async fn workers(app: &App, pool: &str) -> Result<Vec<BootId>, Error> {
    let now = app.store.now().await?;
    let boots = app.store.list_boots().await?.into_iter();
    let alive = boots.filter(|boot| {
        boot.role == Role::Worker
            && boot.pool == pool
            && boot.dead_at.is_none()
            && boot.lease_until > now
    });
    let mut alive: Vec<_> = alive.collect();
    alive.sort_by_key(|boot| (boot.in_flight, boot.started_at));
    Ok(alive.into_iter().map(|boot| boot.id).collect())
}

/// The answer of the worker that is asked; none if it does not answer in time.
pub(super) async fn asked<A: DeserializeOwned>(
    app: &App,
    id: Uuid,
    ask: &impl Serialize,
    patience: Duration,
) -> Option<A> {
    let json = serde_json::to_vec(ask).ok()?;
    let late = app.clock.sleep(patience);
    let answer = async {
        let mut answers = app.bus().subscribe(Topic::Answers(id)).await;
        app.bus().publish(Topic::Asks, Bytes::from(json));
        while let Some(notice) = answers.next().await {
            match notice {
                Notice::Payload(json) => return serde_json::from_slice(&json).ok(),
                Notice::Gap => {}
            }
        }
        None
    };
    tokio::select! {
        biased;
        answer = answer => answer,
        () = late => None,
    }
}
