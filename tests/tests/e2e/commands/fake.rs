//! A fake scheduler that gives scripted answers and records its requests.

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

/// A raw HTTP response, after which the connection is closed.
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

/// Part of an event stream that the server then cuts.
pub(crate) fn stream(events: &str) -> String {
    format!(
        "HTTP/1.1 200 x\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\
         Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{events}\r\n",
        events.len()
    )
}

/// The server; each connection gets the next answer, and the last one is repeated.
#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Fake {
    pub(crate) fn answering(answers: impl IntoIterator<Item = String>) -> Self {
        let mut answers: VecDeque<String> = answers.into_iter().collect();
        Self::serving(move |_| match answers.len() {
            1 => answers[0].clone(),
            _ => answers.pop_front().expect("an answer"),
        })
    }

    /// A server that chooses the answer by request line, such as `GET /v1/workers`.
    pub(crate) fn choosing(mut answer: impl FnMut(&str) -> String + Send + 'static) -> Self {
        Self::serving(move |asked| answer(asked.map_or("", |asked| asked.line.as_str())))
    }

    /// Gives each connection the answer to its request, or to `None` if it broke off.
    fn serving(mut answer: impl FnMut(Option<&Asked>) -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let Ok(connection) = connection else { return };
                let request = read(&connection);
                let answer = answer(request.as_ref());
                // Recorded before it is answered, so that a client with the answer finds it.
                seen.lock().expect("unpoisoned").extend(request);
                // The client may have disconnected.
                let _ = (&connection).write_all(answer.as_bytes());
            }
        });
        Self { url, asked }
    }

    /// All requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("unpoisoned").clone()
    }
}

fn read(stream: &TcpStream) -> Option<Asked> {
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
    Some(asked)
}
