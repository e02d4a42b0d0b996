//! Servers that lose data, stop and come back, and connections that break.

use std::time::Duration;

use anyhow::{Result, ensure};
use mainspring_tests::faults::{
    Cluster, Cut, Effect, Load, Recipe, Shape, any_of, between, blocking, fault_duration,
    monotonic, pause, settle,
};

const MS: Duration = Duration::from_millis(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_redis_costs_no_send_and_no_model_call() -> Result<()> {
    let Some(mut cluster) = Cluster::start(Recipe::default()).await? else {
        return Ok(());
    };
    let load = Load::start(cluster.urls(), Shape::default()).await?;
    let end = monotonic() + fault_duration();
    while monotonic() < end {
        pause(between(20 * MS, 200 * MS)).await;
        let fault_log = cluster.fault_log.clone();
        let flush = || blocking(|| cluster.redis.command(&["FLUSHALL"]));
        fault_log.during("redis is emptied", Effect::None, flush)?;
    }
    let report = settle("a flushed redis", &mut cluster, load).await?;
    ensure!(report.repeated == 0, "answers were lost: {report:?}");
    cluster.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_sends_are_accepted_and_finished() -> Result<()> {
    let Some(mut cluster) = Cluster::start(Recipe::default()).await? else {
        return Ok(());
    };
    let load = Load::start(cluster.urls(), Shape::default()).await?;
    pause(500 * MS).await;
    let place = cluster.fault_log.begin("redis is away", Effect::None);
    blocking(|| cluster.redis.stop());
    // Sends in flight may still have been enqueued; later ones were not.
    pause(1_000 * MS).await;
    let before = load.done();
    pause(fault_duration()).await;
    let without = load.done() - before;
    blocking(|| cluster.redis.restart())?;
    cluster.fault_log.end(place);
    let before = load.done();
    pause(3_000 * MS).await;
    let after = load.done() - before;
    let report = settle("without redis", &mut cluster, load).await?;
    ensure!(report.repeated == 0, "answers were lost: {report:?}");
    // Workers poll the database every 250 ms, so each of eight sessions proceeds at least every
    // second. Half of that is required.
    let expected = fault_duration().as_secs() as usize * 4;
    ensure!(without >= expected, "{without} sends ended without redis");
    ensure!(after >= 12, "{after} sends ended after redis came back");
    cluster.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_crashes_again_and_again_keeps_every_word() -> Result<()> {
    let Some(mut cluster) = Cluster::start(Recipe::default()).await? else {
        return Ok(());
    };
    let load = Load::start(cluster.urls(), Shape::default()).await?;
    let end = monotonic() + fault_duration();
    while monotonic() < end {
        pause(between(300 * MS, 2_000 * MS)).await;
        let fault_log = cluster.fault_log.clone();
        let place = fault_log.begin("postgres crashes", Effect::Repeats);
        blocking(|| cluster.postgres.stop());
        // Sometimes it is away for longer than a lease.
        let away = [Duration::ZERO, 300 * MS, 2_500 * MS][any_of(3)];
        pause(away).await;
        blocking(|| cluster.postgres.restart())?;
        fault_log.end(place);
    }
    settle("a crashing postgres", &mut cluster, load).await?;
    cluster.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_takes_over_keeps_every_word() -> Result<()> {
    let recipe = Recipe {
        proxied: true,
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let load = Load::start(cluster.urls(), Shape::default()).await?;
    let end = monotonic() + fault_duration();
    let mut times = 0;
    while monotonic() < end || times == 0 {
        times += 1;
        cluster.add_standby()?;
        pause(between(300 * MS, 2_000 * MS)).await;
        let place = cluster
            .fault_log
            .begin("a standby takes over", Effect::Repeats);
        cluster.fail_over()?;
        cluster.fault_log.end(place);
        let before = load.done();
        let goes_on = async |_: &Cluster| Ok(load.done() > before);
        cluster.until("a new answer", 10_000 * MS, goes_on).await?;
    }
    settle("a standby", &mut cluster, load).await?;
    cluster.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_whose_connection_breaks_happen_once() -> Result<()> {
    let recipe = Recipe {
        proxied: true,
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let load = Load::start(cluster.urls(), Shape::default()).await?;
    let end = monotonic() + fault_duration();
    let kinds = [
        Cut::Inside,
        Cut::Behind,
        Cut::Unheard,
        Cut::Silent(400 * MS),
        Cut::Unheard,
    ];
    let mut cuts = 0;
    while monotonic() < end {
        pause(between(Duration::ZERO, 120 * MS)).await;
        let Some(proxy) = &cluster.proxy else { break };
        let place = cluster.fault_log.begin("a connection is cut", Effect::One);
        if proxy.cut(kinds[any_of(kinds.len())], 2_000 * MS).await {
            cuts += 1;
        }
        cluster.fault_log.end(place);
    }
    let report = settle("cut connections", &mut cluster, load).await?;
    let expected = fault_duration().as_secs() * 3;
    ensure!(cuts >= expected, "only {cuts} cuts in {report:?}");
    cluster.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_fall_silent_for_good_are_given_up() -> Result<()> {
    let recipe = Recipe {
        proxied: true,
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let load = Load::start(cluster.urls(), Shape::default()).await?;
    let end = monotonic() + fault_duration();
    let mut times = 0;
    while monotonic() < end || times < 2 {
        times += 1;
        pause(1_000 * MS).await;
        let place = cluster
            .fault_log
            .begin("connections fall silent", Effect::Repeats);
        if let Some(proxy) = &cluster.proxy {
            proxy.fall_silent();
        }
        // A statement may take 10 s and its reply 5 s: by then every process has noticed.
        let (before, wanted) = (load.done(), 24);
        let goes_on = async |_: &Cluster| Ok(load.done() >= before + wanted);
        cluster.until("new answers", 30_000 * MS, goes_on).await?;
        cluster.fault_log.end(place);
    }
    settle("silent connections", &mut cluster, load).await?;
    cluster.passed();
    Ok(())
}
