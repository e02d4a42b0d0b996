//! A careful client: it retries, on another replica, until it gets an answer.

use std::time::Duration;

use anyhow::{Result, bail};
use bytes::Bytes;
use mainspring_benches::client::{Answer, Client, with_key};
use serde_json::Value;

use super::{fault_duration, monotonic, pause};

/// Timeout of one request; longer than any `?wait` used here.
const REQUEST: Duration = Duration::from_secs(20);

/// How long the system may go without a single answer, in addition to the duration of the faults.
const PATIENCE: Duration = Duration::from_mins(1);

/// A client that talks to several replicas.
#[derive(Debug)]
pub struct RetryingClient {
    urls: Vec<String>,
    at: usize,
    client: Option<Client>,
}

impl RetryingClient {
    /// A client that starts with replica number `first`.
    pub fn new(urls: Vec<String>, first: usize) -> Self {
        Self {
            urls,
            at: first,
            client: None,
        }
    }

    /// The same client with an API key.
    #[must_use]
    pub fn with_key(mut self, key: &str) -> Self {
        for url in &mut self.urls {
            *url = with_key(url, key);
        }
        self
    }

    /// Posts until there is an answer; the key makes retries idempotent.
    pub async fn post(&mut self, path: &str, body: &Value, key: &str) -> Result<Answer> {
        let headers = [("idempotency-key", key)];
        self.ask("POST", path, body.to_string().into(), &headers)
            .await
    }

    /// Patches until there is an answer; a retry applies the change again.
    pub async fn patch(&mut self, path: &str, body: &Value) -> Result<Answer> {
        self.ask("PATCH", path, body.to_string().into(), &[]).await
    }

    /// Reads until there is an answer; fails unless it is 200.
    pub async fn get(&mut self, path: &str) -> Result<Value> {
        let answer = self.ask("GET", path, Bytes::new(), &[]).await?;
        if answer.status != 200 {
            bail!("GET {path}: {} {:?}", answer.status, answer.body);
        }
        answer.json()
    }

    /// The status of a GET of this path.
    pub async fn status(&mut self, path: &str) -> Result<u16> {
        Ok(self.ask("GET", path, Bytes::new(), &[]).await?.status)
    }

    /// Every page of a list.
    pub async fn all(&mut self, path: &str) -> Result<Vec<Value>> {
        let mut data = Vec::new();
        let mut cursor = String::new();
        loop {
            let mut page = self.get(&format!("{path}?limit=200{cursor}")).await?;
            if let Some(items) = page["data"].as_array_mut() {
                data.append(items);
            }
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Ok(data),
            }
        }
    }

    async fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: Bytes,
        headers: &[(&str, &str)],
    ) -> Result<Answer> {
        let limit = monotonic() + fault_duration() + PATIENCE;
        loop {
            let once = self.once(method, path, body.clone(), headers);
            let refused = match tokio::time::timeout(REQUEST, once).await {
                // Unavailable or throttled: clients are told to retry these.
                Ok(Ok(answer)) if matches!(answer.status, 429 | 503) => {
                    format!("{} {:?}", answer.status, answer.body)
                }
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => format!("no answer within {REQUEST:?}"),
            };
            if monotonic() > limit {
                bail!("{method} {path} got no answer: {refused}");
            }
            self.client = None;
            self.at += 1;
            pause(Duration::from_millis(50)).await;
        }
    }

    async fn once(
        &mut self,
        method: &str,
        path: &str,
        body: Bytes,
        headers: &[(&str, &str)],
    ) -> Result<Answer> {
        // Taken out for the request's duration: if the request is abandoned, its response remains
        // on the connection and would be taken for the next one's.
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(&self.urls[self.at % self.urls.len()]).await?,
        };
        let answer = client.request_with(method, path, body, headers).await?;
        self.client = Some(client);
        Ok(answer)
    }
}
