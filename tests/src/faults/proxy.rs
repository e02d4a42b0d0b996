//! A proxy before Postgres that knows where a write ends, and cuts there.
//!
//! It follows the client's messages far enough to tell a batch (up to `Sync`, or one simple query)
//! that holds a write. A server must not offer TLS, since nothing could be read then.

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

/// How long the server may take to answer a write whose answer is dropped.
const ANSWER: Duration = Duration::from_secs(10);

/// Where a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Inside a write: the server never sees all of it, so nothing happened.
    Inside,
    /// When all of a write was handed over: it may happen or not.
    Behind,
    /// When the server has answered, before the client hears: it did happen.
    Unheard,
    /// The same, but the client is left waiting this long before it sees the cut.
    Silent(Duration),
}

/// What is to be cut, and who waits for it.
#[derive(Debug)]
struct Order {
    how: Cut,
    /// Writes that go by before it.
    behind: usize,
    done: oneshot::Sender<()>,
}

#[derive(Debug)]
struct Shared {
    /// The server's port.
    server: AtomicU16,
    order: Mutex<Option<Order>>,
    /// Cancelled when the connections made till then are to fall silent.
    silence: Mutex<CancellationToken>,
}

impl Shared {
    /// The order that the write which comes now is for.
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

/// Withdraws the order when dropped: nobody waits for it any more.
struct Withdrawn<'a>(&'a Shared);

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        self.0.lock().take();
    }
}

/// The proxy; it ends when dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    _task: AbortOnDropHandle<()>,
}

impl Proxy {
    /// Starts before a server on a local port.
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

    /// The address of a database behind it.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Leads new connections to another server on a local port.
    pub fn lead_to(&self, server: u16) {
        self.shared.server.store(server, Ordering::SeqCst);
    }

    /// Cuts the connection that is the next to write, and returns once that has happened. False
    /// when nobody wrote within `limit`.
    pub async fn cut(&self, how: Cut, limit: Duration) -> bool {
        self.cut_behind(0, how, limit).await
    }

    /// The same, once so many writes have gone by.
    pub async fn cut_behind(&self, behind: usize, how: Cut, limit: Duration) -> bool {
        let (done, happened) = oneshot::channel();
        *self.shared.lock() = Some(Order { how, behind, done });
        let _withdrawn = Withdrawn(&self.shared);
        let cut = tokio::time::timeout(limit, happened).await;
        matches!(cut, Ok(Ok(())))
    }

    /// Lets every connection fall silent for good without closing it, as when the server's machine
    /// loses its power. New connections are as good as ever.
    pub fn fall_silent(&self) {
        std::mem::take(&mut *self.shared.silence()).cancel();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Connections end with the listener.
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

/// One connection. Returning closes both ends.
async fn serve(client: TcpStream, shared: Arc<Shared>) {
    let port = shared.server.load(Ordering::SeqCst);
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else {
        return;
    };
    // Without it, an answer may wait for the next packet.
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

/// What the two directions of a connection know of each other.
#[derive(Debug, Default)]
struct Link {
    /// From here on answers are read but not passed on.
    deaf: CancellationToken,
    /// The answer to a write was complete after that.
    answered: Notify,
}

/// Passes the client's batches on, and carries out an order at a write. Ends with the connection.
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
            // Whoever ordered it may have given up.
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

/// Passes the server's answers on; once deaf, only reads them to the end of the one under way.
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
        // The order decides when the client sees that this is over.
        link.answered.notify_one();
        std::future::pending::<()>().await;
    }
}
