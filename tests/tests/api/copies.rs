//! Forks, exported archives, and imports.

use std::fmt::Write as _;

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::{SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::list::{self, Bounds, List, ListName, NewEntry, WhenFull};
use mainspring_shared::message::{Arguments, ContentPart, Message, NewMessage, Role, ToolCall};
use mainspring_shared::store::{AuditOptions, ImportSession, ListOutcome, NewSession, WriteList};
use mainspring_shared::time::Timestamp;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::client::Answer;
use crate::world::{Scheduler, World, nothing};

/// A modification of an archive's lines.
type Change = fn(&mut Vec<Value>);

const ARCHIVE: &str = "application/x-ndjson";

/// The positions in [`source`]'s transcript at which no call is open.
pub(crate) const SETTLED: [i64; 6] = [0, 1, 4, 5, 6, 8];

fn message(role: Role, send: u128, text: &str) -> Message {
    let new = NewMessage {
        role,
        ..NewMessage::user(vec![ContentPart::text(text)], 0)
    };
    new.at(0, SendId(Uuid::from_u128(send)), Timestamp(1_000), 0)
}

fn asking(send: u128, calls: &[&str]) -> Message {
    let calls = calls.iter().map(|id| {
        ToolCall::new(
            *id,
            "look",
            Arguments::read("{\r\n\t\"at\": [1.50, null]\n}"),
        )
    });
    Message {
        tool_calls: calls.collect(),
        ..message(Role::Assistant, send, "")
    }
}

fn told(send: u128, call: &str) -> Message {
    Message {
        tool_call_id: Some(call.to_owned()),
        name: Some("look".to_owned()),
        failed: call == "b",
        ..message(Role::Tool, send, "a \"line\"\nand another")
    }
}

/// Creates a session with a transcript of eight messages, three of which make calls, in two rounds.
pub(crate) async fn source(world: &World) -> String {
    let session = SessionId(Uuid::from_u128(7));
    let item = ImportSession {
        projections: Vec::new(),
        folds: Vec::new(),
        session: NewSession {
            key: SessionKey {
                tenant: TenantId::DEFAULT,
                session,
            },
            agent: AgentSpec {
                name: Some("scribe".to_owned()),
                ..AgentSpec::default()
            },
            metadata: Map::from_iter([("team".to_owned(), json!("x"))]),
            parent: None,
        },
        messages: vec![
            message(Role::User, 1, "one"),
            asking(1, &["a", "b"]),
            told(1, "a"),
            told(1, "b"),
            message(Role::Assistant, 1, "done"),
            message(Role::User, 2, "two"),
            asking(2, &["c"]),
            told(2, "c"),
        ],
        todo: List::default(),
        notes: List::default(),
        idempotency: None,
        behind: 0,
        more: false,
    };
    let made = world.store.import_session(item).await;
    made.expect("imports");
    session.to_string()
}

pub(crate) async fn transcript(api: &Scheduler, session: &str) -> Value {
    let path = format!("/v1/sessions/{session}/messages?limit=200");
    api.get(&path).await.ok(200)["data"].clone()
}

pub(crate) async fn export(api: &Scheduler, session: &str) -> Answer {
    let exported = api.get(&format!("/v1/sessions/{session}/export")).await;
    assert_eq!(exported.status, 200, "{}", exported.text);
    assert_eq!(exported.header("content-type"), Some(ARCHIVE));
    exported
}

pub(crate) async fn import(api: &Scheduler, archive: &str) -> Answer {
    let call = api.call("POST", "/v1/sessions:import");
    let call = call.header("content-type", ARCHIVE);
    call.body(archive.as_bytes().to_vec()).send().await
}

/// Changes an archive's lines and gives it a footer with the right checksum.
pub(crate) fn resealed(archive: &str, change: impl FnOnce(&mut Vec<Value>)) -> String {
    let lines = archive.lines().map(serde_json::from_str);
    let mut lines: Vec<Value> = lines.collect::<Result<_, _>>().expect("lines of JSON");
    let mut footer = lines.pop().expect("a last line");
    change(&mut lines);
    let mut text = String::new();
    for line in lines {
        writeln!(text, "{line}").expect("a string takes all");
    }
    let digest = Sha256::digest(&text);
    let hex = digest.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a string takes all");
        hex
    });
    footer["sha256"] = json!(hex);
    format!("{text}{footer}\n")
}

pub(crate) async fn assert_sound(world: &World) {
    let violations = world.store.audit(AuditOptions::default()).await;
    assert_eq!(violations.expect("audits"), []);
}

#[tokio::test]
async fn an_archive_read_back_is_an_equal_transcript_in_a_new_session() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = source(&world).await;
    let exported = export(&api, &id).await;
    assert_eq!(exported.text.lines().count(), 10);
    let footer: Value =
        serde_json::from_str(exported.text.lines().last().expect("lines")).expect("json");
    assert_eq!(
        (&footer["messages"], &footer["calls"]),
        (&json!(8), &json!(3))
    );
    let made = import(&api, &exported.text).await;
    let session = made.ok(201);
    let copy = session["id"].as_str().expect("an id");
    assert_ne!(copy, id);
    let place = format!("/v1/sessions/{copy}");
    assert_eq!(made.header("location"), Some(place.as_str()));
    assert_eq!(
        (&session["status"], &session["messages"]),
        (&json!("idle"), &json!(8))
    );
    let original = api.get(&format!("/v1/sessions/{id}")).await.ok(200);
    assert_eq!(session["agent"], original["agent"]);
    assert_eq!(session["metadata"], json!({ "team": "x" }));
    assert_eq!(transcript(&api, copy).await, transcript(&api, &id).await);
    // The copy's own archive differs only in its session line.
    let again = export(&api, copy).await.text;
    let messages = |text: &str| {
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines[1..9].to_vec()
    };
    assert_eq!(messages(&again), messages(&exported.text));
    assert_sound(&world).await;
}

#[tokio::test]
async fn notes_go_into_forks_and_archives() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = source(&world).await;
    let id: SessionId = session.parse().expect("an id");
    let name = |session: SessionId| ListName::Notes(session);
    let note = WriteList {
        name: name(id),
        session: SessionKey {
            tenant: TenantId::DEFAULT,
            session: id,
        },
        call_id: "call_1".to_owned(),
        change: list::Change::Add(NewEntry {
            text: "blue".to_owned(),
            ..NewEntry::default()
        }),
        bounds: Bounds {
            entries_max: 50,
            chars_max: 100,
            when_full: WhenFull::Reject,
        },
    };
    let written = world.store.write_list(note).await;
    assert!(matches!(written, Ok(ListOutcome::Written { .. })));
    let archive = export(&api, &session).await.text;
    let fork = format!("/v1/sessions/{session}/fork");
    let forked = api.post(&fork, &json!({})).await;
    for made in [import(&api, &archive).await, forked] {
        let made = made.ok(201)["id"].as_str().expect("an id").to_owned();
        let made: SessionId = made.parse().expect("an id");
        let notes = world.store.read_list(TenantId::DEFAULT, name(made)).await;
        let notes = notes.expect("reads");
        assert_eq!((notes.entries[0].text.as_str(), notes.next_id), ("blue", 2));
    }
    for (member, value) in [
        ("id", json!(2)),
        ("text", json!("")),
        ("text", json!("x".repeat(1_001))),
        ("status", json!("\u{0}")),
    ] {
        let changed = resealed(&archive, |lines| {
            lines[0]["session"]["notes"]["entries"][0][member] = value;
        });
        let problem = import(&api, &changed).await.problem(400, "request.invalid");
        let pointer = problem["errors"][0]["pointer"].as_str().unwrap_or_default();
        assert!(pointer.contains("/session/notes"), "{problem}");
    }
}

#[tokio::test]
async fn an_imported_session_goes_on() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = source(&world).await;
    let archive = export(&api, &id).await.text;
    let session = import(&api, &archive).await.ok(201);
    let copy = session["id"].as_str().expect("an id");
    api.send(copy, "three").await;
    let claimed = world.claim(copy).await;
    assert_eq!(claimed.window.len(), 8);
    world.complete(&claimed, 0, "fine").await;
    let all = transcript(&api, copy).await;
    assert_eq!(all[9]["content"][0]["text"], "fine");
    assert_eq!(all[9]["seq"], 10);
    assert_sound(&world).await;
}

#[tokio::test]
async fn an_empty_session_has_an_archive_too() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let archive = export(&api, &id).await.text;
    assert_eq!(archive.lines().count(), 2);
    assert_eq!(import(&api, &archive).await.ok(201)["messages"], 0);
    // The final newline may be missing.
    assert_eq!(
        import(&api, archive.trim_end()).await.ok(201)["messages"],
        0
    );
    let missing = format!("/v1/sessions/{}/export", nothing("ses_"));
    api.get(&missing).await.problem(404, "session.not_found");
}

#[tokio::test]
async fn a_long_transcript_is_exported_whole() {
    let world = World::new().await;
    let api = world.ready().await;
    let ids: Vec<String> = (0..90).map(|n| format!("call {n}")).collect();
    let mut messages: Vec<_> = (0..40)
        .map(|n| message(Role::User, 1, &n.to_string()))
        .collect();
    // A round longer than one read, so that it spans the boundaries of several.
    messages.push(asking(
        1,
        &ids.iter().map(String::as_str).collect::<Vec<_>>(),
    ));
    messages.extend(ids.iter().map(|id| told(1, id)));
    messages.push(message(Role::Assistant, 1, "done"));
    let key = crate::world::key(&nothing("ses_"));
    let session = NewSession {
        key,
        agent: AgentSpec::default(),
        metadata: Map::new(),
        parent: None,
    };
    let item = ImportSession {
        projections: Vec::new(),
        folds: Vec::new(),
        session,
        messages,
        todo: List::default(),
        notes: List::default(),
        idempotency: None,
        behind: 0,
        more: false,
    };
    world.store.import_session(item).await.expect("imports");
    let id = key.session.to_string();
    let made = import(&api, &export(&api, &id).await.text).await.ok(201);
    assert_eq!(made["messages"], 132);
    let copy = made["id"].as_str().expect("an id");
    assert_eq!(transcript(&api, copy).await, transcript(&api, &id).await);
}

#[tokio::test]
async fn a_changed_archive_is_refused() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = source(&world).await;
    let archive = export(&api, &id).await.text;
    let before = world.store.dump().await.expect("dumps").sessions.len();
    let lines: Vec<&str> = archive.lines().collect();
    let without = |n: usize| {
        let mut lines = lines.clone();
        lines.remove(n);
        lines.join("\n")
    };
    for (changed, pointer) in [
        (archive.replace("done", "undone"), "10:/sha256"),
        (archive.replace("scribe", "scriba"), "10:/sha256"),
        (
            archive.replace(",\"round\":0", ", \"round\":0"),
            "10:/sha256",
        ),
        (without(4), "9:/sha256"),
        (format!("{archive}\n"), "11:"),
        (without(9), "9:/seq"),
        (String::new(), "1:"),
        ("{}".to_owned(), "1:/format"),
        ("nonsense\nmore".to_owned(), "1:"),
    ] {
        let problem = import(&api, &changed).await.problem(400, "request.invalid");
        let said = problem["errors"][0]["pointer"].as_str().unwrap_or_default();
        let line = pointer.split(':').next().unwrap_or_default();
        assert_eq!(said, pointer, "{problem}");
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(&format!("line {line}: ")), "{detail}");
    }
    assert_eq!(
        world.store.dump().await.expect("dumps").sessions.len(),
        before
    );
}

#[tokio::test]
async fn what_an_archive_may_not_say_is_named_by_its_line() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = source(&world).await;
    let archive = export(&api, &id).await.text;
    let changes: [(Change, &str); 21] = [
        (|lines| lines[0]["version"] = json!(2), "1:/version"),
        (|lines| lines[0]["format"] = json!("tar"), "1:/format"),
        (|lines| lines[0]["more"] = json!(1), "1:/more"),
        (
            |lines| lines[0]["session"]["status"] = json!("idle"),
            "1:/session/status",
        ),
        (
            |lines| lines[0]["session"]["agent"]["max_rounds"] = json!(0),
            "1:/session/agent/max_rounds",
        ),
        (
            |lines| lines[0]["session"]["metadata"] = json!({ "a": "\u{0}" }),
            "1:/session/metadata/a",
        ),
        (|lines| lines[1]["colour"] = json!("red"), "2:/colour"),
        (|lines| lines[1]["role"] = json!("system"), "2:/role"),
        (|lines| lines[1]["seq"] = json!(2), "2:/seq"),
        (|lines| lines[1]["send_id"] = json!("snd_1"), "2:/send_id"),
        (
            |lines| lines[1]["content"][0]["text"] = json!("\u{0}"),
            "2:/content/0",
        ),
        (|lines| lines[1]["name"] = json!("look"), "2:/name"),
        (
            |lines| lines[1]["tool_calls"] = lines[7]["tool_calls"].clone(),
            "2:/tool_calls",
        ),
        (
            |lines| lines[2]["tool_calls"][0]["more"] = json!(1),
            "3:/tool_calls/0/more",
        ),
        (
            |lines| lines[2]["tool_calls"][1]["id"] = json!("a"),
            "3:/tool_calls/1/id",
        ),
        (|lines| lines[2]["round"] = json!(-1), "3:/round"),
        (
            |lines| lines[3]["tool_call_id"] = json!("b"),
            "4:/tool_call_id",
        ),
        (
            |lines| lines[4]["send_id"] = lines[7]["send_id"].clone(),
            "5:/tool_call_id",
        ),
        (|lines| lines[6]["role"] = json!("tool"), "7:/tool_call_id"),
        (
            |lines| lines[7]["tool_calls"][0]["id"] = json!("a"),
            "8:/tool_calls/0/id",
        ),
        (|lines| drop(lines.pop()), "9:"),
    ];
    for (change, pointer) in changes {
        let changed = resealed(&archive, change);
        let problem = import(&api, &changed).await.problem(400, "request.invalid");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
    let unchanged = resealed(&archive, |_| {});
    import(&api, &unchanged).await.ok(201);
    let miscounted = archive.replace("\"calls\":3", "\"calls\":2");
    let problem = import(&api, &miscounted)
        .await
        .problem(400, "request.invalid");
    assert_eq!(problem["errors"][0]["pointer"], "10:/calls");
}

#[tokio::test]
async fn an_import_has_bounds_and_a_kind() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| config.batch_bytes_max = 4_000)
        .await;
    api.until_ready().await;
    let id = source(&world).await;
    let archive = export(&api, &id).await.text;
    assert!(archive.len() < 4_000, "{}", archive.len());
    import(&api, &archive).await.ok(201);
    let longer = archive.replace("done", &"x".repeat(4_000));
    import(&api, &longer)
        .await
        .problem(413, "request.too_large");
    let call = api.call("POST", "/v1/sessions:import");
    let call = call.header("content-type", "application/json");
    call.body(archive)
        .send()
        .await
        .problem(415, "request.unsupported_media_type");
}

#[tokio::test]
async fn a_repeated_copy_is_the_same_session() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = source(&world).await;
    let archive = export(&api, &id).await.text;
    let fork = format!("/v1/sessions/{id}/fork");
    let other = resealed(&archive, |lines| {
        lines[0]["session"]["metadata"] = json!({});
    });
    for (path, kind, body, other) in [
        ("/v1/sessions:import", ARCHIVE, archive, other),
        (
            fork.as_str(),
            "application/json",
            "{}".to_owned(),
            r#"{"seq":1}"#.to_owned(),
        ),
    ] {
        let ask = |body: &str| {
            let call = api.call("POST", path).header("content-type", kind);
            let call = call.header("idempotency-key", "k");
            call.body(body.as_bytes().to_vec()).send()
        };
        let first = ask(&body).await;
        assert_eq!(first.header("idempotency-replayed"), None);
        let again = ask(&body).await;
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
        assert_eq!(again.ok(201), first.ok(201));
        ask(&other).await.problem(422, "idempotency.mismatch");
    }
    let list = api.get("/v1/sessions").await.ok(200);
    assert_eq!(list["data"].as_array().map(Vec::len), Some(3));
}
