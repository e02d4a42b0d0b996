//! Malformed requests: each is one text for a socket, with the statuses that it may get.

/// Length of a text that is far too long for a head, and for any number or name.
const LONG: usize = 1 << 20;

/// Size of the largest accepted body.
const BODY_MAX: usize = 4 << 20;

/// What is sent, and what may come back.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) says: Vec<u8>,
    /// The expected answers, in order; a single one may also be missing, because the connection may
    /// be closed before it is read.
    pub(super) answers: Answers,
}

/// What may come back.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answers {
    /// Nothing but refusals, or the end of the connection.
    Refusals,
    /// Exactly this many answers, all with status 200.
    Served(usize),
    /// Successes or refusals: the request is odd, but may be intended.
    Either,
    /// Another protocol's frames, or the end of the connection.
    Foreign,
}

fn case(name: &'static str, says: impl Into<Vec<u8>>, answers: Answers) -> Case {
    Case {
        name,
        says: says.into(),
        answers,
    }
}

fn refused(name: &'static str, says: impl Into<Vec<u8>>) -> Case {
    case(name, says, Answers::Refusals)
}

/// A head with these lines and a host.
fn head(line: &str, more: &str) -> String {
    format!("{line}\r\nhost: localhost\r\n{more}\r\n")
}

/// `count` numbered texts, concatenated.
fn numbered(count: usize, one: impl Fn(usize) -> String) -> String {
    let all: Vec<String> = (0..count).map(one).collect();
    all.concat()
}

/// A request with a body of JSON, or of something that looks like it.
fn posted(path: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let lines = format!("content-type: application/json\r\ncontent-length: {length}\r\n");
    [
        head(&format!("POST {path} HTTP/1.1"), &lines).as_bytes(),
        body,
    ]
    .concat()
}

/// All cases.
pub(super) fn all() -> Vec<Case> {
    let all = [
        lines(),
        headers(),
        lengths(),
        chunks(),
        protocols(),
        pipelines(),
        bombs(),
        texts(),
    ];
    all.into_iter().flatten().collect()
}

fn lines() -> Vec<Case> {
    let path = "a".repeat(LONG);
    vec![
        refused("a long path", head(&format!("GET /{path} HTTP/1.1"), "")),
        refused(
            "a long query",
            head(&format!("GET /v1/sends?cursor={path} HTTP/1.1"), ""),
        ),
        refused("a line without an end", "A".repeat(LONG)),
        refused("empty lines without an end", "\r\n".repeat(LONG / 2)),
        refused(
            "a long method",
            head(&format!("{} / HTTP/1.1", "G".repeat(10_000)), ""),
        ),
        refused("an unknown method", head("BREW /v1/sends HTTP/1.1", "")),
        refused("an unknown version", head("GET /livez HTTP/9.9", "")),
        refused("no version", "GET /v1/sends\r\n\r\n"),
        refused(
            "control characters",
            head("GET /\u{0}\u{1}\u{7f} HTTP/1.1", ""),
        ),
        refused(
            "bytes that are no text",
            b"\xff\xfe\x80 \xc3\x28 HTTP/1.1\r\n\r\n".to_vec(),
        ),
        refused(
            "a path that climbs",
            head("GET /v1/../../etc/passwd HTTP/1.1", ""),
        ),
        refused(
            "escapes that are no text",
            head("GET /v1/sends/%ff%fe%00 HTTP/1.1", ""),
        ),
        refused(
            "escapes that are none",
            head("GET /v1/sends?limit=%zz%1 HTTP/1.1", ""),
        ),
        refused(
            "a huge limit",
            head(
                &format!("GET /v1/sends?limit={} HTTP/1.1", "9".repeat(400)),
                "",
            ),
        ),
        refused(
            "a foreign address",
            head("GET http://elsewhere.example/v1/sends HTTP/1.1", ""),
        ),
        refused(
            "a tunnel",
            head("CONNECT elsewhere.example:443 HTTP/1.1", ""),
        ),
    ]
}

fn headers() -> Vec<Case> {
    let get = |more: &str| head("GET /v1/sends HTTP/1.1", more);
    let many = numbered(20_000, |n| format!("x-{n}: {n}\r\n"));
    let same = "x-same: again\r\n".repeat(20_000);
    let raw = [b"GET /v1/sends HTTP/1.1\r\nhost: localhost\r\nx: \xff\x00\x01\r\n\r\n".as_slice()];
    vec![
        refused("many headers", get(&many)),
        refused("the same header many times", get(&same)),
        refused(
            "a long header",
            get(&format!("x-long: {}\r\n", "v".repeat(LONG))),
        ),
        refused("a long name", get(&format!("{}: v\r\n", "x".repeat(LONG)))),
        refused(
            "a long cookie",
            get(&format!("cookie: {}\r\n", "a=b; ".repeat(LONG / 5))),
        ),
        refused("no name", get(": v\r\n")),
        refused("no colon", get("x v\r\n")),
        refused("blanks in a name", get("x y: v\r\n")),
        refused("a folded line", get("x: a\r\n b\r\n")),
        refused("bytes that no header has", raw.concat()),
        // Only clients older than browsers omit the host, so it may be accepted.
        case("no host", "GET /v1/sends HTTP/1.1\r\n\r\n", Answers::Either),
        refused("two hosts", get("host: elsewhere.example\r\n")),
        refused(
            "a foreign host",
            "GET /v1/sends HTTP/1.1\r\nhost: elsewhere.example\r\n\r\n",
        ),
        refused(
            "a host that is none",
            "GET /v1/sends HTTP/1.1\r\nhost: \u{1}@[::\r\n\r\n",
        ),
        refused(
            "a long key",
            get(&format!("authorization: Bearer {}\r\n", "k".repeat(LONG))),
        ),
        case(
            "an odd key",
            get("authorization: Bearer \t, ,\r\n"),
            Answers::Either,
        ),
        case(
            "an odd trace",
            get("traceparent: 00-zz-\r\ntracestate: ==,,\r\n"),
            Answers::Either,
        ),
        case(
            "an odd range",
            get("range: bytes=9999999999999-1\r\n"),
            Answers::Either,
        ),
        case(
            "an odd last id",
            head(
                "GET /v1/sends/x/events HTTP/1.1",
                "last-event-id: -1.-1\r\n",
            ),
            Answers::Refusals,
        ),
        refused(
            "an expectation",
            head(
                "POST /v1/sends HTTP/1.1",
                "expect: miracles\r\ncontent-length: 2\r\n",
            ),
        ),
    ]
}

fn lengths() -> Vec<Case> {
    let post = |more: &str, body: &str| {
        let lines = format!("content-type: application/json\r\n{more}");
        head("POST /v1/sends HTTP/1.1", &lines) + body
    };
    let body = r#"{"input":"x"}"#;
    vec![
        refused("a negative length", post("content-length: -1\r\n", body)),
        refused(
            "a length that is no number",
            post("content-length: 1e3\r\n", body),
        ),
        refused(
            "a length beyond all",
            post(&format!("content-length: {}\r\n", u128::MAX), body),
        ),
        refused(
            "a length too large",
            post("content-length: 18446744073709551615\r\n", body),
        ),
        refused(
            "two lengths",
            post("content-length: 13\r\ncontent-length: 14\r\n", body),
        ),
        refused(
            "a list of lengths",
            post("content-length: 13, 14\r\n", body),
        ),
        refused("more than there is", post("content-length: 1000\r\n", body)),
        refused("less than there is", post("content-length: 5\r\n", body)),
        refused(
            "a length and chunks",
            post("content-length: 13\r\ntransfer-encoding: chunked\r\n", body),
        ),
        refused("a body without a length", post("", body)),
        refused(
            "a packed body",
            post(
                "content-encoding: gzip\r\ncontent-length: 13\r\n",
                "\u{1f}\u{8b}\u{8}\0\0\0\0\0\0\0\0\0\0",
            ),
        ),
    ]
}

fn chunks() -> Vec<Case> {
    let post = |body: &str| {
        let lines = "content-type: application/json\r\ntransfer-encoding: chunked\r\n";
        head("POST /v1/sends HTTP/1.1", lines) + body
    };
    let coded = |coding: &str| {
        head(
            "POST /v1/sends HTTP/1.1",
            &format!("transfer-encoding: {coding}\r\n"),
        ) + "0\r\n\r\n"
    };
    let small = "1\r\n \r\n".repeat(200_000);
    let trailers = numbered(20_000, |n| format!("x-{n}: {n}\r\n"));
    vec![
        refused("a size that is none", post("zz\r\n")),
        refused("a size beyond all", post("ffffffffffffffffffff\r\nx")),
        refused("the largest size", post("ffffffffffffffff\r\nx")),
        refused("a negative size", post("-1\r\nx\r\n")),
        refused("a chunk that is too long", post("1\r\nxyz\r\n0\r\n\r\n")),
        refused(
            "an extension without an end",
            post(&format!("1;{}", "e".repeat(LONG))),
        ),
        refused("many small chunks", post(&format!("{small}0\r\n\r\n"))),
        refused("many trailers", post(&format!("0\r\n{trailers}\r\n"))),
        refused("garbage", post(&"\u{fffd}\0\r\n".repeat(1_000))),
        refused("an unknown coding", coded("gzip, chunked")),
        refused("chunked twice", coded("chunked, chunked")),
        refused("chunked before another", coded("chunked, identity")),
    ]
}

fn protocols() -> Vec<Case> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = b"\0\0\0\x04\0\0\0\0\0".repeat(20_000);
    let pings = b"\0\0\x08\x06\0\0\0\0\0abcdefgh".repeat(20_000);
    let resets = b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08".repeat(20_000);
    let header = b"\0\xff\xff\x01\0\0\0\0\x01".as_slice();
    let foreign = |name, says: &[&[u8]]| case(name, says.concat(), Answers::Foreign);
    let upgrade = "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n";
    vec![
        foreign("a preface", &[PREFACE]),
        foreign("a preface and garbage", &[PREFACE, &[0xff; 4_096]]),
        foreign("half a preface", &[b"PRI * HTTP/2.0\r\n\r\nSM"]),
        foreign("many settings", &[PREFACE, &settings]),
        foreign("many pings", &[PREFACE, &settings[..9], &pings]),
        foreign("many resets", &[PREFACE, &settings[..9], &resets]),
        foreign(
            "a frame that is too large",
            &[PREFACE, &settings[..9], header, &[0; 65_535]],
        ),
        foreign(
            "a handshake of TLS",
            &[b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", &[7; 600]],
        ),
        case(
            "an upgrade",
            head("GET /livez HTTP/1.1", upgrade),
            Answers::Served(1),
        ),
        case(
            "a web socket",
            head(
                "GET /livez HTTP/1.1",
                "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x\r\n",
            ),
            Answers::Served(1),
        ),
    ]
}

fn pipelines() -> Vec<Case> {
    let live = head("GET /livez HTTP/1.1", "");
    let broken = format!("{}GET\r\n\r\n{}", live.repeat(3), live.repeat(100));
    let body = head("GET /livez HTTP/1.1", "content-length: 5\r\n") + "hello";
    vec![
        case("a pipeline", live.repeat(300), Answers::Served(300)),
        case(
            "a pipeline with bodies",
            body.repeat(100),
            Answers::Served(100),
        ),
        case("a pipeline that breaks", broken, Answers::Either),
        case(
            "a pipeline of posts",
            posted("/v1/sends", b"{").repeat(50),
            Answers::Refusals,
        ),
    ]
}

fn bombs() -> Vec<Case> {
    let deep = "[".repeat(BODY_MAX - 100);
    let nested = "{\"a\":".repeat((BODY_MAX - 100) / 5);
    let closed = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let wide = format!("{{\"input\":[{}0]}}", "[],".repeat(BODY_MAX / 4));
    let number = "9".repeat(BODY_MAX - 100);
    let text = "x".repeat(BODY_MAX - 100);
    let same = "\"input\":\"x\",".repeat(200_000);
    let names = numbered(200_000, |n| format!("\"{n}\":0,"));
    let meta = |value: &str| format!("{{\"metadata\":{{\"a\":{value}}}}}").into_bytes();
    let (sends, sessions) = ("/v1/sends", "/v1/sessions");
    let mut cases = vec![
        refused("a deep list", posted(sends, deep.as_bytes())),
        refused("a deep object", posted(sends, nested.as_bytes())),
        refused("a deep list in metadata", posted(sessions, &meta(&closed))),
        refused("a wide list", posted(sends, wide.as_bytes())),
        refused(
            "a long number",
            posted(sends, format!("{{\"input\":{number}}}").as_bytes()),
        ),
        refused(
            "a long number in metadata",
            posted(sessions, &meta(&number)),
        ),
        refused(
            "a long text",
            posted(sends, format!("{{\"inputt\":\"{text}\"}}").as_bytes()),
        ),
        refused(
            "a long name",
            posted(sends, format!("{{\"{text}\":1}}").as_bytes()),
        ),
        refused(
            "a name many times",
            posted(sends, format!("{{{same}\"input\":\"x\"}}").as_bytes()),
        ),
        refused(
            "many names",
            posted(sends, format!("{{{names}\"input\":\"x\"}}").as_bytes()),
        ),
        refused(
            "many names in metadata",
            posted(sessions, &meta(&format!("{{{names}\"z\":0}}"))),
        ),
        refused(
            "more than a body may have",
            posted(sends, "x".repeat(2 * BODY_MAX).as_bytes()),
        ),
        refused(
            "a deep workflow",
            posted("/v1/workflows:validate", deep.as_bytes()),
        ),
        refused("a deep batch", posted("/v1/sends:batch", deep.as_bytes())),
        refused(
            "a deep import",
            posted("/v1/sessions:import", deep.as_bytes()),
        ),
    ];
    for (name, value) in [
        ("a number beyond all", "1e999999999"),
        ("a number below all", "-1e999999999"),
        ("a tiny number", "1e-999999999"),
        ("the largest number", "1.7976931348623157e308"),
        (
            "a number of many digits",
            "123456789012345678901234567890.123456789",
        ),
        ("nothing below zero", "-0.0"),
        ("a zero in a text", "\"a\\u0000b\""),
        ("half a character", "\"\\ud800\""),
        ("two halves that do not fit", "\"\\udc00\\ud800\""),
        ("a name with a zero", "{\"\\u0000\":1}"),
        ("an empty name", "{\"\":{\"\":\"\"}}"),
        ("a name twice", "{\"a\":1,\"a\":2}"),
    ] {
        cases.push(case(name, posted(sessions, &meta(value)), Answers::Either));
    }
    cases
}

fn texts() -> Vec<Case> {
    let sends = "/v1/sends";
    let wide: Vec<u8> = "{\"input\":\"x\"}"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let input = |text: &str| posted(sends, format!("{{\"input\":\"{text}\"}}").as_bytes());
    let raw = |text: &[u8]| posted(sends, &[b"{\"input\":\"", text, b"\"}"].concat());
    vec![
        refused("an empty body", posted(sends, b"")),
        refused(
            "blanks",
            posted(sends, " ".repeat(BODY_MAX - 100).as_bytes()),
        ),
        refused("bytes that are no text in a body", raw(b"\xff\xfe\xc3\x28")),
        refused("a surrogate in bytes", raw(b"\xed\xa0\x80")),
        refused("an overlong character", raw(b"\xc0\xaf")),
        refused("a raw control character", raw(b"\x00\x01\x02")),
        refused("wide characters", posted(sends, &wide)),
        refused(
            "two marks before the text",
            posted(sends, "\u{feff}\u{feff}{\"input\":\"x\"}".as_bytes()),
        ),
        refused("more behind the end", posted(sends, b"{\"input\":\"x\"}{}")),
        refused("a comment", posted(sends, b"/* */{\"input\":\"x\"}")),
        refused("not a number", posted(sends, b"{\"input\":NaN}")),
        case("a zero in an input", input("a\\u0000b"), Answers::Either),
        case(
            "half a character in an input",
            input("\\ud800"),
            Answers::Either,
        ),
        case(
            "a text of many escapes",
            input(&"\\u0041".repeat(100_000)),
            Answers::Either,
        ),
        case(
            "a text that turns around",
            input("\u{202e}\u{200b}\u{feff}\u{1f600}"),
            Answers::Either,
        ),
        refused(
            "an id of zeros",
            posted(sends, b"{\"input\":\"x\",\"session_id\":\"ses_\\u0000\"}"),
        ),
        refused(
            "a key of zeros",
            posted(
                "/v1/keys",
                b"{\"name\":\"\\u0000\",\"scopes\":[\"\\u0000\"]}",
            ),
        ),
        case(
            "an agent of zeros",
            posted("/v1/agents", b"{\"name\":\"\\u0000\",\"agent\":{}}"),
            Answers::Refusals,
        ),
    ]
}
