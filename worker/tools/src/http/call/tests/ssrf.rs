//! Attempts to make a worker call what only the worker can reach, one by one.

use std::net::TcpListener;

use super::*;
use crate::http::dns::Nowhere;

/// Ways to write this machine in a URL, all of which reach a listener on 127.0.0.1 if let through.
/// `PORT` stands for its port.
const LOOPBACK: &[&str] = &[
    "http://127.0.0.1:PORT/",
    "http://127.0.0.1.:PORT/",
    "http://127.1:PORT/",
    "http://127.0.1:PORT/",
    "http://2130706433:PORT/",
    "http://0x7f000001:PORT/",
    "http://0x7f.0.0.1:PORT/",
    "http://0X7F.0x0.0x0.0x1:PORT/",
    "http://0177.0.0.1:PORT/",
    "http://017700000001:PORT/",
    "http://0000000177.0.0.1:PORT/",
    "http://%31%32%37.0.0.1:PORT/",
    "http://１２７.0.0.1:PORT/",
    "http://①②⑦.0.0.1:PORT/",
    "http://127。0。0。1:PORT/",
    "http://[::ffff:127.0.0.1]:PORT/",
    "http://[::ffff:7f00:1]:PORT/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]:PORT/",
    "http://user:secret@127.0.0.1:PORT/",
    "http://public.example@127.0.0.1:PORT/",
    "http://public.example:80@127.0.0.1:PORT/",
    "http://127.0.0.1:PORT\\@public.example/",
    "http://127.0.0.1:PORT#@public.example/",
    "http://127.0.0.1:PORT?@public.example/",
    "http:127.0.0.1:PORT/",
    "http:\\\\127.0.0.1:PORT/",
    "http:///127.0.0.1:PORT/",
    "HtTp://127.0.0.1:PORT/",
    " http://127.0.0.1:PORT/",
    "ht\ntp://127.0.\t0.1:PORT/",
    "http://0:PORT/",
    "http://0.0.0.0:PORT/",
    "http://0x0:PORT/",
    "http://localhost:PORT/",
    "http://LOCALHOST:PORT/",
    "http://localhost.:PORT/",
    "http://inside.example:PORT/",
];

/// Addresses that no call may go to, whether or not anything listens there.
const ELSEWHERE: &[&str] = &[
    "http://[::]/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::127.0.0.1]/",
    "http://[::7f00:1]/",
    "http://10.0.0.1/",
    "http://167772161/",
    "http://172.16.0.1/",
    "http://192.168.0.1/",
    "http://0xc0.0xa8.1/",
    "http://[::ffff:192.168.0.1]/",
    "http://100.64.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://2852039166/latest/meta-data/",
    "http://0xa9fea9fe/",
    "http://0251.0376.0251.0376/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[64:ff9b::169.254.169.254]/",
    "http://[fd00:ec2::254]/",
    "http://[fc00::1]/",
    "http://[fe80::1]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[2001:db8::1]/",
    "http://[2002:7f00:1::]/",
    "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
    "http://192.0.2.1/",
    "http://198.51.100.1/",
    "http://203.0.113.1/",
    "http://198.18.0.1/",
    "http://224.0.0.1/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://metadata.example/",
    "http://mapped.example/",
    "http://unspecified.example/",
];

/// URLs that are invalid, or have an unsupported scheme.
const UNUSABLE: &[&str] = &[
    "",
    "/etc/passwd",
    "//127.0.0.1/",
    "http://",
    "http://[fe80::1%25lo]/",
    "http://[fe80::1%lo]/",
    "http://[::1/",
    "http://127.0.0.1.256/",
    "http://1.2.3.4.5/",
    "http://256.256.256.256/",
    "http://127.0.0.1:99999/",
    "file:///etc/passwd",
    "ftp://127.0.0.1/",
    "gopher://127.0.0.1/",
    "unix:///var/run/docker.sock",
    "data:text/plain,hello",
];

/// Names as a hostile or careless DNS may resolve them.
const NAMES: &[(&str, &[&[&str]])] = &[
    ("localhost", &[&["127.0.0.1"]]),
    ("localhost.", &[&["127.0.0.1"]]),
    ("inside.example", &[&["127.0.0.1"]]),
    ("metadata.example", &[&["169.254.169.254"]]),
    ("mapped.example", &[&["::ffff:10.0.0.1"]]),
    ("unspecified.example", &[&["0.0.0.0", "::"]]),
];

async fn refused(world: &World, url: &str) -> String {
    let (code, message) = refusal(world.call(url, Repeat::Safe).await);
    // A name that leads inside is told, and tried again, like one that nobody knows.
    if message.contains(&Nowhere.to_string()) {
        return message;
    }
    assert_eq!(code, Code::ToolFailed, "{url:?}: {message}");
    assert!(
        message.starts_with("the tool cannot be called"),
        "{url:?}: {message}"
    );
    assert!(world.clock.waits().is_empty(), "{url:?} was tried again");
    message
}

#[tokio::test]
async fn no_way_to_write_this_machine_reaches_it() {
    let server = Server::start(vec![Act::with(200, "", "reached")]).await;
    let world = world(&[], NAMES);
    for url in LOOPBACK {
        let url = url.replace("PORT", &server.address.port().to_string());
        let message = refused(&world, &url).await;
        assert!(message.contains("not allowed"), "{url:?}: {message}");
    }
    assert_eq!(server.connections(), 0);
}

/// The counterpart of the test above: each of those URLs would have reached the server.
#[tokio::test]
async fn every_way_to_write_this_machine_reaches_it_once_it_is_allowed() {
    let server = Server::start(vec![Act::with(200, "", "reached")]).await;
    let world = world(&["127.0.0.1", "0.0.0.0"], NAMES);
    for url in LOOPBACK {
        let url = url.replace("PORT", &server.address.port().to_string());
        let output = world.call(&url, Repeat::Safe).await;
        assert_eq!(output, Ok(Output::text("reached")), "{url:?}");
    }
}

#[tokio::test]
async fn no_address_that_is_not_public_is_called() {
    let world = world(&[], NAMES);
    for url in ELSEWHERE {
        let message = refused(&world, url).await;
        assert!(message.contains("not allowed"), "{url:?}: {message}");
    }
}

#[tokio::test]
async fn what_is_no_url_of_http_is_not_called() {
    let world = world(&["127.0.0.0/8", "::1", "fe80::/10"], NAMES);
    for url in UNUSABLE {
        let message = refused(&world, url).await;
        assert!(message.contains("URL"), "{url:?}: {message}");
    }
    assert_eq!(
        world.names.asked.lock().expect("no panic").as_slice(),
        [""; 0]
    );
}

/// A port that is free on both addresses: being free on the first says nothing about the other.
fn port_of_both() -> u16 {
    let port_of_first = || {
        let first = TcpListener::bind("127.0.0.2:0").expect("a port is free");
        let port = first.local_addr().expect("it is bound").port();
        TcpListener::bind(("127.0.0.1", port)).ok().map(|_| port)
    };
    (0..100)
        .find_map(|_| port_of_first())
        .expect("a port is free on both")
}

#[tokio::test]
async fn a_name_with_good_and_bad_addresses_is_called_at_the_good_ones_only() {
    let port = port_of_both();
    let bad = Server::at(
        &format!("127.0.0.2:{port}"),
        vec![Act::with(200, "", "bad")],
    )
    .await;
    let good = Server::at(
        &format!("127.0.0.1:{port}"),
        vec![Act::with(200, "", "good")],
    )
    .await;
    let mixed: &[&str] = &["127.0.0.2", "10.0.0.1", "127.0.0.1"];
    let world = world(&["127.0.0.1/32"], &[("mixed.example", &[mixed])]);
    let output = world
        .call(&format!("http://mixed.example:{port}/"), Repeat::Once)
        .await;
    assert_eq!(output, Ok(Output::text("good")));
    assert_eq!((bad.connections(), good.connections()), (0, 1));
}

/// The name resolves to an outside address when it is checked and to an inside one when it is used.
/// There is one lookup for both, and the next connection has its own.
#[tokio::test]
async fn a_name_that_changes_between_check_and_use_gains_nothing() {
    let outside = Server::start(vec![Act::Answer(
        200,
        "connection: close\r\n".to_owned(),
        b"outside".to_vec(),
    )])
    .await;
    let port = outside.address.port();
    let inside = Server::at(
        &format!("127.0.0.2:{port}"),
        vec![Act::with(200, "", "inside")],
    )
    .await;
    let rebinding: &[&[&str]] = &[&["127.0.0.1"], &["127.0.0.2"]];
    let world = world(&["127.0.0.1/32"], &[("rebind.example", rebinding)]);
    let url = format!("http://rebind.example:{port}/");

    let first = world.call(&url, Repeat::Safe).await;
    assert_eq!(first, Ok(Output::text("outside")));
    assert_eq!(world.names.asked.lock().expect("no panic").len(), 1);

    let message = refused(&world, &url).await;
    assert!(message.contains("not allowed"), "{message}");
    // Each of three attempts asks again.
    assert_eq!(world.names.asked.lock().expect("no panic").len(), 4);
    assert_eq!((outside.connections(), inside.connections()), (1, 0));
}

#[tokio::test]
async fn a_redirect_inside_is_told_and_not_followed() {
    let inside = Server::start(vec![Act::with(200, "", "inside")]).await;
    for status in [301, 302, 303, 307, 308] {
        let location = format!("location: http://{}/\r\n", inside.address);
        let outside = Server::start(vec![Act::with(status, &location, "")]).await;
        let world = world(LOCAL, &[]);
        let (code, message) = refusal(world.call(&url(&outside), Repeat::Safe).await);
        assert_eq!(code, Code::ToolFailed);
        assert!(
            message.contains("a redirect, which is not followed"),
            "{message}"
        );
        assert_eq!(outside.requests().len(), 1);
    }
    assert_eq!(inside.connections(), 0);
}

#[tokio::test]
async fn names_that_the_system_knows_are_checked_as_well() {
    let server = Server::start(vec![Act::with(200, "", "reached")]).await;
    let settings = CallerSettings::default();
    drop(world_with(&settings, &[]));
    let caller = Caller::new(&settings, Arc::new(Leaping::default()), Arc::new(OsEntropy));
    let caller = caller.expect("the settings are fine");
    let url = format!("http://localhost:{}/", server.address.port());
    let tool = caller.tool(&declared(&url, Repeat::Safe, Duration::from_mins(1)));
    let (_, message) = refusal(tool.call(invocation()).await);
    assert!(message.contains("not allowed"), "{message}");
    assert_eq!(server.connections(), 0);
}
