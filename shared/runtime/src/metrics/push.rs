//! Metrics pushed to a StatsD server that supports tags.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::Recorder;
use metrics_exporter_dogstatsd::{AggregationMode, DogStatsDBuilder};

/// A recorder that gets all measurements, in addition to the one for scrapes.
pub(crate) type Pushed = Box<dyn Recorder + Send + Sync>;

/// Added before the process has a runtime, and taken by
/// [`Metrics::install`](super::Metrics::install).
static PUSHED: Mutex<Vec<Pushed>> = Mutex::new(Vec::new());

/// A push target of metrics cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The HTTP client of the export over OTLP cannot be created.
    #[error("metrics cannot be exported over OTLP")]
    Client(#[source] reqwest::Error),
    /// The thread of the export over OTLP cannot be started.
    #[error("metrics cannot be exported over OTLP")]
    Thread(#[source] std::io::Error),
    /// The address of the StatsD server is invalid.
    #[error(
        "metrics cannot be sent to the StatsD server {address:?}; write HOST:PORT, or unixgram:///PATH"
    )]
    Statsd {
        /// The address.
        address: String,
        /// The reason.
        #[source]
        source: metrics_exporter_dogstatsd::BuildError,
    },
}

/// Adds a recorder that the next installed one also feeds.
pub(crate) fn add(recorder: Pushed) {
    PUSHED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(recorder);
}

pub(super) fn take() -> Vec<Pushed> {
    std::mem::take(&mut *PUSHED.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Sends to a StatsD server every `interval`, from its own thread. Lost packets are not resent.
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
    use std::net::UdpSocket;

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
}
