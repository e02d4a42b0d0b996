//! A send in a session of 10 000 messages compared with one in a session of 100, in conversations
//! that are folded and show older sends as digests; also the bytes that the worker reads from the
//! database.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::history::fill;
use crate::client::Client;
use crate::cluster::{Cluster, Options, sessions};
use crate::load::send_and_wait;
use crate::stats::{measurement, millis, percentile, round};

/// The environment variable with the database's URL.
const DATABASE: &str = "MAINSPRING_DATABASE_URL";

pub(super) async fn run(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let mut cluster = Cluster::start(options, 0, &[])?;
    let url = cluster.program.environment.iter();
    let url = url.clone().find(|(name, _)| name == DATABASE);
    let (read, url) = counted(&url.context("the cluster has a database")?.1).await?;
    // One worker that has each session in its cache, and one that never has.
    for (name, cache) in [("warm", "67108864"), ("cold", "0")] {
        let environment = [
            (DATABASE, url.as_str()),
            ("MAINSPRING_WORKER_CACHE_BYTES_MAX", cache),
        ];
        let worker = cluster.program.worker(name, &environment)?;
        cluster.workers.push(worker);
        measure(&cluster, options, (name, &read), emit).await?;
        // Dropping a worker ends it.
        cluster.workers.clear();
    }
    cluster.audit()
}

async fn measure(
    cluster: &Cluster,
    options: &Options,
    (name, read): (&str, &AtomicU64),
    emit: &mut dyn FnMut(Value),
) -> Result<()> {
    let mut client = cluster.client().await?;
    let agent = json!({
        "context": {
            "representation": "projection",
            "fold": { "strategy": "projection", "soft": 0.01, "hard": 0.01 },
        },
    });
    let short = sessions(&mut client, 20, &agent).await?;
    let long = sessions(&mut client, 2, &agent).await?;
    fill(&mut client, &short, 100).await?;
    fill(&mut client, &long, options.size(10_000, 400)).await?;
    let (mut ratios, mut bytes) = (Vec::new(), [Vec::new(), Vec::new()]);
    let mut times = [Vec::new(), Vec::new()];
    let count = options.size(400, 20);
    for _ in 0..options.runs {
        let mut all = [Vec::new(), Vec::new()];
        for n in 0..count {
            for (which, ids) in [&long, &short].into_iter().enumerate() {
                let before = read.load(Ordering::Relaxed);
                let took = send(&mut client, &ids[n % ids.len()]).await?;
                all[which].push((took, read.load(Ordering::Relaxed) - before));
            }
        }
        let [long, short] = all.map(|samples| {
            let mut took: Vec<_> = samples.iter().map(|(took, _)| *took).collect();
            let mut read: Vec<u64> = samples.iter().map(|(_, read)| *read).collect();
            read.sort_unstable();
            (percentile(&mut took, 50.0), read[read.len() / 2])
        });
        ratios.push(round(long.0.as_secs_f64() / short.0.as_secs_f64()));
        for (which, (took, read)) in [long, short].into_iter().enumerate() {
            times[which].push(millis(took));
            bytes[which].push(read as f64);
        }
    }
    let mut say = |what: &str, unit, figures: &[f64], bar| {
        emit(measurement(
            &format!("folded.{name}.{what}"),
            unit,
            figures,
            bar,
        ));
    };
    say("long.p50", "ms", &times[0], "reference");
    say("short.p50", "ms", &times[1], "reference");
    say("ratio", "ratio", &ratios, "<= 1.1");
    say("long.read", "bytes", &bytes[0], "as in the short one");
    say("short.read", "bytes", &bytes[1], "reference");
    Ok(())
}

async fn send(client: &mut Client, id: &str) -> Result<std::time::Duration> {
    send_and_wait(client, id, Bytes::from_static(b"{\"input\":\"hello\"}")).await
}

/// Starts a proxy in front of a server that counts the bytes read from it; returns the count and
/// its URL.
async fn counted(url: &str) -> Result<(Arc<AtomicU64>, String)> {
    let (head, rest) = url.split_once('@').context("the address names a user")?;
    let (server, path) = rest
        .split_once('/')
        .context("the address names a database")?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let read = Arc::new(AtomicU64::new(0));
    let (counter, server) = (Arc::clone(&read), server.to_owned());
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let (counter, server) = (Arc::clone(&counter), server.clone());
            tokio::spawn(async move {
                // A broken connection concerns only its two ends.
                let _ = forward(near, &server, &counter).await;
            });
        }
    });
    Ok((read, format!("{head}@{address}/{path}")))
}

async fn forward(near: TcpStream, server: &str, counter: &AtomicU64) -> Result<()> {
    let far = TcpStream::connect(server).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (mut from_near, mut to_near) = near.into_split();
    let (mut from_far, mut to_far) = far.into_split();
    let ask = tokio::io::copy(&mut from_near, &mut to_far);
    let answer = async {
        let mut piece = vec![0; 64 << 10];
        loop {
            let count = from_far.read(&mut piece).await?;
            if count == 0 {
                return std::io::Result::Ok(());
            }
            counter.fetch_add(count as u64, Ordering::Relaxed);
            to_near.write_all(&piece[..count]).await?;
        }
    };
    tokio::select! {
        asked = ask => drop(asked?),
        answered = answer => answered?,
    }
    Ok(())
}
