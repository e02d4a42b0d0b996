//! A raw provider whose answers are scripted down to each single write.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainspring_runtime::SystemClock;
use mainspring_shared::time::Clock as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// What happens after the last byte of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// The body ends as it should, and the connection stays.
    End,
    /// The connection closes.
    Close,
    /// Nothing, until the client leaves.
    Silence,
}

/// One answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    /// Pieces of the body, each in a chunk and a write of its own.
    pub(crate) pieces: Vec<Vec<u8>>,
    /// Pause between two pieces.
    pub(crate) pause: Duration,
    pub(crate) then: Then,
}

impl Answer {
    pub(crate) fn new(status: u16, content_type: &str, body: &[u8], piece: usize) -> Self {
        Self {
            status,
            headers: vec![("content-type", content_type.to_owned())],
            pieces: body.chunks(piece).map(<[u8]>::to_vec).collect(),
            pause: Duration::ZERO,
            then: Then::End,
        }
    }

    pub(crate) fn then(self, then: Then) -> Self {
        Self { then, ..self }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Index of the connection it came over, from 0.
    pub(crate) connection: usize,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.as_str())
    }
}

/// A server that gives these answers one after the other, and repeats the last one from then on.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) received: Arc<Mutex<Vec<Received>>>,
    /// One message for every connection that the client closed during a silence.
    pub(crate) left: mpsc::Receiver<()>,
}

impl Server {
    pub(crate) async fn start(answer: Answer) -> Self {
        Self::with(vec![answer]).await
    }

    pub(crate) async fn with(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let (leaving, left) = mpsc::channel(16);
        let log = Arc::clone(&received);
        let answers: Arc<[Answer]> = answers.into();
        tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let (answers, log) = (Arc::clone(&answers), Arc::clone(&log));
                tokio::spawn(serve(stream, answers, log, leaving.clone(), connection));
            }
        });
        Self {
            address,
            received,
            left,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    answers: Arc<[Answer]>,
    log: Arc<Mutex<Vec<Received>>>,
    leaving: mpsc::Sender<()>,
    connection: usize,
) {
    stream.set_nodelay(true).unwrap();
    while let Some(request) = read_request(&mut stream, connection).await {
        let place = {
            let mut log = log.lock().unwrap();
            log.push(request);
            log.len().min(answers.len()) - 1
        };
        let answer = &answers[place];
        // The client may leave as soon as it has read enough.
        if write_answer(&mut stream, answer).await.is_err() {
            return;
        }
        match answer.then {
            Then::End => {}
            Then::Close => return,
            Then::Silence => {
                let _ = stream.read(&mut [0; 1]).await;
                let _ = leaving.send(()).await;
                return;
            }
        }
    }
}

async fn write_answer(stream: &mut TcpStream, answer: &Answer) -> std::io::Result<()> {
    use std::fmt::Write as _;
    if answer.status == 0 {
        return Ok(());
    }
    let mut head = format!(
        "HTTP/1.1 {} X\r\ntransfer-encoding: chunked\r\n",
        answer.status
    );
    for (name, value) in &answer.headers {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await?;
    for piece in &answer.pieces {
        let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
        chunk.extend_from_slice(piece);
        chunk.extend_from_slice(b"\r\n");
        stream.write_all(&chunk).await?;
        if !answer.pause.is_zero() {
            SystemClock::new().sleep(answer.pause).await;
        }
    }
    if answer.then == Then::End {
        stream.write_all(b"0\r\n\r\n").await?;
    }
    Ok(())
}

async fn read_request(stream: &mut TcpStream, connection: usize) -> Option<Received> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let line = lines.next().unwrap().to_owned();
    let pairs = lines.filter_map(|line| line.split_once(": "));
    let headers: Vec<_> = pairs.map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
    let mut received = Received {
        line,
        headers,
        body: bytes[end..].to_vec(),
        connection,
    };
    let length = received.header("content-length");
    let length: usize = length.map_or(0, |length| length.parse().unwrap());
    while received.body.len() < length {
        assert_ne!(stream.read_buf(&mut received.body).await.unwrap(), 0);
    }
    Some(received)
}
