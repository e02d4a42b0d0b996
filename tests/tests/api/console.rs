//! The console: its page, and the cookie of those who sign in to it.

use std::time::Duration;

use mainspring_runtime::{OsEntropy, SystemClock};
use mainspring_shared::time::{Clock as _, Timestamp};
use serde_json::{Value, json};

use crate::access::{ROOT, ask, locked, tenant};
use crate::client::{Answer, Call};
use crate::issuers::trusting;
use crate::webhooks::sealing;
use crate::world::{Scheduler, World};

const NONE: Value = Value::Null;

/// Each file of the page: its path, its media type, and what is in it.
const FILES: [(&str, &str, &str); 3] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("../../../scheduler/api/console/index.html"),
    ),
    (
        "/console/app.js",
        "text/javascript; charset=utf-8",
        include_str!("../../../scheduler/api/console/app.js"),
    ),
    (
        "/console/app.css",
        "text/css; charset=utf-8",
        include_str!("../../../scheduler/api/console/app.css"),
    ),
];

const SAYS: (&str, &str) = ("mainspring-console", "1");
const SAME: (&str, &str) = ("sec-fetch-site", "same-origin");

/// A request with these headers.
fn with(call: Call, headers: &[(&str, &str)]) -> Call {
    let headers = headers.iter();
    headers.fold(call, |call, (name, value)| call.header(name, value))
}

/// A request as the page sends it, with the cookie that its browser has.
fn of_page(api: &Scheduler, cookie: &str, method: &str, path: &str) -> Call {
    with(api.call(method, path), &[("cookie", cookie), SAYS, SAME])
}

async fn sign_in(api: &Scheduler, key: &str) -> Answer {
    let call = with(api.call("POST", "/console/session"), &[SAYS, SAME]);
    call.json(&json!({ "key": key })).send().await
}

/// Signs in; returns the cookie as the browser sends it.
async fn signed_in(api: &Scheduler, key: &str) -> String {
    let answer = sign_in(api, key).await;
    assert_eq!(answer.status, 204, "{}", answer.text);
    let cookie = answer.header("set-cookie").expect("a cookie");
    let (cookie, _) = cookie.split_once("; ").expect("has attributes");
    cookie.to_owned()
}

/// The cookie that stands for a key until then, sealed by this world's key.
fn made(world: &World, key: &str, expires_at: Timestamp) -> String {
    let sealer = world.webhooks.sealer.as_ref().expect("it seals");
    let json = json!({ "key": key, "expires_at": expires_at }).to_string();
    let sealed = sealer.seal(&OsEntropy, "console session", json.as_bytes());
    format!("__Host-mainspring={sealed}")
}

#[tokio::test]
async fn the_page_is_served_to_everyone_and_is_no_part_of_the_description() {
    let world = World::new().await;
    for api in [locked(&world).await, world.ready().await] {
        for (path, kind, text) in FILES {
            let answer = api.get(path).await;
            assert_eq!(answer.status, 200, "{path}");
            assert!(answer.text == text, "{path} is another file");
            assert_eq!(answer.header("content-type"), Some(kind), "{path}");
            assert_eq!(answer.header("cache-control"), Some("no-cache"), "{path}");
            let head = api.call("HEAD", path).send().await;
            assert_eq!((head.status, head.text.len()), (200, text.len()), "{path}");
            let posted = api.post(path, &json!({})).await;
            posted.problem(405, "request.method_not_allowed");
        }
        for path in ["/console", "/console/", "/console/app.map", "/index.html"] {
            api.get(path).await.problem(404, "request.not_found");
        }
        let described = api.get("/openapi.json").await.json();
        let paths = described["paths"].as_object().expect("paths");
        assert!(
            !paths
                .keys()
                .any(|path| path == "/" || path.contains("console"))
        );
    }
}

#[tokio::test]
async fn a_file_that_a_browser_has_is_not_sent_again() {
    let world = World::new().await;
    let api = world.ready().await;
    for (path, _, _) in FILES {
        let get = async |method, headers: &[(&str, &str)]| {
            with(api.call(method, path), headers).send().await
        };
        let tag = |answer: &Answer| answer.header("etag").expect("a tag").to_owned();
        let plain = get("GET", &[]).await;
        assert_eq!(plain.header("content-encoding"), None);
        let gzip = ("accept-encoding", "gzip, deflate, br");
        let packed = get("HEAD", &[gzip]).await;
        assert_eq!(packed.header("content-encoding"), Some("gzip"), "{path}");
        assert_ne!(tag(&packed), tag(&plain));
        for answer in [&plain, &packed] {
            assert_eq!(answer.header("vary"), Some("accept-encoding"));
            assert!(tag(answer).starts_with('"'), "it is a strong one");
        }
        for (has, takes, status) in [
            (&plain, None, 304),
            (&packed, Some(gzip), 304),
            (&packed, None, 200),
        ] {
            let tag = tag(has);
            let mut headers = vec![("if-none-match", tag.as_str())];
            headers.extend(takes);
            let answer = get("HEAD", &headers).await;
            assert_eq!(answer.status, status, "{path}: {headers:?}");
            if status == 304 {
                assert_eq!(answer.header("etag"), Some(tag.as_str()));
                assert_eq!(answer.header("cache-control"), Some("no-cache"));
                assert!(answer.header("content-security-policy").is_some());
            }
        }
        let other = get("GET", &[("if-none-match", "\"another\"")]).await;
        assert_eq!((other.status, other.text), (200, plain.text));
    }
}

#[tokio::test]
async fn no_other_page_shows_the_console_and_no_text_runs_in_it() {
    let world = sealing().await;
    let api = locked(&world).await;
    let mut answers = vec![sign_in(&api, ROOT).await, sign_in(&api, "x").await];
    for (path, _, _) in FILES {
        answers.push(api.get(path).await);
    }
    for answer in answers {
        let policy = answer.header("content-security-policy").expect("a policy");
        let parts: Vec<&str> = policy.split("; ").collect();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ] {
            assert!(parts.contains(&part), "{part}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains('*'));
        for (name, value) in [
            ("x-frame-options", "DENY"),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{name}");
        }
    }
}

#[tokio::test]
async fn no_one_reads_the_key_in_the_cookie() {
    let world = sealing().await;
    let api = locked(&world).await;
    let (_, key) = tenant(&api, "blue", &["read"]).await;
    let answer = sign_in(&api, &format!(" {key}\n")).await;
    assert_eq!((answer.status, answer.text.as_str()), (204, ""));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let cookie = answer.header("set-cookie").expect("a cookie");
    let mut parts = cookie.split("; ");
    let value = parts.next().expect("has a value");
    let sealed = value.strip_prefix("__Host-mainspring=").expect("its name");
    assert!(value.len() < 4_096, "browsers keep no more");
    assert_eq!(
        parts.collect::<Vec<_>>(),
        [
            "Path=/",
            "HttpOnly",
            "Secure",
            "SameSite=Strict",
            "Max-Age=43200"
        ]
    );
    let (_, secret) = key.rsplit_once('_').expect("has a secret");
    assert!(
        !sealed.contains(secret) && !sealed.contains(&key[4..12]),
        "{sealed}"
    );
    let other = signed_in(&api, &key).await;
    assert_ne!(other, value, "each is sealed by itself");
}

#[tokio::test]
async fn a_cookie_does_what_its_key_does_and_no_more() {
    let world = sealing().await;
    let api = locked(&world).await;
    let (blue, key) = tenant(&api, "blue", &["read"]).await;
    let (_, writer) = tenant(&api, "red", &["read", "send"]).await;
    let cookie = signed_in(&api, &writer).await;
    let post = of_page(&api, &cookie, "POST", "/v1/sessions").json(&json!({}));
    let session = post.send().await.ok(201);
    let path = format!("/v1/sessions/{}", session["id"].as_str().expect("an id"));
    of_page(&api, &cookie, "GET", &path).send().await.ok(200);
    let keys = of_page(&api, &cookie, "GET", "/v1/keys").send().await;
    keys.problem(403, "auth.forbidden");
    let named = of_page(&api, &cookie, "GET", "/v1/sessions");
    let named = named.header("mainspring-tenant", &blue).send().await;
    named.problem(403, "auth.forbidden");

    let reader = signed_in(&api, &key).await;
    let other = of_page(&api, &reader, "GET", &path).send().await;
    other.problem(404, "session.not_found");
    let post = of_page(&api, &reader, "POST", "/v1/sessions").json(&json!({}));
    post.send().await.problem(403, "auth.forbidden");
    // Among other cookies, and on another scheduler.
    let second = locked(&world).await;
    let among = format!("a=b; {reader}; c=d");
    let listed = of_page(&second, &among, "GET", "/v1/sessions");
    assert_eq!(listed.send().await.ok(200)["data"], json!([]));

    let root = signed_in(&api, ROOT).await;
    let tenants = of_page(&api, &root, "GET", "/v1/tenants").send().await;
    tenants.ok(200);
    let theirs = of_page(&api, &root, "GET", "/v1/sessions");
    let theirs = theirs.header("mainspring-tenant", &blue).send().await;
    assert_eq!(theirs.ok(200)["data"], json!([]));
    // A key that is sent as well is the one that counts.
    let both = of_page(&api, &root, "GET", "/v1/tenants");
    let both = both.header("authorization", &format!("Bearer {key}"));
    both.send().await.problem(403, "auth.forbidden");
    let both = of_page(&api, &root, "GET", "/v1/tenants");
    let both = both.header("authorization", "Bearer x").send().await;
    both.problem(401, "auth.invalid");
}

#[tokio::test]
async fn a_cookie_of_the_console_counts_only_in_the_requests_of_its_page() {
    let world = sealing().await;
    let api = locked(&world).await;
    let cookie = signed_in(&api, ROOT).await;
    let cookie = ("cookie", cookie.as_str());
    let get = async |headers: &[(&str, &str)]| {
        let call = with(api.call("GET", "/v1/sessions"), &[cookie]);
        with(call, headers).send().await
    };
    get(&[SAYS, SAME]).await.ok(200);
    let typed = ("sec-fetch-site", "none");
    for headers in [
        &[][..],
        &[SAYS],
        &[SAME],
        &[SAYS, typed],
        &[("mainspring-console", "yes"), SAME],
    ] {
        get(headers).await.problem(401, "auth.missing");
    }
    for site in ["cross-site", "same-site"] {
        let site = ("sec-fetch-site", site);
        let refused = get(&[SAYS, site]).await;
        refused.problem(403, "request.origin_not_allowed");
        // A link from elsewhere is followed as by someone who is not signed in.
        let followed = get(&[SAYS, site, ("sec-fetch-mode", "navigate")]).await;
        followed.problem(401, "auth.missing");
    }
    let evil = ("origin", "https://evil.example");
    let refused = get(&[SAYS, SAME, evil]).await;
    refused.problem(403, "request.origin_not_allowed");
    // Nor does another page sign its visitor in or out.
    for method in ["POST", "DELETE"] {
        for headers in [&[][..], &[SAYS], &[SAME], &[SAYS, typed]] {
            let call = with(api.call(method, "/console/session"), headers);
            let call = call.json(&json!({ "key": ROOT }));
            let refused = call.send().await;
            refused.problem(403, "request.origin_not_allowed");
            assert_eq!(refused.header("set-cookie"), None);
        }
    }
}

#[tokio::test]
async fn no_other_page_is_allowed_to_say_that_it_is_the_console() {
    let world = sealing().await;
    let asks = [
        ("access-control-request-method", "GET"),
        ("access-control-request-headers", "mainspring-console"),
    ];
    let app = ("origin", "https://app.example.com");
    let api = locked(&world).await;
    let cookie = signed_in(&api, ROOT).await;
    for path in ["/v1/sessions", "/console/session"] {
        let asked = with(api.call("OPTIONS", path), &asks);
        let refused = asked.header(app.0, app.1).send().await;
        refused.problem(403, "request.origin_not_allowed");
        assert_eq!(refused.header("access-control-allow-headers"), None);
    }
    // Not even one of an allowed origin, whose requests need a key.
    let open = world
        .scheduler_with(|config| config.allowed_origins = vec![app.1.to_owned()])
        .await;
    open.until_ready().await;
    let asked = with(open.call("OPTIONS", "/v1/sessions"), &asks);
    let answer = asked.header(app.0, app.1).send().await;
    assert_eq!(answer.status, 204, "{}", answer.text);
    let may = answer.header("access-control-allow-headers");
    let may = may.expect("it may send some");
    assert!(
        may.contains("mainspring-tenant") && !may.contains("console"),
        "{may}"
    );
    assert_eq!(answer.header("access-control-allow-credentials"), None);
    let there = [
        app,
        SAYS,
        ("sec-fetch-site", "cross-site"),
        ("cookie", &cookie),
    ];
    let info = with(open.call("GET", "/v1/info"), &there).send().await;
    let caller = &info.ok(200)["caller"];
    assert_eq!(caller.get("key_id"), None, "it is whoever sends no key");
}

#[tokio::test]
async fn signing_in_takes_a_key_and_nothing_else() {
    let world = sealing().await;
    let api = trusting(&world).await;
    tenant(&api, "blue", &["read"]).await;
    let unknown = format!("msk_{}_{}", "1".repeat(32), "2".repeat(64));
    for wrong in ["", "x", "msk_1_2", &unknown, "bad.read.60", "mst_v1.a.b.c"] {
        let refused = sign_in(&api, wrong).await;
        refused.problem(401, "auth.invalid");
        assert_eq!(refused.header("set-cookie"), None);
        assert!(wrong.len() < 10 || !refused.text.contains(wrong));
    }
    let post = async |kind: &str, body: String| {
        let call = with(api.call("POST", "/console/session"), &[SAYS, SAME]);
        call.header("content-type", kind).body(body).send().await
    };
    let json = "application/json";
    for (body, pointer) in [
        (json!({ "key": ROOT, "remember": true }), "/remember"),
        (json!({}), "/key"),
        (json!({ "key": 1 }), "/key"),
    ] {
        let refused = post(json, body.to_string()).await;
        let problem = refused.problem(400, "request.invalid");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
    post(json, "{".to_owned())
        .await
        .problem(400, "request.invalid");
    let said = json!({ "key": ROOT }).to_string();
    for kind in ["text/plain", "application/x-www-form-urlencoded"] {
        let refused = post(kind, said.clone()).await;
        refused.problem(415, "request.unsupported_media_type");
    }
    let long = json!({ "key": "x".repeat(16 << 10) }).to_string();
    let refused = post(json, long).await;
    refused.problem(413, "request.too_large");
    let query = with(api.call("POST", "/console/session?a=b"), &[SAYS, SAME]);
    let refused = query.json(&json!({ "key": ROOT })).send().await;
    refused.problem(400, "request.invalid");
    // Whatever is accepted as a bearer token is accepted here, if a browser keeps it.
    let cookie = signed_in(&api, "blue.read.60").await;
    let listed = of_page(&api, &cookie, "GET", "/v1/sessions").send().await;
    listed.ok(200);
    let long = format!("blue.read+{}.60", "x".repeat(4_000));
    let problem = sign_in(&api, &long).await.problem(400, "request.invalid");
    assert_eq!(problem["errors"][0]["pointer"], "/key", "{problem}");
}

#[tokio::test]
async fn a_cookie_dies_with_its_key_and_after_half_a_day() {
    let world = sealing().await;
    let api = locked(&world).await;
    let (id, key) = tenant(&api, "blue", &["read"]).await;
    let cookie = signed_in(&api, &key).await;
    let get = async |api: &Scheduler, cookie: &str| {
        of_page(api, cookie, "GET", "/v1/sessions").send().await
    };
    get(&api, &cookie).await.ok(200);
    let now = SystemClock::new().now();
    let fresh = made(&world, &key, now.after(Duration::from_mins(10)));
    get(&api, &fresh).await.ok(200);
    let old = made(&world, &key, Timestamp(now.0 - 1));
    let cut = &cookie[..cookie.len() - 6];
    let foreign = made(&sealing().await, &key, now.after(Duration::from_mins(10)));
    for cookie in [
        &old,
        cut,
        &format!("{cookie}A"),
        &foreign,
        "__Host-mainspring=",
    ] {
        let refused = get(&api, cookie).await.problem(401, "auth.invalid");
        let detail = refused["detail"].as_str().expect("a detail");
        assert!(detail.ends_with("sign in again"), "{detail}");
    }
    let revoke = api.call("DELETE", &format!("/v1/keys/key_{}", &key[4..36]));
    let revoke = revoke.header("authorization", &format!("Bearer {ROOT}"));
    let revoke = revoke.header("mainspring-tenant", &id).send().await;
    assert_eq!(revoke.status, 204, "{}", revoke.text);
    // A scheduler that knew it forgets it within seconds.
    let second = locked(&world).await;
    get(&second, &cookie).await.problem(401, "auth.invalid");
    let refused = sign_in(&second, &key).await;
    refused.problem(401, "auth.invalid");
}

#[tokio::test]
async fn signing_out_takes_the_cookie_back() {
    let world = sealing().await;
    let api = locked(&world).await;
    let cookie = signed_in(&api, ROOT).await;
    // Also one that nobody can read any more.
    for cookie in [cookie.as_str(), "__Host-mainspring=x"] {
        let out = of_page(&api, cookie, "DELETE", "/console/session");
        let out = out.send().await;
        assert_eq!(out.status, 204, "{}", out.text);
        assert_eq!(
            out.header("set-cookie"),
            Some("__Host-mainspring=; Path=/; HttpOnly; Secure; SameSite=Strict; Max-Age=0")
        );
    }
}

#[tokio::test]
async fn a_stream_ends_with_its_cookie() {
    let world = sealing().await;
    let api = locked(&world).await;
    let (_, key) = tenant(&api, "blue", &["read", "send"]).await;
    let session = ask(&api, &key, "POST", "/v1/sessions", &json!({})).await;
    let session = session.ok(201)["id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/sessions/{session}/events");
    let sends = format!("/v1/sessions/{session}/sends");
    let body = json!({ "input": "x" });
    let of_key = signed_in(&api, &key).await;
    let mut events = of_page(&api, &of_key, "GET", &path).stream().await;
    ask(&api, &key, "POST", &sends, &body).await.ok(202);
    events.next().await.expect("an event");
    let refused = with(api.call("GET", &path), &[("cookie", &of_key)]);
    let refused = refused.stream_or_status().await.map(drop);
    assert_eq!(refused, Err(401));

    let soon = SystemClock::new().now().after(Duration::from_secs(3));
    let short = made(&world, &key, soon);
    let mut events = of_page(&api, &short, "GET", &path).stream().await;
    let limit = tokio::time::Instant::now() + Duration::from_secs(20);
    while !events.ends_within(Duration::from_millis(200)).await {
        assert!(tokio::time::Instant::now() < limit, "the stream goes on");
        ask(&api, &key, "POST", &sends, &body).await.ok(202);
    }
    assert!(SystemClock::new().now() >= soon, "it ended too early");
}

#[tokio::test]
async fn nobody_signs_in_without_a_key_to_seal_with() {
    let world = World::new().await;
    let api = locked(&world).await;
    sign_in(&api, ROOT).await.problem(409, "secret.no_seal");
    sign_in(&api, "x").await.problem(401, "auth.invalid");
    let foreign = made(
        &sealing().await,
        ROOT,
        SystemClock::new().now().after(Duration::from_mins(10)),
    );
    let refused = of_page(&api, &foreign, "GET", "/v1/sessions").send().await;
    refused.problem(401, "auth.invalid");
}

#[tokio::test]
async fn a_token_is_no_cookie_and_a_cookie_no_token() {
    let world = sealing().await;
    let api = locked(&world).await;
    let session = ask(&api, ROOT, "POST", "/v1/sessions", &json!({})).await;
    let body = json!({ "session_id": session.ok(201)["id"] });
    let token = ask(&api, ROOT, "POST", "/v1/tokens", &body).await.ok(201);
    let token = token["token"].as_str().expect("a token");
    let sealed = token.strip_prefix("mst_").expect("its prefix");
    for text in [token, sealed] {
        let cookie = format!("__Host-mainspring={text}");
        let refused = of_page(&api, &cookie, "GET", "/v1/sessions").send().await;
        refused.problem(401, "auth.invalid");
    }
    let cookie = signed_in(&api, ROOT).await;
    let (_, sealed) = cookie.split_once('=').expect("has a value");
    for text in [sealed, &format!("mst_{sealed}")] {
        let refused = ask(&api, text, "GET", "/v1/sessions", &NONE).await;
        refused.problem(401, "auth.invalid");
    }
}

#[tokio::test]
async fn where_no_key_is_needed_a_cookie_of_another_server_does_no_harm() {
    let world = World::new().await;
    let api = world.ready().await;
    for cookie in ["__Host-mainspring=x", "__Host-mainspring="] {
        let listed = of_page(&api, cookie, "GET", "/v1/sessions").send().await;
        listed.ok(200);
    }
}

#[tokio::test]
async fn who_asks_is_told_who_that_is() {
    let world = sealing().await;
    let api = locked(&world).await;
    let info = async |key: &str| {
        let info = ask(&api, key, "GET", "/v1/info", &NONE).await.ok(200);
        info["caller"].clone()
    };
    let operator = json!({
        "tenant_id": "ten_1", "operates": true, "scopes": ["admin", "operate"], "bound": false,
    });
    assert_eq!(info(ROOT).await, operator);
    let open = world.ready().await;
    assert_eq!(open.get("/v1/info").await.ok(200)["caller"], operator);
    let (id, key) = tenant(&api, "blue", &["read", "use", "define"]).await;
    let key_id = format!("key_{}", &key[4..36]);
    let mut expected = json!({
        "tenant_id": id, "key_id": key_id, "operates": false, "scopes": ["read", "use", "define"],
        "bound": false,
    });
    assert_eq!(info(&key).await, expected);
    let cookie = signed_in(&api, &key).await;
    let of_page = of_page(&api, &cookie, "GET", "/v1/info").send().await;
    assert_eq!(of_page.ok(200)["caller"], expected);
    let session = ask(&api, &key, "POST", "/v1/sessions", &json!({})).await;
    let body = json!({ "session_id": session.ok(201)["id"] });
    let token = ask(&api, &key, "POST", "/v1/tokens", &body).await.ok(201);
    expected["scopes"] = json!(["read"]);
    expected["bound"] = json!(true);
    assert_eq!(
        info(token["token"].as_str().expect("a token")).await,
        expected
    );
    let named = api.call("GET", "/v1/info").header("mainspring-tenant", &id);
    let named = named.header("authorization", &format!("Bearer {ROOT}"));
    let named = named.send().await.ok(200);
    assert_eq!(named["caller"]["tenant_id"], json!(id));
}
