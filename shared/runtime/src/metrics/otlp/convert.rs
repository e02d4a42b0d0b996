//! Converts the text of a scrape to OTLP messages.
//!
//! The text comes from this process itself, so lines that cannot be parsed are left out.

use mainspring_shared::time::Timestamp;
use metrics::Unit;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, metric,
};
use opentelemetry_proto::tonic::resource;
use opentelemetry_sdk::Resource;

use crate::metrics::table::METRICS;

const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

/// The description of the process that goes with every export.
#[derive(Debug)]
pub(super) struct Process {
    resource: resource::v1::Resource,
    schema_url: String,
    /// When counting started, in nanoseconds.
    started: u64,
}

/// A line of the text: the part of the metric that its suffix names, its labels and its value.
#[derive(Debug, PartialEq)]
struct Sample {
    part: Part,
    labels: Vec<(String, String)>,
    value: f64,
}

/// The part of a metric that a sample holds.
#[derive(Debug, PartialEq)]
enum Part {
    /// The value of a counter or a gauge.
    Value,
    /// The number of a histogram's samples that are at most this bound.
    Bucket(f64),
    Sum,
    Count,
}

impl Process {
    pub(super) fn new(resource: &Resource, started: Timestamp) -> Self {
        let attributes = resource.iter().map(|(name, value)| KeyValue {
            key: name.as_str().to_owned(),
            value: Some(value.clone().into()),
            ..KeyValue::default()
        });
        Self {
            resource: resource::v1::Resource {
                attributes: attributes.collect(),
                ..resource::v1::Resource::default()
            },
            schema_url: resource.schema_url().unwrap_or_default().to_owned(),
            started: nanos(started),
        }
    }

    /// The request for the metrics scraped at this time.
    pub(super) fn request(&self, scraped: &str, at: Timestamp) -> ExportMetricsServiceRequest {
        let points = Points {
            started: self.started,
            at: nanos(at),
        };
        let scope = InstrumentationScope {
            name: "mainspring".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource.clone()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope),
                    metrics: points.metrics(scraped),
                    schema_url: String::new(),
                }],
                schema_url: self.schema_url.clone(),
            }],
        }
    }
}

fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.0)
        .unwrap_or_default()
        .saturating_mul(1_000_000)
}

/// The start and end times of the points of an export.
#[derive(Debug, Clone, Copy)]
struct Points {
    started: u64,
    at: u64,
}

impl Points {
    /// Reads the metrics: each `# TYPE` line and the lines after it are one.
    fn metrics(self, scraped: &str) -> Vec<Metric> {
        let mut metrics: Vec<Metric> = Vec::new();
        let mut lines = scraped.lines().peekable();
        while let Some(line) = lines.next() {
            let Some((name, kind)) = line
                .strip_prefix("# TYPE ")
                .and_then(|rest| rest.split_once(' '))
            else {
                continue;
            };
            let mut samples = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
                samples.extend(sample(name, line));
            }
            metrics.extend(self.metric(name, kind, samples));
        }
        metrics
    }

    fn metric(self, name: &str, kind: &str, samples: Vec<Sample>) -> Option<Metric> {
        let data = match kind {
            "counter" => metric::Data::Sum(Sum {
                data_points: self.numbers(samples),
                aggregation_temporality: CUMULATIVE,
                is_monotonic: true,
            }),
            "gauge" => metric::Data::Gauge(Gauge {
                data_points: self.numbers(samples),
            }),
            "histogram" => metric::Data::Histogram(Histogram {
                data_points: self.histograms(samples),
                aggregation_temporality: CUMULATIVE,
            }),
            _ => return None,
        };
        let known = METRICS.iter().find(|metric| metric.name == name);
        Some(Metric {
            name: name.to_owned(),
            description: known
                .map(|metric| metric.help)
                .unwrap_or_default()
                .to_owned(),
            unit: known
                .map(|metric| unit(metric.unit))
                .unwrap_or_default()
                .to_owned(),
            data: Some(data),
            ..Metric::default()
        })
    }

    fn numbers(self, samples: Vec<Sample>) -> Vec<NumberDataPoint> {
        let points = samples.into_iter().map(|sample| NumberDataPoint {
            attributes: attributes(sample.labels),
            start_time_unix_nano: self.started,
            time_unix_nano: self.at,
            value: Some(Value::AsDouble(sample.value)),
            ..NumberDataPoint::default()
        });
        points.collect()
    }

    /// Consecutive lines with the same labels are one histogram, with the buckets in the order of
    /// their bounds.
    fn histograms(self, samples: Vec<Sample>) -> Vec<HistogramDataPoint> {
        let mut points: Vec<HistogramDataPoint> = Vec::new();
        let mut labels = None;
        let mut below = 0;
        for sample in samples {
            if labels.as_ref() != Some(&sample.labels) {
                points.push(HistogramDataPoint {
                    attributes: attributes(sample.labels.clone()),
                    start_time_unix_nano: self.started,
                    time_unix_nano: self.at,
                    ..HistogramDataPoint::default()
                });
                labels = Some(sample.labels);
                below = 0;
            }
            let Some(point) = points.last_mut() else {
                continue;
            };
            match sample.part {
                Part::Bucket(bound) => {
                    let up_to = sample.value as u64;
                    point.bucket_counts.push(up_to.saturating_sub(below));
                    below = up_to;
                    if bound.is_finite() {
                        point.explicit_bounds.push(bound);
                    }
                }
                Part::Sum => point.sum = Some(sample.value),
                Part::Count => point.count = sample.value as u64,
                Part::Value => {}
            }
        }
        points
    }
}

fn attributes(labels: Vec<(String, String)>) -> Vec<KeyValue> {
    let attributes = labels.into_iter().map(|(key, value)| KeyValue {
        key,
        value: Some(AnyValue {
            value: Some(any_value::Value::StringValue(value)),
        }),
        ..KeyValue::default()
    });
    attributes.collect()
}

/// A unit in UCUM; the table has no others.
fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Seconds => "s",
        Unit::Bytes => "By",
        _ => "1",
    }
}

/// Parses a line of a metric: `NAME[_bucket|_sum|_count][{LABELS}] VALUE`.
fn sample(name: &str, line: &str) -> Option<Sample> {
    let rest = line.strip_prefix(name)?;
    let (rest, value) = rest.rsplit_once(' ')?;
    let (suffix, mut labels) = match rest.split_once('{') {
        Some((suffix, labels)) => (suffix, pairs(labels.strip_suffix('}')?)?),
        None => (rest, Vec::new()),
    };
    let part = match suffix {
        "" => Part::Value,
        "_sum" => Part::Sum,
        "_count" => Part::Count,
        "_bucket" => {
            let bound = labels.iter().position(|(name, _)| name == "le")?;
            Part::Bucket(number(&labels.remove(bound).1)?)
        }
        _ => return None,
    };
    Some(Sample {
        part,
        labels,
        value: number(value)?,
    })
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        _ => text.parse().ok(),
    }
}

/// Parses `NAME="VALUE",…`, with `\\`, `\"` and `\n` in values.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, behind) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = behind.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        pairs.push((name.to_owned(), value));
        rest = &behind[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    Some(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    fn exported(work: impl FnOnce()) -> Vec<Metric> {
        let ((), scraped) = Metrics::of(work).expect("measured");
        let points = Points { started: 1, at: 2 };
        points.metrics(&scraped)
    }

    #[test]
    fn counters_and_gauges_keep_their_values_and_labels() {
        let hostile = "a \"quoted\" \\ {line}, 1\nand another";
        let metrics = exported(|| {
            metrics::counter!("counted_total", "why" => hostile, "b" => "2").increment(3);
            metrics::gauge!("level").set(-1.5);
        });
        let mut found = Vec::new();
        for metric in metrics {
            let points = match metric.data.expect("data") {
                metric::Data::Sum(sum) => {
                    assert!(sum.is_monotonic);
                    assert_eq!(sum.aggregation_temporality, CUMULATIVE);
                    sum.data_points
                }
                metric::Data::Gauge(gauge) => gauge.data_points,
                other => panic!("{other:?}"),
            };
            let [point] = &points[..] else {
                panic!("{points:?}")
            };
            assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (1, 2));
            let labels: Vec<_> = point.attributes.iter().map(label).collect();
            found.push((metric.name, point.value, labels));
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let labels = vec![
            ("why".to_owned(), hostile.to_owned()),
            ("b".to_owned(), "2".to_owned()),
        ];
        let expected = [
            (
                "counted_total".to_owned(),
                Some(Value::AsDouble(3.0)),
                labels,
            ),
            ("level".to_owned(), Some(Value::AsDouble(-1.5)), Vec::new()),
        ];
        assert_eq!(found, expected);
    }

    fn label(pair: &KeyValue) -> (String, String) {
        let value = pair.value.as_ref().and_then(|it| it.value.as_ref());
        let Some(any_value::Value::StringValue(value)) = value else {
            panic!("{pair:?}")
        };
        (pair.key.clone(), value.clone())
    }

    #[test]
    fn a_histogram_counts_each_sample_in_one_bucket() {
        let name = "mainspring_accept_group_sends";
        let metrics = exported(|| {
            for value in [1.0, 2.0, 2.0, 3.0, 5_000.0] {
                metrics::histogram!(name, "of" => "a").record(value);
            }
            metrics::histogram!(name, "of" => "b").record(7.0);
        });
        let [metric] = &metrics[..] else {
            panic!("{metrics:?}")
        };
        assert_eq!((metric.name.as_str(), metric.unit.as_str()), (name, "1"));
        assert!(!metric.description.is_empty());
        let Some(metric::Data::Histogram(histogram)) = &metric.data else {
            panic!("{metric:?}")
        };
        let mut points = histogram.data_points.clone();
        points.sort_by_key(|point| label(&point.attributes[0]).1);
        let counts: Vec<_> = points
            .iter()
            .map(|point| (point.count, point.sum))
            .collect();
        assert_eq!(counts, [(5, Some(5_008.0)), (1, Some(7.0))]);
        assert_eq!(points[0].explicit_bounds, crate::metrics::table::COUNTS);
        assert_eq!(
            points[0].bucket_counts,
            [1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]
        );
        assert_eq!(
            points[1].bucket_counts,
            [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]
        );
    }

    /// Every metric of the product is converted, with nothing left out.
    #[test]
    fn all_of_a_scrape_is_understood() {
        let sample = include_str!("../../../../../tests/chart/metrics.txt");
        let points = Points { started: 1, at: 2 };
        for metric in points.metrics(sample) {
            let points = match metric.data {
                Some(metric::Data::Sum(sum)) => sum.data_points.len(),
                Some(metric::Data::Gauge(gauge)) => gauge.data_points.len(),
                Some(metric::Data::Histogram(histogram)) => histogram.data_points.len(),
                other => panic!("{other:?}"),
            };
            assert!(points > 0, "{} has no points", metric.name);
        }
        let names: Vec<_> = points
            .metrics(sample)
            .into_iter()
            .map(|it| it.name)
            .collect();
        assert!(!names.is_empty());
        let expected: Vec<_> = METRICS
            .iter()
            .map(|metric| metric.name.to_owned())
            .collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn what_is_no_sample_is_left_out() {
        for line in [
            "",
            "other 1",
            "name",
            "name{a=\"1\" 1",
            "name{a=1} 1",
            "name_bucket 1",
            "name x",
        ] {
            assert_eq!(sample("name", line), None, "{line}");
        }
    }
}
