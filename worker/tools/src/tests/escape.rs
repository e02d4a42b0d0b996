//! Every known way out of the workspace, tried with every tool that takes a path.

use std::os::unix::fs::symlink;

use mainspring_shared::tool::Repeat;
use serde_json::{Value, json};

use super::bed::{Bed, SECRET, files, tree};
use crate::builtin::{Shell, WorkspaceSettings};

async fn bed() -> Bed {
    let bed = Bed::new(|root| crate::builtin::Settings {
        shell: Shell::Local,
        ..files(root)
    })
    .await;
    let (home, outside) = (bed.home(), bed.outside());
    bed.put("inside/file", "inside");
    symlink(&outside, home.join("dir_link")).expect("links");
    symlink(outside.join("secret"), home.join("file_link")).expect("links");
    symlink("../../outside", home.join("relative_link")).expect("links");
    symlink("../../../outside/secret", home.join("inside/deep_link")).expect("links");
    symlink("chain_2", home.join("chain_1")).expect("links");
    symlink("inside/../dir_link", home.join("chain_2")).expect("links");
    symlink("/", home.join("root_link")).expect("links");
    symlink("..", home.join("up_link")).expect("links");
    symlink("/proc/self/root", home.join("magic_link")).expect("links");
    symlink("loop", home.join("loop")).expect("links");
    symlink(outside.join("not_there"), home.join("dangling")).expect("links");
    bed.for_session(2).put("theirs", SECRET);
    bed
}

/// Paths that lead outside, both to files and to directories that contain them.
fn ways_out(bed: &Bed) -> Vec<String> {
    let outside = bed.outside();
    let outside = outside.to_str().expect("is text");
    let home = bed.home();
    let home = home.to_str().expect("is text");
    let other = bed.for_session(2).session.session;
    let mut ways: Vec<String> = [
        "..",
        "../..",
        "../../outside",
        "../../outside/secret",
        "inside/../../../outside/secret",
        "./inside/.././../../outside/secret",
        "inside/../..",
        "dir_link",
        "dir_link/",
        "dir_link/secret",
        "dir_link/.",
        "dir_link/../outside/secret",
        "file_link",
        "relative_link",
        "relative_link/secret",
        "inside/deep_link",
        "chain_1",
        "chain_1/secret",
        "root_link",
        "root_link/etc/passwd",
        "up_link",
        "up_link/../outside/secret",
        "magic_link/etc/passwd",
        "loop",
        "dangling",
        "/",
        "/etc/passwd",
        "/proc/self/environ",
        "//etc/passwd",
        "~",
        "~/secret",
        "",
        "inside/\0/../../../outside/secret",
    ]
    .map(str::to_owned)
    .into();
    ways.extend([
        outside.to_owned(),
        format!("{outside}/secret"),
        // Absolute paths, as commands print them, lead no further than others.
        format!("{home}/../../outside/secret"),
        format!("{home}/dir_link/secret"),
        format!("{home}x/secret"),
        format!("../{other}/theirs"),
        format!("up_link/{other}/theirs"),
        format!("{}/{other}/theirs", bed.root().to_str().expect("is text")),
    ]);
    ways
}

fn calls(path: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("read_file", json!({"path": path})),
        ("read_file", json!({"path": path, "limit": 5})),
        ("list_dir", json!({"path": path})),
        (
            "glob",
            json!({"pattern": "*", "path": path, "include_hidden": true}),
        ),
        (
            "grep",
            json!({"pattern": ".", "path": path, "include_ignored": true}),
        ),
        (
            "write_file",
            json!({"path": path, "content": "overwritten"}),
        ),
        (
            "write_file",
            json!({"path": format!("{path}/new"), "content": "new"}),
        ),
        (
            "write_file",
            json!({"path": format!("{path}/new/deep/er"), "content": "new"}),
        ),
        (
            "edit_file",
            json!({"path": path, "old_text": "what", "new_text": "gone"}),
        ),
        (
            "apply_patch",
            json!({"path": path, "patch": "@@ -1 +1 @@\n-what\n+gone\n"}),
        ),
        ("shell", json!({"command": "touch was_here", "cwd": path})),
    ]
}

#[tokio::test]
async fn no_path_leads_out_of_the_workspace() {
    let bed = bed().await;
    let theirs = bed.for_session(2).home();
    let before = (tree(&bed.outside()), tree(&theirs), tree(&bed.root()));
    for path in ways_out(&bed) {
        for (tool, arguments) in calls(&path) {
            let offer = bed.offers().get(tool).expect("is on offer");
            if offer.checked(&arguments).is_err() {
                // An empty path is already refused by the schema.
                continue;
            }
            let told = bed.refused(tool, arguments.clone()).await;
            for hidden in [SECRET, "root:", "secret\n"] {
                assert!(!told.contains(hidden), "{tool} {arguments}: {told}");
            }
        }
    }
    let after = (tree(&bed.outside()), tree(&theirs), tree(&bed.root()));
    assert_eq!(before, after);
}

#[tokio::test]
async fn patterns_do_not_lead_out_either() {
    let bed = bed().await;
    for pattern in ["../*", "/etc/*", "../../outside/*", "inside/../../*"] {
        bed.refused("glob", json!({"pattern": pattern})).await;
        bed.refused("grep", json!({"pattern": ".", "include": pattern}))
            .await;
    }
    // Links are not followed.
    for pattern in ["**/secret", "dir_link/*", "**/passwd", "*/theirs"] {
        let found = bed.call("glob", json!({"pattern": pattern})).await;
        assert!(found.starts_with("no file matches"), "{found}");
    }
    let all = json!({"pattern": "nobody may", "include_hidden": true, "include_ignored": true});
    let found = bed.call("grep", all).await;
    assert!(found.starts_with("no line matches"), "{found}");
}

#[tokio::test]
async fn links_within_the_workspace_are_followed() {
    let bed = Bed::files().await;
    bed.put("a/file", "one\n");
    symlink("a/file", bed.home().join("link")).expect("links");
    symlink("a", bed.home().join("dir")).expect("links");
    assert!(
        bed.call("read_file", json!({"path": "link"}))
            .await
            .contains("1|one")
    );
    // It is the file that was read, under any name, and the link stays a link.
    let edit = json!({"path": "dir/file", "old_text": "one", "new_text": "two"});
    bed.call("edit_file", edit).await;
    let edit = json!({"path": "link", "old_text": "two", "new_text": "three"});
    bed.call("edit_file", edit).await;
    assert_eq!(bed.get("a/file"), "three\n");
    assert!(bed.home().join("link").is_symlink());
}

#[tokio::test]
async fn the_path_that_commands_see_is_understood() {
    let bed = Bed::files().await;
    bed.put("a/file", "one\n");
    let home = bed.home().canonicalize().expect("is there");
    let home = home.to_str().expect("is text");
    let path = format!("{home}/a/file");
    assert!(
        bed.call("read_file", json!({"path": path}))
            .await
            .contains("1|one")
    );
    assert!(
        bed.call("list_dir", json!({"path": home}))
            .await
            .contains("a/")
    );
}

#[tokio::test]
async fn what_is_no_regular_file_is_neither_read_nor_waited_for() {
    let bed = Bed::files().await;
    let home = bed.home();
    let status = std::process::Command::new("mkfifo")
        .arg(home.join("pipe"))
        .status();
    assert!(status.expect("runs").success());
    let _socket = std::os::unix::net::UnixListener::bind(home.join("socket")).expect("binds");
    for path in ["pipe", "socket"] {
        for (tool, arguments) in calls(path) {
            if tool != "shell" {
                bed.refused(tool, arguments).await;
            }
        }
    }
    let found = bed.call("grep", json!({"pattern": "."})).await;
    assert!(found.starts_with("no line matches"), "{found}");
}

#[tokio::test]
async fn a_file_that_has_another_name_outside_is_not_written_through() {
    let bed = Bed::files().await;
    std::fs::hard_link(bed.outside().join("secret"), bed.home().join("twin")).expect("links");
    bed.call("read_file", json!({"path": "twin"})).await;
    bed.call("write_file", json!({"path": "twin", "content": "mine"}))
        .await;
    assert_eq!(bed.get("twin"), "mine");
    let outside = std::fs::read_to_string(bed.outside().join("secret"));
    assert_eq!(outside.expect("reads"), SECRET);
}

#[tokio::test]
async fn a_session_whose_directory_is_a_link_has_none() {
    let bed = Bed::files().await;
    bed.for_session(2).put("theirs", SECRET);
    let other = bed.for_session(2).session.session.to_string();
    symlink(other, bed.root().join(bed.session.session.to_string())).expect("links");
    let told = bed.refused("read_file", json!({"path": "theirs"})).await;
    assert_eq!(told, "the workspace cannot be opened");
}

#[tokio::test]
async fn sessions_share_a_directory_only_where_it_is_configured() {
    let bed = Bed::files().await;
    bed.call("write_file", json!({"path": "a", "content": "x"}))
        .await;
    let other = bed.for_session(2);
    other.refused("read_file", json!({"path": "a"})).await;

    let bed = Bed::new(|root| crate::builtin::Settings {
        workspace: Some(WorkspaceSettings::shared(root)),
        ..crate::builtin::Settings::default()
    })
    .await;
    bed.call("write_file", json!({"path": "a", "content": "x"}))
        .await;
    let other = bed.for_session(2);
    assert!(
        other
            .call("read_file", json!({"path": "a"}))
            .await
            .contains("1|x")
    );
    let told = other
        .refused("read_file", json!({"path": "../outside/secret"}))
        .await;
    assert_eq!(told, "../outside/secret is outside the workspace");
    assert_eq!(other.tool("read_file").traits().repeat, Repeat::Safe);
}
