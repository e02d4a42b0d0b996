//! Metrics that are pushed: to a collector over OTLP, to a StatsD server that knows tags.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::Recorder;
use metrics_exporter_dogstatsd::{AggregationMode, DogStatsDBuilder};
use metrics_opentelemetry::{OpenTelemetryMetrics, OpenTelemetryRecorder};
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_otlp::{WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{
    Aggregation, Instrument, PeriodicReader, SdkMeterProvider, Stream,
};

use super::table;
use crate::telemetry::without_login;

/// Who is told of what is measured, beside whoever scrapes.
pub(crate) type Pushed = Box<dyn Recorder + Send + Sync>;

/// Made before the process has a runtime, and taken by [`Metrics::install`](super::Metrics::install).
static PUSHED: Mutex<Vec<Pushed>> = Mutex::new(Vec::new());

/// Where metrics are pushed to cannot be reached in this way.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The exporter over OTLP cannot be made.
    #[error("metrics cannot be exported over OTLP")]
    Otlp(#[from] opentelemetry_otlp::ExporterBuildError),
    /// The address of the StatsD server makes no sense.
    #[error(
        "metrics cannot be sent to the StatsD server {address:?}; write HOST:PORT, or unixgram:///PATH"
    )]
    Statsd {
        /// The address.
        address: String,
        /// What is wrong with it.
        #[source]
        source: metrics_exporter_dogstatsd::BuildError,
    },
}

/// Has the recorder that is installed next also tell these.
pub(crate) fn add(recorder: Pushed) {
    PUSHED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(recorder);
}

pub(super) fn take() -> Vec<Pushed> {
    std::mem::take(&mut *PUSHED.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Exports over OTLP/HTTP every `interval`, and when the provider is shut down. Histograms have the buckets that are
/// scraped. The client is a blocking one: this must be called outside of any async runtime.
pub(crate) fn otlp(
    endpoint: &str,
    resource: Resource,
    interval: Duration,
) -> Result<(SdkMeterProvider, Pushed), PushError> {
    let (endpoint, headers) = without_login(endpoint);
    let exporter = opentelemetry_otlp::MetricExporter::builder()
        .with_http()
        .with_endpoint(format!("{}/v1/metrics", endpoint.trim_end_matches('/')))
        .with_headers(headers)
        .build()?;
    let reader = PeriodicReader::builder(exporter)
        .with_interval(interval)
        .build();
    let buckets = |instrument: &Instrument| {
        let bounds = table::bounds(instrument.name())?;
        let stream = Stream::builder().with_aggregation(Aggregation::ExplicitBucketHistogram {
            boundaries: bounds.to_vec(),
            record_min_max: true,
        });
        stream.build().ok()
    };
    let provider = SdkMeterProvider::builder()
        .with_resource(resource)
        .with_reader(reader)
        .with_view(buckets)
        .build();
    let metrics = OpenTelemetryMetrics::new(provider.meter("mainspring"));
    Ok((provider, Box::new(OpenTelemetryRecorder::new(metrics))))
}

/// Sends to a StatsD server every `interval`, from a thread of its own. What is lost on the way is lost.
pub(crate) fn statsd(address: &str, role: &str, interval: Duration) -> Result<Pushed, PushError> {
    let recorder = DogStatsDBuilder::default()
        .with_remote_address(address)
        .map(|builder| {
            builder
                .with_aggregation_mode(AggregationMode::Conservative)
                .with_flush_interval(interval)
                .with_telemetry(false)
                .with_global_labels(vec![metrics::Label::new("role", role.to_owned())])
        })
        .and_then(DogStatsDBuilder::build);
    match recorder {
        Ok(recorder) => Ok(Box::new(recorder)),
        Err(source) => Err(PushError::Statsd {
            address: address.to_owned(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    const OFTEN: Duration = Duration::from_millis(50);

    #[test]
    fn a_statsd_server_is_told_with_tags() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        server
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("is set");
        let address = server.local_addr().expect("bound").to_string();
        let recorder = statsd(&address, "worker", OFTEN).expect("an address");
        metrics::with_local_recorder(&recorder, || {
            metrics::counter!("mainspring_pushed_total", "kind" => "a").increment(3);
        });
        let mut buffer = [0; 1500];
        let length = server.recv(&mut buffer).expect("a datagram");
        let text = String::from_utf8_lossy(&buffer[..length]);
        let line = text.lines().next().expect("a line");
        assert!(line.starts_with("mainspring_pushed_total:3|c|#"), "{line}");
        assert!(
            line.contains("role:worker") && line.contains("kind:a"),
            "{line}"
        );
    }

    #[test]
    fn an_address_that_makes_no_sense_is_refused() {
        let refused = statsd("nowhere", "worker", OFTEN).err().expect("no port");
        assert!(refused.to_string().contains("nowhere"), "{refused}");
    }

    #[test]
    fn a_collector_gets_what_was_counted_last_at_the_end() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let collector = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = collector.local_addr().expect("bound");
        let told = std::thread::spawn(move || {
            let (mut stream, _) = collector.accept().expect("a connection");
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
        let resource = Resource::builder()
            .with_service_name("mainspring-test")
            .build();
        let hour = Duration::from_hours(1);
        let made = otlp(&format!("http://{address}/"), resource, hour);
        let (provider, recorder) = made.expect("an endpoint");
        metrics::with_local_recorder(&recorder, || {
            metrics::counter!("pushed_end").increment(1);
        });
        provider.shutdown().expect("the last ones are exported");
        let request = told.join().expect("joins");
        assert!(request.starts_with("POST /v1/metrics "), "{request}");
        assert!(request.contains("mainspring-test"), "{request}");
    }
}
