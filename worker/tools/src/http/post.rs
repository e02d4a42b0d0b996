//! Webhooks: posted like tool calls, to the same addresses and signed in the same way.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_runtime::OsEntropy;
use mainspring_runtime::telemetry::TRACEPARENT;
use mainspring_shared::retry::retry_after;
use mainspring_shared::time::{Clock, Span};
use mainspring_shared::webhook::{Outgoing, Posted, Poster};
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use tokio::time::timeout;

use super::call::target;
use super::fault::Fault;
use super::sign::Keys;
use super::{Caller, CallerSettings, SetupError};

/// Posts webhooks over one client.
#[derive(Debug, Clone)]
pub struct WebhookPoster {
    caller: Caller,
}

impl WebhookPoster {
    /// A poster that reaches public addresses and those in `allow_private`, and gives an endpoint
    /// this long to respond. Only the status of the response is read.
    pub fn new(
        allow_private: &[String],
        limit: Duration,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SetupError> {
        let settings = CallerSettings {
            allow_private: allow_private.to_vec(),
            private_setting: "scheduler.webhook_allow_private",
            timeout: limit,
            ..CallerSettings::default()
        };
        let caller = Caller::new(&settings, clock, Arc::new(OsEntropy))?;
        Ok(Self { caller })
    }

    async fn exchange(&self, message: Outgoing) -> Result<Posted, String> {
        let shared = &self.caller.shared;
        let url = target(&message.url, &shared.addresses)?;
        let client = shared.client().map_err(|error| {
            tracing::error!(%error, "could not create the HTTP client for webhooks");
            "this scheduler has no HTTP client".to_owned()
        })?;
        let keys = Keys::of_bytes(message.keys.iter().map(|key| key.bytes().to_vec()));
        let mut headers = keys.headers(&message.id, shared.clock.now(), &message.body);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let traceparent = message.traceparent.as_deref();
        if let Some(Ok(traceparent)) = traceparent.map(HeaderValue::from_str) {
            headers.insert(TRACEPARENT, traceparent);
        }
        let request = client.post(url).headers(headers).body(message.body);
        let response = request.send().await;
        let response = response.map_err(|error| Fault::of(&error).what())?;
        let headers = response.headers();
        let header = |name: &str| headers.get(name)?.to_str().ok();
        let status = response.status().as_u16();
        let asked = retry_after(header, shared.clock.now());
        Ok(Posted::Answered {
            status,
            retry_after: asked.filter(|_| matches!(status, 429 | 503)),
        })
    }
}

#[async_trait]
impl Poster for WebhookPoster {
    fn check(&self, url: &str) -> Result<(), String> {
        target(url, &self.caller.shared.addresses).map(drop)
    }

    async fn post(&self, message: Outgoing) -> Posted {
        let limit = self.caller.shared.timeout;
        let exchange = Box::pin(self.exchange(message));
        match timeout(limit, exchange).await {
            Ok(Ok(posted)) => posted,
            Ok(Err(why)) => Posted::Failed { why },
            Err(_) => Posted::Failed {
                why: format!("took longer than {}", Span(limit)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use mainspring_runtime::SystemClock;
    use mainspring_shared::webhook::SigningKey;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(300);
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn poster(allowed: &[&str]) -> WebhookPoster {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let allowed: Vec<String> = allowed.iter().map(|&it| it.to_owned()).collect();
        WebhookPoster::new(&allowed, LIMIT, Arc::new(SystemClock::new())).expect("good settings")
    }

    fn message(url: String) -> Outgoing {
        Outgoing {
            url,
            id: "evt_1".to_owned(),
            body: b"{}".to_vec(),
            keys: vec![SigningKey::new(vec![7; 32]).expect("a secret")],
            traceparent: Some(TRACE.to_owned()),
        }
    }

    async fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let at = listener.local_addr().expect("an address");
        (listener, at)
    }

    /// An endpoint that gives each request this response, after this delay; returns what it read.
    #[expect(
        clippy::disallowed_methods,
        reason = "an endpoint outside has a clock of its own"
    )]
    async fn endpoint(
        answer: &'static str,
        after: Duration,
    ) -> (SocketAddr, Arc<std::sync::Mutex<String>>) {
        let (listener, at) = listener().await;
        let read = Arc::<std::sync::Mutex<String>>::default();
        let kept = read.clone();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut bytes = vec![0; 4_096];
                let count = socket.read(&mut bytes).await.unwrap_or(0);
                let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                kept.lock().expect("no panic").push_str(&text);
                tokio::time::sleep(after).await;
                let _ = socket.write_all(answer.as_bytes()).await;
            }
        });
        (at, read)
    }

    #[tokio::test]
    async fn a_message_has_an_id_a_time_and_a_signature() {
        let (at, read) = endpoint("HTTP/1.1 204 No Content\r\n\r\n", Duration::ZERO).await;
        let posted = poster(&["127.0.0.1"])
            .post(message(format!("http://{at}/hook")))
            .await;
        let retry_after = None;
        assert_eq!(
            posted,
            Posted::Answered {
                status: 204,
                retry_after
            }
        );
        let read = read.lock().expect("no panic").to_lowercase();
        for header in [
            "webhook-id: evt_1",
            "webhook-timestamp: 1",
            "webhook-signature: v1,",
            &format!("traceparent: {TRACE}"),
        ] {
            assert!(read.contains(header), "{header}: {read}");
        }
        assert!(read.contains("content-type: application/json"), "{read}");
    }

    #[tokio::test]
    async fn a_redirect_is_an_answer_and_not_followed() {
        let (inward, within) = listener().await;
        let answer = format!(
            "HTTP/1.1 302 Found\r\nlocation: http://{within}/\r\ncontent-length: 0\r\n\r\n"
        );
        let (at, _) = endpoint(Box::leak(answer.into_boxed_str()), Duration::ZERO).await;
        let posted = poster(&["127.0.0.1"])
            .post(message(format!("http://{at}")))
            .await;
        assert!(
            matches!(posted, Posted::Answered { status: 302, .. }),
            "{posted:?}"
        );
        let reached = timeout(Duration::from_millis(50), inward.accept()).await;
        assert!(reached.is_err(), "nobody comes there");
    }

    #[tokio::test]
    async fn private_addresses_are_refused_by_number_and_by_name() {
        let poster = poster(&[]);
        let (listener, at) = listener().await;
        for url in [
            format!("http://{at}"),
            "http://10.1.2.3/".to_owned(),
            "http://[::1]/".to_owned(),
        ] {
            let why = poster.check(&url).expect_err(&url);
            assert!(why.contains("scheduler.webhook_allow_private"), "{why}");
        }
        assert!(poster.check("ftp://a.example").is_err());
        assert!(poster.check("https://a.example/hook").is_ok());
        // The name passes the check, the address it resolves to does not.
        let url = format!("http://localhost:{}", at.port());
        assert!(poster.check(&url).is_ok());
        let Posted::Failed { why } = poster.post(message(url)).await else {
            panic!("it was posted");
        };
        assert!(why.contains("not allowed"), "{why}");
        let reached = timeout(Duration::from_millis(50), listener.accept()).await;
        assert!(reached.is_err(), "nobody comes there");
    }

    #[tokio::test]
    async fn a_name_that_is_unknown_and_one_that_is_not_allowed_read_alike() {
        let poster = poster(&[]);
        let mut told = Vec::new();
        for name in ["localhost", "nothing.invalid"] {
            let Posted::Failed { why } = poster.post(message(format!("http://{name}/"))).await
            else {
                panic!("it was posted");
            };
            told.push(why);
        }
        assert_eq!(told[0], told[1]);
    }

    #[tokio::test]
    async fn who_is_slow_late_or_away_has_not_taken_it() {
        let late = endpoint("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", LIMIT * 2).await;
        let (closed, away) = listener().await;
        drop(closed);
        for (at, expected) in [(late.0, "took longer than 300ms"), (away, "no connection")] {
            let posted = poster(&["127.0.0.1"])
                .post(message(format!("http://{at}")))
                .await;
            let Posted::Failed { why } = posted else {
                panic!("it was taken: {posted:?}");
            };
            assert!(why.contains(expected), "{why}");
        }
    }

    /// An endpoint that responds with this and keeps sending more as long as the client reads; also
    /// counts the bytes.
    async fn endless(head: &'static str) -> (SocketAddr, Arc<std::sync::atomic::AtomicUsize>) {
        let (listener, at) = listener().await;
        let taken = Arc::<std::sync::atomic::AtomicUsize>::default();
        let counted = taken.clone();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut bytes = vec![0; 4_096];
                let _ = socket.read(&mut bytes).await;
                let mut more = socket.write_all(head.as_bytes()).await.is_ok();
                let piece = vec![b'x'; 65_536];
                while more {
                    more = socket.write_all(&piece).await.is_ok();
                    counted.fetch_add(piece.len(), std::sync::atomic::Ordering::Relaxed);
                }
            }
        });
        (at, taken)
    }

    #[tokio::test]
    async fn an_answer_without_an_end_is_not_read() {
        let whole = "HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n";
        let open = "HTTP/1.1 200 OK\r\n\r\n";
        for head in [whole, open] {
            let (at, taken) = endless(head).await;
            let posted = poster(&["127.0.0.1"])
                .post(message(format!("http://{at}")))
                .await;
            // It acknowledged the message, and nothing else is asked of it.
            assert!(
                matches!(posted, Posted::Answered { status: 200, .. }),
                "{head}: {posted:?}"
            );
            // What fits into the buffers of two sockets was sent, and nobody waits for the rest.
            let taken = taken.load(std::sync::atomic::Ordering::Relaxed);
            assert!(taken < 64 << 20, "{head}: {taken} bytes");
        }
    }

    #[tokio::test]
    async fn a_head_without_an_end_is_no_answer() {
        // One header line that never ends: the bytes read hit their limit before the timeout.
        let (at, taken) = endless("HTTP/1.1 200 OK\r\nx: ").await;
        let posted = poster(&["127.0.0.1"])
            .post(message(format!("http://{at}")))
            .await;
        assert!(matches!(posted, Posted::Failed { .. }), "{posted:?}");
        let taken = taken.load(std::sync::atomic::Ordering::Relaxed);
        assert!(taken < 64 << 20, "{taken} bytes");
    }

    #[tokio::test]
    async fn what_is_no_answer_is_a_failure_and_what_is_behind_a_good_one_harms_nobody() {
        for (answer, taken) in [
            ("200 OK\r\n\r\n", false),
            ("HTTP/9.9 200 OK\r\n\r\n", false),
            ("HTTP/1.1 999999 OK\r\n\r\n", false),
            ("HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", false),
            ("{\"status\": 200}", false),
            // The body does not match its head, but nobody reads it.
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{{{{{{", true),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nxxx",
                true,
            ),
        ] {
            let (at, _) = endpoint(answer, Duration::ZERO).await;
            let poster = poster(&["127.0.0.1"]);
            // The second request must not get a connection that the first left in a bad state.
            for _ in 0..2 {
                let posted = poster.post(message(format!("http://{at}"))).await;
                let is_taken = matches!(posted, Posted::Answered { status: 200, .. });
                assert_eq!(is_taken, taken, "{answer}: {posted:?}");
            }
        }
    }

    #[tokio::test]
    async fn who_is_busy_says_for_how_long() {
        let busy =
            "HTTP/1.1 503 Service Unavailable\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n";
        let (at, _) = endpoint(busy, Duration::ZERO).await;
        let posted = poster(&["127.0.0.1"])
            .post(message(format!("http://{at}")))
            .await;
        let retry_after = Some(Duration::from_mins(1));
        assert_eq!(
            posted,
            Posted::Answered {
                status: 503,
                retry_after
            }
        );
    }
}
