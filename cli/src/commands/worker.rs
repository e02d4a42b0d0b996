//! `mainspring worker`

use futures::FutureExt;
use mainspring_runtime::{Config, Migrate};

use super::serve::{Base, bind};
use crate::failure::Failure;
use crate::{ops, wiring};

pub(crate) async fn run(config: &Config) -> Result<(), Failure> {
    let mut base = Base::prepare()?;
    let listener = match &config.ops_listen {
        Some(address) => Some(bind(address, "--ops-listen").await?),
        None => None,
    };
    // The schema is the schedulers' business; a worker waits until it is there.
    let store = base
        .patiently(|| wiring::store(config, Migrate::Verify))
        .await?;
    let wires = wiring::redis(config, &base.clock, &base.entropy)?;
    let mut roles = vec![base.worker(config, store.clone(), &wires)?];
    if let Some(listener) = listener {
        let (metrics, lifecycle) = (base.metrics.clone(), base.lifecycle.clone());
        roles.push(ops::serve(listener, store, metrics, lifecycle).boxed());
    }
    base.run(roles, config.worker.drain_timeout.0 + config.lease_ttl.0)
        .await
}
