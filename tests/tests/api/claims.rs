//! Waiting calls of a whole tenant, claims of programs that make them, and sessions by the names of their callers.

use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::Claimed;
use serde_json::{Value, json};

use crate::access::{ROOT, ask, locked};
use crate::world::{Scheduler, World};

/// A send of a new session that waits for a call of the tool `outside`.
async fn waits(world: &World, api: &Scheduler, on: WaitingOn) -> (String, Claimed, String) {
    let session = api.session().await;
    let (claimed, call) = waits_in(world, api, &session, on).await;
    (session, claimed, call)
}

async fn waits_in(
    world: &World,
    api: &Scheduler,
    session: &str,
    on: WaitingOn,
) -> (Claimed, String) {
    api.send(session, "go").await;
    let claimed = world.claim(session).await;
    let call = world.ask(&claimed, on, false).await;
    (claimed, call)
}

async fn claim(api: &Scheduler, body: &Value) -> Vec<Value> {
    let claimed = api.post("/v1/calls:claim", body).await.ok(200);
    claimed["calls"].as_array().expect("a list").clone()
}

/// What became of something that was said about a claim.
async fn told(api: &Scheduler, what: &str, claim: &Value) -> Value {
    let held = json!([{ "call_id": claim["call_id"], "claim": claim["claim"] }]);
    let path = format!("/v1/calls:{what}");
    let told = api.post(&path, &json!({ "claims": held })).await.ok(200);
    told["claims"][0]["status"].clone()
}

async fn report(api: &Scheduler, claim: &Value, output: &str) -> Value {
    let session = claim["session_id"].as_str().expect("a session");
    let result = json!({ "call_id": claim["call_id"], "claim": claim["claim"], "output": output });
    let path = format!("/v1/sessions/{session}/tool-results");
    let posted = api.post(&path, &json!({ "results": [result] })).await;
    posted.ok(200)["results"][0]["status"].clone()
}

#[tokio::test]
async fn a_claimed_call_is_made_by_its_claimer_alone() {
    let world = World::new().await;
    let api = world.ready().await;
    let (session, _, call) = waits(&world, &api, WaitingOn::Tool).await;
    waits(&world, &api, WaitingOn::Human).await;
    let body = json!({ "names": ["outside", "other"], "limit": 10 });
    let mine = claim(&api, &body).await;
    let [one] = &mine[..] else {
        panic!("one call was expected: {mine:?}");
    };
    assert_eq!(
        (&one["call_id"], &one["session_id"], &one["attempt"]),
        (&json!(call), &json!(session), &json!(1))
    );
    assert!(claim(&api, &body).await.is_empty(), "it is taken");
    assert_eq!(told(&api, "renew", one).await, "held");
    let strange = json!({ "call_id": call, "claim": "00000000-0000-4000-8000-000000000000", "session_id": session });
    for what in ["renew", "release"] {
        assert_eq!(told(&api, what, &strange).await, "lost");
    }
    assert_eq!(report(&api, &strange, "stolen").await, "claim_lost");
    assert_eq!(told(&api, "release", one).await, "released");
    let again = claim(&api, &body).await.remove(0);
    assert_ne!(again["claim"], one["claim"]);
    assert_eq!(report(&api, one, "late").await, "claim_lost");
    assert_eq!(report(&api, &again, "found").await, "accepted");
    assert_eq!(report(&api, &again, "found").await, "already_settled");
    assert_eq!(told(&api, "renew", &again).await, "already_settled");
    let unknown = json!({ "call_id": "call_x", "claim": again["claim"] });
    assert_eq!(told(&api, "renew", &unknown).await, "unknown");
}

#[tokio::test]
async fn a_request_whose_response_was_lost_gets_its_calls_again() {
    let world = World::new().await;
    let api = world.ready().await;
    waits(&world, &api, WaitingOn::Tool).await;
    waits(&world, &api, WaitingOn::Tool).await;
    let body = json!({ "names": ["outside"], "limit": 1 });
    let request = async |key: &str| {
        let request = api
            .call("POST", "/v1/calls:claim")
            .header("idempotency-key", key);
        request.json(&body).send().await.ok(200)["calls"].take()
    };
    let first = request("a").await;
    let again = request("a").await;
    assert_eq!(
        (
            &first[0]["call_id"],
            &first[0]["claim"],
            &first[0]["attempt"]
        ),
        (
            &again[0]["call_id"],
            &again[0]["claim"],
            &again[0]["attempt"]
        ),
    );
    let other = request("b").await;
    assert_ne!(other[0]["call_id"], first[0]["call_id"]);
    assert_ne!(other[0]["claim"], first[0]["claim"]);
}

#[tokio::test]
async fn who_waits_gets_a_call_when_it_comes() {
    let world = World::new().await;
    let api = world.ready().await;
    let request = api.call("POST", "/v1/calls:claim?wait=20s");
    let waiting = tokio::spawn(request.json(&json!({ "names": ["outside"] })).send());
    let (_, _, call) = waits(&world, &api, WaitingOn::Tool).await;
    let got = waiting.await.expect("joins").ok(200);
    assert_eq!(got["calls"][0]["call_id"], json!(call));
    let path = "/v1/calls:claim?wait=1ms";
    let none = api.post(path, &json!({ "names": ["outside"] })).await;
    assert_eq!(none.ok(200), json!({ "calls": [] }));
}

#[tokio::test]
async fn the_calls_of_all_sessions_are_listed() {
    let world = World::new().await;
    let api = world.ready().await;
    let mut calls = Vec::new();
    for on in [WaitingOn::Tool, WaitingOn::Human] {
        calls.push(waits(&world, &api, on).await.2);
    }
    let clerk = json!({ "agent": { "name": "clerk", "system_prompt": "Count." } });
    let clerk = api.post("/v1/sessions", &clerk).await.ok(201);
    let clerk = clerk["id"].as_str().expect("an id");
    calls.push(waits_in(&world, &api, clerk, WaitingOn::Tool).await.1);
    let list = async |query: &str| {
        let listed = api.get(&format!("/v1/calls{query}")).await.ok(200);
        let ids = listed["data"].as_array().expect("a list").iter();
        let ids: Vec<_> = ids
            .map(|call| call["call_id"].as_str().unwrap_or_default().to_owned())
            .collect();
        (ids, listed["next_cursor"].clone())
    };
    let mut expected = calls.clone();
    let (mut all, _) = list("").await;
    all.sort();
    expected.sort();
    assert_eq!(all, expected);
    assert_eq!(list("?waiting_on=human").await.0, [calls[1].clone()]);
    assert!(list("?name=other").await.0.is_empty());
    assert!(list("?agent=other").await.0.is_empty());
    assert_eq!(list("?agent=clerk").await.0, [calls[2].clone()]);
    let mut paged = Vec::new();
    let mut query = "?limit=1".to_owned();
    loop {
        let (ids, next) = list(&query).await;
        paged.extend(ids);
        let Some(cursor) = next.as_str() else { break };
        query = format!("?limit=1&cursor={cursor}");
    }
    paged.sort();
    assert_eq!(paged, expected);
    let claimed = claim(&api, &json!({ "names": ["outside"] }))
        .await
        .remove(0);
    let listed = api.get("/v1/calls").await.ok(200);
    let listed = listed["data"].as_array().expect("a list").iter();
    for call in listed {
        let is_claimed = call["call_id"] == claimed["call_id"];
        assert_eq!(call["claimed_until"].is_string(), is_claimed, "{call}");
    }
}

#[tokio::test]
async fn bad_requests_about_claims_say_what_is_wrong() {
    let world = World::new().await;
    let api = world.ready().await;
    for (body, pointer) in [
        (json!({ "names": [] }), "/names"),
        (json!({ "names": ["a"], "limit": 0 }), "/limit"),
        (json!({ "names": ["a"], "limit": 101 }), "/limit"),
        (json!({ "names": ["a"], "lease": "10ms" }), "/lease"),
        (json!({ "names": ["a"], "lease": "2h" }), "/lease"),
    ] {
        let problem = api.post("/v1/calls:claim", &body).await;
        let problem = problem.problem(400, "request.invalid");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{body}");
    }
    for what in ["renew", "release"] {
        let path = format!("/v1/calls:{what}");
        let problem = api.post(&path, &json!({ "claims": [] })).await;
        let problem = problem.problem(400, "request.invalid");
        assert_eq!(problem["errors"][0]["pointer"], "/claims");
    }
    for query in ["?waiting_on=agent", "?cursor=x", "?cursor=1"] {
        let problem = api.get(&format!("/v1/calls{query}")).await;
        problem.problem(400, "request.invalid");
    }
}

#[tokio::test]
async fn bound_keys_claim_and_list_their_own_calls_only() {
    let world = World::new().await;
    let api = locked(&world).await;
    let bound = async |user: &str| {
        let scopes = ["read", "send", "answer"];
        let body = json!({
            "name": user, "scopes": scopes, "binding": { "metadata": { "user": user } },
        });
        let made = ask(&api, ROOT, "POST", "/v1/keys", &body).await.ok(201);
        made["key"].as_str().expect("the token").to_owned()
    };
    let (one, two) = (bound("1").await, bound("2").await);
    let body = json!({ "metadata": { "user": "1" }, "key": "chat" });
    let session = ask(&api, ROOT, "POST", "/v1/sessions", &body).await.ok(201);
    let session = session["id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/sessions/{session}/sends");
    ask(&api, ROOT, "POST", &path, &json!({ "input": "go" }))
        .await
        .ok(202);
    let claimed = world.claim(&session).await;
    let call = world.ask(&claimed, WaitingOn::Tool, false).await;
    let listed = async |key: &str| {
        let listed = ask(&api, key, "GET", "/v1/calls", &Value::Null)
            .await
            .ok(200);
        listed["data"].as_array().expect("a list").len()
    };
    let claims = async |key: &str| {
        let body = json!({ "names": ["outside"] });
        let claimed = ask(&api, key, "POST", "/v1/calls:claim", &body)
            .await
            .ok(200);
        claimed["calls"].as_array().expect("a list").clone()
    };
    assert_eq!((listed(&one).await, listed(&two).await), (1, 0));
    assert!(claims(&two).await.is_empty());
    let mine = claims(&one).await;
    assert_eq!(mine[0]["call_id"], json!(call));
    // Calls of others that have waited for longer are not in the way.
    let mut last = String::new();
    for user in ["1", "1", "2"] {
        let body = json!({ "metadata": { "user": user } });
        let made = ask(&api, ROOT, "POST", "/v1/sessions", &body).await.ok(201);
        let made = made["id"].as_str().expect("an id").to_owned();
        let path = format!("/v1/sessions/{made}/sends");
        ask(&api, ROOT, "POST", &path, &json!({ "input": "go" }))
            .await
            .ok(202);
        let claimed = world.claim(&made).await;
        last = world.ask(&claimed, WaitingOn::Tool, false).await;
    }
    let renewal = json!({ "claims": [{ "call_id": call, "claim": mine[0]["claim"] }] });
    let renewed = async |key: &str| {
        let told = ask(&api, key, "POST", "/v1/calls:renew", &renewal)
            .await
            .ok(200);
        told["claims"][0]["status"].clone()
    };
    assert_eq!(
        (renewed(&two).await, renewed(&one).await),
        (json!("unknown"), json!("held"))
    );
    let theirs = claims(&two).await;
    assert_eq!(theirs[0]["call_id"], json!(last));
    // A name is the tenant's, and what has it may be outside a key's binding.
    let body = json!({ "key": "chat", "metadata": { "user": "2" } });
    let taken = ask(&api, &two, "POST", "/v1/sessions", &body).await;
    taken.problem(404, "session.not_found");
    let found = async |key: &str| {
        let listed = ask(&api, key, "GET", "/v1/sessions?key=chat", &Value::Null).await;
        listed.ok(200)["data"].as_array().expect("a list").len()
    };
    assert_eq!((found(&one).await, found(&two).await), (1, 0));
}

#[tokio::test]
async fn a_session_is_found_or_created_by_its_key() {
    let world = World::new().await;
    let api = world.ready().await;
    let body = json!({ "key": "customer-42", "metadata": { "a": "1" } });
    let made = api.post("/v1/sessions", &body).await.ok(201);
    let again = json!({ "key": "customer-42", "metadata": { "a": "2" } });
    let found = api.post("/v1/sessions", &again).await.ok(200);
    assert_eq!(
        (&found["id"], &found["metadata"]),
        (&made["id"], &json!({ "a": "1" }))
    );
    let id = made["id"].as_str().expect("an id");
    let listed = api.get("/v1/sessions?key=customer-42").await.ok(200);
    assert_eq!(listed["data"][0]["id"], made["id"]);
    let none = api.get("/v1/sessions?key=customer-43").await.ok(200);
    assert_eq!(none["data"], json!([]));
    for key in ["", "a b", "\u{e4}"] {
        let problem = api.post("/v1/sessions", &json!({ "key": key })).await;
        let problem = problem.problem(400, "request.invalid");
        assert_eq!(problem["errors"][0]["pointer"], "/key");
    }
    let path = format!("/v1/sessions/{id}");
    let deleted = api.call("DELETE", &path).send().await;
    assert_eq!(deleted.status, 204);
    let next = api.post("/v1/sessions", &body).await.ok(201);
    assert_ne!(next["id"], made["id"]);
}
