//! Searches over real sockets.

use mainspring_runtime::{OsEntropy, SystemClock};

use super::*;
use crate::web::site::{Page, Site, invocation};

const KEY_VALUE: &str = "tvly-0123456789";

fn search(engine: Engine, url: &str) -> WebSearch {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let settings = SearchSettings {
        engine,
        url: Some(url.to_owned()),
        key: Some(Secret::new(KEY_VALUE)),
    };
    let clock = Arc::new(SystemClock::new());
    WebSearch::new(&settings, clock, Arc::new(OsEntropy)).expect("the settings are fine")
}

async fn found(search: &WebSearch, arguments: Value) -> Result<Value, String> {
    let output = search.call(invocation(&arguments)).await;
    output
        .map(|output| output.value.expect("a value"))
        .map_err(|error| error.to_string())
}

#[tokio::test]
async fn every_engine_is_asked_in_its_own_way_and_answers_alike() {
    let results = |about: &str| {
        json!([
            { "title": "A <b>page</b>", "url": "https://a.example/", about: "x".repeat(600), "score": 1 },
            { "title": "no page", "url": "javascript:alert(1)", about: "" },
            { "title": format!("key {KEY_VALUE}"), "url": "https://b.example/", about: null },
            { "title": "third", "url": "https://c.example/", about: "" },
        ])
    };
    for (engine, answer, asked) in [
        (
            Engine::Searxng,
            json!({ "results": results("content") }),
            "GET /search?format=json&q=rust%20%26%20go HTTP/1.1",
        ),
        (
            Engine::Brave,
            json!({ "web": { "results": results("description") } }),
            "GET /search?count=2&q=rust%20%26%20go HTTP/1.1",
        ),
        (
            Engine::Tavily,
            json!({ "results": results("content") }),
            "POST /search HTTP/1.1",
        ),
    ] {
        let site =
            Site::start([("/search", Page::of("application/json", answer.to_string()))]).await;
        let search = search(engine, &site.url("/search"));
        let given = json!({ "query": "rust & go", "count": 2 });
        let found = found(&search, given).await.expect("results");
        let snippet = format!("{}…", "x".repeat(500));
        let expected = json!({ "results": [
            { "title": "A page", "url": "https://a.example/", "snippet": snippet },
            { "title": "key [redacted]", "url": "https://b.example/", "snippet": "" },
        ] });
        assert_eq!(found, expected, "{engine:?}");
        let head = site.heads().remove(0);
        assert!(head.starts_with(asked), "{head}");
        assert!(head.contains(KEY_VALUE), "{head}");
        assert_eq!(
            head.ends_with("{\"max_results\":2,\"query\":\"rust & go\"}"),
            engine == Engine::Tavily,
            "{head}"
        );
    }
}

#[tokio::test]
async fn what_is_no_list_of_results_is_a_failure_and_is_bounded() {
    let html = Page::of("text/html", "<html>log in</html>");
    let other = Page::of("application/json", "{\"error\": \"no\"}");
    let refusing = Page::with("403 No", KEY_VALUE);
    let endless = Page::Endless(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n[".to_vec(),
        b"1,".repeat(10_000),
    );
    for page in [html, other, refusing, endless] {
        let site = Site::start([("/search", page)]).await;
        let search = search(Engine::Searxng, &site.url("/search"));
        let why = found(&search, json!({ "query": "x" }))
            .await
            .expect_err("no results");
        assert!(
            why.contains("no list of results") || why.contains("answered 403: [redacted]"),
            "{why}"
        );
    }
}

#[test]
fn settings_that_lack_something_are_refused() {
    let new = |engine, url: Option<&str>| {
        let url = url.map(str::to_owned);
        let settings = SearchSettings {
            engine,
            url,
            key: None,
        };
        WebSearch::new(&settings, Arc::new(SystemClock::new()), Arc::new(OsEntropy)).map(drop)
    };
    assert!(
        new(Engine::Searxng, None)
            .expect_err("no address")
            .contains("tools.search_url")
    );
    assert!(
        new(Engine::Brave, None)
            .expect_err("no key")
            .contains("tools.search_key")
    );
    assert_eq!(new(Engine::Searxng, Some("http://10.0.0.1/search")), Ok(()));
}
