//! Credentials that expire: headers from files and programs, and tokens of an authorization server.

use std::path::Path;

use mainspring_tools::mcp::{HeaderSources, OAuthSettings};
use mainspring_worker::llm::Secret;
use serde_json::json;

use super::script::{Out, Scripted, handshake, result};
use super::*;

/// A server that accepts the token in the file that its way names. It is its own authorization
/// server, too.
fn script(valid: &str, request: &Value, times: usize) -> Vec<Out> {
    let token = std::fs::read_to_string(valid).expect("a token");
    let head = request["head"].as_str().expect("a head");
    let host = head
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .expect("a host");
    match request["method"].as_str().expect("a method") {
        "/.well-known/oauth-protected-resource/mcp" => {
            let about = json!({"resource": format!("http://{host}/mcp"),
                "authorization_servers": [format!("http://{host}/login")]});
            return vec![Out::Raw(about.to_string())];
        }
        "/.well-known/oauth-authorization-server/login" => {
            let about = json!({"issuer": format!("http://{host}/login"),
                "token_endpoint": format!("http://{host}/token")});
            return vec![Out::Raw(about.to_string())];
        }
        "/token" => {
            let given = json!({"access_token": token.trim(), "token_type": "Bearer",
                "expires_in": 3600, "refresh_token": format!("refresh-{}", times + 2)});
            return vec![Out::Raw(given.to_string())];
        }
        path if path.starts_with('/') => return vec![Out::Refuse(404, "no".to_owned())],
        _ => {}
    }
    if !format!("{head}\r\n").contains(&format!("authorization: Bearer {}\r\n", token.trim())) {
        let sent = head.lines().find(|line| line.starts_with("authorization"));
        return vec![Out::Refuse(
            401,
            format!("not {}", sent.unwrap_or("nothing")),
        )];
    }
    match request["method"].as_str().expect("a method") {
        "initialize" => vec![result(request, handshake())],
        "tools/list" => vec![result(request, json!({"tools": [{"name": "act"}]}))],
        _ => vec![result(
            request,
            json!({"content": [{"type": "text", "text": "done"}]}),
        )],
    }
}

struct Bed {
    folder: tempfile::TempDir,
    server: Scripted,
}

impl Bed {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let valid = folder.path().join("valid");
        std::fs::write(&valid, "token-one\n").unwrap();
        let way = valid.to_str().expect("UTF-8");
        let server = Scripted::start(way, script, false).await;
        Self { folder, server }
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn now_valid(&self, token: &str) {
        std::fs::write(self.file("valid"), token).unwrap();
    }

    /// Renewals are not refused for coming too soon: the clock leaps.
    fn pool(&self, sources: HeaderSources) -> (Pool, Arc<Leaping>) {
        let transport = match self.server.transport() {
            Transport::Http { url, headers, .. } => Transport::Http {
                url,
                headers,
                sources: Box::new(sources),
            },
            stdio @ Transport::Stdio { .. } => stdio,
        };
        let clock = Arc::new(Leaping::default());
        (pool_at(&clock, transport, LONG, LONG), clock)
    }

    fn asked(&self, method: &str) -> usize {
        let got = self.server.got.lock().unwrap();
        got.iter()
            .filter(|(_, body)| body["method"] == method)
            .count()
    }

    fn forms(&self) -> Vec<(String, String)> {
        let got = self.server.got.lock().unwrap();
        let tokens = got.iter().filter(|(_, body)| body["method"] == "/token");
        tokens
            .map(|(head, body)| (head.clone(), body["form"].as_str().unwrap().to_owned()))
            .collect()
    }
}

async fn read_again(bed: &Bed, sent: &Path, sources: HeaderSources) {
    let (pool, clock) = bed.pool(sources);
    let act = tool(&pool, "act").await;
    assert_eq!(text(act.call(invocation(json!({}))).await), "done");
    for token in ["token-two", "token-three"] {
        clock.sleep(Duration::from_mins(1)).await;
        bed.now_valid(token);
        std::fs::write(sent, format!("Bearer {token}\n")).unwrap();
        let before = bed.asked("tools/call");
        assert_eq!(text(act.call(invocation(json!({}))).await), "done");
        assert_eq!(bed.asked("tools/call"), before + 2, "refused, and accepted");
    }
    // A token that stays wrong is told, without being shown, and costs one request.
    bed.now_valid("token-four");
    let before = bed.asked("tools/call");
    let (_, message) = refusal(act.call(invocation(json!({}))).await);
    assert!(message.contains("asks for authorization"), "{message}");
    assert!(!message.contains("token-three"), "{message}");
    assert_eq!(bed.asked("tools/call"), before + 1);
}

#[tokio::test]
async fn a_header_from_a_file_is_read_again_when_it_is_refused() {
    let bed = Bed::new().await;
    let sent = bed.file("sent");
    std::fs::write(&sent, "Bearer token-one\n").unwrap();
    let sources = HeaderSources {
        files: BTreeMap::from([("authorization".to_owned(), sent.clone())]),
        ..HeaderSources::default()
    };
    read_again(&bed, &sent, sources).await;
}

#[tokio::test]
async fn a_header_from_a_program_is_read_again_when_it_is_refused() {
    let bed = Bed::new().await;
    let sent = bed.file("sent");
    std::fs::write(&sent, "Bearer token-one\n").unwrap();
    let script = format!("echo; echo \"Authorization: $(cat {})\"", sent.display());
    let sources = HeaderSources {
        command: ["sh", "-c", &script].map(str::to_owned).to_vec(),
        ..HeaderSources::default()
    };
    read_again(&bed, &sent, sources).await;
}

#[tokio::test]
async fn a_file_that_is_missing_is_named() {
    let bed = Bed::new().await;
    let sources = HeaderSources {
        files: BTreeMap::from([("x-key".to_owned(), bed.file("missing"))]),
        ..HeaderSources::default()
    };
    let (pool, _) = bed.pool(sources);
    let error = tools(&pool).await.expect_err("no header").to_string();
    assert!(error.contains("the file with the header x-key"), "{error}");
}

fn oauth() -> OAuthSettings {
    OAuthSettings {
        client_id: "mainspring".to_owned(),
        client_secret: Some(Secret::new("client-secret")),
        ..OAuthSettings::default()
    }
}

#[tokio::test]
async fn client_credentials_get_a_token_from_the_server_that_the_metadata_name() {
    let bed = Bed::new().await;
    let sources = HeaderSources {
        oauth: Some(oauth()),
        ..HeaderSources::default()
    };
    let (pool, clock) = bed.pool(sources);
    let act = tool(&pool, "act").await;
    assert_eq!(text(act.call(invocation(json!({}))).await), "done");
    clock.sleep(Duration::from_mins(1)).await;
    bed.now_valid("token-two");
    assert_eq!(text(act.call(invocation(json!({}))).await), "done");
    let forms = bed.forms();
    assert_eq!(forms.len(), 2, "{forms:?}");
    let (head, form) = &forms[0];
    // `mainspring:client-secret`.
    assert!(
        head.contains("authorization: Basic bWFpbnNwcmluZzpjbGllbnQtc2VjcmV0"),
        "{head}"
    );
    assert!(
        form.contains("grant_type=client_credentials&scope=use"),
        "{form}"
    );
    assert!(form.contains("resource=http%3A%2F%2F127.0.0.1"), "{form}");
    for shown in [format!("{pool:?}"), format!("{act:?}")] {
        assert!(
            !shown.contains("client-secret") && !shown.contains("token-"),
            "{shown}"
        );
    }
    // Before a token ends, a new one is got without a refusal.
    let refused = bed.asked("tools/call");
    clock.sleep(Duration::from_hours(1)).await;
    assert_eq!(text(act.call(invocation(json!({}))).await), "done");
    assert_eq!(
        (bed.forms().len(), bed.asked("tools/call")),
        (3, refused + 1)
    );
}

#[tokio::test]
async fn a_refresh_token_is_used_and_replaced() {
    let bed = Bed::new().await;
    let sources = HeaderSources {
        oauth: Some(OAuthSettings {
            refresh_token: Some(Secret::new("refresh-1")),
            ..oauth()
        }),
        ..HeaderSources::default()
    };
    let (pool, clock) = bed.pool(sources);
    let act = tool(&pool, "act").await;
    clock.sleep(Duration::from_mins(1)).await;
    bed.now_valid("token-two");
    assert_eq!(text(act.call(invocation(json!({}))).await), "done");
    let forms = bed.forms();
    assert!(
        forms[0]
            .1
            .contains("grant_type=refresh_token&refresh_token=refresh-1"),
        "{forms:?}"
    );
    assert!(forms[1].1.contains("refresh_token=refresh-2"), "{forms:?}");
}

#[tokio::test]
async fn an_authorization_server_that_is_not_the_pinned_one_gets_no_secret() {
    let bed = Bed::new().await;
    let sources = HeaderSources {
        oauth: Some(OAuthSettings {
            issuer: Some("https://login.example/".to_owned()),
            ..oauth()
        }),
        ..HeaderSources::default()
    };
    let (pool, _) = bed.pool(sources);
    let error = tools(&pool).await.expect_err("no token").to_string();
    assert!(error.contains("another authorization server"), "{error}");
    assert_eq!(bed.asked("/token"), 0);
}

/// An authorization server with one oddity, which its way names after the file, and the server that it is of.
fn odd(way: &str, request: &Value, times: usize) -> Vec<Out> {
    let (odd, valid) = way.split_once(' ').expect("a way");
    let head = request["head"].as_str().expect("a head");
    let form = request["form"].as_str().unwrap_or_default();
    let host = head.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.expect("a host");
    let refused =
        |status: u16, code: &str| vec![Out::Refuse(status, json!({"error": code}).to_string())];
    match (request["method"].as_str().expect("a method"), odd) {
        ("/token", "secret-in-body") if !form.contains("client_secret=client-secret") => {
            return refused(401, "invalid_client");
        }
        ("/token", "unknown-client") => return refused(401, "invalid_client"),
        ("/token", "revoked") => return refused(400, "invalid_grant"),
        ("/token", "polite") => {
            return vec![Out::Raw(json!({"error": "bad_verification"}).to_string())];
        }
        ("/token", "down-later") if times > 0 => return refused(503, ""),
        ("/token", "moves") if times > 0 => return refused(404, ""),
        ("/token-2", "moves") => {
            let token = std::fs::read_to_string(valid).expect("a token");
            return vec![Out::Raw(json!({"access_token": token.trim()}).to_string())];
        }
        ("/.well-known/oauth-authorization-server/login", "moves") if times > 0 => {
            let about = json!({"issuer": format!("http://{host}/login"),
                "token_endpoint": format!("http://{host}/token-2")});
            return vec![Out::Raw(about.to_string())];
        }
        ("/token", "says-texts") => {
            let token = std::fs::read_to_string(valid).expect("a token");
            let given = json!({"access_token": token.trim(), "expires_in": "3600"});
            return vec![Out::Raw(given.to_string())];
        }
        _ => {}
    }
    script(valid, request, times)
}

/// A bed whose authorization server has an oddity, a pool that asks it, and the pool's clock.
async fn odd_bed(oddity: &str, settings: OAuthSettings) -> (Bed, Pool, Arc<Leaping>) {
    let folder = tempfile::tempdir().unwrap();
    let valid = folder.path().join("valid");
    std::fs::write(&valid, "token-one\n").unwrap();
    let way = format!("{oddity} {}", valid.display());
    let server = Scripted::start(&way, odd, false).await;
    let bed = Bed { folder, server };
    let sources = HeaderSources {
        oauth: Some(settings),
        ..HeaderSources::default()
    };
    let (pool, clock) = bed.pool(sources);
    (bed, pool, clock)
}

#[tokio::test]
async fn a_secret_that_is_refused_in_one_place_is_given_in_the_other() {
    let (bed, pool, clock) = odd_bed("secret-in-body", oauth()).await;
    let act = tool(&pool, "act").await;
    assert_eq!(text(act.call(invocation(json!({}))).await), "done");
    assert_eq!(bed.forms().len(), 2);
    // From then on, it is given there at once.
    clock.sleep(Duration::from_hours(1)).await;
    assert_eq!(text(act.call(invocation(json!({}))).await), "done");
    assert_eq!(bed.forms().len(), 3);
}

#[tokio::test]
async fn why_there_is_no_token_is_told_without_secrets() {
    let refresh = OAuthSettings {
        refresh_token: Some(Secret::new("refresh-1")),
        ..oauth()
    };
    for (oddity, settings, requests, code) in [
        (
            "unknown-client",
            oauth(),
            2,
            "401 Unauthorized invalid_client",
        ),
        ("revoked", refresh, 1, "400 Bad Request invalid_grant"),
        ("polite", oauth(), 1, "200 OK bad_verification"),
    ] {
        let (bed, pool, _) = odd_bed(oddity, settings).await;
        let error = tools(&pool).await.expect_err("no token").to_string();
        assert!(error.contains(code), "{oddity}: {error}");
        for secret in ["client-secret", "refresh-1"] {
            assert!(!error.contains(secret), "{oddity}: {error}");
        }
        assert_eq!(bed.forms().len(), requests, "{oddity}");
    }
}

#[tokio::test]
async fn a_token_is_used_while_the_authorization_server_is_down() {
    let (bed, pool, clock) = odd_bed("down-later", oauth()).await;
    let act = tool(&pool, "act").await;
    clock.sleep(Duration::from_hours(1)).await;
    assert_eq!(text(act.call(invocation(json!({}))).await), "done");
    assert_eq!(bed.forms().len(), 2);
}

#[tokio::test]
async fn a_token_endpoint_that_is_gone_is_looked_up_again() {
    let (bed, pool, clock) = odd_bed("moves", oauth()).await;
    let act = tool(&pool, "act").await;
    clock.sleep(Duration::from_mins(1)).await;
    bed.now_valid("token-two");
    refusal(act.call(invocation(json!({}))).await);
    clock.sleep(Duration::from_mins(2)).await;
    assert_eq!(text(act.call(invocation(json!({}))).await), "done");
    assert_eq!(bed.asked("/token-2"), 1);
}

#[tokio::test]
async fn an_end_that_is_told_as_a_text_is_one() {
    let (bed, pool, clock) = odd_bed("says-texts", oauth()).await;
    let act = tool(&pool, "act").await;
    let refused = bed.asked("tools/call");
    clock.sleep(Duration::from_hours(1)).await;
    assert_eq!(text(act.call(invocation(json!({}))).await), "done");
    assert_eq!(bed.forms().len(), 2);
    assert_eq!(bed.asked("tools/call"), refused + 1);
}
