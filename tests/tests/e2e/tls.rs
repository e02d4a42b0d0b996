//! Postgres and Redis over TLS, with a private certificate authority.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use mainspring_benches::servers::{Postgres, find_program, free_port, wait_for_port};
use mainspring_queue_redis::{Address, RedisQueue};
use mainspring_runtime::{OsEntropy, SystemClock};
use mainspring_shared::agent::{DEFAULT_POOL, Priority};
use mainspring_shared::queue::{Lane, Queue};
use mainspring_shared::store::prelude::*;
use mainspring_store_postgres::{PostgresStore, Settings};
use mainspring_tests::faults::beside;
use mainspring_tests::suites::queue::harness::pause;

/// Two authorities; the first has signed the certificate, which is valid for `localhost` but for no
/// address.
struct Authorities {
    folder: tempfile::TempDir,
}

impl Authorities {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let made = Self { folder };
        for name in ["ours", "theirs"] {
            let (key, certificate) = (made.path(name, "key"), made.path(name, "crt"));
            made.openssl(&format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
                 -subj /CN={name} -addext basicConstraints=critical,CA:TRUE \
                 -keyout {key} -out {certificate}"
            ))?;
        }
        std::fs::write(made.path("names", "ext"), "subjectAltName=DNS:localhost\n")?;
        made.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost \
             -keyout {} -out {}",
            made.path("server", "key"),
            made.path("server", "csr")
        ))?;
        made.openssl(&format!(
            "x509 -req -days 2 -in {} -CA {} -CAkey {} -CAcreateserial -extfile {} -out {}",
            made.path("server", "csr"),
            made.path("ours", "crt"),
            made.path("ours", "key"),
            made.path("names", "ext"),
            made.path("server", "crt")
        ))?;
        Ok(made)
    }

    fn path(&self, name: &str, ending: &str) -> String {
        let path = self.folder.path().join(format!("{name}.{ending}"));
        path.display().to_string()
    }

    fn read(&self, name: &str, ending: &str) -> Result<String> {
        Ok(std::fs::read_to_string(self.path(name, ending))?)
    }

    fn openssl(&self, arguments: &str) -> Result<()> {
        let output = Command::new(find_program("openssl")?)
            .args(arguments.split_whitespace())
            .current_dir(self.folder.path())
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "openssl {arguments}: {said}");
        Ok(())
    }
}

/// A Redis that speaks TLS only. Killed when dropped.
struct TlsRedis {
    port: u16,
    process: Child,
}

impl TlsRedis {
    fn start(authorities: &Authorities, folder: &Path) -> Result<Self> {
        let port = free_port()?;
        let process = Command::new(find_program("redis-server")?)
            .args(["--port", "0", "--tls-port", &port.to_string()])
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--tls-cert-file", &authorities.path("server", "crt")])
            .args(["--tls-key-file", &authorities.path("server", "key")])
            .args(["--tls-ca-cert-file", &authorities.path("ours", "crt")])
            .args(["--tls-auth-clients", "no"])
            .arg("--dir")
            .arg(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let started = Self { port, process };
        wait_for_port(port, Duration::from_secs(10))?;
        Ok(started)
    }

    /// Whether a queue that trusts this authority gets an answer.
    async fn answers(&self, host: &str, trusted: Option<String>) -> Result<bool> {
        let mut address: Address = format!("rediss://{host}:{}", self.port).parse()?;
        if let Some(pem) = trusted {
            address = address.trusting(pem.into_bytes());
        }
        let (clock, entropy) = (Arc::new(SystemClock::new()), Arc::new(OsEntropy));
        let queue = RedisQueue::open(&address, clock, entropy)?;
        let lane = Lane {
            pool: DEFAULT_POOL.to_owned(),
            priority: Priority::High,
        };
        // The queue connects in the background; a handshake on this machine takes milliseconds.
        for _ in 0..100 {
            if queue.depth(&lane).await.is_some() {
                return Ok(true);
            }
            pause(20).await;
        }
        Ok(false)
    }
}

impl Drop for TlsRedis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn crypto() {
    // The first test that gets here installs it for all.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[tokio::test]
async fn a_redis_is_taken_only_with_a_certificate_of_a_trusted_authority_for_its_name() -> Result<()>
{
    let _turn = beside()?;
    crypto();
    let authorities = Authorities::new()?;
    let folder = tempfile::tempdir()?;
    let server = TlsRedis::start(&authorities, folder.path())?;
    let (ours, theirs) = (
        authorities.read("ours", "crt")?,
        authorities.read("theirs", "crt")?,
    );
    ensure!(server.answers("localhost", Some(ours.clone())).await?);
    ensure!(
        !server.answers("localhost", Some(theirs)).await?,
        "a foreign authority"
    );
    ensure!(
        !server.answers("localhost", None).await?,
        "no public authority signed it"
    );
    ensure!(
        !server.answers("127.0.0.1", Some(ours)).await?,
        "a name it does not hold"
    );
    Ok(())
}

#[tokio::test]
async fn a_postgres_is_verified_as_its_url_asks() -> Result<()> {
    let _turn = beside()?;
    crypto();
    let authorities = Authorities::new()?;
    let mut server = Postgres::start()?;
    for ending in ["key", "crt"] {
        // Let the server itself write it, so that it owns the key and nobody else can read it.
        let pem = authorities.read("server", ending)?;
        server.query(
            "postgres",
            &format!(
                "COPY (SELECT line FROM regexp_split_to_table($pem${}$pem$, E'\\n') line) \
                 TO PROGRAM 'umask 077; cat > server.{ending}'",
                pem.trim_end()
            ),
        )?;
    }
    server.query("postgres", "ALTER SYSTEM SET ssl = on")?;
    server.restart()?;
    server.create_database("verified")?;
    let (ours, theirs): (PathBuf, PathBuf) = (
        authorities.path("ours", "crt").into(),
        authorities.path("theirs", "crt").into(),
    );
    for (host, mode, root, expected) in [
        ("localhost", "verify-full", &ours, true),
        ("localhost", "verify-full", &theirs, false),
        ("127.0.0.1", "verify-full", &ours, false),
        ("127.0.0.1", "verify-ca", &ours, true),
    ] {
        let url = format!(
            "postgres://postgres@{host}:{}/verified?sslmode={mode}&sslrootcert={}",
            server.port(),
            root.display()
        );
        let opened = PostgresStore::open(&Settings::new(url)).await;
        let taken = match opened {
            Ok(store) => store.check().await.is_ok(),
            Err(_) => false,
        };
        ensure!(taken == expected, "{host}, {mode}, {}", root.display());
    }
    Ok(())
}
