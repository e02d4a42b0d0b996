use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use super::bed::Bed;
use crate::files::stamps::Digest;
use mainspring_worker::tool::ToolError;

#[tokio::test]
async fn nothing_is_changed_that_the_session_has_not_read() {
    let bed = Bed::files().await;
    bed.put("file", "one\ntwo\n");
    let calls = || {
        [
            ("write_file", json!({"path": "file", "content": "x"})),
            (
                "edit_file",
                json!({"path": "file", "old_text": "one", "new_text": "x"}),
            ),
            (
                "apply_patch",
                json!({"path": "file", "patch": "@@ -1 +1 @@\n-one\n+x\n"}),
            ),
        ]
    };
    for (tool, arguments) in calls() {
        let told = bed.refused(tool, arguments).await;
        assert!(told.starts_with("file must be read first"), "{told}");
    }
    bed.call("read_file", json!({"path": "file"})).await;
    bed.put("file", "one\nand two\n");
    for (tool, arguments) in calls() {
        let told = bed.refused(tool, arguments).await;
        assert!(
            told.starts_with("file has changed since you read it"),
            "{told}"
        );
    }
    assert_eq!(bed.get("file"), "one\nand two\n");
    // A file whose earlier contents are back counts as read, under any name.
    bed.put("file", "one\ntwo\n");
    bed.call(
        "edit_file",
        json!({"path": "./file", "old_text": "one", "new_text": "1"}),
    )
    .await;
    // A session knows what it has written.
    bed.call(
        "apply_patch",
        json!({"path": "file", "patch": "@@ -2 +2 @@\n-two\n+2\n"}),
    )
    .await;
    bed.call("write_file", json!({"path": "file", "content": "3\n"}))
        .await;
    assert_eq!(bed.get("file"), "3\n");
}

#[tokio::test]
async fn what_another_session_or_worker_has_read_does_not_count() {
    let bed = Bed::new(|root| crate::builtin::Settings {
        workspace: Some(crate::builtin::WorkspaceSettings::shared(root)),
        ..crate::builtin::Settings::default()
    })
    .await;
    std::fs::write(bed.root().join("file"), "one\n").expect("writes");
    bed.call("read_file", json!({"path": "file"})).await;
    let write = || json!({"path": "file", "content": "x"});
    let told = bed.for_session(2).refused("write_file", write()).await;
    assert!(told.starts_with("file must be read first"), "{told}");

    let bed = Bed::files().await;
    bed.put("file", "one\n");
    bed.call("read_file", json!({"path": "file"})).await;
    let other = bed.other_worker().await;
    let told = other.refused("write_file", write()).await;
    assert!(told.contains("moved to another worker"), "{told}");
    other.call("read_file", json!({"path": "file"})).await;
    other.call("write_file", write()).await;
}

#[tokio::test]
async fn writing_twice_is_writing_once() {
    let bed = Bed::files().await;
    let write = json!({"path": "a/b/c", "content": "x\n", "overwrite": false});
    assert_eq!(
        bed.call("write_file", write.clone()).await,
        "a/b/c is made: 2 bytes"
    );
    // Also after a crash, on a worker that knows nothing.
    let other = bed.other_worker().await;
    assert_eq!(
        other.call("write_file", write).await,
        "a/b/c has this content"
    );
    let write = json!({"path": "a/b/c", "content": "y", "overwrite": false});
    assert_eq!(
        other.refused("write_file", write).await,
        "a/b/c exists already"
    );
    assert_eq!(bed.get("a/b/c"), "x\n");
}

#[tokio::test]
async fn a_repeat_removes_what_a_crash_left() {
    let bed = Bed::files().await;
    let invocation = bed.invocation("write_file", &json!({"path": "a", "content": "x"}));
    let left = Digest::of(invocation.call_id.as_bytes()).short();
    bed.put(&format!(".mainspring-{left}.tmp"), "ha");
    bed.tool("write_file")
        .call(invocation)
        .await
        .expect("writes");
    let names: Vec<_> = std::fs::read_dir(bed.home())
        .expect("reads")
        .map(|entry| entry.expect("reads").file_name())
        .collect();
    assert_eq!(names, ["a"]);
}

#[tokio::test]
async fn a_stopped_call_changes_nothing() {
    let bed = Bed::files().await;
    let invocation = bed.invocation("write_file", &json!({"path": "a", "content": "x"}));
    invocation.stop.cancel();
    let stopped = bed.tool("write_file").call(invocation).await;
    assert!(matches!(stopped, Err(ToolError::Reply { .. })));
    assert!(!bed.home().join("a").exists());
}

#[tokio::test]
async fn what_may_be_done_with_a_file_stays() {
    let bed = Bed::files().await;
    bed.put("script", "one\n");
    let script = bed.home().join("script");
    let mode = |mode| std::fs::set_permissions(&script, Permissions::from_mode(mode));
    mode(0o750).expect("sets");
    bed.call("read_file", json!({"path": "script"})).await;
    bed.call("write_file", json!({"path": "script", "content": "two\n"}))
        .await;
    let kept = script.metadata().expect("is there").permissions().mode();
    assert_eq!(kept & 0o777, 0o750);
    mode(0o440).expect("sets");
    let write = json!({"path": "script", "content": "three\n"});
    assert_eq!(
        bed.refused("write_file", write).await,
        "script is read-only"
    );
}

#[tokio::test]
async fn a_directory_is_not_written() {
    let bed = Bed::files().await;
    bed.put("dir/file", "x");
    for (path, expected) in [
        ("dir", "dir is a directory"),
        ("new/", "new/ names a directory"),
        (
            "dir/file/new",
            "dir/file/new is not a directory, or leads through a file",
        ),
        ("dir/..", "dir/.. names a directory"),
    ] {
        let write = json!({"path": path, "content": "x"});
        assert_eq!(bed.refused("write_file", write).await, expected);
    }
}

#[tokio::test]
async fn an_edit_shows_what_it_changed_and_keeps_the_rest() {
    let bed = Bed::files().await;
    bed.put("file", "\u{feff}one\r\ntwo\r\nthree\r\n");
    bed.call("read_file", json!({"path": "file"})).await;
    let edit = json!({"path": "file", "old_text": "one\ntwo", "new_text": "1\n2"});
    let told = bed.call("edit_file", edit).await;
    assert!(
        told.starts_with("file is changed in 1 place\n--- file\n+++ file\n@@"),
        "{told}"
    );
    assert_eq!(bed.get("file"), "\u{feff}1\r\n2\r\nthree\r\n");
    for (old, new, expected) in [
        ("four", "4", "old_text is not in file"),
        (
            "e",
            "E",
            "old_text is in file 2 times, at lines 3, 3: give more of the lines around it, \
                    or set replace_all",
        ),
        ("1", "1", "nothing changes in file"),
    ] {
        let edit = json!({"path": "file", "old_text": old, "new_text": new});
        assert_eq!(bed.refused("edit_file", edit).await, expected);
    }
    let edit = json!({"path": "none", "old_text": "a", "new_text": "b"});
    assert_eq!(bed.refused("edit_file", edit).await, "none does not exist");
}

#[tokio::test]
async fn a_patch_is_applied_whole_or_not_at_all() {
    let bed = Bed::files().await;
    bed.put("file", "a\nb\nc\n");
    bed.call("read_file", json!({"path": "file"})).await;
    let patch = "--- a/file\n+++ b/file\n@@ -1,2 +1,2 @@\n-a\n+A\n b\n@@ -3,1 +3,1 @@\n-x\n+X\n";
    let told = bed
        .refused("apply_patch", json!({"path": "file", "patch": patch}))
        .await;
    assert!(
        told.starts_with("hunk 2 (@@ -3,1 +3,1 @@) does not fit"),
        "{told}"
    );
    assert!(told.ends_with("; nothing was changed in file"), "{told}");
    assert_eq!(bed.get("file"), "a\nb\nc\n");
    let patch = patch.replace("-x", "-c");
    let told = bed
        .call("apply_patch", json!({"path": "file", "patch": patch}))
        .await;
    assert!(told.starts_with("file: 2 hunks are applied\n"), "{told}");
    assert_eq!(bed.get("file"), "A\nb\nX\n");
}
