//! The leaf slots that other runs leave free.

use serde_json::json;

use mainspring_shared::workflow::run::RunEvent;

use super::fixture::{Fixture, agent, envelope, says};

#[test]
fn a_run_starts_what_others_leave_and_looks_again_for_the_rest() {
    let items: Vec<u32> = (0..6).collect();
    let spec = envelope(&json!({
        "type": "foreach", "id": "all", "as": "n", "items": items, "max_concurrency": 6,
        "body": agent("leaf", &json!({})),
    }));
    let mut fixture = Fixture::slot_retries(&spec, 2);
    assert_eq!(fixture.live.len(), 2);
    let look = fixture.run.record().alarm_at.expect("it retries");
    assert_eq!(look.since(fixture.now).as_millis(), 250);
    // Fruitless retries back off.
    let mut pauses = Vec::new();
    for _ in 0..6 {
        fixture.feed(vec![RunEvent::Looked]);
        let look = fixture.run.record().alarm_at.expect("it retries");
        pauses.push(look.since(fixture.now).as_millis());
    }
    assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 4_000, 4_000]);
    // Each leaf that ends makes room for another of the same run.
    fixture.end(0, says("done"));
    assert_eq!(fixture.live.len(), 2);
    let look = fixture.run.record().alarm_at.expect("it retries");
    assert_eq!(look.since(fixture.now).as_millis(), 250);
    // Meanwhile the other runs freed more.
    fixture.run.limit_live(Some(4));
    fixture.feed(vec![RunEvent::Looked]);
    assert_eq!(fixture.live.len(), 4);
    // They took the slots back: running leaves continue, and no further ones start.
    fixture.run.limit_live(Some(0));
    fixture.end(0, says("done"));
    assert_eq!(fixture.live.len(), 3);
    fixture.run.limit_live(None);
    fixture.feed(vec![RunEvent::Looked]);
    assert_eq!(fixture.live.len(), 4);
    assert_eq!(fixture.run.record().alarm_at, None);
    while !fixture.live.is_empty() {
        fixture.end(0, says("done"));
    }
    assert_eq!(fixture.run.record().counts.completed, 6);
}
