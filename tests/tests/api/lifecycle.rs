//! Starting, stopping, stopping twice; an unavailable database.

use std::time::Duration;

use mainspring_shared::store::Role;

use crate::client::Call;
use crate::world::World;

#[tokio::test]
async fn a_scheduler_registers_and_leaves() {
    let world = World::new().await;
    let mut api = world.ready().await;
    let live = async || {
        let boots = world.store.list_boots().await.expect("boots");
        boots
            .iter()
            .filter(|b| b.role == Role::Scheduler && b.dead_at.is_none())
            .count()
    };
    assert_eq!(live().await, 1);
    assert!(api.lifecycle.shut_down(Duration::from_secs(5)).await);
    (&mut api.task).await.expect("joins").expect("ends well");
    assert_eq!(live().await, 0);
    // A second shutdown changes nothing.
    assert!(api.lifecycle.shut_down(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn a_stop_ends_streams_and_takes_no_new_connections() {
    let world = World::new().await;
    let mut api = world.ready().await;
    let id = api.session().await;
    let mut events = api.events(&format!("/v1/sessions/{id}/events")).await;
    api.lifecycle.stop();
    assert_eq!(events.next().await, None);
    (&mut api.task).await.expect("joins").expect("ends well");
    assert!(tokio::net::TcpStream::connect(api.addr).await.is_err());
}

#[tokio::test]
async fn a_hard_stop_waits_for_nobody() {
    let world = World::new().await;
    let mut api = world.ready().await;
    // A request whose body never arrives.
    let mut stalled = tokio::net::TcpStream::connect(api.addr)
        .await
        .expect("connects");
    let head = b"POST /v1/sends HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut stalled, head)
        .await
        .expect("writes");
    api.lifecycle.abort();
    (&mut api.task).await.expect("joins").expect("ends well");
}

#[tokio::test]
async fn a_boot_that_was_declared_dead_is_followed_by_another() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| config.lease_ttl = Duration::from_millis(90))
        .await;
    api.until_ready().await;
    let boot = async || {
        let info = api.get("/v1/info").await.ok(200);
        info["scheduler"]["boot_id"].as_str().map(str::to_owned)
    };
    let first = boot().await.expect("registered");
    let id = first.parse().expect("a boot's id");
    world.store.stop_boot(id).await.expect("stops");
    let second = loop {
        match boot().await {
            Some(id) if id != first => break id,
            _ => tokio::task::yield_now().await,
        }
    };
    assert_ne!(first, second);
    api.until_ready().await;
    let session = api.session().await;
    api.send(&session, "hi").await;
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_given_up() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| config.body_timeout = Duration::from_millis(20))
        .await;
    api.until_ready().await;
    // Announces a body, and sends nothing.
    let call = Call::new(api.addr, "POST", "/v1/sends").header("expect", "100-continue");
    let answer = call.header("x-request-id", "mine").promise(10).await;
    answer.problem(400, "request.invalid");
    assert_eq!(answer.header("x-request-id"), Some("mine"));
}
