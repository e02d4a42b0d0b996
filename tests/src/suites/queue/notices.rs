//! Cases of the bus.

use std::sync::Arc;

use bytes::Bytes;
use mainspring_shared::bus::{Bus, Notice, Topic};

use super::harness::{next, payload, session, until};

/// Waits for a connection, so that a subscription takes effect at once.
async fn ready(bus: &dyn Bus) {
    until("a connection", || async { bus.is_available() }).await;
}

fn text(n: usize) -> Bytes {
    Bytes::from(format!("[{n}]"))
}

pub async fn every_listener_hears_every_notice_in_order(bus: Arc<dyn Bus>) {
    ready(&*bus).await;
    let topic = Topic::Live(session());
    let mut first = bus.subscribe(topic).await;
    let mut second = bus.subscribe(topic).await;
    for n in 0..100 {
        bus.publish(topic, text(n));
    }
    for n in 0..100 {
        assert_eq!(next(&mut first).await, Notice::Payload(text(n)));
        assert_eq!(next(&mut second).await, Notice::Payload(text(n)));
    }
}

pub async fn topics_do_not_mix(bus: Arc<dyn Bus>) {
    ready(&*bus).await;
    let topics = [
        Topic::Steps,
        Topic::Signals,
        Topic::Runs,
        Topic::Live(session()),
        Topic::Live(session()),
    ];
    let mut streams = Vec::new();
    for topic in topics {
        streams.push(bus.subscribe(topic).await);
    }
    for round in 0..3 {
        for (n, topic) in topics.iter().enumerate() {
            bus.publish(*topic, text(round * 10 + n));
        }
    }
    for round in 0..3 {
        for (n, notices) in streams.iter_mut().enumerate() {
            assert_eq!(next(notices).await, Notice::Payload(text(round * 10 + n)));
        }
    }
}

pub async fn a_topic_that_was_left_can_be_listened_to_again(bus: Arc<dyn Bus>) {
    ready(&*bus).await;
    let topic = Topic::Live(session());
    for n in 0..20 {
        let mut notices = bus.subscribe(topic).await;
        bus.publish(topic, text(n));
        assert_eq!(next(&mut notices).await, Notice::Payload(text(n)));
    }
    let mut stays = bus.subscribe(topic).await;
    drop(bus.subscribe(topic).await);
    bus.publish(topic, text(99));
    assert_eq!(next(&mut stays).await, Notice::Payload(text(99)));
}

pub async fn a_slow_listener_hears_of_a_gap_and_then_the_latest(bus: Arc<dyn Bus>) {
    ready(&*bus).await;
    let topic = Topic::Live(session());
    let mut slow = bus.subscribe(topic).await;
    let mut quick = bus.subscribe(topic).await;
    for n in 0..2_000 {
        bus.publish(topic, text(n));
    }
    while payload(&mut quick).await != text(1_999) {}
    assert_eq!(next(&mut slow).await, Notice::Gap);
    let first = payload(&mut slow).await;
    assert_ne!(first, text(0));
    let mut last = first;
    while last != text(1_999) {
        last = payload(&mut slow).await;
    }
    bus.publish(topic, text(2_000));
    assert_eq!(next(&mut slow).await, Notice::Payload(text(2_000)));
}

pub async fn nobody_listening_is_fine(bus: Arc<dyn Bus>) {
    ready(&*bus).await;
    let topic = Topic::Live(session());
    for n in 0..1_000 {
        bus.publish(topic, text(n));
    }
    let other = Topic::Live(session());
    let mut notices = bus.subscribe(other).await;
    bus.publish(other, text(7));
    assert_eq!(payload(&mut notices).await, text(7));
}
