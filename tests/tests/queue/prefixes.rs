//! Two installations on one Redis that differ only in their key prefix.

use std::sync::Arc;

use bytes::Bytes;
use mainspring_queue_redis::Address;
use mainspring_shared::bus::{Bus, Notice, Topic};
use mainspring_shared::queue::Queue;
use mainspring_tests::suites::queue::harness::{
    Recorder, Worker, high, next, pool, push, session, sessions, until,
};
use mainspring_tests::suites::queue::server::{Server, bus, queue};
use redis::aio::MultiplexedConnection;

/// The server's address for the second installation, with a prefix of its own.
fn second(server: &Server) -> Address {
    server
        .address()
        .under("team-2".parse().expect("it is a prefix"))
}

async fn finished(connection: &MultiplexedConnection, key: &str) -> u64 {
    redis::cmd("SCARD")
        .arg(key)
        .query_async(&mut connection.clone())
        .await
        .expect("a count")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn installations_with_different_prefixes_take_only_their_own_jobs() {
    let Some(server) = Server::start().await else {
        return;
    };
    let (ours, theirs) = (server.queue(), queue(&second(&server)));
    let our_queue: Arc<dyn Queue> = Arc::clone(&ours) as Arc<dyn Queue>;
    let their_queue: Arc<dyn Queue> = Arc::clone(&theirs) as Arc<dyn Queue>;
    let pool = pool();
    let lane = high(&pool);
    let (our_keys, their_keys) = (sessions(20), sessions(20));
    push(&*our_queue, &lane, &our_keys).await;
    push(&*their_queue, &lane, &their_keys).await;
    assert_eq!(our_queue.depth(&lane).await, Some(20));
    assert_eq!(their_queue.depth(&lane).await, Some(20));
    // Only one of the two has a worker, and it has time enough for all jobs.
    let ours_saw = Recorder::ready();
    let our_worker = Worker::start(&our_queue, &pool, &ours_saw);
    ours_saw.saw(&our_keys).await;
    assert_eq!(their_queue.depth(&lane).await, Some(20));
    let theirs_saw = Recorder::ready();
    let their_worker = Worker::start(&their_queue, &pool, &theirs_saw);
    theirs_saw.saw(&their_keys).await;
    assert!(ours_saw.admitted().iter().all(|key| our_keys.contains(key)));
    assert!(
        theirs_saw
            .admitted()
            .iter()
            .all(|key| their_keys.contains(key))
    );

    let connection = server.connection().await;
    let our_done = format!("mainspring:{{{pool}}}:hi:done");
    let their_done = format!("team-2:{{{pool}}}:hi:done");
    until("all acks", || async {
        finished(&connection, &our_done).await == 20
            && finished(&connection, &their_done).await == 20
    })
    .await;
    // A janitor tidies only the lanes of its own installation.
    assert_eq!(theirs.tidy().await, 20);
    assert_eq!(finished(&connection, &our_done).await, 20);
    assert_eq!(ours.tidy().await, 20);
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query_async(&mut connection.clone())
        .await
        .unwrap();
    let marked = |key: &&String| key.starts_with("mainspring:") || key.starts_with("team-2:");
    let unmarked: Vec<_> = keys.iter().filter(|key| !marked(key)).collect();
    assert_eq!(unmarked, ["core:apalis:queues:list"]);
    our_worker.stop().await;
    their_worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn installations_with_different_prefixes_hear_only_their_own_notices() {
    let Some(server) = Server::start().await else {
        return;
    };
    let (ours, theirs) = (server.bus(), bus(&second(&server)));
    for bus in [&ours, &theirs] {
        until("a connection", || async { bus.is_available() }).await;
    }
    for topic in [Topic::Steps, Topic::Signals, Topic::Live(session())] {
        let mut here = ours.subscribe(topic).await;
        let mut there = theirs.subscribe(topic).await;
        theirs.publish(topic, Bytes::from_static(b"[2]"));
        assert_eq!(
            next(&mut there).await,
            Notice::Payload(Bytes::from_static(b"[2]"))
        );
        // A payload that leaked to both installations would arrive before this one.
        ours.publish(topic, Bytes::from_static(b"[1]"));
        assert_eq!(
            next(&mut here).await,
            Notice::Payload(Bytes::from_static(b"[1]"))
        );
    }
    let topic = Topic::Live(session());
    let _there = theirs.subscribe(topic).await;
    assert!(theirs.tell(topic, Bytes::from_static(b"[3]")).await);
    assert!(!ours.tell(topic, Bytes::from_static(b"[3]")).await);
}
