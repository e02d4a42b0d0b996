use serde_json::{Value, json};

use crate::commands::program::{Serving, ask, eventually, json};

fn id(value: &Value) -> String {
    value["id"].as_str().expect("an id").to_owned()
}

#[test]
fn a_timer_is_made_listed_paused_and_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(folder.path(), &[]);
    let session = id(&json(&dev.url, &["sessions", "create"]));
    let words = [
        "timers",
        "create",
        "report",
        "--session",
        &session,
        "--cron",
        "30 8 * * MON-FRI",
        "--timezone",
        "Europe/Berlin",
        "--catch-up",
        "all",
        "--max-occurrences",
        "3",
        "--jitter",
        "1m",
        "--until",
        "2999-01-31T08:00:00Z",
    ];
    let made = json(&dev.url, &words);
    for (member, expected) in [
        ("status", json!("armed")),
        ("session_id", json!(session)),
        ("cron", json!("30 8 * * MON-FRI")),
        ("timezone", json!("Europe/Berlin")),
        ("catch_up", json!("all")),
        ("max_occurrences", json!(3)),
        ("jitter", json!("1m")),
        ("until", json!("2999-01-31T08:00:00.000Z")),
    ] {
        assert_eq!(made[member], expected, "{member}");
    }
    assert_eq!(made["next"].as_array().map(Vec::len), Some(3));
    let timer = id(&made);
    let other = json(
        &dev.url,
        &[
            "timers",
            "create",
            "x",
            "--session",
            &session,
            "--after",
            "1h",
        ],
    );
    // The newest comes first, and each row shows the time until the next occurrence.
    let table = ask(&dev.url, &["timers", "list", "--session", &session]).stdout;
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.len(), 3, "{table}");
    for (row, timer) in [(rows[1], &other), (rows[2], &made)] {
        let next = timer["next"][0].as_str().expect("a time");
        // The table shows the remaining time, not the timestamp.
        assert!(
            row.starts_with(&id(timer)) && row.contains(" in ") && !row.contains(next),
            "{row}: {next}"
        );
    }
    assert!(
        rows[1].contains(" in 60m ") || rows[1].contains(" in 59m "),
        "{table}"
    );
    assert_eq!(
        json(&dev.url, &["timers", "pause", &timer])["status"],
        "paused"
    );
    let paused = json(&dev.url, &["timers", "list", "--status", "paused"]);
    assert_eq!(paused.as_array().map(Vec::len), Some(1));
    assert_eq!(
        json(&dev.url, &["timers", "resume", &timer])["status"],
        "armed"
    );
    assert_eq!(
        json(&dev.url, &["timers", "cancel", &timer])["status"],
        "cancelled"
    );
    assert_eq!(
        json(&dev.url, &["timers", "show", &timer])["next"],
        json!([])
    );
    assert_eq!(ask(&dev.url, &["timers", "resume", &timer]).code, 4);
}

#[test]
fn what_a_timer_sent_is_found_through_its_occurrences() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(folder.path(), &[]);
    let session = id(&json(&dev.url, &["sessions", "create"]));
    let words = [
        "timers",
        "create",
        "good morning",
        "--session",
        &session,
        "--after",
        "50ms",
        "--every",
        "1s",
        "--max-occurrences",
        "2",
    ];
    let timer = id(&json(&dev.url, &words));
    eventually("the timer is done", || {
        let shown = json(&dev.url, &["timers", "show", &timer]);
        (shown["status"] == "done").then_some(())
    });
    let fired = json(&dev.url, &["timers", "occurrences", &timer]);
    let fired = fired.as_array().expect("occurrences");
    let fates: Vec<_> = fired.iter().map(|one| (&one["n"], &one["fate"])).collect();
    // The newest comes first.
    assert_eq!(
        fates,
        [(&json!(2), &json!("fired")), (&json!(1), &json!("fired"))]
    );
    for one in fired {
        let send = one["send_id"].as_str().expect("a send");
        let tail = ask(&dev.url, &["sends", "tail", send]);
        assert_eq!(tail.code, 0, "{}", tail.stderr);
        let shown = json(&dev.url, &["sends", "show", send]);
        assert_eq!(shown["output_text"], "good morning");
    }
    let table = ask(&dev.url, &["timers", "occurrences", &timer, "--limit", "1"]).stdout;
    assert_eq!(table.lines().count(), 2, "{table}");
}

#[test]
fn a_timer_that_makes_no_sense_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(folder.path(), &[]);
    let session = id(&json(&dev.url, &["sessions", "create"]));
    let create = |more: &[&str]| {
        let words = ["timers", "create", "x", "--session", &session];
        ask(&dev.url, &[&words, more].concat())
    };
    for more in [
        &[][..],
        &["--cron", "bad"],
        &["--every", "1ms"],
        &["--at", "soon"],
        &["--after", "1h", "--cron", "0 8 * * *"],
        &["--cron", "0 8 * * *", "--timezone", "Nowhere/Else"],
    ] {
        let refused = create(more);
        assert_eq!(
            (refused.code, refused.stdout.as_str()),
            (2, ""),
            "{more:?}: {}",
            refused.stderr
        );
    }
    let nobody = "ses_00000000000000000000000000000000";
    let words = [
        "timers",
        "create",
        "x",
        "--session",
        nobody,
        "--after",
        "1h",
    ];
    assert_eq!(ask(&dev.url, &words).code, 3);
    let nothing = "tmr_00000000000000000000000000000000";
    for verb in ["show", "pause", "resume", "cancel"] {
        assert_eq!(ask(&dev.url, &["timers", verb, nothing]).code, 3, "{verb}");
    }
    assert_eq!(json(&dev.url, &["timers", "list"]), json!([]));
}
