//! Tool results, answers and approvals from outside; messages to busy sessions; the inbox.

use mainspring_shared::send::WaitingOn;
use mainspring_shared::tool::{Asked, Inquiry, Reply, Wants};
use serde_json::{Value, json};

use crate::world::{SAID, Scheduler, World, nothing};

fn results(session: &str) -> String {
    format!("/v1/sessions/{session}/tool-results")
}

async fn status(api: &Scheduler, session: &str, body: &Value) -> Vec<Value> {
    let posted = api.post(&results(session), body).await.ok(200);
    let results = posted["results"].as_array().expect("a list");
    results.iter().map(|r| r["status"].clone()).collect()
}

#[tokio::test]
async fn the_first_result_counts_and_wakes_the_send() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let send = api.send(&session, "go").await;
    let claimed = world.claim(&session).await;
    let call = world.ask(&claimed, WaitingOn::Tool, false).await;
    let shown = api.get(&format!("/v1/sends/{send}")).await.ok(200);
    assert_eq!(
        (&shown["status"], &shown["waiting_on"]),
        (&json!("waiting"), &json!("tool"))
    );
    let body = json!({ "results": [
        { "call_id": call, "output": { "n": 1 } },
        { "call_id": call, "output": "late" },
        { "call_id": "call_x", "error": "no" },
    ]});
    let said = status(&api, &session, &body).await;
    assert_eq!(said, ["accepted", "already_settled", "unknown"]);
    assert_eq!(status(&api, &session, &body).await[0], "already_settled");
    let shown = api.get(&format!("/v1/sessions/{session}")).await.ok(200);
    assert_eq!(shown["status"], "queued");
    let output = api
        .get(&format!("/v1/sessions/{session}/calls/{call}/output"))
        .await;
    assert_eq!((output.status, output.text.as_str()), (200, r#"{"n":1}"#));
    let other = api.session().await;
    for path in [
        format!("/v1/sessions/{other}/calls/{call}/output"),
        format!("/v1/sessions/{session}/calls/call_x/output"),
    ] {
        api.get(&path).await.problem(404, "call.not_found");
    }
    let problem = api.post(&results(&other), &body).await;
    let problem = problem.problem(404, "call.not_found");
    let pointers = problem["errors"].as_array().expect("a list").iter();
    let pointers: Vec<_> = pointers.map(|one| one["pointer"].clone()).collect();
    let expected = [0, 1, 2].map(|n| json!(format!("/results/{n}/call_id")));
    assert_eq!(pointers, expected);
}

/// What became of each posted result, and what it was taken as an answer to.
async fn taken(api: &Scheduler, session: &str, result: &Value) -> (String, String) {
    let body = json!({ "results": [result] });
    let posted = api.post(&results(session), &body).await.ok(200)["results"][0].take();
    let text = |member: &str| posted[member].as_str().unwrap_or_default().to_owned();
    (text("status"), text("answers"))
}

#[tokio::test]
async fn an_approval_that_comes_twice_is_not_the_result() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    api.send(&session, "go").await;
    let claimed = world.claim(&session).await;
    let call = world.ask(&claimed, WaitingOn::Human, true).await;
    let yes = json!({ "call_id": call, "output": { "approved": true } });
    let no = json!({ "call_id": call, "output": { "approved": false, "note": "stop" } });
    let named = json!({ "call_id": call, "answers": "permission", "output": { "approved": true } });
    let early = json!({ "call_id": call, "answers": "answer", "output": "paid" });
    let said = |status: &str, answers: &str| (status.to_owned(), answers.to_owned());
    let refused = taken(&api, &session, &early).await;
    assert_eq!(refused, said("not_waiting", "answer"));
    let first = taken(&api, &session, &yes).await;
    assert_eq!(first, said("accepted", "permission"));
    let late = said("already_settled", "permission");
    for again in [&yes, &named, &no] {
        assert_eq!(taken(&api, &session, again).await, late, "{again}");
    }
    // A worker hands the call to the client: the same call now waits for its result.
    let claimed = world.claim(&session).await;
    world.hand_out(&claimed, &call).await;
    for again in [&yes, &named, &no] {
        assert_eq!(taken(&api, &session, again).await, late, "{again}");
    }
    let listed = api.get(&format!("/v1/sessions/{session}/calls")).await;
    assert_eq!(listed.ok(200)["data"][0]["wants"], "answer");
    // A result of that form says that it is one.
    let result = json!({ "call_id": call, "answers": "answer", "output": { "approved": true } });
    let first = taken(&api, &session, &result).await;
    assert_eq!(first, said("accepted", "answer"));
    let again = taken(&api, &session, &result).await;
    assert_eq!(again, said("already_settled", "answer"));
    let output = format!("/v1/sessions/{session}/calls/{call}/output");
    assert_eq!(api.get(&output).await.text, r#"{"approved":true}"#);
}

#[tokio::test]
async fn a_result_keeps_its_numbers_and_the_order_of_its_members() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    api.send(&session, "go").await;
    let claimed = world.claim(&session).await;
    let call = world.ask(&claimed, WaitingOn::Tool, false).await;
    let output = r#"{"wei":25000000000000000001,"b":1e2,"a":"\u0000"}"#;
    let body = format!(r#"{{"results": [{{"call_id": "{call}", "output": {output} }}]}}"#);
    let path = results(&session);
    let request = api
        .call("POST", &path)
        .header("content-type", "application/json");
    request.body(body).send().await.ok(200);
    let path = format!("/v1/sessions/{session}/calls/{call}/output");
    assert_eq!(api.get(&path).await.text, output);
}

#[tokio::test]
async fn of_many_approvals_at_once_one_counts() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    api.send(&session, "go").await;
    let claimed = world.claim(&session).await;
    let call = world.ask(&claimed, WaitingOn::Human, true).await;
    let yes = json!({ "call_id": call, "output": { "approved": true } });
    let posts = (0..8).map(|_| taken(&api, &session, &yes));
    let mut said = futures::future::join_all(posts).await;
    said.sort();
    let counted = said.iter().filter(|(status, _)| status == "accepted");
    assert_eq!(counted.count(), 1, "{said:?}");
    assert!(said.iter().all(|(status, answers)| {
        answers == "permission" && ["accepted", "already_settled"].contains(&status.as_str())
    }));
}

#[tokio::test]
async fn the_result_of_a_tool_that_asked_nobody_may_look_like_an_approval() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    api.send(&session, "go").await;
    let claimed = world.claim(&session).await;
    let call = world.ask(&claimed, WaitingOn::Tool, false).await;
    let permission =
        json!({ "call_id": call, "answers": "permission", "output": { "approved": true } });
    let said = taken(&api, &session, &permission).await;
    assert_eq!(said, ("not_waiting".to_owned(), "permission".to_owned()));
    let result = json!({ "call_id": call, "output": { "approved": true } });
    let said = taken(&api, &session, &result).await;
    assert_eq!(said, ("accepted".to_owned(), "answer".to_owned()));
}

#[tokio::test]
async fn what_waits_for_an_answer_is_listed_until_it_has_one() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let waiting = format!("/v1/sessions/{session}/calls");
    assert_eq!(api.get(&waiting).await.ok(200)["data"], json!([]));
    let send = api.send(&session, "go").await;
    let claimed = world.claim(&session).await;
    let call = world.ask(&claimed, WaitingOn::Human, true).await;
    let answer = api.get(&waiting).await;
    assert!(answer.text.contains(SAID), "{}", answer.text);
    let listed = answer.ok(200);
    let [only] = listed["data"].as_array().expect("a list").as_slice() else {
        panic!("{listed}");
    };
    assert_eq!(
        [&only["call_id"], &only["send_id"], &only["session_id"]],
        [&json!(call), &json!(send), &json!(session)]
    );
    assert_eq!(
        [&only["wants"], &only["waiting_on"]],
        ["permission", "human"]
    );
    let body = json!({ "results": [{ "call_id": call, "output": { "approved": false } }] });
    assert_eq!(status(&api, &session, &body).await, ["accepted"]);
    assert_eq!(api.get(&waiting).await.ok(200)["data"], json!([]));
    let missing = format!("/v1/sessions/{}/calls", nothing("ses_"));
    api.get(&missing).await.problem(404, "session.not_found");
}

#[tokio::test]
async fn permission_is_given_or_refused_in_so_many_words() {
    let world = World::new().await;
    let api = world.ready().await;
    for (answer, expected) in [
        (json!({ "approved": true }), 0),
        (json!({ "approved": false, "note": "not today" }), 1),
    ] {
        let session = api.session().await;
        api.send(&session, "go").await;
        let claimed = world.claim(&session).await;
        let call = world.ask(&claimed, WaitingOn::Human, true).await;
        let maybe = json!({ "results": [{ "call_id": call, "output": "maybe" }] });
        let problem = api
            .post(&results(&session), &maybe)
            .await
            .problem(400, "request.invalid");
        assert_eq!(problem["errors"][0]["pointer"], "/results/0/output");
        let body = json!({ "results": [{ "call_id": call, "output": answer }] });
        assert_eq!(status(&api, &session, &body).await, ["accepted"]);
        let output = api
            .get(&format!("/v1/sessions/{session}/calls/{call}/output"))
            .await;
        if expected == 0 {
            // Approved: it may run, and has no result yet.
            output.problem(404, "call.not_found");
        } else {
            assert!(output.text.contains("not today"), "{}", output.text);
        }
    }
}

fn asked(message: &str, reply: Option<Reply>) -> Asked {
    let properties =
        json!({"sure": {"type": "boolean"}, "days": {"type": "integer", "maximum": 7}});
    let wants = json!({"type": "object", "properties": properties, "required": ["sure"]});
    Asked {
        inquiry: Inquiry {
            message: message.to_owned(),
            wants: Wants::Form(wants),
        },
        attempt: 1,
        reply,
    }
}

#[tokio::test]
async fn what_a_tool_asks_is_shown_and_answered_as_its_form_says() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let send = api.send(&session, "go").await;
    let claimed = world.claim(&session).await;
    let first = asked("first?", Some(Reply::Decline {}));
    let call = world
        .inquire(&claimed, vec![first, asked("sure?", None)])
        .await;
    let shown = api.get(&format!("/v1/sends/{send}")).await.ok(200);
    assert_eq!(
        (&shown["status"], &shown["waiting_on"]),
        (&json!("waiting"), &json!("human"))
    );
    let waiting = format!("/v1/sessions/{session}/calls");
    let listed = api.get(&waiting).await.ok(200);
    let only = &listed["data"][0];
    assert_eq!(
        (&only["call_id"], &only["wants"]),
        (&json!(call), &json!("reply"))
    );
    let asks = &only["asks"];
    assert_eq!(
        (&asks["question"], &asks["mode"]),
        (&json!(2), &json!("form"))
    );
    assert_eq!(asks["message"], "sure?");
    assert_eq!(asks["requested_schema"]["properties"]["days"]["maximum"], 7);
    let post = |output: Value, question: Option<u32>| {
        let mut result = json!({ "call_id": call, "output": output });
        if let Some(question) = question {
            result["question"] = json!(question);
        }
        json!({ "results": [result] })
    };
    let yes = json!({"action": "accept", "content": {"sure": true, "days": 3}});
    for (body, pointer) in [
        (post(json!("yes"), Some(2)), "/results/0/output"),
        (
            post(json!({"approved": true}), Some(2)),
            "/results/0/output",
        ),
        (
            post(json!({"action": "accept"}), Some(2)),
            "/results/0/output/content/sure",
        ),
        (
            post(
                json!({"action": "accept", "content": {"sure": true, "days": 8}}),
                Some(2),
            ),
            "/results/0/output/content/days",
        ),
        (post(yes.clone(), Some(3)), "/results/0/question"),
        (
            json!({"results": [{"call_id": call, "content": "yes", "question": 2}]}),
            "/results/0/content",
        ),
    ] {
        let problem = api
            .post(&results(&session), &body)
            .await
            .problem(400, "request.invalid");
        assert_eq!(
            problem["errors"][0]["pointer"], pointer,
            "{body}: {problem}"
        );
    }
    // An answer that does not say to which question is one to the first, which has its own.
    assert_eq!(
        status(&api, &session, &post(yes.clone(), None)).await,
        ["already_settled"]
    );
    assert_eq!(
        status(&api, &session, &post(yes.clone(), Some(2))).await,
        ["accepted"]
    );
    assert_eq!(
        status(&api, &session, &post(yes, Some(2))).await,
        ["already_settled"]
    );
    assert_eq!(api.get(&waiting).await.ok(200)["data"], json!([]));
    let shown = api.get(&format!("/v1/sessions/{session}")).await.ok(200);
    assert_eq!(shown["status"], "queued");
}

#[tokio::test]
async fn an_error_ends_a_call_that_asks() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    api.send(&session, "go").await;
    let claimed = world.claim(&session).await;
    let call = world.inquire(&claimed, vec![asked("sure?", None)]).await;
    let body = json!({ "results": [{ "call_id": call, "error": "not today" }] });
    assert_eq!(status(&api, &session, &body).await, ["accepted"]);
    let output = api
        .get(&format!("/v1/sessions/{session}/calls/{call}/output"))
        .await;
    assert!(output.text.contains("not today"), "{}", output.text);
}

#[tokio::test]
async fn results_that_make_no_sense_change_nothing() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    for (body, pointer) in [
        (json!({ "results": [] }), "/results"),
        (json!({ "results": [{ "call_id": "a" }] }), "/results/0"),
        (
            json!({ "results": [{ "call_id": "a", "output": 1, "error": "b" }] }),
            "/results/0",
        ),
        (
            json!({ "results": [{ "call_id": "a", "error": "\u{0}" }] }),
            "/results/0",
        ),
        (
            json!({ "results": [{ "call_id": "a", "output": null, "x": 1 }] }),
            "/results/0/x",
        ),
    ] {
        let problem = api
            .post(&results(&session), &body)
            .await
            .problem(400, "request.invalid");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
    let body = json!({ "results": [{ "call_id": "a", "output": null }] });
    api.post(&results(&nothing("ses_")), &body)
        .await
        .problem(404, "session.not_found");
}

#[tokio::test]
async fn words_for_a_busy_session_are_absorbed_and_shown_in_its_inbox() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let sends = format!("/v1/sessions/{session}/sends");
    let words = |text: &str, mode: &str| json!({ "input": text, "options": { "on_busy": mode } });
    // In an idle session it is a send like any other.
    let first = api.post(&sends, &words("one", "steer")).await.ok(202);
    assert_eq!(first["inbox_item"], Value::Null);
    let joined = api.post(&sends, &words("two", "coalesce")).await.ok(202);
    assert_eq!(joined["id"], first["id"]);
    assert_eq!(joined["inbox_item"]["fate"], "delivered");
    let claimed = world.claim(&session).await;
    let steered = api.post(&sends, &words("three", "steer")).await.ok(202);
    assert_eq!(steered["id"], first["id"]);
    assert_eq!(steered["inbox_item"]["fate"], "pending");
    let inbox = format!("/v1/sessions/{session}/inbox");
    let all = api.get(&inbox).await.ok(200);
    assert_eq!(all["data"].as_array().map(Vec::len), Some(2));
    let pending = api.get(&format!("{inbox}?fate=pending")).await.ok(200);
    assert_eq!(pending["data"][0]["content"][0]["text"], "three");
    let page = api.get(&format!("{inbox}?limit=1")).await.ok(200);
    let cursor = page["next_cursor"].as_str().expect("more");
    let rest = api.get(&format!("{inbox}?cursor={cursor}")).await.ok(200);
    assert_eq!(rest["data"].as_array().map(Vec::len), Some(1));
    api.get(&format!("{inbox}?fate=x"))
        .await
        .problem(400, "request.invalid");
    drop(claimed);
}

#[tokio::test]
async fn words_with_a_key_are_absorbed_once() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let id = api.send(&session, "one").await;
    let sends = format!("/v1/sessions/{session}/sends");
    let body = json!({ "input": "two", "options": { "on_busy": "interrupt" } });
    for replayed in [None, Some("true")] {
        let request = api.call("POST", &sends).header("idempotency-key", "k");
        let answer = request.json(&body).send().await;
        assert_eq!(answer.header("idempotency-replayed"), replayed);
        assert_eq!(answer.ok(202)["id"], id.as_str());
    }
    let inbox = api
        .get(&format!("/v1/sessions/{session}/inbox"))
        .await
        .ok(200);
    assert_eq!(inbox["data"].as_array().map(Vec::len), Some(1));
}
