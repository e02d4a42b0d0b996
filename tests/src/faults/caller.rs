//! A client as a careful program is one: it asks again, another replica, until it is told.

use std::time::Duration;

use anyhow::{Result, bail};
use bytes::Bytes;
use mainspring_benches::client::{Answer, Client};
use serde_json::Value;

use super::{dose, monotonic, pause};

/// What one request may take; longer than any `?wait` here.
const REQUEST: Duration = Duration::from_secs(20);

/// How long the system may go without one answer beyond the duration of the faults.
const PATIENCE: Duration = Duration::from_mins(1);

/// A client of several replicas.
#[derive(Debug)]
pub struct Caller {
    urls: Vec<String>,
    at: usize,
    client: Option<Client>,
}

impl Caller {
    /// A client that begins with the replica number `first`.
    pub fn new(urls: Vec<String>, first: usize) -> Self {
        Self {
            urls,
            at: first,
            client: None,
        }
    }

    /// Posts until there is an answer; with the key, a repeat is the same request.
    pub async fn post(&mut self, path: &str, body: &Value, key: &str) -> Result<Answer> {
        let headers = [("idempotency-key", key)];
        self.ask("POST", path, body.to_string().into(), &headers)
            .await
    }

    /// Changes something until there is an answer; a repeat changes it again.
    pub async fn patch(&mut self, path: &str, body: &Value) -> Result<Answer> {
        self.ask("PATCH", path, body.to_string().into(), &[]).await
    }

    /// Reads until there is an answer; an error unless it is 200.
    pub async fn get(&mut self, path: &str) -> Result<Value> {
        let answer = self.ask("GET", path, Bytes::new(), &[]).await?;
        if answer.status != 200 {
            bail!("GET {path}: {} {:?}", answer.status, answer.body);
        }
        answer.json()
    }

    /// The status of the answer for a path.
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
        let limit = monotonic() + dose() + PATIENCE;
        loop {
            let once = self.once(method, path, body.clone(), headers);
            let refused = match tokio::time::timeout(REQUEST, once).await {
                // Unavailable, or too much at once: what anyone is told to try again.
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
        // Taken out meanwhile: a request that is given up leaves an answer behind that would be
        // taken for the next one's.
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(&self.urls[self.at % self.urls.len()]).await?,
        };
        let answer = client.request_with(method, path, body, headers).await?;
        self.client = Some(client);
        Ok(answer)
    }
}
