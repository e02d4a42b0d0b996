//! Servers behind a URL.

use std::net::SocketAddr;

use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use mainspring_worker::llm::Secret;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use super::server::{Death, TestServer};
use super::*;

/// A server that is restarted when it dies, at the same address and without its sessions.
struct Served {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Served {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            loop {
                let death = Arc::new(Notify::new());
                tokio::select! {
                    () = serve(&listener, death.clone()) => {}
                    () = death.notified() => {}
                }
            }
        });
        Self { address, task }
    }

    fn transport(&self, headers: Vec<(String, Secret)>) -> Transport {
        Transport::Http {
            url: format!("http://{}/mcp", self.address),
            headers,
            sources: Box::default(),
        }
    }

    fn pool(&self, timeout: Duration) -> Pool {
        pool(self.transport(Vec::new()), timeout, LONG)
    }
}

/// One life of the server; dropping it breaks its connections.
async fn serve(listener: &TcpListener, death: Arc<Notify>) {
    let server = TestServer::new(Death::Told(death));
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let service = TowerToHyperService::new(service.clone());
        connections.spawn(async move {
            let serving = hyper::server::conn::http1::Builder::new();
            // The client may disconnect at any time.
            let _ = serving
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

#[tokio::test]
async fn a_healthy_server_is_used() {
    let served = Served::start().await;
    common::a_healthy_server_is_used(&served.pool(LONG)).await;
}

#[tokio::test]
async fn an_agent_chooses_and_prefixes() {
    let served = Served::start().await;
    common::an_agent_chooses_and_prefixes(&served.pool(LONG)).await;
}

#[tokio::test]
async fn a_call_that_hangs_ends_in_time() {
    let served = Served::start().await;
    common::a_call_that_hangs_ends_in_time(&served.pool(Duration::from_millis(700))).await;
}

#[tokio::test]
async fn a_stopped_call_ends() {
    let served = Served::start().await;
    common::a_stopped_call_ends(&served.pool(LONG)).await;
}

#[tokio::test]
async fn a_changed_list_is_asked_for_again() {
    let served = Served::start().await;
    common::a_changed_list_is_asked_for_again(&served.pool(LONG)).await;
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_is_found_again() {
    let served = Served::start().await;
    common::a_server_that_dies_in_a_call_is_started_again(&served.pool(LONG)).await;
}

#[tokio::test]
async fn nobody_there_is_told_without_the_address() {
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let transport = Transport::Http {
        url: format!("http://user:secret@{address}/mcp?key=secret"),
        headers: Vec::new(),
        sources: Box::default(),
    };
    let error = tools(&pool(transport, LONG, LONG))
        .await
        .expect_err("nobody");
    let expected = "the MCP server it cannot be used: there is no connection to it";
    assert_eq!(error.to_string(), expected);
}

/// Starts a raw server that gives its request this answer, and returns what it received.
async fn answering(answer: &'static str) -> (SocketAddr, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !is_whole(&request) {
            assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(request).unwrap()
    });
    (address, task)
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: "));
    length.expect("a length").parse() == Ok(body.len())
}

#[tokio::test]
async fn what_is_no_mcp_server_is_told_so() {
    let refused = "it does not answer as an MCP server";
    for (answer, detail) in [
        (
            "HTTP/1.1 200 X\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\n<p/>",
            refused,
        ),
        (
            "HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
            refused,
        ),
        (
            "HTTP/1.1 307 X\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
            refused,
        ),
        (
            "HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n",
            "its server answered 503",
        ),
        (
            "HTTP/1.1 401 X\r\nwww-authenticate: Bearer\r\ncontent-length: 0\r\n\r\n",
            "its server asks for authorization",
        ),
    ] {
        let (address, task) = answering(answer).await;
        let transport = Transport::Http {
            url: format!("http://{address}/"),
            headers: vec![("x-key".to_owned(), Secret::new("sk-secret"))],
            sources: Box::default(),
        };
        let error = tools(&pool(transport, LONG, LONG)).await.expect_err(answer);
        let expected = format!("the MCP server it cannot be used: {detail}");
        assert_eq!(error.to_string(), expected, "{answer}");
        let request = task.await.unwrap();
        assert!(request.contains("x-key: sk-secret\r\n"), "{request}");
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_is_left_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let transport = Transport::Http {
        url: format!("http://{}/", listener.local_addr().unwrap()),
        headers: Vec::new(),
        sources: Box::default(),
    };
    let pool = pool(transport, LONG, Duration::from_millis(200));
    let error = tools(&pool).await.expect_err("no server");
    assert!(matches!(error, Error::Slow { .. }), "{error}");
    let again = call_error(&pool).await;
    assert!(again.contains("was not ready within 200ms"), "{again}");
}

async fn call_error(pool: &Pool) -> String {
    tools(pool).await.expect_err("no server").to_string()
}

#[tokio::test]
async fn secrets_are_sent_and_never_shown() {
    let served = Served::start().await;
    let headers = vec![("authorization".to_owned(), Secret::new("Bearer sk-secret"))];
    let pool = pool(served.transport(headers), LONG, LONG);
    let tool = tool(&pool, "text_say").await;
    assert_eq!(text(tool.call(invocation(json!({}))).await), "line {}");
    for shown in [format!("{pool:?}"), format!("{tool:?}")] {
        assert!(!shown.contains("sk-secret"), "{shown}");
    }
}
