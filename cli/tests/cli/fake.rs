//! A scheduler that answers as told and writes down what it was asked.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// `POST /v1/sends`
    pub(crate) line: String,
    /// Header lines in lower case.
    pub(crate) headers: Vec<String>,
    pub(crate) body: String,
}

impl Asked {
    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let start = format!("{name}: ");
        self.headers
            .iter()
            .find_map(|header| header.strip_prefix(start.as_str()))
    }
}

/// What to answer: raw HTTP, after which the connection is closed.
pub(crate) fn json(status: u16, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nConnection: close\r\n{headers}\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

/// A problem document.
pub(crate) fn problem(status: u16, code: &str) -> String {
    let body = serde_json::json!({ "status": status, "code": code, "detail": "as told" });
    json(status, "Retry-After: 0\r\n", &body.to_string())
}

/// A piece of an event stream that the server then cuts.
pub(crate) fn stream(events: &str) -> String {
    format!(
        "HTTP/1.1 200 x\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\
         Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{events}\r\n",
        events.len()
    )
}

/// The server; each connection gets the next answer, the last one again and again.
#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Fake {
    pub(crate) fn answering(answers: impl IntoIterator<Item = String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        let mut answers: VecDeque<String> = answers.into_iter().collect();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let Ok(connection) = connection else { return };
                let answer = match answers.len() {
                    1 => answers[0].clone(),
                    _ => answers.pop_front().expect("an answer"),
                };
                if let Some(request) = serve(connection, &answer) {
                    seen.lock().expect("unpoisoned").push(request);
                }
            }
        });
        Self { url, asked }
    }

    /// Everything that was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("unpoisoned").clone()
    }
}

fn serve(stream: TcpStream, answer: &str) -> Option<Asked> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let line = line.trim().trim_end_matches(" HTTP/1.1").to_owned();
    let mut asked = Asked {
        line,
        headers: Vec::new(),
        body: String::new(),
    };
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        if header.trim().is_empty() {
            break;
        }
        let (name, value) = header.trim().split_once(": ")?;
        asked
            .headers
            .push(format!("{}: {value}", name.to_lowercase()));
    }
    let length = asked
        .header("content-length")
        .map_or(0, |length| length.parse().expect("a number"));
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    asked.body = String::from_utf8(body).ok()?;
    // Written down before it is answered, so that whoever has the answer finds it.
    let mut stream = stream;
    stream.write_all(answer.as_bytes()).ok()?;
    Some(asked)
}
