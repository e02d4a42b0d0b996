//! This process's boot in the database: registered at start, renewed while it runs, ended at shutdown.

use std::sync::Mutex;
use std::time::Duration;

use mainspring_shared::id::BootId;
use mainspring_shared::store::{self, NewBoot, Renewal, Role};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::loops::Health;

/// The boot id under which this process currently writes.
#[derive(Debug, Default)]
pub struct Registration {
    current: Mutex<Option<BootId>>,
}

impl Registration {
    /// The boot id; none before it is registered.
    pub fn id(&self) -> Option<BootId> {
        *self
            .current
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn set(&self, id: Option<BootId>) {
        *self
            .current
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = id;
    }
}

/// Registers a boot and renews it until `closing` is cancelled, then ends it. If the boot was
/// declared dead, a new one is registered: between transactions, a scheduler has no state that it
/// would have to drop.
pub async fn keep(app: &App, closing: CancellationToken) {
    let mut health = Health::new("boot");
    while !closing.is_cancelled() {
        let pause = match step(app).await {
            Ok(pause) => {
                health.succeeded();
                pause
            }
            Err(error) => health
                .failed(&error, app.entropy.fraction())
                .min(renewal_pause(app)),
        };
        tokio::select! {
            biased;
            () = app.clock.sleep(pause) => {}
            () = closing.cancelled() => {}
        }
    }
    if let Some(id) = app.process.registration.id()
        && let Err(error) = app.store.stop_boot(id).await
    {
        tracing::debug!(error = %error, "the boot could not be ended; its lease will expire");
    }
}

fn renewal_pause(app: &App) -> Duration {
    app.config.lease_ttl / 3
}

async fn step(app: &App) -> Result<Duration, store::Error> {
    let Some(id) = app.process.registration.id() else {
        let id = BootId(app.entropy.random_id());
        let boot = NewBoot {
            id,
            role: Role::Scheduler,
            name: app.config.name.clone(),
            pool: mainspring_shared::agent::DEFAULT_POOL.to_owned(),
            concurrency: 0,
            ttl: app.config.lease_ttl,
            protocol: store::PROTOCOL,
            tools: mainspring_shared::tool::Published::default(),
        };
        app.store.register_boot(boot).await?;
        tracing::info!(boot.id = %id, "scheduler registered");
        app.process.registration.set(Some(id));
        return Ok(renewal_pause(app));
    };
    match app.store.renew_boot(id, app.config.lease_ttl, 0).await? {
        Renewal::Renewed { .. } => Ok(renewal_pause(app)),
        Renewal::Dead => {
            tracing::warn!(boot.id = %id, "this boot was declared dead, registering a new one");
            app.process.registration.set(None);
            Ok(Duration::ZERO)
        }
    }
}
