//! Programs that embed Mainspring, killed with signal 9 and started again: one at a time on a file, several on one Postgres.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

const ASKS: &str = r#"!tool stock {"article": "tea"}"#;
const TOLD: &str = "stock answered: 12 of tea";

/// The program that is killed: cargo builds examples beside the tests of a package.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("this program has a path");
    let folder = test
        .parent()
        .and_then(Path::parent)
        .expect("it is in target/…/deps");
    let program = folder.join("examples/processes");
    assert!(
        program.exists(),
        "build it first: cargo build -p mainspring --example processes"
    );
    program
}

/// A database, and the file to which all programs on it write the ids of their calls.
struct Place {
    folder: TempDir,
    url: String,
}

impl Place {
    fn on_file() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite:{}", folder.path().join("app.db").display());
        Self { folder, url }
    }

    /// What a program is told that has the tool and sends this.
    fn told(&self, repeat: &str, keys: &[&str]) -> Value {
        let sends: Vec<Value> = keys
            .iter()
            .map(|key| json!({"key": key, "text": ASKS}))
            .collect();
        let calls = self.folder.path().join("calls");
        json!({"url": self.url, "tools": true, "repeat": repeat, "calls": calls, "dies": false, "sends": sends, "looks": []})
    }

    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join("calls"));
        text.unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

fn start(told: &Value) -> Child {
    let mut command = Command::new(program());
    command
        .arg(told.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    command.spawn().expect("it starts")
}

fn ended(child: Child) -> Output {
    child.wait_with_output().expect("it ends")
}

/// The lines of a program that ended well.
fn lines(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::to_owned).collect()
}

/// Runs a program that dies in its first call; the id of its send.
fn dies(mut told: Value) -> String {
    told["dies"] = true.into();
    let output = ended(start(&told));
    assert_eq!(output.status.signal(), Some(9), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let first = text.lines().next().expect("it sent something");
    first.rsplit(' ').next().expect("an id").to_owned()
}

#[test]
fn a_program_that_is_killed_within_a_tool_answers_once_when_it_is_back() {
    let place = Place::on_file();
    let told = place.told("keyed", &["order-1"]);
    let id = dies(told.clone());
    let lines = lines(&ended(start(&told)));
    assert_eq!(
        lines,
        [
            format!("sent order-1 {id}"),
            format!("answer order-1 {TOLD}")
        ]
    );
    // The call was made again, under its id.
    let calls = place.calls();
    assert_eq!((calls.len(), &calls[0]), (2, &calls[1]));
}

#[test]
fn a_call_that_must_not_be_repeated_is_not() {
    let place = Place::on_file();
    let told = place.told("once", &["order-1"]);
    dies(told.clone());
    let lines = lines(&ended(start(&told)));
    let answer = "the work broke off around this call: whether it took effect is not known, and it is not made again";
    assert!(lines[1].contains(answer), "{lines:?}");
    assert_eq!(place.calls().len(), 1);
}

#[test]
fn a_file_has_one_program_at_a_time() {
    let place = Place::on_file();
    let mut told = place.told("safe", &[]);
    told["sends"] = json!([{"key": "later", "text": "wait !sleep 60s"}]);
    let mut first = start(&told);
    let mut line = String::new();
    let said = first.stdout.take().expect("its output");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(said), &mut line).expect("a line");
    let second = ended(start(&told));
    first.kill().expect("killed");
    first.wait().expect("it ends");
    assert!(line.starts_with("sent later"), "{line}");
    assert!(!second.status.success());
}

/// A database of its own on the server of `MAINSPRING_TEST_POSTGRES_URL`, which is dropped with it.
struct Postgres {
    server: String,
    name: String,
}

impl Postgres {
    fn create() -> Option<Self> {
        let variables = std::env::vars_os();
        let found = variables
            .into_iter()
            .find(|(name, _)| name == "MAINSPRING_TEST_POSTGRES_URL");
        let server = found?.1.into_string().ok()?;
        let name = format!("mainspring_embedded_{}", std::process::id());
        let postgres = Self { server, name };
        postgres.psql(&format!("CREATE DATABASE {}", postgres.name));
        Some(postgres)
    }

    fn psql(&self, statement: &str) {
        let mut psql = Command::new("psql");
        let run = psql.args([self.server.as_str(), "-qc", statement]).status();
        assert!(run.is_ok_and(|status| status.success()), "{statement}");
    }

    fn place(&self) -> Place {
        let (address, _) = self.server.rsplit_once('/').expect("a URL with a database");
        Place {
            folder: tempfile::tempdir().expect("a folder"),
            url: format!("{address}/{}", self.name),
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.psql(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}

#[test]
fn programs_on_one_postgres_take_over_from_each_other_and_leave_alone_what_they_have_no_tool_for() {
    let Some(postgres) = Postgres::create() else {
        let required = std::env::var_os("REQUIRE_STORES").is_some_and(|stores| stores == "all");
        assert!(!required, "MAINSPRING_TEST_POSTGRES_URL is not set");
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: MAINSPRING_TEST_POSTGRES_URL is not set"
        );
        return;
    };
    let place = postgres.place();
    let id = dies(place.told("keyed", &["order-1"]));

    // Another program, without the closure, answers what it can; by then the lease of the one that died is over.
    let mut plain = place.told("keyed", &[]);
    plain["tools"] = false.into();
    plain["sends"] = json!([{"key": "plain", "text": "hello", "delay": "6s"}]);
    plain["looks"] = json!([id]);
    let plain = lines(&ended(start(&plain)));
    assert_eq!(plain[1], "answer plain hello");
    assert!(!plain[2].ends_with("completed"), "{plain:?}");
    assert_eq!(place.calls().len(), 1);

    // Two that have it, at once: each of them is answered all of its own, and one of them what was left.
    let names: Vec<String> = (0..20).map(|n| format!("order-{n}")).collect();
    let (ours, theirs) = names.split_at(10);
    let of = |names: &[String]| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        place.told("keyed", &names)
    };
    let both = [start(&of(ours)), start(&of(theirs))];
    let mut answered = BTreeSet::new();
    for program in both {
        for line in lines(&ended(program)) {
            let Some(rest) = line.strip_prefix("answer ") else {
                continue;
            };
            let (key, text) = rest.split_once(' ').expect("a key and a text");
            assert_eq!(text, TOLD);
            assert!(answered.insert(key.to_owned()), "{key} is answered twice");
        }
    }
    assert_eq!(answered.len(), names.len());
    // One of the calls was made twice, by the one that died and its heir.
    let calls = place.calls();
    let distinct: BTreeSet<&String> = calls.iter().collect();
    assert_eq!(
        (calls.len(), distinct.len()),
        (names.len() + 1, names.len())
    );
}
