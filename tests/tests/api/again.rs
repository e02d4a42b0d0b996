//! Sends tried again, and what belongs to a session: its children and the lists that its agent keeps.

use mainspring_runtime::OsEntropy;
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::error::Code;
use mainspring_shared::id::{SessionId, SessionKey};
use mainspring_shared::list::{Bounds, Change, ListName, NewEntry, WhenFull};
use mainspring_shared::store::{ListOutcome, NewSession, Parent, WriteList};
use serde_json::{Map, Value, json};

use crate::world::{World, key};

#[tokio::test]
async fn a_failed_send_is_sent_again_once() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let path = format!("/v1/sessions/{session}/sends");
    let body = json!({ "input": "hi", "options": { "max_rounds": 2, "deadline": "1h" } });
    let send = api.post(&path, &body).await.ok(202);
    let retry = format!("/v1/sends/{}/retry", send["id"].as_str().expect("an id"));
    let early = api.post(&retry, &json!({})).await;
    early.problem(409, "send.not_retryable");
    let claimed = world.claim(&session).await;
    world.fail(&claimed, Code::LlmUnavailable, "away").await;
    let again = api.post(&retry, &json!({})).await.ok(202);
    assert_ne!(again["id"], send["id"]);
    assert_eq!(
        (&again["session_id"], &again["status"]),
        (&send["session_id"], &json!("queued"))
    );
    let repeated = api.post(&retry, &json!({})).await;
    assert_eq!(repeated.header("idempotency-replayed"), Some("true"));
    assert_eq!(repeated.ok(202)["id"], again["id"]);
    let claimed = world.claim(&session).await;
    let record = &claimed.send.record;
    assert_eq!(record.options.max_rounds, Some(2));
    assert!(record.deadline_at.is_some());
    world.complete(&claimed, 0, "hello").await;
    let done = format!("/v1/sends/{}/retry", again["id"].as_str().expect("an id"));
    api.post(&done, &json!({}))
        .await
        .problem(409, "send.not_retryable");
    let request = api.call("POST", &retry).header("idempotency-key", "second");
    let second = request.json(&json!({})).send().await.ok(202);
    assert_ne!(second["id"], again["id"]);
    api.post(
        "/v1/sends/snd_00000000000000000000000000000000/retry",
        &json!({}),
    )
    .await
    .problem(404, "send.not_found");
}

#[tokio::test]
async fn the_lists_of_a_session_are_readable() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let of = key(&session);
    let names = [
        (ListName::Todo(of.session), "call the bank"),
        (ListName::Notes(of.session), "prefers tea"),
        (ListName::root_board(of.session), "found: 3"),
    ];
    for (n, (name, text)) in names.into_iter().enumerate() {
        let entry = NewEntry {
            text: text.to_owned(),
            ..NewEntry::default()
        };
        let written = world.store.write_list(WriteList {
            name,
            session: of,
            call_id: format!("call_{n}"),
            change: Change::Add(entry),
            bounds: Bounds {
                entries_max: 9,
                chars_max: 99,
                when_full: WhenFull::Reject,
            },
        });
        let written = written.await.expect("the store answers");
        assert!(
            matches!(written, ListOutcome::Written { .. }),
            "{written:?}"
        );
    }
    let path = format!("/v1/sessions/{session}/lists");
    let lists = api.get(&path).await.ok(200);
    let texts = |list: &str| -> Vec<Value> {
        let entries = lists[list].as_array().expect("a list").iter();
        entries.map(|entry| entry["text"].clone()).collect()
    };
    assert_eq!(texts("todo"), ["call the bank"]);
    assert_eq!(texts("notes"), ["prefers tea"]);
    assert_eq!(texts("board"), ["found: 3"]);
    for what in ["lists", "children"] {
        let path = format!("/v1/sessions/ses_00000000000000000000000000000000/{what}");
        api.get(&path).await.problem(404, "session.not_found");
    }
}

/// Creates a child of a session.
async fn child_of(world: &World, session: &str) -> Value {
    let parent = key(session);
    let child = SessionKey {
        session: SessionId(OsEntropy.ordered_id()),
        ..parent
    };
    let new = NewSession {
        key: child,
        agent: AgentSpec::default(),
        metadata: Map::new(),
        parent: Some(Parent {
            session: parent.session,
            call_id: "call".to_owned(),
            root: parent.session,
            depth: 1,
        }),
    };
    let created = world.store.create_sessions(vec![(new, None)]).await;
    created.expect("the store answers");
    json!(child.session)
}

#[tokio::test]
async fn the_children_of_a_session_are_listed_by_pages() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let path = format!("/v1/sessions/{session}/children");
    assert_eq!(api.get(&path).await.ok(200)["data"], json!([]));
    let mut made = Vec::new();
    for _ in 0..3 {
        made.insert(0, child_of(&world, &session).await);
    }
    let listed = async |query: String| {
        let page = api.get(&format!("{path}{query}")).await.ok(200);
        let ids = page["data"].as_array().expect("a list").iter();
        let ids: Vec<Value> = ids.map(|child| child["id"].clone()).collect();
        (ids, page["next_cursor"].clone())
    };
    let (all, _) = listed(String::new()).await;
    assert_eq!(all, made);
    let (first, cursor) = listed("?limit=2".to_owned()).await;
    assert_eq!(first, made[..2]);
    let cursor = cursor.as_str().expect("there is more").to_owned();
    let (rest, end) = listed(format!("?limit=2&cursor={cursor}")).await;
    assert_eq!((rest, end), (made[2..].to_vec(), Value::Null));
}
