//! Two tenants on a Postgres with row security: each finds everything of its own through the API,
//! and nothing of the other's.

use anyhow::{Context as _, Result, ensure};
use mainspring_tests::faults::{
    ApiClient, Cluster, ROOT_KEY, Recipe, SECRETS_KEY, furnished, new_tenant,
};
use serde_json::{Value, json};

/// Paths that are read below each resource.
const READS: [&str; 12] = [
    "/messages",
    "/calls",
    "/inbox",
    "/usage",
    "/context",
    "/export",
    "",
    "/nodes",
    "/versions",
    "/occurrences",
    "/deliveries",
    "/versions/1",
];

/// Reads everything at and below some paths; returns how many were found, and how many were
/// missing.
async fn read(caller: ApiClient<'_>, paths: &[String]) -> Result<(usize, usize)> {
    let (mut found, mut missing) = (0, 0);
    for path in paths {
        for below in READS {
            let answer = caller
                .ask("GET", &format!("{path}{below}"), &Value::Null)
                .await?;
            match answer.status {
                200 => found += 1,
                404 => missing += 1,
                other => anyhow::bail!("GET {path}{below}: {other}"),
            }
        }
    }
    Ok((found, missing))
}

const LISTS: [&str; 9] = [
    "agents",
    "skills",
    "memories?namespace=user/1&q=plums",
    "webhooks",
    "provider-keys",
    "sessions",
    "sends",
    "timers",
    "runs",
];

/// The number of items of each list.
async fn listed(caller: ApiClient<'_>) -> Result<Vec<usize>> {
    let mut counts = Vec::new();
    for list in LISTS {
        let path = format!("/v1/{list}");
        let page = caller.done("GET", &path, &Value::Null).await?;
        let data = page["data"].as_array().context("a list")?;
        counts.push(data.len());
    }
    Ok(counts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_find_their_own_and_nothing_of_each_other() -> Result<()> {
    let recipe = Recipe {
        schedulers: 1,
        workers: 1,
        environment: &[
            ("MAINSPRING_ROW_SECURITY", "true"),
            ("MAINSPRING_ROOT_KEY", ROOT_KEY),
            ("MAINSPRING_SECRETS_KEY", SECRETS_KEY),
        ],
        ..Recipe::default()
    };
    let Some(cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let urls = cluster.urls();
    let url = &urls[0];
    let root = ApiClient { url, key: ROOT_KEY };
    let (_, blue) = new_tenant(root, "blue").await?;
    let (_, red) = new_tenant(root, "red").await?;
    let (blue, red) = (ApiClient { url, key: &blue }, ApiClient { url, key: &red });
    let nothing = listed(red).await?;
    ensure!(nothing.iter().all(|count| *count == 0), "{nothing:?}");

    let theirs = furnished(blue).await?;
    ensure!(
        listed(red).await? == nothing,
        "red sees something of blue's"
    );
    let (found, _) = read(blue, &theirs).await?;
    ensure!(found >= 20, "blue finds {found} of its own");
    let (found, missing) = read(red, &theirs).await?;
    ensure!(found == 0 && missing > 0, "red finds {found} of blue's");

    // The other tenant now has everything of its own under the same names, too.
    let ours = furnished(red).await?;
    let both = (listed(blue).await?, listed(red).await?);
    ensure!(both.0 == both.1 && !both.0.contains(&0), "{both:?}");
    let own = read(red, &ours).await?;
    ensure!(own.0 >= 20, "red finds {} of its own", own.0);

    // Writes that have steps of their own.
    for (caller, paths) in [(blue, &theirs), (red, &ours)] {
        let patch = json!({ "metadata": { "seen": true } });
        caller.done("PATCH", &paths[4], &patch).await?;
        let fork = format!("{}/fork", paths[4]);
        caller.done("POST", &fork, &json!({})).await?;
        for path in [&paths[2], &paths[3], &paths[6], &paths[4]] {
            caller.done("DELETE", path, &Value::Null).await?;
        }
    }
    cluster.audit()?;
    cluster.passed();
    Ok(())
}
