//! Published agents, from the command line.

use serde_json::{Value, json};

use crate::commands::program::{Serving, ask, ask_with_input, json};

const REVIEWER: &str = "[[agents]]\nname = \"reviewer\"\nsystem_prompt = \"Review.\"\n\n\
                        [[agents]]\nname = \"writer\"\nsystem_prompt = \"Write.\"\n";

fn outcomes(applied: &Value) -> Vec<String> {
    let rows = applied.as_array().expect("a list").iter();
    let rows = rows.map(|row| {
        let texts = ["name", "version", "outcome"].map(|member| row[member].to_string());
        texts.join(" ").replace('"', "")
    });
    rows.collect()
}

#[test]
fn files_are_applied_once_and_shown_compared_and_archived() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(folder.path(), &[]);
    let file = folder.path().join("agents.toml");
    std::fs::write(&file, REVIEWER).expect("writes");
    let file = file.to_str().expect("UTF-8");
    let preview = ask(&dev.url, &["agents", "apply", "--dry-run", file]);
    assert_eq!(preview.code, 0, "{preview:?}");
    assert!(preview.stdout.contains("reviewer: new\n"), "{preview:?}");
    assert_eq!(json(&dev.url, &["agents", "list"]), json!([]));
    let applied = json(&dev.url, &["agents", "apply", file, "--alias", "live"]);
    assert_eq!(
        outcomes(&applied),
        ["reviewer 1 created", "writer 1 created"]
    );
    let applied = json(&dev.url, &["agents", "apply", file]);
    assert_eq!(
        outcomes(&applied),
        ["reviewer 1 unchanged", "writer 1 unchanged"]
    );
    let yaml = "name: reviewer\nsystem_prompt: Review well.\n";
    let piped = ask_with_input(&dev.url, &["agents", "apply", "-"], yaml);
    assert!(piped.stdout.contains("updated"), "{piped:?}");
    let diff = ask(&dev.url, &["agents", "diff", "reviewer"]);
    let expected = "reviewer@1 → reviewer@2\n  /system_prompt\n    - Review.\n    + Review well.\n";
    assert_eq!(diff.stdout, expected);
    let versions = json(&dev.url, &["agents", "versions", "reviewer"]);
    assert_eq!(versions.as_array().map(Vec::len), Some(2));
    let shown = json(&dev.url, &["agents", "show", "reviewer@live"]);
    assert_eq!(shown["spec"]["system_prompt"], "Review.");
    let moved = json(&dev.url, &["agents", "alias", "reviewer", "live", "2"]);
    assert_eq!(moved["aliases"], json!({ "live": 2 }));
    let table = ask(&dev.url, &["agents", "list"]).stdout;
    assert!(
        table.contains("reviewer") && table.contains("live=2"),
        "{table}"
    );
    let gone = json(
        &dev.url,
        &["agents", "alias", "reviewer", "live", "--remove"],
    );
    assert_eq!(gone["aliases"], json!({}));
    assert_eq!(ask(&dev.url, &["agents", "show", "reviewer@live"]).code, 3);
    let archived = json(&dev.url, &["agents", "archive", "writer"]);
    assert!(archived["archived_at"].is_string());
    assert_eq!(ask(&dev.url, &["send", "--agent", "writer", "hi"]).code, 3);
    let refused = ask(&dev.url, &["agents", "show", "nobody"]);
    assert_eq!(refused.code, 3);
    assert!(
        refused.stderr.contains("mainspring agents list"),
        "{refused:?}"
    );
}

#[test]
fn a_send_names_an_agent_or_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(folder.path(), &[]);
    let agent = json!({
        "name": "greeter", "system_prompt": "Greet.",
        "prompt": {
            "sections": [{ "name": "tone", "text": "Be {{ tone }}." }],
            "variables": { "tone": { "required": true } },
        },
    });
    let file = folder.path().join("greeter.json");
    std::fs::write(&file, agent.to_string()).expect("writes");
    let file = file.to_str().expect("UTF-8");
    json(&dev.url, &["agents", "apply", file, "--alias", "live"]);
    let set = ["--variable", "tone=kind"];
    let send = ["send", "--agent", "greeter@live", "--wait", "hello"];
    let sent = json(&dev.url, &[&send[..], &set].concat());
    assert_eq!(sent["status"], "completed");
    let session = sent["session_id"].as_str().expect("an id");
    let session = json(&dev.url, &["sessions", "show", session]);
    assert_eq!(
        session["agent_ref"],
        json!({ "name": "greeter", "version": 1 })
    );
    assert_eq!(session["variables"], json!({ "tone": "kind" }));
    let made = ["sessions", "create", "--agent", "greeter"];
    let made = json(&dev.url, &[&made[..], &set].concat());
    assert_eq!(made["agent_ref"]["version"], 1);
    // Without its variable the agent cannot be used, and its own settings cannot be overridden.
    assert_eq!(ask(&dev.url, &send).code, 2);
    for more in [
        &["--model", "demo/x"][..],
        &["--tool", "core"],
        &["--system-prompt", "x"],
    ] {
        let refused = ask(&dev.url, &[&send[..], &set, more].concat());
        assert_eq!(refused.code, 2, "{more:?}: {refused:?}");
    }
    // Together with a session, the agent applies to that send only.
    let own = json(&dev.url, &["send", "--wait", "hello"]);
    let own = own["session_id"].as_str().expect("an id");
    let beside = [&send[..], &set, &["--session", own]].concat();
    let sent = json(&dev.url, &beside);
    assert_eq!(
        sent["agent_ref"],
        json!({ "name": "greeter", "version": 1 })
    );
    let kept = json(&dev.url, &["sessions", "show", own]);
    assert_eq!(kept.get("agent_ref"), None);
    let alone = ["send", "--session", own, "--variable", "tone=kind", "hello"];
    assert_eq!(ask(&dev.url, &alone).code, 2);
    // A file is used as an inline agent of the session.
    let sent = json(
        &dev.url,
        &[&["send", "--agent", file, "--wait", "hello"][..], &set].concat(),
    );
    let session = sent["session_id"].as_str().expect("an id");
    let session = json(&dev.url, &["sessions", "show", session]);
    assert_eq!(session.get("agent_ref"), None);
    assert_eq!(session["agent"]["name"], "greeter");
}
