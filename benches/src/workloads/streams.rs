//! Memory of one worker that handles thousands of sends on a slow streaming model.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::cluster::{Cluster, Options, sessions};
use crate::load::{now, pause};
use crate::stats::measurement;

pub(super) async fn run(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let count = options.size(5_000, 200);
    let open = Arc::new(AtomicUsize::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let model = format!("http://{}/v1", listener.local_addr()?);
    tokio::spawn(serve(listener, open.clone()));
    let concurrency = (count + 100).to_string();
    let environment = [
        ("MAINSPRING_LLM_PROVIDER", "openai"),
        ("MAINSPRING_LLM_BASE_URL", model.as_str()),
        ("MAINSPRING_LLM_API_KEY", "none"),
        ("MAINSPRING_LLM_MODEL", "slow"),
        ("MAINSPRING_WORKER_CONCURRENCY", concurrency.as_str()),
    ];
    let (mut each, mut carried) = (Vec::new(), Vec::new());
    for _ in 0..options.runs {
        let cluster = Cluster::start(options, 1, &environment)?;
        let mut client = cluster.client().await?;
        let ids = sessions(&mut client, count, &json!({})).await?;
        let before = settled(&cluster).await?;
        for ids in ids.chunks(1000) {
            let sends: Vec<Value> = ids
                .iter()
                .map(|id| json!({ "session_id": id, "input": "wait" }))
                .collect();
            client
                .post("/v1/sends:batch", &json!({ "sends": sends }))
                .await?;
        }
        let start = now();
        while open.load(Ordering::Relaxed) < count {
            ensure!(
                start.elapsed() < Duration::from_mins(2),
                "only some streams are open"
            );
            pause(100).await;
        }
        let after = settled(&cluster).await?;
        let running = cluster.number("SELECT count(*) FROM sends WHERE status = 'running'")?;
        carried.push(running as f64);
        each.push(after.saturating_sub(before) as f64 / count as f64 / 1024.0);
        drop(cluster);
        while open.load(Ordering::Relaxed) > 0 {
            pause(100).await;
        }
    }
    emit(measurement("streams.carried", "sends", &carried, ">= 5000"));
    emit(measurement("streams.memory_each", "KiB", &each, "<= 64"));
    Ok(())
}

/// The worker's memory after three idle seconds.
async fn settled(cluster: &Cluster) -> Result<u64> {
    pause(3_000).await;
    cluster.workers[0].resident_memory()
}

/// A model that emits a word every second and never ends.
async fn serve(listener: TcpListener, open: Arc<AtomicUsize>) {
    while let Ok((stream, _)) = listener.accept().await {
        let open = open.clone();
        tokio::spawn(async move {
            open.fetch_add(1, Ordering::Relaxed);
            // Ends when the peer closes the connection.
            let _ = answer(stream).await;
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

async fn answer(mut stream: TcpStream) -> Result<()> {
    let mut request = [0; 1024];
    let read = stream.read(&mut request).await?;
    ensure!(read > 0, "nothing was asked");
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word \"}}]}\n\n";
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    loop {
        stream.write_all(chunk.as_bytes()).await?;
        tokio::select! {
            read = stream.read(&mut request) => {
                if read? == 0 {
                    return Ok(());
                }
            }
            () = pause(1_000) => {}
        }
    }
}
