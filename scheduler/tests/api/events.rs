//! Event streams: every durable event once and in order, wherever and whenever a reader begins.

use serde_json::json;

use crate::client::Event;
use crate::world::World;

fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

const WHOLE: [&str; 5] = [
    "send.queued",
    "message.completed",
    "message.completed",
    "round.completed",
    "send.completed",
];

#[tokio::test]
async fn a_reader_follows_a_send_to_its_end() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let send = api.send(&id, "hi").await;
    let mut events = api.events(&format!("/v1/sends/{send}/events")).await;
    assert_eq!(events.names(1).await, ["send.queued"]);
    let claimed = world.claim(&id).await;
    for (offset, text) in [(0, "he"), (2, "llo")] {
        world.delta(&claimed, 0, offset, text);
        let delta = events.next().await.expect("a delta");
        assert_eq!((delta.name.as_str(), delta.id), ("message.delta", None));
        let data =
            json!({ "round": 0, "attempt": 1, "offset": offset, "text": text, "send_id": send });
        assert_eq!(delta.data, data);
    }
    world.complete(&claimed, 0, "hello").await;
    let rest = events.rest().await;
    assert_eq!(names(&rest), WHOLE[1..]);
    assert_eq!(rest[0].data["content"][0]["text"], "hi");
    assert_eq!(rest[1].data["content"][0]["text"], "hello");
    assert_eq!(rest[2].data["usage"]["output_tokens"], 5);
    assert_eq!(rest[3].data["output_text"], "hello");
    assert!(
        rest.iter()
            .all(|event| event.data["send_id"] == send.as_str())
    );
}

#[tokio::test]
async fn a_late_reader_sees_everything_and_the_end_at_once() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let send = api.send(&id, "hi").await;
    world.complete(&world.claim(&id).await, 0, "hello").await;
    let events = api
        .events(&format!("/v1/sends/{send}/events"))
        .await
        .rest()
        .await;
    assert_eq!(names(&events), WHOLE);
    let ids: Vec<_> = events
        .iter()
        .map(|event| event.id.as_deref().expect("an id"))
        .collect();
    assert_eq!(ids, ["1.0", "2.0", "2.1", "2.2", "2.3"]);
}

#[tokio::test]
async fn a_reader_resumes_after_any_event_on_any_replica() {
    let world = World::new().await;
    let (one, two) = (world.ready().await, world.ready().await);
    let id = one.session().await;
    let send = one.send(&id, "hi").await;
    let claimed = world.claim(&id).await;
    world.append(&claimed, 0, "first").await;
    world.complete(&claimed, 1, "second").await;
    let path = format!("/v1/sends/{send}/events");
    let whole = one.events(&path).await.rest().await;
    let expected = [
        "send.queued",
        "message.completed",
        "message.completed",
        "round.completed",
        "message.completed",
        "round.completed",
        "send.completed",
    ];
    assert_eq!(names(&whole), expected);
    for (place, event) in whole.iter().enumerate() {
        let last = event.id.as_deref().expect("an id");
        let call = two.call("GET", &path).header("last-event-id", last);
        assert_eq!(
            call.stream().await.rest().await,
            whole[place + 1..],
            "after {last}"
        );
        let rest = two
            .events(&format!("{path}?after={last}"))
            .await
            .rest()
            .await;
        assert_eq!(rest, whole[place + 1..], "after {last}");
    }
    // The header wins over the query of the first request.
    let call = two
        .call("GET", &format!("{path}?after=1.0"))
        .header("last-event-id", "3.1");
    assert_eq!(names(&call.stream().await.rest().await), ["send.completed"]);
}

#[tokio::test]
async fn a_send_behind_others_shows_only_its_own_events() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let (first, second) = (api.send(&id, "one").await, api.send(&id, "two").await);
    let mut events = api.events(&format!("/v1/sends/{second}/events")).await;
    assert_eq!(events.names(1).await, ["send.queued"]);
    let claimed = world.claim(&id).await;
    assert_eq!(claimed.send.record.id.to_string(), first);
    world.delta(&claimed, 0, 0, "not yours");
    world.complete(&claimed, 0, "one done").await;
    world.complete(&world.claim(&id).await, 0, "two done").await;
    let rest = events.rest().await;
    assert_eq!(names(&rest), WHOLE[1..]);
    assert!(
        rest.iter()
            .all(|event| event.data["send_id"] == second.as_str())
    );
}

#[tokio::test]
async fn a_session_is_followed_across_its_sends() {
    let world = World::new().await;
    let (one, two) = (world.ready().await, world.ready().await);
    let id = one.session().await;
    let mut events = two.events(&format!("/v1/sessions/{id}/events")).await;
    for n in 0..2 {
        // A send that is accepted elsewhere is heard of too.
        let send = one.send(&id, &format!("question {n}")).await;
        let queued = events.next().await.expect("an event");
        assert_eq!(
            (queued.name.as_str(), &queued.data["id"]),
            ("send.queued", &json!(send))
        );
        let claimed = world.claim(&id).await;
        world.delta(&claimed, 0, 0, "ans");
        assert_eq!(events.names(1).await, ["message.delta"]);
        world.complete(&claimed, 0, "answer").await;
        assert_eq!(events.names(4).await, WHOLE[1..]);
    }
    let mut late = two
        .events(&format!("/v1/sessions/{id}/events?after=3.0"))
        .await;
    assert_eq!(late.names(4).await, WHOLE[1..]);
}

#[tokio::test]
async fn a_delta_of_a_finished_round_is_not_shown() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let send = api.send(&id, "hi").await;
    let mut events = api.events(&format!("/v1/sends/{send}/events")).await;
    assert_eq!(events.names(1).await, ["send.queued"]);
    let claimed = world.claim(&id).await;
    world.append(&claimed, 0, "first").await;
    assert_eq!(events.names(3).await, WHOLE[1..4]);
    world.delta(&claimed, 0, 5, "an echo");
    world.delta(&claimed, 1, 0, "sec");
    let delta = events.next().await.expect("a delta");
    assert_eq!(
        (&delta.data["round"], &delta.data["text"]),
        (&json!(1), &json!("sec"))
    );
    world.complete(&claimed, 1, "second").await;
    let rest = ["message.completed", "round.completed", "send.completed"];
    assert_eq!(names(&events.rest().await), rest);
}

#[tokio::test]
async fn a_cancelled_send_ends_its_stream() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let send = api.send(&id, "hi").await;
    let mut events = api.events(&format!("/v1/sends/{send}/events")).await;
    assert_eq!(events.names(1).await, ["send.queued"]);
    api.call("POST", &format!("/v1/sends/{send}/cancel"))
        .send()
        .await
        .ok(200);
    assert_eq!(names(&events.rest().await), ["send.cancelled"]);
}

#[tokio::test]
async fn a_deleted_session_ends_the_streams_of_its_sends() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let send = api.send(&id, "hi").await;
    let mut events = api.events(&format!("/v1/sends/{send}/events")).await;
    assert_eq!(events.names(1).await, ["send.queued"]);
    let deleted = api
        .call("DELETE", &format!("/v1/sessions/{id}"))
        .send()
        .await;
    assert_eq!(deleted.status, 204);
    assert_eq!(names(&events.rest().await), ["send.cancelled"]);
}

#[tokio::test]
async fn a_quiet_stream_is_kept_alive_by_comments() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| config.heartbeat = std::time::Duration::from_millis(20))
        .await;
    api.until_ready().await;
    let id = api.session().await;
    let mut events = api.events(&format!("/v1/sessions/{id}/events")).await;
    events.comment().await;
    events.comment().await;
    api.send(&id, "hi").await;
    assert_eq!(events.names(1).await, ["send.queued"]);
}

#[tokio::test]
async fn a_long_history_arrives_whole_and_in_order() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    for n in 0..100 {
        api.send(&id, &format!("question {n}")).await;
        world
            .complete(&world.claim(&id).await, 0, &format!("answer {n}"))
            .await;
    }
    let mut events = api.events(&format!("/v1/sessions/{id}/events")).await;
    for n in 0..100 {
        assert_eq!(events.names(2).await, WHOLE[..2]);
        let answer = events.next().await.expect("an answer");
        assert_eq!(answer.data["content"][0]["text"], format!("answer {n}"));
        assert_eq!(events.names(2).await, WHOLE[3..]);
    }
}
