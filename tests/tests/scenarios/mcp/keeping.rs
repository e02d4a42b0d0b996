//! What is left of a server that is away, and what models read of one besides its tools.

use mainspring_shared::store::Store;
use mainspring_store_model::ModelStore;
use serde_json::json;

use super::script::{Out, Scripted, error, handshake, result};
use super::*;

fn script(_: &str, request: &Value, _: usize) -> Vec<Out> {
    let said = match request["method"].as_str().expect("a method") {
        "initialize" => handshake(),
        "tools/list" => json!({"tools": [
            {"name": "write", "description": "Writes.", "inputSchema": {"type": "object"}},
            {"name": "read", "annotations": {"readOnlyHint": true}}]}),
        "resources/list" => json!({"resources": [{"uri": "file:///a", "name": "a"}, 7]}),
        "resources/read" => {
            json!({"contents": [{"uri": request["params"]["uri"], "text": "inside"}]})
        }
        "prompts/list" => json!({"prompts": [{"name": "review", "icons": 3}]}),
        "prompts/get" => json!({"messages": [
            {"role": "user", "content": {"type": "text", "text": request["params"]["arguments"]["of"]}},
            {"role": "assistant", "content": {"type": "hologram"}}]}),
        _ => return vec![error(&request["id"], -32601, "not here", Value::Null)],
    };
    vec![result(request, said)]
}

fn cold(transport: Transport, store: &Arc<dyn Store>) -> Pool {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let settings = ServerSettings {
        start_timeout: LONG,
        ..ServerSettings::new(transport)
    };
    let servers = BTreeMap::from([("it".to_owned(), settings)]);
    let clock: Arc<dyn Clock> = Arc::new(Leaping::default());
    Pool::keeping(servers, &clock, Some(store)).expect("the settings are fine")
}

#[tokio::test]
async fn a_worker_that_has_just_started_offers_the_last_list_of_a_server_that_is_away() {
    let store: Arc<dyn Store> = Arc::new(ModelStore::open(Arc::new(Leaping::default())));
    let server = Scripted::start("", script, false).await;
    let transport = server.transport();
    let described = |tools: &BTreeMap<String, Arc<dyn Tool>>| {
        let all = tools.values().map(|tool| (tool.spec(), tool.traits()));
        format!("{:?}", all.collect::<Vec<_>>())
    };
    let seen = tools(&cold(transport.clone(), &store)).await.unwrap();
    assert_eq!(seen.len(), 2);
    drop(server);
    let pool = cold(transport, &store);
    let offered = tools(&pool).await.expect("the last list");
    assert_eq!(described(&offered), described(&seen));
    let (_, message) = refusal(offered["read"].call(invocation(json!({}))).await);
    assert!(message.contains("the MCP server it"), "{message}");
    // Another server of that name has another list.
    let other = Transport::Http {
        url: "http://127.0.0.1:1/other".to_owned(),
        headers: Vec::new(),
        sources: Box::default(),
    };
    assert!(tools(&cold(other, &store)).await.is_err());
}

#[tokio::test]
async fn resources_and_prompts_are_read_by_agents_that_ask_for_them() {
    let server = Scripted::start("", script, true).await;
    let pool = pool(server.transport(), LONG, LONG);
    assert_eq!(tools(&pool).await.unwrap().len(), 2);
    let asked = McpTools {
        resources: true,
        prompts: true,
        ..wanted("my_", Some(&["read"]))
    };
    let offered = pool.tools(&asked).await.unwrap();
    let names: Vec<String> = offered.iter().map(|tool| tool.spec().name).collect();
    let expected = [
        "my_read",
        "my_list_resources",
        "my_read_resource",
        "my_list_prompts",
        "my_get_prompt",
    ];
    assert_eq!(names, expected);
    let said = async |place: usize, arguments: Value| {
        text(offered[place].call(invocation(arguments)).await)
    };
    assert_eq!(said(1, json!({})).await, "file:///a (a)\n");
    assert_eq!(
        said(2, json!({"uri": "file:///a"})).await,
        "[file:///a]\ninside"
    );
    assert_eq!(said(3, json!({})).await, "review()\n");
    let prompt = said(4, json!({"name": "review", "arguments": {"of": "this"}})).await;
    assert!(
        prompt.contains("this") && prompt.contains("unsupported kind: hologram"),
        "{prompt}"
    );
}
