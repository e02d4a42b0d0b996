//! What a bound key sees and keeps, whatever changes in the meantime.

use mainspring_shared::timer::TimerTarget;
use serde_json::json;

use super::{NONE, bound, everything, made, publish};
use crate::access::{ask, locked, tenant};
use crate::world::World;

#[tokio::test]
async fn an_agent_of_a_send_alone_remembers_where_it_was_judged_to() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["admin"]).await;
    publish(&api, &blue, "mine").await;
    let key = bound(&api, &blue, &json!({ "namespace": "user/1" })).await;
    let session = json!({ "metadata": { "user": "1" } });
    let session = made(&api, &key, "/v1/sessions", &session).await;
    let path = format!("/v1/sessions/{session}");
    let send = json!({ "input": "x", "options": { "agent": "mine", "delay": "1h" } });
    made(&api, &key, &format!("{path}/sends"), &send).await;
    let timer = json!({
        "session_id": session, "after": "1h", "input": "x", "options": { "agent": "mine" }
    });
    made(&api, &key, "/v1/timers", &timer).await;
    // The session's own agent has no memory, so its metadata may be changed freely.
    let change = json!({ "metadata": { "user": "2" } });
    ask(&api, &key, "PATCH", &path, &change).await.ok(200);
    let dump = world.store.dump().await.expect("the store answers");
    let mut sends = dump.sessions.iter().flat_map(|session| &session.sends);
    let mut agents = vec![sends.next().expect("a send").options.agent.clone()];
    for (timer, _) in dump.timers {
        if let TimerTarget::Send { options, .. } = timer.target {
            agents.push(options.agent);
        }
    }
    assert_eq!(agents.len(), 2);
    for agent in agents {
        let memory = agent.expect("an agent").memory.expect("a memory");
        assert_eq!(memory.namespace, "user/1");
    }
    // A new send with the same agent would be refused.
    let answer = ask(&api, &key, "POST", &format!("{path}/sends"), &send).await;
    answer.problem(403, "auth.binding");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_changes_at_once_do_not_lead_out_of_a_namespace() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["admin"]).await;
    let key = bound(&api, &blue, &json!({ "namespace": "user/1" })).await;
    let agent = json!({ "agent": { "memory": { "namespace": "user/{{metadata.user}}" } } });
    let metadata = json!({ "metadata": { "user": "2" } });
    for _ in 0..40 {
        let session = json!({ "metadata": { "user": "1" } });
        let session = made(&api, &key, "/v1/sessions", &session).await;
        let path = format!("/v1/sessions/{session}");
        let (one, other) = tokio::join!(
            ask(&api, &key, "PATCH", &path, &agent),
            ask(&api, &key, "PATCH", &path, &metadata)
        );
        assert!(one.status == 200 || other.status == 200, "{}", one.text);
        ask(&api, &key, "GET", &path, &NONE).await.ok(200);
    }
}

#[tokio::test]
async fn a_list_of_agents_names_none_but_those_of_the_binding() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["admin"]).await;
    for name in ["a-secret", "mine", "more", "n-secret", "old", "z-secret"] {
        publish(&api, &blue, name).await;
    }
    ask(&api, &blue, "DELETE", "/v1/agents/old", &NONE)
        .await
        .ok(200);
    let agents = json!({ "agents": ["gone", "mine", "more", "old"] });
    let key = bound(&api, &blue, &agents).await;
    for (query, names, next) in [
        ("?limit=1", vec!["mine"], json!("mine")),
        ("?limit=1&cursor=a", vec!["mine"], json!("mine")),
        ("?limit=1&cursor=mine", vec!["more"], NONE),
        ("?limit=1&cursor=more", vec![], NONE),
        ("", vec!["mine", "more"], NONE),
        ("?archived=true", vec!["mine", "more", "old"], NONE),
        (
            "?archived=true&limit=2",
            vec!["mine", "more"],
            json!("more"),
        ),
    ] {
        let path = format!("/v1/agents{query}");
        let page = ask(&api, &key, "GET", &path, &NONE).await.ok(200);
        let found = page["data"].as_array().expect("a list").iter();
        let found: Vec<_> = found.map(|agent| agent["name"].as_str()).collect();
        let names: Vec<_> = names.into_iter().map(Some).collect();
        assert_eq!(found, names, "{query}");
        assert_eq!(page["next_cursor"], next, "{query}");
    }
}

#[tokio::test]
async fn lists_of_many_sessions_show_what_lies_inside_in_order() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["admin"]).await;
    let key = bound(&api, &blue, &json!({ "metadata": { "user": "1" } })).await;
    let mut inside = Vec::new();
    for n in 0..70 {
        let user = if n % 7 == 0 { "1" } else { "2" };
        let send = json!({ "input": "x", "session": { "metadata": { "user": user } } });
        let made = ask(&api, &blue, "POST", "/v1/sends", &send).await.ok(202);
        let path = format!(
            "/v1/sessions/{}/sends",
            made["session_id"].as_str().expect("an id")
        );
        let more = ask(&api, &blue, "POST", &path, &json!({ "input": "y" })).await;
        if user == "1" {
            inside.extend([made["id"].clone(), more.ok(202)["id"].clone()]);
        }
    }
    inside.reverse();
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/sends?limit=7{cursor}");
        let page = ask(&api, &key, "GET", &path, &NONE).await.ok(200);
        let data = page["data"].as_array().expect("a list");
        found.extend(data.iter().map(|send| send["id"].clone()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(found, inside);
}

#[tokio::test]
async fn what_a_binding_adds_to_metadata_has_to_have_room_in_it() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["admin"]).await;
    let key = bound(&api, &blue, &json!({ "metadata": { "user": "1" } })).await;
    let session = made(&api, &key, "/v1/sessions", &NONE).await;
    let path = format!("/v1/sessions/{session}");
    // As large as metadata may be, before the binding's own is added.
    let full = json!({ "metadata": { "x": "x".repeat((16 << 10) - r#"{"x":""}"#.len()) } });
    ask(&api, &blue, "POST", "/v1/sessions", &full)
        .await
        .ok(201);
    let fork = format!("{path}/fork");
    for (method, path) in [
        ("POST", "/v1/sessions"),
        ("PATCH", path.as_str()),
        ("POST", fork.as_str()),
    ] {
        let answer = ask(&api, &key, method, path, &full).await;
        let problem = answer.problem(400, "request.invalid");
        assert_eq!(problem["errors"][0]["pointer"], "/metadata", "{problem}");
    }
    let send = json!({ "input": "x", "session": full });
    let answer = ask(&api, &key, "POST", "/v1/sends", &send).await;
    let problem = answer.problem(400, "request.invalid");
    let pointer = &problem["errors"][0]["pointer"];
    assert_eq!(pointer, "/session/metadata", "{problem}");
}

#[tokio::test]
async fn a_fork_is_replayed_although_its_agent_is_gone() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["admin"]).await;
    publish(&api, &blue, "mine").await;
    let key = bound(&api, &blue, &everything()).await;
    let session = made(&api, &key, "/v1/sessions", &json!({ "agent": "mine" })).await;
    let fork = async || {
        let call = api.call("POST", &format!("/v1/sessions/{session}/fork"));
        let call = call.header("authorization", &format!("Bearer {key}"));
        let call = call.header("idempotency-key", "one");
        call.json(&json!({ "agent": "mine" })).send().await
    };
    let forked = fork().await.ok(201);
    ask(&api, &blue, "DELETE", "/v1/agents/mine", &NONE)
        .await
        .ok(200);
    let again = fork().await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.ok(201)["id"], forked["id"]);
}
