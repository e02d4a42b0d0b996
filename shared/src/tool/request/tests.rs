use serde_json::{Value, json};

use super::*;

fn request(value: Value) -> HttpRequest {
    serde_json::from_value(value).expect("a request")
}

fn arguments(text: &str) -> Arguments {
    serde_json::from_str(text).expect("arguments")
}

fn rendered(url: &str, of: Value, given: &str) -> Result<Rendered, String> {
    render(&request(of), url, &arguments(given))
}

fn url(template: &str, of: Value, given: &str) -> String {
    rendered(template, of, given).expect("fits").url
}

#[test]
fn each_argument_stands_where_its_template_is_and_the_others_are_the_rest() {
    let of = json!({
        "method": "POST",
        "query": { "q": "{text} lang:{lang}", "page": "{page}", "tag": "{tags}", "gone": "{none}", "v": "1" },
        "headers": { "X-Mode": "m-{mode}", "X-Gone": "{none}" },
    });
    let given = r#"{"owner":"a b","text":"x&y","lang":"de","page":2,"tags":["p","q/r"],"mode":"fast",
        "wei":25000000000000000001,"deep":{"b":1.10},"none":null}"#;
    let made = rendered("https://api.example/u/{owner}/x.{page}?key=1", of, given).expect("fits");
    assert_eq!(
        made.url,
        "https://api.example/u/a%20b/x.2?key=1&page=2&q=x%26y%20lang%3Ade&tag=p&tag=q%2Fr&v=1"
    );
    assert_eq!(made.headers, [("X-Mode".to_owned(), "m-fast".to_owned())]);
    let (kind, body) = made.body.expect("a body");
    assert_eq!(kind, "application/json");
    // Numbers keep their digits.
    let body = String::from_utf8(body).expect("text");
    assert_eq!(body, r#"{"deep":{"b":1.10},"wei":25000000000000000001}"#);
}

#[test]
fn without_a_body_the_rest_is_the_query_and_one_argument_may_be_the_body() {
    let made = rendered("https://a.example", json!({}), r#"{"b":"1","a":[true,2]}"#);
    let made = made.expect("fits");
    assert_eq!(
        (made.url.as_str(), made.body),
        ("https://a.example?a=true&a=2&b=1", None)
    );
    let of = json!({ "method": "PUT", "body_argument": "items" });
    let made = rendered("https://a.example/", of, r#"{"items":[1, 2],"dry":true}"#).expect("fits");
    assert_eq!(made.url, "https://a.example/?dry=true");
    assert_eq!(made.body, Some(("application/json", b"[1, 2]".to_vec())));
    for body in ["json", "form"] {
        let of = json!({ "method": "PUT", "body": body, "body_argument": "items" });
        let made = rendered("https://a.example/", of, r#"{"dry":true}"#).expect("fits");
        assert_eq!(
            (made.url.as_str(), made.body),
            ("https://a.example/?dry=true", None)
        );
    }
    let of = json!({ "method": "POST", "body": "form" });
    let given = r#"{"amount":5,"items":["a&b","c"],"to":{"name":"x=y","none":null}}"#;
    let made = rendered("https://a.example/", of, given).expect("fits");
    let body = made
        .body
        .map(|(_, body)| String::from_utf8(body).expect("text"));
    assert_eq!(
        body.as_deref(),
        Some("amount=5&items=a%26b&items=c&to%5Bname%5D=x%3Dy")
    );
}

#[test]
fn arguments_do_not_repeat_parameters_that_the_tool_sets() {
    let of = json!({
        "method": "GET",
        "query": { "limit": "5" },
        "auth": { "type": "api_key", "name": "key", "in": "query", "secret": "a" },
    });
    let url = "https://a.example/x?tenant=me&a+b=c&%6Eame=d";
    let given = |name: &str| rendered(url, of.clone(), &json!({ name: "y" }).to_string());
    for own in ["limit", "key", "tenant", "a b", "name"] {
        let why = given(own).expect_err(own);
        assert!(why.contains("sets itself"), "{own}: {why}");
    }
    let free = given("other").expect("a parameter of its own");
    assert!(free.url.ends_with("other=y"), "{}", free.url);
}

/// What an argument may be to leave its place.
const HOSTILE: [&str; 22] = [
    "..",
    ".",
    "",
    "../admin",
    "a/../../admin",
    "a/..",
    "..\\admin",
    "a/./b",
    "a\r\nx: y",
    "a\nb",
    "\0",
    "a\u{7f}b",
    "%2e%2e",
    "%2E%2e/admin",
    "a/b",
    "a?b=c",
    "a#b",
    "a;b",
    "//evil.example/x",
    "@evil.example",
    "a&b=c",
    "{other}",
];

#[test]
fn no_argument_leaves_its_segment() {
    for hostile in HOSTILE {
        let given = json!({ "id": hostile }).to_string();
        let Ok(made) = rendered("https://a.example/x/{id}/y", json!({}), &given) else {
            continue;
        };
        let path = made
            .url
            .strip_prefix("https://a.example/x/")
            .expect("the same origin");
        let segment = path.strip_suffix("/y").expect("the same end");
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte);
        assert!(segment.bytes().all(plain), "{hostile:?}: {segment}");
        assert!(!place::is_dots(segment), "{hostile:?}: {segment}");
        let back = percent_encoding::percent_decode_str(segment)
            .decode_utf8()
            .expect("text");
        assert_eq!(back, hostile);
    }
    let refused = |given: &str| rendered("https://a.example/x/{id}/y", json!({}), given).is_err();
    for bad in &HOSTILE[..12] {
        assert!(refused(&json!({ "id": bad }).to_string()), "{bad:?}");
    }
    for bad in ["{}", r#"{"id":null}"#, r#"{"id":["a"]}"#, r#"{"id":{}}"#] {
        assert!(refused(bad), "{bad}");
    }
    // Neither can two together, nor one with the text beside it.
    let both = |given: &str| rendered("https://a.example/{a}{b}", json!({}), given);
    assert!(both(r#"{"a":"x","b":"y"}"#).is_ok());
    let beside = rendered("https://a.example/.{a}/x", json!({}), r#"{"a":"."}"#);
    assert!(beside.is_err());
    let between = |given: &str| rendered("https://a.example/{a}..{b}", json!({}), given);
    assert!(between(r#"{"a":"x","b":"y"}"#).is_ok());
    assert!(between(r#"{"a":"x/","b":"/y"}"#).is_err());
    assert!(between(r#"{"a":"x\\","b":"\\y"}"#).is_err());
}

#[test]
fn no_argument_leaves_its_parameter_or_its_header() {
    for hostile in HOSTILE {
        let given = json!({ "id": hostile }).to_string();
        let url = url(
            "https://a.example/",
            json!({ "query": { "q": "{id}" } }),
            &given,
        );
        let value = url
            .strip_prefix("https://a.example/?q=")
            .expect("one parameter");
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte);
        assert!(value.bytes().all(plain), "{hostile:?}: {value}");
        let of = json!({ "headers": { "x-id": "a {id}" } });
        let is_plain = hostile.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        let made = rendered("https://a.example/", of, &given);
        assert_eq!(made.is_ok(), is_plain, "{hostile:?}");
        if let Ok(made) = made {
            assert_eq!(made.headers[0].1, format!("a {hostile}").trim());
        }
    }
    // The names of arguments may be anything, too.
    let made = url("https://a.example/", json!({}), r#"{"a&b=c#":"d"}"#);
    assert_eq!(made, "https://a.example/?a%26b%3Dc%23=d");
}

proptest::proptest! {
    #[test]
    fn an_argument_is_read_back_as_it_was_or_refused(text in "\\PC{0,20}|[./\\\\%?#&=\\r\\n]{0,8}") {
        let given = json!({ "a": text, "b": text }).to_string();
        let of = json!({ "query": { "q": "{b}" } });
        if let Ok(made) = rendered("https://a.example/{a}/end", of, &given) {
            let rest = made.url.strip_prefix("https://a.example/").expect("the same origin");
            let (segment, query) = rest.split_once("/end?q=").expect("the same places");
            let back = |part: &str| {
                percent_encoding::percent_decode_str(part).decode_utf8().expect("text").into_owned()
            };
            proptest::prop_assert!(!segment.contains(['/', '?', '#', '\\']));
            proptest::prop_assert_eq!(&back(segment), &text);
            proptest::prop_assert_eq!(&back(query), &text);
        }
    }
}

#[test]
fn what_cannot_be_sent_is_refused_where_it_is_written() {
    let of = json!({
        "query": { "a": "{b", "": "x" },
        "headers": { "Host": "x", "a b": "x", "x-key": { "secret": "no name" }, "ok": { "secret": "a.b", "prefix": "t\n" } },
        "body_argument": "x",
        "pointer": "data",
        "auth": { "type": "api_key", "name": "content-length", "secret": "k" },
    });
    let faults = request(of).faults("https://{host}.example/x");
    let pointers: Vec<_> = faults.iter().map(|(pointer, _)| pointer.as_str()).collect();
    assert_eq!(
        pointers,
        [
            "/url",
            "/request/query/",
            "/request/query/a",
            "/request/headers/Host",
            "/request/headers/a b",
            "/request/headers/ok",
            "/request/headers/x-key",
            "/request/body_argument",
            "/request/pointer",
            "/request/auth/name",
        ]
    );
    for bad in [
        "https://a.example/x?{q}",
        "https://user@a.example/x",
        "https://a.example/x#y",
        "https://a.example\\@b.example/",
        "https://a.example/{",
        "https://a.example/a b",
    ] {
        assert_eq!(request(json!({})).faults(bad).len(), 1, "{bad}");
    }
    assert_eq!(request(json!({})).faults("https://a.example/{{x}}/{y}"), []);
    for bad in [
        json!({ "method": "TRACE" }),
        json!({ "colour": 1 }),
        json!({ "auth": { "type": "bearer", "secret": "a", "user": "b" } }),
        json!({ "auth": { "type": "magic", "secret": "a" } }),
        json!({ "headers": { "a": { "secret": "b", "value": "c" } } }),
    ] {
        assert!(
            serde_json::from_value::<HttpRequest>(bad.clone()).is_err(),
            "{bad}"
        );
    }
}

#[test]
fn every_way_in_is_read_and_written_as_it_is_documented() {
    for auth in [
        json!({ "type": "bearer", "secret": "a" }),
        json!({ "type": "basic", "user": "me", "secret": "a" }),
        json!({ "type": "api_key", "name": "X-Key", "in": "query", "secret": "a" }),
        json!({ "type": "oauth", "token_url": "https://a.example/t", "client_id": "c", "secret": "a",
                "scopes": ["x"], "audience": "y" }),
    ] {
        let of = json!({ "method": "DELETE", "auth": auth });
        let read = request(of.clone());
        assert_eq!(read.secrets().collect::<Vec<_>>(), ["a"]);
        assert_eq!(read.faults("https://a.example"), []);
        assert_eq!(serde_json::to_value(&read).expect("prints"), of);
    }
}
