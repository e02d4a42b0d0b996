//! Logs to stderr; where an endpoint is configured, traces over OTLP; and the targets that metrics
//! are pushed to.

mod context;
mod genai;
mod jsonl;
mod lines;
mod redact;
pub mod spans;

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use opentelemetry::InstrumentationScope;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::filter::{FilterExt as _, LevelFilter, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

use mainspring_shared::secrets::split_login;

pub use self::context::{TRACEPARENT, about, accepted, carrying, traceparent};
pub use self::jsonl::{Jsonl, JsonlSettings};
pub use self::redact::redacted;
pub use crate::metrics::push::PushError;
use crate::metrics::{Metrics, otlp, push};
use crate::{Choice as _, Key, choice, settings};

/// How long shutdown waits for the last spans and metrics to be exported.
const FLUSH: Duration = Duration::from_secs(3);

settings! {
    /// Settings of logs and traces.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TelemetrySettings {
        /// The log filter: `info`, or `warn,mainspring_worker=debug`, …
        log: String = "info,apalis_core=off,rmcp=warn,sqlx=warn".to_owned() => Key::text("log");
        /// The format of log lines.
        log_format: LogFormat = LogFormat::Pretty => Key::choice("log_format", LogFormat::WORDS);
        /// The endpoint for traces, and metrics where that is asked for, over OTLP/HTTP; no export if none.
        otlp_endpoint: Option<String> => Key::url("otlp_endpoint", &["http", "https"])
            .or(&["OTEL_EXPORTER_OTLP_ENDPOINT"]);
        /// How the span of a send's work is joined to the one that accepted it.
        queue_propagation: Propagation = Propagation::Link
            => Key::choice("telemetry.queue_propagation", Propagation::WORDS);
        /// Whether spans contain messages, and tools' arguments and results.
        content: bool = false => Key::switch("telemetry.content");
        /// Whether claims and groups of statements have spans, too.
        detail: bool = false => Key::switch("telemetry.detail");
        /// Whether metrics are pushed to the endpoint, too.
        otlp_metrics: bool = false => Key::switch("telemetry.otlp_metrics");
        /// The StatsD server to which metrics are pushed, if any.
        statsd_address: Option<String> => Key::text("telemetry.statsd_address");
        /// How often metrics are pushed.
        metrics_interval: Duration = Duration::from_secs(15)
            => Key::span("telemetry.metrics_interval", Duration::from_millis(100), Duration::from_hours(1));
        /// The file to which a scheduler writes every step of every session, if any.
        jsonl_path: Option<PathBuf> => Key::text("telemetry.jsonl_path");
        /// The size in bytes at which it is rotated.
        jsonl_bytes_max: u64 = 64 << 20
            => Key::integer("telemetry.jsonl_bytes_max", 1_024, 1 << 40);
        /// Number of rotated files that are kept.
        jsonl_files_max: u32 = 5 => Key::integer("telemetry.jsonl_files_max", 1, 1_000);
        /// Interval of the check for new steps.
        jsonl_interval: Duration = Duration::from_secs(1)
            => Key::span("telemetry.jsonl_interval", Duration::from_millis(10), Duration::from_hours(1));
    }
}

impl TelemetrySettings {
    /// The settings of the journal that a scheduler writes, if it writes one.
    pub fn journal(&self) -> Option<JsonlSettings> {
        Some(JsonlSettings {
            path: self.jsonl_path.clone()?,
            bytes_max: self.jsonl_bytes_max,
            files_max: self.jsonl_files_max,
            interval: self.jsonl_interval,
        })
    }
}

choice! {
    /// How the span of deferred work is joined to the span that requested it.
    pub enum Propagation {
        /// A separate trace with a link: a session may go on for days.
        Link = "link",
        /// The same trace, as its child.
        Parent = "parent",
    }
}

choice! {
    /// How log lines look.
    pub enum LogFormat {
        /// For people.
        Pretty = "pretty",
        /// One JSON object per line.
        Json = "json",
    }
}

/// The logs and traces of this process, until this is dropped.
#[derive(Debug)]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
    metrics: Option<otlp::Exporter>,
}

/// Logs, traces or pushed metrics cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is invalid.
    #[error("log = {filter:?} is not a filter; write info, or warn,mainspring_worker=debug")]
    Filter {
        /// The filter.
        filter: String,
        /// The reason.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// The exporter of traces cannot be created.
    #[error("traces cannot be exported")]
    Exporter(#[source] opentelemetry_otlp::ExporterBuildError),
    /// The target of pushed metrics cannot be set up.
    #[error(transparent)]
    Metrics(#[from] PushError),
    /// Metrics are to be pushed over OTLP, but no endpoint is configured.
    #[error(
        "telemetry.otlp_metrics needs an endpoint; set otlp_endpoint, or OTEL_EXPORTER_OTLP_ENDPOINT"
    )]
    NoEndpoint,
    /// A subscriber is already installed in this process.
    #[error("logs are set up already")]
    Installed(#[source] tracing_subscriber::util::TryInitError),
}

impl Telemetry {
    /// Installs logs and traces for the whole process. Once per process, and outside of any async
    /// runtime, since the exporter has its own blocking client.
    pub fn install(settings: &TelemetrySettings, role: &str) -> Result<Self, TelemetryError> {
        Self::install_to(settings, role, io::stderr)
    }

    fn install_to<W>(
        settings: &TelemetrySettings,
        role: &str,
        writer: W,
    ) -> Result<Self, TelemetryError>
    where
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let provider = settings.otlp_endpoint.as_deref();
        let provider = provider
            .map(|endpoint| exporter(endpoint, role))
            .transpose()?;
        // A list rather than an `Option`: an absent layer would make the subscriber query the
        // filters for every span.
        let mut layers = vec![logs(settings, writer)?];
        layers.extend(provider.as_ref().map(traces));
        spans::set_detail(settings.detail && provider.is_some());
        let subscriber = tracing_subscriber::registry().with(layers);
        subscriber.try_init().map_err(TelemetryError::Installed)?;
        let metrics = pushing(settings, role)?;
        Ok(Self { provider, metrics })
    }

    /// Exports the last spans and metrics, within a time limit.
    pub fn shut_down(self) {
        // Nothing else may be left to report it with.
        if let Some(Err(error)) = self.provider.map(|it| it.shutdown_with_timeout(FLUSH)) {
            let _ = writeln!(io::stderr(), "the last traces were not exported: {error}");
        }
        if let Some(false) = self.metrics.map(|it| it.shut_down(FLUSH)) {
            let _ = writeln!(io::stderr(), "the last metrics were not exported in time");
        }
    }
}

/// Prepares the targets that metrics are pushed to.
fn pushing(
    settings: &TelemetrySettings,
    role: &str,
) -> Result<Option<otlp::Exporter>, TelemetryError> {
    let interval = settings.metrics_interval;
    if let Some(address) = &settings.statsd_address {
        push::add(push::statsd(address, role, interval)?);
    }
    if !settings.otlp_metrics {
        return Ok(None);
    }
    let endpoint = settings.otlp_endpoint.as_deref();
    let endpoint = endpoint.ok_or(TelemetryError::NoEndpoint)?;
    let (endpoint, login) = without_login(endpoint);
    let collector = otlp::Collector::new(&endpoint, login, variable, &resource(role));
    let exporter = otlp::Exporter::start(collector, interval, Metrics::rendered)?;
    Ok(Some(exporter))
}

/// Reads one of OpenTelemetry's own variables, as its exporter of traces does.
#[expect(clippy::disallowed_methods, reason = "these are no settings of ours")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn resource(role: &str) -> Resource {
    Resource::builder()
        .with_service_name(format!("mainspring-{role}"))
        .build()
}

type Layered = Box<dyn Layer<Registry> + Send + Sync>;

/// Exports the spans of [`spans`] and no events: those are only logged.
fn traces(provider: &SdkTracerProvider) -> Layered {
    let scope = InstrumentationScope::builder("mainspring")
        .with_version(env!("CARGO_PKG_VERSION"))
        .with_schema_url(genai::SCHEMA_URL)
        .build();
    let ours = filter_fn(|metadata| metadata.is_span() && metadata.target() == spans::TARGET);
    tracing_opentelemetry::layer()
        .with_tracer(provider.tracer_with_scope(scope))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(ours.with_max_level_hint(LevelFilter::INFO))
        .boxed()
}

/// Whether an event holds whole messages as sent on the wire: tool arguments, tool results and
/// whatever a server quotes. The `trace` level is not meant to include these.
fn is_wire(metadata: &tracing::Metadata<'_>) -> bool {
    *metadata.level() == tracing::Level::TRACE && metadata.target().starts_with("rmcp")
}

/// Fails if a text is not a valid log filter.
pub fn check_filter(text: &str) -> Result<(), TelemetryError> {
    filter(text).map(drop)
}

fn filter(text: &str) -> Result<EnvFilter, TelemetryError> {
    // It logs the values of the parameters of a database's URL that it does not know, and one of
    // them may be a password.
    let quiet = format!("{text},sqlx_postgres::options=off");
    EnvFilter::try_new(quiet).map_err(|source| TelemetryError::Filter {
        filter: text.to_owned(),
        source,
    })
}

fn logs<W>(settings: &TelemetrySettings, writer: W) -> Result<Layered, TelemetryError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = filter(&settings.log)?;
    // Spans are for traces alone: without an exporter they cost nothing.
    let logged = filter_fn(|metadata| metadata.target() != spans::TARGET && !is_wire(metadata));
    let filter = filter.and(logged.with_max_level_hint(LevelFilter::TRACE));
    let layer = fmt::layer().with_writer(writer);
    Ok(match settings.log_format {
        LogFormat::Json => layer
            .json()
            .flatten_event(true)
            .map_event_format(lines::Traced)
            .with_filter(filter)
            .boxed(),
        LogFormat::Pretty => {
            use std::io::IsTerminal;
            layer
                .with_ansi(io::stderr().is_terminal())
                .with_filter(filter)
                .boxed()
        }
    })
}

/// Splits the login off an endpoint: the client would not send it, but would log it. Returns it as
/// a header, which `OTEL_EXPORTER_OTLP_HEADERS` overrides.
pub(crate) fn without_login(endpoint: &str) -> (String, HashMap<String, String>) {
    let (endpoint, login) = split_login(endpoint);
    let login = login.map(|login| {
        let login = if login.contains(':') {
            login
        } else {
            format!("{login}:")
        };
        let value = format!("Basic {}", STANDARD.encode(login));
        ("authorization".to_owned(), value)
    });
    (endpoint, login.into_iter().collect())
}

fn exporter(endpoint: &str, role: &str) -> Result<SdkTracerProvider, TelemetryError> {
    let (endpoint, headers) = without_login(endpoint);
    let endpoint = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_endpoint(endpoint)
        .with_headers(headers)
        .build()
        .map_err(TelemetryError::Exporter)?;
    let provider = SdkTracerProvider::builder().with_resource(resource(role));
    Ok(provider.with_batch_exporter(exporter).build())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex, PoisonError};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_filter_that_makes_no_sense_is_refused() {
        let settings = TelemetrySettings {
            log: "mainspring=loud".to_owned(),
            ..TelemetrySettings::default()
        };
        assert!(matches!(
            logs(&settings, io::sink),
            Err(TelemetryError::Filter { .. })
        ));
    }

    /// One test for logs and spans, since a process has only one subscriber.
    #[test]
    fn lines_are_json_and_spans_reach_the_collector_before_the_end() {
        // The exporter's client is built for TLS even if the endpoint does not use it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let collector = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = collector.local_addr().expect("bound");
        let request = std::thread::spawn(move || {
            let (mut stream, _) = collector.accept().expect("a connection");
            let mut buffer = [0; 4096];
            let read = stream.read(&mut buffer).expect("a request");
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            stream.write_all(answer).expect("answered");
            String::from_utf8_lossy(&buffer[..read]).into_owned()
        });
        let lines = Lines::default();
        let writer = lines.clone();
        let settings = TelemetrySettings {
            log_format: LogFormat::Json,
            otlp_endpoint: Some(format!("http://{address}/")),
            ..TelemetrySettings::default()
        };
        let telemetry = Telemetry::install_to(&settings, "worker", move || writer.clone());
        let telemetry = telemetry.expect("the first subscriber");
        // Other crates' spans are not exported, and our own events are only logged.
        let span = spans::request("GET", "/v1/sends", "r-1", None);
        span.in_scope(|| tracing::info!(round.index = 3, "done"));
        drop(span);
        tracing::info_span!("round").in_scope(|| tracing::info!("outside"));
        telemetry.shut_down();
        assert!(
            request
                .join()
                .expect("joins")
                .starts_with("POST /v1/traces ")
        );
        let bytes = lines
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let text = String::from_utf8(bytes).expect("text");
        let line: serde_json::Value =
            serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
        assert_eq!(line["round.index"], 3);
        assert_eq!(line["message"], "done");
        assert_eq!(line["trace_id"].as_str().map(str::len), Some(32), "{line}");
        assert_eq!(line["span_id"].as_str().map(str::len), Some(16), "{line}");
        let outside = text.lines().nth(1).expect("a line");
        assert!(!outside.contains("trace_id"), "{outside}");
    }
}
