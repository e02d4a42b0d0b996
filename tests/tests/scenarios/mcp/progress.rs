//! Calls that report their progress, and calls that are not wanted any longer.

use std::sync::Mutex as StdMutex;

use mainspring_worker::tool::{Progress, ProgressReport};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig,
    Tool as McpTool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use serde_json::json;

use super::*;

/// The limit of a call that reports nothing.
const IDLE: Duration = Duration::from_millis(1_500);

/// A server whose tools report progress, and that notes which calls were cancelled.
#[derive(Debug, Clone, Default)]
struct Reporting {
    cancelled: Arc<StdMutex<Vec<String>>>,
}

impl ServerHandler for Reporting {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tool = |name: &'static str| McpTool::new(name, name, Map::new());
        let tools = ["steps", "forever", "hang"].map(tool);
        Ok(ListToolsResult::with_all_items(tools.to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.to_string();
        let steps = match &*name {
            "steps" => 8,
            "forever" => u32::MAX,
            _ => 0,
        };
        let token = context.meta.get_progress_token();
        let work = async {
            for step in 1..=steps {
                wait(IDLE / 4).await;
                let Some(token) = token.clone() else { continue };
                let mut report = ProgressNotificationParam::new(token, f64::from(step));
                report.total = Some(f64::from(steps));
                report.message = Some(format!("step {step}"));
                let _ = context.peer.notify_progress(report).await;
            }
            if steps == 0 {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = work => {}
            () = context.ct.cancelled() => self.cancelled.lock().unwrap().push(name),
        }
        let said = vec![ContentBlock::text("done")];
        Ok(CallToolResult::success(said).into())
    }
}

/// Waits in real time: what is measured here is.
async fn wait(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

/// The server behind a URL, in this process.
async fn serve(server: Reporting) -> Transport {
    use hyper_util::rt::TokioIo;
    use hyper_util::service::TowerToHyperService;
    use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
    use rmcp::transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService,
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(async move {
                let serving = hyper::server::conn::http1::Builder::new();
                let _ = serving
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    Transport::Http {
        url,
        headers: Vec::new(),
        sources: Box::default(),
    }
}

/// Environment variable that is set for the server over stdio.
const ROLE: &str = "MAINSPRING_MCP_REPORTS";

/// Not a test but the server over stdio: it does nothing unless the tests have started it.
#[tokio::test]
async fn serves_reports() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let running = Reporting::default()
        .serve(rmcp::transport::stdio())
        .await
        .unwrap();
    running.waiting().await.unwrap();
}

fn over_stdio() -> Transport {
    let args = ["--exact", "mcp::progress::serves_reports", "--nocapture"];
    Transport::Stdio {
        command: std::env::current_exe()
            .unwrap()
            .to_str()
            .expect("UTF-8")
            .to_owned(),
        args: args.map(str::to_owned).to_vec(),
        env: BTreeMap::from([(ROLE.to_owned(), mainspring_worker::llm::Secret::new("yes"))]),
    }
}

/// A call, and what it reported.
async fn reported(pool: &Pool, name: &str) -> (Result<Output, ToolError>, Vec<ProgressReport>) {
    let reports = Arc::new(StdMutex::new(Vec::new()));
    let kept = reports.clone();
    let clock = Arc::new(mainspring_runtime::SystemClock::new());
    let progress = Progress::new(clock, move |report| kept.lock().unwrap().push(report));
    let over = tool(pool, name)
        .await
        .call(Invocation {
            progress,
            ..invocation(json!({}))
        })
        .await;
    let reports = reports.lock().unwrap().clone();
    (over, reports)
}

async fn progress_extends_the_limit_and_is_shown(transport: Transport) {
    let pool = pool(transport, IDLE, LONG);
    // Eight steps take twice as long as the limit.
    let (over, reports) = reported(&pool, "steps").await;
    assert_eq!(text(over), "done");
    let last = reports.last().expect("a report");
    assert_eq!(last.total, Some(8.0));
    assert!(
        last.message
            .as_deref()
            .unwrap_or_default()
            .starts_with("step "),
        "{last:?}"
    );
    // Progress without end does not hold the call beyond the cap.
    let (over, _) = reported(&pool, "forever").await;
    let (_, message) = refusal(over);
    assert!(message.contains("within 5s"), "{message}");
}

#[tokio::test]
async fn progress_extends_the_limit_up_to_a_cap_over_http() {
    progress_extends_the_limit_and_is_shown(serve(Reporting::default()).await).await;
}

#[tokio::test]
async fn progress_extends_the_limit_up_to_a_cap_over_stdio() {
    progress_extends_the_limit_and_is_shown(over_stdio()).await;
}

#[tokio::test]
async fn a_server_is_told_of_calls_that_are_stopped_or_too_slow() {
    let server = Reporting::default();
    let cancelled = server.cancelled.clone();
    let told = async |count: usize| {
        let seen = async {
            while cancelled.lock().unwrap().len() < count {
                wait(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LONG, seen)
            .await
            .expect("the notice arrives");
    };
    let pool = pool(serve(server).await, IDLE, LONG);
    let hang = tool(&pool, "hang").await;
    let (_, message) = refusal(hang.call(invocation(json!({}))).await);
    assert!(message.contains("within 1.5s"), "{message}");
    told(1).await;
    let steps = tool(&pool, "steps").await;
    let stopped = invocation(json!({}));
    let stop = stopped.stop.clone();
    let call = tokio::spawn(async move { steps.call(stopped).await });
    wait(IDLE / 2).await;
    stop.cancel();
    let (code, _) = refusal(call.await.unwrap());
    assert_eq!(code, Code::ToolInterrupted);
    told(2).await;
    assert_eq!(*cancelled.lock().unwrap(), ["hang", "steps"]);
}
