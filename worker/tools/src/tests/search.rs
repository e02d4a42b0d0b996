use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use mainspring_shared::time::{Clock, Timestamp};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::bed::{Bed, files};
use crate::builtin::{Limits, Settings, WorkspaceSettings};
use crate::files::walk::{CutShort, Scope, WalkLimits, walk};
use crate::files::workspace::Workspace;

fn aged(bed: &Bed, path: &str, age: u64) {
    let file = std::fs::File::options()
        .write(true)
        .open(bed.home().join(path));
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 - age);
    file.expect("opens").set_modified(time).expect("sets");
}

async fn project() -> Bed {
    let bed = Bed::files().await;
    for path in [
        "src/main.rs",
        "src/deep/er/lib.rs",
        "README.md",
        ".github/ci.yml",
        "target/debug/out.rs",
        "node_modules/x/index.js",
        "logs/today.log",
        "logs/keep.log",
        "src/generated.rs",
        ".env",
    ] {
        bed.put(path, format!("content of {path}\n"));
    }
    bed.put(".gitignore", "*.log\n!keep.log\n/src/generated.rs\n");
    bed.put("src/.ignore", "# nothing\n");
    bed
}

async fn globbed(bed: &Bed, arguments: serde_json::Value) -> Vec<String> {
    let told = bed.call("glob", arguments).await;
    let mut paths: Vec<_> = told.lines().map(str::to_owned).collect();
    paths.sort();
    paths
}

#[tokio::test]
async fn names_are_found_in_every_directory_but_those_nobody_means() {
    let bed = project().await;
    let found = globbed(&bed, json!({"pattern": "*.rs"})).await;
    assert_eq!(found, ["src/deep/er/lib.rs", "src/main.rs"]);
    let found = globbed(&bed, json!({"pattern": "src/*.rs"})).await;
    assert_eq!(found, ["src/main.rs"]);
    let found = globbed(
        &bed,
        json!({"pattern": "**/{main,lib}.rs", "path": "src/deep"}),
    )
    .await;
    assert_eq!(found, ["src/deep/er/lib.rs"]);
    let found = globbed(&bed, json!({"pattern": "*.log"})).await;
    assert_eq!(found, ["logs/keep.log"]);
}

#[tokio::test]
async fn what_is_named_or_asked_for_is_found_nevertheless() {
    let bed = project().await;
    let found = globbed(&bed, json!({"pattern": "target/**/*.rs"})).await;
    assert_eq!(found, ["target/debug/out.rs"]);
    let found = globbed(&bed, json!({"pattern": "*.js", "path": "node_modules"})).await;
    assert_eq!(found, ["node_modules/x/index.js"]);
    assert_eq!(globbed(&bed, json!({"pattern": ".env"})).await, [".env"]);
    let found = globbed(&bed, json!({"pattern": "*.yml", "include_hidden": true})).await;
    assert_eq!(found, [".github/ci.yml"]);
    let found = globbed(
        &bed,
        json!({"pattern": "*.{rs,log}", "include_ignored": true}),
    )
    .await;
    assert_eq!(
        found,
        [
            "logs/keep.log",
            "logs/today.log",
            "src/deep/er/lib.rs",
            "src/generated.rs",
            "src/main.rs",
            "target/debug/out.rs"
        ]
    );
}

#[tokio::test]
async fn the_newest_files_come_first() {
    let bed = Bed::files().await;
    for (path, age) in [("b", 20), ("a", 30), ("c", 10), ("d", 20)] {
        bed.put(path, "");
        aged(&bed, path, age);
    }
    let told = bed.call("glob", json!({"pattern": "*"})).await;
    assert_eq!(told, "c\nb\nd\na\n");
    let told = bed
        .call("glob", json!({"pattern": "*", "max_results": 3}))
        .await;
    assert_eq!(told, "c\nb\nd\n[… 1 more files]\n");
}

#[tokio::test]
async fn lines_are_found_with_path_and_number() {
    let bed = project().await;
    bed.put("src/many.rs", "one\nTwo\nthree two\n");
    let found = bed.call("grep", json!({"pattern": r"\btwo\b"})).await;
    assert_eq!(found, "src/many.rs:3:three two\n");
    let found = bed
        .call("grep", json!({"pattern": "two", "case_sensitive": false}))
        .await;
    assert_eq!(found, "src/many.rs:2:Two\nsrc/many.rs:3:three two\n");
    let found = bed
        .call("grep", json!({"pattern": "content of", "include": "*.md"}))
        .await;
    assert_eq!(found, "README.md:1:content of README.md\n");
    let found = bed
        .call("grep", json!({"pattern": "t.*o", "path": "src/many.rs"}))
        .await;
    assert_eq!(found, "src/many.rs:3:three two\n");
    let found = bed
        .call("grep", json!({"pattern": "Two", "context": 1}))
        .await;
    assert_eq!(
        found,
        "src/many.rs-1-one\nsrc/many.rs:2:Two\nsrc/many.rs-3-three two\n"
    );
    bed.put("odd", "a+b(c\n");
    let found = bed
        .call("grep", json!({"pattern": "a+b(", "literal": true}))
        .await;
    assert_eq!(found, "odd:1:a+b(c\n");
    let told = bed.refused("grep", json!({"pattern": "a+b("})).await;
    assert!(told.starts_with("a+b( is not a pattern:"), "{told}");
}

#[tokio::test]
async fn searches_are_bounded_and_say_so() {
    let bed = Bed::new(|root| Settings {
        limits: Limits {
            file_bytes_max: 10_000,
            ..Limits::default()
        },
        ..files(root)
    })
    .await;
    bed.put("a", "hit\n".repeat(80));
    bed.put("large", "hit\n".repeat(10_000));
    bed.put("binary", b"hit\nhit\n\0\n");
    bed.put("wide", format!("hit {}\n", "字".repeat(2_000)));
    let told = bed.call("grep", json!({"pattern": "hit"})).await;
    assert_eq!(told.matches("a:").count(), 50);
    assert!(
        told.ends_with("[… results truncated: raise the limit or narrow the search]\n"),
        "{told}"
    );
    let told = bed
        .call("grep", json!({"pattern": "hit", "max_results": 500}))
        .await;
    assert_eq!(told.matches(":hit").count(), 81);
    assert!(!told.contains("binary:"), "{told}");
    assert!(
        told.contains("more characters]\n[1 files were too large to be searched]\n"),
        "{told}"
    );
}

/// A clock that advances by a second at each reading.
#[derive(Debug, Default)]
struct Hurrying(AtomicU64);

#[async_trait]
impl Clock for Hurrying {
    fn now(&self) -> Timestamp {
        Timestamp(0)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.fetch_add(1, Ordering::Relaxed))
    }

    async fn sleep(&self, _: Duration) {}
}

#[test]
fn a_walk_ends_at_each_of_its_bounds() {
    let dir = tempfile::tempdir().expect("a directory");
    for n in 0..40 {
        std::fs::write(dir.path().join(format!("{n:02}")), "").expect("writes");
    }
    let settings = WorkspaceSettings::shared(dir.path());
    let walked = |limits: Limits, stop: &CancellationToken, end_at: usize| {
        let workspace = Workspace::open(&settings, limits).expect("opens");
        let session_dir = workspace
            .session_dir(super::bed::session(1))
            .expect("opens");
        let clock = Arc::new(Hurrying::default());
        let mut limits = WalkLimits::new(&workspace.limits, clock, stop.clone());
        let mut seen = 0;
        let cut_short = walk(
            &session_dir,
            ".",
            &Scope::default(),
            &mut limits,
            &mut |_, _| {
                seen += 1;
                if seen == end_at {
                    stop.cancel();
                }
                std::ops::ControlFlow::Continue(())
            },
        );
        (cut_short.expect("walks"), seen)
    };
    let limits = |entries, seconds| Limits {
        walk_entries_max: entries,
        walk_time_max: Duration::from_secs(seconds),
        ..Limits::default()
    };
    let stop = CancellationToken::new();
    assert_eq!(walked(limits(100, 1_000), &stop, 0), (None, 40));
    assert_eq!(
        walked(limits(39, 1_000), &stop, 0),
        (Some(CutShort::Entries), 0)
    );
    let (cut_short, seen) = walked(limits(100, 60), &stop, 0);
    assert!(
        cut_short == Some(CutShort::Time) && (1..40).contains(&seen),
        "{seen}"
    );
    assert_eq!(
        walked(limits(100, 1_000), &stop, 7),
        (Some(CutShort::Stopped), 7)
    );
}

#[tokio::test]
async fn a_stopped_search_gives_no_half_answer() {
    let bed = project().await;
    for (tool, arguments) in [
        ("glob", json!({"pattern": "*"})),
        ("grep", json!({"pattern": "content"})),
    ] {
        let invocation = bed.invocation(tool, &arguments);
        invocation.stop.cancel();
        let stopped = bed
            .tool(tool)
            .call(invocation)
            .await
            .expect_err("is stopped");
        assert_eq!(
            stopped.to_string(),
            "the call was stopped and changed nothing"
        );
    }
}
