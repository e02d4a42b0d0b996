//! A small HTTP client for load: one kept-alive connection per client and no further layers.

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// One connection to a server.
#[derive(Debug)]
pub struct Client {
    sender: http1::SendRequest<Full<Bytes>>,
    host: String,
    /// The `Authorization` header, if there is a key.
    authorization: Option<String>,
}

/// A response: its status and its body.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Bytes,
}

/// A response that arrives in pieces.
#[derive(Debug)]
pub struct Stream {
    /// The HTTP status.
    pub status: u16,
    body: Incoming,
}

impl Stream {
    /// The next piece; `None` at the end, an error if the connection breaks.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(piece) = frame?.into_data() {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("status {}: {:?}", self.status, self.body))
    }
}

/// The address of a server for [`Client::connect`], with an API key.
pub fn with_key(base: &str, key: &str) -> String {
    base.replacen("http://", &format!("http://{key}@"), 1)
}

impl Client {
    /// Connects to `http://HOST:PORT`, or to `http://KEY@HOST:PORT` with this API key.
    pub async fn connect(base: &str) -> Result<Self> {
        let host = base
            .strip_prefix("http://")
            .context("a plain http address")?;
        let (key, host) = match host.rsplit_once('@') {
            Some((key, host)) => (Some(key), host),
            None => (None, host),
        };
        let host = host.to_owned();
        let authorization = key.map(|key| format!("Bearer {key}"));
        let stream = TcpStream::connect(&host).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            // The next request notices that the connection has ended.
            let _ = connection.await;
        });
        Ok(Self {
            sender,
            host,
            authorization,
        })
    }

    /// Sends a request and reads the whole response.
    pub async fn request(&mut self, method: &str, path: &str, body: Bytes) -> Result<Answer> {
        self.request_with(method, path, body, &[]).await
    }

    /// Sends a request with headers and reads the whole response.
    pub async fn request_with(
        &mut self,
        method: &str,
        path: &str,
        body: Bytes,
        headers: &[(&str, &str)],
    ) -> Result<Answer> {
        let response = self.begin(method, path, body, headers).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok(Answer { status, body })
    }

    /// Requests a streamed response; the connection serves nothing else from then on.
    pub async fn stream(mut self, path: &str, headers: &[(&str, &str)]) -> Result<Stream> {
        let response = self.begin("GET", path, Bytes::new(), headers).await?;
        Ok(Stream {
            status: response.status().as_u16(),
            body: response.into_body(),
        })
    }

    async fn begin(
        &mut self,
        method: &str,
        path: &str,
        body: Bytes,
        headers: &[(&str, &str)],
    ) -> Result<Response<Incoming>> {
        self.sender.ready().await?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.host);
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body))?;
        Ok(self.sender.send_request(request).await?)
    }

    /// Posts JSON and reads JSON; an error unless the status is a success.
    pub async fn post(&mut self, path: &str, body: &Value) -> Result<Value> {
        let answer = self
            .request("POST", path, serde_json::to_vec(body)?.into())
            .await?;
        if !(200..300).contains(&answer.status) {
            bail!("{path}: {} {:?}", answer.status, answer.body);
        }
        answer.json()
    }

    /// Reads JSON; an error unless the status is 200.
    pub async fn get(&mut self, path: &str) -> Result<Value> {
        let answer = self.request("GET", path, Bytes::new()).await?;
        if answer.status != 200 {
            bail!("{path}: {} {:?}", answer.status, answer.body);
        }
        answer.json()
    }
}
