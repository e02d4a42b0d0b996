//! Tenants' limits while Redis, on which they do not depend, is away.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::join_all;
use mainspring_tests::faults::{
    ApiClient, Cluster, ROOT_KEY, Recipe, SECRETS_KEY, blocking, fault_duration, monotonic,
    new_tenant, pause,
};
use serde_json::{Value, json};

const MS: Duration = Duration::from_millis(1);

/// The tenant's limit of open sends.
const OPEN_MAX: usize = 6;

/// Number of concurrent clients: all of them together are far beyond the limit.
const CLIENTS: usize = 24;

/// A client's answers: how often it was accepted, and how often it was told to retry.
#[derive(Debug, Default)]
struct Tally {
    accepted: usize,
    refused: usize,
}

/// Sends repeatedly until the time is over, whatever the answers.
async fn client(holder: ApiClient<'_>, until: Duration) -> Result<Tally> {
    let mut tally = Tally::default();
    let body = json!({ "input": "[[stream 10x50ms]] go", "session": {} });
    while monotonic() < until {
        let answer = holder.ask("POST", "/v1/sends", &body).await?;
        let problem: Value = serde_json::from_slice(&answer.body)?;
        match answer.status {
            202 => tally.accepted += 1,
            429 => {
                ensure!(problem["code"] == "limit.sends", "{problem}");
                tally.refused += 1;
            }
            other => anyhow::bail!("{other}: {problem}"),
        }
        pause(30 * MS).await;
    }
    Ok(tally)
}

/// Number of open sends of all tenants except the first, from the database.
fn open(cluster: &Cluster) -> Result<usize> {
    let found =
        cluster.query("SELECT count(*) FROM sends WHERE finished_at IS NULL AND tenant > 1")?;
    Ok(found.trim().parse()?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_sends_are_bounded_while_redis_is_away() -> Result<()> {
    let recipe = Recipe {
        environment: &[
            ("MAINSPRING_ROOT_KEY", ROOT_KEY),
            ("MAINSPRING_SECRETS_KEY", SECRETS_KEY),
        ],
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let urls = cluster.urls();
    let root = ApiClient {
        url: &urls[0],
        key: ROOT_KEY,
    };
    let (blue, key) = new_tenant(root, "blue").await?;
    let limit = json!({ "limits": { "sends_open": OPEN_MAX } });
    root.done("PATCH", &format!("/v1/tenants/{blue}"), &limit)
        .await?;
    // Wait until each scheduler knows the limit.
    pause(5_500 * MS).await;
    blocking(|| cluster.redis.stop());
    let until = monotonic() + fault_duration().min(20_000 * MS);
    let clients = (0..CLIENTS).map(|n| {
        let url = &urls[n % urls.len()];
        client(ApiClient { url, key: &key }, until)
    });
    let watched = async {
        let mut most = 0;
        while monotonic() < until {
            most = most.max(open(&cluster)?);
            pause(20 * MS).await;
        }
        anyhow::Ok(most)
    };
    let (told, most) = tokio::join!(join_all(clients), watched);
    let (most, told) = (most?, told.into_iter().collect::<Result<Vec<_>>>()?);
    let accepted: usize = told.iter().map(|tally| tally.accepted).sum();
    let refused: usize = told.iter().map(|tally| tally.refused).sum();
    ensure!(most <= OPEN_MAX, "{most} open sends of {OPEN_MAX}");
    // The limit was reached, and places became free again as sends ended.
    ensure!(most == OPEN_MAX && refused > accepted, "{most} {told:?}");
    ensure!(accepted > 2 * OPEN_MAX, "{told:?}");
    blocking(|| cluster.redis.restart())?;
    let none = async |cluster: &Cluster| Ok(open(cluster)? == 0);
    cluster
        .until("the end of what was accepted", 30_000 * MS, none)
        .await?;
    cluster.audit()?;
    cluster.passed();
    Ok(())
}
