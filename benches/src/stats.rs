//! Statistics of samples.

use std::time::Duration;

use serde_json::{Value, json};

/// A percentile of samples by the nearest-rank method; zero if there are none.
pub fn percentile(samples: &mut [Duration], percent: f64) -> Duration {
    samples.sort_unstable();
    let rank = (percent / 100.0 * samples.len() as f64).ceil() as usize;
    samples
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or_default()
}

/// The median of several runs; with an even number, the lower of the two middle values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
        .get(sorted.len().saturating_sub(1) / 2)
        .copied()
        .unwrap_or_default()
}

/// Milliseconds rounded to three decimal places.
pub fn millis(duration: Duration) -> f64 {
    round(duration.as_secs_f64() * 1e3)
}

/// A number rounded to three decimal places.
pub fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// One measurement: the median of its runs, and the individual runs.
pub fn measurement(name: &str, unit: &str, runs: &[f64], bar: &str) -> Value {
    let runs: Vec<f64> = runs.iter().copied().map(round).collect();
    json!({ "measure": name, "unit": unit, "median": median(&runs), "runs": runs, "bar": bar })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let mut samples: Vec<_> = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&mut samples, 50.0), Duration::from_millis(50));
        assert_eq!(percentile(&mut samples, 99.0), Duration::from_millis(99));
        assert_eq!(percentile(&mut samples, 100.0), Duration::from_millis(100));
        assert_eq!(percentile(&mut [], 50.0), Duration::ZERO);
    }

    #[test]
    fn the_median_is_one_of_the_runs() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(&[4.0, 1.0]) - 1.0).abs() < f64::EPSILON);
    }
}
