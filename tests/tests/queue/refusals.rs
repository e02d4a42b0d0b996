//! A Redis that answers, but does not do what it is asked to. Beside each fault that makes it
//! refuse stands what has to follow: the queue says that it does not work and why, the report for
//! people names a cure, and everything heals without a restart.

use std::sync::Arc;

use mainspring_queue_redis::{Address, RedisQueue, examine};
use mainspring_shared::queue::Queue;
use mainspring_tests::suites::queue::harness::{
    Recorder, Worker, high, pool, push, sessions, until,
};
use mainspring_tests::suites::queue::server::{Server, queue};

/// A worker on a server that is made to refuse.
struct World {
    server: Server,
    address: Address,
    redis: Arc<RedisQueue>,
    pool: String,
    recorder: Arc<Recorder>,
    worker: Worker,
}

impl World {
    /// Starts a server, makes it refuse, and then starts a worker, as this user if one is given.
    async fn start(faults: &[&[&str]], user: Option<&str>) -> Option<Self> {
        let server = Server::start().await?;
        for fault in faults {
            server.command(fault).await;
        }
        let address = match user {
            Some(user) => server.address_of(user, "hush"),
            None => server.address(),
        };
        let redis = queue(&address);
        let port: Arc<dyn Queue> = Arc::clone(&redis) as Arc<dyn Queue>;
        let (pool, recorder) = ("default".to_owned(), Recorder::ready());
        let worker = Worker::start(&port, &pool, &recorder);
        Some(Self {
            server,
            address,
            redis,
            pool,
            recorder,
            worker,
        })
    }

    async fn serves(&self) {
        let keys = sessions(3);
        push(&*self.redis, &high(&self.pool), &keys).await;
        self.recorder.saw(&keys).await;
    }

    /// Asserts that the queue says that it does not work, and that people are told why.
    async fn refuses(&self, why: &str, cure: &str) {
        until("the refusal is told", || async {
            let trouble = self.redis.trouble();
            trouble.is_some_and(|trouble| trouble.contains(why))
        })
        .await;
        assert!(!self.redis.is_available());
        let faults = examine(&self.address, &high(&self.pool))
            .await
            .expect("it is examined");
        let told = faults.iter().map(ToString::to_string).collect::<Vec<_>>();
        let named = |fault: &String| fault.contains(cure);
        assert!(told.iter().any(named), "{cure} is not in {told:#?}");
    }

    /// Asserts that everything works again.
    async fn heals(self) {
        until("the queue works", || async { self.redis.is_available() }).await;
        assert_eq!(self.redis.trouble(), None);
        self.serves().await;
        let faults = examine(&self.address, &high(&self.pool))
            .await
            .expect("it is examined");
        assert_eq!(faults, []);
        self.worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_is_one_that_is_away_until_it_has_room() {
    let Some(world) = World::start(&[], None).await else {
        return;
    };
    world.serves().await;
    world
        .server
        .command(&["SET", "somebody's", &"x".repeat(100_000)])
        .await;
    world
        .server
        .command(&["CONFIG", "SET", "maxmemory", "100kb"])
        .await;
    world.refuses("memory is full", "raise maxmemory").await;
    world
        .server
        .command(&["CONFIG", "SET", "maxmemory", "0"])
        .await;
    world.heals().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_a_right_is_told_which_rights_it_needs() {
    fn of<'a>(rights: &[&'a str]) -> Vec<&'a str> {
        [&["ACL", "SETUSER", "app", "reset", "on", ">hush"], rights].concat()
    }
    let needed: &[&str] = &[
        "~mainspring:*",
        "~core:apalis:*",
        "&mainspring:*",
        "+@all",
        "-@admin",
    ];
    for rights in [
        // No scripts; other keys; the registry of apalis is missing.
        &["~*", "&*", "+@all", "-@scripting"][..],
        &["~others:*", "~core:apalis:*", "&*", "+@all"],
        &["~mainspring:*", "&*", "+@all"],
        &["~*", "&*", "+@all", "-@write"],
    ] {
        let Some(world) = World::start(&[&of(rights)], Some("app")).await else {
            return;
        };
        world.refuses("lacks a right", "~core:apalis:*").await;
        world.server.command(&of(needed)).await;
        world.heals().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_another_type_is_named() {
    let Some(world) =
        World::start(&[&["SET", "mainspring:{default}:hi:active", "mine"]], None).await
    else {
        return;
    };
    world.refuses("of another type", "redis_prefix").await;
    world
        .server
        .command(&["DEL", "mainspring:{default}:hi:active"])
        .await;
    world.heals().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_became_a_replica_is_left_until_it_is_a_primary() {
    let Some(world) = World::start(&[], None).await else {
        return;
    };
    world.serves().await;
    world.server.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
    world
        .refuses("read-only replica", "let redis_url name the primary")
        .await;
    world.server.command(&["REPLICAOF", "NO", "ONE"]).await;
    world.heals().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_the_replicas_that_it_wants_is_one_that_is_away() {
    let Some(world) = World::start(&[], None).await else {
        return;
    };
    world.serves().await;
    world
        .server
        .command(&["CONFIG", "SET", "min-replicas-to-write", "1"])
        .await;
    world.refuses("refuses", "see its log").await;
    world
        .server
        .command(&["CONFIG", "SET", "min-replicas-to-write", "0"])
        .await;
    world.heals().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_may_throw_jobs_away_is_told_and_used() {
    let Some(server) = Server::start().await else {
        return;
    };
    server
        .command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"])
        .await;
    let faults = examine(&server.address(), &high(&pool())).await.unwrap();
    let [fault] = faults.as_slice() else {
        panic!("{faults:?}");
    };
    assert!(
        !fault.is_grave && fault.cause.contains("allkeys-random"),
        "{fault}"
    );
    let redis = server.queue();
    until("a connection", || async { redis.is_available() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bus_without_its_channels_says_that_it_does_not_work() {
    let Some(server) = Server::start().await else {
        return;
    };
    let of = |channels| {
        [
            "ACL", "SETUSER", "app", "reset", "on", ">hush", "~*", "+@all", channels,
        ]
    };
    server.command(&of("&others:*")).await;
    let bus = mainspring_tests::suites::queue::server::bus(&server.address_of("app", "hush"));
    let told = examine(&server.address_of("app", "hush"), &high(&pool()))
        .await
        .unwrap();
    assert!(
        told.iter().any(|fault| fault.cause.contains("notices")),
        "{told:?}"
    );
    assert!(!mainspring_shared::bus::Bus::is_available(&*bus));
    server.command(&of("&mainspring:*")).await;
    until("it works", || async {
        mainspring_shared::bus::Bus::is_available(&*bus)
    })
    .await;
}
