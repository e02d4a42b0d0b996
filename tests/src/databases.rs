//! Test databases on the configured servers, each lent to one test at a time.
//!
//! Creating a database with its schema takes a server longer than most tests run. So the database
//! of a test that passed is emptied and lent again. All are dropped when the process ends, however
//! it ends.

use std::io::Write as _;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use mainspring_runtime::OsEntropy;
use mainspring_shared::entropy::Entropy as _;
use tokio::sync::OnceCell;

use crate::suites::store::harness::environment;

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// The server of `MAINSPRING_TEST_POSTGRES_URL`, `postgres://USER@HOST:PORT/DATABASE`.
    Postgres,
    /// The server of `MAINSPRING_TEST_MYSQL_URL`, `mysql://USER@HOST:PORT/`.
    Mysql,
}

/// This process's databases that no test is using.
#[derive(Debug, Default)]
struct Idle {
    names: Vec<String>,
    /// Reads the names of databases from a pipe, and drops them once the end of this process closes it.
    dropper: Option<Child>,
}

static POSTGRES: Mutex<Idle> = Mutex::new(Idle::NONE);
static MYSQL: Mutex<Idle> = Mutex::new(Idle::NONE);

impl Idle {
    const NONE: Self = Self {
        names: Vec::new(),
        dropper: None,
    };
}

/// Reads names until the pipe closes, then has the client command given as arguments drop each.
const DROPPER: &str = r#"
trap '' INT TERM HUP
names=$(cat)
for name in $names; do "$@" "DROP DATABASE $name"; done
"#;

/// A database lent to one test; dropping this gives it back.
#[derive(Debug)]
pub struct Lent {
    server: Server,
    name: String,
    url: String,
}

impl Lent {
    /// The database URL, in the form the store takes.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // A failed test may still be using its database, so that one is not lent again.
        if !std::thread::panicking() {
            let name = std::mem::take(&mut self.name);
            self.server.idle().names.push(name);
        }
    }
}

/// The URL of another database on the same server.
fn beside(server: &str, database: &str) -> String {
    let (address, options) = match server.split_once('?') {
        Some((address, options)) => (address, format!("?{options}")),
        None => (server, String::new()),
    };
    let authority = address.find("://").map_or(0, |at| at + 3);
    let server = match address[authority..].find('/') {
        Some(slash) => &address[..authority + slash],
        None => address,
    };
    format!("{server}/{database}{options}")
}

impl Server {
    /// Lends an empty database with the schema that `migrate` creates at the given URL; `None`
    /// without such a server.
    pub async fn lend(self, migrate: impl AsyncFnOnce(&str)) -> Option<Lent> {
        let server = self.given()?;
        let lent = |name: String| Lent {
            server: self,
            url: beside(&server, &name),
            name,
        };
        let idle = std::mem::take(&mut self.idle().names);
        let mut idle = idle.into_iter();
        let mut used = Vec::new();
        let emptied = idle.by_ref().find_map(|name| {
            if self.empty(&name) {
                return Some(name);
            }
            used.push(name);
            None
        });
        self.idle().names.extend(idle.chain(used));
        if let Some(name) = emptied {
            return Some(lent(name));
        }
        let name = format!("mainspring_test_{}", OsEntropy.random_id().simple());
        self.told(&name);
        self.run(&format!("CREATE DATABASE {name}"), "");
        let lent = lent(name);
        migrate(&lent.url).await;
        self.run(self.keeping(), &lent.name);
        Some(lent)
    }

    /// The URL of a database without a schema, for a program that creates its own; `None` without
    /// such a server. It is never lent to anyone else.
    pub fn empty_database(self) -> Option<String> {
        let server = self.given()?;
        let name = format!("mainspring_test_{}", OsEntropy.random_id().simple());
        self.told(&name);
        self.run(&format!("CREATE DATABASE {name}"), "");
        Some(beside(&server, &name))
    }

    /// The name of a Postgres database with the schema that `migrate` brings to the address that it gets, to copy from with
    /// `CREATE DATABASE … TEMPLATE`: a fraction of the time of migrating each. One for the process; none if there is no
    /// such server.
    pub async fn template(migrate: impl AsyncFnOnce(&str)) -> Option<&'static str> {
        static NAME: OnceCell<String> = OnceCell::const_new();
        Self::Postgres.given()?;
        let name = NAME.get_or_init(async || {
            let url = Self::Postgres.empty_database().expect("there is a server");
            migrate(&url).await;
            let (_, name) = url.rsplit_once('/').expect("it names a database");
            name.split('?').next().unwrap_or_default().to_owned()
        });
        Some(name.await)
    }

    /// Whether there is such a server.
    pub fn is_given(self) -> bool {
        self.given().is_some()
    }

    fn given(self) -> Option<String> {
        environment(match self {
            Self::Postgres => "MAINSPRING_TEST_POSTGRES_URL",
            Self::Mysql => "MAINSPRING_TEST_MYSQL_URL",
        })
    }

    fn idle(self) -> std::sync::MutexGuard<'static, Idle> {
        let idle = match self {
            Self::Postgres => &POSTGRES,
            Self::Mysql => &MYSQL,
        };
        idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client command up to the statement, connecting to the database in the URL if none is named.
    fn client(self, database: &str) -> Command {
        let server = self.given().expect("the server was there before");
        match self {
            Self::Postgres => {
                let url = match database {
                    "" => server,
                    database => beside(&server, database),
                };
                let mut client = Command::new("psql");
                client.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", &url, "-c"]);
                client
            }
            Self::Mysql => {
                let authority = server.trim_start_matches("mysql://").trim_end_matches('/');
                let (user, address) = authority.split_once('@').expect("the URL names a user");
                let (user, password) = user.split_once(':').unwrap_or((user, ""));
                let (host, port) = address.split_once(':').unwrap_or((address, "3306"));
                let mut client = Command::new("mariadb");
                client.args(["--no-defaults", "-h", host, "-P", port, "-u", user, "-N"]);
                client.args(["-D", database, "-e"]);
                client.env("MYSQL_PWD", password);
                client
            }
        }
    }

    fn run(self, sql: &str, database: &str) -> String {
        let output = self.client(database).arg(sql).output();
        let Output {
            status,
            stdout,
            stderr,
        } = output.expect("the client runs");
        let said = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{sql}: {said}");
        String::from_utf8_lossy(&stdout).into_owned()
    }

    /// The statement that saves the rows inserted by migrations, for [`Server::empty`].
    fn keeping(self) -> &'static str {
        match self {
            Self::Postgres => {
                "CREATE SCHEMA migrated; CREATE TABLE migrated.tenants AS TABLE public.tenants"
            }
            Self::Mysql => "CREATE TABLE migrated_tenants AS SELECT * FROM tenants",
        }
    }

    /// Deletes everything but the rows that migrations inserted. Returns false if something is
    /// still connected to the database: a store may outlive its test for a moment.
    fn empty(self, name: &str) -> bool {
        let (statement, tables) = match self {
            Self::Postgres => (
                "SELECT format('DELETE FROM %I;', tablename) FROM pg_tables
                 WHERE schemaname = 'public' AND tablename <> '_sqlx_migrations' AND NOT EXISTS (
                     SELECT FROM pg_stat_activity
                     WHERE datname = current_database() AND pid <> pg_backend_pid())",
                "tenants SELECT * FROM migrated.tenants",
            ),
            Self::Mysql => (
                "SELECT CONCAT('DELETE FROM `', table_name, '`;') FROM information_schema.tables
                 WHERE table_schema = DATABASE()
                 AND table_name NOT IN ('_sqlx_migrations', 'migrated_tenants') AND NOT EXISTS (
                     SELECT 1 FROM information_schema.processlist
                     WHERE db = DATABASE() AND id <> CONNECTION_ID())",
                "tenants SELECT * FROM migrated_tenants",
            ),
        };
        let deletions = self.run(statement, name);
        if deletions.is_empty() {
            return false;
        }
        let sql = format!("BEGIN; {deletions} INSERT INTO {tables}; COMMIT");
        self.run(&sql, name);
        true
    }

    /// Registers a database to be dropped when this process ends.
    fn told(self, name: &str) {
        let mut idle = self.idle();
        let dropper = idle.dropper.get_or_insert_with(|| {
            let client = self.client(match self {
                Self::Postgres => "",
                Self::Mysql => "mysql",
            });
            let mut shell = Command::new("sh");
            shell.args(["-c", DROPPER, "dropper"]);
            shell.arg(client.get_program()).args(client.get_args());
            for (variable, value) in client.get_envs() {
                if let Some(value) = value {
                    shell.env(variable, value);
                }
            }
            shell.stdin(Stdio::piped()).stdout(Stdio::null());
            let shell = shell.stderr(Stdio::null()).spawn();
            shell.expect("sh runs")
        });
        let pipe = dropper.stdin.as_mut().expect("it is piped");
        writeln!(pipe, "{name}").expect("the shell reads");
    }
}

#[cfg(test)]
mod tests {
    use super::beside;

    #[test]
    fn the_database_of_an_address_is_replaced_and_nothing_else() {
        for (url, expected) in [
            ("postgres://u:p@h:1/a", "postgres://u:p@h:1/b"),
            ("postgres://h", "postgres://h/b"),
            ("postgres:///a?host=/run/x", "postgres:///b?host=/run/x"),
            ("mysql://u:p@h:1/", "mysql://u:p@h:1/b"),
        ] {
            assert_eq!(beside(url, "b"), expected);
        }
    }
}
