//! Event streams: every durable event once and in order, wherever and whenever a reader starts.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use mainspring_runtime::SystemClock;
use mainspring_shared::bus::{Bus, Notice, Topic, WATCHED};
use mainspring_shared::id::SessionKey;
use mainspring_shared::time::Clock as _;
use mainspring_store_model::ModelStore;
use serde_json::json;

use crate::client::Event;
use crate::faulty::Faulty;
use crate::world::{Scheduler, World};

/// What follows an event of a stream that has ended, however the reader says which it has: the rest,
/// and after the last one an answer that keeps browsers from reconnecting.
pub(crate) async fn assert_rest(api: &Scheduler, path: &str, last: &str, rest: &[Event]) {
    let by_header = api.call("GET", path).header("last-event-id", last);
    let by_query = api.call("GET", &format!("{path}?after={last}"));
    for call in [by_header, by_query] {
        match call.stream_or_status().await {
            Ok(mut events) => {
                assert!(!rest.is_empty(), "a stream of nothing after {last}");
                assert_eq!(events.rest().await, rest, "after {last}");
            }
            Err(status) => assert_eq!((status, rest), (204, &[][..]), "after {last}"),
        }
    }
}

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
        assert_rest(&two, &path, last, &whole[place + 1..]).await;
    }
    assert_rest(&two, &path, "9.9", &[]).await;
    // The header takes precedence over the query of the first request.
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
        // A send that another scheduler accepts is seen, too.
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
async fn a_deleted_session_ends_its_streams_on_every_scheduler_after_its_events() {
    let world = World::new().await;
    let (one, two) = (world.ready().await, world.ready().await);
    for is_busy in [true, false] {
        let (id, other) = (one.session().await, one.session().await);
        let path = format!("/v1/sessions/{id}/events");
        let mut streams = [one.events(&path).await, two.events(&path).await];
        let mut kept = two.events(&format!("/v1/sessions/{other}/events")).await;
        if is_busy {
            one.send(&id, "hi").await;
            for events in &mut streams {
                assert_eq!(events.names(1).await, ["send.queued"]);
            }
        }
        let deleted = one.call("DELETE", &format!("/v1/sessions/{id}"));
        assert_eq!(deleted.send().await.status, 204);
        let expected: &[&str] = if is_busy { &["send.cancelled"] } else { &[] };
        for events in &mut streams {
            assert_eq!(names(&events.rest().await), expected);
        }
        // Events of one session do not reach readers of another.
        one.send(&other, "hi").await;
        assert_eq!(kept.names(1).await, ["send.queued"]);
    }
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

/// Plays a worker that is asked to repeat everything it has streamed.
async fn tells_all(world: &World, claimed: mainspring_shared::store::Claimed, said: &'static str) {
    let mut signals = world.bus.subscribe(Topic::Signals).await;
    let bus = world.bus.clone();
    tokio::spawn(async move {
        while let Some(notice) = signals.next().await {
            let Notice::Payload(json) = notice else {
                continue;
            };
            let raised: Vec<(SessionKey, i32)> = serde_json::from_slice(&json).expect("JSON");
            if raised
                .iter()
                .any(|(key, bits)| *key == claimed.key && bits & WATCHED != 0)
            {
                crate::world::stream(bus.as_ref(), &claimed, 0, 0, said);
            }
        }
    });
}

#[tokio::test]
async fn a_late_reader_is_told_the_open_answer_from_its_beginning() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let send = api.send(&id, "hi").await;
    let claimed = world.claim(&id).await;
    let path = format!("/v1/sends/{send}/events");
    let mut early = api.events(&path).await;
    assert_eq!(early.names(1).await, ["send.queued"]);
    world.delta(&claimed, 0, 0, "hello");
    assert_eq!(early.next().await.expect("a delta").data["text"], "hello");
    tells_all(&world, claimed.clone(), "hello").await;
    let mut late = api.events(&path).await;
    assert_eq!(late.names(1).await, ["send.queued"]);
    let told = late.next().await.expect("what was streamed before");
    assert_eq!(
        (&told.data["offset"], &told.data["text"]),
        (&json!(0), &json!("hello"))
    );
    // Both continue from there, and neither gets anything twice.
    world.delta(&claimed, 0, 5, " world");
    for events in [&mut early, &mut late] {
        let next = events.next().await.expect("a delta");
        assert_eq!(
            (&next.data["offset"], &next.data["text"]),
            (&json!(5), &json!(" world"))
        );
    }
}

#[tokio::test]
async fn pieces_whose_beginning_nobody_tells_are_passed_on_in_the_end() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let send = api.send(&id, "hi").await;
    let claimed = world.claim(&id).await;
    let mut late = api.events(&format!("/v1/sends/{send}/events")).await;
    assert_eq!(late.names(1).await, ["send.queued"]);
    world.delta(&claimed, 0, 5, " world");
    let next = late.next().await.expect("a delta");
    assert_eq!(
        (&next.data["offset"], &next.data["text"]),
        (&json!(5), &json!(" world"))
    );
}

/// While the bus is away, the streams of all quiet sessions together cost one query at a time.
#[tokio::test]
async fn many_quiet_streams_are_looked_after_by_one_query() {
    look_after_quiet_streams(Deaf { is_away: true }).await;
}

/// The same while the bus is up but loses everything.
#[tokio::test]
async fn what_a_bus_loses_is_found_by_one_query_for_many_streams() {
    look_after_quiet_streams(Deaf { is_away: false }).await;
}

async fn look_after_quiet_streams(bus: Deaf) {
    let clock = Arc::new(SystemClock::new());
    let store = Arc::new(ModelStore::open(clock.clone()));
    let counting = Arc::new(Faulty::over(store));
    let world = World::over(counting.clone(), Arc::new(bus)).await;
    let api = world.ready().await;
    let mut streams = Vec::new();
    let mut sessions = Vec::new();
    for _ in 0..40 {
        let id = api.session().await;
        api.send(&id, "hi").await;
        let mut events = api.events(&format!("/v1/sessions/{id}/events")).await;
        assert_eq!(events.names(1).await, ["send.queued"]);
        streams.push(events);
        sessions.push(id);
    }
    // By now each stream has been checked. A check every 250 ms covers all of them, or an eighth.
    clock.sleep(std::time::Duration::from_millis(2_500)).await;
    let (reads, looks) = (counting.calls("read_steps"), counting.calls("last_steps"));
    clock.sleep(std::time::Duration::from_millis(1_500)).await;
    assert_eq!(counting.calls("read_steps"), reads);
    let looks = counting.calls("last_steps") - looks;
    assert!((2..=7).contains(&looks), "{looks}");
    // A session with a new step is read.
    world
        .complete_silently(&world.claim(&sessions[7]).await, 0, "hello")
        .await;
    assert_eq!(streams[7].names(4).await, WHOLE[1..]);
    assert!(counting.calls("read_steps") - reads <= 4);
}

/// A bus that delivers nothing.
#[derive(Debug)]
struct Deaf {
    is_away: bool,
}

#[async_trait::async_trait]
impl Bus for Deaf {
    fn publish(&self, _: Topic, _: bytes::Bytes) {}

    async fn tell(&self, _: Topic, _: bytes::Bytes) -> bool {
        false
    }

    async fn subscribe(&self, _: Topic) -> BoxStream<'static, Notice> {
        futures::stream::pending().boxed()
    }

    fn is_available(&self) -> bool {
        !self.is_away
    }
}
