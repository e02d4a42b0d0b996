//! A proxy between the store and its server that behaves as networks and failovers do: it loses the
//! answer to a commit, falls silent on the connections that are open, or leads to a server that
//! takes no writes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// The packet of a text that the server runs.
const QUERY: u8 = 3;

#[derive(Debug, Default)]
struct Rules {
    loses_commit: AtomicBool,
    is_demoted: AtomicBool,
    refused: AtomicUsize,
    silenced: std::sync::Mutex<CancellationToken>,
    closed: std::sync::Mutex<CancellationToken>,
}

/// The proxy, and the address of the database behind it.
#[derive(Debug)]
pub(crate) struct Proxy {
    rules: Arc<Rules>,
    pub(crate) url: String,
    _task: AbortOnDropHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(url: &str) -> Self {
        let rest = url.split_once('@').expect("the URL names a user");
        let (server, database) = rest.1.split_once('/').expect("and a database");
        let server = server.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let here = listener.local_addr().expect("its number");
        let rules = Arc::<Rules>::default();
        let task = tokio::spawn(serve(rules.clone(), listener, server));
        Self {
            rules,
            // What is read here must not be encrypted.
            url: format!("{}@{here}/{database}?ssl-mode=DISABLED", rest.0),
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// Loses the answer to the next commit, and its connection.
    pub(crate) fn lose_commit(&self) {
        self.rules.loses_commit.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_lost(&self) -> bool {
        !self.rules.loses_commit.load(Ordering::SeqCst)
    }

    /// From now on, nothing passes on the connections that are open, and nobody is told.
    pub(crate) fn silence(&self) {
        cancel(&self.rules.silenced);
    }

    /// While this is set, new connections lead to a server that takes no writes; so do those that
    /// were opened meanwhile, for ever.
    pub(crate) fn demote(&self, is_demoted: bool) {
        self.rules.is_demoted.store(is_demoted, Ordering::SeqCst);
        if is_demoted {
            self.close();
        }
    }

    /// How often a write was refused.
    pub(crate) fn refused(&self) -> usize {
        self.rules.refused.load(Ordering::SeqCst)
    }

    /// Closes the connections that are open.
    fn close(&self) {
        cancel(&self.rules.closed);
    }
}

fn cancel(current: &std::sync::Mutex<CancellationToken>) {
    let mut current = current.lock().expect("nobody panics with it");
    std::mem::take(&mut *current).cancel();
}

fn current(token: &std::sync::Mutex<CancellationToken>) -> CancellationToken {
    token.lock().expect("nobody panics with it").clone()
}

/// A packet with its header.
async fn packet(from: &mut OwnedReadHalf) -> io::Result<Vec<u8>> {
    let mut packet = vec![0; 4];
    from.read_exact(&mut packet).await?;
    let length = u32::from_le_bytes([packet[0], packet[1], packet[2], 0]) as usize;
    packet.resize(4 + length, 0);
    from.read_exact(&mut packet[4..]).await?;
    Ok(packet)
}

fn is_query(packet: &[u8], text: &str) -> bool {
    packet.get(4) == Some(&QUERY) && packet[5..].starts_with(text.as_bytes())
}

/// The refusal of a server that takes no writes.
fn refusal(answered: &[u8]) -> Vec<u8> {
    let text = b"\xff\x0a\x05#HY000The MariaDB server is running with the --read-only option";
    let length = u32::try_from(text.len()).expect("short").to_le_bytes();
    let mut packet = length[..3].to_vec();
    packet.push(answered[3] + 1);
    packet.extend(text);
    packet
}

async fn to_server(
    rules: &Rules,
    is_demoted: bool,
    (lost, mut from): (&AtomicBool, OwnedReadHalf),
    (mut to, refuse): (OwnedWriteHalf, tokio::sync::mpsc::UnboundedSender<Vec<u8>>),
) -> io::Result<()> {
    loop {
        let packet = packet(&mut from).await?;
        if is_demoted && is_query(&packet, "START TRANSACTION; INSERT") {
            rules.refused.fetch_add(1, Ordering::SeqCst);
            let _ = refuse.send(refusal(&packet));
            continue;
        }
        if is_query(&packet, "COMMIT") && rules.loses_commit.swap(false, Ordering::SeqCst) {
            lost.store(true, Ordering::SeqCst);
        }
        to.write_all(&packet).await?;
    }
}

async fn to_store(
    lost: &AtomicBool,
    mut from: OwnedReadHalf,
    (mut to, mut refused): (
        OwnedWriteHalf,
        tokio::sync::mpsc::UnboundedReceiver<Vec<u8>>,
    ),
) -> io::Result<()> {
    let mut buffer = vec![0; 16_384];
    loop {
        tokio::select! {
            read = from.read(&mut buffer) => {
                let read = read?;
                if read == 0 || lost.load(Ordering::SeqCst) {
                    return Ok(());
                }
                to.write_all(&buffer[..read]).await?;
            }
            Some(refusal) = refused.recv() => to.write_all(&refusal).await?,
        }
    }
}

async fn carry(rules: &Rules, store: TcpStream, server: &str) {
    let (silenced, closed) = (current(&rules.silenced), current(&rules.closed));
    let is_demoted = rules.is_demoted.load(Ordering::SeqCst);
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let lost = AtomicBool::new(false);
    let (store_from, store_to) = store.into_split();
    let (server_from, server_to) = server.into_split();
    let (refuse, refused) = tokio::sync::mpsc::unbounded_channel();
    let passing = async {
        tokio::select! {
            _ = to_server(rules, is_demoted, (&lost, store_from), (server_to, refuse)) => {}
            _ = to_store(&lost, server_from, (store_to, refused)) => {}
        }
    };
    tokio::pin!(passing);
    tokio::select! {
        () = &mut passing => return,
        () = closed.cancelled() => return,
        () = silenced.cancelled() => {}
    }
    // The sockets stay open.
    std::future::pending::<()>().await;
}

async fn serve(rules: Arc<Rules>, listener: TcpListener, server: String) {
    let mut carried = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (store, _) = accepted.expect("accepts");
                carried.push(carry(&rules, store, &server));
            }
            Some(()) = carried.next() => {}
        }
    }
}
