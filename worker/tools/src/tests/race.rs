//! Links that are swapped in while tools are working.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

use super::bed::{Bed, SECRET, tree};

/// Calls of each tool during the swapping.
const TURNS: usize = 400;

/// Keeps swapping what two names refer to, atomically.
struct Swapping {
    end: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<usize>>,
}

impl Swapping {
    fn new(pairs: Vec<(PathBuf, PathBuf)>) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let end = end.clone();
            move || {
                let mut swaps = 0;
                while !end.load(Ordering::Relaxed) {
                    for (a, b) in &pairs {
                        let swapped = renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE);
                        swapped.expect("swaps");
                    }
                    swaps += 1;
                }
                swaps
            }
        });
        Self {
            end,
            thread: Some(thread),
        }
    }

    fn end(mut self) -> usize {
        self.end.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("runs");
        thread.join().expect("swaps")
    }
}

impl Drop for Swapping {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

/// A directory and a file that keep turning into links to the outside.
async fn racing() -> (Bed, Swapping) {
    let bed = Bed::files().await;
    let (home, outside) = (bed.home(), bed.outside());
    bed.put("dir/secret", "inside");
    bed.put("file", "inside");
    bed.put("deep/dir/secret", "inside");
    symlink(&outside, home.join("link")).expect("links");
    symlink(outside.join("secret"), home.join("file_link")).expect("links");
    symlink("../../../outside", home.join("deep/link")).expect("links");
    let pair = |a: &str, b: &str| (home.join(a), home.join(b));
    let swapping = Swapping::new(vec![
        pair("dir", "link"),
        pair("file", "file_link"),
        pair("deep/dir", "deep/link"),
    ]);
    (bed, swapping)
}

fn unharmed(outside: &Path) {
    let expected = vec![(outside.join("secret"), Some(SECRET.as_bytes().to_vec()))];
    assert_eq!(tree(outside), expected);
}

/// Makes a call repeatedly; returns how often it succeeded and how often it was refused.
async fn many(bed: &Bed, tool: &str, arguments: impl Fn(usize) -> Value) -> (usize, usize) {
    let (mut worked, mut refused) = (0, 0);
    for turn in 0..TURNS * 50 {
        // Continues beyond the planned number until both outcomes have occurred.
        if turn >= TURNS && worked > 0 && refused > 0 {
            break;
        }
        let told = match bed.try_call(tool, arguments(turn)).await {
            Ok(told) => {
                worked += 1;
                told
            }
            Err(error) => {
                refused += 1;
                error.to_string()
            }
        };
        assert!(!told.contains(SECRET), "{tool}: {told}");
    }
    (worked, refused)
}

#[tokio::test]
async fn reading_never_follows_a_link_that_comes_in_between() {
    let (bed, swapping) = racing().await;
    for path in ["dir/secret", "file", "deep/dir/secret"] {
        let (worked, refused) = many(&bed, "read_file", |_| json!({"path": path})).await;
        assert!(worked > 0 && refused > 0, "{path}: {worked}, {refused}");
    }
    for path in [".", "deep"] {
        for _ in 0..TURNS {
            let grep = json!({"pattern": "may read|inside", "path": path});
            let found = bed.call("grep", grep).await;
            assert!(!found.contains(SECRET), "{found}");
            let found = bed
                .call("glob", json!({"pattern": "**/*", "path": path}))
                .await;
            assert!(!found.contains("outside"), "{found}");
        }
    }
    let (worked, refused) = many(&bed, "list_dir", |_| json!({"path": "dir"})).await;
    assert!(worked > 0 && refused > 0, "{worked}, {refused}");
    assert!(swapping.end() > TURNS);
    unharmed(&bed.outside());
}

#[tokio::test]
async fn writing_never_follows_a_link_that_comes_in_between() {
    let (bed, swapping) = racing().await;
    let new = |turn: usize| json!({"path": format!("dir/new_{turn}"), "content": "mine"});
    let (worked, refused) = many(&bed, "write_file", new).await;
    assert!(worked > 0 && refused > 0, "{worked}, {refused}");
    let deep = |turn: usize| json!({"path": format!("deep/dir/{turn}/new"), "content": "mine"});
    many(&bed, "write_file", deep).await;
    for path in ["dir/secret", "file", "deep/dir/secret"] {
        for turn in 0..TURNS {
            let _ = bed.try_call("read_file", json!({"path": path})).await;
            let content = format!("mine {turn}");
            let write = json!({"path": path, "content": content});
            let _ = bed.try_call("write_file", write).await;
            let edit = json!({"path": path, "old_text": "mine", "new_text": "ours"});
            let _ = bed.try_call("edit_file", edit).await;
        }
    }
    assert!(swapping.end() > TURNS);
    unharmed(&bed.outside());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_edits_at_the_same_time_none_is_lost_unheard() {
    let bed = Bed::new(|root| crate::builtin::Settings {
        workspace: Some(crate::builtin::WorkspaceSettings::shared(root)),
        ..crate::builtin::Settings::default()
    })
    .await;
    let file = bed.root().join("file");
    for _ in 0..20 {
        let lines: Vec<_> = (0..8).map(|n| format!("line {n}\n")).collect();
        std::fs::write(&file, lines.concat()).expect("writes");
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..8 {
            let bed = bed.for_session(10 + n);
            tasks.spawn(async move {
                bed.call("read_file", json!({"path": "file"})).await;
                let (old, new) = (format!("line {n}\n"), format!("edited {n}\n"));
                let edit = json!({"path": "file", "old_text": old, "new_text": new});
                (n, bed.try_call("edit_file", edit).await.is_ok())
            });
        }
        let done = tasks.join_all().await;
        assert!(done.iter().any(|(_, done)| *done));
        let text = std::fs::read_to_string(&file).expect("reads");
        for (n, done) in done {
            assert_eq!(text.contains(&format!("edited {n}\n")), done, "{n}: {text}");
        }
    }
}
