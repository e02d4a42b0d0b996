//! Erases tenants, a piece at a time.
//!
//! Each pass determines anew what is left and keeps nothing in memory. So any scheduler can
//! continue where another one died, and it is safe for several to work at once. What could create
//! more work is ended first: timers, then runs, then sessions with their sends. Then the rows are
//! removed, table by table, and then the blobs with their bytes.

use std::time::Duration;

use mainspring_shared::blob::{BlobHash, SWEEP_GRACE};
use mainspring_shared::id::{BootId, TenantId};
use mainspring_shared::store::{
    self, ChangeTimer, ListRuns, ListSessions, ListTimers, ROWS_ERASED_AT_ONCE,
};
use mainspring_shared::timer::{TimerChange, TimerStatus};
use mainspring_shared::workflow::run::{RunAsk, RunStatus};

use super::{Health, causes, jittered, pause};
use crate::app::App;
use crate::deleting;
use crate::metrics::{BLOBS_REMOVED, TENANT_ROWS_ERASED};

/// Sessions, timers and runs per pass. Each takes a transaction of its own.
const PAGE: u32 = 20;

/// Blobs per pass.
const BLOBS: u32 = 200;

/// The pause between two pieces, which leaves the database to other work.
const REST: Duration = Duration::from_millis(20);

/// Erases tenants until shutdown.
pub(crate) async fn run(app: &App) {
    let mut health = Health::new("erasures");
    loop {
        let wait = match sweep(app).await {
            Ok(more) => {
                health.succeeded();
                if more {
                    REST
                } else {
                    jittered(app, app.config.erase_interval)
                }
            }
            Err(error) => health.failed(&error, app.entropy.fraction()),
        };
        if !pause(app, wait).await {
            return;
        }
    }
}

/// Erases one piece of each tenant. Returns true if any tenant has more that can be erased at once.
async fn sweep(app: &App) -> Result<bool, store::Error> {
    let Some(boot) = app.process.registration.id() else {
        return Ok(false);
    };
    let mut more = false;
    for tenant in app.store.erasing_tenants().await? {
        if app.process.lifecycle.is_stopping() {
            return Ok(false);
        }
        match piece(app, boot, tenant).await {
            Ok(left) => more |= left,
            // One tenant's data must not block the erasure of others.
            Err(error) if error.is_of_data() => {
                let cause = causes(&error);
                tracing::warn!(
                    tenant.id = %tenant,
                    error = cause,
                    "could not erase a tenant; will retry"
                );
                let failed = Some("rows: the database refuses them".to_owned());
                app.store.note_tenant_erasure(tenant, failed).await?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(more)
}

async fn piece(app: &App, boot: BootId, tenant: TenantId) -> Result<bool, store::Error> {
    // Read again for each piece: a hold set in the meantime stops the erasure where it is.
    let found = app.store.get_tenant(tenant).await?;
    if found.is_none_or(|tenant| tenant.retention.hold) {
        return Ok(false);
    }
    // Work is ended before the first rows are removed. Work that arrives later is removed with its
    // rows.
    let begun = app.store.tenant_erasure(tenant).await?;
    let has_work = begun.is_none_or(|erasure| erasure.progress.removed.is_empty());
    if has_work && end_work(app, boot, tenant).await? {
        return Ok(true);
    }
    let step = app.store.erase_tenant_rows(tenant, ROWS_ERASED_AT_ONCE);
    let Some(erasure) = step.await? else {
        return Ok(false);
    };
    let progress = &erasure.progress;
    if erasure.ended_at.is_some() {
        metrics::counter!(TENANT_ROWS_ERASED).increment(progress.rows());
        tracing::info!(tenant.id = %tenant, rows = progress.rows(), "a tenant was erased");
        return Ok(false);
    }
    if progress.blobs_left > 0 {
        return blobs(app, tenant).await;
    }
    Ok(progress.quiet_since.is_none())
}

/// Ends everything that would continue on its own. Returns true if there was any.
async fn end_work(app: &App, boot: BootId, tenant: TenantId) -> Result<bool, store::Error> {
    let mut any = false;
    for status in [TimerStatus::Armed, TimerStatus::Paused] {
        let query = ListTimers {
            tenant,
            session: None,
            status: Some(status),
            before: None,
            limit: PAGE,
        };
        let timers = app.store.list_timers(query).await?.data;
        let changes = timers.iter().map(|timer| ChangeTimer {
            tenant,
            id: timer.id,
            session: None,
            change: TimerChange::Cancel,
        });
        let changes: Vec<_> = changes.collect();
        if !changes.is_empty() {
            any = true;
            app.store.change_timers(changes).await?;
        }
    }
    any |= end_runs(app, tenant).await?;
    let query = ListSessions {
        tenant,
        status: None,
        agent: None,
        metadata: std::collections::BTreeMap::new(),
        before: None,
        limit: PAGE,
    };
    for session in app.store.list_sessions(query).await?.data {
        any |= deleting::delete(app, boot, session.key).await?;
    }
    Ok(any)
}

/// Cancels runs that have not been asked to end yet. Those that do not end are stopped when their
/// rows are removed.
async fn end_runs(app: &App, tenant: TenantId) -> Result<bool, store::Error> {
    let mut asks = Vec::new();
    for status in [RunStatus::Queued, RunStatus::Running, RunStatus::Waiting] {
        let query = ListRuns {
            tenant,
            status: Some(status),
            session: None,
            before: None,
            limit: PAGE,
        };
        let found = app.store.list_runs(query).await?.data;
        let keys: Vec<_> = found.into_iter().map(|run| run.key).collect();
        let open = app.store.read_asks(keys.clone()).await?;
        let unasked = keys
            .into_iter()
            .zip(open)
            .filter(|(_, asks)| asks.is_empty());
        asks.extend(unasked.map(|(key, _)| (key, RunAsk::Cancel { reason: None })));
    }
    let keys: Vec<_> = asks.iter().map(|(key, _)| *key).collect();
    if keys.is_empty() {
        return Ok(false);
    }
    app.store.ask_runs(asks).await?;
    for key in keys {
        app.notifier.run_changed(key);
    }
    Ok(true)
}

/// Removes blobs with their bytes. Returns true if more may follow at once.
async fn blobs(app: &App, tenant: TenantId) -> Result<bool, store::Error> {
    // The page starts at this tenant but may reach later ones, whose blobs are swept by the usual
    // rules.
    let before = Some((TenantId(tenant.0 - 1), BlobHash([u8::MAX; 32])));
    let swept = match app.outside.blobs.sweep(SWEEP_GRACE, before, BLOBS).await {
        Ok(swept) => swept,
        Err(mainspring_shared::blob::Error::Rows(error)) => return Err(error),
        Err(error) => {
            note(app, tenant, &error).await?;
            return Ok(false);
        }
    };
    metrics::counter!(BLOBS_REMOVED).increment(swept.blobs);
    match &swept.failed {
        Some(error) => {
            note(app, tenant, error).await?;
            Ok(false)
        }
        None => Ok(swept.blobs > 0),
    }
}

/// Records why the erasure is blocked, in words that contain no content.
async fn note(
    app: &App,
    tenant: TenantId,
    error: &mainspring_shared::blob::Error,
) -> Result<(), store::Error> {
    tracing::warn!(
        tenant.id = %tenant,
        error = %error,
        "could not remove the blobs of a tenant; will retry"
    );
    let failed = Some("blobs: their store does not remove them".to_owned());
    app.store.note_tenant_erasure(tenant, failed).await
}
