//! Folds as clients see them: among the messages, in forks and archives, and in agents' settings.

use mainspring_shared::agent::{AgentSpec, ContextSpec, Representation};
use mainspring_shared::id::{SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::list::List;
use mainspring_shared::message::{ContentPart, Message, NewMessage, Role};
use mainspring_shared::session::fold::{Fold, FoldKind, NewFold, attach};
use mainspring_shared::store::{ImportSession, NewSession};
use mainspring_shared::time::Timestamp;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::copies::{assert_sound, export, import};
use crate::world::{Scheduler, World};

fn fold(from_seq: i64, to_seq: i64, level: i32) -> NewFold {
    NewFold {
        from_seq,
        to_seq,
        level,
        kind: FoldKind::Summary,
        text: format!("{from_seq} to {to_seq}"),
        model: Some("m".to_owned()),
        tokens_before: 100,
        tokens_after: 10,
    }
}

/// Creates a session of six messages, with a fold of 1 to 2 that a fold of 1 to 4 covers.
async fn source(world: &World) -> String {
    source_of(world, AgentSpec::default()).await
}

async fn source_of(world: &World, agent: AgentSpec) -> String {
    let session = SessionId(Uuid::from_u128(7));
    let message = |seq: i64| -> Message {
        let role = if seq % 2 == 1 {
            Role::User
        } else {
            Role::Assistant
        };
        let new = NewMessage {
            role,
            ..NewMessage::user(vec![ContentPart::text(seq.to_string())], 0)
        };
        let send = SendId(Uuid::from_u128((seq as u128).div_ceil(2)));
        new.at(seq, send, Timestamp(1_000), 0)
    };
    let mut folds: Vec<Fold> = Vec::new();
    let by = (SendId(Uuid::from_u128(3)), Timestamp(2_000));
    attach(&mut folds, fold(1, 2, 0).at(1, by.0, by.1));
    attach(&mut folds, fold(1, 4, 1).at(2, by.0, by.1));
    let item = ImportSession {
        session: NewSession {
            key: SessionKey {
                tenant: TenantId::DEFAULT,
                session,
            },
            agent,
            metadata: Map::new(),
            parent: None,
        },
        messages: (1..=6).map(message).collect(),
        projections: Vec::new(),
        folds,
        todo: List::default(),
        notes: List::default(),
        idempotency: None,
        behind: 0,
        more: false,
    };
    world.store.import_session(item).await.expect("imports");
    session.to_string()
}

/// The entries of a page: message numbers, and the ranges of folds.
fn shown(page: &Value) -> Vec<String> {
    let entries = page["data"].as_array().expect("a list").iter();
    let entries = entries.map(|entry| match entry["role"].as_str() {
        Some("fold") => format!(
            "{}-{}: {}",
            entry["from_seq"], entry["to_seq"], entry["text"]
        ),
        _ => entry["seq"].to_string(),
    });
    entries.collect()
}

async fn folded(api: &Scheduler, session: &str) -> Vec<String> {
    let path = format!("/v1/sessions/{session}/messages?folded=true");
    shown(&api.get(&path).await.ok(200))
}

const FOLDED: [&str; 7] = ["1", "2", "3", "4", "1-4: \"1 to 4\"", "5", "6"];

#[tokio::test]
async fn folds_stand_behind_the_messages_that_they_stand_for() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = source(&world).await;
    assert_eq!(folded(&api, &id).await, FOLDED);
    let plain = api
        .get(&format!("/v1/sessions/{id}/messages"))
        .await
        .ok(200);
    assert_eq!(shown(&plain), ["1", "2", "3", "4", "5", "6"]);
    // Each entry appears once, whatever the page size.
    for limit in 1..=7 {
        let mut entries = Vec::new();
        let mut cursor = String::new();
        loop {
            let path = format!("/v1/sessions/{id}/messages?folded=true&limit={limit}{cursor}");
            let page = api.get(&path).await.ok(200);
            entries.extend(shown(&page));
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(entries, FOLDED, "{limit}");
    }
}

#[tokio::test]
async fn forks_and_archives_have_the_folds_of_their_messages() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = source(&world).await;
    let fork = async |body: Value| {
        let made = api
            .post(&format!("/v1/sessions/{id}/fork"), &body)
            .await
            .ok(201);
        made["id"].as_str().expect("an id").to_owned()
    };
    let whole = fork(json!({})).await;
    assert_eq!(folded(&api, &whole).await, FOLDED);
    // The fold of 1 to 4 covers more than is copied, so the fold it had replaced is shown again.
    let short = fork(json!({ "seq": 3 })).await;
    assert_eq!(
        folded(&api, &short).await,
        ["1", "2", "1-2: \"1 to 2\"", "3"]
    );
    let archive = export(&api, &id).await.text;
    let copy = import(&api, &archive).await.ok(201);
    let copy = copy["id"].as_str().expect("an id");
    assert_eq!(folded(&api, copy).await, FOLDED);
    assert_sound(&world).await;
}

/// The message ranges that have stored digests.
async fn digested(world: &World, id: &str) -> Vec<(i64, i64)> {
    let dump = world.store.dump().await.expect("dumps");
    let mut sessions = dump.sessions.into_iter();
    let session = sessions.find(|session| session.key.session.to_string() == id);
    let rows = session.expect("it is there").projections.into_iter();
    rows.map(|row| (row.from_seq, row.to_seq)).collect()
}

#[tokio::test]
async fn copies_have_the_digests_of_what_no_fold_stands_for() {
    let world = World::new().await;
    let api = world.ready().await;
    let agent = AgentSpec {
        context: ContextSpec {
            representation: Representation::Projection,
            ..ContextSpec::default()
        },
        ..AgentSpec::default()
    };
    let id = source_of(&world, agent).await;
    let fork = async |body: Value| {
        let path = format!("/v1/sessions/{id}/fork");
        let made = api.post(&path, &body).await.ok(201);
        made["id"].as_str().expect("an id").to_owned()
    };
    let whole = fork(json!({})).await;
    assert_eq!(digested(&world, &whole).await, [(5, 6)]);
    let short = fork(json!({ "seq": 3 })).await;
    assert_eq!(digested(&world, &short).await, [(3, 3)]);
    let verbatim = fork(json!({ "agent": {} })).await;
    assert_eq!(digested(&world, &verbatim).await, []);
    let archive = export(&api, &id).await.text;
    let copy = import(&api, &archive).await.ok(201);
    let copy = copy["id"].as_str().expect("an id");
    assert_eq!(digested(&world, copy).await, [(5, 6)]);
    assert_sound(&world).await;
}

#[tokio::test]
async fn what_an_agent_says_about_its_context_is_checked() {
    let world = World::new().await;
    let api = world.ready().await;
    let ask = async |context: Value| {
        api.post("/v1/sessions", &json!({ "agent": { "context": context } }))
            .await
    };
    let good = json!({
        "representation": "projection",
        "fold": {"strategy": "http", "url": "https://x.example/fold", "soft": 0.5, "hard": 0.9,
                 "keep_sends": 0, "model": "small"},
        "tools": {"look": "archive", "put": "truncate", "act": "summary", "ask": "preserve"},
    });
    let made = ask(good.clone()).await.ok(201);
    assert_eq!(made["agent"]["context"], good);
    for (context, pointer) in [
        (json!({"fold": {"soft": 0.0}}), "/agent/context/fold/soft"),
        (json!({"fold": {"soft": 0.9}}), "/agent/context/fold/soft"),
        (json!({"fold": {"hard": 1.5}}), "/agent/context/fold/hard"),
        (
            json!({"fold": {"keep_sends": 1_001}}),
            "/agent/context/fold/keep_sends",
        ),
        (
            json!({"fold": {"strategy": "http"}}),
            "/agent/context/fold/url",
        ),
        (
            json!({"fold": {"strategy": "http", "url": "ftp://x"}}),
            "/agent/context/fold/url",
        ),
        (
            json!({"fold": {"url": "https://x.example"}}),
            "/agent/context/fold/url",
        ),
        (json!({"fold": {"model": ""}}), "/agent/context/fold/model"),
        (json!({"tools": {"": "archive"}}), "/agent/context/tools"),
    ] {
        let problem = ask(context.clone()).await.problem(400, "request.invalid");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{context}");
    }
    for context in [
        json!({"representation": "short"}),
        json!({"fold": {"strategy": "magic"}}),
        json!({"fold": {"colour": 1}}),
        json!({"tools": {"look": "burn"}}),
    ] {
        ask(context).await.problem(400, "request.invalid");
    }
}
