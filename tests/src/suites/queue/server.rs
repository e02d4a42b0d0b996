//! A Redis server for one test, which can be stalled, killed and restarted.

use std::io::Write as _;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use mainspring_queue_redis::{Address, RedisBus, RedisQueue};
use mainspring_runtime::{OsEntropy, SystemClock};
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;

use super::harness::{pause, until};

/// A server on a free port, without persistence. It is killed when dropped.
#[derive(Debug)]
pub struct Server {
    port: u16,
    folder: TempDir,
    process: Option<Child>,
}

impl Server {
    /// Starts a server. Without a `redis-server` program it returns `None` and says so, or panics
    /// if `REQUIRE_STORES=all` is set.
    pub async fn start() -> Option<Self> {
        let mut server = Self {
            port: free_port(),
            folder: tempfile::tempdir().expect("a temporary folder"),
            process: None,
        };
        if !server.spawn() {
            let required = std::env::var_os("REQUIRE_STORES").is_some_and(|stores| stores == "all");
            assert!(!required, "there is no redis-server in the path");
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: there is no redis-server in the path"
            );
            return None;
        }
        server.answers().await;
        Some(server)
    }

    /// The address of a port on which nothing listens.
    pub fn absent() -> Address {
        address(free_port())
    }

    fn spawn(&mut self) -> bool {
        let process = Command::new("redis-server")
            .args(["--port", &self.port.to_string()])
            .args(["--bind", "127.0.0.1"])
            .args(["--save", ""])
            .args(["--appendonly", "no"])
            .arg("--dir")
            .arg(self.folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.process = process.ok();
        self.process.is_some()
    }

    async fn answers(&self) {
        let client = redis::Client::open(self.url()).expect("a client");
        until("an answer of redis-server", || async {
            let Ok(mut connection) = client.get_multiplexed_async_connection().await else {
                return false;
            };
            let pong = redis::cmd("PING").query_async::<()>(&mut connection).await;
            pong.is_ok()
        })
        .await;
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The address of the server.
    pub fn address(&self) -> Address {
        address(self.port)
    }

    /// The same server for another of its users.
    pub fn address_of(&self, user: &str, password: &str) -> Address {
        let url = format!("redis://{user}:{password}@127.0.0.1:{}", self.port);
        url.parse().expect("an address")
    }

    /// Runs a command; its answer does not matter.
    pub async fn command(&self, words: &[&str]) {
        let mut connection = self.connection().await;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let done = command.query_async::<redis::Value>(&mut connection).await;
        done.unwrap_or_else(|error| panic!("{words:?}: {error}"));
    }

    /// A queue on this server.
    pub fn queue(&self) -> Arc<RedisQueue> {
        queue(&self.address())
    }

    /// A bus on this server.
    pub fn bus(&self) -> Arc<RedisBus> {
        bus(&self.address())
    }

    /// A connection for the test itself.
    pub async fn connection(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.url()).expect("a client");
        client
            .get_multiplexed_async_connection()
            .await
            .expect("a connection")
    }

    /// Closes every connection of a kind: `normal` or `pubsub`.
    pub async fn cut(&self, kind: &str) {
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL")
            .arg("TYPE")
            .arg(kind)
            .arg("SKIPME")
            .arg("yes");
        let mut connection = self.connection().await;
        kill.query_async::<u64>(&mut connection)
            .await
            .expect("connections were cut");
    }

    /// Suspends the server for a while.
    pub async fn stall(&self, ms: u64) {
        self.signal("STOP");
        pause(ms).await;
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let id = self.process.as_ref().expect("it runs").id();
        let sent = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(id.to_string())
            .status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -{name}");
    }

    /// Kills the server; its data is lost.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Restarts the server on the same port.
    pub async fn start_again(&mut self) {
        assert!(self.spawn(), "redis-server starts again");
        self.answers().await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A queue at this address, whether or not a server is there.
pub fn queue(address: &Address) -> Arc<RedisQueue> {
    let (clock, entropy) = (Arc::new(SystemClock::new()), Arc::new(OsEntropy));
    Arc::new(RedisQueue::open(address, clock, entropy).expect("a queue"))
}

/// A bus at this address, whether or not a server is there.
pub fn bus(address: &Address) -> Arc<RedisBus> {
    let (clock, entropy) = (Arc::new(SystemClock::new()), Arc::new(OsEntropy));
    Arc::new(RedisBus::open(address, clock, entropy).expect("a bus"))
}

fn address(port: u16) -> Address {
    format!("redis://127.0.0.1:{port}")
        .parse()
        .expect("an address")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its number").port()
}
