//! A site whose pages behave as they are told to.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use mainspring_shared::id::{BootId, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::memory::Account;
use mainspring_worker::tool::Invocation;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// What a page does.
#[derive(Debug, Clone)]
pub(super) enum Page {
    /// Sends these bytes and closes the connection.
    Raw(Vec<u8>),
    /// Sends these bytes and nothing more, and keeps the connection.
    Stuck(Vec<u8>),
    /// Sends the first bytes, and then the others until nobody reads them any more.
    Endless(Vec<u8>, Vec<u8>),
}

impl Page {
    pub(super) fn of(kind: &str, body: impl AsRef<[u8]>) -> Self {
        Self::with(&format!("200 OK\r\ncontent-type: {kind}"), body)
    }

    /// A page with this status and these headers.
    pub(super) fn with(head: &str, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let head = format!(
            "HTTP/1.1 {head}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        Self::Raw([head.as_bytes(), body].concat())
    }
}

/// The site.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Site {
    pub(super) async fn start<'a>(pages: impl IntoIterator<Item = (&'a str, Page)>) -> Self {
        Self::at("127.0.0.1:0", pages).await
    }

    pub(super) async fn at<'a>(
        address: &str,
        pages: impl IntoIterator<Item = (&'a str, Page)>,
    ) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let pages = pages
            .into_iter()
            .map(|(path, page)| (path.to_owned(), page));
        let pages: Arc<BTreeMap<String, Page>> = Arc::new(pages.collect());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, pages.clone(), log.clone()));
            }
        });
        Self { address, asked }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The heads of all requests.
    pub(super) fn heads(&self) -> Vec<String> {
        self.asked.lock().expect("no panic").clone()
    }

    /// The paths of all requests.
    pub(super) fn asked(&self) -> Vec<String> {
        let heads = self.heads();
        let paths = heads.iter().filter_map(|head| head.split(' ').nth(1));
        paths.map(str::to_owned).collect()
    }
}

async fn serve(
    mut stream: TcpStream,
    pages: Arc<BTreeMap<String, Page>>,
    asked: Arc<Mutex<Vec<String>>>,
) {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        match stream.read_buf(&mut bytes).await {
            Ok(count) if count > 0 => {}
            _ => return,
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    while bytes.len() - end < length.unwrap_or(0) {
        if !matches!(stream.read_buf(&mut bytes).await, Ok(count) if count > 0) {
            return;
        }
    }
    let whole = String::from_utf8_lossy(&bytes).into_owned();
    asked.lock().expect("no panic").push(whole);
    let path = head.split(' ').nth(1).unwrap_or_default();
    let none = Page::with("404 Not Found", "none");
    let path = path.split('?').next().unwrap_or_default();
    match pages.get(path).cloned().unwrap_or(none) {
        Page::Raw(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Page::Stuck(bytes) => {
            let _ = stream.write_all(&bytes).await;
            // Until the other side gives up.
            let _ = stream.read(&mut [0; 1]).await;
        }
        Page::Endless(head, piece) => {
            let _ = stream.write_all(&head).await;
            while stream.write_all(&piece).await.is_ok() {}
        }
    }
}

/// A call with these arguments.
pub(super) fn invocation(arguments: &Value) -> Invocation {
    Invocation {
        call_id: "call_7_0_0".to_owned(),
        arguments: arguments.as_object().expect("an object").clone(),
        said: None,
        session: SessionKey {
            tenant: TenantId::DEFAULT,
            session: SessionId(Uuid::from_u128(7)),
        },
        send_id: SendId(Uuid::from_u128(8)),
        boot: BootId(Uuid::nil()),
        attempt: 1,
        stop: CancellationToken::new(),
        skills: mainspring_worker::tool::Skills::default(),
        account: Account::default(),
        progress: mainspring_worker::tool::Progress::default(),
        kept: mainspring_worker::tool::Kept::default(),
        inquiring: mainspring_worker::tool::Inquiring::default(),
    }
}
