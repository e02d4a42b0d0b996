use std::process::{Command, Stdio};
use std::time::Duration;

use mainspring_benches::servers::{Postgres, Redis, find_program, free_port, wait_for_port};
use mainspring_shared::time::Clock as _;

use crate::commands::program::{Serving, ask, eventually, mainspring, metrics};

/// Whether this machine has the servers. If all stores are required, it must.
fn has_servers() -> bool {
    let has = ["initdb", "postgres", "redis-server"]
        .iter()
        .all(|name| find_program(name).is_ok());
    #[expect(
        clippy::disallowed_methods,
        reason = "tests are configured by their environment"
    )]
    let required = std::env::var("REQUIRE_STORES").is_ok_and(|which| which == "all");
    assert!(
        has || !required,
        "Postgres and Redis are required, but not installed"
    );
    has
}

fn serves(port: u16) {
    wait_for_port(port, Duration::from_mins(1)).expect("it serves");
}

struct Cluster {
    postgres: Postgres,
    redis: Redis,
    database: String,
}

impl Cluster {
    fn start() -> Self {
        let postgres = Postgres::start().expect("Postgres starts");
        let redis = Redis::start().expect("Redis starts");
        let database = postgres.create_database("cluster").expect("created");
        Self {
            postgres,
            redis,
            database,
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = mainspring();
        command
            .args(words)
            .args(["--lease-ttl", "1s", "--log", "warn"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.env("MAINSPRING_DATABASE_URL", &self.database);
        command.env("MAINSPRING_REDIS_URL", self.redis.url());
        command
    }

    /// Starts a role without waiting for it.
    fn begin(&self, words: &[&str], listen: &str) -> (Serving, u16) {
        let port = free_port().expect("a free port");
        let mut command = self.command(words);
        command.args([listen, &format!("127.0.0.1:{port}")]);
        (
            Serving::role(command, format!("http://127.0.0.1:{port}")),
            port,
        )
    }

    fn scheduler(&self, more: &[&str]) -> Serving {
        let (serving, port) = self.begin(&[&["scheduler"], more].concat(), "--listen");
        serves(port);
        serving
    }

    fn worker(&self, name: &str) -> (Serving, u16) {
        self.begin(
            &["worker", "--provider", "demo", "--name", name],
            "--ops-listen",
        )
    }

    fn audit(&self) -> (Option<i32>, String) {
        let mut command = mainspring();
        command.args(["audit", "--database-url", &self.database]);
        let output = command.output().expect("runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    }
}

#[test]
fn workers_come_and_go_and_every_send_is_answered() {
    if !has_servers() {
        return;
    }
    let cluster = Cluster::start();
    // A worker that starts first waits for the schema that the scheduler creates.
    let (mut first, first_port) = cluster.worker("first");
    let mut scheduler = cluster.scheduler(&[]);
    serves(first_port);
    let url = &scheduler.url;
    let hello = ask(url, &["send", "--wait", "hello"]);
    assert_eq!(
        (hello.code, hello.stdout.as_str()),
        (0, "hello\n"),
        "{}",
        hello.stderr
    );

    let id = ask(url, &["send", "!sleep 2s"]).stdout.trim().to_owned();
    eventually("the send runs", || {
        ask(url, &["sends", "show", &id])
            .stdout
            .contains("running")
            .then_some(())
    });
    let (mut second, second_port) = cluster.worker("second");
    serves(second_port);
    first.signal("KILL");
    assert_eq!(first.wait(), None);
    let tail = ask(url, &["sends", "tail", &id]);
    assert_eq!(tail.code, 0, "{}", tail.stderr);
    assert!(tail.stdout.contains("send.resumed"), "{}", tail.stdout);

    let workers = ask(url, &["workers"]).stdout;
    assert!(
        workers.contains("second") && !workers.contains("first"),
        "{workers}"
    );
    let doctor = cluster_doctor(&cluster);
    assert!(doctor.contains("ok       redis"), "{doctor}");
    assert_eq!(cluster.audit(), (Some(0), String::new()));

    for process in [&mut second, &mut scheduler] {
        process.signal("TERM");
        assert_eq!(process.wait(), Some(0));
    }
}

#[test]
fn both_roles_in_one_process_need_no_redis_and_meet_others_through_it() {
    if !has_servers() {
        return;
    }
    let cluster = Cluster::start();
    let port = free_port().expect("a free port");
    let mut command = cluster.command(&["serve", "--provider", "demo"]);
    command.args(["--listen", &format!("127.0.0.1:{port}")]);
    command.env_remove("MAINSPRING_REDIS_URL");
    // In a single process it creates its secrets key in this folder.
    let folder = tempfile::tempdir().expect("a folder");
    command.env("MAINSPRING_DATA_DIR", folder.path());
    let mut alone = Serving::role(command, format!("http://127.0.0.1:{port}"));
    serves(port);
    let hello = ask(&alone.url, &["send", "--wait", "hello"]);
    assert_eq!((hello.code, hello.stdout.as_str()), (0, "hello\n"));
    assert!(folder.path().join("secrets.key").exists());
    alone.signal("TERM");
    assert_eq!(alone.wait(), Some(0));

    let serve = ["serve", "--provider", "demo", "--pool", "elsewhere"];
    let (mut both, port) = cluster.begin(&serve, "--listen");
    serves(port);
    let (mut worker, worker_port) = cluster.worker("beside");
    serves(worker_port);
    // Only the other process serves the default pool.
    let hello = ask(&both.url, &["send", "--wait", "hello"]);
    assert_eq!((hello.code, hello.stdout.as_str()), (0, "hello\n"));
    assert_eq!(cluster.audit(), (Some(0), String::new()));
    for process in [&mut worker, &mut both] {
        process.signal("TERM");
        assert_eq!(process.wait(), Some(0));
    }
}

fn cluster_doctor(cluster: &Cluster) -> String {
    let mut command = mainspring();
    command.args(["doctor", "--database-url", &cluster.database]);
    command.args(["--redis-url", &cluster.redis.url()]);
    String::from_utf8(command.output().expect("runs").stdout).expect("UTF-8")
}

#[test]
fn a_schema_made_by_hand_is_accepted_and_a_violated_invariant_is_shown() {
    if !has_servers() {
        return;
    }
    let cluster = Cluster::start();
    let printed = mainspring()
        .args(["migrate", "--print", "--database-url", &cluster.database])
        .output()
        .expect("runs");
    let ddl = String::from_utf8(printed.stdout).expect("UTF-8");
    cluster
        .postgres
        .query("cluster", &ddl)
        .expect("the statements are valid");
    let verified = cluster.scheduler(&["--migrate", "verify"]);
    assert_eq!(ask(&verified.url, &["sessions", "create"]).code, 0);
    assert_eq!(cluster.audit().0, Some(0));

    let clock = mainspring_runtime::SystemClock::new();
    let planted = clock.monotonic();
    cluster
        .postgres
        .query("cluster", "UPDATE session_hot SET next_seq = 9")
        .expect("planted");
    let (code, stdout) = cluster.audit();
    assert_eq!(code, Some(1));
    assert!(stdout.starts_with("session.seq_gap_free: "), "{stdout}");
    assert!(stdout.contains("\n  {"), "no row is shown: {stdout}");
    // The scheduler finds it on its own, although nobody touches the session.
    eventually("the live audit tells of it", || {
        let violated = r#"mainspring_audit_violations_total{invariant="session.seq_gap_free"} 1"#;
        metrics(&verified.url).contains(violated).then_some(())
    });
    let told = clock.monotonic().saturating_sub(planted);
    assert!(told < Duration::from_mins(1), "told after {told:?}");
}

#[test]
fn what_a_database_refuses_is_said_at_once_and_is_no_defect() {
    if !has_servers() {
        return;
    }
    let cluster = Cluster::start();
    let stranger = cluster
        .database
        .replace("postgres@", "nobody_of_this_name@");
    let elsewhere = format!("{}_elsewhere", cluster.database);
    for (url, code, says) in [
        (&stranger, 5, "the database refuses the login"),
        (&elsewhere, 3, "the server has no database of this name"),
    ] {
        let mut command = mainspring();
        command.args([
            "scheduler",
            "--listen",
            "127.0.0.1:0",
            "--database-url",
            url,
        ]);
        command.args(["--redis-url", &cluster.redis.url()]);
        let ended: crate::commands::program::Ended = command.output().expect("runs").into();
        assert_eq!(ended.code, code, "{}", ended.stderr);
        assert!(
            ended.stderr.contains(says) && ended.stderr.contains("(store.denied)"),
            "{}",
            ended.stderr
        );
        assert!(!ended.stderr.contains("defect"), "{}", ended.stderr);
    }
}

#[test]
fn a_redis_that_is_not_there_is_warned_of_once() {
    if !has_servers() {
        return;
    }
    let cluster = Cluster::start();
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let port = free_port().expect("a free port");
    let mut command = cluster.command(&["scheduler", "--listen", &format!("127.0.0.1:{port}")]);
    command.env("MAINSPRING_REDIS_URL", "redis://127.0.0.1:1");
    command.stderr(std::fs::File::create(&log).expect("a file"));
    let _scheduler = Serving::role(command, format!("http://127.0.0.1:{port}"));
    serves(port);
    let read = || std::fs::read_to_string(&log).expect("can be read");
    eventually("the warning", || {
        read().contains("redis is unavailable").then_some(())
    });
    // Database round trips leave time for any further log lines.
    for _ in 0..3 {
        ask(&format!("http://127.0.0.1:{port}"), &["queue"]);
    }
    assert_eq!(
        read().matches("redis is unavailable").count(),
        1,
        "{}",
        read()
    );
}
