//! Metrics, collected in the process and rendered on demand.

mod connections;
pub(crate) mod otlp;
pub(crate) mod push;
mod table;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mainspring_shared::store::Store;
use mainspring_shared::time::Clock;
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use metrics_util::layers::FanoutBuilder;

pub use self::table::{Kind, METRICS, Metric};
use crate::Lifecycle;

/// Interval at which histograms are folded into their buckets. Samples stay in memory until the
/// next scrape, so a process that is not scraped has to fold by itself.
const UPKEEP: Duration = Duration::from_secs(5);

/// The recorder that was installed.
static INSTALLED: OnceLock<PrometheusHandle> = OnceLock::new();

/// The metrics of this process, for `/metrics`.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

/// Metrics cannot be collected.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The buckets are invalid.
    #[error("metrics cannot be collected")]
    Build(#[from] metrics_exporter_prometheus::BuildError),
    /// Another recorder is already installed in this process.
    #[error("metrics are collected already")]
    Installed,
}

impl Metrics {
    /// Installs the recorder for all crates of the process. It also feeds the push targets that
    /// [`Telemetry::install`](crate::Telemetry::install) prepared. Once per process.
    pub fn install() -> Result<Self, MetricsError> {
        let scraped = recorder()?;
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
        if !installed {
            return Err(MetricsError::Installed);
        }
        for metric in METRICS {
            metric.describe();
        }
        // Cannot be set already: only one recorder can be installed.
        let _ = INSTALLED.set(handle.clone());
        Ok(Self(handle))
    }

    /// Runs `work` and returns what it measured on this thread, as a scrape would show it. For
    /// tests: installs nothing.
    pub fn of<T>(work: impl FnOnce() -> T) -> Result<(T, String), MetricsError> {
        let recorder = recorder()?;
        let done = metrics::with_local_recorder(&recorder, work);
        Ok((done, recorder.handle().render()))
    }

    /// Folds histograms regularly until shutdown, which keeps memory bounded.
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

    /// Measures the store's connections until shutdown.
    pub fn watch_connections(
        &self,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        lifecycle: &Lifecycle,
    ) {
        connections::watch(store, clock, lifecycle);
    }

    /// All metrics in the Prometheus text format.
    pub fn render(&self) -> String {
        self.0.render()
    }

    /// The text of the installed recorder, if there is one.
    pub(crate) fn rendered() -> Option<String> {
        Some(INSTALLED.get()?.render())
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

/// A recorder for scrapes, with the buckets of every histogram.
fn recorder() -> Result<PrometheusRecorder, MetricsError> {
    let mut builder = PrometheusBuilder::new();
    for metric in METRICS {
        if let Kind::Histogram(bounds) = metric.kind {
            let name = Matcher::Full(metric.name.to_owned());
            builder = builder.set_buckets_for_metric(name, bounds)?;
        }
    }
    Ok(builder.build_recorder())
}

#[cfg(test)]
mod tests;
