//! A tenant's data, exported and imported into another tenant, once and again.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::commands::program::{Ended, Serving, ask, ask_with_input, json};

/// Large enough to be stored as a blob.
const PLAN_BYTES: usize = 70 << 10;

/// One tenant of a server.
struct Tenant<'a> {
    url: &'a str,
    id: String,
}

impl<'a> Tenant<'a> {
    fn new(url: &'a str, name: &str) -> Self {
        let made = json(url, &["tenants", "create", name]);
        let id = made["id"].as_str().expect("an id").to_owned();
        Self { url, id }
    }

    fn with<'b>(&'b self, arguments: &[&'b str]) -> Vec<&'b str> {
        [&["--tenant", &self.id], arguments].concat()
    }

    fn ask(&self, arguments: &[&str]) -> Ended {
        ask(self.url, &self.with(arguments))
    }

    fn json(&self, arguments: &[&str]) -> Value {
        json(self.url, &self.with(arguments))
    }

    /// Makes a request for which there is no command.
    fn request(&self, line: &str, body: &str) -> Vec<u8> {
        let host = self.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(host).expect("connects");
        let (length, tenant) = (body.len(), &self.id);
        let head = format!(
            "{line} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
             Mainspring-Tenant: {tenant}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all((head + body).as_bytes()).expect("writes");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("reads");
        let end = answer.windows(4).position(|part| part == b"\r\n\r\n");
        answer.split_off(end.expect("a body") + 4)
    }

    /// Imports a file; returns the three counts per kind from the report.
    fn import(&self, file: &str, code: i32) -> Vec<(String, [u64; 3])> {
        let ended = self.ask(&["import", file, "-o", "json"]);
        assert_eq!(ended.code, code, "{}", ended.stderr);
        let rows: Vec<Value> = serde_json::from_str(&ended.stdout).expect("JSON");
        let count = |row: &Value, name: &str| row[name].as_u64().expect("a count");
        rows.iter()
            .map(|row| {
                let counts = ["created", "known", "refused"].map(|name| count(row, name));
                (row["kind"].as_str().expect("a kind").to_owned(), counts)
            })
            .collect()
    }

    /// The content that an import must restore, without ids and times.
    fn content(&self) -> Value {
        let members = |rows: Value, names: &[&str]| -> Vec<Value> {
            let rows = rows.as_array().cloned().expect("a list");
            rows.iter()
                .map(|row| names.iter().map(|name| row[*name].clone()).collect())
                .collect()
        };
        let skills = self.json(&["skills", "list"]);
        let skills: Value = members(skills, &["name", "hash", "files", "bytes"]).into();
        let versions = self.json(&["agents", "versions", "reviewer"]);
        let versions: Value = members(versions, &["version", "hash", "spec"]).into();
        let agents = self.json(&["agents", "list", "--archived"]);
        let archived: Vec<bool> = agents
            .as_array()
            .into_iter()
            .flatten()
            .map(|agent| !agent["archived_at"].is_null())
            .collect();
        let agents: Value = members(agents, &["name", "version", "aliases"]).into();
        let memories = self.json(&["memories", "list"]);
        let memories: Value =
            members(memories, &["namespace", "text", "metadata", "expires_at"]).into();
        json!([skills, versions, agents, archived, memories])
    }

    /// The only session, and its messages without their ids.
    fn transcript(&self) -> (String, Value) {
        let sessions = self.json(&["sessions", "list"]);
        assert_eq!(sessions.as_array().map(Vec::len), Some(1), "{sessions}");
        let id = sessions[0]["id"].as_str().expect("an id").to_owned();
        let messages = self.json(&["sessions", "messages", &id]);
        let messages = messages.as_array().cloned().expect("a list");
        let said = messages
            .iter()
            .map(|message| json!([message["role"], message["content"]]))
            .collect();
        (id, said)
    }
}

/// Writes a file; returns its path.
fn write(path: &Path, content: impl AsRef<[u8]>) -> String {
    fs::create_dir_all(path.parent().expect("has one")).expect("makes");
    fs::write(path, content).expect("writes");
    path.to_str().expect("UTF-8").to_owned()
}

/// Fills a tenant with something of every kind; returns the SHA-256 of its blob.
fn fill(tenant: &Tenant<'_>, folder: &Path) -> String {
    let skill = folder.join("greeting");
    for words in ["Say hello.", "Say good morning."] {
        let front = format!("---\nname: greeting\ndescription: How to greet.\n---\n{words}\n");
        write(&skill.join("SKILL.md"), front);
        write(&skill.join("data/a b#1?.bin"), [0, 255, 1]);
        tenant.json(&["skills", "add", skill.to_str().expect("UTF-8")]);
    }
    // Its first and its last version are the same.
    for (prompt, alias) in [
        ("Review.", "old"),
        ("Be kind.", "live"),
        ("Review.", "next"),
    ] {
        let agent = json!({ "name": "reviewer", "system_prompt": prompt, "skills": ["greeting"] });
        let agent = agent.to_string();
        let file = write(&folder.join("reviewer.json"), agent);
        tenant.json(&["agents", "apply", &file, "--alias", alias]);
    }
    let agent = json!({ "name": "retired" }).to_string();
    let file = write(&folder.join("retired.json"), agent);
    tenant.json(&["agents", "apply", &file]);
    tenant.json(&["agents", "archive", "retired"]);
    // More than one page.
    for n in 0..60 {
        let body = json!({
            "namespace": "user/1", "text": format!("fact {n}"), "metadata": { "n": n },
        });
        tenant.request("POST /v1/memories", &body.to_string());
    }
    let until = ["--expires-at", "2199-01-01T00:00:00Z"];
    let add = ["memories", "add", "the last one", "--namespace", "team"];
    tenant.json(&[&add[..], &until].concat());
    let plan = BASE64_STANDARD.encode(vec![b'x'; PLAN_BYTES]);
    let source = json!({ "type": "base64", "media_type": "text/plain", "data": plan });
    let file = json!({ "type": "file", "name": "plan.txt", "source": source });
    let text = json!({ "type": "text", "text": "see the plan" });
    let send = json!({ "session": { "agent": {} }, "input": [text, file] });
    let made = tenant.request("POST /v1/sends?wait=30s", &send.to_string());
    let made: Value = serde_json::from_slice(&made).expect("JSON");
    assert_eq!(made["status"], "completed", "{made}");
    let (_, said) = tenant.transcript();
    let sha256 = said[0][1][1]["source"]["sha256"].as_str();
    sha256
        .unwrap_or_else(|| panic!("no blob: {said}"))
        .to_owned()
}

fn of(report: &[(String, [u64; 3])]) -> Vec<(&str, [u64; 3])> {
    let rows = report.iter();
    rows.map(|(kind, counts)| (kind.as_str(), *counts))
        .collect()
}

#[test]
fn a_tenant_is_exported_and_imported_into_another_one_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(&folder.path().join("data"), &[]);
    let blue = Tenant::new(&dev.url, "blue");
    let sha256 = fill(&blue, folder.path());
    let file = folder.path().join("blue.jsonl");
    let path = file.to_str().expect("UTF-8");
    let ended = blue.ask(&["export", path]);
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (0, ""),
        "{}",
        ended.stderr
    );
    let stdout = blue.ask(&["export"]);
    let exported = fs::read_to_string(&file).expect("the file");
    assert_eq!(stdout.stdout, exported);
    let without = blue.ask(&["export", "--no-sessions"]).stdout;
    assert!(without.len() < PLAN_BYTES && exported.len() > PLAN_BYTES);

    let green = Tenant::new(&dev.url, "green");
    let report = green.import(path, 0);
    let whole = [
        ("skills", [2, 0, 0]),
        ("agents", [4, 0, 0]),
        ("aliases", [3, 0, 0]),
        ("memories", [61, 0, 0]),
        ("sessions", [1, 0, 0]),
    ];
    assert_eq!(of(&report), whole);
    assert_eq!(green.content(), blue.content());
    let ((copy, copied), (original, said)) = (green.transcript(), blue.transcript());
    assert_eq!(copied, said);
    assert_ne!(copy, original);
    let blob = green.request(&format!("GET /v1/blobs/{sha256}"), "");
    assert_eq!(blob, vec![b'x'; PLAN_BYTES]);
    let file = ["skills", "read", "greeting", "SKILL.md"];
    assert_eq!(green.ask(&file).stdout, blue.ask(&file).stdout);

    // A second import creates nothing twice.
    let before = green.content();
    let report = green.import(path, 0);
    let again = whole.map(|(kind, [created, ..])| (kind, [0, created, 0]));
    assert_eq!(of(&report), again);
    assert_eq!(green.content(), before);
    assert_eq!(green.transcript().0, copy);
    // From stdin as well.
    let ended = ask_with_input(green.url, &green.with(&["import", "-"]), &exported);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(green.content(), before);
}

#[test]
fn what_an_import_does_not_take_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(&folder.path().join("data"), &[]);
    let tenant = Tenant::new(&dev.url, "blue");
    let own = json!({ "name": "reviewer", "system_prompt": "Mine." }).to_string();
    let own = write(&folder.path().join("own.json"), own);
    tenant.json(&["agents", "apply", &own, "--alias", "live"]);
    let spec = json!({ "system_prompt": "Theirs." });
    let agent = json!({ "name": "reviewer", "version": 1, "hash": "0".repeat(64), "spec": spec });
    let entry =
        |id: &str, text: &str| json!({ "memory": { "id": id, "namespace": "a", "text": text } });
    let lines = [
        json!({ "format": "mainspring.tenant", "version": 1 }),
        json!({ "agent": agent }),
        json!({ "agent_state": {
            "name": "reviewer", "aliases": { "live": 1, "next": 1 }, "archived": false,
        } }),
        entry("mem_1", "kept"),
        entry("mem_2", ""),
        entry("mem_1", "changed since"),
        json!({ "end": { "skills": 0, "agents": 1, "memories": 3, "sessions": 0 } }),
    ];
    let lines = lines.map(|line| format!("{line}\n"));
    let path = folder.path().join("archive.jsonl");
    let path = write(&path, lines.concat());
    let report = tenant.import(&path, 1);
    let expected = [
        ("skills", [0, 0, 0]),
        ("agents", [1, 0, 0]),
        ("aliases", [1, 0, 1]),
        ("memories", [1, 0, 2]),
        ("sessions", [0, 0, 0]),
    ];
    assert_eq!(of(&report), expected);
    let said = tenant.ask(&["import", &path]).stderr;
    for part in [
        "refused: aliases reviewer@live: it points at version 1 here",
        "refused: memories mem_2: ",
        "refused: memories mem_1: ",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let shown = tenant.json(&["agents", "show", "reviewer"]);
    assert_eq!(shown["aliases"], json!({ "live": 1, "next": 2 }));
    // A truncated archive: the part before the cut is imported, and an error says so.
    let cut = lines[..4].concat();
    let path = write(&folder.path().join("cut.jsonl"), cut);
    let ended = tenant.ask(&["import", &path]);
    assert_eq!(ended.code, 1);
    assert!(ended.stderr.contains("cut off"), "{}", ended.stderr);
    for (content, part) in [
        (
            "{\"format\":\"mainspring.session\",\"version\":1}\n",
            "line 1",
        ),
        (
            "{\"format\":\"mainspring.tenant\",\"version\":9}\n",
            "version 9",
        ),
    ] {
        let path = write(&folder.path().join("other.jsonl"), content);
        let ended = tenant.ask(&["import", &path]);
        assert_eq!(ended.code, 1, "{content}");
        assert!(ended.stderr.contains(part), "{content}: {}", ended.stderr);
    }
}
