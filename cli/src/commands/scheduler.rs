//! `mainspring scheduler`

use crate::config::Config;
use futures::FutureExt;

use super::access;
use super::server_process::{Base, address_of, bind};
use crate::failure::Failure;
use crate::wiring;

pub(crate) async fn run(config: &Config) -> Result<(), Failure> {
    let mut base = Base::prepare()?;
    let store = base
        .retry_while_unavailable(|| wiring::store(config, config.migrate))
        .await?;
    let wires = wiring::redis(config, &base.clock, &base.entropy)?;
    base.mount_skills(config, &store).await;
    // Last, so that every connection that is accepted is also served.
    let listener = bind(&config.listen, "--listen").await?;
    let address = address_of(&listener)?;
    let issuers = wiring::issuers(config, &base.clock)?;
    let access = access::of_scheduler(config, store.as_ref(), issuers, address).await?;
    let mut roles = vec![base.scheduler(config, store, &wires, listener, access, |_| {})?];
    if let Some(queue) = wires.janitor {
        let stopping = base.lifecycle.stopping();
        let janitor = async move { queue.janitor(stopping.boxed()).await };
        roles.push(janitor.map(Ok).boxed());
    }
    base.run(roles, config.scheduler.drain_timeout).await
}
