//! Skills: uploads, refusals, and agents that name skills.

use std::io::{Cursor, Write as _};

use mainspring_shared::id::TenantId;
use mainspring_shared::skill::{SKILL_BYTES_MAX, SKILL_FILE, SkillFault};
use serde_json::{Value, json};
use zip::CompressionMethod;
use zip::write::{SimpleFileOptions, ZipWriter};

use crate::client::Answer;
use crate::world::{Scheduler, World};

const FRONT: &str = "---\nname: greeting\ndescription: How to greet.\n---\nSay hello.\n";

fn front(name: &str, text: &str) -> String {
    format!("---\nname: {name}\ndescription: How to {text}.\n---\n{text}\n")
}

fn body(text: &str) -> Value {
    json!({ "files": {
        "SKILL.md": front("greeting", text),
        "scripts/run.sh": "#!/bin/sh\necho hi\n",
        "data.bin": { "base64": "AP8=" },
    } })
}

/// A zip archive of these entries.
fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (path, content) in entries {
        // Small entries are stored uncompressed, so that tests can patch their bytes.
        let method = if content.len() < 1_000 {
            CompressionMethod::Stored
        } else {
            CompressionMethod::Deflated
        };
        let options = SimpleFileOptions::default().compression_method(method);
        writer.start_file(*path, options).expect("an entry");
        writer.write_all(content).expect("its content");
    }
    writer.finish().expect("an archive").into_inner()
}

async fn upload(api: &Scheduler, archive: Vec<u8>) -> Answer {
    let call = api.call("POST", "/v1/skills");
    call.header("content-type", "application/zip")
        .body(archive)
        .send()
        .await
}

fn pointers(problem: &Value) -> Vec<&str> {
    let errors = problem["errors"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    errors
        .iter()
        .filter_map(|error| error["pointer"].as_str())
        .collect()
}

#[tokio::test]
async fn a_skill_is_published_listed_shown_and_read() {
    let world = World::new().await;
    let api = world.ready().await;
    let answer = api.post("/v1/skills", &body("greet")).await;
    let skill = answer.ok(201);
    assert_eq!(answer.header("location"), Some("/v1/skills/greeting"));
    assert_eq!(
        (&skill["name"], &skill["source"]),
        (&json!("greeting"), &json!("uploaded"))
    );
    let files = skill["files"].as_array().expect("a list");
    let shown: Vec<_> = files
        .iter()
        .map(|f| (f["path"].as_str(), f["executable"].as_bool()))
        .collect();
    let expected = [
        (Some("SKILL.md"), Some(false)),
        (Some("data.bin"), Some(false)),
        (Some("scripts/run.sh"), Some(true)),
    ];
    assert_eq!(shown, expected);
    // The same content is the same version, however it is uploaded.
    assert_eq!(api.post("/v1/skills", &body("greet")).await.ok(200), skill);
    let text = front("greeting", "greet");
    let zipped = archive(&[
        ("greeting/scripts/run.sh", b"#!/bin/sh\necho hi\n"),
        ("greeting/.DS_Store", b"x"),
        ("greeting/SKILL.md", text.as_bytes()),
        ("greeting/data.bin", &[0, 255]),
    ]);
    assert_eq!(upload(&api, zipped).await.ok(200), skill);
    let list = api.get("/v1/skills").await.ok(200);
    assert_eq!(list["data"][0]["hash"], skill["hash"]);
    assert_eq!(
        (
            &list["data"][0]["files"],
            &list["next_cursor"],
            &list["warnings"]
        ),
        (&json!(3), &json!(null), &json!([]))
    );
    let one = api.get("/v1/skills/greeting").await.ok(200);
    assert_eq!(one["versions"].as_array().map(Vec::len), Some(1));
    let version = format!(
        "/v1/skills/greeting@{}",
        skill["hash"].as_str().expect("a hash")
    );
    assert_eq!(api.get(&version).await.ok(200), one);
    let script = api.get("/v1/skills/greeting/files/scripts/run.sh").await;
    assert_eq!(
        (script.status, script.text.as_str()),
        (200, "#!/bin/sh\necho hi\n")
    );
    assert_eq!(script.header("x-content-type-options"), Some("nosniff"));
    for path in [
        "/v1/skills/other",
        "/v1/skills/No!",
        "/v1/skills/greeting/files/none",
        "/v1/skills/greeting/files/..%2Fx",
        "/v1/skills/%ff",
    ] {
        api.get(path).await.problem(404, "skill.not_found");
    }
    api.call("DELETE", "/v1/skills/other")
        .send()
        .await
        .problem(404, "skill.not_found");
    assert_eq!(
        api.call("DELETE", "/v1/skills/greeting")
            .send()
            .await
            .status,
        204
    );
    api.get("/v1/skills/greeting")
        .await
        .problem(404, "skill.not_found");
    assert_eq!(api.get(&version).await.ok(200)["hash"], skill["hash"]);
    assert_eq!(
        api.call("DELETE", "/v1/skills/greeting?versions=true")
            .send()
            .await
            .status,
        204
    );
    api.get(&version).await.problem(404, "skill.not_found");
}

#[tokio::test]
async fn a_repeated_upload_is_the_same_and_another_body_is_refused() {
    let world = World::new().await;
    let api = world.ready().await;
    let keyed = |body: &Value| {
        let call = api
            .call("POST", "/v1/skills")
            .header("idempotency-key", "k");
        call.json(body).send()
    };
    let first = keyed(&body("greet")).await.ok(201);
    let second = api.post("/v1/skills", &body("wave")).await.ok(201);
    let again = keyed(&body("greet")).await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.ok(201), first);
    keyed(&body("nod"))
        .await
        .problem(422, "idempotency.mismatch");
    assert_eq!(
        api.get("/v1/skills/greeting").await.ok(200)["hash"],
        second["hash"]
    );
}

#[tokio::test]
async fn what_is_no_skill_is_refused_with_everything_that_is_wrong() {
    let world = World::new().await;
    let api = world.ready().await;
    let cases = [
        (json!({ "files": {} }), vec!["/files/SKILL.md"]),
        (
            json!({ "files": { "SKILL.md": "no front matter" } }),
            vec!["/files/SKILL.md"],
        ),
        (
            json!({ "files": { "SKILL.md": "---\nname: A\n---\n", "../x": "", "/y": "" } }),
            vec![
                "/files/..~1x",
                "/files/~1y",
                "/files/SKILL.md",
                "/files/SKILL.md",
            ],
        ),
    ];
    for (body, expected) in cases {
        let problem = api
            .post("/v1/skills", &body)
            .await
            .problem(422, "skill.invalid");
        assert_eq!(pointers(&problem), expected, "{body}");
    }
    for (body, pointer) in [
        (json!({}), ""),
        (json!({ "files": { "SKILL.md": 7 } }), "/files/SKILL.md"),
        (
            json!({ "files": { "SKILL.md": FRONT, "a": { "base64": "?" } } }),
            "/files/a/base64",
        ),
        (json!({ "files": {}, "name": "x" }), "/name"),
    ] {
        let problem = api
            .post("/v1/skills", &body)
            .await
            .problem(400, "request.invalid");
        assert!(pointers(&problem)[0].starts_with(pointer), "{problem}");
    }
    let call = api
        .call("POST", "/v1/skills")
        .header("content-type", "text/plain");
    let problem = call
        .body("x")
        .send()
        .await
        .problem(415, "request.unsupported_media_type");
    assert_eq!(
        problem["detail"],
        "the body must be application/zip or application/json"
    );
    assert_eq!(api.get("/v1/skills").await.ok(200)["data"], json!([]));
}

#[tokio::test]
async fn a_hostile_archive_is_refused() {
    let world = World::new().await;
    let api = world.ready().await;
    let skill = (SKILL_FILE, FRONT.as_bytes());
    let zeros = vec![0; SKILL_BYTES_MAX + 1];
    let plain = archive(&[skill, ("aaaa", b"1"), ("aaab", b"2")]);
    let renamed = |from: &[u8], to: &[u8]| {
        let mut bytes = plain.clone();
        for at in 0..bytes.len() - from.len() {
            if bytes[at..].starts_with(from) {
                bytes[at..at + to.len()].copy_from_slice(to);
            }
        }
        bytes
    };
    let mut link = ZipWriter::new(Cursor::new(Vec::new()));
    link.start_file(SKILL_FILE, SimpleFileOptions::default())
        .expect("an entry");
    link.write_all(FRONT.as_bytes()).expect("its content");
    link.add_symlink("link", "/etc/passwd", SimpleFileOptions::default())
        .expect("a link");
    let link = link.finish().expect("an archive").into_inner();
    // Set the encryption flag, in the entry's header and in the directory.
    let mut locked = archive(&[skill]);
    for (head, flags) in [(b"PK\x03\x04", 6), (b"PK\x01\x02", 8)] {
        let at = locked.windows(4).position(|bytes| bytes == head);
        locked[at.expect("a head") + flags] |= 1;
    }
    let many: Vec<String> = (0..3_000).map(|n| format!("d/{n}")).collect();
    let many: Vec<(&str, &[u8])> = many
        .iter()
        .map(|path| (path.as_str(), [].as_slice()))
        .collect();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("a bomb", archive(&[skill, ("zeros", &zeros)])),
        ("a way out", archive(&[skill, ("../../etc/x", b"")])),
        ("an absolute path", archive(&[skill, ("/etc/x", b"")])),
        (
            "a path of another system",
            archive(&[skill, ("a\\..\\b", b"")]),
        ),
        ("two entries of one name", renamed(b"aaab", b"aaaa")),
        ("a link", link),
        ("an encrypted entry", locked),
        ("too many entries", archive(&many)),
        ("no archive", b"PK\x03\x04 nothing".to_vec()),
        ("half an archive", plain[..plain.len() / 2].to_vec()),
        ("nothing", Vec::new()),
        (
            "another content than its checksum",
            renamed(b"Say hello", b"Say HELLO"),
        ),
    ];
    for (what, archive) in cases {
        let answer = upload(&api, archive).await;
        assert_eq!(answer.status, 422, "{what}: {}", answer.json());
        answer.problem(422, "skill.invalid");
    }
    upload(&api, vec![0; 13 << 20])
        .await
        .problem(413, "request.too_large");
    assert_eq!(api.get("/v1/skills").await.ok(200)["data"], json!([]));
    upload(&api, plain).await.ok(201);
}

#[tokio::test]
async fn an_agent_keeps_the_version_that_a_name_meant() {
    let world = World::new().await;
    let api = world.ready().await;
    let old = api.post("/v1/skills", &body("greet")).await.ok(201);
    let agent = json!({ "agent": { "skills": ["greeting"] } });
    let session = api.post("/v1/sessions", &agent).await.ok(201);
    let version = format!("greeting@{}", old["hash"].as_str().expect("a hash"));
    assert_eq!(session["agent"]["skills"], json!([version]));
    api.post("/v1/skills", &body("wave")).await.ok(201);
    let path = format!("/v1/sessions/{}", session["id"].as_str().expect("an id"));
    assert_eq!(api.get(&path).await.ok(200)["agent"], session["agent"]);
    // The agent as shown can be sent back.
    let patch = api
        .call("PATCH", &path)
        .json(&json!({ "agent": session["agent"] }));
    assert_eq!(patch.send().await.ok(200)["agent"], session["agent"]);
    let patch = api
        .call("PATCH", &path)
        .json(&json!({ "agent": { "skills": ["greeting"] } }));
    assert_ne!(patch.send().await.ok(200)["agent"], session["agent"]);
    // The model gets the description of the bound version, whatever the name refers to later.
    let dump = world
        .store
        .get_session(crate::world::key(session["id"].as_str().expect("an id")));
    let stored = dump.await.expect("the store answers").expect("is there");
    assert_eq!(stored.agent.skills[0].description(), Some("How to wave."));
    let send = json!({ "input": "hi", "session": { "agent": { "skills": [version] } } });
    api.post("/v1/sends", &send).await.ok(202);
    let fork = json!({ "agent": { "skills": ["greeting"] } });
    api.post(&format!("{path}/fork"), &fork).await.ok(201);
}

#[tokio::test]
async fn an_agent_that_names_what_is_not_there_is_refused() {
    let world = World::new().await;
    let api = world.ready().await;
    api.post("/v1/skills", &body("greet")).await.ok(201);
    let none = "0".repeat(64);
    let cases = [
        (json!(["greeting", "other"]), vec!["/agent/skills/1"]),
        (json!([format!("greeting@{none}")]), vec!["/agent/skills/0"]),
        (
            json!(["Greeting", "a@b"]),
            vec!["/agent/skills/0", "/agent/skills/1"],
        ),
        (json!(["greeting", "greeting"]), vec!["/agent/skills/1"]),
        (json!(vec!["greeting"; 65]), vec!["/agent/skills"]),
    ];
    for (skills, expected) in cases {
        let body = json!({ "agent": { "skills": skills } });
        let problem = api
            .post("/v1/sessions", &body)
            .await
            .problem(400, "request.invalid");
        assert_eq!(&pointers(&problem)[..expected.len()], expected, "{skills}");
    }
    let send =
        |skill: &str| json!({ "input": "hi", "session": { "agent": { "skills": [skill] } } });
    let problem = api
        .post("/v1/sends", &send("other"))
        .await
        .problem(400, "request.invalid");
    assert_eq!(pointers(&problem), ["/session/agent/skills/0"]);
    let batch = json!({ "sends": [send("greeting"), send("other"), send("greeting")] });
    let results = api.post("/v1/sends:batch", &batch).await.ok(200);
    let statuses: Vec<_> = (0..3)
        .map(|n| results["results"][n]["status"].clone())
        .collect();
    assert_eq!(statuses, [202, 400, 202]);
}

#[tokio::test]
async fn a_broken_mounted_skill_is_shown_with_its_reason() {
    let world = World::new().await;
    let api = world.ready().await;
    let faults = vec![SkillFault::of(SKILL_FILE, "is missing")];
    let noted = world
        .store
        .note_broken_skill(TenantId::DEFAULT, "half".to_owned(), faults);
    noted.await.expect("the store answers");
    let list = api.get("/v1/skills").await.ok(200);
    assert_eq!(list["warnings"][0]["name"], "half");
    assert_eq!(
        list["warnings"][0]["errors"],
        json!([{ "path": "SKILL.md", "detail": "is missing" }])
    );
    let body = json!({ "agent": { "skills": ["half"] } });
    let problem = api
        .post("/v1/sessions", &body)
        .await
        .problem(400, "request.invalid");
    assert!(
        problem["detail"]
            .as_str()
            .is_some_and(|text| text.contains("is missing")),
        "{problem}"
    );
}

/// A workflow with a single leaf that names these skills.
fn workflow(skills: &Value) -> Value {
    let spec = json!({ "name": "a", "system_prompt": "Do it.", "tools": [], "skills": skills });
    let leaf = json!({ "type": "agent", "id": "a", "spec": spec, "input": "go" });
    json!({ "name": "r", "root": { "type": "sequence", "steps": [leaf] } })
}

#[tokio::test]
async fn a_leaf_keeps_the_version_of_a_skill_that_was_meant_when_its_run_was_created() {
    let world = World::new().await;
    let api = world.ready().await;
    let first = api.post("/v1/skills", &body("greet")).await.ok(201);
    let named = format!("greeting@{}", first["hash"].as_str().expect("a hash"));
    let spec = workflow(&json!(["greeting"]));
    let run = api.post("/v1/runs", &json!({ "spec": spec })).await.ok(202);
    assert_eq!(run["skills"], json!({ "greeting": named }));
    api.post("/v1/skills", &body("bow")).await.ok(201);
    let path = format!("/v1/runs/{}", run["id"].as_str().expect("an id"));
    let leaf = crate::runs::queued(&api, &path, "a").await;
    let session = leaf["session_id"].as_str().expect("a session");
    let shown = api.get(&format!("/v1/sessions/{session}")).await.ok(200);
    assert_eq!(shown["agent"]["skills"], json!([named]));
    let spec = workflow(&json!([named]));
    let run = api.post("/v1/runs", &json!({ "spec": spec })).await.ok(202);
    assert_eq!(run["skills"], json!({ named.clone(): named }));
    let timer = json!({ "after": "1h", "run": { "spec": workflow(&json!(["greeting"])) } });
    api.post("/v1/timers", &timer).await.ok(201);
}

#[tokio::test]
async fn skills_of_leaves_that_are_not_there_are_pointed_at() {
    let world = World::new().await;
    let api = world.ready().await;
    api.post("/v1/skills", &body("greet")).await.ok(201);
    let unknown = format!("greeting@{}", "0".repeat(64));
    for (skills, at) in [
        (json!(["greeting", "nobody"]), "/1"),
        (json!([unknown]), "/0"),
        (json!(["greeting", unknown]), "/1"),
        (json!(["No!"]), "/0"),
        (json!("greeting"), ""),
        (json!([7]), ""),
        (json!(vec!["greeting"; 65]), ""),
    ] {
        let spec = workflow(&skills);
        let refused = api.post("/v1/runs", &json!({ "spec": spec })).await;
        let problem = refused.problem(422, "spec.invalid");
        let expected = format!("/spec/root/steps/0/spec/skills{at}");
        assert_eq!(pointers(&problem), [expected.as_str()], "{skills}");
        let timer = json!({ "after": "1h", "run": { "spec": spec } });
        let problem = api
            .post("/v1/timers", &timer)
            .await
            .problem(422, "spec.invalid");
        assert_eq!(
            pointers(&problem),
            [format!("/run{expected}").as_str()],
            "{skills}"
        );
    }
}
