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
    let idle = saying(&api, b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let heard = rest(idle).await;
    assert!(
        heard.starts_with("HTTP/1.1 200") && heard.ends_with("ok\n"),
        "{heard}"
    );
}

/// The frames of HTTP/2 that these tests need.
mod h2 {
    /// What a client says first: the preface and its settings.
    pub(super) fn hello() -> Vec<u8> {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
        bytes
    }

    /// A `GET` on stream 1. The names of its four fields are in HPACK's static table.
    pub(super) fn get(path: &str) -> Vec<u8> {
        let mut block = vec![0x82, 0x86];
        for (name, value) in [(0x04, path), (0x01, "localhost")] {
            block.push(name);
            block.push(u8::try_from(value.len()).expect("is short"));
            block.extend(value.as_bytes());
        }
        let length = u8::try_from(block.len()).expect("is short");
        // HEADERS, with the flags for the end of the stream and of the headers.
        let mut bytes = vec![0, 0, length, 1, 5, 0, 0, 0, 1];
        bytes.extend(block);
        bytes
    }

    /// Takes the next whole frame out of these bytes: its type.
    pub(super) fn next(bytes: &mut Vec<u8>) -> Option<u8> {
        let (head, _) = bytes.split_at_checked(9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let kind = head[3];
        (bytes.len() >= 9 + length).then(|| {
            bytes.drain(..9 + length);
            kind
        })
    }

    pub(super) const DATA: u8 = 0;
}

#[tokio::test]
async fn an_http2_connection_without_requests_gives_its_place_back() {
    let world = World::new().await;
    let quick = |config: &mut mainspring_scheduler::SchedulerConfig| {
        config.head_timeout = Duration::from_millis(300);
        config.connections_max = 2;
    };
    let api = world.scheduler_with(quick).await;
    // One that never asks, and one that asked once. Their clients go on answering pings.
    let silent = saying(&api, &h2::hello()).await;
    let once = saying(&api, &[h2::hello(), h2::get("/livez")].concat()).await;
    for mut stream in [silent, once] {
        let mut heard = Vec::new();
        let closed = timeout(PATIENCE, stream.read_to_end(&mut heard)).await;
        assert!(closed.is_ok(), "the connection holds its place for ever");
    }
    assert_eq!(api.get("/livez").await.status, 200);
}

#[tokio::test]
async fn a_stream_keeps_its_connection_however_long_it_is_silent() {
    let world = World::new().await;
    let head_timeout = Duration::from_millis(100);
    let quick = |config: &mut mainspring_scheduler::SchedulerConfig| {
        config.head_timeout = head_timeout;
        config.heartbeat = 3 * head_timeout;
    };
    let api = world.scheduler_with(quick).await;
    api.until_ready().await;
    let path = format!("/v1/sessions/{}/events", api.session().await);
    let http2 = [h2::hello(), h2::get(&path)].concat();
    let http1 = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let mut http2 = saying(&api, &http2).await;
    let mut http1 = saying(&api, http1.as_bytes()).await;
    let (mut bytes, mut beats) = (Vec::new(), 0);
    let three_beats = async {
        while beats < 3 {
            assert!(
                http2.read_buf(&mut bytes).await.expect("reads") > 0,
                "it is closed"
            );
            while let Some(kind) = h2::next(&mut bytes) {
                beats += usize::from(kind == h2::DATA);
            }
        }
        let mut text = Vec::new();
        while text.windows(2).filter(|two| two == b"\n:").count() < 2 {
            assert!(
                http1.read_buf(&mut text).await.expect("reads") > 0,
                "it is closed"
            );
        }
    };
    timeout(PATIENCE, three_beats).await.expect("both go on");
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
            "GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nfiller: {filler}\r\n\r\n"
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
        let mut stream = saying(&api, b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
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
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
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
        "POST /v1/sends HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
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
