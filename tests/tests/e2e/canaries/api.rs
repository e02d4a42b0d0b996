//! A client that records every answer.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_tests::faults::monotonic;
use reqwest::{Client, Method};
use serde_json::Value;

/// How long an endless stream is read.
const STREAM: Duration = Duration::from_millis(500);

/// A client of one scheduler, with a key.
#[derive(Debug)]
pub(super) struct Api {
    client: Client,
    url: String,
    key: String,
    out: PathBuf,
}

/// Number of answers so far, which names the files they are written to.
static ANSWERS: AtomicUsize = AtomicUsize::new(0);

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
}

impl Api {
    pub(super) fn new(url: String, key: &str, out: &Path) -> Result<Self> {
        // Only the first test of the process installs it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        for name in ["answers", "events", "metrics"] {
            std::fs::create_dir_all(out.join(name))?;
        }
        Ok(Self {
            client: Client::builder().no_proxy().build()?,
            url,
            key: key.to_owned(),
            out: out.to_owned(),
        })
    }

    /// A client of the same scheduler with another key.
    pub(super) fn with_key(&self, key: &str) -> Self {
        Self {
            client: self.client.clone(),
            url: self.url.clone(),
            key: key.to_owned(),
            out: self.out.clone(),
        }
    }

    /// The key.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// The status of a read with the key.
    pub(super) async fn admitted(&self) -> Result<u16> {
        Ok(self.ask("GET", "/v1/sends", &Value::Null).await?.status)
    }

    /// Reads something that is not JSON.
    pub(super) async fn text(&self, path: &str, authorization: &str) -> Result<String> {
        let headers = [("authorization", authorization)];
        Ok(self.exchange("GET", path, &headers, None).await?.1)
    }

    /// Makes a request, and records the answer.
    pub(super) async fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Answer> {
        let authorization = format!("Bearer {}", self.key);
        let body = (!body.is_null()).then(|| body.to_string());
        self.raw(method, path, &[("authorization", &authorization)], body)
            .await
    }

    /// Makes a request with only these headers, and records the answer.
    pub(super) async fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> Result<Answer> {
        let (answer, text) = self.exchange(method, path, headers, body).await?;
        self.write("answers", &text)?;
        Ok(answer)
    }

    /// Requests a secret, which is legitimately in the answer.
    pub(super) async fn obtain(
        &self,
        method: &str,
        path: &str,
        body: &Value,
        member: &str,
    ) -> Result<(Value, String)> {
        let authorization = format!("Bearer {}", self.key);
        let headers = [("authorization", authorization.as_str())];
        let body = (!body.is_null()).then(|| body.to_string());
        let (answer, _) = self.exchange(method, path, &headers, body).await?;
        let secret = answer.body[member].as_str();
        let secret = secret.with_context(|| format!("{method} {path}: {answer:?}"))?;
        Ok((answer.body.clone(), secret.to_owned()))
    }

    async fn exchange(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> Result<(Answer, String)> {
        let method = Method::from_bytes(method.as_bytes())?;
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request
                .header("content-type", "application/json")
                .body(body);
        }
        let response = request.send().await?;
        let status = response.status().as_u16();
        let head = format!("{status} {:?}", response.headers());
        let text = response.text().await?;
        let body = serde_json::from_str(&text).unwrap_or_default();
        Ok((Answer { status, body }, format!("{head}\n{text}\n")))
    }

    /// Reads a list or a record, which must exist.
    pub(super) async fn get(&self, path: &str) -> Result<Value> {
        let answer = self.ask("GET", path, &Value::Null).await?;
        ensure!(answer.status == 200, "GET {path}: {answer:?}");
        Ok(answer.body)
    }

    /// Posts something that must be accepted.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let answer = self.ask("POST", path, body).await?;
        ensure!(
            (200..300).contains(&answer.status),
            "POST {path}: {answer:?}"
        );
        Ok(answer.body)
    }

    /// Reads the events of a send or session, until they end or for a moment.
    pub(super) async fn follow(&self, path: &str) -> Result<()> {
        let request = self.client.get(format!("{}{path}", self.url));
        let mut response = request.bearer_auth(&self.key).send().await?;
        ensure!(response.status() == 200, "GET {path}");
        let (until, mut text) = (monotonic() + STREAM, format!("{path}\n").into_bytes());
        while let Some(left) = until.checked_sub(monotonic()) {
            match tokio::time::timeout(left, response.chunk()).await {
                Ok(Ok(Some(piece))) => text.extend_from_slice(&piece),
                Ok(Ok(None)) | Err(_) => break,
                Ok(Err(error)) => return Err(error.into()),
            }
        }
        self.write("events", &String::from_utf8_lossy(&text))
    }

    /// Records an answer.
    pub(super) fn write(&self, folder: &str, text: &str) -> Result<()> {
        let n = ANSWERS.fetch_add(1, Ordering::Relaxed);
        std::fs::write(self.out.join(folder).join(format!("{n}")), text)?;
        Ok(())
    }
}
