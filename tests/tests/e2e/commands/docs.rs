//! The documentation's commands, run as written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::commands::program::{Ended, Serving, ask, binary, eventually, json};

/// Beginnings of blocks that need more than a server on this machine.
const ELSEWHERE: [(&str, &str); 11] = [
    (
        "cargo run -- dev",
        "compiles, and serves until it is stopped",
    ),
    (
        "cargo build -p mainspring-cli\nMAINSPRING=",
        "has a test: e2e::agent",
    ),
    (
        "cargo build -p mainspring-cli\nexport",
        "has a test: e2e::storm",
    ),
    ("cargo build --profile dist", "measures for an hour"),
    (
        "examples/long_memory/run.py",
        "has a test: e2e::long_memory",
    ),
    ("cargo xtask test", "runs all tests"),
    ("cargo test -p mainspring-tests", "runs tests"),
    ("MAINSPRING_LLM_PROVIDER=openai", "needs a model"),
    ("MAINSPRING_TOOLS_SHELL=local", "is a part of a command"),
    ("export MAINSPRING_DATABASE_URL", "needs Postgres and Redis"),
    ("mainspring tenants move", "needs several databases"),
];

fn root() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    folder.expect("the crate is in the project").to_owned()
}

fn pages() -> Vec<PathBuf> {
    let root = root();
    let mut pages = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    for folder in [root.join("docs"), root.join("examples")] {
        for entry in fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("can be listed").path();
            if path.extension().is_some_and(|end| end == "md") {
                pages.push(path);
            } else if path.join("README.md").is_file() {
                pages.push(path.join("README.md"));
            }
        }
    }
    pages.sort();
    pages
}

/// A page's fenced blocks of shell commands.
fn blocks(text: &str) -> Vec<String> {
    let fenced = text.split("```sh\n").skip(1);
    let inside = fenced.map(|rest| rest.split("```").next().unwrap_or_default());
    inside.map(str::to_owned).collect()
}

/// Creates a send that waits for an answer, for blocks that give one; returns its session, send and
/// call.
fn question(url: &str) -> [(&'static str, String); 3] {
    let asks = "!tool ask_person {\"question\": \"go on?\"}";
    let sent = ask(url, &["send", "--tool", "ask_person", asks]);
    let send = sent.stdout.trim().to_owned();
    let call = eventually("the question is asked", || {
        let calls = json(url, &["calls", &send]);
        calls[0]["call_id"].as_str().map(str::to_owned)
    });
    let shown = json(url, &["sends", "show", &send]);
    let session = shown["session_id"].as_str().expect("an id").to_owned();
    [("SESSION", session), ("SEND", send), ("CALL", call)]
}

/// Runs a block as written, except for the server's address; a refused request fails it.
fn run(block: &str, url: &str) -> Ended {
    let block = block.replace("http://127.0.0.1:7464", url);
    let script = format!("set -e\ncurl() {{ command curl --fail-with-body \"$@\"; }}\n{block}");
    let binary = binary();
    let folder = binary.parent().expect("a folder").display();
    let mut command = Command::new("sh");
    command
        .args(["-c", &script])
        .current_dir(root())
        .stdin(Stdio::null())
        .env_clear()
        .env("PATH", format!("{folder}:/usr/local/bin:/usr/bin:/bin"))
        .env("MAINSPRING_SERVER", url);
    if block.contains("$CALL") {
        command.envs(question(url));
    }
    command.output().expect("sh runs").into()
}

#[test]
fn the_commands_of_the_documentation_do_what_it_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(folder.path(), &[]);
    let (mut ran, mut elsewhere) = (0, [false; ELSEWHERE.len()]);
    for page in pages() {
        let text = fs::read_to_string(&page).expect("can be read");
        for block in blocks(&text) {
            let begins = |(start, _): &(&str, &str)| block.starts_with(start);
            if let Some(place) = ELSEWHERE.iter().position(begins) {
                elsewhere[place] = true;
                continue;
            }
            let ended = run(&block, &dev.url);
            let page = page.display();
            assert_eq!(ended.code, 0, "{page}:\n{block}\n{ended:#?}");
            for sign in ["\"status\":\"failed\"", "\"status\":\"unknown\"", "error: "] {
                let said = ended.stdout.contains(sign) || ended.stderr.contains(sign);
                assert!(!said, "{page}:\n{block}\n{ended:#?}");
            }
            ran += 1;
        }
    }
    assert!(ran >= 9, "only {ran} blocks were run");
    for ((start, why), seen) in ELSEWHERE.iter().zip(elsewhere) {
        assert!(seen, "no block begins with {start:?} any more, which {why}");
    }
}

/// Functions that a page names as `path/to/file.rs::function`.
fn functions(text: &str) -> Vec<(&str, &str)> {
    let quoted = text.split('`').skip(1).step_by(2);
    let named = quoted.filter_map(|quoted| quoted.split_once(".rs::"));
    named.collect()
}

#[test]
fn functions_that_the_documentation_names_are_where_it_says() {
    let mut named = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).expect("the page can be read");
        for (file, function) in functions(&text) {
            let path = root().join(format!("{file}.rs"));
            let code = fs::read_to_string(&path).unwrap_or_default();
            let is_there = [format!("fn {function}("), format!("fn {function}<")];
            assert!(
                is_there.iter().any(|start| code.contains(start)),
                "{}: {file}.rs has no function {function}",
                page.display()
            );
            named += 1;
        }
    }
    assert!(named >= 12, "{named} functions are named");
}
