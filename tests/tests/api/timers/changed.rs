//! Timers that are paused, changed and fired by hand.

use serde_json::{Value, json};

use super::{faults, id, timer};
use crate::world::World;

#[tokio::test]
async fn a_recurring_timer_is_paused_resumed_and_cancelled() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let body = json!({ "session_id": session, "input": "x", "every": "1h" });
    let path = format!("/v1/timers/{}", id(&timer(&api, &body).await));
    let act = |verb: &str| api.call("POST", &format!("{path}/{verb}")).send();
    for (verb, status) in [
        ("pause", "paused"),
        ("pause", "paused"),
        ("resume", "armed"),
        ("resume", "armed"),
    ] {
        assert_eq!(act(verb).await.ok(200)["status"], status);
    }
    for _ in 0..2 {
        let cancelled = api.call("DELETE", &path).send().await.ok(200);
        assert_eq!(cancelled["status"], "cancelled");
        assert!(cancelled["ended_at"].is_string());
    }
    for verb in ["pause", "resume"] {
        act(verb).await.problem(409, "timer.not_armed");
    }
}

#[tokio::test]
async fn a_timer_is_fired_by_hand_as_often_as_it_is_asked_for_by_number() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let body = json!({ "session_id": session, "input": "x", "every": "1h", "on_busy": "enqueue" });
    let made = timer(&api, &body).await;
    let path = format!("/v1/timers/{}", id(&made));
    let fire = async |body: &Value| api.post(&format!("{path}/fire"), body).await;
    let had = async |n: i64| loop {
        let now = api.get(&path).await.ok(200);
        if now["occurrences"] == n {
            break now;
        }
        assert!(now["occurrences"].as_i64() < Some(n), "{now}");
        tokio::task::yield_now().await;
    };
    assert_eq!(fire(&json!({ "n": 1 })).await.ok(200)["status"], "armed");
    let fired = had(1).await;
    assert_eq!(fired["next"], made["next"], "its schedule goes on");
    // The repeat of a request whose response was lost, and then another one.
    fire(&json!({ "n": 1 })).await.ok(200);
    fire(&json!({ "n": 2 })).await.ok(200);
    had(2).await;
    let shown = api.get(&format!("{path}/occurrences")).await.ok(200);
    let shown = shown["data"].as_array().expect("a list");
    assert_eq!(shown.len(), 2);
    for occurrence in shown {
        assert_eq!(occurrence["manual"], true);
        assert_eq!(occurrence["fate"], "fired");
    }
    assert_ne!(shown[0]["send_id"], shown[1]["send_id"]);
    for wrong in [json!({ "n": 4 }), json!({ "n": 0 }), json!({})] {
        let answer = fire(&wrong).await;
        let expected = ("request.invalid".to_owned(), vec!["/n".to_owned()]);
        assert_eq!(faults(&answer), expected, "{wrong}");
    }
    api.call("POST", &format!("{path}/pause"))
        .send()
        .await
        .ok(200);
    fire(&json!({ "n": 3 }))
        .await
        .problem(409, "timer.not_armed");
    fire(&json!({ "n": 2 })).await.ok(200);
}

#[tokio::test]
async fn a_timer_is_changed() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let body = json!({ "session_id": session, "input": "x", "every": "1h", "until": "2100-01-01T00:00:00Z" });
    let path = format!("/v1/timers/{}", id(&timer(&api, &body).await));
    let change = async |body: &Value| api.call("PATCH", &path).json(body).send().await;
    let to = json!({ "input": "y", "cron": "0 8 * * *", "timezone": "Europe/Berlin", "max_occurrences": 3, "until": null });
    let changed = change(&to).await.ok(200);
    for (member, expected) in [
        ("status", json!("armed")),
        ("every", Value::Null),
        ("cron", json!("0 8 * * *")),
        ("timezone", json!("Europe/Berlin")),
        ("max_occurrences", json!(3)),
        ("until", Value::Null),
        ("catch_up", json!("once")),
    ] {
        assert_eq!(changed[member], expected, "{member}");
    }
    assert_eq!(changed["input"][0]["text"], "y");
    assert_eq!(changed["next"].as_array().map(Vec::len), Some(3));
    assert_eq!(change(&to).await.ok(200), changed, "it is so already");
    assert_eq!(api.get(&path).await.ok(200), changed);
    for (body, pointers) in [
        (json!({ "every": "1ms" }), vec!["/every"]),
        (
            json!({ "timezone": "Europe/Berlin" }),
            vec!["/timezone", ""],
        ),
        (
            json!({ "cron": "x", "jitter": "2d" }),
            vec!["/cron", "/jitter"],
        ),
        (json!({ "max_occurrences": 0 }), vec!["/max_occurrences"]),
    ] {
        let answer = change(&body).await;
        let (_, mut found) = faults(&answer);
        found.sort();
        let mut pointers = pointers;
        pointers.sort_unstable();
        assert_eq!(found, pointers, "{body}");
    }
    let answer = change(&json!({ "until": "2001-01-01T00:00:00Z" })).await;
    answer.problem(422, "timer.invalid_schedule");
    let run = json!({ "run": { "spec": { "name": "r", "root": { "type": "agent", "id": "a", "input": "i",
        "spec": { "name": "a", "system_prompt": "Do it." } } } }, "every": "1h" });
    let run = format!("/v1/timers/{}", id(&timer(&api, &run).await));
    let wrong = json!({ "input": "y", "on_busy": "coalesce" });
    let answer = api.call("PATCH", &run).json(&wrong).send().await;
    let expected = ["/input", "/on_busy"].map(str::to_owned).to_vec();
    assert_eq!(faults(&answer), ("request.invalid".to_owned(), expected));
    let rarer = api
        .call("PATCH", &run)
        .json(&json!({ "every": "2h" }))
        .send()
        .await;
    assert_eq!(rarer.ok(200)["every"], "2h");
    api.call("DELETE", &path).send().await.ok(200);
    change(&json!({ "every": "1h" }))
        .await
        .problem(409, "timer.not_armed");
}
