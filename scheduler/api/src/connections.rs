//! Connections: how many are accepted, and how long one may stay idle.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::Request;
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use mainspring_runtime::Lifecycle;
use mainspring_scheduler::SchedulerConfig;
use mainspring_scheduler::error::Error;
use mainspring_shared::time::Clock;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Sleep;
use tokio_util::task::TaskTracker;
use tower::Service;

use crate::problem::Problem;

/// Maximum number of connections that are being told that there is no capacity for them. Any more
/// are closed without a response.
const REFUSALS_MAX: usize = 256;

/// How long telling one of them may take.
const REFUSAL_MAX: Duration = Duration::from_secs(1);

/// How much of that time is spent waiting for its request, which may be a probe that is answered.
const QUESTION_MAX: Duration = Duration::from_millis(500);

/// How many bytes of its request are read.
const QUESTION_BYTES_MAX: usize = 2_048;

/// How often an HTTP/2 client is pinged, and how long it may take to answer.
const PING: Duration = Duration::from_secs(20);

/// Pause after the system ran out of resources for connections.
const EXHAUSTED: Duration = Duration::from_secs(1);

/// In how many steps a connection is watched for requests while it has none.
const IDLE_STEPS: u32 = 4;

/// How many connections there may be, how long one may make no progress, and how long a head may
/// be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    pub(crate) connections: usize,
    pub(crate) head: Duration,
    pub(crate) head_bytes: usize,
    pub(crate) write: Duration,
}

impl ConnectionLimits {
    pub(crate) fn of(config: &SchedulerConfig) -> Self {
        Self {
            connections: config.connections_max,
            head: config.head_timeout,
            head_bytes: config.head_bytes_max,
            write: config.write_timeout,
        }
    }
}

/// The requests of one connection.
#[derive(Debug, Default)]
struct Requests {
    /// How many there have been.
    begun: AtomicUsize,
    /// How many of them are not answered to the end.
    open: AtomicUsize,
}

/// An open request.
struct Open(Arc<Requests>);

impl Requests {
    fn begin(self: &Arc<Self>) -> Open {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        Open(self.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A body of an answer, which keeps its request open until it has been sent.
struct Answer {
    body: Body,
    _open: Open,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Watches a connection for requests.
#[derive(Default)]
struct Idle {
    steps: u32,
    begun: usize,
}

impl Idle {
    /// Looks at a connection once per step. Returns whether it has had no request for long enough.
    fn is_over(&mut self, requests: &Requests) -> bool {
        let begun = requests.begun.load(Ordering::Relaxed);
        if requests.open.load(Ordering::Relaxed) > 0 || begun != self.begun {
            self.begun = begun;
            self.steps = 0;
        } else {
            self.steps += 1;
        }
        self.steps >= IDLE_STEPS
    }
}

/// Serves connections until `lifecycle` stops, and then until the requests in flight have been
/// answered.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    clock: &dyn Clock,
    lifecycle: &Lifecycle,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
    let tasks = TaskTracker::new();
    let mut stopping = pin!(lifecycle.stopping());
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stopping => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) if is_of_the_peer(&error) => continue,
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection; will retry");
                tokio::select! {
                    biased;
                    () = &mut stopping => break,
                    () = clock.sleep(EXHAUSTED) => continue,
                }
            }
        };
        if let Ok(place) = places.clone().try_acquire_owned() {
            let serving = connection(stream, router.clone(), limits, lifecycle.clone());
            tasks.spawn(async move {
                serving.await;
                drop(place);
            });
        } else {
            let problem = Problem::from(Error::too_much("connection"));
            if let Ok(refusal) = refusals.clone().try_acquire_owned() {
                tasks.spawn(async move {
                    // A client that does not read the response in time is disconnected.
                    let _ = tokio::time::timeout(REFUSAL_MAX, refuse(stream, &problem)).await;
                    drop(refusal);
                });
            }
        }
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

/// Whether accepting failed because of the peer.
fn is_of_the_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

#[expect(
    clippy::disallowed_methods,
    reason = "sockets live in the runtime's time, as hyper's own timers do"
)]
async fn connection(
    stream: TcpStream,
    router: Router,
    limits: ConnectionLimits,
    lifecycle: Lifecycle,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::trace!(%error, "could not set TCP_NODELAY; small responses may be delayed");
    }
    let requests = Arc::new(Requests::default());
    let service = service_fn({
        let requests = requests.clone();
        move |request: Request<Incoming>| {
            let open = requests.begin();
            let answering = router.clone().call(request.map(Body::new));
            async move {
                let answer = answering.await?;
                Ok::<_, Infallible>(answer.map(|body| Answer { body, _open: open }))
            }
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // Counted from the previous response, so it also closes idle connections.
        .header_read_timeout(limits.head)
        .max_buf_size(limits.head_bytes.max(8 << 10));
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX));
    let stream = TokioIo::new(WriteLimited {
        stream,
        write_timeout: limits.write,
        stuck: None,
    });
    let mut serving = pin!(builder.serve_connection(stream, service));
    // Before the first request the protocol is unknown, so hyper's timeouts do not apply yet; and
    // for HTTP/2 it has none: its pings keep a connection that never asks for anything.
    let mut idle = Idle::default();
    let step = limits.head / IDLE_STEPS;
    let mut look = pin!(tokio::time::sleep(step));
    let mut stopping = pin!(lifecycle.stopping());
    let mut aborting = pin!(lifecycle.aborting());
    let mut is_stopping = false;
    loop {
        tokio::select! {
            biased;
            ended = serving.as_mut() => {
                if let Err(error) = ended {
                    tracing::trace!(error, "a connection broke");
                }
                return;
            }
            () = &mut aborting => return,
            () = &mut stopping, if !is_stopping => {
                is_stopping = true;
                serving.as_mut().graceful_shutdown();
            }
            () = &mut look => {
                if idle.is_over(&requests) {
                    return;
                }
                let next = look.deadline() + step;
                look.as_mut().reset(next);
            }
        }
    }
}

/// Responds that there is no capacity, and waits until the client has read that. Liveness probes
/// get a positive answer: a process at capacity must not be mistaken for dead and restarted.
async fn refuse(mut stream: TcpStream, problem: &Problem) -> io::Result<()> {
    let mut head = Vec::with_capacity(QUESTION_BYTES_MAX);
    // A client that sends nothing in time gets the response too.
    if let Ok(read) = tokio::time::timeout(QUESTION_MAX, question(&mut stream, &mut head)).await {
        read?;
    }
    let answer = if asks_for_life(&head) {
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8\r\n\
        content-length: 3\r\nconnection: close\r\n\r\nok\n"
            .to_owned()
    } else {
        let body = serde_json::to_string(problem).unwrap_or_default();
        format!(
            "HTTP/1.1 {} Too Many Requests\r\ncontent-type: application/problem+json\r\n\
            content-length: {}\r\nretry-after: 1\r\nconnection: close\r\n\r\n{body}",
            problem.status(),
            body.len(),
        )
    };
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // Closing a socket with unread data would discard the response.
    let mut unread = [0; 4096];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}

/// Reads a request's head to its end, or up to the limit.
async fn question(stream: &mut TcpStream, head: &mut Vec<u8>) -> io::Result<()> {
    let mut piece = [0; 512];
    while head.len() < QUESTION_BYTES_MAX && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut piece).await?;
        if read == 0 {
            break;
        }
        head.extend_from_slice(&piece[..read]);
    }
    Ok(())
}

/// Whether a request's head is that of `GET /livez`.
fn asks_for_life(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let path = |target: &[u8]| target.split(|byte| *byte == b'?').next() == Some(b"/livez");
    words.next() == Some(b"GET")
        && words.next().is_some_and(path)
        && words
            .next()
            .is_some_and(|version| version.starts_with(b"HTTP/1."))
}

/// A connection that fails if the peer reads nothing for too long.
struct WriteLimited {
    stream: TcpStream,
    write_timeout: Duration,
    stuck: Option<Pin<Box<Sleep>>>,
}

impl WriteLimited {
    /// The result of a write, or a timeout if it has been pending for too long.
    #[expect(
        clippy::disallowed_methods,
        reason = "sockets live in the runtime's time, as hyper's own timers do"
    )]
    fn within<T>(
        &mut self,
        cx: &mut Context<'_>,
        wrote: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.stuck = None;
            return wrote;
        }
        let write_timeout = self.write_timeout;
        let stuck = self
            .stuck
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(write_timeout)));
        ready!(stuck.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for WriteLimited {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for WriteLimited {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.within(cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.within(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.within(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.within(cx, shut)
    }
}
