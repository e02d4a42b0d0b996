//! A proxy between the store and its server that loses replies: the request is carried out, but the
//! caller never hears of it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use mainspring_store_postgres::{PostgresStore, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::postgres::world::{World, with_database};

/// Which reply is lost next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Loss {
    None = 0,
    /// The reply to the next statement, which commits by itself.
    Statement = 1,
    /// The reply to the next `COMMIT`.
    Commit = 2,
}

/// Handle of the proxy.
#[derive(Debug, Clone)]
pub(crate) struct LossyProxy {
    next: Arc<AtomicU8>,
}

impl LossyProxy {
    /// Loses the reply to the next statement that is run, and its connection.
    pub(crate) fn lose_statement(&self) {
        self.next.store(Loss::Statement as u8, Ordering::SeqCst);
    }

    /// Loses the reply to the next commit, and its connection.
    pub(crate) fn lose_commit(&self) {
        self.next.store(Loss::Commit as u8, Ordering::SeqCst);
    }

    /// Whether the requested loss has happened.
    pub(crate) fn has_lost(&self) -> bool {
        self.next.load(Ordering::SeqCst) == Loss::None as u8
    }

    /// Consumes the requested loss if this message of the store is the one whose reply is to be
    /// lost.
    fn takes(&self, message: &[u8]) -> bool {
        let is_commit = message[0] == b'Q' && message.windows(6).any(|text| text == b"COMMIT");
        let loss = match message[0] {
            b'B' => Loss::Statement,
            _ if is_commit => Loss::Commit,
            _ => return false,
        };
        let taken = self.next.compare_exchange(
            loss as u8,
            Loss::None as u8,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        taken.is_ok()
    }
}

/// Reads one message with its header. The first one of a connection has no type byte.
async fn message(from: &mut OwnedReadHalf, is_first: bool) -> io::Result<Vec<u8>> {
    let head = if is_first { 4 } else { 5 };
    let mut message = vec![0; head];
    from.read_exact(&mut message).await?;
    let length = message[head - 4..].try_into().expect("four bytes");
    let rest = u32::from_be_bytes(length) as usize - 4;
    message.resize(head + rest, 0);
    from.read_exact(&mut message[head..]).await?;
    Ok(message)
}

async fn to_server(
    proxy: &LossyProxy,
    lost: &AtomicBool,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
) -> io::Result<()> {
    let mut is_first = true;
    loop {
        let message = message(&mut from, is_first).await?;
        if !is_first && proxy.takes(&message) {
            lost.store(true, Ordering::SeqCst);
        }
        is_first = false;
        to.write_all(&message).await?;
    }
}

/// Forwards replies until the connection ends, or until a reply that is to be lost is complete.
async fn to_store(
    lost: &AtomicBool,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
) -> io::Result<()> {
    loop {
        let message = message(&mut from, false).await?;
        if !lost.load(Ordering::SeqCst) {
            to.write_all(&message).await?;
        } else if message[0] == b'Z' {
            return Ok(());
        }
    }
}

async fn carry(proxy: &LossyProxy, store: TcpStream, server: &str) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    // Send messages one by one, without waiting until the one before is acknowledged.
    for side in [&store, &server] {
        if side.set_nodelay(true).is_err() {
            return;
        }
    }
    let lost = AtomicBool::new(false);
    let (store_from, store_to) = store.into_split();
    let (server_from, server_to) = server.into_split();
    // When either side ends, the connection ends.
    tokio::select! {
        _ = to_server(proxy, &lost, store_from, server_to) => {}
        _ = to_store(&lost, server_from, store_to) => {}
    }
}

async fn serve(proxy: &LossyProxy, listener: TcpListener, server: &str) {
    let mut carried = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (store, _) = accepted.expect("accepts");
                carried.push(carry(proxy, store, server));
            }
            Some(()) = carried.next() => {}
        }
    }
}

/// Runs a test with a store that reaches its database through the proxy.
pub(crate) async fn with_lossy_proxy(name: &str, test: impl AsyncFnOnce(&World, &LossyProxy)) {
    with_database(name, async |url| {
        let rest = url.split_once('@').expect("the URL names a user").1;
        let (server, database) = rest.split_once('/').expect("the URL names a database");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let port = listener.local_addr().expect("is bound").port();
        let user = url.strip_suffix(rest).expect("it ends so");
        let proxy = LossyProxy {
            next: Arc::new(AtomicU8::new(Loss::None as u8)),
        };
        let settings = Settings {
            // With one writer, the next statement is the one that the test runs.
            writers: 1,
            ..Settings::new(format!("{user}127.0.0.1:{port}/{database}?sslmode=disable"))
        };
        let work = async {
            let store = PostgresStore::open(&settings).await.expect("opens");
            let t0 = mainspring_shared::store::Reads::now(&store).await;
            let world = World {
                store,
                settings: settings.clone(),
                t0: t0.expect("has a clock"),
                writes: std::sync::Mutex::default(),
            };
            test(&world, &proxy).await;
            world.store.close().await;
        };
        tokio::select! {
            () = work => {}
            () = serve(&proxy, listener, server) => unreachable!("it has no end"),
        }
    })
    .await;
}
