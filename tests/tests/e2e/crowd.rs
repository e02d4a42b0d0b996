//! A crowd of clients that occupy a server without using it: half a request head, a body that lacks
//! its last byte, the deepest and the widest JSON. They cost a bounded amount of memory, and an
//! honest client is still answered soon.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use mainspring_benches::client::Client;
use mainspring_benches::process::Program;
use mainspring_tests::faults::{alone, binary, blocking, monotonic, pause};
use mainspring_tests::suites::store::harness::environment;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Number of connections with half a head: as many as the usual limit of open files allows.
/// `MAINSPRING_TEST_SLOW_CLIENTS` asks for more.
const SLOW: usize = 600;

/// Number of bodies of the largest size that lack a byte: more than the limit of all bodies
/// together.
const DRIPPING: usize = 24;

/// Size of the largest body.
const LARGEST: usize = 4 << 20;

/// Limit of all bodies together in this test.
const BODIES: usize = 32 << 20;

/// Total memory that the server may use: itself, the bodies while they grow, and one of them as
/// parsed values.
const MEMORY_MAX: u64 = 512 << 20;

/// How long any other client may have to wait, on a machine that does much else.
const STALL_MAX: Duration = Duration::from_secs(5);

async fn saying(address: &str, bytes: &[u8]) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    // A client that is refused early may find the connection closed.
    let _ = stream.write_all(bytes).await;
    Ok(stream)
}

fn head(path: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// Makes a request; returns the status, and how long the answer took.
async fn ask(url: &str, method: &str, path: &str, body: Bytes) -> Result<(u16, Duration)> {
    let began = monotonic();
    let work = async {
        let mut client = Client::connect(url).await?;
        client.request(method, path, body).await
    };
    let answer = tokio::time::timeout(STALL_MAX * 4, work).await;
    let answer = answer.context("no answer")??;
    Ok((answer.status, monotonic().saturating_sub(began)))
}

/// The status that a body gets. If it is refused before all of it is written, the connection may be
/// closed and the answer lost: then it is sent again.
async fn answered(url: &str, path: &str, body: Bytes) -> Result<u16> {
    for _ in 0..100 {
        match ask(url, "POST", path, body.clone()).await {
            Ok((status, _)) => return Ok(status),
            Err(error) if is_closed(&error) => pause(Duration::from_millis(100)).await,
            Err(error) => return Err(error),
        }
    }
    anyhow::bail!("{path}: no answer in a hundred attempts")
}

/// Whether the other side closed the connection while something was written.
fn is_closed(error: &anyhow::Error) -> bool {
    let mut kinds = error.chain().filter_map(|cause| {
        let cause = cause.downcast_ref::<std::io::Error>();
        cause.map(std::io::Error::kind)
    });
    kinds.any(|kind| {
        matches!(
            kind,
            std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset
        )
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_costs_bounded_memory_and_stalls_nobody() -> Result<()> {
    let _turn = alone()?;
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let slow = environment("MAINSPRING_TEST_SLOW_CLIENTS").map_or(SLOW, |text| {
        text.parse()
            .expect("MAINSPRING_TEST_SLOW_CLIENTS is a number")
    });
    let environment = [
        ("MAINSPRING_LLM_PROVIDER", "demo".to_owned()),
        ("MAINSPRING_DATA_DIR", data.display().to_string()),
        ("MAINSPRING_SCHEDULER_BODIES_BYTES_MAX", BODIES.to_string()),
        ("MAINSPRING_SCHEDULER_HEAD_TIMEOUT", "20s".to_owned()),
    ];
    let program = Program {
        binary: binary()?,
        logs: dir.path().join("logs"),
        environment: environment
            .map(|(name, value)| (name.to_owned(), value))
            .to_vec(),
    };
    let mut dev = blocking(|| program.dev("dev", &data))?;
    blocking(|| dev.wait_until_ready())?;
    let url = dev.url();
    let address = url
        .strip_prefix("http://")
        .context("a plain address")?
        .to_owned();

    let mut crowd = Vec::new();
    for _ in 0..slow {
        crowd.push(saying(&address, b"POST /v1/sends HTTP/1.1\r\nhost: loc").await?);
    }
    let dripping: Vec<_> = (0..DRIPPING)
        .map(|_| {
            let address = address.clone();
            tokio::spawn(async move {
                let mut said = head("/v1/sends", LARGEST).into_bytes();
                said.extend(std::iter::repeat_n(b' ', LARGEST - 1));
                saying(&address, &said).await
            })
        })
        .collect();
    let deepest = Bytes::from("[".repeat(LARGEST));
    let widest = format!("{{\"spec\":[{}0]}}", "[],".repeat(LARGEST / 16));
    let odd = tokio::spawn({
        let url = url.clone();
        async move {
            let mut statuses = Vec::new();
            for body in [deepest, Bytes::from(widest)] {
                statuses.push(answered(&url, "/v1/workflows:validate", body).await?);
            }
            anyhow::Ok(statuses)
        }
    });

    let (mut slowest, mut largest, mut accepted) = (Duration::ZERO, 0, 0);
    for n in 0..60 {
        let (status, took) = ask(&url, "GET", "/v1/sends?limit=1", Bytes::new()).await?;
        ensure!(status == 200, "a list: {status}");
        slowest = slowest.max(took);
        let body = json!({ "input": format!("{n}") }).to_string();
        let (status, took) = ask(&url, "POST", "/v1/sends", body.into()).await?;
        ensure!(matches!(status, 202 | 429), "a send: {status}");
        accepted += usize::from(status == 202);
        slowest = slowest.max(took);
        largest = largest.max(dev.resident_memory()?);
        pause(Duration::from_millis(20)).await;
    }
    for status in odd.await?? {
        ensure!(matches!(status, 400 | 422 | 429), "odd JSON: {status}");
    }
    for stream in dripping {
        crowd.push(stream.await??);
    }
    let mebibytes = largest >> 20;
    // If stderr is closed there is nobody to report to.
    let _ = writeln!(
        std::io::stderr(),
        "{slow} slow clients: {mebibytes} MiB, {slowest:?}"
    );
    ensure!(slowest < STALL_MAX, "somebody waited {slowest:?}");
    ensure!(largest < MEMORY_MAX, "{mebibytes} MiB");
    ensure!(accepted > 0, "nobody got through");

    // Dropping the incomplete bodies frees their room.
    drop(crowd);
    let fits = json!({ "input": "x".repeat(LARGEST - 100) }).to_string();
    let fits = Bytes::from(fits);
    for _ in 0..100 {
        let (status, _) = ask(&url, "POST", "/v1/sends", fits.clone()).await?;
        if status == 202 {
            ensure!(dev.is_alive());
            return Ok(());
        }
        ensure!(status == 429, "the largest body: {status}");
        pause(Duration::from_millis(100)).await;
    }
    anyhow::bail!("what was left undone keeps its room")
}
