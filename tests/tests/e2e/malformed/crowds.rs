//! Thousands of connections that do nothing or too little, and a flood of malformed requests.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;
use mainspring_tests::faults::{blocking, monotonic, pause};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::cases::Case;
use super::{Manner, PATIENCE, exchange, head_of_post, judge, on_one_thread, statuses};

/// Total number of idle connections, unless more are requested.
const IDLE: usize = 5_000;

/// Number of connections that are idle at once: as many as the usual limit of open files allows.
const IDLE_AT_ONCE: usize = 500;

/// The same if more than usual are requested. Each is left alone for less than `PATIENCE`, so that
/// all of them are open on the server, too.
const IDLE_AT_ONCE_MAX: usize = 5_000;

/// The pause between two bursts of new connections.
const IDLE_PAUSE: Duration = Duration::from_millis(20);

/// Number of connections that send one byte at a time.
const SLOW: usize = 100;

/// The pause between two of their bytes.
const DRIP: Duration = Duration::from_millis(200);

/// Number of flooding clients.
const FLOODING: usize = 2;

/// Distance in the list between consecutive cases: similar cases are listed together, and every
/// crowd should send some of each kind. A prime that does not divide the number of cases.
const STRIDE: usize = 61;

/// Niceness of the crowd's thread, so that everyone else takes precedence.
const YIELDING: i32 = 5;

/// The size of the crowds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dose {
    /// Total number of idle connections.
    pub(super) idle: usize,
    idle_at_once: usize,
    /// How many of them are opened together.
    burst: usize,
    /// The pause of each flooding client between two requests.
    flood_pause: Duration,
    /// How long each crowd stays.
    pub(super) phase: Duration,
}

impl Dose {
    /// The default dose, or one with this many idle connections.
    pub(super) fn of(idle: Option<usize>) -> Self {
        let at_once = idle.map_or(IDLE_AT_ONCE, |all| {
            (all / 20).clamp(IDLE_AT_ONCE, IDLE_AT_ONCE_MAX)
        });
        Self {
            idle: idle.unwrap_or(IDLE),
            idle_at_once: at_once,
            burst: if idle.is_some() { at_once / 100 } else { 12 },
            flood_pause: Duration::from_millis(if idle.is_some() { 50 } else { 100 }),
            phase: Duration::from_millis(if idle.is_some() { 5_000 } else { 1_500 }),
        }
    }

    /// Number of connections that are open at once.
    pub(super) fn open_at_once(self) -> usize {
        self.idle_at_once + SLOW + FLOODING
    }
}

/// What a crowd did and saw.
#[derive(Debug, Default)]
pub(super) struct CrowdReport {
    /// Number of connections that were opened and left idle.
    pub(super) idle: usize,
    /// Number of connections that sent a byte at a time.
    slow: usize,
    /// Number of malformed requests.
    requests: usize,
    /// What should not have happened.
    pub(super) faults: Vec<String>,
}

impl CrowdReport {
    pub(super) fn add(&mut self, other: Self) {
        self.idle += other.idle;
        self.slow += other.slow;
        self.requests += other.requests;
        self.faults.extend(other.faults);
    }
}

/// A crowd that stays until it is told to leave. It has a thread of its own: measurements are
/// delayed not by what it does here, only by what it makes the server do.
#[derive(Debug)]
pub(super) struct Crowd {
    leaving: Arc<AtomicBool>,
    thread: JoinHandle<Result<CrowdReport>>,
}

impl Crowd {
    /// Starts the crowd; measurements need not wait for the last connection.
    pub(super) fn gather(address: &str, dose: Dose, cases: &Arc<Vec<Case>>) -> Self {
        let leaving = Arc::new(AtomicBool::new(false));
        let here = || (address.to_owned(), leaving.clone());
        let (idle, slow) = (idle(here(), dose), slow(here()));
        let floods =
            join_all((0..FLOODING).map(|_| flood(here(), dose.flood_pause, cases.clone())));
        let all = async move {
            let (idle, slow, floods) = tokio::join!(idle, slow, floods);
            let mut report = CrowdReport::default();
            for one in floods.into_iter().chain([idle, slow]) {
                report.add(one?);
            }
            Ok(report)
        };
        let thread = std::thread::spawn(move || {
            // The crowd stands for other machines, so everyone else on this machine goes first.
            rustix::process::nice(YIELDING)?;
            on_one_thread(all)?
        });
        Self { leaving, thread }
    }

    /// Ends the crowd; returns what it did and saw.
    pub(super) fn leave(self) -> Result<CrowdReport> {
        self.leaving.store(true, Ordering::Relaxed);
        blocking(|| self.thread.join().expect("no panic"))
    }
}

type Here = (String, Arc<AtomicBool>);

/// Connects from one of many local addresses, so that ports do not run out: a closed connection
/// keeps its port for a minute.
async fn connect(address: &str) -> Result<TcpStream> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let from = Ipv4Addr::new(127, 0, 0, u8::try_from(n % 200)? + 2);
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    Ok(socket.connect(address.parse()?).await?)
}

async fn idle((address, leaving): Here, dose: Dose) -> Result<CrowdReport> {
    let mut open = VecDeque::new();
    let mut report = CrowdReport::default();
    while !leaving.load(Ordering::Relaxed) {
        for _ in 0..dose.burst {
            if open.len() == dose.idle_at_once {
                open.pop_front();
            }
            open.push_back(connect(&address).await?);
            report.idle += 1;
        }
        pause(IDLE_PAUSE).await;
    }
    Ok(report)
}

async fn slow((address, leaving): Here) -> Result<CrowdReport> {
    let mut open = Vec::new();
    for n in 0..SLOW {
        let mut stream = connect(&address).await?;
        if n % 2 == 0 {
            stream.write_all(head_of_post(1_000).as_bytes()).await?;
        }
        open.push(stream);
    }
    while !leaving.load(Ordering::Relaxed) {
        for stream in &mut open {
            // Some are already closed.
            let _ = stream.write_all(b"a").await;
        }
        pause(DRIP).await;
    }
    Ok(CrowdReport {
        slow: open.len(),
        ..CrowdReport::default()
    })
}

async fn flood(
    (address, leaving): Here,
    between: Duration,
    cases: Arc<Vec<Case>>,
) -> Result<CrowdReport> {
    // Continues where the previous crowd stopped, so that all cases have their turn.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    ensure!(!cases.len().is_multiple_of(STRIDE), "{} cases", cases.len());
    let mut report = CrowdReport::default();
    while !leaving.load(Ordering::Relaxed) {
        let case = &cases[NEXT.fetch_add(STRIDE, Ordering::Relaxed) % cases.len()];
        let statuses = exchange(&address, case, Manner::Hurried).await?;
        // Other clients' bodies take up part of the room, so a 429 is legitimate.
        if statuses != [429] {
            report.faults.extend(judge(case, &statuses));
        }
        report.requests += 1;
        pause(between).await;
    }
    Ok(report)
}

/// Asserts that connections that send a head or a body byte by byte are closed once their time is
/// up, and not before.
pub(super) async fn who_is_slow_is_sent_away(address: &str) -> Result<()> {
    let heads = (0..SLOW).map(|_| drip(address, String::new()));
    let bodies = (0..SLOW).map(|_| drip(address, head_of_post(1_000)));
    let heads = join_all(heads);
    let bodies = join_all(bodies);
    let (heads, bodies) = tokio::join!(heads, bodies);
    for (ends, expected) in [(heads, &[][..]), (bodies, &[400])] {
        for end in ends {
            let (took, statuses) = end?;
            let soon = PATIENCE.mul_f64(0.9)..PATIENCE.mul_f64(2.0);
            ensure!(soon.contains(&took), "closed after {took:?}");
            ensure!(statuses == expected, "slow: {statuses:?}");
        }
    }
    Ok(())
}

/// Opens a connection that sends this at once and then a byte at a time; returns how long it lasts,
/// and what it was answered.
async fn drip(address: &str, at_once: String) -> Result<(Duration, Vec<u16>)> {
    let began = monotonic();
    let mut stream = connect(address).await?;
    stream.write_all(at_once.as_bytes()).await?;
    let (mut reader, mut writer) = stream.split();
    let drips = async {
        while writer.write_all(b"a").await.is_ok() {
            pause(DRIP).await;
        }
    };
    let mut heard = Vec::new();
    let hears = reader.read_to_end(&mut heard);
    let end = tokio::time::timeout(4 * PATIENCE, async {
        tokio::select! {
            () = drips => {}
            _ = hears => {}
        }
    });
    end.await.context("it stays open")?;
    let took = monotonic().saturating_sub(began);
    Ok((took, statuses(&heard)))
}
