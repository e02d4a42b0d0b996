//! A minimal HTTP client that puts exactly what a test says on the wire, malformed or not.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::described;

/// Long enough for a slow machine; a test that takes this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// An HTTP response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    /// Asserts the status and returns the body.
    #[track_caller]
    pub(crate) fn ok(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.json()
    }

    /// Asserts that it is a problem document with this status and code.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json")
        );
        let json = self.json();
        assert_eq!(json["code"], code, "{json}");
        assert_eq!(json["status"], status, "{json}");
        assert_eq!(json["type"], format!("/errors/{code}"));
        assert!(
            json["title"].is_string() && json["detail"].is_string(),
            "{json}"
        );
        assert!(json["retryable"].is_boolean());
        json
    }
}

/// A request to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    addr: SocketAddr,
    head: String,
    body: Vec<u8>,
    chunked: bool,
}

impl Call {
    pub(crate) fn new(addr: SocketAddr, method: &str, path: &str) -> Self {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
        Self {
            addr,
            head,
            body: Vec::new(),
            chunked: false,
        }
    }

    /// Uses another host name for the server.
    pub(crate) fn named(mut self, host: &str) -> Self {
        self.head = self
            .head
            .replace("host: localhost", &format!("host: {host}"));
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.head = format!("{}{name}: {value}\r\n", self.head);
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json")
            .body(body.to_string())
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends the body chunked, without a content length.
    pub(crate) fn chunked(mut self) -> Self {
        self.chunked = true;
        self
    }

    async fn write(&self, close: bool) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.addr).await.expect("connects");
        let mut bytes = self.head.clone().into_bytes();
        if close {
            bytes.extend_from_slice(b"connection: close\r\n");
        }
        if self.chunked {
            bytes.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
            for chunk in self.body.chunks(1_000) {
                bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
        } else {
            bytes.extend_from_slice(
                format!("content-length: {}\r\n\r\n", self.body.len()).as_bytes(),
            );
            bytes.extend_from_slice(&self.body);
        }
        // A server that refuses a body early may close before it has read all of it.
        let _ = stream.write_all(&bytes).await;
        BufReader::new(stream)
    }

    /// Sends the request and reads a response that breaks off.
    pub(crate) async fn cut_short(self) -> String {
        let work = async {
            let mut reader = self.write(true).await;
            // It may break off before anything was sent.
            if reader.fill_buf().await.map_or(true, <[u8]>::is_empty) {
                return Vec::new();
            }
            let (status, _) = head(&mut reader).await;
            assert_eq!(status, 200);
            until_cut(&mut reader).await
        };
        let body = tokio::time::timeout(PATIENCE, work).await;
        String::from_utf8(body.expect("breaks off")).expect("utf-8")
    }

    /// Sends the request and reads the whole response.
    pub(crate) async fn send(self) -> Answer {
        let work = async {
            let mut reader = self.write(true).await;
            let (status, headers) = head(&mut reader).await;
            answer(&mut reader, status, headers, !self.head.starts_with("HEAD")).await
        };
        let answer = tokio::time::timeout(PATIENCE, work)
            .await
            .expect("an answer in time");
        let mut words = self.head.split(' ');
        if let (Some(method), Some(target)) = (words.next(), words.next()) {
            described::check(method, target, &answer);
        }
        answer
    }

    /// Announces a body of this length, sends none, and reads the response.
    pub(crate) async fn promise(self, length: usize) -> Answer {
        let mut stream = TcpStream::connect(self.addr).await.expect("connects");
        let text = format!(
            "{}connection: close\r\ncontent-length: {length}\r\n\r\n",
            self.head
        );
        stream.write_all(text.as_bytes()).await.expect("writes");
        let mut reader = BufReader::new(stream);
        let (mut status, mut headers) = head(&mut reader).await;
        if status == 100 {
            (status, headers) = head(&mut reader).await;
        }
        answer(&mut reader, status, headers, true).await
    }

    /// Sends the request and reads the response as an event stream.
    pub(crate) async fn stream(self) -> Events {
        self.stream_or_status().await.expect("a stream")
    }

    /// The same, or the status with which the request is refused.
    pub(crate) async fn stream_or_status(self) -> Result<Events, u16> {
        let mut reader = self.write(false).await;
        let (status, headers) = head(&mut reader).await;
        if status != 200 {
            return Err(status);
        }
        let kind = headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        assert_eq!(
            kind.map(|(_, kind)| kind.as_str()),
            Some("text/event-stream")
        );
        Ok(Events {
            reader,
            text: String::new(),
            ended: false,
        })
    }
}

async fn answer(
    reader: &mut BufReader<TcpStream>,
    status: u16,
    headers: Vec<(String, String)>,
    has_body: bool,
) -> Answer {
    let value = |name: &str| {
        let mut found = headers.iter();
        let found = found.find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    };
    let chunked = value("transfer-encoding") == Some("chunked");
    let length = value("content-length").and_then(|value| value.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    if has_body && chunked {
        body = chunks(reader).await;
    } else if has_body {
        reader.read_exact(&mut body).await.expect("a whole body");
    }
    Answer {
        status,
        headers,
        text: String::from_utf8(body).expect("utf-8"),
    }
}

/// Reads the part that arrives of a chunked body that breaks off.
async fn until_cut(reader: &mut BufReader<TcpStream>) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let mut size = String::new();
        let read = reader.read_line(&mut size).await;
        let Ok(size) = usize::from_str_radix(size.trim(), 16) else {
            assert!(!matches!(read, Ok(n) if n > 0), "{size}");
            return body;
        };
        assert!(size > 0, "it did not break off");
        let mut chunk = vec![0; size + 2];
        if reader.read_exact(&mut chunk).await.is_err() {
            return body;
        }
        body.extend_from_slice(&chunk[..size]);
    }
}

/// Reads a whole chunked body.
async fn chunks(reader: &mut BufReader<TcpStream>) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let mut size = String::new();
        reader.read_line(&mut size).await.expect("a line");
        let size = usize::from_str_radix(size.trim(), 16).expect("a chunk's size");
        let mut chunk = vec![0; size + 2];
        reader.read_exact(&mut chunk).await.expect("a chunk");
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&chunk[..size]);
    }
}

async fn head(reader: &mut BufReader<TcpStream>) -> (u16, Vec<(String, String)>) {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        let read = reader.read_line(&mut line).await.expect("a line");
        assert!(
            read > 0,
            "the server closed the connection before its answer: {lines:?}"
        );
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let status = lines[0]
        .split(' ')
        .nth(1)
        .and_then(|text| text.parse().ok())
        .expect("a status");
    let headers = lines[1..].iter().filter_map(|line| line.split_once(": "));
    (
        status,
        headers
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    )
}

/// An event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) data: Value,
}

/// An event stream as its reader sees it.
pub(crate) struct Events {
    reader: BufReader<TcpStream>,
    text: String,
    ended: bool,
}

impl Events {
    /// The next block: an event, or `None` for a comment. The end of the stream is an error.
    async fn block(&mut self) -> Result<Option<Event>, ()> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                if block.starts_with(':') {
                    return Ok(None);
                }
                let field = |name: &str| {
                    let prefix = format!("{name}: ");
                    let found = block.lines().find_map(|line| line.strip_prefix(&prefix));
                    found.map(str::to_owned)
                };
                let data = field("data").expect("data");
                return Ok(Some(Event {
                    id: field("id"),
                    name: field("event").unwrap_or_else(|| "message".to_owned()),
                    data: serde_json::from_str(&data).expect("json"),
                }));
            }
            if self.ended {
                return Err(());
            }
            self.chunk().await;
        }
    }

    async fn chunk(&mut self) {
        let mut size = String::new();
        self.reader
            .read_line(&mut size)
            .await
            .expect("a chunk's size");
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        self.ended = size == 0;
        let mut bytes = vec![0; size + 2];
        if !self.ended {
            self.reader.read_exact(&mut bytes).await.expect("a chunk");
            self.text
                .push_str(std::str::from_utf8(&bytes[..size]).expect("utf-8"));
        }
    }

    /// The next event; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        let work = async {
            loop {
                match self.block().await {
                    Ok(Some(event)) => return Some(event),
                    Ok(None) => {}
                    Err(()) => return None,
                }
            }
        };
        tokio::time::timeout(PATIENCE, work)
            .await
            .expect("an event in time")
    }

    /// Reads for this long; returns whether the stream has ended by then.
    pub(crate) async fn ends_within(&mut self, wait: Duration) -> bool {
        let ended = async { while self.block().await.is_ok() {} };
        tokio::time::timeout(wait, ended).await.is_ok()
    }

    /// Waits for a comment.
    pub(crate) async fn comment(&mut self) {
        let work = async { while self.block().await.expect("more").is_some() {} };
        tokio::time::timeout(PATIENCE, work)
            .await
            .expect("a comment in time");
    }

    /// Everything up to the end.
    pub(crate) async fn rest(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }

    /// The next `count` events' types.
    pub(crate) async fn names(&mut self, count: usize) -> Vec<String> {
        let mut names = Vec::new();
        for _ in 0..count {
            names.push(self.next().await.expect("an event").name);
        }
        names
    }
}
