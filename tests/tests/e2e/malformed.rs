//! Malformed requests, floods, and connections that are slow or idle, on plain sockets, while other
//! clients send as usual: nothing is answered with a 5xx, memory stays bounded, and the others
//! hardly notice.

mod cases;
mod crowds;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use mainspring_benches::client::Client;
use mainspring_benches::process::Process;
use mainspring_tests::faults::{Cluster, Recipe, blocking, monotonic, pause};
use mainspring_tests::suites::store::harness::environment;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use self::cases::{Answers, Case};
use self::crowds::{Crowd, Dose};

/// Limit of all bodies together in this test.
const BODIES: u64 = 32 << 20;

/// Memory that a scheduler may use beyond its idle level: the concurrent bodies several times over
/// while they are parsed, and the heads of the connections that are open at once.
const BODIES_HELD: u64 = 5 * BODIES;
const HEAD_HELD: u64 = 40 << 10;

/// How long a connection may take to send its head, and its body.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long an answer to one of these requests may take.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// How many of them are in flight at once, while nothing is measured.
const AT_ONCE: usize = 8;

/// Minimum number of pairs of measurements of the others' 99th percentile, without the crowd and
/// right afterwards with it: the median of their ratios counts, because the machine may be busy
/// otherwise. And the minimum number of requests in each measurement, of all the others together.
const PHASES_MIN: usize = 7;
const TIMES_MIN: usize = 300;

/// How many times longer the others' 99th percentile may be with the crowd.
const SLOWER_MAX: f64 = 2.0;

/// Number of clients that send as usual, and the pause of each between two sends: alone they leave
/// most of a small machine idle, so that the comparison does not measure waiting for a processor
/// that is busy anyway.
const OTHERS: usize = 4;
const OTHERS_PAUSE: Duration = Duration::from_millis(30);

/// What the sender of a malformed request does when all of it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Waits for an answer or for the end of the connection, which takes a while for incomplete
    /// requests.
    Patient,
    /// Shuts down its side, if nothing but a refusal can come.
    Hurried,
}

/// Sends a case; returns the statuses of all answers, until the other side closes or has sent as
/// many as expected.
async fn exchange(address: &str, case: &Case, manner: Manner) -> Result<Vec<u16>> {
    let mut stream = TcpStream::connect(address).await?;
    let (mut reader, mut writer) = stream.split();
    let (expected, is_over) = match case.answers {
        Answers::Served(count) => (count, false),
        Answers::Either => (1, false),
        Answers::Refusals | Answers::Foreign => (1, manner == Manner::Hurried),
    };
    let says = async {
        // A client that is refused early finds the connection closed.
        let _ = writer.write_all(&case.says).await;
        if is_over {
            let _ = writer.shutdown().await;
        }
    };
    let hears = async {
        let mut heard = Vec::new();
        // A connection closed with unread data ends in an error.
        while statuses(&heard).len() < expected {
            match reader.read_buf(&mut heard).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => break,
            }
        }
        heard
    };
    let both = async { tokio::join!(says, hears).1 };
    let heard = tokio::time::timeout(ANSWER_MAX, both).await;
    let heard = heard.with_context(|| format!("{}: no end", case.name))?;
    Ok(statuses(&heard))
}

/// The HTTP/1 statuses in these bytes.
fn statuses(heard: &[u8]) -> Vec<u16> {
    const BEGIN: &[u8] = b"HTTP/1.";
    let at = heard
        .windows(BEGIN.len() + 6)
        .filter(|window| window.starts_with(BEGIN));
    let status = |window: &[u8]| {
        std::str::from_utf8(&window[BEGIN.len() + 2..])
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    at.filter_map(status).collect()
}

fn judge(case: &Case, statuses: &[u16]) -> Option<String> {
    let refusal = |status: &u16| (400..500).contains(status);
    let fits = match case.answers {
        Answers::Refusals | Answers::Foreign => statuses.iter().all(refusal),
        Answers::Served(count) => statuses == vec![200; count],
        Answers::Either => statuses.iter().all(|status| *status < 500) && !statuses.is_empty(),
    };
    let kinds: BTreeSet<_> = statuses.iter().collect();
    (!fits).then(|| format!("{}: {} of {kinds:?}", case.name, statuses.len()))
}

/// The head of a request with a body of this many bytes.
fn head_of_post(length: usize) -> String {
    format!(
        "POST /v1/sends HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    )
}

fn settings() -> [(&'static str, String); 3] {
    let patience = format!("{}s", PATIENCE.as_secs());
    [
        ("MAINSPRING_SCHEDULER_BODIES_BYTES_MAX", BODIES.to_string()),
        ("MAINSPRING_SCHEDULER_HEAD_TIMEOUT", patience.clone()),
        ("MAINSPRING_SCHEDULER_BODY_TIMEOUT", patience),
    ]
}

async fn cluster() -> Result<Option<Cluster>> {
    let settings = settings();
    let environment: Vec<(&str, &str)> = settings
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    Cluster::start(Recipe {
        schedulers: 1,
        workers: 1,
        script: "[[stream 1x1ms]]",
        environment: &environment,
        ..Recipe::default()
    })
    .await
}

/// Asserts that everything that was accepted can be read.
async fn all_read(url: &str) -> Result<()> {
    let mut client = Client::connect(url).await?;
    for list in ["sessions", "sends"] {
        let page = client.get(&format!("/v1/{list}?limit=200")).await?;
        for item in page["data"].as_array().context("a page")? {
            let id = item["id"].as_str().context("an id")?;
            client.get(&format!("/v1/{list}/{id}")).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_request_is_refused_and_never_a_fault_of_the_server() -> Result<()> {
    let Some(mut cluster) = cluster().await? else {
        return Ok(());
    };
    let url = cluster.schedulers[0].url();
    let address = url.trim_start_matches("http://");
    let slow = crowds::who_is_slow_is_sent_away(address);
    let odd = async {
        let cases = cases::all();
        let judged = cases.iter().map(|case| async move {
            let statuses = exchange(address, case, Manner::Patient).await?;
            anyhow::Ok(judge(case, &statuses))
        });
        let judged = futures::stream::iter(judged).buffer_unordered(AT_ONCE);
        let wrong: Vec<Option<String>> = judged.try_collect().await?;
        anyhow::Ok(wrong.into_iter().flatten().collect::<Vec<_>>())
    };
    let (slow, wrong) = tokio::join!(slow, odd);
    slow?;
    let wrong = wrong?;
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    all_read(&url).await?;
    let fallen = cluster.fallen();
    ensure!(fallen.is_empty(), "ended by themselves: {fallen:?}");
    cluster.audit()?;
    cluster.passed();
    Ok(())
}

/// Runs this on the current thread only.
fn on_one_thread<T>(work: impl Future<Output = T>) -> Result<T> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    Ok(runtime.enable_all().build()?.block_on(work))
}

/// Sends and reads as usual, on a thread of its own; returns the 99th percentile.
fn others(url: &str, phase: Duration) -> Result<Duration> {
    let clients = (0..OTHERS).map(|_| other(url, monotonic() + phase));
    let all = futures::future::try_join_all(clients);
    let times = blocking(|| {
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || on_one_thread(all));
            thread.join().expect("no panic")
        })
    });
    Ok(p99(&mut times??.concat()))
}

async fn other(url: &str, until: Duration) -> Result<Vec<Duration>> {
    let mut client = Client::connect(url).await?;
    let mut times = Vec::new();
    // A busy machine takes longer to make enough requests.
    while monotonic() < until || times.len() < TIMES_MIN / OTHERS {
        let began = monotonic();
        let body = json!({ "input": "hello" }).to_string();
        let sent = client
            .request("POST", "/v1/sends", Bytes::from(body))
            .await?;
        times.push(monotonic().saturating_sub(began));
        ensure!(sent.status == 202, "a send: {sent:?}");
        let sent: Value = sent.json()?;
        let path = format!("/v1/sends/{}", sent["id"].as_str().context("an id")?);
        let began = monotonic();
        client.get(&path).await?;
        times.push(monotonic().saturating_sub(began));
        pause(OTHERS_PAUSE).await;
    }
    Ok(times)
}

/// The 99th percentile.
fn p99(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times
        .get(times.len() * 99 / 100)
        .copied()
        .unwrap_or_default()
}

/// The median.
fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// The peak memory of a process, in bytes.
fn most_memory(process: &Process) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB"));
    let kilobytes: u64 = kilobytes.context("VmHWM is missing")?.trim().parse()?;
    Ok(kilobytes * 1024)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_and_idle_connections_cost_bounded_memory_and_hardly_delay_others() -> Result<()> {
    let Some(mut cluster) = cluster().await? else {
        return Ok(());
    };
    let full = environment("MAINSPRING_TEST_CONNECTIONS").map(|text| {
        text.parse()
            .expect("MAINSPRING_TEST_CONNECTIONS is a number")
    });
    let dose = Dose::of(full);
    let cases = Arc::new(cases::all());
    let url = cluster.schedulers[0].url();
    let address = url.trim_start_matches("http://").to_owned();
    others(&url, dose.phase)?;
    let at_rest = cluster.schedulers[0].resident_memory()?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    let mut report = crowds::CrowdReport::default();
    while report.idle < dose.idle || beside.len() < PHASES_MIN {
        alone.push(others(&url, dose.phase)?);
        let crowd = Crowd::gather(&address, dose, &cases);
        let times = others(&url, dose.phase);
        report.add(crowd.leave()?);
        beside.push(times?);
    }
    let mut slower: Vec<f64> = std::iter::zip(&alone, &beside)
        .map(|(alone, beside)| beside.div_duration_f64(*alone))
        .collect();
    slower.sort_unstable_by(f64::total_cmp);
    let slower = slower[slower.len() / 2];
    let (alone, beside) = (median(&mut alone), median(&mut beside));
    let largest = most_memory(&cluster.schedulers[0])?;
    let held = largest.saturating_sub(at_rest);
    let bound = BODIES_HELD + HEAD_HELD * dose.open_at_once() as u64;
    // If stderr is closed there is nobody to report to.
    let _ = writeln!(
        std::io::stderr(),
        "{report:?}\n99 of 100 alone within {alone:?}, beside all this within {beside:?}, {slower:.2} times as long; \
         {} MiB at rest, {} MiB more of at most {} MiB",
        at_rest >> 20,
        held >> 20,
        bound >> 20
    );
    ensure!(report.faults.is_empty(), "{:?}", report.faults);
    ensure!(held < bound, "{} MiB more", held >> 20);
    ensure!(slower < SLOWER_MAX, "{slower:.2} times as long");
    let fallen = cluster.fallen();
    ensure!(fallen.is_empty(), "ended by themselves: {fallen:?}");
    cluster.audit()?;
    cluster.passed();
    Ok(())
}
