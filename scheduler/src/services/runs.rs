//! Reads runs, waits for them, and stores requests to them.

use std::time::Duration;

use mainspring_shared::error::Code;
use mainspring_shared::id::{RunKey, SessionId, SessionKey, TenantId};
use mainspring_shared::workflow::run::{RunAsk, RunRecord};

use super::watch::Watcher;
use crate::app::App;
use crate::error::Error;

/// The nesting depth of a child of this session.
pub async fn depth_below(app: &App, tenant: TenantId, session: SessionId) -> Result<i32, Error> {
    let key = SessionKey { tenant, session };
    let found = app.store.get_session(key).await?;
    let found = found.ok_or_else(Error::session_not_found)?;
    Ok(found.parent.map_or(0, |parent| parent.depth) + 1)
}

/// A run whose status already reflects its pending asks.
pub async fn read(app: &App, key: RunKey) -> Result<RunRecord, Error> {
    // An advance consumes its asks. Reading them before the run ensures that none is missed.
    let asks = app.store.read_asks(vec![key]).await?;
    let found = app.store.get_runs(vec![key]).await?;
    let found = found.into_iter().flatten().next();
    let record = found.ok_or_else(Error::run_not_found)?;
    let asks = asks.into_iter().flatten().collect::<Vec<_>>();
    Ok(record.asked(&asks))
}

/// Waits until the run is final, `wait` has passed or this process is stopping. Returns the run as
/// it is then.
pub async fn wait_for(
    app: &App,
    watcher: &Watcher<RunKey>,
    wait: Duration,
) -> Result<RunRecord, Error> {
    let mut over = app.clock.sleep(wait);
    let mut stopping = Box::pin(app.process.lifecycle.stopping());
    let mut last = false;
    loop {
        match read(app, watcher.key()).await {
            Ok(record) if last || record.status.is_final() => return Ok(record),
            Err(error) if last || error.code() == Code::RunNotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
        last = tokio::select! {
            biased;
            () = watcher.woken() => false,
            () = &mut over => true,
            () = &mut stopping => true,
        };
    }
}

/// Stores an ask for the run's owner, then waits up to `wait` for the run to end.
pub async fn ask(
    app: &App,
    key: RunKey,
    ask: RunAsk,
    wait: Option<Duration>,
) -> Result<RunRecord, Error> {
    let watcher = app.watch.run(key);
    let known = app.store.ask_runs(vec![(key, ask)]).await?;
    if !known.first().copied().unwrap_or_default() {
        return Err(Error::run_not_found());
    }
    app.notifier.run_changed(key);
    match wait {
        Some(wait) => wait_for(app, &watcher, wait).await,
        None => read(app, key).await,
    }
}
