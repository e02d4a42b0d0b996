//! Runs that are refused before they start.

use serde_json::{Value, json};

use crate::runs::{agent, started, two_steps};
use crate::world::{World, nothing};

fn pointers(problem: &Value) -> Vec<&str> {
    let errors = problem["errors"].as_array().expect("errors").iter();
    errors
        .map(|error| error["pointer"].as_str().expect("a pointer"))
        .collect()
}

#[tokio::test]
async fn every_problem_of_a_spec_is_told_at_once() {
    let world = World::new().await;
    let api = world.ready().await;
    let spec = json!({ "name": "", "color": "red", "root": { "type": "sequence", "steps": [
        agent("a", "{{nobody}}"), agent("a", "x"), { "type": "dance" },
    ] } });
    for path in ["/v1/runs", "/v1/workflows:validate"] {
        let problem = api.post(path, &json!({ "spec": spec })).await;
        let problem = problem.problem(422, "spec.invalid");
        let found = pointers(&problem);
        assert!(found.len() >= 4, "{problem}");
        for part in [
            "/spec/color",
            "/spec/root/steps/0",
            "/spec/root/steps/1",
            "/spec/root/steps/2",
        ] {
            assert!(
                found.iter().any(|at| at.starts_with(part)),
                "{part}: {problem}"
            );
        }
    }
    let runs = api.get("/v1/runs").await.ok(200);
    assert_eq!(runs["data"], json!([]));
    let summary = api
        .post("/v1/workflows:validate", &json!({ "spec": two_steps() }))
        .await;
    assert_eq!(
        summary.ok(200),
        json!({ "name": "two", "nodes": { "agent": 2, "sequence": 1 }, "ids": ["first", "second"] })
    );
    let as_text = json!({ "spec": two_steps().to_string() });
    api.post("/v1/workflows:validate", &as_text).await.ok(200);
    // The bare spec is accepted, too.
    api.post("/v1/workflows:validate", &two_steps())
        .await
        .ok(200);
    let broken = json!({ "name": "", "root": { "type": "nothing" } });
    let refused = api.post("/v1/workflows:validate", &broken).await;
    let problem = refused.problem(422, "spec.invalid");
    assert!(pointers(&problem).contains(&"/name"), "{problem}");
    let openapi = api.get("/openapi.json").await.ok(200);
    let shapes = &openapi["components"]["schemas"];
    for (name, value) in [
        ("RunStatus", "queued"),
        ("NodeKind", "foreach"),
        ("NodeState", "blocked"),
    ] {
        let words = shapes[name]["enum"].as_array().expect("an enum");
        assert!(words.contains(&json!(value)), "{name}: {words:?}");
    }
    let schema = api.get("/v1/workflows/schema").await.ok(200);
    assert!(
        schema["$schema"].is_string() && schema["properties"]["root"].is_object(),
        "{schema}"
    );
}

#[tokio::test]
async fn a_request_that_makes_no_sense_starts_nothing() {
    let world = World::new().await;
    let api = world.ready().await;
    let spec = two_steps();
    for body in [
        json!({}),
        json!({ "spec": spec, "colour": 1 }),
        json!({ "spec": spec, "options": { "colour": 1 } }),
        json!({ "spec": spec, "session_id": 7 }),
        json!([]),
    ] {
        api.post("/v1/runs", &body)
            .await
            .problem(400, "request.invalid");
    }
    for spec in [json!(null), json!(7), json!("{"), json!([])] {
        let problem = api.post("/v1/runs", &json!({ "spec": spec })).await;
        problem.problem(422, "spec.invalid");
    }
    let homeless = json!({ "spec": spec, "session_id": nothing("ses_") });
    api.post("/v1/runs", &homeless)
        .await
        .problem(404, "session.not_found");
    let body = json!({ "spec": spec });
    api.post("/v1/runs?colour=red", &body)
        .await
        .problem(400, "request.invalid");
    assert_eq!(api.get("/v1/runs").await.ok(200)["data"], json!([]));
}

#[tokio::test]
async fn limits_of_zero_and_texts_that_cannot_be_kept_are_refused_where_they_stand() {
    let world = World::new().await;
    let api = world.ready().await;
    for (given, pointer) in [
        (
            json!({ "options": { "max_tokens": 0 } }),
            "/options/max_tokens",
        ),
        (
            json!({ "options": { "raised_tokens": 0 } }),
            "/options/raised_tokens",
        ),
        (
            json!({ "options": { "max_concurrency": 0 } }),
            "/options/max_concurrency",
        ),
        (
            json!({ "options": { "allow": ["calc", "a\0b"] } }),
            "/options/allow/1",
        ),
        (json!({ "options": { "pool": "a\0b" } }), "/options/pool"),
        (json!({ "input": "a\0b" }), "/input"),
        (json!({ "input": { "list": [{ "a\0b": 1 }] } }), "/input"),
    ] {
        let mut run = given;
        run["spec"] = two_steps();
        let refused = api.post("/v1/runs", &run).await;
        let problem = refused.problem(400, "request.invalid");
        assert_eq!(pointers(&problem), [pointer]);
        let timer = json!({ "run": run, "after": "1h" });
        let refused = api.post("/v1/timers", &timer).await;
        let problem = refused.problem(400, "request.invalid");
        assert_eq!(pointers(&problem), [format!("/run{pointer}")]);
    }
    // Faults of the spec are reported together with the others.
    let spec = json!({ "name": "r", "root": { "type": "dance" } });
    let body = json!({ "spec": spec, "input": "\0", "options": { "max_concurrency": 0 } });
    let refused = api.post("/v1/runs", &body).await;
    let problem = refused.problem(400, "request.invalid");
    let found = pointers(&problem);
    let in_spec = |at: &&str| at.starts_with("/spec/root");
    assert!(found.iter().any(in_spec), "{problem}");
    assert!(found.ends_with(&["/input", "/options/max_concurrency"]));
    let retry = format!("/v1/runs/{}/retry", nothing("run_"));
    let refused = api.post(&retry, &json!({ "max_tokens": 0 })).await;
    let problem = refused.problem(400, "request.invalid");
    assert_eq!(pointers(&problem), ["/max_tokens"]);
    for list in ["/v1/runs", "/v1/timers"] {
        assert_eq!(api.get(list).await.ok(200)["data"], json!([]), "{list}");
    }
    let least = json!({ "spec": two_steps(), "options": { "max_concurrency": 1 } });
    started(&api, &least).await;
}

#[tokio::test]
async fn a_run_that_cannot_pay_for_its_steps_is_refused() {
    let world = World::new().await;
    let api = world.ready().await;
    let mut spec = two_steps();
    for step in 0..2 {
        spec["root"]["steps"][step]["spec"]["budget"] = json!({ "tokens": 6_000 });
    }
    let limited = json!({ "spec": spec, "options": { "max_tokens": 11_999 } });
    let problem = api
        .post("/v1/runs", &limited)
        .await
        .problem(422, "budget.exceeded");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(
        detail.contains("12000") && detail.contains("11999"),
        "{detail}"
    );
    let timer = json!({ "run": limited, "after": "1h" });
    api.post("/v1/timers", &timer)
        .await
        .problem(422, "budget.exceeded");
    let enough = json!({ "spec": spec, "options": { "max_tokens": 12_000 } });
    started(&api, &enough).await;
    spec["budget"] = json!({ "max_tokens": 11_000 });
    api.post("/v1/runs", &json!({ "spec": spec }))
        .await
        .problem(422, "budget.exceeded");
}
