//! Lists of what was created between two times.

use std::time::Duration;

use mainspring_runtime::SystemClock;
use mainspring_shared::time::{Clock as _, Timestamp};
use serde_json::{Value, json};

use crate::world::{Scheduler, World};

/// The time in an id, in the form of a query.
fn time(id: &str) -> String {
    let digits = id.split('_').nth(1).expect("a prefix");
    let ms = i64::from_str_radix(&digits[..12], 16).expect("digits");
    json!(Timestamp(ms)).as_str().expect("a text").to_owned()
}

async fn ids(api: &Scheduler, path: &str) -> (Vec<String>, Value) {
    let page = api.get(path).await.ok(200);
    let items = page["data"].as_array().expect("a list").iter();
    let ids = items.map(|item| item["id"].as_str().expect("an id").to_owned());
    (ids.collect(), page["next_cursor"].clone())
}

#[tokio::test]
async fn lists_have_what_was_created_from_one_time_until_before_another() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let leaf = json!({ "type": "agent", "id": "a", "spec": { "name": "a", "system_prompt": "x" } });
    for (list, body) in [
        ("/v1/sessions", json!({ "metadata": { "of": "these" } })),
        ("/v1/sends", json!({ "session_id": session, "input": "x" })),
        (
            "/v1/timers",
            json!({ "session_id": session, "input": "x", "after": "1h" }),
        ),
        ("/v1/runs", json!({ "spec": { "name": "x", "root": leaf } })),
    ] {
        let mut made = Vec::new();
        for _ in 0..3 {
            // Each in a millisecond of its own.
            SystemClock::new().sleep(Duration::from_millis(2)).await;
            let answer = api.post(list, &body).await;
            assert!(answer.status < 300, "{list}: {}", answer.text);
            made.push(answer.json()["id"].as_str().expect("an id").to_owned());
        }
        let [first, second, third] = &made[..] else {
            panic!("{made:?}");
        };
        let (from, before) = (time(second), time(third));
        let listed = ids(&api, &format!("{list}?created_from={from}")).await;
        assert_eq!(
            listed,
            (vec![third.clone(), second.clone()], Value::Null),
            "{list}"
        );
        let listed = ids(&api, &format!("{list}?created_before={from}&limit=1"))
            .await
            .0;
        assert_eq!(listed, std::slice::from_ref(first), "{list}");
        let both = format!("{list}?created_from={from}&created_before={before}");
        assert_eq!(
            ids(&api, &both).await,
            (vec![second.clone()], Value::Null),
            "{list}"
        );
        // Pages end where the time does.
        let (page, cursor) = ids(&api, &format!("{list}?created_from={from}&limit=1")).await;
        assert_eq!(page, std::slice::from_ref(third), "{list}");
        let cursor = cursor.as_str().expect("a cursor").to_owned();
        let next = format!("{list}?created_from={from}&limit=1&cursor={cursor}");
        let (page, cursor) = ids(&api, &next).await;
        assert_eq!(page, std::slice::from_ref(second), "{list}");
        if let Some(cursor) = cursor.as_str() {
            let last = format!("{list}?created_from={from}&cursor={cursor}");
            assert_eq!(ids(&api, &last).await, (Vec::new(), Value::Null), "{list}");
        }
        let wrong = api.get(&format!("{list}?created_from=yesterday")).await;
        let problem = wrong.problem(400, "request.invalid");
        assert_eq!(
            problem["errors"][0]["pointer"], "?created_from",
            "{problem}"
        );
    }
}
