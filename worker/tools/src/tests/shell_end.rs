//! Commands that are stopped, leaving nothing behind.

use std::time::Duration;

use mainspring_runtime::SystemClock;
use mainspring_shared::error::Code;
use mainspring_shared::time::Clock as _;
use serde_json::json;

use super::bed::{Bed, files};
use super::shell::{bed, sandboxed};
use crate::builtin::{Limits, Settings, Shell};
use mainspring_worker::tool::ToolError;

/// How long to wait for an end before it counts as missing.
const LONG: Duration = Duration::from_secs(20);

/// Starts processes of every kind and waits: one in the background, one in its own process group,
/// one in its own session with its output redirected, and an orphan. Each records its PID.
const FAMILY: &str = "
    note='echo $$ >> pids; exec sleep 1000'
    sh -c \"$note\" &
    bash -c \"set -m; sh -c '$note' & wait\" &
    setsid sh -c \"$note\" >/dev/null 2>&1 &
    (setsid sh -c \"$note\" >/dev/null 2>&1 &)
    while [ \"$(cat pids 2>/dev/null | wc -l)\" -lt 4 ]; do sleep 0.01; done
    echo started
";

fn pids(bed: &Bed) -> Vec<u32> {
    let text = std::fs::read_to_string(bed.home().join("pids")).unwrap_or_default();
    text.lines()
        .map(|line| line.parse().expect("is a number"))
        .collect()
}

/// Whether a process is running; a zombie is not.
pub(crate) fn runs(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let state = status.map(|status| {
        let (_, behind) = status.rsplit_once(')').expect("has a name");
        behind.trim_start().starts_with(['Z', 'X'])
    });
    state.is_ok_and(|dead| !dead)
}

pub(crate) async fn until(what: impl Fn() -> bool) {
    let clock = SystemClock::new();
    let end = clock.monotonic() + LONG;
    while !what() {
        assert!(clock.monotonic() < end, "it never came");
        clock.sleep(Duration::from_millis(5)).await;
    }
}

async fn all_gone(bed: &Bed) {
    let pids = pids(bed);
    assert_eq!(pids.len(), 4, "{pids:?}");
    until(|| pids.iter().all(|pid| !runs(*pid))).await;
}

async fn short(time: Duration) -> Bed {
    Bed::new(|root| Settings {
        shell: Shell::Local,
        limits: Limits {
            shell_timeout: time,
            ..Limits::default()
        },
        ..files(root)
    })
    .await
}

#[tokio::test]
async fn what_a_command_leaves_running_ends_with_it() {
    let bed = bed().await;
    let clock = SystemClock::new();
    let begun = clock.monotonic();
    let told = bed.call("shell", json!({"command": FAMILY})).await;
    assert_eq!(told, "exit_code=0\nstarted\n");
    assert!(
        clock.monotonic() < begun + LONG,
        "the output was waited for"
    );
    all_gone(&bed).await;
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_ended_whole() {
    let bed = short(Duration::from_secs(2)).await;
    let command = format!("{FAMILY}\nsleep 1000");
    let told = bed.try_call("shell", json!({"command": command})).await;
    let Err(ToolError::Reply { code, message }) = told else {
        panic!("{told:?}");
    };
    assert_eq!(code, Code::ToolTimeout);
    assert_eq!(
        message,
        "the command timed out after 2s; its output until then:\nstarted\n"
    );
    all_gone(&bed).await;
}

#[tokio::test]
async fn the_model_may_ask_for_another_time_within_bounds() {
    let bed = bed().await;
    let offer = bed.offers().get("shell").expect("is on offer");
    for timeout in [0, 601] {
        let arguments = json!({"command": "true", "timeout": timeout});
        assert!(offer.checked(&arguments).is_err(), "{timeout}");
    }
    let told = bed
        .refused("shell", json!({"command": "sleep 1000", "timeout": 1}))
        .await;
    assert!(told.starts_with("the command timed out after 1s"), "{told}");
}

#[tokio::test]
async fn a_command_that_does_not_listen_is_ended_too() {
    let bed = short(Duration::from_millis(300)).await;
    let command = "trap 'echo not yet' TERM; echo $$ > pid; while :; do sleep 0.05; done";
    let told = bed.refused("shell", json!({"command": command})).await;
    assert!(told.contains("not yet\n"), "{told}");
    let pid = bed.get("pid").trim().parse().expect("is a number");
    until(|| !runs(pid)).await;
}

#[tokio::test]
async fn a_command_that_never_stops_talking_is_ended() {
    let bed = short(Duration::from_millis(500)).await;
    let told = bed.refused("shell", json!({"command": "yes"})).await;
    assert!(told.contains("bytes left out"), "{}", &told[..200]);
    assert!(told.len() < 3 << 20);
}

#[tokio::test]
async fn a_stopped_command_says_how_far_it_came() {
    let bed = bed().await;
    let command = format!("{FAMILY}\nsleep 1000");
    let invocation = bed.invocation("shell", &json!({"command": command}));
    let stop = invocation.stop.clone();
    let tool = bed.tool("shell");
    let (told, ()) = tokio::join!(tool.call(invocation), async {
        until(|| pids(&bed).len() == 4).await;
        stop.cancel();
    });
    let Err(ToolError::Reply { code, message }) = told else {
        panic!("{told:?}");
    };
    assert_eq!(code, Code::ToolInterrupted);
    // It may have been stopped before it printed anything.
    assert!(
        message.starts_with("the command was stopped; its output until then:\n"),
        "{message}"
    );
    all_gone(&bed).await;
}

#[tokio::test]
async fn a_command_that_nobody_waits_for_is_ended() {
    let bed = bed().await;
    let command = format!("{FAMILY}\nsleep 1000");
    let invocation = bed.invocation("shell", &json!({"command": command}));
    let tool = bed.tool("shell");
    tokio::select! {
        told = tool.call(invocation) => panic!("{told:?}"),
        () = until(|| pids(&bed).len() == 4) => {}
    }
    all_gone(&bed).await;
}

#[tokio::test]
async fn a_sandbox_that_outlives_its_program_is_cleaned_up() {
    let limits = || Limits {
        shell_timeout: Duration::from_millis(300),
        ..Limits::default()
    };
    let cleanup = [
        "sh",
        "-c",
        "echo $1 > $2/cleaned",
        "sh",
        "{call}",
        "{workspace}",
    ];
    let bed = sandboxed(&cleanup, limits()).await;
    // Not after a command that ended on its own.
    bed.call("shell", json!({"command": "true"})).await;
    assert!(!bed.home().join("cleaned").exists());
    bed.refused("shell", json!({"command": "sleep 1000"})).await;
    assert!(bed.get("cleaned").starts_with("call_"));
    std::fs::remove_file(bed.home().join("cleaned")).expect("removes");

    let invocation = bed.invocation(
        "shell",
        &json!({"command": "touch ran; sleep 1000", "timeout": 600}),
    );
    let tool = bed.tool("shell");
    tokio::select! {
        told = tool.call(invocation) => panic!("{told:?}"),
        () = until(|| bed.home().join("ran").exists()) => {}
    }
    until(|| bed.home().join("cleaned").exists()).await;
}

#[tokio::test]
async fn commands_beyond_the_bound_wait_their_turn() {
    let bed = Bed::new(|root| Settings {
        shell: Shell::Local,
        limits: Limits {
            shell_running_max: 1,
            ..Limits::default()
        },
        ..files(root)
    })
    .await;
    let tool = bed.tool("shell");
    let first = bed.invocation(
        "shell",
        &json!({"command": "touch first; while [ ! -e go ]; do sleep 0.01; done"}),
    );
    let second = bed.invocation("shell", &json!({"command": "touch second"}));
    let third = bed.invocation("shell", &json!({"command": "touch third"}));
    let stop = third.stop.clone();
    let (first, second, third, ()) = tokio::join!(
        tool.call(first),
        async {
            until(|| bed.home().join("first").exists()).await;
            tool.call(second).await
        },
        async {
            until(|| bed.home().join("first").exists()).await;
            tool.call(third).await
        },
        async {
            until(|| bed.home().join("first").exists()).await;
            stop.cancel();
            assert!(!bed.home().join("second").exists());
            bed.put("go", "");
        }
    );
    first.expect("runs");
    second.expect("runs");
    assert_eq!(
        third.expect_err("is stopped").to_string(),
        "the call was stopped and changed nothing"
    );
    assert!(!bed.home().join("third").exists());
}
