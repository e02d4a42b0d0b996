//! A real PgBouncer with its default settings in front of the database.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mainspring_runtime::SystemClock;
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{Denial, Error};
use mainspring_shared::time::Clock as _;
use mainspring_store_postgres::{PostgresStore, Settings};
use tempfile::TempDir;

use crate::postgres::world::{World, to, with_database};

/// A pooler in front of a server, stopped when it is dropped.
struct Pooler {
    process: Child,
    /// A database's URL through it.
    url: String,
    _folder: TempDir,
}

impl Pooler {
    /// Starts one for the server and the database of a URL, and waits until it listens.
    async fn start(url: &str, mode: &str) -> Self {
        let rest = url.strip_prefix("postgres://").expect("a URL of Postgres");
        let (server, database) = rest.split_once('/').expect("it names a database");
        let (login, address) = server.split_once('@').expect("it names a user");
        let (host, port) = address.split_once(':').unwrap_or((address, "5432"));
        let login = match login.split_once(':') {
            Some((user, password)) => format!("user={user} password={password}"),
            None => format!("user={login}"),
        };
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own = free.local_addr().expect("its number").port();
        drop(free);
        let folder = tempfile::tempdir().expect("a folder");
        let settings = folder.path().join("pgbouncer.ini");
        let written = std::fs::write(
            &settings,
            format!(
                "[databases]\n\
                 * = host={host} port={port} {login}\n\
                 [pgbouncer]\n\
                 listen_addr = 127.0.0.1\n\
                 listen_port = {own}\n\
                 unix_socket_dir =\n\
                 auth_type = any\n\
                 pool_mode = {mode}\n"
            ),
        );
        written.expect("written");
        // Daemons are often in folders that are not on a plain user's path.
        let places = ["/usr/sbin/pgbouncer", "/usr/local/sbin/pgbouncer"];
        let program = places.into_iter().find(|place| Path::new(place).exists());
        let mut command = Command::new(program.unwrap_or("pgbouncer"));
        command.arg("--quiet").arg(&settings).stdin(Stdio::null());
        if rustix::process::geteuid().is_root() {
            // It does not run as root.
            command.args(["--user", "nobody"]);
        }
        let mut process = command.spawn().expect("PgBouncer is installed");
        let clock = SystemClock::new();
        while TcpStream::connect(("127.0.0.1", own)).is_err() {
            let ended = process.try_wait().expect("it is asked");
            assert_eq!(ended, None, "PgBouncer ended");
            clock.sleep(Duration::from_millis(20)).await;
        }
        Self {
            process,
            url: format!("postgres://somebody@127.0.0.1:{own}/{database}"),
            _folder: folder,
        }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_in_session_mode_is_as_good_as_the_server() {
    with_database("pooled", async |url| {
        let pooler = Pooler::start(&url, "session").await;
        // A schema of its own is found only if each session was given its settings.
        let world = World::open(Settings {
            namespace: Some("ours".to_owned()),
            row_security: true,
            ..Settings::new(pooler.url.clone())
        })
        .await;
        let worker = world.boot(0).await;
        let key = world.session().await;
        world.send(1, to(key)).await;
        world.claim(2, worker, key).await;
        world
            .store
            .check()
            .await
            .expect("it answers")
            .writable()
            .expect("it writes");
        world.store.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_pooler_in_transaction_mode_is_refused_with_what_to_do() {
    with_database("shared_sessions", async |url| {
        let pooler = Pooler::start(&url, "transaction").await;
        let error = PostgresStore::open(&Settings::new(pooler.url.clone()))
            .await
            .expect_err("two clients share a session");
        let refused = matches!(
            error,
            Error::Denied {
                why: Denial::Session,
                ..
            }
        );
        assert!(refused, "{error:?}");
        assert!(error.to_string().contains("transaction mode"), "{error}");
    })
    .await;
}
