//! The other side of a call, scripted request by request.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The reaction to a request.
#[derive(Debug, Clone)]
pub(super) enum Act {
    /// A complete response: status, additional headers, body.
    Answer(u16, String, Vec<u8>),
    /// A response whose headers promise a longer body than is sent.
    Torn,
    /// Closes the connection.
    Close,
    /// Sends nothing.
    Silence,
    /// A complete response with this status, whose body repeats the request in several forms.
    Echo(u16),
}

impl Act {
    pub(super) fn status(status: u16) -> Self {
        Self::with(status, "", &format!("said {status}"))
    }

    pub(super) fn with(status: u16, headers: &str, body: &str) -> Self {
        Self::Answer(status, headers.to_owned(), body.as_bytes().to_vec())
    }
}

/// A request as received.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) line: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Received {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }

    /// All of it: as it is, in base64, and in hexadecimal digits.
    fn echo(&self) -> String {
        let values = self
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}"));
        let body = String::from_utf8_lossy(&self.body).into_owned();
        let parts: Vec<String> = values.chain([self.line.clone(), body]).collect();
        let hex = |part: &String| {
            let digits = part.bytes().map(|byte| format!("{byte:02x}"));
            digits.collect::<Vec<_>>().concat()
        };
        let forms = parts
            .iter()
            .flat_map(|part| [part.clone(), STANDARD.encode(part), hex(part)]);
        forms.collect::<Vec<_>>().join("\n")
    }
}

/// A server that reacts as scripted, repeating the last reaction.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    connections: usize,
    requests: Vec<Received>,
}

impl Server {
    pub(super) async fn start(acts: Vec<Act>) -> Self {
        Self::at("127.0.0.1:0", acts).await
    }

    pub(super) async fn at(address: &str, acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let log = seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                log.lock().expect("no panic").connections += 1;
                tokio::spawn(serve(stream, acts.clone(), log.clone()));
            }
        });
        Self { address, seen }
    }

    pub(super) fn requests(&self) -> Vec<Received> {
        self.seen.lock().expect("no panic").requests.clone()
    }

    pub(super) fn connections(&self) -> usize {
        self.seen.lock().expect("no panic").connections
    }
}

async fn serve(mut stream: TcpStream, acts: Vec<Act>, seen: Arc<Mutex<Seen>>) {
    while let Some(request) = read(&mut stream).await {
        let at = {
            let mut seen = seen.lock().expect("no panic");
            seen.requests.push(request);
            seen.requests.len() - 1
        };
        let echo = seen.lock().expect("no panic").requests[at].echo();
        match acts.get(at).or(acts.last()).expect("an act") {
            Act::Echo(status) => {
                let length = echo.len();
                let kind = "content-type: text/plain\r\n";
                let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n{kind}\r\n");
                let _ = stream.write_all((head + &echo).as_bytes()).await;
            }
            Act::Answer(status, headers, body) => {
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n{headers}\r\n");
                let whole = [head.as_bytes(), body].concat();
                // The client may disconnect as soon as it has read enough.
                let _ = stream.write_all(&whole).await;
            }
            Act::Torn => {
                let torn = b"HTTP/1.1 200 X\r\ncontent-length: 100\r\n\r\nhalf";
                let _ = stream.write_all(torn).await;
                return;
            }
            Act::Close => return,
            Act::Silence => {
                let _ = stream.read(&mut [0; 1]).await;
                return;
            }
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).expect("UTF-8");
    let mut lines = head.lines();
    let line = lines.next().expect("a request line").to_owned();
    let pairs = lines.filter_map(|line| line.split_once(": "));
    let mut received = Received {
        line,
        headers: pairs.map(|(n, v)| (n.to_owned(), v.to_owned())).collect(),
        body: bytes[end..].to_vec(),
    };
    let length = received.header("content-length").unwrap_or("0");
    let length: usize = length.parse().expect("a number");
    while received.body.len() < length {
        if stream.read_buf(&mut received.body).await.ok()? == 0 {
            return None;
        }
    }
    Some(received)
}
