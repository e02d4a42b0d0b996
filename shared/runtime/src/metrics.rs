//! Metrics, collected in the process and rendered on demand.

pub(crate) mod push;

use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_util::layers::FanoutBuilder;

use crate::Lifecycle;

/// Bounds of the buckets of everything that ends in `_seconds`: from a commit on a local disk to a
/// long answer of a model.
const SECONDS: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0,
    600.0,
];

/// Interval at which histograms are folded into their buckets. Samples stay in memory until the
/// next scrape, so a process that is not scraped has to fold by itself.
const UPKEEP: Duration = Duration::from_secs(5);

/// The metrics of this process, for `/metrics`.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

/// Metrics cannot be collected.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The buckets make no sense.
    #[error("metrics cannot be collected")]
    Build(#[from] metrics_exporter_prometheus::BuildError),
    /// Another recorder is already installed in this process.
    #[error("metrics are collected already")]
    Installed,
}

impl Metrics {
    /// Installs the recorder for all crates of the process, which also tells those to whom
    /// [`Telemetry::install`](crate::Telemetry::install) was to push. Once per process.
    pub fn install() -> Result<Self, MetricsError> {
        let seconds = Matcher::Suffix("_seconds".to_owned());
        let builder = PrometheusBuilder::new().set_buckets_for_metric(seconds, &SECONDS)?;
        let scraped = builder.build_recorder();
        let handle = scraped.handle();
        let pushed = push::take();
        let installed = if pushed.is_empty() {
            metrics::set_global_recorder(scraped).is_ok()
        } else {
            let mut all = FanoutBuilder::default().add_recorder(scraped);
            for recorder in pushed {
                all = all.add_recorder(recorder);
            }
            metrics::set_global_recorder(all.build()).is_ok()
        };
        if installed {
            Ok(Self(handle))
        } else {
            Err(MetricsError::Installed)
        }
    }

    /// Keeps memory bounded until shutdown.
    #[expect(
        clippy::disallowed_methods,
        reason = "upkeep is no business of the tests' clock"
    )]
    pub fn keep_up(&self, lifecycle: &Lifecycle) {
        let (handle, stopping) = (self.0.clone(), lifecycle.stopping());
        lifecycle.spawn(async move {
            let mut stopping = std::pin::pin!(stopping);
            while tokio::select! {
                () = &mut stopping => false,
                () = tokio::time::sleep(UPKEEP) => true,
            } {
                handle.run_upkeep();
            }
        });
    }

    /// All metrics in the Prometheus text format.
    pub fn render(&self) -> String {
        self.0.render()
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_rendered_and_a_second_collector_is_refused() {
        let metrics = Metrics::install().expect("the first");
        metrics::counter!("mainspring_test_total").increment(3);
        metrics::histogram!("mainspring_test_seconds").record(0.003);
        let text = metrics.render();
        assert!(text.contains("mainspring_test_total 3"), "{text}");
        assert!(
            text.contains("mainspring_test_seconds_bucket{le=\"0.005\"} 1"),
            "{text}"
        );
        assert!(Metrics::install().is_err());
    }
}
