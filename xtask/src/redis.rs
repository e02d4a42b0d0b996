//! A private Redis: in memory, and refusing writes when full, as in production.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::server::{self, Server};
use crate::{scratch, tools};

/// Finds the server's program.
pub(crate) fn find() -> Option<PathBuf> {
    tools::program("redis-server").or_else(|| tools::program("valkey-server"))
}

/// Starts a server on a free port.
pub(crate) fn start(program: &Path) -> anyhow::Result<Server> {
    let folder = tempfile::Builder::new()
        .prefix("mainspring-redis-")
        .tempdir_in(scratch::folder())?;
    let port = tools::free_port()?;
    let mut command = server::command(None, "KILL", program);
    command.args([
        "--bind",
        "127.0.0.1",
        "--port",
        &port.to_string(),
        "--save",
        "",
    ]);
    command.args([
        "--appendonly",
        "no",
        "--maxmemory-policy",
        "noeviction",
        "--dir",
    ]);
    command.arg(folder.path());
    let url = format!("redis://127.0.0.1:{port}");
    Server::start("Redis", url, folder, "-TERM", command, || {
        answers(port).unwrap_or(false)
    })
}

fn answers(port: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    Ok(&answer == b"+PONG")
}
