//! Sends: accepting, showing, listing, cancelling.

use serde_json::json;

use crate::world::{World, nothing};

#[tokio::test]
async fn a_send_is_accepted_and_shown_as_it_is_stored() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let body = json!({ "input": "hi", "options": { "priority": "low", "max_rounds": 2 } });
    let accepted = api.post(&format!("/v1/sessions/{id}/sends"), &body).await;
    let send = accepted.ok(202);
    let path = format!("/v1/sends/{}", send["id"].as_str().expect("an id"));
    assert_eq!(accepted.header("location"), Some(path.as_str()));
    assert_eq!(send["status"], "queued");
    assert_eq!(send["session_id"], id.as_str());
    // The response, which is built without a read, equals what a read returns.
    assert_eq!(api.get(&path).await.ok(200), send);
}

#[tokio::test]
async fn one_call_creates_a_session_and_its_send() {
    let world = World::new().await;
    let api = world.ready().await;
    let body = json!({ "input": "hi", "session": { "agent": { "name": "a" } } });
    let send = api.post("/v1/sends", &body).await.ok(202);
    let session = send["session_id"].as_str().expect("an id");
    let shown = api.get(&format!("/v1/sessions/{session}")).await.ok(200);
    assert_eq!(
        (&shown["agent"]["name"], &shown["status"]),
        (&json!("a"), &json!("queued"))
    );
    for body in [
        json!({ "input": "again", "session_id": session }),
        json!({ "input": "again", "session": { "session_id": session } }),
    ] {
        assert_eq!(
            api.post("/v1/sends", &body).await.ok(202)["session_id"],
            session
        );
    }
    let fresh = api
        .post("/v1/sends", &json!({ "input": "hi" }))
        .await
        .ok(202);
    assert_ne!(fresh["session_id"], session);
    let both = json!({ "input": "hi", "session_id": session, "session": { "metadata": {} } });
    api.post("/v1/sends", &both)
        .await
        .problem(400, "request.invalid");
    for unknown in [nothing("ses_"), "ses_1".to_owned(), "x".to_owned()] {
        let body = json!({ "input": "hi", "session_id": unknown });
        api.post("/v1/sends", &body)
            .await
            .problem(404, "session.not_found");
    }
}

#[tokio::test]
async fn the_input_reaches_the_worker_as_it_was_written() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let parts = json!([{ "type": "text", "text": "a\u{1f600}" }, { "type": "text", "text": "b" }]);
    let path = format!("/v1/sessions/{id}/sends");
    api.post(&path, &json!({ "input": parts })).await.ok(202);
    let claimed = world.claim(&id).await;
    let input = serde_json::to_value(&claimed.send.record.input).expect("json");
    assert_eq!(input, parts);
}

#[tokio::test]
async fn sends_are_listed_newest_first_and_filtered() {
    let world = World::new().await;
    let api = world.ready().await;
    let (one, two) = (api.session().await, api.session().await);
    let mut ids = Vec::new();
    for session in [&one, &two, &one] {
        ids.insert(0, api.send(session, "hi").await);
    }
    world.complete(&world.claim(&two).await, 0, "done").await;
    let list = async |query: &str| {
        let page = api.get(&format!("/v1/sends?{query}")).await.ok(200);
        let data = page["data"].as_array().expect("a list").clone();
        let ids = data
            .iter()
            .map(|send| send["id"].as_str().expect("an id").to_owned());
        (ids.collect::<Vec<_>>(), page["next_cursor"].clone())
    };
    assert_eq!(list("").await, (ids.clone(), json!(null)));
    assert_eq!(
        list(&format!("session_id={one}")).await.0,
        [ids[0].clone(), ids[2].clone()]
    );
    assert_eq!(list("status=completed").await.0, [ids[1].clone()]);
    let unknown = format!("session_id={}", nothing("ses_"));
    assert_eq!(list(&unknown).await.0, Vec::<String>::new());
    let (first, cursor) = list("limit=2").await;
    assert_eq!(first, ids[..2]);
    let cursor = cursor.as_str().expect("more").to_owned();
    assert_eq!(
        list(&format!("limit=2&cursor={cursor}")).await,
        (ids[2..].to_vec(), json!(null))
    );
}

#[tokio::test]
async fn a_busy_session_refuses_who_does_not_want_to_wait() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let path = format!("/v1/sessions/{id}/sends");
    let body = json!({ "input": "hi", "options": { "on_busy": "reject" } });
    api.post(&path, &body).await.ok(202);
    let refused = api.post(&path, &body).await.problem(409, "session.busy");
    assert_eq!(refused["retryable"], false);
}

#[tokio::test]
async fn a_full_session_refuses_until_it_has_room() {
    let world = World::new().await;
    let api = world.scheduler_with(|config| config.queued_max = 2).await;
    api.until_ready().await;
    let id = api.session().await;
    api.send(&id, "one").await;
    api.send(&id, "two").await;
    let path = format!("/v1/sessions/{id}/sends");
    let refused = api.post(&path, &json!({ "input": "three" })).await;
    assert_eq!(refused.problem(429, "limit.exceeded")["retryable"], true);
    assert_eq!(refused.header("retry-after"), Some("1"));
    world.complete(&world.claim(&id).await, 0, "done").await;
    api.send(&id, "three").await;
}

#[tokio::test]
async fn a_queued_send_is_cancelled_at_once_and_a_running_one_by_its_worker() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let (first, second) = (api.send(&id, "one").await, api.send(&id, "two").await);
    let cancel = |send: &str| api.call("POST", &format!("/v1/sends/{send}/cancel")).send();
    let claimed = world.claim(&id).await;

    let cancelled = cancel(&second).await.ok(200);
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(cancelled["stop_reason"], "cancelled");
    assert_eq!(cancel(&second).await.ok(200)["status"], "cancelled");

    let mut signals = world
        .bus
        .subscribe(mainspring_shared::bus::Topic::Signals)
        .await;
    assert_eq!(cancel(&first).await.ok(202)["status"], "running");
    let heard = futures::StreamExt::next(&mut signals)
        .await
        .expect("a signal");
    let payload = serde_json::to_vec(&[(claimed.key, 0)]).expect("json");
    assert_eq!(
        heard,
        mainspring_shared::bus::Notice::Payload(payload.into())
    );

    let path = format!("/v1/sends/{first}/cancel?wait=20s");
    let waiting = tokio::spawn(api.call("POST", &path).send());
    world.complete(&claimed, 0, "too late").await;
    assert_eq!(waiting.await.expect("joins").ok(200)["status"], "cancelled");
}

#[tokio::test]
async fn a_completed_send_cannot_be_cancelled() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let send = api.send(&id, "hi").await;
    world.complete(&world.claim(&id).await, 0, "done").await;
    let path = format!("/v1/sends/{send}/cancel");
    api.call("POST", &path)
        .send()
        .await
        .problem(409, "send.not_cancellable");
}

#[tokio::test]
async fn an_unknown_send_is_not_found_in_whatever_form() {
    let world = World::new().await;
    let api = world.ready().await;
    for id in [
        nothing("snd_"),
        nothing("ses_"),
        "1".to_owned(),
        "%00".to_owned(),
        "%ff".to_owned(),
    ] {
        for path in [
            format!("/v1/sends/{id}"),
            format!("/v1/sends/{id}?wait=20s"),
            format!("/v1/sends/{id}/events"),
        ] {
            api.get(&path).await.problem(404, "send.not_found");
        }
        let cancel = api.call("POST", &format!("/v1/sends/{id}/cancel"));
        cancel.send().await.problem(404, "send.not_found");
    }
    for id in [
        nothing("ses_"),
        nothing("snd_"),
        "1".to_owned(),
        "%ff".to_owned(),
    ] {
        for path in ["", "/messages", "/events"] {
            api.get(&format!("/v1/sessions/{id}{path}"))
                .await
                .problem(404, "session.not_found");
        }
        let path = format!("/v1/sessions/{id}/sends");
        let refused = api.post(&path, &json!({ "input": "hi" })).await;
        refused.problem(404, "session.not_found");
    }
}

#[tokio::test]
async fn a_send_goes_to_one_session_however_often_it_is_named() {
    let world = World::new().await;
    let api = world.ready().await;
    let (one, two) = (api.session().await, api.session().await);
    let body = |inner: &str| json!({ "session": { "session_id": inner }, "session_id": one, "input": "x" });
    let refused = api.post("/v1/sends", &body(&two)).await;
    let refused = refused.problem(400, "request.invalid");
    assert_eq!(refused["errors"][0]["pointer"], "/session/session_id");
    let sent = api.post("/v1/sends", &body(&one)).await.ok(202);
    assert_eq!(sent["session_id"], one);
}
