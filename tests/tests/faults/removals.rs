//! A tenant is erased while its runs are active, and old sends of another tenant are retired while
//! it writes, by schedulers each of which dies at some statement.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_benches::process::Program;
use mainspring_tests::faults::{
    ApiClient, Cluster, Cut, Proxy, ROOT_KEY, Recipe, RetryingClient, SECRETS_KEY, any_of,
    blocking, fault_duration, furnished, monotonic, new_tenant, pause, say,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Number of sends of each tenant before anything is removed.
const SENDS: usize = 30;

/// By how many milliseconds the sends are backdated: three days, longer than they are kept.
const AGED: &str = "259200000";

/// A scheduler that writes nothing except its lease for this long has nothing left to do.
const IDLE: Duration = Duration::from_secs(3);

/// Minimum number of processes that have to die.
const DEATHS: usize = 8;

struct World {
    cluster: Cluster,
    /// In front of the database, for the schedulers that die.
    proxy: Proxy,
    /// Program of the schedulers that die.
    mortal: Program,
}

impl World {
    async fn start() -> Result<Option<Self>> {
        let recipe = Recipe {
            schedulers: 1,
            workers: 2,
            environment: &[
                ("MAINSPRING_ROOT_KEY", ROOT_KEY),
                ("MAINSPRING_SECRETS_KEY", SECRETS_KEY),
                // The cluster's own schedulers remove nothing; only the mortal ones do.
                ("MAINSPRING_SCHEDULER_ERASE_INTERVAL", "1h"),
                ("MAINSPRING_SCHEDULER_RETENTION_INTERVAL", "1d"),
            ],
            ..Recipe::default()
        };
        let Some(cluster) = Cluster::start(recipe).await? else {
            return Ok(None);
        };
        let proxy = Proxy::start(cluster.postgres.port()).await?;
        let mut mortal = cluster.program.clone();
        let own = [
            ("MAINSPRING_DATABASE_URL", proxy.url("mainspring")),
            ("MAINSPRING_SCHEDULER_ERASE_INTERVAL", "50ms".to_owned()),
            ("MAINSPRING_SCHEDULER_RETENTION_INTERVAL", "1s".to_owned()),
        ];
        for (name, value) in own {
            mortal.environment.retain(|(known, _)| known != name);
            mortal.environment.push((name.to_owned(), value));
        }
        Ok(Some(Self {
            cluster,
            proxy,
            mortal,
        }))
    }

    fn number(&self, sql: &str) -> Result<usize> {
        let found = self.cluster.query(sql)?;
        let number = found.trim().parse();
        number.with_context(|| format!("{sql}: {found}"))
    }

    /// One life of a scheduler, which ends after a number of its writes. False if it had no more to
    /// do.
    async fn life(&self, n: usize) -> Result<bool> {
        let mut scheduler = blocking(|| self.mortal.scheduler(&format!("mortal-{n}")))?;
        let how = [Cut::Inside, Cut::Behind, Cut::Unheard][any_of(3)];
        // Lives get longer and longer, so that the last one completes the work.
        let behind = any_of(2 * n + 3);
        let died = self.proxy.cut_behind(behind, how, IDLE).await;
        ensure!(scheduler.is_alive(), "{} ended by itself", scheduler.name);
        blocking(|| scheduler.kill());
        Ok(died)
    }

    /// Lets a scheduler that does not die complete a tenant's erasure; returns the erasure's
    /// record.
    async fn ended(&self, root: ApiClient<'_>, tenant: &str) -> Result<Value> {
        let number = number(tenant)?;
        // Pretend in the row that nothing has arrived for at least a minute.
        let minute = format!(
            "UPDATE tenants SET erasure = jsonb_set(erasure::jsonb, '{{quiet_since}}', '\"1970-01-01T00:00:01Z\"')::text \
             WHERE tenant = {number} AND erasure::jsonb ? 'quiet_since'"
        );
        let mut immortal = blocking(|| self.mortal.scheduler("immortal"))?;
        let erasure = format!("/v1/tenants/{tenant}/erasure");
        let limit = monotonic() + Duration::from_secs(30);
        let ended = loop {
            self.cluster.query(&minute)?;
            let found = root.done("GET", &erasure, &Value::Null).await?;
            if !found["ended_at"].is_null() {
                break found;
            }
            ensure!(monotonic() < limit, "{found}");
            pause(Duration::from_millis(100)).await;
        };
        let _ = blocking(|| immortal.stop(Duration::from_secs(10)))?;
        Ok(ended)
    }

    /// A tenant's row counts by table, where there are any.
    fn rows(&self, tenant: &str) -> Result<Vec<String>> {
        // The tenant's own row stays, as the record of what was removed.
        let tables = self.cluster.query(
            "SELECT table_name FROM information_schema.columns WHERE table_schema = 'public' \
             AND column_name = 'tenant' AND table_name <> 'tenants' ORDER BY 1",
        )?;
        let counts: Vec<String> = tables
            .lines()
            .map(|table| {
                format!("SELECT '{table} ' || count(*) FROM {table} WHERE tenant = {tenant} HAVING count(*) > 0")
            })
            .collect();
        let found = self.cluster.query(&counts.join(" UNION ALL "))?;
        Ok(found.lines().map(str::to_owned).collect())
    }
}

/// Makes sends to new sessions of a tenant, and waits for their answers.
async fn answered(caller: &mut RetryingClient, name: &str, count: usize) -> Result<Vec<String>> {
    let mut sent = Vec::new();
    for n in 0..count {
        let body = json!({ "input": format!("{name} {n}"), "session": {} });
        let answer = caller
            .post("/v1/sends?wait=20s", &body, &format!("{name}-{n}"))
            .await?;
        let send = answer.json()?;
        ensure!(send["status"] == "completed", "{send}");
        sent.push(send["id"].as_str().context("an id")?.to_owned());
    }
    Ok(sent)
}

/// Keeps sending for a tenant until stopped; returns the sends that were answered.
fn writer(
    urls: Vec<String>,
    key: String,
    stop: CancellationToken,
) -> JoinHandle<Result<Vec<String>>> {
    tokio::spawn(async move {
        let mut caller = RetryingClient::new(urls, 0).with_key(&key);
        let mut sent = Vec::new();
        while !stop.is_cancelled() {
            let name = format!("new-{}", sent.len());
            sent.extend(answered(&mut caller, &name, 1).await?);
            pause(Duration::from_millis(100)).await;
        }
        Ok(sent)
    })
}

/// A run whose leaves keep being started until somebody ends it.
fn crowd() -> Value {
    let agent = json!({ "name": "leaf", "system_prompt": "Work.", "tools": [] });
    let body = json!({ "type": "agent", "id": "leaf", "spec": agent, "input": "[[stream 40x50ms]] {{n}}" });
    json!({ "spec": { "name": "a crowd", "root": {
        "type": "foreach", "id": "all", "as": "n", "items": (0..200).collect::<Vec<_>>(),
        "max_concurrency": 8, "on_error": "continue", "body": body,
    }}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removals_go_on_where_a_scheduler_died_at_any_statement() -> Result<()> {
    let Some(world) = World::start().await? else {
        return Ok(());
    };
    let urls = world.cluster.urls();
    let url = &urls[0];
    let root = ApiClient { url, key: ROOT_KEY };
    let (blue, blue_key) = new_tenant(root, "blue").await?;
    let (green, green_key) = new_tenant(root, "green").await?;
    let theirs = ApiClient {
        url,
        key: &blue_key,
    };
    furnished(theirs).await?;
    furnished(ApiClient {
        url,
        key: &green_key,
    })
    .await?;
    let mut callers = (
        RetryingClient::new(urls.clone(), 0).with_key(&blue_key),
        RetryingClient::new(urls.clone(), 0).with_key(&green_key),
    );
    answered(&mut callers.0, "blue", SENDS).await?;
    let old = answered(&mut callers.1, "green", SENDS).await?;
    let (blue_number, green_number) = (number(&blue)?, number(&green)?);
    world.cluster.query(&format!(
        "UPDATE sends SET created_at = created_at - {AGED}, started_at = started_at - {AGED}, \
         finished_at = finished_at - {AGED} WHERE tenant = {green_number}"
    ))?;
    let keep = json!({ "retention": { "sends": "2d" } });
    root.done("PATCH", &format!("/v1/tenants/{green}"), &keep)
        .await?;
    theirs.done("POST", "/v1/runs", &crowd()).await?;
    let stop = CancellationToken::new();
    let writer = writer(urls.clone(), green_key.clone(), stop.clone());

    let erase = format!("/v1/tenants/{blue}/erase");
    root.done("POST", &erase, &json!({ "name": "blue" }))
        .await?;
    let (mut lives, mut deaths) = (0, 0);
    let end = monotonic() + fault_duration();
    loop {
        let died = world.life(lives).await?;
        lives += 1;
        deaths += usize::from(died);
        let is_gone = world.rows(&blue_number)?.is_empty();
        let aged = format!(
            "SELECT count(*) FROM sends WHERE tenant = {green_number} AND send_id IN ({})",
            uuids(&old)
        );
        if is_gone && world.number(&aged)? == 0 && deaths >= DEATHS && monotonic() > end {
            break;
        }
        ensure!(
            lives < 400,
            "{:?} is left after {lives} lives",
            world.rows(&blue_number)?
        );
    }
    stop.cancel();
    let new = writer.await??;
    ensure!(!new.is_empty(), "nothing was written meanwhile");

    let erased = world.ended(root, &blue).await?;
    say(&format!(
        "{deaths} schedulers died, {} sends were written meanwhile: {erased}",
        new.len()
    ));
    ensure!(erased["failed"].is_null(), "{erased}");
    ensure!(world.rows(&blue_number)? == [""; 0], "rows came back");
    let answer = theirs.ask("GET", "/v1/sessions", &Value::Null).await?;
    ensure!(answer.status == 401, "{}", answer.status);

    assert_kept(&mut callers.1, &old, &new).await?;
    world.cluster.audit()?;
    let mut cluster = world.cluster;
    let fallen = cluster.fallen();
    ensure!(fallen.is_empty(), "ended by themselves: {fallen:?}");
    cluster.passed();
    Ok(())
}

/// Asserts that only a tenant's old sends are gone.
async fn assert_kept(caller: &mut RetryingClient, old: &[String], new: &[String]) -> Result<()> {
    for id in old {
        let status = caller.status(&format!("/v1/sends/{id}")).await?;
        ensure!(status == 404, "{id}: {status}");
    }
    for id in new {
        let send = caller.get(&format!("/v1/sends/{id}")).await?;
        ensure!(send["status"] == "completed", "{send}");
    }
    for list in ["agents", "skills", "webhooks", "timers", "runs"] {
        let page = caller.get(&format!("/v1/{list}")).await?;
        let is_there = page["data"].as_array().is_some_and(|data| !data.is_empty());
        ensure!(is_there, "{list}: {page}");
    }
    Ok(())
}

/// The number in a tenant's id, as tables have it.
fn number(tenant: &str) -> Result<String> {
    let number = tenant.strip_prefix("ten_").context("a tenant's id")?;
    Ok(number.to_owned())
}

/// Send ids as a list of SQL UUIDs.
fn uuids(sends: &[String]) -> String {
    let ids = sends.iter().map(|id| {
        let digits = id.trim_start_matches("snd_");
        format!("'{digits}'::uuid")
    });
    ids.collect::<Vec<_>>().join(", ")
}
