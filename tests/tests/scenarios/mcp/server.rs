//! The MCP server of the tests. Over stdio it is this test program, started again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

/// Environment variable that is set for the server over stdio.
pub(crate) const ROLE: &str = "MAINSPRING_MCP_SUITE_SERVES";

/// How a server dies.
#[derive(Debug, Clone)]
pub(crate) enum Death {
    /// Its process aborts.
    Abort,
    /// The task that runs it is notified.
    Told(Arc<Notify>),
}

#[derive(Debug, Clone)]
pub(crate) struct TestServer {
    pub(crate) death: Death,
    pub(crate) grown: Arc<AtomicBool>,
}

impl TestServer {
    pub(crate) fn new(death: Death) -> Self {
        Self {
            death,
            grown: Arc::default(),
        }
    }

    async fn die(&self) -> CallToolResult {
        match &self.death {
            Death::Abort => std::process::abort(),
            Death::Told(notify) => notify.notify_one(),
        }
        std::future::pending().await
    }

    /// Dies the first time; a marker file tells the second time apart.
    async fn die_once(&self, arguments: &Value) -> CallToolResult {
        let marker = arguments["marker"].as_str().expect("a path");
        if Path::new(marker).exists() {
            return said("survived");
        }
        tokio::fs::write(marker, "")
            .await
            .expect("a writable folder");
        self.die().await
    }
}

fn said(text: &str) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

/// Opens a port that echoes for ever, by which tests see whether this process is alive.
async fn listen() -> CallToolResult {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut byte = [0];
                while stream.read_exact(&mut byte).await.is_ok() {
                    stream.write_all(&byte).await.expect("a reader");
                }
            });
        }
    });
    said(&port.to_string())
}

/// Writes nonsense of every kind that fits in a line, and no answer.
async fn talk_nonsense() -> CallToolResult {
    let lines = [
        "garbage",
        "{\"jsonrpc\": \"2.0\", \"id\": 999, \"result\": {}}",
        "{\"jsonrpc\": \"2.0\"}",
        "[1, 2, 3]",
        "{\"jsonrpc\": \"2.0\", \"method\": 7}",
        "\u{0}\u{1}",
    ];
    let mut out = tokio::io::stdout();
    for line in lines {
        out.write_all(format!("{line}\n").as_bytes())
            .await
            .expect("a pipe");
    }
    out.write_all(b"\xff\xfe\n").await.expect("a pipe");
    out.flush().await.expect("a pipe");
    std::future::pending().await
}

fn described(name: &'static str, annotations: Option<ToolAnnotations>) -> Tool {
    let schema = json!({"type": "object", "properties": {"marker": {"type": "string"}}});
    let Value::Object(schema) = schema else {
        unreachable!("an object was written")
    };
    let tool = Tool::new(name, format!("Does {name}."), schema);
    match annotations {
        Some(annotations) => tool.annotate(annotations),
        None => tool,
    }
}

impl ServerHandler for TestServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed();
        ServerConfig::new(capabilities.build())
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let read_only = || Some(ToolAnnotations::new().read_only(true));
        let idempotent = || Some(ToolAnnotations::new().idempotent(true));
        let mut tools = vec![
            described("text.say", read_only()),
            described("text_say", None),
            described("value", None),
            described("image", None),
            described("fail", None),
            described("refuse", None),
            described("meta", None),
            described("listen", None),
            described("hang", None),
            described("hang_safe", read_only()),
        ];
        let mut more = vec![
            described("nonsense", read_only()),
            described("die", None),
            described("die_safe", read_only()),
            described("die_once_safe", read_only()),
            described("die_once_keyed", idempotent()),
            described("grow", None),
        ];
        if self.grown.load(Ordering::SeqCst) {
            more.push(described("grown", None));
        }
        let second_page = request.is_some_and(|page| page.cursor.as_deref() == Some("2"));
        if second_page {
            return Ok(ListToolsResult::with_all_items(more));
        }
        tools.reverse();
        let mut page = ListToolsResult::with_all_items(tools);
        page.next_cursor = Some("2".to_owned());
        Ok(page)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let result = match &*request.name {
            "text.say" => said(&format!("dot {arguments}")),
            "text_say" => said(&format!("line {arguments}")),
            "value" => CallToolResult::structured(json!({"n": 1})),
            "image" => CallToolResult::success(vec![
                ContentBlock::text("see"),
                ContentBlock::image("iVBORw0KGgo=", "image/png"),
            ]),
            "fail" => CallToolResult::error(vec![ContentBlock::text("it went wrong")]),
            "refuse" => return Err(ErrorData::invalid_params("not like this", None)),
            "meta" => {
                let id = context.meta.get("mainspring/call-id");
                said(&id.cloned().unwrap_or_default().to_string())
            }
            "listen" => listen().await,
            "hang" | "hang_safe" => std::future::pending().await,
            "nonsense" => talk_nonsense().await,
            "die" | "die_safe" => self.die().await,
            "die_once_safe" | "die_once_keyed" => self.die_once(&arguments).await,
            "grow" => {
                self.grown.store(true, Ordering::SeqCst);
                context
                    .peer
                    .notify_tool_list_changed()
                    .await
                    .expect("a client");
                said("grown")
            }
            other => return Err(ErrorData::invalid_params(format!("no {other}"), None)),
        };
        Ok(result.into())
    }
}

/// Not a test but the server over stdio: it does nothing unless the tests have started it. The
/// harness prints a line first, as many real servers do.
#[tokio::test]
async fn serves_over_stdio() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let server = TestServer::new(Death::Abort);
    let running = server
        .serve(rmcp::transport::stdio())
        .await
        .expect("a client");
    running.waiting().await.expect("no panic");
}
