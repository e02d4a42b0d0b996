//! The live view.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::commands::fake::{Fake, json as answer, problem};
use crate::commands::program::{Serving, ask, eventually, json};
use crate::commands::terminal::Terminal;

/// A server with one running send of a poet, whose caller is no operator; it is away while the flag is set.
fn poet(is_away: Arc<AtomicBool>) -> Fake {
    let send = json!({
        "id": "snd_1", "session_id": "ses_1", "status": "running", "waiting_on": null,
        "created_at": "2024-01-01T00:00:00Z",
    });
    let sends = json!({ "data": [send], "next_cursor": null }).to_string();
    Fake::choosing(move |line| match line {
        _ if is_away.load(Ordering::Relaxed) => problem(503, "store.unavailable"),
        "GET /v1/sends?status=running" => answer(200, "", &sends),
        "GET /v1/sessions/ses_1" => answer(200, "", "{\"agent\":{\"name\":\"poet\"}}"),
        "GET /v1/queue" | "GET /v1/workers" => problem(403, "auth.forbidden"),
        line if line.starts_with("GET /v1/tenants/") => problem(404, "tenant.not_found"),
        _ => answer(200, "", "{\"data\":[],\"next_cursor\":null}"),
    })
}

#[test]
fn one_frame_has_the_pool_the_worker_the_send_and_what_waits() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(folder.path(), &["--name", "machine-7"]);
    let sleeping = ask(&dev.url, &["send", "!sleep 1h"]);
    assert_eq!(sleeping.code, 0, "{}", sleeping.stderr);
    let question = "!tool ask_person {\"question\": \"Sure?\"}";
    let asking = ask(&dev.url, &["send", "--tool", "ask_person", question]);
    let top = eventually("both are under way", || {
        let top = json(&dev.url, &["top"]);
        let count = |status: &str| top["sends"][status]["count"].clone();
        let is_there = count("running") == 1 && count("waiting") == 1 && top["inbox"]["count"] == 1;
        is_there.then_some(top)
    });
    assert_eq!(
        top["sends"]["running"]["data"][0]["id"],
        sleeping.stdout.trim()
    );
    assert_eq!(top["sends"]["waiting"]["data"][0]["waiting_on"], "human");
    assert_eq!(top["pools"][0]["pool"], "default");
    assert_eq!(top["workers"][0]["name"], "machine-7");
    assert_eq!(top["today"]["sends"], 2);
    let once = ask(&dev.url, &["top", "--once"]);
    assert_eq!((once.code, once.stderr.as_str()), (0, ""));
    for part in [
        "1 running, 1 waiting, 0 queued",
        "1 open questions and approvals",
        "machine-7",
        "default",
        "today    2 sends",
        "human",
        sleeping.stdout.trim(),
        asking.stdout.trim(),
    ] {
        assert!(once.stdout.contains(part), "{part}: {}", once.stdout);
    }
    // Neither a terminal nor asked to print it once.
    assert_eq!(ask(&dev.url, &["top"]).code, 0);
    let none = ask("http://127.0.0.1:1", &["top"]);
    assert_eq!(none.code, 6, "{}", none.stderr);
    assert_eq!(ask(&dev.url, &["top", "--interval", "1ms"]).code, 2);
}

#[test]
fn a_screen_outlives_an_outage_and_is_given_back() {
    let is_away = Arc::new(AtomicBool::new(false));
    let fake = poet(is_away.clone());
    let mut terminal = Terminal::run(&fake.url, "mainspring top --interval 500ms");
    terminal.until("\x1b[?1049h");
    terminal.until("poet");
    is_away.store(true, Ordering::Relaxed);
    let shown = terminal.until(" (for ");
    assert!(shown.contains("! as told"), "{shown:?}");
    // What was seen last stays.
    terminal.until("poet");
    is_away.store(false, Ordering::Relaxed);
    terminal.until("\x1b[J");
    let healed = eventually("it is well again", || {
        let frame = terminal.until("\x1b[J");
        (!frame.contains(" (for ")).then_some(frame)
    });
    assert!(healed.contains("poet"), "{healed:?}");
    terminal.press("xq");
    terminal.until("\x1b[?25h\x1b[?1049l");
    assert!(terminal.child.wait().expect("ends").success());
    // What the caller may not read is asked for once.
    let asked = fake.asked();
    let of = |line: &str| asked.iter().filter(|asked| asked.line == line).count();
    assert_eq!((of("GET /v1/queue"), of("GET /v1/sessions/ses_1")), (1, 1));
    assert!(of("GET /v1/sends?status=running") > 3);
}

#[test]
fn a_narrow_terminal_without_colours_shows_what_fits() {
    let fake = poet(Arc::default());
    let command = "stty cols 30 rows 6; NO_COLOR=1 mainspring top --interval 500ms";
    let mut terminal = Terminal::run(&fake.url, command);
    terminal.until("\x1b[?25l\x1b[H");
    let frame = terminal.until("\x1b[J").replace("\x1b[K", "");
    let lines: Vec<&str> = frame.trim_end_matches("\x1b[J").split("\r\n").collect();
    assert!(lines.len() <= 6, "{lines:?}");
    for line in &lines {
        assert!(
            line.chars().count() < 30 && !line.contains('\x1b'),
            "{lines:?}"
        );
    }
    // Ctrl-C, as a key.
    terminal.press("\x03");
    terminal.until("\x1b[?1049l");
    assert!(terminal.child.wait().expect("ends").success());
}

#[test]
fn a_terminal_that_only_prints_gets_no_escapes() {
    let fake = poet(Arc::default());
    let mut terminal = Terminal::run(&fake.url, "TERM=dumb mainspring top --interval 500ms");
    let first = terminal.until("snd_1");
    let second = terminal.until("snd_1");
    assert!(!format!("{first}{second}").contains('\x1b'), "{first:?}");
    terminal.press("q");
    assert!(terminal.child.wait().expect("ends").success());
}
