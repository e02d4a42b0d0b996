//! Pages over real sockets, most of them hostile.

use mainspring_runtime::SystemClock;
use mainspring_shared::message::plain_text;

use super::*;
use crate::web::site::{Page, Site, invocation};

/// A tool that may read this machine's first address and no other private one.
fn fetch(timeout: Duration) -> Fetch {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let settings = WebSettings {
        allow_private: vec!["127.0.0.1".to_owned()],
        timeout,
        bytes_max: 1 << 20,
        ..WebSettings::default()
    };
    Fetch::new(&settings, Arc::new(SystemClock::new())).expect("the settings are fine")
}

const LONG: Duration = Duration::from_mins(1);
const SHORT: Duration = Duration::from_millis(400);

async fn read(fetch: &Fetch, url: &str) -> Result<String, String> {
    let output = fetch.call(invocation(&json!({ "url": url }))).await;
    let output = output.map(|output| plain_text(&output.content));
    output.map_err(|error| error.to_string())
}

async fn refused(fetch: &Fetch, url: &str) -> String {
    read(fetch, url).await.expect_err(url)
}

fn redirect(to: &str) -> Page {
    Page::with(&format!("302 Found\r\nlocation: {to}"), "")
}

#[tokio::test]
async fn pages_are_read_as_what_they_are() {
    let html = "<html><head><title>A page</title></head><body><h1>Hi</h1><a href='/b'>there</a></body></html>";
    let site = Site::start([
        ("/html", Page::of("text/html; charset=utf-8", html)),
        ("/untold", Page::with("200 OK", html)),
        (
            "/latin",
            Page::of("text/plain; charset=iso-8859-1", b"caf\xe9"),
        ),
        (
            "/json",
            Page::of("application/json", "{ \"a\": 25000000000000000001 }"),
        ),
        ("/png", Page::of("image/png", b"\x89PNG\r\n\x00")),
        ("/moved", redirect("/html#part")),
        ("/gone", Page::with("410 Gone", "x")),
    ])
    .await;
    let fetch = fetch(LONG);
    let (url, there) = (site.url("/html"), site.url("/b"));
    let expected = format!("A page\n{url}\n\n# Hi\n\n[there]({there})");
    assert_eq!(read(&fetch, &site.url("/html")).await, Ok(expected.clone()));
    assert_eq!(read(&fetch, &site.url("/moved")).await, Ok(expected));
    assert!(
        read(&fetch, &site.url("/untold"))
            .await
            .expect("read")
            .contains("# Hi")
    );
    let latin = site.url("/latin");
    assert_eq!(
        read(&fetch, &latin).await,
        Ok(format!("{latin}\n\ncaf\u{e9}"))
    );
    let json = read(&fetch, &site.url("/json")).await;
    assert_eq!(json.as_deref(), Ok("{\"a\":25000000000000000001}"));
    let png = read(&fetch, &site.url("/png")).await.expect("described");
    assert!(
        png.ends_with("[7 bytes of image/png, which is not text]"),
        "{png}"
    );
    let gone = refused(&fetch, &site.url("/gone")).await;
    assert!(gone.ends_with("answered 410 Gone"), "{gone}");
    // The rules of the site were read once for all of them.
    let rules = site
        .asked()
        .iter()
        .filter(|path| *path == "/robots.txt")
        .count();
    assert_eq!(rules, 1);
    assert!(site.heads()[1].contains("accept-encoding: identity"));
}

#[tokio::test]
async fn no_way_to_a_private_address_is_followed() {
    let inside = Site::at(
        "127.0.0.2:0",
        [("/secret", Page::of("text/plain", "inside"))],
    )
    .await;
    let port = inside.address.port();
    let (far, near) = (
        format!("http://127.0.0.2:{port}/secret"),
        format!("http://localhost.:{port}/"),
    );
    let site = Site::start([
        ("/a", redirect("http://169.254.169.254/latest/meta-data/")),
        ("/b", redirect(&far)),
        ("/c", redirect("http://[::ffff:169.254.169.254]/")),
        ("/d", redirect("file:///etc/passwd")),
        ("/e", redirect(&format!("//127.0.0.2:{port}/secret"))),
        ("/f", redirect("http://2852039166/")),
        ("/g", redirect("http://user:password@127.0.0.1/")),
        ("/h", redirect("/h")),
        ("/i", Page::with("302 Found", "")),
    ])
    .await;
    let fetch = fetch(LONG);
    for path in ["/a", "/b", "/c", "/d", "/e", "/f", "/g", "/i"] {
        let why = refused(&fetch, &site.url(path)).await;
        assert!(why.contains("redirects"), "{path}: {why}");
    }
    let why = refused(&fetch, &site.url("/h")).await;
    assert!(why.contains("redirects more than 5 times"), "{why}");
    for url in [
        far.as_str(),
        "http://169.254.169.254/",
        "http://[::1]/",
        "ftp://127.0.0.1/",
        "x",
        "http://a:b@127.0.0.1/",
    ] {
        refused(&fetch, url).await;
    }
    let other = Fetch::new(&WebSettings::default(), Arc::new(SystemClock::new())).expect("fine");
    let why = refused(&other, &near).await;
    assert!(why.contains("not allowed"), "{why}");
    assert_eq!(inside.asked(), [""; 0]);
}

#[tokio::test]
async fn what_the_rules_of_a_site_forbid_is_not_read() {
    let rules = "User-agent: *\nDisallow: /private\nAllow: /private/open\n";
    let site = Site::start([
        ("/robots.txt", Page::of("text/plain", rules)),
        ("/private", Page::of("text/plain", "no")),
        ("/private/open", Page::of("text/plain", "yes")),
        ("/in", redirect("/private")),
    ])
    .await;
    let fetch = fetch(LONG);
    for path in ["/private", "/in", "/private?open=/private/open"] {
        let why = refused(&fetch, &site.url(path)).await;
        assert!(why.contains("do not allow to read /private"), "{why}");
    }
    assert!(read(&fetch, &site.url("/private/open")).await.is_ok());
    assert!(!site.asked().contains(&"/private".to_owned()));
    let mut settings = fetch.settings.clone();
    settings.robots = false;
    let rude = Fetch::new(&settings, Arc::new(SystemClock::new())).expect("fine");
    assert!(read(&rude, &site.url("/private")).await.is_ok());
}

#[tokio::test]
async fn a_site_that_does_not_say_its_rules_is_not_read() {
    let stuck = Page::Stuck(b"HTTP/1.1 200 OK\r\n\r\nuser-agent: *\n".to_vec());
    let torn = Page::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nallow: /".to_vec());
    let pages = || ("/page", Page::of("text/plain", "page"));
    for rules in [
        Page::Raw(Vec::new()),
        Page::with("503 Busy", ""),
        Page::with("429 No", ""),
        torn,
    ] {
        let site = Site::start([("/robots.txt", rules), pages()]).await;
        let fetch = fetch(LONG);
        for _ in 0..2 {
            let why = refused(&fetch, &site.url("/page")).await;
            assert!(
                why.contains("cannot be read, so its pages are not"),
                "{why}"
            );
        }
        assert_eq!(
            site.asked(),
            ["/robots.txt"],
            "for a minute nobody asks again"
        );
    }
    let site = Site::start([("/robots.txt", stuck), pages()]).await;
    let why = refused(&fetch(SHORT), &site.url("/page")).await;
    assert!(
        why.contains("400ms") || why.contains("its pages are not"),
        "{why}"
    );
    // Rules without an end are those that are read of them.
    let endless = Page::Endless(
        b"HTTP/1.1 200 OK\r\n\r\nuser-agent: *\ndisallow: /x\n".to_vec(),
        b"disallow: /y\n".repeat(1_000),
    );
    let site = Site::start([("/robots.txt", endless), pages()]).await;
    assert!(read(&fetch(LONG), &site.url("/page")).await.is_ok());
}

#[tokio::test]
async fn nothing_that_has_no_end_is_read_to_its_end() {
    let head = |headers: &str| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n{headers}\r\n").into_bytes()
    };
    let open = Page::Endless(head(""), b"<p>x".repeat(10_000));
    let lying = Page::Endless(
        head("content-length: 1000000000000\r\n"),
        b"<p>x".repeat(10_000),
    );
    let chunked = Page::Endless(
        head("transfer-encoding: chunked\r\n"),
        b"4\r\n<p>x\r\n".repeat(10_000),
    );
    let headers = Page::Endless(b"HTTP/1.1 200 OK\r\nx: ".to_vec(), b"x".repeat(10_000));
    let stuck = Page::Stuck(head("content-length: 100\r\n"));
    let silent = Page::Stuck(Vec::new());
    let torn = Page::Raw([head("content-length: 100\r\n"), b"half".to_vec()].concat());
    let wrong = Page::Raw(
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 7\r\n\r\n12345".to_vec(),
    );
    let more = Page::Raw([head("content-length: 4\r\n"), b"four and more".to_vec()].concat());
    let site = Site::start([
        ("/open", open),
        ("/lying", lying),
        ("/chunked", chunked),
        ("/headers", headers),
        ("/stuck", stuck),
        ("/silent", silent),
        ("/torn", torn),
        ("/wrong", wrong),
        ("/more", more),
    ])
    .await;
    let long = fetch(LONG);
    for path in ["/open", "/lying", "/chunked"] {
        let text = read(&long, &site.url(path)).await.expect(path);
        assert!(
            text.ends_with("[… the page was cut here …]") && text.len() < 1_100_000,
            "{path}: {}",
            text.len()
        );
    }
    for path in ["/headers", "/torn", "/wrong"] {
        let why = refused(&long, &site.url(path)).await;
        assert!(why.contains("cannot be read"), "{path}: {why}");
    }
    assert!(
        read(&long, &site.url("/more"))
            .await
            .expect("read")
            .ends_with("\n\nfour")
    );
    let short = fetch(SHORT);
    for path in ["/stuck", "/silent"] {
        let why = refused(&short, &site.url(path)).await;
        assert!(
            why.contains("took longer than 400ms") || why.contains("cannot be read"),
            "{path}: {why}"
        );
    }
}

#[tokio::test]
async fn a_page_that_is_packed_is_not_unpacked() {
    // What gzip makes of zeros is a thousandth of them; whatever it is, nothing here looks into it.
    for encoding in ["gzip", "br", "deflate", "gzip, gzip"] {
        let head = format!("200 OK\r\ncontent-type: text/html\r\ncontent-encoding: {encoding}");
        let site = Site::start([("/bomb", Page::with(&head, b"\x1f\x8b\x08\x00\x00"))]).await;
        let why = refused(&fetch(LONG), &site.url("/bomb")).await;
        assert!(why.contains("packed"), "{why}");
    }
}

#[tokio::test]
async fn ten_megabytes_of_nested_markup_are_read_within_their_bounds() {
    let html = "<div><ul><li><b>".repeat((10 << 20) / 16);
    let site = Site::start([("/deep", Page::of("text/html", html))]).await;
    let settings = WebSettings {
        bytes_max: 10 << 20,
        ..fetch(LONG).settings
    };
    let fetch = Fetch::new(&settings, Arc::new(SystemClock::new())).expect("fine");
    let text = read(&fetch, &site.url("/deep")).await.expect("read");
    assert!(text.len() < 1_100_000, "{}", text.len());
    assert!(text.ends_with("[… the page was cut here …]"));
}

#[tokio::test]
async fn a_call_that_is_stopped_ends() {
    let site = Site::start([("/robots.txt", Page::Stuck(Vec::new()))]).await;
    let invocation = invocation(&json!({ "url": site.url("/x") }));
    invocation.stop.cancel();
    let ended = fetch(LONG).call(invocation).await.expect_err("stopped");
    assert!(ended.to_string().contains("stopped"), "{ended}");
}
