//! Sessions: creating, showing, listing, changing, deleting; transcripts; manual recovery.

use mainspring_shared::send::WaitingOn;
use serde_json::json;

use crate::world::{World, nothing};

#[tokio::test]
async fn a_session_is_created_shown_and_listed() {
    let world = World::new().await;
    let api = world.ready().await;
    let body = json!({
        "agent": { "name": "scribe", "model": "demo/echo", "temperature": 0.5, "max_rounds": 3 },
        "metadata": { "team": "x", "nested": { "a": [1, null] } },
    });
    let created = api.post("/v1/sessions", &body).await;
    let session = created.ok(201);
    let id = session["id"].as_str().expect("an id");
    assert_eq!(
        created.header("location"),
        Some(format!("/v1/sessions/{id}").as_str())
    );
    assert_eq!(session["status"], "idle");
    assert_eq!(session["agent"]["name"], "scribe");
    assert_eq!(session["metadata"], body["metadata"]);
    assert_eq!(
        api.get(&format!("/v1/sessions/{id}")).await.ok(200),
        session
    );
    let list = api.get("/v1/sessions").await.ok(200);
    assert_eq!(list, json!({ "data": [session], "next_cursor": null }));
}

#[tokio::test]
async fn a_session_needs_no_body() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.call("POST", "/v1/sessions").send().await.ok(201);
    assert_eq!(session["agent_version"], 1);
}

#[tokio::test]
async fn lists_are_paged_newest_first_and_filtered() {
    let world = World::new().await;
    let api = world.ready().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        let team = if n % 2 == 0 { "even" } else { "odd" };
        let body = json!({ "agent": { "name": format!("a{n}") }, "metadata": { "team": team } });
        let session = api.post("/v1/sessions", &body).await.ok(201);
        ids.insert(0, session["id"].as_str().expect("an id").to_owned());
    }
    let mut seen = Vec::new();
    let mut path = "/v1/sessions?limit=2".to_owned();
    loop {
        let page = api.get(&path).await.ok(200);
        let data = page["data"].as_array().expect("a list");
        assert!(data.len() <= 2);
        seen.extend(
            data.iter()
                .map(|one| one["id"].as_str().expect("an id").to_owned()),
        );
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        path = format!("/v1/sessions?limit=2&cursor={cursor}");
    }
    assert_eq!(seen, ids);
    for (query, count) in [
        ("metadata.team=odd", 2),
        ("metadata%5Bteam%5D=even", 3),
        ("metadata.team=none", 0),
        ("agent=a3", 1),
        ("status=idle", 5),
        ("status=running", 0),
        ("status=idle&agent=a0&metadata.team=even", 1),
    ] {
        let page = api.get(&format!("/v1/sessions?{query}")).await.ok(200);
        assert_eq!(
            page["data"].as_array().map(Vec::len),
            Some(count),
            "{query}"
        );
    }
}

#[tokio::test]
async fn a_change_replaces_what_it_names_and_closes() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let path = format!("/v1/sessions/{id}");
    let patch = |body| api.call("PATCH", &path).json(&body).send();
    let changed = patch(json!({ "agent": { "name": "new" } })).await.ok(200);
    assert_eq!(changed["agent"]["name"], "new");
    assert_eq!(changed["agent_version"], 2);
    let changed = patch(json!({ "metadata": { "a": 1 }, "closed": true }))
        .await
        .ok(200);
    assert_eq!(changed["metadata"], json!({ "a": 1 }));
    assert_eq!(changed["status"], "closed");
    assert_eq!(changed["agent"]["name"], "new");
    let refused = api
        .post(&format!("{path}/sends"), &json!({ "input": "hi" }))
        .await;
    refused.problem(409, "session.closed");
    assert_eq!(
        patch(json!({ "closed": false })).await.ok(200)["status"],
        "idle"
    );
    api.send(&id, "hi").await;
    let absent = api.call("PATCH", &format!("/v1/sessions/{}", nothing("ses_")));
    absent
        .json(&json!({}))
        .send()
        .await
        .problem(404, "session.not_found");
}

#[tokio::test]
async fn a_deleted_session_is_gone_and_its_sends_are_cancelled() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let send = api.send(&id, "hi").await;
    let waiting = tokio::spawn(
        api.call("GET", &format!("/v1/sends/{send}?wait=20s"))
            .send(),
    );
    let path = format!("/v1/sessions/{id}");
    let deleted = api.call("DELETE", &path).send().await;
    assert_eq!((deleted.status, deleted.text.as_str()), (204, ""));
    assert_eq!(waiting.await.expect("joins").ok(200)["status"], "cancelled");
    api.get(&path).await.problem(404, "session.not_found");
    api.call("DELETE", &path)
        .send()
        .await
        .problem(404, "session.not_found");
    api.get(&format!("{path}/messages"))
        .await
        .problem(404, "session.not_found");
    api.get(&format!("{path}/events"))
        .await
        .problem(404, "session.not_found");
    let refused = api
        .post(&format!("{path}/sends"), &json!({ "input": "hi" }))
        .await;
    refused.problem(404, "session.not_found");
}

#[tokio::test]
async fn a_transcript_is_read_by_seq() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    for n in 0..3 {
        api.send(&id, &format!("question {n}")).await;
        let claimed = world.claim(&id).await;
        world.complete(&claimed, 0, &format!("answer {n}")).await;
    }
    let path = format!("/v1/sessions/{id}/messages");
    let all = api.get(&path).await.ok(200);
    let seqs: Vec<_> = all["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|m| m["seq"].as_i64())
        .collect();
    assert_eq!(seqs, (1..=6).map(Some).collect::<Vec<_>>());
    assert_eq!(all["data"][0]["role"], "user");
    assert_eq!(all["data"][5]["content"][0]["text"], "answer 2");
    // Nothing is folded yet, so everything is shown either way.
    for folded in [true, false] {
        let shown = api.get(&format!("{path}?folded={folded}")).await.ok(200);
        assert_eq!(shown, all);
    }
    let folded = api.get(&format!("{path}?folded=perhaps")).await;
    let refused = folded.problem(400, "request.invalid");
    assert_eq!(refused["errors"][0]["pointer"], "?folded");
    let page = api.get(&format!("{path}?after=1&limit=2")).await.ok(200);
    assert_eq!(page["data"][0]["seq"], 2);
    assert_eq!(page["next_cursor"], "3");
    let rest = api.get(&format!("{path}?cursor=3")).await.ok(200);
    assert_eq!(rest["data"].as_array().map(Vec::len), Some(3));
    assert_eq!(rest["next_cursor"], json!(null));
}

#[tokio::test]
async fn a_send_that_waits_for_recovery_is_resumed_or_aborted() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let act = |verb: &str| {
        api.call("POST", &format!("/v1/sessions/{id}/{verb}"))
            .send()
    };
    act("resume").await.problem(409, "session.not_waiting");
    act("abort").await.problem(409, "session.not_waiting");

    let send = api.send(&id, "hi").await;
    world
        .park(&world.claim(&id).await, WaitingOn::Recovery, 0)
        .await;
    assert_eq!(
        api.get(&format!("/v1/sends/{send}")).await.ok(200)["waiting_on"],
        "recovery"
    );
    assert_eq!(act("resume").await.ok(202)["id"], send.as_str());
    world
        .park(&world.claim(&id).await, WaitingOn::Recovery, 0)
        .await;
    let aborted = act("abort").await.ok(200);
    assert_eq!(
        (&aborted["id"], &aborted["status"]),
        (&json!(send), &json!("cancelled"))
    );
    for verb in ["resume", "abort"] {
        let path = format!("/v1/sessions/{}/{verb}", nothing("ses_"));
        api.call("POST", &path)
            .send()
            .await
            .problem(404, "session.not_found");
    }
}
