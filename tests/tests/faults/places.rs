//! One fleet on three Postgres servers: a tenant moves under load, with movers that are killed, and
//! a server goes away and comes back.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_benches::servers::Postgres;
use mainspring_tests::faults::{
    ApiClient, Cluster, ROOT_KEY, Recipe, RetryingClient, blocking, monotonic, new_tenant, pause,
    say, skipped,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Number of conversations of each tenant.
const CONVERSATIONS: usize = 3;

/// How long a server is away: longer than a lease.
const AWAY: Duration = Duration::from_secs(6);

/// How long the second `move` command lives; each later one lives one and a half times as long as
/// the one before it, plus this.
const LIVES: Duration = Duration::from_millis(200);

/// A tenant with traffic.
struct Busy {
    id: String,
    answered: Arc<AtomicUsize>,
}

impl Busy {
    fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits until another send has been answered.
    async fn goes_on(&self, limit: Duration) -> Result<()> {
        let (before, end) = (self.answered(), monotonic() + limit);
        while self.answered() == before {
            ensure!(monotonic() < end, "{} stands still", self.id);
            pause(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

/// Makes one send after the other in a session of its own; returns the marks of those that were
/// answered.
async fn converse(
    mut caller: RetryingClient,
    name: String,
    done: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
) -> Result<Vec<String>> {
    let body = json!({ "agent": {} });
    let session = caller.post("/v1/sessions", &body, &name).await?.json()?;
    let session = session["id"].as_str().context("a session")?.to_owned();
    let path = format!("/v1/sessions/{session}/sends");
    let mut marks = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let mark = format!("{name}-{}", marks.len());
        let body = json!({ "input": format!("[[send {mark}]] [[stream 3x20ms]] say it") });
        let send = caller.post(&path, &body, &mark).await?;
        ensure!(
            matches!(send.status, 201 | 202),
            "{} {:?}",
            send.status,
            send.body
        );
        let send = send.json()?;
        let id = send["id"].as_str().context("a send")?.to_owned();
        loop {
            let ended = caller.get(&format!("/v1/sends/{id}?wait=10s")).await?;
            if ended["status"] == "completed" {
                break;
            }
            let open = matches!(
                ended["status"].as_str(),
                Some("queued" | "running" | "waiting")
            );
            ensure!(open, "{ended}");
        }
        answered.fetch_add(1, Ordering::Relaxed);
        marks.push(mark);
    }
    // Two messages per send, and no more.
    let messages = caller
        .all(&format!("/v1/sessions/{session}/messages"))
        .await?;
    ensure!(
        messages.len() == 2 * marks.len(),
        "{} messages of {}",
        messages.len(),
        marks.len()
    );
    Ok(marks)
}

fn moved(cluster: &Cluster, tenant: &str, to: &str) -> Result<Value> {
    let words = ["tenants", "move", tenant, "--to", to, "--output", "json"];
    let (code, out, said) = blocking(|| cluster.program.run(&words))?;
    ensure!(code == 0, "{tenant} to {to}: {code} {said}");
    Ok(serde_json::from_str(&out)?)
}

/// Moves a tenant by commands that are killed later and later, until one completes; returns how
/// many died.
async fn moved_by_mortals(cluster: &Cluster, tenant: &str, to: &str) -> Result<usize> {
    let mut life = Duration::ZERO;
    for deaths in 0..20 {
        let mut mover = Command::new(&cluster.program.binary)
            .args(["tenants", "move", tenant, "--to", to])
            .envs(cluster.program.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        pause(life).await;
        life = life * 3 / 2 + LIVES;
        if let Some(status) = mover.try_wait()? {
            ensure!(status.success(), "{tenant} to {to}: {status}");
            return Ok(deaths);
        }
        mover.kill()?;
        mover.wait()?;
    }
    anyhow::bail!("{tenant} did not get to {to}")
}

/// Asserts that the audit finds a violation on a server other than the home, and names that server.
fn audits_every_place(cluster: &Cluster, c: &Postgres) -> Result<()> {
    let spoil = "UPDATE session_hot SET pending = pending + 1";
    blocking(|| c.query("mainspring", spoil))?;
    let (code, out, said) = blocking(|| cluster.program.run(&["audit"]))?;
    ensure!(
        code != 0 && out.replace(' ', "").contains(r#""database":"c""#),
        "{code}: {out} {said}"
    );
    Ok(())
}

/// Waits for all clients, and asserts that moves repeated no model call, and an outage at most
/// those in flight. Returns the number of sends of each tenant.
async fn asked_once(
    cluster: &Cluster,
    clients: &mut JoinSet<(usize, Result<Vec<String>>)>,
) -> Result<[usize; 3]> {
    let mut sends = [0; 3];
    let mut repeated = [0; 3];
    while let Some(client) = clients.join_next().await {
        let (n, marks) = client?;
        for mark in marks? {
            let calls = cluster.model.ledger().of_send(&mark).len();
            ensure!(calls > 0, "{mark} was never asked");
            sends[n] += 1;
            repeated[n] += calls - 1;
        }
    }
    ensure!(
        repeated[0] == 0 && repeated[1] == 0,
        "asked again: {repeated:?}"
    );
    ensure!(
        repeated[2] <= 2 * CONVERSATIONS,
        "asked again: {repeated:?}"
    );
    Ok(sends)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_move_between_three_servers_of_which_one_goes_away() -> Result<()> {
    if skipped() {
        return Ok(());
    }
    let (b, mut c) = blocking(|| anyhow::Ok((Postgres::start()?, Postgres::start()?)))?;
    let of = |server: &Postgres, name: &str| {
        let url = blocking(|| server.create_database("mainspring"))?;
        anyhow::Ok(format!("{url}#{name}"))
    };
    let databases = format!("{},{}", of(&b, "b")?, of(&c, "c")?);
    let environment = [
        ("MAINSPRING_ROOT_KEY", ROOT_KEY),
        ("MAINSPRING_API_KEY", ROOT_KEY),
        ("MAINSPRING_DATABASES", &databases),
    ];
    let recipe = Recipe {
        environment: &environment,
        ..Recipe::default()
    };
    let Some(cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let urls = cluster.urls();
    let root = ApiClient {
        url: &urls[0],
        key: ROOT_KEY,
    };
    let done = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    let mut tenants = Vec::new();
    for (n, (name, place)) in [("first", "home"), ("second", "b"), ("third", "c")]
        .into_iter()
        .enumerate()
    {
        let (id, key) = new_tenant(root, name).await?;
        if place != "home" {
            moved(&cluster, name, place)?;
        }
        let answered = Arc::new(AtomicUsize::new(0));
        for one in 0..CONVERSATIONS {
            let caller = RetryingClient::new(urls.clone(), n + one).with_key(&key);
            let (name, done, answered) = (format!("{name}-{one}"), done.clone(), answered.clone());
            clients.spawn(async move { (n, converse(caller, name, done, answered).await) });
        }
        tenants.push(Busy { id, answered });
    }
    let [nomad, second, third] = &tenants[..] else {
        anyhow::bail!("there are three tenants");
    };
    let limit = Duration::from_secs(20);
    for busy in &tenants {
        busy.goes_on(limit).await?;
    }

    // Back and forth under load. Other tenants proceed meanwhile.
    let before = (second.answered(), third.answered());
    let there = moved(&cluster, "first", "b")?;
    ensure!(there["database"] == "b", "{there}");
    ensure!(
        second.answered() > before.0 && third.answered() > before.1,
        "others stood still"
    );
    nomad.goes_on(limit).await?;
    let deaths = moved_by_mortals(&cluster, "first", "c").await?;
    nomad.goes_on(limit).await?;
    let back = moved_by_mortals(&cluster, "first", "home").await?;
    nomad.goes_on(limit).await?;
    ensure!(deaths > 3 && back > 3, "{deaths} and {back} movers died");

    // The third tenant's server goes away for longer than leases last.
    blocking(|| c.stop());
    pause(Duration::from_millis(500)).await;
    let before = (nomad.answered(), second.answered());
    pause(AWAY).await;
    let now = (nomad.answered(), second.answered());
    let each = (now.0 - before.0, now.1 - before.1);
    ensure!(
        each.0 > 3 && each.1 > 3,
        "{each:?} answers while another server was away"
    );
    blocking(|| c.restart())?;
    third.goes_on(limit).await?;
    done.store(true, Ordering::Relaxed);
    let sends = asked_once(&cluster, &mut clients).await?;
    let moving = cluster.query("SELECT count(*) FROM placements WHERE phase <> 'settled'")?;
    ensure!(moving == "0", "{moving} moves are not done");
    cluster.audit()?;
    audits_every_place(&cluster, &c)?;
    say(&format!(
        "three servers: {sends:?} sends, {deaths} and {back} dead movers, frozen {} ms",
        there["frozen_ms"]
    ));
    cluster.passed();
    Ok(())
}
