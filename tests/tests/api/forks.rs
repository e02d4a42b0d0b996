//! Forks: sessions with a copy of another session's transcript.

use mainspring_shared::send::WaitingOn;
use serde_json::{Value, json};

use crate::copies::{SETTLED, assert_sound, export, import, source, transcript};
use crate::world::{World, nothing};

#[tokio::test]
async fn a_fork_ends_where_every_call_has_its_result() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = source(&world).await;
    let path = format!("/v1/sessions/{id}/fork");
    let all = transcript(&api, &id).await;
    let all = all.as_array().expect("a list");
    for seq in 0..=8 {
        let answer = api.post(&path, &json!({ "seq": seq })).await;
        if !SETTLED.contains(&seq) {
            let problem = answer.problem(409, "session.busy");
            let detail = problem["detail"].as_str().unwrap_or_default();
            let before = SETTLED
                .iter()
                .rfind(|place| **place < seq)
                .expect("0 is one");
            assert!(detail.contains(&format!("at seq {seq} ")), "{detail}");
            assert!(detail.ends_with(&format!(" is {before}")), "{detail}");
            continue;
        }
        let session = answer.ok(201);
        assert_eq!(session["messages"], seq);
        assert_eq!(
            session["metadata"],
            json!({ "team": "x", "forked_from": id })
        );
        assert_eq!(session["agent"]["name"], "scribe");
        let fork = session["id"].as_str().expect("an id");
        let copied = transcript(&api, fork).await;
        assert_eq!(copied, json!(all[..seq as usize]));
    }
    for seq in [-1, 9] {
        let refused = api.post(&path, &json!({ "seq": seq })).await;
        let problem = refused.problem(400, "request.invalid");
        assert_eq!(problem["errors"][0]["pointer"], "/seq");
    }
    assert_sound(&world).await;
}

#[tokio::test]
async fn a_fork_may_have_another_agent_and_other_metadata() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = source(&world).await;
    let path = format!("/v1/sessions/{id}/fork");
    let body = json!({ "agent": { "name": "poet" }, "metadata": { "forked_from": 1, "n": 2 } });
    let session = api.post(&path, &body).await.ok(201);
    assert_eq!(session["agent"]["name"], "poet");
    assert_eq!(session["metadata"], json!({ "forked_from": id, "n": 2 }));
    let list = api
        .get(&format!("/v1/sessions?metadata.forked_from={id}"))
        .await
        .ok(200);
    assert_eq!(list["data"], json!([session]));
    let wrong = json!({ "agent": { "max_rounds": 0 }, "colour": 1 });
    api.post(&path, &wrong)
        .await
        .problem(400, "request.invalid");
    let nowhere = format!("/v1/sessions/{}/fork", nothing("ses_"));
    api.post(&nowhere, &json!({}))
        .await
        .problem(404, "session.not_found");
}

#[tokio::test]
async fn a_session_at_work_is_forked_and_exported_up_to_its_open_call() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = source(&world).await;
    api.send(&id, "three").await;
    let claimed = world.claim(&id).await;
    world.ask(&claimed, WaitingOn::Tool, false).await;
    let path = format!("/v1/sessions/{id}/fork");
    assert_eq!(
        api.get(&format!("/v1/sessions/{id}")).await.ok(200)["messages"],
        10
    );
    let refused = api.post(&path, &json!({ "seq": 10 })).await;
    refused.problem(409, "session.busy");
    let fork = api.call("POST", &path).send().await.ok(201);
    assert_eq!(
        (&fork["messages"], &fork["status"]),
        (&json!(9), &json!("idle"))
    );
    let archive = export(&api, &id).await.text;
    let copy = import(&api, &archive).await.ok(201);
    assert_eq!(copy["messages"], 9);
    // The copies do not affect the original.
    let fork = fork["id"].as_str().expect("an id");
    api.send(fork, "four").await;
    let branch = world.claim(fork).await;
    world.complete(&branch, 0, "done").await;
    assert_eq!(
        transcript(&api, &id).await.as_array().map(Vec::len),
        Some(10)
    );
    assert_sound(&world).await;
}

#[tokio::test]
async fn a_fork_of_more_than_what_may_be_in_memory_is_made_page_by_page() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| config.bodies_bytes_max = 20_000)
        .await;
    api.until_ready().await;
    let id = api.session().await;
    let path = format!("/v1/sessions/{id}/fork");
    let body = json!({ "input": "x".repeat(5_000) });
    for _ in 0..12 {
        let sends = format!("/v1/sessions/{id}/sends");
        api.post(&sends, &body).await.ok(202);
        world.complete(&world.claim(&id).await, 0, "done").await;
    }
    let forked = api.post(&path, &json!({})).await.ok(201);
    assert_eq!(forked["messages"], 24);
    let fork = forked["id"].as_str().expect("an id");
    let (copied, source) = (transcript(&api, fork).await, transcript(&api, &id).await);
    let rows = |of: &Value| of.as_array().cloned().unwrap_or_default();
    let (copied, source) = (rows(&copied), rows(&source));
    assert_eq!((copied.len(), source.len()), (24, 24));
    for (copy, source) in copied.iter().zip(&source) {
        for member in ["seq", "role", "content", "send_id", "round", "created_at"] {
            assert_eq!(copy[member], source[member]);
        }
    }
    let upto = api.post(&path, &json!({ "seq": 20 })).await.ok(201);
    assert_eq!(upto["messages"], 20);
    // Content larger than the whole memory budget is refused.
    let long = "x".repeat(19_000);
    let sends = format!("/v1/sessions/{id}/sends");
    api.post(&sends, &json!({ "input": "hi" })).await.ok(202);
    let claimed = world.claim(&id).await;
    world.complete(&claimed, 0, &format!("{long}{long}")).await;
    api.post(&path, &json!({}))
        .await
        .problem(413, "request.too_large");
    // The refused request gave its room back.
    api.post("/v1/sends", &json!({ "input": long }))
        .await
        .ok(202);
}
