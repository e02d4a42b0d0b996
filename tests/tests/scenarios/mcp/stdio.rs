//! Servers that are child processes of the worker.

use mainspring_worker::llm::Secret;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

/// Timeout of calls that are expected to time out: short, because some tests wait for it.
const SHORT: Duration = Duration::from_millis(700);

/// This program again, as a server.
fn this() -> Transport {
    let program = std::env::current_exe().unwrap();
    let args = ["--exact", "mcp::server::serves_over_stdio", "--nocapture"];
    Transport::Stdio {
        command: program.to_str().expect("UTF-8").to_owned(),
        args: args.map(str::to_owned).to_vec(),
        env: BTreeMap::from([(server::ROLE.to_owned(), Secret::new("yes"))]),
    }
}

fn shell(script: &str) -> Transport {
    Transport::Stdio {
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned()],
        env: BTreeMap::from([("KEY".to_owned(), Secret::new("sk-secret"))]),
    }
}

#[tokio::test]
async fn a_healthy_server_is_used() {
    common::a_healthy_server_is_used(&pool(this(), LONG, LONG)).await;
}

#[tokio::test]
async fn an_agent_chooses_and_prefixes() {
    common::an_agent_chooses_and_prefixes(&pool(this(), LONG, LONG)).await;
}

#[tokio::test]
async fn a_call_that_hangs_ends_in_time() {
    common::a_call_that_hangs_ends_in_time(&pool(this(), SHORT, LONG)).await;
}

#[tokio::test]
async fn a_stopped_call_ends() {
    common::a_stopped_call_ends(&pool(this(), LONG, LONG)).await;
}

#[tokio::test]
async fn a_changed_list_is_asked_for_again() {
    common::a_changed_list_is_asked_for_again(&pool(this(), LONG, LONG)).await;
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_is_started_again() {
    common::a_server_that_dies_in_a_call_is_started_again(&pool(this(), LONG, LONG)).await;
}

#[tokio::test]
async fn all_agents_share_one_process() {
    let pool = pool(this(), LONG, LONG);
    let (one, other) = tokio::join!(tools(&pool), tools(&pool));
    let (one, other) = (one.unwrap(), other.unwrap());
    let port = text(one["listen"].call(invocation(json!({}))).await);
    assert_ne!(
        port,
        text(other["listen"].call(invocation(json!({}))).await)
    );
    // The second answer came from the same process as the first, which is still alive.
    let stream = TcpStream::connect(format!("127.0.0.1:{port}")).await;
    assert!(stream.is_ok(), "{stream:?}");
    let grown = text(one["grow"].call(invocation(json!({}))).await);
    assert_eq!(grown, "grown");
    let seen = async {
        while !tools(&pool).await.unwrap().contains_key("grown") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, seen)
        .await
        .expect("one process was told and asked");
}

#[tokio::test]
async fn nonsense_in_a_call_is_no_answer_and_no_harm() {
    let pool = pool(this(), SHORT, LONG);
    let (code, message) = refusal(call(&pool, "nonsense", json!({})).await);
    assert_eq!(code, Code::ToolTimeout, "{message}");
    assert_eq!(text(call(&pool, "text_say", json!({})).await), "line {}");
}

#[tokio::test]
async fn a_server_that_only_hangs_is_replaced() {
    let pool = pool(this(), SHORT, LONG);
    let port = text(call(&pool, "listen", json!({})).await);
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}"))
        .await
        .unwrap();
    for _ in 0..3 {
        refusal(call(&pool, "hang_safe", json!({})).await);
    }
    assert!(ends(&mut stream).await);
    assert_eq!(text(call(&pool, "text_say", json!({})).await), "line {}");
}

#[tokio::test]
async fn servers_die_with_their_pool() {
    let pool = pool(this(), LONG, LONG);
    let port = text(call(&pool, "listen", json!({})).await);
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}"))
        .await
        .unwrap();
    stream.write_all(b"x").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'x');
    drop(pool);
    assert!(ends(&mut stream).await);
}

/// Whether the connection ends with an error, because the process at the other end is gone.
async fn ends(stream: &mut TcpStream) -> bool {
    let end = tokio::time::timeout(LONG, stream.read_u8());
    end.await.expect("it ends in time").is_err()
}

#[tokio::test]
async fn a_server_that_is_not_ready_in_time_is_left() {
    for script in [
        "sleep 600",
        "while :; do echo garbage; sleep 0.01; done",
        "cat",
    ] {
        let pool = pool(shell(script), LONG, Duration::from_millis(200));
        let error = tools(&pool).await.expect_err(script);
        let slow = matches!(&error, Error::Slow { server, .. } if server == "it");
        // A program that echoes our own request is no server either, and is recognized at once.
        let echo = script == "cat" && matches!(error, Error::Start { .. });
        assert!(slow || echo, "{script}: {error}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_start_says_why_without_its_secrets() {
    let pool_of = |script| pool(shell(script), LONG, LONG);
    let error = tools(&pool_of("echo wrong key $KEY >&2; exit 3")).await;
    let error = error.expect_err("no server").to_string();
    let expected = "the MCP server it cannot be used: it closed the connection \
                    (exit status: 3): wrong key [redacted]";
    assert_eq!(error, expected);

    let missing = Transport::Stdio {
        command: "/nowhere/at/all".to_owned(),
        args: Vec::new(),
        env: BTreeMap::new(),
    };
    let error = tools(&pool(missing, LONG, LONG))
        .await
        .expect_err("no server");
    assert!(error.to_string().contains("does not start"), "{error}");

    let unknown = McpTools {
        server: "other".to_owned(),
        ..wanted("", None)
    };
    let error = pool_of("cat").tools(&unknown).await.expect_err("no server");
    let server = "other".to_owned();
    assert_eq!(error, Error::Unknown { server });
}

/// Tries until the pool stops waiting; returns the number of attempts, and how long the server is
/// left alone.
async fn left_alone(pool: &Pool) -> (u32, Duration) {
    for started in 0..10 {
        if let Error::Away { wait, .. } = tools(pool).await.expect_err("no server") {
            return (started, wait);
        }
    }
    panic!("it is tried for ever");
}

#[tokio::test]
async fn a_server_that_keeps_failing_is_left_alone_for_longer_and_longer() {
    let clock = Arc::new(Leaping::default());
    let pool = pool_at(&clock, shell("exit 1"), LONG, LONG);
    // Half a second, one and two are waited out.
    assert_eq!(left_alone(&pool).await, (4, Duration::from_secs(4)));
    for seconds in [8, 16, 32, 60, 60] {
        let (_, wait) = left_alone(&pool).await;
        clock.sleep(wait).await;
        let again = left_alone(&pool).await;
        assert_eq!(again, (1, Duration::from_secs(seconds)));
    }
}

/// A session's prompt does not change while a server is away.
#[tokio::test]
async fn tools_of_a_server_that_is_away_stay_on_offer() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken");
    let Transport::Stdio { command, args, env } = this() else {
        panic!("stdio");
    };
    let script = format!(
        "test -e {} && exit 1; exec {command} {}",
        broken.display(),
        args.join(" ")
    );
    let transport = Transport::Stdio {
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), script],
        env,
    };
    let clock = Arc::new(Leaping::default());
    let pool = pool_at(&clock, transport, LONG, LONG);
    let before: Vec<String> = tools(&pool).await.unwrap().into_keys().collect();
    std::fs::write(&broken, "").unwrap();
    refusal(call(&pool, "die", json!({})).await);
    let after: Vec<String> = tools(&pool).await.unwrap().into_keys().collect();
    assert_eq!(before, after);
    let (code, message) = refusal(call(&pool, "text_say", json!({})).await);
    assert_eq!(code, Code::ToolFailed, "{message}");

    std::fs::remove_file(&broken).unwrap();
    clock.sleep(LONG).await;
    assert_eq!(text(call(&pool, "text_say", json!({})).await), "line {}");
}
