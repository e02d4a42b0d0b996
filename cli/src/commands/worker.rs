//! `mainspring worker`

use crate::config::{Config, Migrate};
use futures::FutureExt;
use mainspring_runtime::Choice as _;

use super::server_process::{Base, bind};
use crate::failure::Failure;
use crate::{ops, wiring};

pub(crate) async fn run(config: &Config) -> Result<(), Failure> {
    let mut base = Base::prepare()?;
    // Schedulers create the schema; a worker waits until it exists.
    let store = base
        .retry_while_unavailable(|| wiring::store(config, Migrate::Verify))
        .await?;
    let wires = wiring::redis(config, &base.clock, &base.entropy)?;
    base.mount_skills(config, &store).await;
    if config.llm.model.is_none() {
        let provider = config.llm.kind.as_str();
        tracing::warn!(
            provider,
            "no default model: sends of agents that name none will fail; set MAINSPRING_LLM_MODEL"
        );
    }
    let mut role = base.worker(config, store.clone(), &wires)?;
    if let Some(address) = &config.ops_listen {
        let listener = bind(address, "--ops-listen").await?;
        let watched = ops::serve(
            listener,
            (store, wires.queue.clone()),
            base.metrics.clone(),
            base.lifecycle.clone(),
            base.clock.clone(),
        );
        role = async move {
            tokio::select! {
                ended = role => ended,
                ended = watched => ended,
            }
        }
        .boxed();
    }
    base.run(vec![role], config.worker.drain_timeout + config.lease_ttl)
        .await
}
