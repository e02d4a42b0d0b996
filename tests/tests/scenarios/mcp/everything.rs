//! The protocol authors' reference server for testing clients, from npm.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use mainspring_shared::message::{ContentPart, ImageSource};
use mainspring_shared::tool::Repeat;
use mainspring_worker::llm::Secret;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use super::*;

/// A pinned version, because another version is another peer.
const PACKAGE: &str = "@modelcontextprotocol/server-everything@2026.8.31";

/// The server's program, installed once; `None` if that is not possible.
fn program() -> Option<PathBuf> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match PROGRAM.get_or_init(install) {
        Ok(program) => Some(program.clone()),
        Err(why) => {
            let required = std::env::var_os("REQUIRE_NPM").is_some();
            assert!(!required, "{PACKAGE}: {why}");
            // If stderr is closed there is nobody to report to.
            let _ = writeln!(std::io::stderr(), "SKIPPED: {PACKAGE}: {why}");
            None
        }
    }
}

fn install() -> Result<PathBuf, String> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("everything");
    let program = folder.join("node_modules/.bin/mcp-server-everything");
    // Written last, so an interrupted installation is redone.
    let whole = folder.join(PACKAGE.replace('/', "-"));
    if whole.exists() {
        return Ok(program);
    }
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let npm = Command::new("npm")
        .args([
            "install",
            "--no-audit",
            "--no-fund",
            "--no-save",
            "--prefix",
        ])
        .args([folder.as_os_str(), PACKAGE.as_ref()])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("npm: {error}"))?;
    if !npm.status.success() {
        return Err(String::from_utf8_lossy(&npm.stderr).into_owned());
    }
    std::fs::write(whole, "").map_err(|error| error.to_string())?;
    Ok(program)
}

fn stdio(program: &std::path::Path) -> Transport {
    Transport::Stdio {
        command: program.to_str().expect("UTF-8").to_owned(),
        args: vec!["stdio".to_owned()],
        env: BTreeMap::from([("OF_THE_SERVER".to_owned(), Secret::new("its own"))]),
    }
}

/// Lists the peer's tools, and exercises each kind of answer it has.
async fn it_is_used(pool: &Pool) {
    let listed = tools(pool).await.unwrap();
    for (name, repeat) in [
        ("echo", Repeat::Safe),
        ("get-sum", Repeat::Safe),
        ("gzip-file-as-resource", Repeat::Keyed),
        ("toggle-simulated-logging", Repeat::Once),
    ] {
        assert_eq!(listed[name].traits().repeat, repeat, "{name}");
    }
    let spec = listed["get-sum"].spec();
    assert_eq!(spec.description, "Returns the sum of two numbers");
    assert_eq!(spec.parameters["required"], json!(["a", "b"]));

    assert_eq!(
        text(call(pool, "echo", json!({"message": "hé\u{0}"})).await),
        "Echo: hé\u{0}"
    );
    let sum = text(call(pool, "get-sum", json!({"a": 2, "b": 3})).await);
    assert_eq!(sum, "The sum of 2 and 3 is 5.");
    let weather = call(
        pool,
        "get-structured-content",
        json!({"location": "Chicago"}),
    )
    .await;
    let weather = weather.unwrap().value.expect("a value");
    assert!(weather["temperature"].is_number(), "{weather}");
    let image = call(pool, "get-tiny-image", json!({})).await.unwrap();
    let shown = image.content.iter().find_map(|part| match part {
        ContentPart::Image { source } => Some(source),
        _ => None,
    });
    let Some(ImageSource::Base64 { media_type, data }) = shown else {
        panic!("{image:?}");
    };
    assert!(data.starts_with("iVBORw0KGgo"), "{media_type}: {data:.40}");
    let links = text(call(pool, "get-resource-links", json!({"count": 2})).await);
    assert!(links.contains("demo://resource/dynamic/text/2"), "{links}");
    let resource = text(call(pool, "get-resource-reference", json!({})).await);
    assert!(
        resource.contains("This is a plaintext resource"),
        "{resource}"
    );

    let (code, message) = refusal(call(pool, "get-sum", json!({"a": "x"})).await);
    assert_eq!(code, Code::ToolFailed, "{message}");
    assert!(message.contains("expected number"), "{message}");
    // Meanwhile it reports its progress, and logs other things.
    text(call(pool, "toggle-simulated-logging", json!({})).await);
    let long = json!({"duration": 1, "steps": 4});
    let long = text(call(pool, "trigger-long-running-operation", long).await);
    assert!(long.contains("completed"), "{long}");
}

#[tokio::test]
async fn it_is_used_over_stdio() {
    let Some(program) = program() else { return };
    let pool = pool(stdio(&program), LONG, LONG);
    it_is_used(&pool).await;
    // It sees nothing of the worker's own environment that could be a secret.
    let seen = text(call(&pool, "get-env", json!({})).await);
    let seen: BTreeMap<String, String> = serde_json::from_str(&seen).expect("an object");
    assert_eq!(seen["OF_THE_SERVER"], "its own");
    // What a process inherits is a short list; this test's own environment has more.
    let inherited = [
        "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ",
        "USER",
    ];
    let of_its_runtime =
        |name: &str| name.starts_with("npm_") || name.starts_with("NODE") || name == "_";
    let ours = std::env::vars().filter(|(name, value)| seen.get(name) == Some(value));
    let leaked: Vec<_> = ours
        .map(|(name, _)| name)
        .filter(|name| !inherited.contains(&&**name) && !of_its_runtime(name))
        .collect();
    assert!(leaked.is_empty(), "{leaked:?} of {seen:#?}");
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_left_and_the_next_is_answered() {
    let Some(program) = program() else { return };
    let pool = pool(stdio(&program), Duration::from_secs(3), LONG);
    let long = json!({"duration": 60, "steps": 2});
    let (code, message) = refusal(call(&pool, "trigger-long-running-operation", long).await);
    assert_eq!(code, Code::ToolTimeout, "{message}");
    assert_eq!(
        text(call(&pool, "echo", json!({"message": "on"})).await),
        "Echo: on"
    );
}

/// Starts a server on a port of its own; it ends when dropped.
async fn served(program: &std::path::Path) -> (Child, Transport) {
    // A free port may be taken by the time the server binds it, and then the server exits.
    for _ in 0..5 {
        let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut child = tokio::process::Command::new(program)
            .arg("streamableHttp")
            .env("PORT", port.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        // Wait for its own message: a connection to a port on which nobody listens can be assigned
        // that very port as its local one, and then it connects to itself.
        let mut said = BufReader::new(child.stderr.take().expect("piped")).lines();
        let ready = format!("listening on port {port}");
        let listens = async {
            while let Some(line) = said.next_line().await.unwrap() {
                if line.contains(&ready) {
                    return true;
                }
            }
            false
        };
        if !tokio::time::timeout(LONG, listens).await.expect("a word") {
            continue;
        }
        tokio::spawn(async move { while let Ok(Some(_)) = said.next_line().await {} });
        let transport = Transport::Http {
            url: format!("http://127.0.0.1:{port}/mcp"),
            headers: Vec::new(),
            sources: Box::default(),
        };
        return (child, transport);
    }
    panic!("each of five ports was taken by another");
}

#[tokio::test]
async fn it_is_used_over_http() {
    let Some(program) = program() else { return };
    let (_child, transport) = served(&program).await;
    it_is_used(&pool(transport, LONG, LONG)).await;
}
