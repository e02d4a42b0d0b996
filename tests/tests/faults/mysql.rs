//! The faults that do not depend on the database, on MariaDB: processes and the server die under
//! load.

use std::time::Duration;

use anyhow::{Result, ensure};
use mainspring_tests::faults::{
    Cluster, Effect, Load, Recipe, Shape, any_of, between, blocking, fault_duration, monotonic,
    pause, settle,
};

const MS: Duration = Duration::from_millis(1);

async fn start() -> Result<Option<Cluster>> {
    Cluster::start(Recipe {
        mysql: true,
        ..Recipe::default()
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_processes_lose_nothing() -> Result<()> {
    let Some(mut cluster) = start().await? else {
        return Ok(());
    };
    let load = Load::start(cluster.urls(), Shape::default()).await?;
    let end = monotonic() + fault_duration();
    while monotonic() < end {
        pause(between(200 * MS, 1_000 * MS)).await;
        let worker = cluster.busy_worker().await?;
        let fault_log = cluster.fault_log.clone();
        fault_log.during("a worker is killed", Effect::Repeats, || {
            cluster.kill_worker(worker);
        });
        cluster.replace_worker(worker)?;
        let scheduler = any_of(cluster.schedulers.len());
        fault_log.during("a scheduler is killed", Effect::None, || {
            blocking(|| cluster.schedulers[scheduler].kill());
        });
        cluster.replace_scheduler(scheduler)?;
        cluster.all_ready()?;
    }
    let report = settle("killed processes on MariaDB", &mut cluster, load).await?;
    ensure!(report.repeated > 0, "no kill hit anything: {report:?}");
    cluster.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_crashes_and_recovers_loses_nothing_that_was_answered() -> Result<()> {
    let Some(mut cluster) = start().await? else {
        return Ok(());
    };
    let load = Load::start(cluster.urls(), Shape::default()).await?;
    let end = monotonic() + fault_duration();
    let mut times = 0;
    while monotonic() < end || times < 2 {
        times += 1;
        pause(between(800 * MS, 2_000 * MS)).await;
        let fault_log = cluster.fault_log.clone();
        let place = fault_log.begin("the database crashes", Effect::Repeats);
        let mysql = cluster.mysql.as_mut().expect("the recipe asks for it");
        blocking(|| mysql.restart())?;
        fault_log.end(place);
        cluster.all_ready()?;
    }
    settle("crashes of MariaDB", &mut cluster, load).await?;
    cluster.passed();
    Ok(())
}
