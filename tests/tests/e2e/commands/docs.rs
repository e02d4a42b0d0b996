//! The documentation's commands, run as written.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::commands::program::{Ended, Serving, binary};

/// Beginnings of blocks that need more than a server on this machine.
const ELSEWHERE: [(&str, &str); 12] = [
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
    ("mainspring --tenant ten_5", "needs a second server"),
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

/// Before a page's blocks: a refused request fails the page. `-f`, which a page may use itself, excludes the other option.
const PRELUDE: &str = r#"set -e
curl() {
    case " $* " in
        *" -sf "*) command curl "$@" ;;
        *) command curl --fail-with-body "$@" ;;
    esac
}
"#;

/// How long a page may run, in seconds.
const PAGE_SECONDS_MAX: &str = "120";

/// A page's fenced blocks: their languages and contents.
fn fenced(text: &str) -> Vec<(&str, &str)> {
    let inside = text.split("```").skip(1).step_by(2);
    inside.filter_map(|block| block.split_once('\n')).collect()
}

/// A page as it is run: its shell blocks in one shell, one after the other, in a folder that has everything that the
/// project's has, and the files of the page.
struct Page {
    name: String,
    blocks: Vec<String>,
    /// Programs and settings, whose first line is a comment with their name.
    files: Vec<(String, String)>,
}

impl Page {
    fn read(path: &Path, elsewhere: &mut [bool]) -> Self {
        let text = fs::read_to_string(path).expect("can be read");
        let (mut blocks, mut files) = (Vec::new(), Vec::new());
        for (language, block) in fenced(&text) {
            if language == "sh" {
                let begins = |(start, _): &(&str, &str)| block.starts_with(start);
                match ELSEWHERE.iter().position(begins) {
                    Some(place) => elsewhere[place] = true,
                    None => blocks.push(block.to_owned()),
                }
            } else if let Some(name) = file_name(block) {
                files.push((name.to_owned(), block.to_owned()));
            }
        }
        Self {
            name: path.display().to_string(),
            blocks,
            files,
        }
    }

    /// Gives each port of this machine that the page names, but for the default one, a free one instead.
    fn with_free_ports(&self, text: &str) -> String {
        let all = self
            .blocks
            .iter()
            .chain(self.files.iter().map(|(_, text)| text));
        let mut named = BTreeSet::new();
        for text in all {
            let ports = text.split("127.0.0.1:").skip(1);
            named.extend(ports.filter_map(|rest| rest.get(..4)?.parse::<u16>().ok()));
        }
        named.remove(&7464);
        let mut text = text.to_owned();
        for port in named {
            let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let free = free.local_addr().expect("an address").port();
            text = text.replace(&port.to_string(), &free.to_string());
        }
        text
    }

    /// Runs the page as written, except for ports; a refused request fails it.
    fn run(&self, url: &str) -> Ended {
        let folder = tempfile::tempdir().expect("a folder");
        for entry in fs::read_dir(root()).expect("the folder is there") {
            let entry = entry.expect("can be listed");
            let link = folder.path().join(entry.file_name());
            std::os::unix::fs::symlink(entry.path(), link).expect("links");
        }
        let mut script = PRELUDE.to_owned();
        for (place, block) in self.blocks.iter().enumerate() {
            writeln!(script, "echo '[block {place}]' >&2\n{block}").expect("a string takes it");
        }
        // Everything at once, so that each port is replaced by one other.
        let mut whole = script;
        for (name, text) in &self.files {
            write!(whole, "\0{name}\0{text}").expect("a string takes it");
        }
        let whole = self.with_free_ports(&whole);
        let mut parts = whole.split('\0');
        let script = parts
            .next()
            .unwrap_or_default()
            .replace("http://127.0.0.1:7464", url);
        while let (Some(name), Some(text)) = (parts.next(), parts.next()) {
            fs::write(folder.path().join(name), text).expect("writes");
        }
        shell(&script, folder.path(), url)
    }
}

/// Runs a script, and ends what it left running.
fn shell(script: &str, folder: &Path, url: &str) -> Ended {
    let written = |name: &str| fs::File::create(folder.join(name)).expect("creates");
    let binary = binary();
    let mut path = vec![binary.parent().expect("a folder").to_owned()];
    let own = std::env::var_os("PATH").unwrap_or_default();
    path.extend(std::env::split_paths(&own));
    let mut command = Command::new("timeout");
    command
        .args(["--foreground", PAGE_SECONDS_MAX, "sh", "-c", script])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(written(".stdout"))
        .stderr(written(".stderr"))
        .env_clear()
        .env("PATH", std::env::join_paths(path).expect("a path"))
        .env("MAINSPRING_SERVER", url)
        .process_group(0);
    let mut child = command.spawn().expect("sh runs");
    let status = child.wait().expect("it ends");
    let group = format!("-{}", child.id());
    // Fails where nothing is left.
    let _ = Command::new("kill")
        .args(["-s", "KILL", "--", &group])
        .output();
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("can be read");
    Ended {
        code: status.code().unwrap_or(-1),
        stdout: read(".stdout"),
        stderr: read(".stderr"),
    }
}

/// The name of the file that a block is, if its first line is a comment with one.
fn file_name(block: &str) -> Option<&str> {
    let name = block.lines().next()?.strip_prefix("# ")?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let ends = [".py", ".toml"].iter().any(|end| name.ends_with(end));
    (ends && name.chars().all(is_name)).then_some(name)
}

#[test]
fn the_commands_of_the_documentation_do_what_it_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(folder.path(), &[]);
    let (mut ran, mut files, mut elsewhere) = (0, 0, [false; ELSEWHERE.len()]);
    for path in pages() {
        let page = Page::read(&path, &mut elsewhere);
        if page.blocks.is_empty() {
            continue;
        }
        let ended = page.run(&dev.url);
        let name = &page.name;
        assert_eq!(ended.code, 0, "{name}:\n{:#?}\n{ended:#?}", page.blocks);
        for sign in ["\"status\":\"failed\"", "\"status\":\"unknown\""] {
            assert!(!ended.stdout.contains(sign), "{name}:\n{ended:#?}");
        }
        let complains = ended.stderr.lines().any(|line| line.starts_with("error: "));
        assert!(!complains, "{name}:\n{ended:#?}");
        ran += page.blocks.len();
        files += page.files.len();
    }
    assert!(
        ran >= 25 && files >= 3,
        "only {ran} blocks were run, with {files} files"
    );
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
