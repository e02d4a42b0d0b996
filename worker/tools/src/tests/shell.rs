//! Commands that end on their own.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use serde_json::json;

use super::bed::{Bed, files};
use crate::builtin::{Launch, Limits, Settings, Shell, ShellBackend, ShellCommand, Template};

pub(crate) async fn bed() -> Bed {
    Bed::new(|root| Settings {
        shell: Shell::Local,
        ..files(root)
    })
    .await
}

#[tokio::test]
async fn a_command_gives_its_code_and_its_output_in_order() {
    let bed = bed().await;
    let told = bed
        .call(
            "shell",
            json!({"command": "echo out; echo err >&2; echo more; exit 3"}),
        )
        .await;
    assert_eq!(told, "exit_code=3\nout\nerr\nmore\n");
    let told = bed.call("shell", json!({"command": "kill -9 $$"})).await;
    assert_eq!(told, "exit_code=137\n");
    let told = bed
        .call("shell", json!({"command": "no-such-program 2>/dev/null"}))
        .await;
    assert_eq!(told, "exit_code=127\n");
    let told = bed
        .call(
            "shell",
            json!({"command": "printf '字\\033[31mred\\033[0m'"}),
        )
        .await;
    assert_eq!(told, "exit_code=0\n字red");
}

#[tokio::test]
async fn there_is_no_input_to_wait_for() {
    let bed = bed().await;
    let told = bed
        .call(
            "shell",
            json!({"command": "cat; read line; echo read=$?; wait"}),
        )
        .await;
    assert_eq!(told, "exit_code=0\nread=1\n");
    // No other descriptor of ours is open either: just the three, and the one that lists.
    let told = bed
        .call("shell", json!({"command": "ls /proc/self/fd | wc -l"}))
        .await;
    assert_eq!(told, format!("exit_code=0\n{}\n", 4 + inherited()));
}

/// Descriptors inherited by all processes from whatever started the tests.
fn inherited() -> usize {
    let all = std::fs::read_dir("/proc/self/fdinfo").expect("lists");
    let left_open = all.filter_map(|entry| {
        let entry = entry.ok()?;
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        let info = std::fs::read_to_string(entry.path()).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = u32::from_str_radix(flags.trim(), 8).ok()?;
        let closed = flags & rustix::fs::OFlags::CLOEXEC.bits() != 0;
        (number > 2 && !closed).then_some(())
    });
    left_open.count()
}

#[tokio::test]
async fn a_command_sees_its_own_environment_and_none_of_ours() {
    let bed = Bed::new(|root| Settings {
        shell: Shell::Local,
        environment: BTreeMap::from([
            ("LANG".into(), "C.UTF-8".into()),
            ("TERM".into(), "x".into()),
        ]),
        ..files(root)
    })
    .await;
    let told = bed.call("shell", json!({"command": "env | sort"})).await;
    let mut seen: BTreeMap<&str, &str> = told.lines().filter_map(|l| l.split_once('=')).collect();
    // Set by shells themselves.
    for own in ["exit_code", "PWD", "OLDPWD", "SHLVL", "_"] {
        seen.remove(own);
    }
    let mark = seen.remove("MAINSPRING_CALL_ID").expect("is set");
    assert!(mark.starts_with("call_"));
    // There is something that must be hidden.
    assert!(std::env::vars_os().any(|(name, _)| name != "PATH" && name != "HOME"));
    let home = bed.home().canonicalize().expect("is there");
    assert_eq!(
        seen,
        BTreeMap::from([
            ("HOME", home.to_str().expect("is text")),
            ("LANG", "C.UTF-8"),
            ("NO_COLOR", "1"),
            ("PAGER", "cat"),
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            ("TERM", "x"),
        ])
    );
}

#[tokio::test]
async fn sessions_share_neither_directory_nor_state() {
    let bed = bed().await;
    let other = bed.for_session(2);
    bed.call(
        "shell",
        json!({"command": "export X=1; cd /; echo mine > /dev/null; :"}),
    )
    .await;
    bed.call("shell", json!({"command": "echo x > file"})).await;
    assert_eq!(bed.get("file"), "x\n");
    let told = other
        .call("shell", json!({"command": "pwd; ls; echo \"X=$X\""}))
        .await;
    let home = other.home().canonicalize().expect("is there");
    assert_eq!(told, format!("exit_code=0\n{}\nX=\n", home.display()));
    bed.put("a/b/file", "");
    let told = bed
        .call("shell", json!({"command": "ls", "cwd": "a/../a/b"}))
        .await;
    assert_eq!(told, "exit_code=0\nfile\n");
    bed.refused("shell", json!({"command": "ls", "cwd": "none"}))
        .await;
}

#[tokio::test]
async fn what_commands_change_must_be_read_again() {
    let bed = bed().await;
    bed.call("write_file", json!({"path": "f", "content": "a"}))
        .await;
    bed.call("shell", json!({"command": "printf b > f"})).await;
    let told = bed
        .refused("write_file", json!({"path": "f", "content": "c"}))
        .await;
    assert!(
        told.starts_with("f has changed since you read it"),
        "{told}"
    );
}

#[tokio::test]
async fn output_is_bounded_however_much_there_is() {
    let bed = Bed::new(|root| Settings {
        shell: Shell::Local,
        limits: Limits {
            shell_output_bytes_max: 1_000,
            ..Limits::default()
        },
        ..files(root)
    })
    .await;
    let command = "echo first; head -c 20000000 /dev/zero | tr '\\0' x; echo; echo last";
    let told = bed.call("shell", json!({"command": command})).await;
    assert!(told.starts_with("exit_code=0\nfirst\nx"), "{told}");
    assert!(
        told.ends_with("x\nlast\n") && told.contains("19999012 bytes left out"),
        "{told}"
    );
    assert!(told.len() < 1_200);
}

fn template(argv: &[&str], cleanup: &[&str]) -> Shell {
    let words = |argv: &[&str]| argv.iter().map(|word| (*word).to_owned()).collect();
    Shell::Template(Template {
        argv: words(argv),
        cleanup: words(cleanup),
    })
}

/// A program that stands in for a sandbox.
pub(crate) async fn sandboxed(cleanup: &[&str], limits: Limits) -> Bed {
    let argv = [
        "env",
        "BOX={session}:{call}",
        "AT={workspace}/{cwd}",
        "sh",
        "-c",
        "{command}",
    ];
    Bed::new(|root| Settings {
        shell: template(&argv, cleanup),
        limits,
        ..files(root)
    })
    .await
}

#[tokio::test]
async fn a_template_runs_the_command_as_one_argument() {
    let bed = sandboxed(&[], Limits::default()).await;
    bed.put("dir/file", "");
    let command = "echo \"$BOX $AT\"; echo '{workspace} {command}'; exit 4";
    let told = bed
        .call("shell", json!({"command": command, "cwd": "dir"}))
        .await;
    let home = bed.home().canonicalize().expect("is there");
    let session = bed.session.session;
    let (head, body) = told.split_once('\n').expect("has a head");
    assert_eq!(head, "exit_code=4");
    assert!(body.starts_with(&format!("{session}:call_")), "{body}");
    assert!(
        body.contains(&format!(" {}/dir\n", home.display())),
        "{body}"
    );
    assert!(body.ends_with("\n{workspace} {command}\n"), "{body}");
}

#[tokio::test]
async fn without_the_sandbox_nothing_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let sandbox = dir.path().join("sandbox");
    std::fs::write(&sandbox, "#!/bin/sh\nexec sh -c \"$2\"\n").expect("writes");
    let mode = Permissions::from_mode(0o755);
    std::fs::set_permissions(&sandbox, mode).expect("sets");
    let program = sandbox.to_str().expect("is text").to_owned();
    let bed = Bed::new(|root| Settings {
        shell: template(&[&program, "{workspace}", "{command}"], &[]),
        ..files(root)
    })
    .await;
    let touch = || json!({"command": "touch ran; echo yes"});
    assert_eq!(bed.call("shell", touch()).await, "exit_code=0\nyes\n");
    std::fs::remove_file(bed.home().join("ran")).expect("ran");
    std::fs::remove_file(&sandbox).expect("removes");
    let told = bed.call("shell", touch()).await;
    assert!(told.starts_with("exit_code=127\n"), "{told}");
    assert!(!bed.home().join("ran").exists());
}

#[derive(Debug)]
struct Away;

impl ShellBackend for Away {
    fn launch(&self, _: &ShellCommand<'_>) -> Result<Launch, String> {
        Err("the sandbox is away".to_owned())
    }
}

#[tokio::test]
async fn a_backend_of_ones_own_may_refuse() {
    let bed = Bed::new(|root| Settings {
        shell: Shell::Backend(Arc::new(Away)),
        ..files(root)
    })
    .await;
    let told = bed.refused("shell", json!({"command": "touch ran"})).await;
    assert_eq!(told, "the command was not run: the sandbox is away");
    assert!(!bed.home().join("ran").exists());
}
