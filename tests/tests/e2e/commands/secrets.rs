//! Secrets of HTTP tools: they reach the hosts that they are for, and nothing else.

use std::fs;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::commands::fake::{Fake, json as answer};
use crate::commands::program::{Serving, ask, ask_with_input, binary, json as shown};

const SECRET: &str = "ghp-canary/0123+456789";

/// What the secret looks like wherever it could turn up.
fn forms() -> Vec<String> {
    let percent = SECRET.replace('/', "%2F").replace('+', "%2B");
    let basic = STANDARD.encode(format!("me:{SECRET}"));
    let bare = STANDARD.encode(SECRET).trim_end_matches('=').to_owned();
    vec![
        SECRET.to_owned(),
        percent,
        basic,
        bare,
        SECRET.replace('/', "\\/"),
    ]
}

/// An API that says everything that it was sent, once as a success and once as an error.
fn api() -> Fake {
    Fake::choosing(|line| {
        let said = [line.to_owned()].into_iter().chain(forms());
        let body = json!({ "you": said.collect::<Vec<_>>(), "found": { "id": 7 } });
        let status = if line.contains("/denied") { 403 } else { 200 };
        answer(status, "", &body.to_string())
    })
}

/// `dev`, with all that it logs in a file.
fn dev(folder: &Path) -> Serving {
    const ALL: &str = "exec \"$0\" \"$1\" \"$2\" \"$3\" \"$4\" trace \"$6\" \"$7\" 2>\"$LOG\"";
    let mut command = Command::new("sh");
    command
        .env("LOG", folder.join("log"))
        .env("MAINSPRING_TOOLS_ALLOW_PRIVATE", "127.0.0.1");
    command.arg("-c").arg(ALL).arg(binary());
    Serving::dev_by(command, &folder.join("data"), &[])
}

fn has_none(what: &str, bytes: &[u8]) {
    for form in forms() {
        let has = bytes.windows(form.len()).any(|at| at == form.as_bytes());
        assert!(!has, "{what} has {form}");
    }
}

#[test]
fn a_secret_reaches_its_host_and_no_transcript_event_log_export_or_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let api = api();
    let dev = dev(folder.path());
    let set = ["secrets", "set", "github", "--host", &api.url];
    let set = ask_with_input(&dev.url, &set, &format!("{SECRET}\n"));
    assert_eq!(set.code, 0, "{}", set.stderr);
    let auths = [
        json!({ "type": "bearer", "secret": "github" }),
        json!({ "type": "basic", "user": "me", "secret": "github" }),
        json!({ "type": "api_key", "in": "query", "name": "k", "secret": "github" }),
    ];
    let tools = ["look", "denied"].into_iter().flat_map(|path| {
        let url = format!("{}/{path}/{{id}}", api.url);
        let auths = auths.iter().enumerate();
        auths.map(move |(n, auth)| {
            json!({ "type": "http", "name": format!("{path}{n}"), "url": url, "request": { "auth": auth } })
        })
    });
    let agent = folder.path().join("agent.json");
    fs::write(
        &agent,
        json!({ "tools": tools.collect::<Vec<_>>() }).to_string(),
    )
    .expect("writes");
    let agent = agent.to_str().expect("UTF-8");
    for path in ["look", "denied"] {
        for n in 0..auths.len() {
            let input = format!("!tool {path}{n} {{\"id\": \"a b\"}}");
            let sent = ask(&dev.url, &["send", "--wait", "--agent", agent, &input]);
            let said = sent.stdout + &sent.stderr;
            assert!(said.contains("[redacted]"), "{path}{n}: {said}");
            has_none("the answer", said.as_bytes());
        }
    }
    let asked = api.asked();
    assert_eq!(asked.len(), 6);
    assert_eq!(asked[0].line, "GET /look/a%20b");
    let sent = |at: usize| {
        asked[at]
            .headers
            .iter()
            .any(|header| header.to_lowercase().contains(&SECRET.to_lowercase()))
    };
    assert!(sent(0) && sent(3), "{:?}", asked[0].headers);

    let sessions = shown(&dev.url, &["sessions", "list"]);
    for session in sessions.as_array().expect("a list") {
        let id = session["id"].as_str().expect("an id");
        for words in [
            ["sessions", "show", id],
            ["sessions", "messages", id],
            ["sessions", "export", id],
        ] {
            let shown = ask(&dev.url, &words);
            assert!(!shown.stdout.is_empty(), "{words:?}: {}", shown.stderr);
            has_none(&format!("{words:?}"), shown.stdout.as_bytes());
        }
    }
    for words in [
        &["export"][..],
        &["secrets", "list"],
        &["secrets", "show", "github"],
    ] {
        let shown = ask(&dev.url, words);
        assert_eq!(shown.code, 0, "{words:?}: {}", shown.stderr);
        has_none(&format!("{words:?}"), shown.stdout.as_bytes());
    }
    has_none(
        "the metrics",
        crate::commands::program::metrics(&dev.url).as_bytes(),
    );

    // Without it the tool is not called, and the model is told why.
    let gone = ask(&dev.url, &["secrets", "delete", "github"]);
    assert_eq!(gone.code, 0, "{}", gone.stderr);
    drop(dev);
    let log = fs::read(folder.path().join("log")).expect("a log");
    assert!(log.len() > 1_000, "it logs everything");
    has_none("the log", &log);
    for file in fs::read_dir(folder.path().join("data")).expect("a folder") {
        let file = file.expect("an entry").path();
        let Ok(bytes) = fs::read(&file) else { continue };
        has_none(&file.display().to_string(), &bytes);
    }
}

#[test]
fn the_operations_of_an_api_become_tools_that_reach_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let api = Fake::choosing(|line| answer(200, "", &json!({ "asked": line }).to_string()));
    let document = json!({
        "openapi": "3.1.0",
        "servers": [{ "url": "/v2" }],
        "paths": { "/pets/{petId}": { "get": {
            "operationId": "getPet",
            "summary": "A pet.",
            "parameters": [
                { "name": "petId", "in": "path", "required": true, "schema": { "type": "integer" } },
                { "name": "fields", "in": "query", "schema": { "type": "array", "items": { "type": "string" } } },
            ],
        } } },
    });
    let (from, to) = (
        folder.path().join("openapi.json"),
        folder.path().join("agent.json"),
    );
    fs::write(&from, document.to_string()).expect("writes");
    let (from, to) = (from.to_str().expect("UTF-8"), to.to_str().expect("UTF-8"));
    let words = [
        "tools",
        "import",
        from,
        "--operations",
        "getPet",
        "--api-server",
        &api.url,
        "--out",
        to,
    ];
    let imported = ask("http://127.0.0.1:1", &words);
    assert_eq!(imported.code, 0, "{}", imported.stderr);
    let dev = dev(folder.path());
    let input = "!tool getPet {\"petId\": 7, \"fields\": [\"a&b\", \"c\"]}";
    let sent = ask(&dev.url, &["send", "--wait", "--agent", to, input]);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    assert_eq!(api.asked()[0].line, "GET /v2/pets/7?fields=a%26b&fields=c");
}
