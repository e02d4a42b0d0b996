use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;

#[test]
fn what_is_counted_is_rendered_with_its_meaning_and_a_second_collector_is_refused() {
    let metrics = Metrics::install().expect("the first");
    metrics::counter!("mainspring_sends_accepted_total").increment(3);
    metrics::histogram!("mainspring_http_request_seconds").record(0.003);
    metrics::histogram!("mainspring_accept_group_sends").record(20.0);
    let text = metrics.render();
    for line in [
        "# HELP mainspring_sends_accepted_total Sends that became durable.",
        "mainspring_sends_accepted_total 3",
        "mainspring_http_request_seconds_bucket{le=\"0.005\"} 1",
        "mainspring_accept_group_sends_bucket{le=\"16\"} 0",
        "mainspring_accept_group_sends_bucket{le=\"32\"} 1",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(Metrics::install().is_err());
}

#[test]
fn connections_are_busy_or_idle() {
    let used = mainspring_shared::store::Connections {
        pool: "readers",
        open: 5,
        idle: 2,
        waiting: 7,
    };
    let ((), text) = Metrics::of(|| connections::measure(&used)).expect("measured");
    for line in [
        "mainspring_database_connections{pool=\"readers\",state=\"busy\"} 3",
        "mainspring_database_connections{pool=\"readers\",state=\"idle\"} 2",
        "mainspring_database_connection_waiters{pool=\"readers\"} 7",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Collects the shipped source files below a folder, without tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).expect("a folder");
    for entry in entries {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str());
        match name.unwrap_or_default() {
            "target" | "tests" | "tests.rs" => {}
            _ if path.is_dir() => sources(&path, found),
            _ if path.extension().is_some_and(|it| it == "rs") => found.push(path),
            _ => {}
        }
    }
}

/// The metric names in a line.
fn names(text: &str) -> BTreeSet<String> {
    let quoted = text.split('"').skip(1).step_by(2);
    let is_name = |word: &&str| {
        let rest = word.strip_prefix("mainspring_");
        rest.is_some_and(|rest| {
            rest.contains('_') && rest.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
        })
    };
    quoted.filter(is_name).map(str::to_owned).collect()
}

/// All metrics that are recorded, with the files of the constants that name them.
fn measured() -> BTreeMap<String, PathBuf> {
    let mut files = Vec::new();
    for part in ["shared", "worker", "scheduler", "cli"] {
        sources(&workspace().join(part), &mut files);
    }
    let mut measured = BTreeMap::new();
    for path in files {
        if path.ends_with("metrics/table.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source");
        for line in text.lines() {
            // Only constants: other names with this prefix are crates or database objects.
            if line.contains(": &str = \"mainspring_") {
                for name in names(line) {
                    measured.insert(name, path.clone());
                }
            }
        }
    }
    measured
}

#[test]
fn what_is_measured_is_in_the_table_and_nothing_else_is() {
    let table: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(table.len(), METRICS.len(), "a name stands twice");
    let measured = measured();
    assert!(measured.len() > 40, "{measured:?}");
    for (name, path) in &measured {
        let path = path.display();
        assert!(
            table.contains(name.as_str()),
            "{name} of {path} is not in the table"
        );
    }
    for name in table {
        assert!(measured.contains_key(name), "nothing measures {name}");
    }
}

#[test]
fn names_say_the_kind_and_no_label_is_an_id() {
    for metric in METRICS {
        let name = metric.name;
        let is_counter = metric.kind == Kind::Counter;
        assert_eq!(name.ends_with("_total"), is_counter, "{name}");
        let of_seconds = metric.unit == metrics::Unit::Seconds;
        assert_eq!(name.ends_with("_seconds"), of_seconds, "{name}");
        assert!(metric.help.ends_with('.'), "{name}");
        for label in metric.labels {
            let unbounded = ["tenant", "session", "send", "id", "key", "tool", "agent"];
            assert!(!unbounded.contains(label), "{name} has the label {label}");
        }
        if let Kind::Histogram(bounds) = metric.kind {
            assert!(bounds.is_sorted(), "{name}");
        }
    }
}

/// A scrape that contains every metric once.
fn sample() -> String {
    let mut text = String::new();
    for metric in METRICS {
        let recorder = recorder().expect("buckets");
        let labels: Vec<_> = metric.labels.iter().map(|label| (*label, "x")).collect();
        metrics::with_local_recorder(&recorder, || {
            metric.describe();
            match metric.kind {
                Kind::Counter => metrics::counter!(metric.name, &labels).increment(1),
                Kind::Gauge => metrics::gauge!(metric.name, &labels).set(1.0),
                Kind::Histogram(_) => metrics::histogram!(metric.name, &labels).record(1.0),
            }
        });
        text.push_str(&recorder.handle().render());
    }
    text
}

fn reference() -> String {
    let mut text = String::from(
        "# Metrics\n\nWhat `/metrics` serves, and what is pushed. Generated from the table in\n\
         `shared/runtime/src/metrics/table.rs`; [OPERATIONS.md](OPERATIONS.md#monitoring) says which of them to watch.\n\n\
         | metric | kind | labels | meaning |\n|---|---|---|---|\n",
    );
    for metric in METRICS {
        let labels: Vec<_> = metric.labels.iter().map(|it| format!("`{it}`")).collect();
        let (name, kind, help) = (metric.name, metric.kind.as_str(), metric.help);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| `{name}` | {kind} | {} | {help} |",
            labels.join(", ")
        );
    }
    text
}

fn same(path: &str, text: &str) {
    let path = workspace().join(path);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, text).expect("is written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "{} is out of date: UPDATE_DOCS=1 writes it",
        path.display()
    );
}

#[test]
fn the_reference_is_current() {
    same("docs/METRICS.md", &reference());
}

/// The input for the promtool check in `cargo xtask chart`.
#[test]
fn the_sample_is_current() {
    same("tests/chart/metrics.txt", &sample());
}
