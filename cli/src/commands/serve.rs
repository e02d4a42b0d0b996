//! `mainspring serve`: both roles in one process.

use futures::FutureExt;

use super::access;
use super::server_process::{Base, address_of, bind};
use crate::config::Config;
use crate::failure::Failure;
use crate::wiring;

pub(crate) async fn run(config: &Config) -> Result<(), Failure> {
    let mut base = Base::prepare()?;
    // A key generated here would be missing on the other schedulers, which connect through Redis.
    let config = &match config.redis_url {
        Some(_) => wiring::with_printed_key(config)?,
        None => wiring::with_own_key(config, base.entropy.as_ref())?,
    };
    let store = base
        .retry_while_unavailable(|| wiring::store(config, config.migrate))
        .await?;
    // Other processes connect through Redis. Without it, this process enqueues for itself.
    let wires = match config.redis_url {
        Some(_) => wiring::redis(config, &base.clock, &base.entropy)?,
        None => wiring::local(&base.clock),
    };
    base.mount_skills(config, &store).await;
    // Last, so that every connection that is accepted is also served.
    let listener = bind(&config.listen, "--listen").await?;
    let address = address_of(&listener)?;
    let issuers = wiring::issuers(config, &base.clock)?;
    let access = access::of_scheduler(config, store.as_ref(), issuers, address).await?;
    let worker = base.worker(config, store.clone(), &wires)?;
    let scheduler = base.scheduler(config, store, &wires, listener, access, |address| {
        tracing::info!(%address, "serving");
    })?;
    let mut roles = vec![scheduler, worker];
    if let Some(queue) = wires.janitor {
        let stopping = base.lifecycle.stopping();
        roles.push(
            async move { queue.janitor(stopping.boxed()).await }
                .map(Ok)
                .boxed(),
        );
    }
    let drain = config
        .worker
        .drain_timeout
        .max(config.scheduler.drain_timeout);
    base.run(roles, drain + config.lease_ttl).await
}
