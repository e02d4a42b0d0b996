//! Redis faults and their effect on the bus. Each test has a server of its own.

use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use mainspring_shared::bus::{Bus, Notice, Topic};
use mainspring_tests::suites::queue::harness::{next, pause, payload, session, until};
use mainspring_tests::suites::queue::server::Server;
use tokio::time::Instant;

/// Reads notices until the wanted payload arrives; returns whether a gap came before it.
async fn gap_before(notices: &mut BoxStream<'static, Notice>, wanted: &'static [u8]) -> bool {
    let mut gap = false;
    loop {
        match next(notices).await {
            Notice::Gap => gap = true,
            Notice::Payload(payload) if payload == wanted => return gap,
            Notice::Payload(_) => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_hears_of_a_gap_after_every_reconnect_and_then_goes_on() {
    let Some(mut server) = Server::start().await else {
        return;
    };
    let bus = server.bus();
    until("a connection", || async { bus.is_available() }).await;
    let topic = Topic::Live(session());
    let mut notices = bus.subscribe(topic).await;
    bus.publish(topic, Bytes::from_static(b"[1]"));
    assert_eq!(
        next(&mut notices).await,
        Notice::Payload(Bytes::from_static(b"[1]"))
    );

    server.cut("pubsub").await;
    assert_eq!(next(&mut notices).await, Notice::Gap);
    bus.publish(topic, Bytes::from_static(b"[2]"));
    assert_eq!(payload(&mut notices).await, Bytes::from_static(b"[2]"));

    server.kill();
    until("its loss is noticed", || async { !bus.is_available() }).await;
    bus.publish(topic, Bytes::from_static(b"[lost]"));
    // A subscriber that joins during the outage is served too, once there is a server.
    let mut late = bus.subscribe(topic).await;
    server.start_again().await;
    assert_eq!(next(&mut late).await, Notice::Gap);
    until("it is back", || async { bus.is_available() }).await;
    bus.publish(topic, Bytes::from_static(b"[3]"));
    assert!(gap_before(&mut notices, b"[3]").await);
    assert_eq!(payload(&mut late).await, Bytes::from_static(b"[3]"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listeners_elsewhere_hear_of_a_gap_when_a_publisher_lost_something() {
    let Some(server) = Server::start().await else {
        return;
    };
    let (here, there) = (server.bus(), server.bus());
    for bus in [&here, &there] {
        until("a connection", || async { bus.is_available() }).await;
    }
    let topic = Topic::Live(session());
    let mut notices = there.subscribe(topic).await;
    // Cuts only the connections that publish, not those that subscribe.
    server.cut("normal").await;
    until("a loss", || async {
        here.publish(topic, Bytes::from_static(b"[1]"));
        here.dropped() > 0
    })
    .await;
    until("it is back", || async { here.is_available() }).await;
    while next(&mut notices).await != Notice::Gap {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_notices_blocks_nobody_and_is_told_as_a_gap() {
    let Some(server) = Server::start().await else {
        return;
    };
    let bus = server.bus();
    until("a connection", || async { bus.is_available() }).await;
    let mut notices = bus.subscribe(Topic::Steps).await;
    let begun = Instant::now();
    let stall = server.stall(300);
    let flood = async {
        pause(50).await;
        for _ in 0..20_000 {
            bus.publish(Topic::Steps, Bytes::from_static(b"[]"));
        }
        begun.elapsed()
    };
    let (took, ()) = futures::future::join(flood, stall).await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(bus.dropped() > 0);
    while next(&mut notices).await != Notice::Gap {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_are_left_when_nobody_listens() {
    let Some(server) = Server::start().await else {
        return;
    };
    let bus = server.bus();
    until("a connection", || async { bus.is_available() }).await;
    let mut streams = Vec::new();
    for _ in 0..700 {
        streams.push(bus.subscribe(Topic::Live(session())).await);
    }
    let channels = async || -> Vec<String> {
        let mut connection = server.connection().await;
        let mut ask = redis::cmd("PUBSUB");
        ask.arg("CHANNELS").arg("mainspring:live:*");
        ask.query_async(&mut connection).await.unwrap()
    };
    assert_eq!(channels().await.len(), 700);
    streams.truncate(1);
    until("all others are left", || async {
        channels().await.len() == 1
    })
    .await;
}
