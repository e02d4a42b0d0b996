//! The logs of serving processes on stderr.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::commands::program::{ask, eventually, mainspring};

/// `mainspring dev` whose log goes to a file, as JSON.
struct Logging {
    child: Child,
    url: String,
    log: std::path::PathBuf,
}

impl Logging {
    fn dev(folder: &Path, options: &[&str]) -> Self {
        let log = folder.join("log");
        let mut child = mainspring()
            .args(["dev", "--log-format", "json"])
            .args(options)
            .arg("--data-dir")
            .arg(folder.join("data"))
            .stdout(Stdio::piped())
            .stderr(File::create(&log).expect("a file"))
            .spawn()
            .expect("starts");
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        stdout.read_line(&mut line).expect("a first line");
        let url = line.trim().rsplit(' ').next().expect("a word").to_owned();
        Self { child, url, log }
    }

    /// Every line so far; each must be JSON.
    fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).expect("can be read");
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        text.lines().map(parse).collect()
    }

    fn find(&self, message: &str) -> Value {
        eventually(message, || {
            let mut lines = self.lines().into_iter();
            lines.find(|line| {
                line["message"]
                    .as_str()
                    .is_some_and(|it| it.contains(message))
            })
        })
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_worker_a_failed_call_a_failed_send_and_a_stop_have_a_line_each() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut dev = Logging::dev(folder.path(), &["--listen", "127.0.0.1:0"]);
    let begun = dev.find("worker started");
    assert_eq!(
        (&begun["worker.pool"], &begun["providers"]),
        (&"default".into(), &"demo".into())
    );
    let tools = begun["tools"].as_str().expect("names");
    assert!(
        tools.contains("read_file") && !tools.contains("shell"),
        "{tools}"
    );

    let words = [
        "send",
        "--wait",
        "--tool",
        "nosuchtool",
        "!fail 401 a secret plan",
    ];
    let sent = ask(&dev.url, &words);
    assert_eq!(sent.code, 7);
    assert!(
        sent.stderr.contains("nosuchtool is not a built-in tool"),
        "{}",
        sent.stderr
    );
    let call = dev.find("a model call failed");
    assert_eq!(
        (&call["code"], &call["attempt"]),
        (&"llm.auth".into(), &1.into())
    );
    let send = dev.find("a send failed");
    assert_eq!(send["code"], "llm.auth");
    assert!(
        send["send.id"]
            .as_str()
            .is_some_and(|id| id.starts_with("snd_")),
        "{send}"
    );
    assert_eq!(send["send.id"], call["send.id"]);
    assert_eq!(dev.find("does not have")["tool.name"], "nosuchtool");

    let pid = dev.child.id().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-s", "TERM", &pid])
        .status();
    assert!(sent.expect("kill runs").success());
    let ended = eventually("it ends", || dev.child.try_wait().expect("waits"));
    assert_eq!(ended.code(), Some(0));
    dev.find("stopping");
    let text = std::fs::read_to_string(&dev.log).expect("can be read");
    assert!(!text.contains("secret plan"), "what was said is in the log");
}

#[test]
fn who_listens_for_others_has_keys_or_says_that_it_needs_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let everywhere = ["--listen", "0.0.0.0:0"];
    let refused = mainspring()
        .arg("dev")
        .args(everywhere)
        .arg("--data-dir")
        .arg(folder.path().join("data"))
        .output()
        .expect("runs");
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("--insecure"), "{stderr}");

    let dev = Logging::dev(folder.path(), &["--insecure", "--listen", "0.0.0.0:0"]);
    assert!(dev.url.starts_with("http://127.0.0.1:"), "{}", dev.url);
    assert_eq!(
        dev.find("anyone who can reach this address")["level"],
        "WARN"
    );
    assert_eq!(ask(&dev.url, &["workers"]).code, 0);
}
