//! Streams of responses.

use mainspring_shared::error::Code;
use serde_json::{Value, json};

use super::{begin, claim, claim_queued};
use crate::client::{Event, Events};
use crate::faulty::Faulty;
use crate::world::{Scheduler, World};

async fn until_end(stream: &mut Events) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        let event = stream.next().await.expect("an event");
        let is_last = [
            "response.completed",
            "response.failed",
            "response.incomplete",
        ]
        .contains(&event.name.as_str());
        events.push(event);
        if is_last {
            return events;
        }
    }
}

fn number(event: &Event) -> u64 {
    event.data["sequence_number"].as_u64().expect("a number")
}

fn text(events: &[Event]) -> String {
    events
        .iter()
        .filter_map(|event| event.data["delta"].as_str())
        .collect()
}

fn kinds(events: &[Event]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event.name.trim_start_matches("response."))
        .collect()
}

async fn replay(api: &Scheduler, id: &Value, query: &str) -> Vec<Event> {
    let path = format!(
        "/v1/responses/{}?stream=true{query}",
        id.as_str().expect("an id")
    );
    until_end(&mut api.events(&path).await).await
}

#[tokio::test]
async fn a_stream_has_the_events_in_order_and_can_be_continued_anywhere() {
    let world = World::new().await;
    let api = world.ready().await;
    let body = json!({ "model": "demo", "input": "hello", "stream": true });
    let mut stream = api.call("POST", "/v1/responses").json(&body).stream().await;
    let created = stream.next().await.expect("an event");
    assert_eq!(
        (created.name.as_str(), number(&created)),
        ("response.created", 0)
    );
    let id = created.data["response"]["id"].clone();
    assert_eq!(created.data["type"], "response.created");
    assert_eq!(
        stream.next().await.expect("an event").name,
        "response.in_progress"
    );
    let claimed = claim_queued(&world, &api).await;
    world.delta(&claimed, 0, 0, "Hel");
    let added = stream.next().await.expect("an event");
    assert_eq!(added.name, "response.output_item.added");
    world.delta(&claimed, 0, 3, "lö ");
    world.complete(&claimed, 0, "Hellö you").await;
    let mut events = vec![created, added];
    events.extend(until_end(&mut stream).await);
    let names = kinds(&events);
    assert_eq!(
        names[..3],
        ["created", "output_item.added", "content_part.added"]
    );
    assert_eq!(
        names[names.len() - 4..],
        [
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "completed"
        ]
    );
    assert_eq!(text(&events), "Hellö you");
    assert!(events.is_sorted_by(|a, b| number(a) < number(b)));
    let end = &events[events.len() - 1].data["response"];
    assert_eq!(end["output"][0]["content"][0]["text"], "Hellö you");
    assert_eq!(end["output"][0]["id"], events[1].data["item"]["id"]);
    // All of it, from any scheduler, for as long as the send is stored.
    let other = world.ready().await;
    let all = replay(&other, &id, "").await;
    assert_eq!(all[0].name, "response.created");
    assert_eq!(text(&all), "Hellö you");
    assert_eq!(
        all.last()
            .map(|event| event.data["response"].clone())
            .as_ref(),
        Some(end)
    );
    for (place, seen) in events.iter().enumerate() {
        if place + 1 == events.len() {
            break;
        }
        let rest = replay(&other, &id, &format!("&starting_after={}", number(seen))).await;
        let whole = format!("{}{}", text(&events[..=place]), text(&rest));
        assert_eq!(whole, "Hellö you", "after {}", seen.name);
        assert!(rest.iter().all(|event| number(event) > number(seen)));
    }
}

#[tokio::test]
async fn a_reader_that_leaves_changes_nothing() {
    let world = World::new().await;
    let api = world.ready().await;
    let body = json!({ "model": "demo", "input": "hello", "stream": true, "background": true });
    let mut stream = api.call("POST", "/v1/responses").json(&body).stream().await;
    let id = stream.next().await.expect("an event").data["response"]["id"].clone();
    drop(stream);
    let claimed = claim(&world, &api, &json!({ "id": id })).await;
    world.complete(&claimed, 0, "hi").await;
    assert_eq!(text(&replay(&api, &id, "").await), "hi");
}

#[tokio::test]
async fn a_stream_of_a_scheduler_that_stops_is_cut_off_instead_of_ended() {
    let world = World::new().await;
    let api = world.ready().await;
    let begun = begin(&api, json!({ "model": "demo", "input": "hello" })).await;
    let path = format!(
        "/v1/responses/{}?stream=true",
        begun["id"].as_str().expect("an id")
    );
    let reading = tokio::spawn(api.call("GET", &path).cut_short());
    let claimed = claim(&world, &api, &begun).await;
    world.delta(&claimed, 0, 0, "some");
    api.lifecycle.stop();
    let text = reading.await.expect("joins");
    assert!(!text.contains("response.completed"), "{text}");
}

#[tokio::test]
async fn a_cancelled_response_ends_as_incomplete() {
    let world = World::new().await;
    let api = world.ready().await;
    let begun = begin(&api, json!({ "model": "demo", "input": "hello" })).await;
    let id = begun["id"].as_str().expect("an id");
    let mut stream = api.events(&format!("/v1/responses/{id}?stream=true")).await;
    api.post(&format!("/v1/responses/{id}/cancel"), &json!({}))
        .await
        .ok(200);
    let events = until_end(&mut stream).await;
    let last = events.last().expect("events");
    assert_eq!(
        (last.name.as_str(), &last.data["response"]["status"]),
        ("response.incomplete", &json!("cancelled"))
    );
}

#[tokio::test]
async fn a_send_that_fails_while_its_response_is_read_has_not_completed() {
    let (world, store) = Faulty::world().await;
    let api = world.ready().await;
    let begun = begin(&api, json!({ "model": "demo", "input": "hello" })).await;
    let claimed = claim(&world, &api, &begun).await;
    let path = format!("/v1/responses/{}", begun["id"].as_str().expect("an id"));
    let held = store.hold_next("read_steps");
    let reading = tokio::spawn(api.call("GET", &path).send());
    held.reached().await;
    world
        .fail(&claimed, Code::LlmRefused, "the model refuses")
        .await;
    held.release();
    let read = reading.await.expect("joins").ok(200);
    assert_eq!(read["status"], "failed", "{read}");
    assert!(read["completed_at"].is_number(), "{read}");
    assert_eq!(api.get(&path).await.ok(200), read);
}
