//! A proxy in front of Postgres that knows where a write ends, and can cut the connection there.
//!
//! It follows the client's messages closely enough to recognize a batch (up to `Sync`, or one
//! simple query) that contains a write. The server must not offer TLS, since the proxy could not
//! read it.

mod wire;

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{any_of, pause};
use wire::{Batch, Batches};

/// How long the server may take to answer a write whose answer is discarded.
const ANSWER: Duration = Duration::from_secs(10);

/// Where a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// In the middle of a write: the server never sees all of it, so nothing happened.
    Inside,
    /// After all of a write was passed on: it may or may not happen.
    Behind,
    /// After the server has answered, before the client learns of it: the write did happen.
    Unheard,
    /// Like `Unheard`, but the client waits this long before it sees the connection close.
    Silent(Duration),
}

/// A pending cut, and where to report it.
#[derive(Debug)]
struct Order {
    how: Cut,
    /// Writes to let pass first.
    behind: usize,
    done: oneshot::Sender<()>,
}

#[derive(Debug)]
struct Shared {
    /// The server's port.
    server: AtomicU16,
    order: Mutex<Option<Order>>,
    /// Cancelled to make the connections existing at that time fall silent.
    silence: Mutex<CancellationToken>,
}

impl Shared {
    /// The order to carry out at the present write, if any.
    fn due(&self) -> Option<Order> {
        let mut order = self.lock();
        match order.as_mut() {
            Some(Order { behind, .. }) if *behind > 0 => {
                *behind -= 1;
                None
            }
            _ => order.take(),
        }
    }

    fn silence(&self) -> std::sync::MutexGuard<'_, CancellationToken> {
        self.silence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Order>> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Withdraws the order when dropped, because nobody waits for it any more.
struct Withdrawn<'a>(&'a Shared);

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        self.0.lock().take();
    }
}

/// The proxy; it stops when dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    _task: AbortOnDropHandle<()>,
}

impl Proxy {
    /// Starts in front of a server on a local port.
    pub async fn start(server: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            server: AtomicU16::new(server),
            order: Mutex::default(),
            silence: Mutex::default(),
        });
        let task = tokio::spawn(accept(listener, shared.clone()));
        Ok(Self {
            port,
            shared,
            _task: AbortOnDropHandle::new(task),
        })
    }

    /// The URL of a database behind it.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Connects new clients to another server on a local port.
    pub fn lead_to(&self, server: u16) {
        self.shared.server.store(server, Ordering::SeqCst);
    }

    /// Cuts the next connection that writes, and returns once that has happened. Returns false if
    /// nobody wrote within `limit`.
    pub async fn cut(&self, how: Cut, limit: Duration) -> bool {
        self.cut_behind(0, how, limit).await
    }

    /// Like `cut`, after `behind` writes have passed.
    pub async fn cut_behind(&self, behind: usize, how: Cut, limit: Duration) -> bool {
        let (done, happened) = oneshot::channel();
        *self.shared.lock() = Some(Order { how, behind, done });
        let _withdrawn = Withdrawn(&self.shared);
        let cut = tokio::time::timeout(limit, happened).await;
        matches!(cut, Ok(Ok(())))
    }

    /// Makes every connection fall silent for good without closing it, as when the server's machine
    /// loses power. New connections work normally.
    pub fn fall_silent(&self) {
        std::mem::take(&mut *self.shared.silence()).cancel();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Dropping the set ends the connections with the listener.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            client = listener.accept() => match client {
                Ok((client, _)) => {
                    connections.spawn(serve(client, shared.clone()));
                }
                Err(_) => pause(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection. Returning closes both ends.
async fn serve(client: TcpStream, shared: Arc<Shared>) {
    let port = shared.server.load(Ordering::SeqCst);
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else {
        return;
    };
    // Otherwise an answer may be delayed until the next packet.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let silence = shared.silence().clone();
    let link = Link::default();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut traffic = std::pin::pin!(async {
        tokio::select! {
            _ = requests(from_client, to_server, &shared, &link) => {}
            () = answers(from_server, to_client, &link) => {}
        }
    });
    tokio::select! {
        () = &mut traffic => {}
        () = silence.cancelled() => std::future::pending().await,
    }
}

/// State shared by the two directions of a connection.
#[derive(Debug, Default)]
struct Link {
    /// Once cancelled, answers are read but not passed on.
    deaf: CancellationToken,
    /// Notified once a write's answer is complete after that.
    answered: Notify,
}

/// Passes on the client's batches, and carries out an order at a write. Ends with the connection.
async fn requests(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    shared: &Shared,
    link: &Link,
) -> Result<()> {
    let mut batches = Batches::default();
    let mut buffer = vec![0; 16 << 10];
    loop {
        let count = client.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        batches.push(&buffer[..count]);
        while let Some(Batch { bytes, writes }) = batches.next() {
            let order = if writes { shared.due() } else { None };
            let Some(Order { how, done, .. }) = order else {
                server.write_all(&bytes).await?;
                continue;
            };
            cut(how, &bytes, &mut server, link).await?;
            // The caller that ordered the cut may have given up.
            let _ = done.send(());
            return Ok(());
        }
    }
}

async fn cut(how: Cut, bytes: &[u8], server: &mut OwnedWriteHalf, link: &Link) -> Result<()> {
    match how {
        Cut::Inside => {
            server.write_all(&bytes[..any_of(bytes.len())]).await?;
        }
        Cut::Behind => {
            link.deaf.cancel();
            server.write_all(bytes).await?;
        }
        Cut::Unheard | Cut::Silent(_) => {
            link.deaf.cancel();
            server.write_all(bytes).await?;
            tokio::time::timeout(ANSWER, link.answered.notified())
                .await
                .context("the server did not answer")?;
            if let Cut::Silent(wait) = how {
                pause(wait).await;
            }
        }
    }
    Ok(())
}

/// Passes on the server's answers; once deaf, it only reads on to detect the end of the current one.
async fn answers(mut server: OwnedReadHalf, mut client: OwnedWriteHalf, link: &Link) {
    let mut buffer = vec![0; 16 << 10];
    let mut unheard = Vec::new();
    while let Ok(count) = server.read(&mut buffer).await {
        if count == 0 {
            break;
        }
        if link.deaf.is_cancelled() {
            unheard.extend_from_slice(&buffer[..count]);
            if wire::is_ready(&unheard) {
                link.answered.notify_one();
            }
        } else if client.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
    if link.deaf.is_cancelled() {
        // The order decides when the client sees the connection close.
        link.answered.notify_one();
        std::future::pending::<()>().await;
    }
}
