//! Connections that hold their place without using it, and bodies that are too large in total.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::world::{Scheduler, World};

/// Long enough for a slow machine; a test that takes this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Opens a connection and sends these bytes.
async fn saying(api: &Scheduler, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(api.addr).await.expect("connects");
    stream.write_all(bytes).await.expect("writes");
    stream
}

/// Reads everything until the other side closes.
async fn rest(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut text)).await;
    // A reset also counts as closed.
    let _ = read.expect("the connection is closed in time");
    String::from_utf8(text).expect("utf-8")
}

#[tokio::test]
async fn who_brings_no_request_is_not_waited_for() {
    let world = World::new().await;
    let quick = |config: &mut mainspring_scheduler::SchedulerConfig| {
        config.head_timeout = Duration::from_millis(300);
    };
    let api = world.scheduler_with(quick).await;
    let mut waiting = Vec::new();
    for said in [
        "",
        "P",
        "PRI * HTTP/2.0\r\n",
        "GET /livez HTTP/1.1\r\nhos",
        "\r\n",
    ] {
        waiting.push((said, saying(&api, said.as_bytes()).await));
    }
    for (said, stream) in waiting {
        assert_eq!(rest(stream).await, "", "{said:?}");
    }
    // A connection that has made a request is closed once it stays idle.
    let idle = saying(&api, b"GET /livez HTTP/1.1\r\nhost: test\r\n\r\n").await;
    let heard = rest(idle).await;
    assert!(
        heard.starts_with("HTTP/1.1 200") && heard.ends_with("ok\n"),
        "{heard}"
    );
}

#[tokio::test]
async fn a_head_has_its_bound() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| config.head_bytes_max = 8_192)
        .await;
    let head = |bytes: usize| {
        let filler = "x".repeat(bytes);
        format!(
            "GET /livez HTTP/1.1\r\nhost: test\r\nconnection: close\r\nfiller: {filler}\r\n\r\n"
        )
    };
    let fits = saying(&api, head(6_000).as_bytes()).await;
    assert!(rest(fits).await.starts_with("HTTP/1.1 200"));
    let large = saying(&api, head(20_000).as_bytes()).await;
    let told = rest(large).await;
    assert!(
        told.is_empty() || told.starts_with("HTTP/1.1 431"),
        "{told}"
    );
}

#[tokio::test]
async fn connections_beyond_the_bound_are_told_so() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| config.connections_max = 3)
        .await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut stream = saying(&api, b"GET /livez HTTP/1.1\r\nhost: test\r\n\r\n").await;
        let mut heard = [0; 15];
        let read = timeout(PATIENCE, stream.read_exact(&mut heard)).await;
        read.expect("an answer in time").expect("an answer");
        assert_eq!(&heard, b"HTTP/1.1 200 OK");
        held.push(stream);
    }
    for path in ["/v1/info", "/readyz", "/livezx"] {
        let refused = api.get(path).await;
        assert_eq!(refused.problem(429, "limit.exceeded")["retryable"], true);
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    // So are connections that send nothing, and ones that send a lot.
    for said in ["", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &"x".repeat(10_000)] {
        let told = rest(saying(&api, said.as_bytes()).await).await;
        assert!(told.starts_with("HTTP/1.1 429"), "{told}");
    }
    // A full process is alive: it must not be killed because of its readers.
    let probe = b"GET /livez HTTP/1.1\r\nhost: 10.0.0.7:7464\r\nuser-agent: kube-probe\r\n\r\n";
    let told = rest(saying(&api, probe).await).await;
    assert!(
        told.starts_with("HTTP/1.1 200 OK\r\n")
            && told.contains("\r\nconnection: close\r\n")
            && told.ends_with("\r\n\r\nok\n"),
        "{told}"
    );
    let (head, tail) = probe.split_at(7);
    let mut slow = saying(&api, head).await;
    slow.flush().await.expect("flushes");
    tokio::task::yield_now().await;
    slow.write_all(tail).await.expect("writes");
    assert!(rest(slow).await.starts_with("HTTP/1.1 200 OK"));
    held.pop();
    let free = async { while api.get("/v1/info").await.status == 429 {} };
    timeout(PATIENCE, free).await.expect("a place becomes free");
}

#[tokio::test]
async fn a_stream_that_nobody_reads_gives_its_place_back() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| {
            config.waiters_max = 1;
            config.write_timeout = Duration::from_millis(500);
        })
        .await;
    api.until_ready().await;
    let session = api.session().await;
    api.send(&session, "hi").await;
    // More than fits in the buffers on the way.
    let claimed = world.claim(&session).await;
    for round in 0..24 {
        world.append(&claimed, round, &"x".repeat(1 << 20)).await;
    }
    let path = format!("/v1/sessions/{session}/events");
    let head = format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n");
    let stream = saying(&api, head.as_bytes()).await;
    let busy = async { while api.get("/v1/sends?wait=1s").await.status != 429 {} };
    timeout(PATIENCE, busy)
        .await
        .expect("the stream has the place");
    let free = async { while api.get("/v1/sends?wait=1s").await.status == 429 {} };
    timeout(PATIENCE, free)
        .await
        .expect("the place is free again");
    drop(stream);
}

#[tokio::test]
async fn bodies_are_bounded_together() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| {
            config.bodies_bytes_max = 20_000;
            config.body_bytes_max = 16_000;
            config.batch_bytes_max = 30_000;
        })
        .await;
    api.until_ready().await;
    let sized = |bytes: usize| json!({ "input": "x".repeat(bytes) });
    let whole = sized(15_000).to_string();
    let head = format!(
        "POST /v1/sends HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\
        content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        whole.len()
    );
    let (most, last) = whole.as_bytes().split_at(whole.len() - 1);
    let mut slow = saying(&api, head.as_bytes()).await;
    // An announced body takes no room until it arrives.
    api.post("/v1/sends", &sized(15_000)).await.ok(202);
    slow.write_all(most).await.expect("writes");
    let full = async {
        loop {
            let answer = api.post("/v1/sends", &sized(8_000)).await;
            if answer.status != 202 {
                return answer;
            }
        }
    };
    let refused = timeout(PATIENCE, full).await.expect("it becomes full");
    assert_eq!(refused.problem(429, "limit.exceeded")["retryable"], true);
    assert_eq!(refused.header("retry-after"), Some("1"));
    let chunked = api.call("POST", "/v1/sends").json(&sized(8_000)).chunked();
    chunked.send().await.problem(429, "limit.exceeded");
    api.post("/v1/sends", &sized(1_000)).await.ok(202);
    slow.write_all(last).await.expect("writes");
    assert!(rest(slow).await.starts_with("HTTP/1.1 202"));
    api.post("/v1/sends", &sized(8_000)).await.ok(202);
    // A body that can never fit gets a permanent error.
    let large = json!({ "sends": [sized(14_000), sized(14_000)] });
    let refused = api.post("/v1/sends:batch", &large).await;
    refused.problem(413, "request.too_large");
}

#[tokio::test]
async fn who_waits_for_an_answer_holds_no_body() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| config.bodies_bytes_max = 20_000)
        .await;
    api.until_ready().await;
    let session = api.session().await;
    let path = format!("/v1/sessions/{session}/sends");
    let large = json!({ "input": "x".repeat(15_000) });
    let call = api.call("POST", &format!("{path}?wait=20s")).json(&large);
    let waiting = tokio::spawn(call.send());
    let claimed = loop {
        if api.get("/v1/sends").await.ok(200)["data"] != json!([]) {
            break world.claim(&session).await;
        }
    };
    api.post(&path, &large).await.ok(202);
    world.complete(&claimed, 0, "done").await;
    assert_eq!(waiting.await.expect("joins").ok(200)["output_text"], "done");
}
