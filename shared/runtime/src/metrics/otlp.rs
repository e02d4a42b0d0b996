//! Metrics pushed to a collector over OTLP/HTTP. Nothing is counted separately for it: each export
//! is what a scrape would return at that moment, as OTLP messages.

mod convert;

use std::collections::HashMap;
use std::error::Error;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use mainspring_shared::time::{Clock as _, Timestamp};
use opentelemetry_sdk::Resource;
use percent_encoding::percent_decode_str;
use prost::Message as _;
use reqwest::blocking::Client;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use self::convert::Process;
use super::push::PushError;
use crate::SystemClock;

/// Time limit of an export; the default of OTLP's specification.
const EXPORT: Duration = Duration::from_secs(10);

/// Variables with headers for the collector, besides the endpoint's login; the first one wins.
const HEADERS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
    "OTEL_EXPORTER_OTLP_HEADERS",
];

/// A collector, and the description of this process that it gets with the metrics.
#[derive(Debug)]
pub(crate) struct Collector {
    url: String,
    headers: HeaderMap,
    process: Process,
}

/// The collector did not accept an export.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("the collector cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    #[error("the collector answered {0}")]
    Refused(reqwest::StatusCode),
}

impl Collector {
    /// A collector at an endpoint, with the headers from OpenTelemetry's environment variables and
    /// those of the endpoint's login.
    pub(crate) fn new(
        endpoint: &str,
        login: HashMap<String, String>,
        variable: impl Fn(&str) -> Option<String>,
        resource: &Resource,
    ) -> Self {
        let mut headers = HeaderMap::new();
        let named = HEADERS.iter().rev().filter_map(|name| variable(name));
        let named: Vec<_> = named.flat_map(|text| named_headers(&text)).collect();
        for (name, value) in login.into_iter().chain(named) {
            if let (Ok(name), Ok(mut value)) = (
                HeaderName::try_from(name.as_str()),
                HeaderValue::try_from(value.as_str()),
            ) {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        }
        Self {
            url: format!("{}/v1/metrics", endpoint.trim_end_matches('/')),
            headers,
            process: Process::new(resource, now()),
        }
    }

    fn export(&self, client: &Client, scraped: &str) -> Result<(), ExportError> {
        let request = client
            .post(&self.url)
            .headers(self.headers.clone())
            .header(CONTENT_TYPE, "application/x-protobuf")
            .body(self.process.request(scraped, now()).encode_to_vec());
        // The URL may contain a password.
        let answer = request.send();
        let answer = answer.map_err(|error| ExportError::Unreachable(error.without_url()))?;
        if answer.status().is_success() {
            Ok(())
        } else {
            Err(ExportError::Refused(answer.status()))
        }
    }
}

/// An error with all its causes.
fn causes(error: &ExportError) -> String {
    let mut causes = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        causes.push_str(": ");
        causes.push_str(&cause.to_string());
        next = cause.source();
    }
    causes
}

fn now() -> Timestamp {
    SystemClock::new().now()
}

/// Parses `name=value,name=value` with percent-encoded values, as specified by OpenTelemetry.
fn named_headers(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    let decoded = pairs.filter_map(|(name, value)| {
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
        Some((name.trim().to_owned(), value.into_owned()))
    });
    decoded.collect()
}

/// Exports from its own thread until it is shut down.
#[derive(Debug)]
pub(crate) struct Exporter {
    stop: Sender<()>,
    stopped: Receiver<()>,
}

impl Exporter {
    /// Exports the result of `scrape` every `interval`, once there is one.
    pub(crate) fn start(
        collector: Collector,
        interval: Duration,
        scrape: impl Fn() -> Option<String> + Send + 'static,
    ) -> Result<Self, PushError> {
        // The headers are meant for this collector alone.
        let client = Client::builder()
            .timeout(EXPORT)
            .redirect(reqwest::redirect::Policy::none())
            .build();
        let client = client.map_err(PushError::Client)?;
        let (stop, stopping) = channel();
        let (end, stopped) = channel();
        std::thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || {
                let mut failed = false;
                loop {
                    let last = stopping.recv_timeout(interval) != Err(RecvTimeoutError::Timeout);
                    let done = scrape().map(|scraped| collector.export(&client, &scraped));
                    if let Some(Err(error)) = &done
                        && !failed
                    {
                        let causes = causes(error);
                        tracing::warn!(causes, "could not export metrics");
                    }
                    failed = matches!(done, Some(Err(_)));
                    if last {
                        break;
                    }
                }
                // The caller of `shut_down` may have given up.
                let _ = end.send(());
            })
            .map_err(PushError::Thread)?;
        Ok(Self { stop, stopped })
    }

    /// Exports one last time. Returns whether the export ended in time.
    pub(crate) fn shut_down(self, within: Duration) -> bool {
        // If the thread is gone, receiving fails as well.
        let _ = self.stop.send(());
        self.stopped.recv_timeout(within).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn headers_are_those_of_the_environment_and_of_the_login() {
        let variable = |name: &str| {
            let text = match name {
                "OTEL_EXPORTER_OTLP_HEADERS" => "a=1, b = two%20words ,authorization=own,broken",
                "OTEL_EXPORTER_OTLP_METRICS_HEADERS" => "a=3",
                _ => return None,
            };
            Some(text.to_owned())
        };
        let login = HashMap::from([("authorization".to_owned(), "Basic x".to_owned())]);
        let resource = Resource::builder_empty().build();
        let collector = Collector::new("http://collector/", login, variable, &resource);
        assert_eq!(collector.url, "http://collector/v1/metrics");
        let text = |name: &str| collector.headers.get(name)?.to_str().ok();
        assert_eq!(
            [text("a"), text("b"), text("authorization"), text("broken")],
            [Some("3"), Some("two words"), Some("own"), None]
        );
    }

    #[test]
    fn a_collector_gets_what_was_counted_last_at_the_end() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let told = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let (mut request, mut piece) = (Vec::new(), [0; 4096]);
            while !request.windows(10).any(|bytes| bytes == b"pushed_end") {
                let read = stream.read(&mut piece).expect("a request");
                assert!(read > 0, "the request ends too early");
                request.extend(&piece[..read]);
            }
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            stream.write_all(answer).expect("answered");
            String::from_utf8_lossy(&request).into_owned()
        });
        let resource = Resource::builder().with_service_name("mainspring-test");
        let endpoint = format!("http://{address}/");
        let collector = Collector::new(&endpoint, HashMap::new(), |_| None, &resource.build());
        let scrape = || Some("# TYPE pushed_end counter\npushed_end 1\n".to_owned());
        let exporter = Exporter::start(collector, Duration::from_hours(1), scrape);
        let exporter = exporter.expect("a thread");
        assert!(
            exporter.shut_down(Duration::from_secs(20)),
            "the last ones are exported"
        );
        let request = told.join().expect("joins");
        assert!(request.starts_with("POST /v1/metrics "), "{request}");
        assert!(request.contains("mainspring-test"), "{request}");
    }

    #[test]
    fn a_collector_that_is_away_holds_up_nobody() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
        drop(listener);
        let resource = Resource::builder_empty().build();
        let collector = Collector::new(&endpoint, HashMap::new(), |_| None, &resource);
        let scrape = || Some(String::new());
        let exporter = Exporter::start(collector, Duration::from_millis(1), scrape);
        let exporter = exporter.expect("a thread");
        assert!(exporter.shut_down(Duration::from_secs(20)), "it ends");
    }
}
