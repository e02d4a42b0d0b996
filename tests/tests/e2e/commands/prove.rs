//! `mainspring prove`: each proof holds, and each one finds the fault that it plants.

use mainspring_benches::servers::{Postgres, Redis};
use mainspring_tests::faults::{alone, beside, skipped};
use serde_json::Value;

use crate::commands::program::{Ended, mainspring};

/// Runs a proof for a short time, with what it needs to find its way.
fn prove(name: &str, more: &[&str]) -> Ended {
    let mut command = mainspring();
    command.args(["prove", name, "--seconds", "2"]).args(more);
    command.output().expect("runs").into()
}

/// The report of a proof, as JSON.
fn report(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("no report: {ended:?}"))
}

/// A proof holds, and with `--break` it finds this.
fn holds_and_finds(name: &str, more: &[&str], found: &str) {
    let mut arguments = more.to_vec();
    arguments.extend(["-o", "json"]);
    let ended = prove(name, &arguments);
    let proved = report(&ended);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(proved["verdict"], "proved", "{proved}");
    assert_eq!(proved["audit"]["violations"], 0, "{proved}");
    assert_eq!(proved["findings"], serde_json::json!([]), "{proved}");
    arguments.push("--break");
    let ended = prove(name, &arguments);
    let broken = report(&ended);
    assert_eq!((ended.code, ended.stderr.as_str()), (1, ""), "{broken}");
    assert_eq!(broken["verdict"], "broken", "{broken}");
    let findings = broken["findings"].to_string();
    assert!(findings.contains(found), "{found}: {findings}");
}

#[test]
fn a_call_of_unknown_outcome_is_not_repeated() {
    let _turn = beside().expect("a lock");
    holds_and_finds("unknown-outcome", &[], "`charge` acted twice");
}

#[test]
fn each_send_is_answered_once_while_everything_is_killed() {
    let _turn = beside().expect("a lock");
    let found = "clients were answered more than once";
    holds_and_finds("kill-everything", &["--seed", "7"], found);
}

#[test]
fn a_stream_is_whole_while_its_server_is_killed() {
    let _turn = beside().expect("a lock");
    let found = "the client got event 1.0 (send.queued)";
    holds_and_finds("migrate-stream", &[], found);
}

#[test]
fn a_process_that_hung_writes_nothing_twice() {
    let _turn = beside().expect("a lock");
    holds_and_finds("one-writer", &[], "a second process uses the data");
}

#[test]
fn on_servers_a_process_that_hung_is_succeeded_and_a_queue_is_emptied() {
    let _turn = beside().expect("a lock");
    let servers = Postgres::start().and_then(|postgres| Ok((postgres, Redis::start()?)));
    let (postgres, redis) = match servers {
        Ok(servers) => servers,
        Err(_) if skipped() => return,
        Err(error) => panic!("{error:#}"),
    };
    let database = postgres.create_database("prove").expect("a database");
    let more = ["--database-url", database.as_str()];
    let found = "the transcript has 3 answers to two questions";
    holds_and_finds("one-writer", &more, found);
    let url = redis.url();
    let more = [
        "--database-url",
        database.as_str(),
        "--redis-url",
        url.as_str(),
    ];
    let found = "sends are stored, and clients meant";
    holds_and_finds("burn-queue", &more, found);
}

#[test]
fn a_fan_out_keeps_to_its_budget() {
    let _turn = beside().expect("a lock");
    holds_and_finds("capped-fan-out", &[], "and the budget is 6000");
}

#[test]
fn a_long_history_costs_nothing_more() {
    let _turn = alone().expect("a lock");
    holds_and_finds("cheap-history", &[], "a request has");
}

#[test]
fn requests_continue_the_ones_before_them() {
    let _turn = beside().expect("a lock");
    holds_and_finds("warm-cache", &[], "differs from the one before it");
}

#[test]
fn a_queue_that_is_burned_loses_nothing() {
    let _turn = beside().expect("a lock");
    holds_and_finds("burn-queue", &[], "sends are stored, and clients meant");
}

#[test]
fn a_proof_is_told_line_by_line_and_ends_with_its_verdict() {
    let _turn = beside().expect("a lock");
    let ended = prove("unknown-outcome", &[]);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");
    for part in [
        "s  killed the process with signal 9",
        "what clients were told",
        "`charge` was called once",
        "`record` was called twice under 1 key",
        "audit: no invariant is violated",
    ] {
        assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }
    assert!(ended.stdout.ends_with("\nPROVED\n"), "{}", ended.stdout);
    let broken = prove("unknown-outcome", &["--break"]);
    assert_eq!(broken.code, 1, "{broken:?}");
    let verdict = "\nBROKEN: `charge` acted twice: it must not be called again after a crash\n";
    assert!(broken.stdout.contains(verdict), "{}", broken.stdout);
    let last = "\nThe planted fault was found.\n";
    assert!(broken.stdout.ends_with(last), "{}", broken.stdout);
}

#[test]
fn proofs_are_listed_and_others_are_refused() {
    let mut command = mainspring();
    let all: Ended = command.arg("prove").output().expect("runs").into();
    assert_eq!((all.code, all.stderr.as_str()), (0, ""));
    for name in ["unknown-outcome", "kill-everything", "burn-queue"] {
        assert!(all.stdout.contains(&format!("{name}\n")), "{}", all.stdout);
    }
    assert_eq!(prove("everything", &[]).code, 2);
    for (name, flag) in [
        ("burn-queue", "--redis-url"),
        ("one-writer", "--redis-url"),
        ("warm-cache", "--database-url"),
    ] {
        let ended = prove(name, &[flag, "redis://127.0.0.1:1"]);
        assert_eq!(ended.code, 2, "{name}: {}", ended.stderr);
    }
    let ended = prove(
        "one-writer",
        &["--database-url", "postgres://x@127.0.0.1:1/x"],
    );
    assert_ne!(ended.code, 0);
    assert!(ended.stderr.contains("error: "), "{}", ended.stderr);
}
