//! Skills: checked, published, mounted, and used by an agent whose tools run in a process of their own.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::commands::program::{Serving, ask, eventually, json, mainspring};

const FRONT: &str = "---\nname: greeting\ndescription: How to greet.\n---\nRun scripts/run.sh.\n";

fn put(root: &Path, path: &str, content: impl AsRef<[u8]>) {
    let file = root.join(path);
    fs::create_dir_all(file.parent().expect("has one")).expect("makes");
    fs::write(file, content).expect("writes");
}

fn greeting(root: &Path) {
    put(root, "greeting/SKILL.md", FRONT);
    put(
        root,
        "greeting/scripts/run.sh",
        "#!/bin/sh\necho hello \"$1\"\n",
    );
    put(root, "greeting/data.bin", [0, 255, 1]);
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_check_prints_every_problem_and_needs_no_server() {
    let folder = tempfile::tempdir().expect("a folder");
    greeting(folder.path());
    let check = |path: &Path| ask("http://127.0.0.1:1", &["skills", "check", text(path)]);
    let sound = check(&folder.path().join("greeting"));
    assert_eq!((sound.code, sound.stderr.as_str()), (0, ""));
    assert!(sound.stdout.contains("greeting"), "{}", sound.stdout);
    put(
        folder.path(),
        "broken/SKILL.md",
        "---\nname: Broken!\n---\n",
    );
    put(folder.path(), "empty/notes", "");
    let all = check(folder.path());
    assert_eq!(all.code, 1);
    for part in ["Broken!", "description", "empty", "SKILL.md: is missing"] {
        assert!(all.stderr.contains(part), "{part}: {}", all.stderr);
    }
    assert!(all.stdout.contains("greeting"), "{}", all.stdout);
    assert_eq!(check(&folder.path().join("none")).code, 3);
}

#[test]
fn a_skill_is_published_shown_read_and_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let skills = folder.path().join("skills");
    greeting(&skills);
    let dev = Serving::dev(&folder.path().join("data"), &[]);
    let added = json(&dev.url, &["skills", "add", text(&skills.join("greeting"))]);
    let checked = json(&dev.url, &["skills", "check", text(&skills)]);
    assert_eq!(added["hash"], checked[0]["hash"]);
    let rows = json(&dev.url, &["skills", "list"]);
    assert_eq!(
        (&rows[0]["name"], &rows[0]["files"]),
        (&json!("greeting"), &json!(3))
    );
    let version = format!("greeting@{}", added["hash"].as_str().expect("a hash"));
    assert_eq!(
        json(&dev.url, &["skills", "show", &version])["hash"],
        added["hash"]
    );
    assert_eq!(ask(&dev.url, &["skills", "read", "greeting"]).stdout, FRONT);
    let script = ask(&dev.url, &["skills", "read", "greeting", "scripts/run.sh"]);
    assert_eq!(script.stdout, "#!/bin/sh\necho hello \"$1\"\n");
    let broken = folder.path().join("skills/greeting/SKILL.md");
    fs::write(&broken, "no front matter").expect("writes");
    let refused = ask(&dev.url, &["skills", "add", text(&skills.join("greeting"))]);
    assert_eq!(refused.code, 1);
    assert!(
        refused.stderr.contains("front matter"),
        "{}",
        refused.stderr
    );
    assert_eq!(ask(&dev.url, &["skills", "remove", "greeting"]).code, 0);
    assert_eq!(ask(&dev.url, &["skills", "show", "greeting"]).code, 3);
    assert_eq!(ask(&dev.url, &["skills", "show", &version]).code, 0);
    assert_eq!(
        ask(&dev.url, &["skills", "remove", "greeting", "--versions"]).code,
        0
    );
    assert_eq!(ask(&dev.url, &["skills", "show", &version]).code, 3);
}

/// Runs a send with the demo model; returns the answer.
fn answer(dev: &Serving, session: &str, input: &str) -> String {
    let done = json(&dev.url, &["send", input, "--session", session, "--wait"]);
    assert_eq!(done["status"], "completed", "{done}");
    done["output_text"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_mounted_skill_runs_in_a_process_of_its_own_and_is_published_again_when_it_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let skills = folder.path().join("skills");
    greeting(&skills);
    put(&skills, "broken/SKILL.md", "---\nname: broken\n---\n");
    let config = folder.path().join("mainspring.toml");
    let settings = format!(
        "[tools]\nshell = \"local\"\nlauncher = [\"{{child}}\"]\n[skills]\ndirs = [{:?}]\nreload_interval = \"1s\"\n",
        text(&skills)
    );
    fs::write(&config, settings).expect("writes");
    let data = folder.path().join("data");
    let dev = Serving::dev(&data, &["--config", text(&config)]);
    let list = ask(&dev.url, &["skills", "list"]);
    assert!(list.stdout.contains("mounted"), "{}", list.stdout);
    assert!(
        list.stderr.contains("the skill broken was left out"),
        "{}",
        list.stderr
    );
    let agent = json!({ "agent": { "tools": ["shell"], "skills": ["greeting"] } });
    let session = post(&dev.url, "/v1/sessions", &agent);
    let id = session["id"].as_str().expect("an id");
    let skill = session["agent"]["skills"][0].as_str().expect("a version");
    let (name, hash) = skill.split_once('@').expect("a version");
    let place = format!(".skills/{name}@{}", &hash[..12]);
    let read = answer(&dev, id, "!tool skill_read {\"name\": \"greeting\"}");
    assert!(
        read.contains("Run scripts/run.sh.") && read.contains(&place),
        "{read}"
    );
    let script = data
        .join("workspaces")
        .join(id)
        .join(&place)
        .join("scripts/run.sh");
    assert!(script.exists());
    // Remove it, as on another machine: a command that names it finds it again.
    fs::remove_dir_all(data.join("workspaces").join(id).join(".skills")).expect("removes");
    let run = json!({ "command": format!("{place}/scripts/run.sh you") });
    let ran = answer(&dev, id, &format!("!tool shell {run}"));
    assert!(ran.contains("hello you"), "{ran}");
    put(
        &skills,
        "greeting/scripts/run.sh",
        "#!/bin/sh\necho good day \"$1\"\n",
    );
    eventually("the new version", || {
        let now = json(&dev.url, &["skills", "show", "greeting"]);
        (now["hash"] != json!(hash)).then_some(())
    });
    // The session keeps the version that it started with.
    let ran = answer(&dev, id, &format!("!tool shell {run}"));
    assert!(ran.contains("hello you"), "{ran}");
}

/// Posts a JSON body; returns the server's answer.
fn post(url: &str, path: &str, body: &Value) -> Value {
    let (host, body) = (url.trim_start_matches("http://"), body.to_string());
    let mut stream = TcpStream::connect(host).expect("connects");
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("writes");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("reads");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

#[test]
fn a_client_command_says_what_it_takes() {
    let help = mainspring()
        .args(["skills", "--help"])
        .output()
        .expect("runs");
    let help = String::from_utf8(help.stdout).expect("UTF-8");
    for verb in ["add", "list", "show", "read", "remove", "check"] {
        assert!(help.contains(verb), "{help}");
    }
}
