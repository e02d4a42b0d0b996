//! Skills: what a model is told of them, what it reads, and what it runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use mainspring_runtime::read_skill;
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::{SessionKey, TenantId};
use mainspring_shared::message::{Role, plain_text};
use mainspring_shared::send::SendStatus;
use mainspring_shared::skill::{SKILL_FILE, Skill, SkillSource};
use mainspring_shared::store::PublishSkill;
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::world::World;
use mainspring_tools::builtin::{self, Settings, Shell, WorkspaceSettings};
use mainspring_tools::skills::{self, Shelf};
use serde_json::{Value, json};

fn greeting(text: &str) -> Arc<Skill> {
    let front =
        "---\nname: greeting\ndescription: How to greet.\n---\n# Greeting\nRun scripts/run.sh.\n";
    let files = BTreeMap::from([
        (SKILL_FILE.to_owned(), front.as_bytes().to_vec()),
        (
            "scripts/run.sh".to_owned(),
            format!("#!/bin/sh\necho {text} \"$1\"\n").into_bytes(),
        ),
        ("words.txt".to_owned(), b"hello\nhi\n".to_vec()),
    ]);
    Arc::new(Skill::read(None, files).expect("a skill"))
}

/// Workers with files, a shell and skills.
async fn world(dir: &Path) -> World {
    World::with_tools(|tools, store, clock| {
        let shelf = Arc::new(Shelf::new(store.clone(), clock.clone()));
        let settings = Settings {
            workspace: Some(WorkspaceSettings::per_session(dir)),
            shell: Shell::Local,
            environment: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
            skills: Some(shelf.clone()),
            ..Settings::default()
        };
        builtin::register(settings, clock.clone(), tools).expect("new names");
        skills::register(&shelf, tools).expect("a new name");
    })
    .await
}

async fn publish(world: &World, skill: &Arc<Skill>) {
    let item = PublishSkill {
        tenant: TenantId::DEFAULT,
        skill: skill.clone(),
        source: SkillSource::Uploaded,
        idempotency: None,
    };
    world
        .store
        .publish_skill(item)
        .await
        .expect("the store answers");
}

fn agent(skill: &Skill, tools: &[&str]) -> AgentSpec {
    AgentSpec {
        system_prompt: Some("Be kind.".to_owned()),
        tools: tools
            .iter()
            .map(|name| ToolEntry::Named((*name).to_owned()))
            .collect(),
        skills: vec![skill.pinned()],
        ..AgentSpec::default()
    }
}

/// Sends a plan, and returns the results of its calls.
async fn results(world: &World, key: SessionKey, rounds: &Value) -> Vec<String> {
    let id = world.send(key, &format!("plan {rounds}")).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    let dump = world.dump().await;
    let session = dump.sessions.iter().find(|session| session.key == key);
    let messages = session.expect("is there").messages.iter();
    let results = messages.filter(|m| m.send_id == id && m.role == Role::Tool);
    results
        .map(|message| plain_text(&message.content))
        .collect()
}

/// Runs in real time because the command is a real one.
#[tokio::test]
async fn an_agent_reads_a_skill_and_runs_its_script_on_any_worker() {
    let dir = tempfile::tempdir().expect("a directory");
    let world = world(dir.path()).await;
    let skill = greeting("hello");
    publish(&world, &skill).await;
    // A later version under the same name does not affect this session.
    publish(&world, &greeting("bye")).await;
    let key = world.session(agent(&skill, &["shell", "read_file"])).await;
    let place = format!(".skills/greeting@{}", skill.hash.short());
    let read = json!(["skill_read", { "name": "greeting" }]);
    let run = json!(["shell", { "command": format!("{place}/scripts/run.sh you") }]);
    let warm = world.worker("warm", world.store.clone());
    let first = results(&world, key, &json!([[read], [run]])).await;
    assert!(
        first[0].contains(&place) && first[0].contains("Run scripts/run.sh."),
        "{}",
        first[0]
    );
    assert!(
        first[0].contains("scripts/run.sh") && !first[0].contains("description:"),
        "{}",
        first[0]
    );
    assert_eq!(first[1], "exit_code=0\nhello you\n");
    warm.stop();
    // As on another machine: the workspace is empty.
    for entry in std::fs::read_dir(dir.path()).expect("reads") {
        std::fs::remove_dir_all(entry.expect("an entry").path()).expect("removes");
    }
    let _cold = world.worker("cold", world.store.clone());
    assert_eq!(results(&world, key, &json!([[run]])).await, first[1..]);
    assert_eq!(results(&world, key, &json!([[read]])).await, first[..1]);
    let asked = world.script.ledger();
    let told = asked[0].system.clone().expect("a system prompt");
    assert!(told.starts_with("Be kind.\n\n# Skills\n"), "{told}");
    assert!(told.ends_with("\n- greeting: How to greet."), "{told}");
    assert!(
        asked
            .iter()
            .all(|asked| asked.system.as_ref() == Some(&told))
    );
    world.audit().await;
}

#[tokio::test]
async fn without_tools_for_files_nothing_is_placed_and_all_can_be_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let world = world(dir.path()).await;
    let skill = greeting("hello");
    publish(&world, &skill).await;
    let key = world.session(agent(&skill, &[])).await;
    let _worker = world.worker("w", world.store.clone());
    let calls = json!([[
        ["skill_read", { "name": "greeting" }],
        ["skill_read", { "name": "greeting", "path": "words.txt" }],
        ["skill_read", { "name": "greeting", "path": "../secret" }],
        ["skill_read", { "name": "other" }],
    ]]);
    let given = results(&world, key, &calls).await;
    assert!(
        !given[0].contains(".skills") && given[0].contains("- words.txt"),
        "{}",
        given[0]
    );
    assert!(
        given[1].contains("path=\"words.txt\">\nhello\nhi\n</skill>"),
        "{}",
        given[1]
    );
    assert!(given[2].contains("has no file"), "{}", given[2]);
    assert!(given[3].contains("there are: greeting"), "{}", given[3]);
    assert!(
        std::fs::read_dir(dir.path())
            .expect("reads")
            .next()
            .is_none()
    );
    // A skill that was deleted for good is gone, and the model is told so.
    let removed = world
        .store
        .remove_skill(TenantId::DEFAULT, "greeting".to_owned(), true);
    assert!(removed.await.expect("the store answers"));
    let given = results(
        &world,
        key,
        &json!([[["skill_read", { "name": "greeting" }]]]),
    )
    .await;
    assert!(given[0].contains("was removed"), "{}", given[0]);
}

/// Runs in real time because the command is a real one.
#[tokio::test]
async fn what_a_command_changes_of_a_skill_is_put_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let world = world(dir.path()).await;
    let skill = greeting("hello");
    publish(&world, &skill).await;
    let key = world.session(agent(&skill, &["shell"])).await;
    let _worker = world.worker("w", world.store.clone());
    let place = format!(".skills/greeting@{}", skill.hash.short());
    let shell = |command: &str| json!([["shell", { "command": command }]]);
    let rounds = json!([
        shell(&format!(
            "cd {place} && echo broken > scripts/run.sh && chmod -x scripts/run.sh && rm words.txt && echo mine > own"
        )),
        shell(&format!(
            "{place}/scripts/run.sh you; cat {place}/words.txt {place}/own"
        )),
    ]);
    let given = results(&world, key, &rounds).await;
    assert_eq!(given[0], "exit_code=0\n");
    assert_eq!(given[1], "exit_code=0\nhello you\nhello\nhi\nmine\n");
}

/// Skills as published by a vendor.
fn published() -> Vec<Arc<Skill>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/skills");
    let names = ["frontend-design", "internal-comms", "webapp-testing"];
    let read = names.map(|name| Arc::new(read_skill(&folder.join(name)).expect("it is a skill")));
    assert_eq!(read.each_ref().map(|skill| skill.name.as_str()), names);
    read.into()
}

#[tokio::test]
async fn published_skills_of_a_vendor_load_unchanged() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/skills");
    let dir = tempfile::tempdir().expect("a directory");
    let world = world(dir.path()).await;
    let _worker = world.worker("w", world.store.clone());
    let mut resources = 0;
    for skill in published() {
        let manifest = &skill.manifest;
        assert_eq!(manifest.warnings, [""; 0], "{}", skill.name);
        let license = manifest.license.as_deref();
        assert_eq!(license, Some("Complete terms in LICENSE.txt"));
        publish(&world, &skill).await;
        let key = world.session(agent(&skill, &[])).await;
        // Read the page with the instructions, and each file.
        let mut calls = vec![json!(["skill_read", { "name": skill.name }])];
        let paths = manifest.files.iter().map(|file| file.path.as_str());
        let paths: Vec<&str> = paths.filter(|path| *path != SKILL_FILE).collect();
        let of_path = |path: &&str| json!(["skill_read", { "name": skill.name, "path": path }]);
        calls.extend(paths.iter().map(of_path));
        let given = results(&world, key, &json!([calls])).await;
        let stands = |path: &str| {
            let text = std::fs::read_to_string(folder.join(&skill.name).join(path));
            text.expect("the fixture is text")
        };
        let written = stands(SKILL_FILE);
        let body = written.splitn(3, "---\n").nth(2).expect("front matter");
        assert!(given[0].contains(body.trim()), "{}", given[0]);
        assert!(!given[0].contains("description:"), "{}", given[0]);
        for (path, given_file) in paths.iter().zip(&given[1..]) {
            assert!(given[0].contains(&format!("- {path}")), "{}", given[0]);
            assert!(given_file.contains(stands(path).trim_end()), "{given_file}");
            resources += 1;
        }
        let told = world.script.ledger().pop().expect("it was asked").system;
        let entry = format!("\n- {}: {}", skill.name, manifest.description);
        let told = told.expect("a system prompt");
        assert!(told.ends_with(&entry), "{told}");
        let scripts = manifest.files.iter().filter(|file| file.executable);
        let in_scripts = scripts.filter(|file| file.path.starts_with("scripts/"));
        let expected = usize::from(skill.name == "webapp-testing");
        assert_eq!(in_scripts.count(), expected, "{}", skill.name);
    }
    // Licences, texts and scripts.
    assert_eq!(resources, 11);
    world.audit().await;
}
