//! Time from starting `dev` in an empty folder to its first answer.

use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use serde_json::Value;

use crate::client::Client;
use crate::cluster::Options;
use crate::load::now;
use crate::process::Program;
use crate::stats::{measurement, millis};

pub(super) async fn run(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..options.runs {
        let dir = tempfile::Builder::new()
            .prefix("mainspring-bench-")
            .tempdir()?;
        let program = Program {
            binary: options.binary.clone(),
            logs: dir.path().join("logs"),
            environment: Vec::new(),
        };
        let start = now();
        let dev = program.dev("dev", &dir.path().join("data"))?;
        loop {
            if let Ok(mut client) = Client::connect(&dev.url()).await
                && let Ok(answer) = client.request("GET", "/readyz", Bytes::new()).await
                && answer.status == 200
            {
                break;
            }
            anyhow::ensure!(
                start.elapsed() < Duration::from_secs(30),
                "dev does not accept"
            );
            tokio::task::yield_now().await;
        }
        times.push(millis(start.elapsed()));
    }
    emit(measurement("start.dev", "ms", &times, "<= 300"));
    Ok(())
}
