//! A worker that sleeps for longer than its lease, and wakes up in the middle of what it did; and a
//! transaction from outside that sleeps with a session's row.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_benches::servers::find_program;
use mainspring_tests::faults::{
    Caller, Effect, Load, Recipe, Shape, Stand, dose, monotonic, now, pause, settle,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const MS: Duration = Duration::from_millis(1);

/// Everything that a late write could change.
const EVERYTHING: &str = "SELECT 'message', session_id, seq, send_id, role, content, epoch FROM messages
    UNION ALL SELECT 'step', session_id, n, send_id, kind, refs, epoch FROM steps
    UNION ALL SELECT 'send', session_id, position, send_id, status, output_text || usage, rounds FROM sends
    UNION ALL SELECT 'usage', session_id, round, send_id, model, usage, attempt FROM usage_rows
    UNION ALL SELECT 'hot', session_id, next_seq, token, 'hot', concat(next_step, '/', pending), epoch
        FROM session_hot
    ORDER BY 1, 2, 3, 4, 5, 6, 7";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_wakes_up_with_an_answer_changes_nothing() -> Result<()> {
    let recipe = Recipe {
        schedulers: 1,
        workers: 1,
        ..Recipe::default()
    };
    let Some(mut stand) = Stand::start(recipe).await? else {
        return Ok(());
    };
    let mut caller = Caller::new(stand.urls(), 0);
    let body = json!({ "input": "[[send one]] [[stream 10x100ms]] a long answer, told slowly" });
    let send = caller.post("/v1/sends", &body, "one").await?.json()?;
    let id = send["id"].as_str().context("an id")?.to_owned();
    stand
        .until("a call", 5_000 * MS, async |stand| {
            Ok(stand.model.ledger().stats().in_flight == 1)
        })
        .await?;
    pause(200 * MS).await;
    stand.workers[0].pause()?;
    stand.add_worker()?;
    let ended = caller.get(&format!("/v1/sends/{id}?wait=20s")).await?;
    ensure!(ended["status"] == "completed", "{ended}");
    ensure!(stand.model.ledger().of_send("one").len() == 2);
    let before = stand.query(EVERYTHING)?;
    // The first answer has been waiting in the sleeper's connection, whole: it stores it at once.
    stand.workers[0].resume()?;
    stand
        .until("a new life of the sleeper", 10_000 * MS, async |stand| {
            let sql = "SELECT count(*), count(dead_at) FROM boots WHERE name = 'worker-0'";
            Ok(stand.query(sql)? == "2|1")
        })
        .await?;
    pause(500 * MS).await;
    ensure!(
        stand.query(EVERYTHING)? == before,
        "a late write changed something"
    );
    let again = caller.get(&format!("/v1/sends/{id}")).await?;
    ensure!(again == ended, "told {ended}, now {again}");
    stand.audit()?;
    stand.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_sleep_in_turn_are_replaced_meanwhile() -> Result<()> {
    let Some(mut stand) = Stand::start(Recipe::default()).await? else {
        return Ok(());
    };
    let load = Load::start(stand.urls(), Shape::default()).await?;
    let end = monotonic() + dose();
    while monotonic() < end {
        pause(500 * MS).await;
        let sleeper = stand.busy_worker().await?;
        let place = stand.harm.begin("a worker sleeps", Effect::Sleeps);
        stand.workers[sleeper].pause()?;
        // Longer than the lease, so that others have its sessions when it wakes up.
        pause(3_500 * MS).await;
        stand.workers[sleeper].resume()?;
        stand.harm.end(place);
    }
    let report = settle("sleeping workers", &mut stand, load).await?;
    ensure!(
        report.repeated > 0,
        "nobody slept with anything: {report:?}"
    );
    stand.passed();
    Ok(())
}

/// Clients that are measured.
const NEIGHBOURS: usize = 8;

/// What 99 of 100 steps of other sessions take while one is locked.
const NEIGHBOUR_MAX_MS: i64 = 500;

/// What a client measured: milliseconds of each accept, from there to the model, and from the
/// model's last byte to the client.
#[derive(Debug, Default)]
struct Waits {
    accepts: Vec<i64>,
    claims: Vec<i64>,
    completions: Vec<i64>,
}

impl Waits {
    fn add(&mut self, mut other: Self) {
        self.accepts.append(&mut other.accepts);
        self.claims.append(&mut other.claims);
        self.completions.append(&mut other.completions);
    }
}

/// The id of what a request makes.
async fn created(caller: &mut Caller, path: &str, body: &Value, key: &str) -> Result<String> {
    let answer = caller.post(path, body, key).await?;
    let made = matches!(answer.status, 201 | 202);
    ensure!(made, "{} {:?}", answer.status, answer.body);
    Ok(answer.json()?["id"].as_str().context("an id")?.to_owned())
}

/// One send after the other to a session, until then.
async fn neighbour(urls: Vec<String>, number: usize, end: Duration) -> Result<Vec<[i64; 3]>> {
    let mut caller = Caller::new(urls, number);
    let key = format!("neighbour-{number}");
    let session = created(&mut caller, "/v1/sessions", &json!({ "agent": {} }), &key).await?;
    let path = format!("/v1/sessions/{session}/sends");
    let mut seen = Vec::new();
    while monotonic() < end {
        let mark = format!("n{number}-{}", seen.len());
        let body = json!({ "input": format!("[[send {mark}]] say it") });
        let begun = now().0;
        let id = created(&mut caller, &path, &body, &mark).await?;
        let accepted = now().0;
        let ended = caller.get(&format!("/v1/sends/{id}?wait=20s")).await?;
        ensure!(ended["status"] == "completed", "{ended}");
        seen.push([begun, accepted, now().0]);
    }
    Ok(seen)
}

/// Clients at work for so long, and their measures.
async fn neighbours(stand: &Stand, first: usize, length: Duration) -> Result<Waits> {
    let mut clients = JoinSet::new();
    let end = monotonic() + length;
    for number in first..first + NEIGHBOURS {
        let urls = stand.urls();
        clients.spawn(async move { (number, neighbour(urls, number, end).await) });
    }
    let mut waits = Waits::default();
    while let Some(client) = clients.join_next().await {
        let (number, seen) = client?;
        for (n, [begun, accepted, told]) in seen?.into_iter().enumerate() {
            let calls = stand.model.ledger().of_send(&format!("n{number}-{n}"));
            ensure!(calls.len() == 1, "{} calls of {number}-{n}", calls.len());
            let ended = calls[0].ended_at.context("a call that goes on")?;
            waits.add(Waits {
                accepts: vec![accepted - begun],
                // A worker may have it before the client is told.
                claims: vec![(calls[0].at.0 - accepted).max(0)],
                completions: vec![told - ended.0],
            });
        }
    }
    Ok(waits)
}

/// The greatest of 99 in 100.
fn p99(waits: &mut [i64]) -> i64 {
    waits.sort_unstable();
    waits[(waits.len() * 99).div_ceil(100) - 1]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_locked_from_outside_delays_no_other() -> Result<()> {
    let Some(stand) = Stand::start(Recipe::default()).await? else {
        return Ok(());
    };
    let mut caller = Caller::new(stand.urls(), 0);
    let agent = json!({ "agent": {} });
    let mut sessions = Vec::new();
    for key in ["locked", "timed"] {
        sessions.push(created(&mut caller, "/v1/sessions", &agent, key).await?);
    }
    // While it is locked a worker has it, a timer wants it, and a client sends to it.
    let path = format!("/v1/sessions/{}/sends", sessions[0]);
    let slowly = json!({ "input": "[[send held]] [[stream 20x100ms]] slowly" });
    let held = created(&mut caller, &path, &slowly, "held").await?;
    stand
        .until("a call", 5_000 * MS, async |stand| {
            Ok(stand.model.ledger().stats().in_flight == 1)
        })
        .await?;
    for (n, session) in sessions.iter().enumerate() {
        let timer = json!({
            "session_id": session, "every": "1s", "input": "[[send timed]] ring",
            "on_busy": "enqueue", "catch_up": "once",
        });
        created(&mut caller, "/v1/timers", &timer, &format!("timer-{n}")).await?;
    }
    let row = sessions[0].trim_start_matches("ses_").to_owned();
    let lock = format!(
        "SELECT 1 FROM session_hot WHERE session_id = '{row}' FOR UPDATE; SELECT pg_sleep({})",
        dose().as_secs() + 1
    );
    let mut holder = std::process::Command::new(find_program("psql")?)
        .args([
            "-XAtq",
            "-d",
            &stand.postgres.url("mainspring"),
            "-c",
            &lock,
        ])
        .stdout(Stdio::null())
        .spawn()?;
    stand
        .until("the lock", 5_000 * MS, async |stand| {
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
            Ok(stand.query(sql)? == "1")
        })
        .await?;
    let from = now().0;
    let mut other = Caller::new(stand.urls(), 1);
    let words = json!({ "input": "[[send more]] more" });
    let (waits, more) = tokio::join!(
        neighbours(&stand, 0, dose()),
        // Asked again until it is told, as every careful client does.
        created(&mut other, &path, &words, "more"),
    );
    ensure!(holder.wait()?.success(), "the lock was not held");
    let (mut waits, more) = (waits?, more?);
    let late = stand.query(&format!(
        "SELECT coalesce(max(o.fired_at - o.due_at), -1) FROM timer_occurrences o \
         JOIN timers t USING (tenant, timer_id) \
         WHERE t.session_id <> '{row}' AND o.due_at BETWEEN {from} AND {}",
        now().0
    ))?;
    let measured = [
        ("accepts", p99(&mut waits.accepts)),
        ("claims", p99(&mut waits.claims)),
        ("completions", p99(&mut waits.completions)),
        ("timers", late.parse()?),
    ];
    let text = format!("{} sends of others: {measured:?} ms", waits.accepts.len());
    // Nobody is left to tell when it is gone.
    let _ = writeln!(std::io::stderr(), "{text}");
    for (what, ms) in measured {
        ensure!((0..=NEIGHBOUR_MAX_MS).contains(&ms), "{what}: {text}");
    }
    // It goes on once nobody holds it.
    for id in [held, more] {
        let ended = caller.get(&format!("/v1/sends/{id}?wait=20s")).await?;
        ensure!(ended["status"] == "completed", "{ended}");
    }
    stand.audit()?;
    stand.passed();
    Ok(())
}
