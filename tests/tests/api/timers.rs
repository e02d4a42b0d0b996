//! Timers.

mod changed;

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Answer;
use crate::world::{Scheduler, World, nothing};

/// The statuses and codes of a batch's results.
fn verdicts(answer: &Answer) -> Vec<(u64, String)> {
    let json = answer.ok(200);
    let results = json["results"].as_array().expect("results").iter();
    let each = results.map(|result| {
        let code = result["problem"]["code"].as_str().unwrap_or_default();
        (
            result["status"].as_u64().expect("a status"),
            code.to_owned(),
        )
    });
    each.collect()
}

async fn timer(api: &Scheduler, body: &Value) -> Value {
    api.post("/v1/timers", body).await.ok(201)
}

fn id(value: &Value) -> &str {
    value["id"].as_str().expect("an id")
}

#[tokio::test]
async fn a_timer_is_made_shown_and_listed() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let body = json!({
        "session_id": session, "input": "report", "cron": "30 8 * * MON-FRI",
        "timezone": "Europe/Berlin", "max_occurrences": 3, "jitter": "1m",
        "options": { "priority": "low" },
    });
    let answer = api.post("/v1/timers", &body).await;
    let made = answer.ok(201);
    let path = format!("/v1/timers/{}", id(&made));
    assert_eq!(answer.header("location"), Some(path.as_str()));
    for (member, expected) in [
        ("status", json!("armed")),
        ("session_id", json!(session)),
        ("cron", json!("30 8 * * MON-FRI")),
        ("timezone", json!("Europe/Berlin")),
        ("catch_up", json!("once")),
        ("on_busy", json!("coalesce")),
        ("max_occurrences", json!(3)),
        ("jitter", json!("1m")),
        ("occurrences", json!(0)),
        ("failures", json!(0)),
        ("at", Value::Null),
    ] {
        assert_eq!(made[member], expected, "{member}");
    }
    assert_eq!(made["options"]["priority"], "low");
    // As many as it has occurrences.
    assert_eq!(made["next"].as_array().map(Vec::len), Some(3));
    assert_eq!(api.get(&path).await.ok(200), made);
    let page = json!({ "data": [made], "next_cursor": null });
    for query in ["", "?status=armed", &format!("?session_id={session}")] {
        let path = format!("/v1/timers{query}");
        assert_eq!(api.get(&path).await.ok(200), page, "{query}");
    }
    let none = api.get("/v1/timers?status=dead").await.ok(200);
    assert_eq!(none["data"], json!([]));
    let again = timer(
        &api,
        &json!({ "session_id": session, "input": "x", "every": "1h" }),
    )
    .await;
    assert_eq!(again["next"].as_array().map(Vec::len), Some(5));
    let first = api.get("/v1/timers?limit=1").await.ok(200);
    assert_eq!(first["data"][0]["id"], again["id"]);
    let cursor = first["next_cursor"].as_str().expect("a cursor");
    let rest = api
        .get(&format!("/v1/timers?cursor={cursor}"))
        .await
        .ok(200);
    assert_eq!(rest["data"], json!([made]));
}

#[tokio::test]
async fn a_due_timer_sends() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let body = json!({ "session_id": session, "input": "wake up", "after": "20ms" });
    let made = timer(&api, &body).await;
    let path = format!("/v1/timers/{}", id(&made));
    let done = loop {
        let now = api.get(&path).await.ok(200);
        if now["status"] == "done" {
            break now;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(done["next"], json!([]));
    let send = done["last_send_id"].as_str().expect("a send");
    let shown = api.get(&format!("/v1/sends/{send}")).await.ok(200);
    assert_eq!(shown["session_id"], session.as_str());
    let claimed = world.claim(&session).await;
    world.complete(&claimed, 0, "awake").await;
    let shown = api.get(&format!("/v1/sends/{send}?wait=5s")).await.ok(200);
    assert_eq!(shown["output_text"], "awake");
    let occurrences = api.get(&format!("{path}/occurrences")).await.ok(200);
    let occurrence = &occurrences["data"][0];
    assert_eq!(
        (
            &occurrence["n"],
            &occurrence["fate"],
            &occurrence["send_id"]
        ),
        (&json!(1), &json!("fired"), &json!(send))
    );
    assert!(occurrence["fired_at"].as_str() >= occurrence["due_at"].as_str());
}

#[tokio::test]
async fn a_due_timer_starts_a_run() {
    let world = World::new().await;
    let api = world.ready().await;
    let spec = json!({ "name": "report", "root": {
        "type": "agent", "id": "a", "spec": { "name": "a", "system_prompt": "Do it.", "tools": [] }, "input": "{{input}}",
    } });
    let body = json!({
        "run": { "spec": spec, "input": "news", "options": { "max_tokens": 9_000 } }, "after": "20ms",
    });
    let made = timer(&api, &body).await;
    assert_eq!(
        (&made["session_id"], &made["on_busy"]),
        (&Value::Null, &json!("enqueue"))
    );
    assert_eq!(
        (&made["run"]["name"], &made["run"]["input"]),
        (&json!("report"), &json!("news"))
    );
    let path = format!("/v1/timers/{}", id(&made));
    let done = loop {
        let now = api.get(&path).await.ok(200);
        if now["status"] == "done" {
            break now;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(done["last_send_id"], Value::Null);
    let run = done["last_run_id"].as_str().expect("a run");
    let occurrences = api.get(&format!("{path}/occurrences")).await.ok(200);
    let occurrence = &occurrences["data"][0];
    assert_eq!(
        (
            &occurrence["fate"],
            &occurrence["run_id"],
            &occurrence["send_id"]
        ),
        (&json!("fired"), &json!(run), &Value::Null)
    );
    let shown = api.get(&format!("/v1/runs/{run}")).await.ok(200);
    assert_eq!(
        (
            &shown["name"],
            &shown["input"],
            &shown["options"]["max_tokens"]
        ),
        (&json!("report"), &json!("news"), &json!(9_000))
    );
    // The run starts on its own.
    let session = loop {
        let nodes = api.get(&format!("/v1/runs/{run}/nodes")).await.ok(200);
        if let Some(session) = nodes["data"][0]["session_id"].as_str() {
            break session.to_owned();
        }
        tokio::task::yield_now().await;
    };
    let claimed = world.claim(&session).await;
    world.complete(&claimed, 0, "all is well").await;
    let ended = api.get(&format!("/v1/runs/{run}?wait=20s")).await.ok(200);
    assert_eq!(
        (&ended["status"], &ended["result"]["text"]),
        (&json!("completed"), &json!("all is well"))
    );
}

#[tokio::test]
async fn a_timer_whose_runs_could_not_be_is_refused() {
    let world = World::new().await;
    let api = world.ready().await;
    let spec = json!({ "name": "r", "root": {
        "type": "agent", "id": "a", "spec": { "name": "a", "system_prompt": "Do it.", "tools": [] }, "input": "x",
    } });
    let run = json!({ "spec": spec });
    let pointers = |problem: &Value| -> Vec<String> {
        let errors = problem["errors"].as_array().expect("errors").iter();
        let each = errors.map(|error| error["pointer"].as_str().expect("a pointer"));
        each.map(str::to_owned).collect()
    };
    let body =
        json!({ "run": run, "input": "x", "options": {}, "on_busy": "coalesce", "after": "1h" });
    let problem = api
        .post("/v1/timers", &body)
        .await
        .problem(400, "request.invalid");
    assert_eq!(pointers(&problem), ["/input", "/options", "/on_busy"]);
    let body =
        json!({ "run": { "spec": { "name": "x", "root": { "type": "dance" } } }, "after": "1h" });
    let problem = api
        .post("/v1/timers", &body)
        .await
        .problem(422, "spec.invalid");
    assert!(
        pointers(&problem)[0].starts_with("/run/spec/root"),
        "{problem}"
    );
    let body = json!({ "timers": [{ "run": run, "after": "1h" }, body] });
    let answer = api.post("/v1/timers:batch", &body).await;
    let expected = [(201, String::new()), (422, "spec.invalid".to_owned())];
    assert_eq!(verdicts(&answer), expected);
    let pointer = &answer.json()["results"][1]["problem"]["errors"][0]["pointer"];
    let pointer = pointer.as_str().expect("a pointer");
    assert!(pointer.starts_with("/timers/1/run/spec/root"), "{pointer}");
}

#[tokio::test]
async fn what_does_not_exist_is_not_found() {
    let world = World::new().await;
    let api = world.ready().await;
    for id in [nothing("tmr_"), "nonsense".to_owned()] {
        for (method, tail) in [
            ("GET", ""),
            ("DELETE", ""),
            ("GET", "/occurrences"),
            ("POST", "/pause"),
            ("POST", "/resume"),
            ("POST", "/fire"),
        ] {
            let path = format!("/v1/timers/{id}{tail}");
            let answer = api.call(method, &path).send().await;
            answer.problem(404, "timer.not_found");
        }
    }
    for session in [nothing("ses_"), "nonsense".to_owned()] {
        let body = json!({ "session_id": session, "input": "x", "after": "1h" });
        let answer = api.post("/v1/timers", &body).await;
        answer.problem(404, "session.not_found");
    }
    let session = api.session().await;
    let closed = api
        .call("PATCH", &format!("/v1/sessions/{session}"))
        .json(&json!({ "closed": true }))
        .send()
        .await;
    closed.ok(200);
    let body = json!({ "session_id": session, "input": "x", "after": "1h" });
    let answer = api.post("/v1/timers", &body).await;
    answer.problem(409, "session.closed");
}

/// The faults that a problem reports: its code and the members' pointers.
fn faults(answer: &Answer) -> (String, Vec<String>) {
    let json = answer.json();
    let errors = json["errors"].as_array().cloned().unwrap_or_default();
    let pointers = errors
        .iter()
        .map(|e| e["pointer"].as_str().unwrap_or("?").to_owned());
    (
        json["code"].as_str().unwrap_or("?").to_owned(),
        pointers.collect(),
    )
}

#[tokio::test]
async fn every_fault_of_a_request_is_named() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let schedule = "timer.invalid_schedule";
    let request = "request.invalid";
    for (body, code, pointers) in [
        (json!({}), request, vec!["", "/session_id", "/input"]),
        (json!({ "at": "soon" }), request, vec!["/at"]),
        (
            json!({ "after": "1h", "colour": 1 }),
            request,
            vec!["/colour"],
        ),
        (
            json!({ "at": "2030-01-01T00:00:00Z", "after": "1h" }),
            request,
            vec!["/after"],
        ),
        (
            json!({ "cron": "* * * * *", "every": "1h" }),
            request,
            vec!["/every"],
        ),
        (
            json!({ "every": "1h", "timezone": "UTC" }),
            request,
            vec!["/timezone"],
        ),
        (json!({ "every": "10ms" }), schedule, vec!["/every"]),
        (json!({ "cron": "61 * * * *" }), schedule, vec!["/cron"]),
        (
            json!({ "cron": "0 0 * * *", "timezone": "Mars/Base" }),
            schedule,
            vec!["/timezone"],
        ),
        (json!({ "cron": "0 0 30 2 *" }), schedule, vec!["/cron"]),
        (
            json!({ "every": "1h", "until": "2001-01-01T00:00:00Z" }),
            schedule,
            vec![],
        ),
        (
            json!({ "after": "1h", "run": { "spec": { "name": "r", "root": {
                "type": "agent", "id": "a", "spec": { "name": "a", "system_prompt": "Do it.", "tools": [] }, "input": "x" } } } }),
            request,
            vec!["/run", "/input"],
        ),
        (
            json!({ "after": "1h", "max_occurrences": 0, "jitter": "2d" }),
            request,
            vec!["/max_occurrences", "/jitter"],
        ),
        (
            json!({ "after": "1h", "options": { "on_busy": "reject", "delay": "1s" } }),
            request,
            vec!["/options/on_busy", "/options/delay"],
        ),
        (
            json!({ "after": "1h", "input": "" }),
            request,
            vec!["/input"],
        ),
        (
            json!({ "after": "1h", "catch_up": "never" }),
            request,
            vec!["/catch_up"],
        ),
    ] {
        let mut whole = body.clone();
        if body != json!({}) {
            whole["session_id"] = json!(session);
            if body.get("input").is_none() {
                whole["input"] = json!("x");
            }
        }
        let answer = api.post("/v1/timers", &whole).await;
        assert!((400..500).contains(&answer.status), "{}", answer.text);
        let pointers: Vec<String> = pointers.into_iter().map(str::to_owned).collect();
        assert_eq!(faults(&answer), (code.to_owned(), pointers), "{body}");
    }
    assert_eq!(api.get("/v1/timers").await.ok(200)["data"], json!([]));
}

#[tokio::test]
async fn a_repeat_makes_nothing() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let post = |after: &str| {
        let body = json!({ "session_id": session, "input": "x", "after": after });
        let call = api
            .call("POST", "/v1/timers")
            .header("idempotency-key", "k");
        call.json(&body).send()
    };
    let first = post("1h").await.ok(201);
    let again = post("1h").await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.ok(201), first);
    post("2h").await.problem(422, "idempotency.mismatch");
}

#[tokio::test]
async fn each_item_of_a_batch_stands_alone() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let good = json!({ "session_id": session, "input": "x", "after": "1h" });
    let keyed =
        json!({ "session_id": session, "input": "x", "after": "1h", "idempotency_key": "a" });
    let bad = json!({ "session_id": session, "input": "x", "every": "1ms" });
    let lost = json!({ "session_id": nothing("ses_"), "input": "x", "after": "1h" });
    let body = json!({ "timers": [good, keyed, bad, lost, 7] });
    let answer = api.post("/v1/timers:batch", &body).await;
    let codes = [
        (201, String::new()),
        (201, String::new()),
        (422, "timer.invalid_schedule".to_owned()),
        (404, "session.not_found".to_owned()),
        (400, "request.invalid".to_owned()),
    ];
    assert_eq!(verdicts(&answer), codes);
    let results = answer.json();
    assert_eq!(
        results["results"][2]["problem"]["errors"][0]["pointer"],
        "/timers/2/every"
    );
    let again = api.post("/v1/timers:batch", &body).await.ok(200);
    let (before, after) = (
        &results["results"][1]["timer"],
        &again["results"][1]["timer"],
    );
    assert_eq!(before, after);
    // Three of the first kind, twice, and the keyed one once.
    let all = api.get("/v1/timers").await.ok(200);
    assert_eq!(all["data"].as_array().map(Vec::len), Some(3));
    let many = json!({ "timers": vec![good; 1_001] });
    let refused = api.post("/v1/timers:batch", &many).await;
    refused.problem(400, "request.invalid");
}

#[tokio::test]
async fn a_batch_is_repeated_whole() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let post = |after: &str, count: usize| {
        let timer = json!({ "session_id": session, "input": "x", "after": after });
        let call = api
            .call("POST", "/v1/timers:batch")
            .header("idempotency-key", "k");
        call.json(&json!({ "timers": vec![timer; count] })).send()
    };
    let first = post("1h", 2).await.ok(200);
    let again = post("1h", 2).await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.ok(200), first);
    // Nothing of a different batch is created, not even the items beyond the first one's.
    for count in [1, 2, 3] {
        post("2h", count).await.problem(422, "idempotency.mismatch");
    }
    let all = api.get("/v1/timers").await.ok(200);
    assert_eq!(all["data"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn schedulers_share_what_is_due() {
    let world = World::new().await;
    let one = world.ready().await;
    let two = world.ready().await;
    let session = one.session().await;
    let timer = json!({ "session_id": session, "input": "x", "after": "30ms" });
    let body = json!({ "timers": vec![timer; 200] });
    two.post("/v1/timers:batch", &body).await.ok(200);
    loop {
        let left = one.get("/v1/timers?status=armed&limit=1").await.ok(200);
        if left["data"] == json!([]) {
            break;
        }
        tokio::task::yield_now().await;
    }
    let dump = world.store.dump().await.expect("dumps");
    assert_eq!(dump.sessions[0].sends.len(), 200);
    let fired = dump.timers.iter().filter(|(_, all)| all.len() == 1);
    assert_eq!(fired.count(), 200);
    let options = mainspring_shared::store::AuditOptions::default();
    assert_eq!(world.store.audit(options).await.expect("audits"), []);
}

#[tokio::test]
async fn what_is_long_over_is_forgotten() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| {
            config.timer_keep = Duration::ZERO;
            config.retention_interval = Duration::from_millis(10);
        })
        .await;
    api.until_ready().await;
    let session = api.session().await;
    let body = json!({ "session_id": session, "input": "x", "after": "1ms" });
    let path = format!("/v1/timers/{}", id(&timer(&api, &body).await));
    while api.get(&path).await.status != 404 {
        tokio::task::yield_now().await;
    }
    assert!(world.store.dump().await.expect("dumps").timers.is_empty());
}
