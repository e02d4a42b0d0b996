//! Sends that call tools: three rounds compared with what Postgres alone can do, engine time when
//! idle, and a round of parallel calls.

use anyhow::{Result, ensure};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::throughput::{ceiling, prepare_ceiling, settle, transactions};
use crate::cluster::{Cluster, Options, sessions};
use crate::load::{closed_loop_of, pause, send_and_wait};
use crate::stats::{measurement, millis, percentile};

const CLIENTS: usize = 64;
const SESSIONS: usize = 256;

/// Calls in the parallel round, and how long each takes.
const PARALLEL: usize = 8;
const TOOL_MS: u64 = 200;

pub(super) async fn run(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let cluster = Cluster::start(
        options,
        1,
        &[("MAINSPRING_TOOLS_ALLOW_PRIVATE", "127.0.0.0/8")],
    )?;
    throughput(options, &cluster, emit).await?;
    idle(options, &cluster, emit).await?;
    parallel(options, &cluster, emit).await?;
    cluster.audit()
}

/// Three rounds: two that call a `safe` tool, and the answer.
fn three_rounds() -> Bytes {
    let call = "!tool current_time {}";
    let input = format!("{} {call} !then {call}", "u".repeat(100));
    Bytes::from(json!({ "input": input }).to_string())
}

async fn throughput(
    options: &Options,
    cluster: &Cluster,
    emit: &mut dyn FnMut(Value),
) -> Result<()> {
    let dir = cluster.dir.path().join("ceiling");
    prepare_ceiling(cluster, &dir)?;
    let agent = json!({ "context": { "last_messages": 50 }, "tools": ["current_time"] });
    let ids = sessions(&mut cluster.client().await?, SESSIONS, &agent).await?;
    let base = cluster.scheduler.url();
    let body = three_rounds();
    closed_loop_of(&base, &ids, CLIENTS, options.seconds(5, 1), &body, false).await?;
    let (mut rates, mut ceilings, mut shares, mut writes) = (vec![], vec![], vec![], vec![]);
    for _ in 0..options.runs {
        settle(cluster)?;
        let most = ceiling(cluster, &dir, "tools.sql", options.seconds(30, 2))?;
        settle(cluster)?;
        let before = transactions(cluster)?;
        let done =
            closed_loop_of(&base, &ids, CLIENTS, options.seconds(15, 2), &body, false).await?;
        let after = transactions(cluster)?;
        rates.push(done.rate());
        ceilings.push(most);
        shares.push(done.rate() / most);
        writes.push((after - before) as f64 / done.sends as f64);
    }
    let calls = cluster.number("SELECT count(*) FROM tool_calls WHERE settled_at IS NOT NULL")?;
    let sends = cluster.number("SELECT count(*) FROM sends WHERE status = 'completed'")?;
    ensure!(calls == 2 * sends, "{calls} calls in {sends} sends");
    emit(measurement(
        "tools.ceiling",
        "sends/s",
        &ceilings,
        "reference",
    ));
    emit(measurement("tools.sends", "sends/s", &rates, "reference"));
    emit(measurement(
        "tools.share_of_ceiling",
        "ratio",
        &shares,
        ">= 0.35",
    ));
    emit(measurement(
        "tools.write_transactions",
        "per send",
        &writes,
        "reference",
    ));
    Ok(())
}

async fn idle(options: &Options, cluster: &Cluster, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let mut client = cluster.client().await?;
    let agent = json!({ "context": { "last_messages": 50 }, "tools": ["current_time"] });
    let ids = sessions(&mut client, 16, &agent).await?;
    let (mut p50, mut p99) = (Vec::new(), Vec::new());
    for _ in 0..options.runs {
        let mut samples = Vec::new();
        for n in 0..options.size(1_000, 50) {
            let id = &ids[n % ids.len()];
            samples.push(send_and_wait(&mut client, id, three_rounds()).await?);
        }
        p50.push(millis(percentile(&mut samples, 50.0)));
        p99.push(millis(percentile(&mut samples, 99.0)));
    }
    // The model and the tool are instant, so all of it is engine time.
    emit(measurement("tools.engine.p50", "ms", &p50, "<= 12"));
    emit(measurement("tools.engine.p99", "ms", &p99, "<= 40"));
    Ok(())
}

async fn parallel(options: &Options, cluster: &Cluster, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(serve(listener));
    let tool = json!({ "type": "http", "name": "slow", "url": url, "repeat": "safe" });
    let mut client = cluster.client().await?;
    let ids = sessions(&mut client, 1, &json!({ "tools": [tool] })).await?;
    let input = "!tool slow {} ".repeat(PARALLEL);
    let body = Bytes::from(json!({ "input": input }).to_string());
    let mut rounds = Vec::new();
    for _ in 0..options.runs {
        let mut samples = Vec::new();
        for _ in 0..options.size(40, 3) {
            samples.push(send_and_wait(&mut client, &ids[0], body.clone()).await?);
        }
        // Times the whole send: the round with the calls, and everything around it.
        rounds.push(millis(percentile(&mut samples, 50.0)));
    }
    emit(measurement("tools.parallel_round", "ms", &rounds, "<= 230"));
    Ok(())
}

/// A slow tool.
async fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            // Ends when the peer closes the connection.
            let _ = answer(stream).await;
        });
    }
}

async fn answer(mut stream: TcpStream) -> Result<()> {
    let mut read = Vec::new();
    loop {
        let (head, length) = loop {
            if let Some(found) = request(&read) {
                break found;
            }
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        };
        while read.len() < head + length {
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        }
        read.drain(..head + length);
        pause(TOOL_MS).await;
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 4\r\n\r\ndone";
        stream.write_all(answer.as_bytes()).await?;
    }
}

/// The offset and the length of a request's body.
fn request(read: &[u8]) -> Option<(usize, usize)> {
    let head = read.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&read[..head]).to_ascii_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    Some((head, length.unwrap_or(0)))
}
