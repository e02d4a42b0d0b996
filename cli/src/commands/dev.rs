//! `mainspring dev`: both roles in one process, on the embedded database or the configured one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::config::{Backend, Config, Migrate};
use mainspring_runtime::Choice as _;

use super::access;
use super::server_process::{Base, address_of, bind};
use crate::args::DevArgs;
use crate::failure::Failure;
use crate::{output, wiring};

/// How long stopping may take beyond the requests in flight.
const MARGIN: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: &DevArgs, config: &Config) -> Result<(), Failure> {
    let config = &match args.database_url {
        Some(_) => config.clone(),
        None => embedded(config),
    };
    let base = Base::prepare()?;
    let config = &wiring::with_own_key(config, base.entropy.as_ref())?;
    let store = wiring::store(config, Migrate::Create).await?;
    base.mount_skills(config, &store).await;
    let listener = bind(&config.listen, "--listen").await?;
    let issuers = wiring::issuers(config, &base.clock)?;
    let access = access::of_dev(config, issuers, address_of(&listener)?)?;
    let wires = wiring::local(&base.clock);
    let worker = base.worker(config, store.clone(), &wires)?;
    let welcome = welcome(config);
    let scheduler = base.scheduler(config, store, &wires, listener, access, welcome)?;
    base.run(
        vec![scheduler, worker],
        config.worker.drain_timeout + MARGIN,
    )
    .await
}

/// The configuration with the embedded database instead of a database server: a variable that is
/// set for other programs must not decide where a first try stores its data.
pub(super) fn embedded(config: &Config) -> Config {
    let mut config = config.clone();
    if config.backend() != Backend::Sqlite {
        let url = wiring::database(&config);
        let folder = config.data_dir.display();
        output::note(&format!("note: it uses the data in {folder}, not {url}"));
        config.database_url = None;
    }
    config
}

/// The file in a data folder with the URL of the process that serves it, for `mainspring run`
/// there.
const ADDRESS: &str = "mainspring.url";

/// The URL at which the process that uses the data folder serves: on this machine, whatever the
/// file says, which may come with a folder from elsewhere.
pub(super) fn served_at(config: &Config) -> Option<String> {
    let said = std::fs::read_to_string(config.data_dir.join(ADDRESS)).ok()?;
    local(said.trim())
}

/// The URL, if it is one of a loopback address.
fn local(url: &str) -> Option<String> {
    let address: SocketAddr = url.strip_prefix("http://")?.parse().ok()?;
    address.ip().is_loopback().then(|| url.to_owned())
}

fn welcome(config: &Config) -> impl FnOnce(SocketAddr) + Send + 'static {
    let folder = wiring::database(config);
    let provider = config.llm.kind.as_str();
    let model = match &config.llm.model {
        Some(model) if model == provider => String::new(),
        Some(model) => format!("/{model}"),
        None => ", no default model: agents must name one, or set MAINSPRING_LLM_MODEL".to_owned(),
    };
    let program = std::env::args()
        .next()
        .unwrap_or_else(|| "mainspring".to_owned());
    let server = config.server.clone();
    let address_file = config.data_dir.join(ADDRESS);
    move |address| {
        // A listener on all interfaces is reached locally over the loopback address.
        let near = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        let url = format!("http://{}", SocketAddr::new(near, address.port()));
        // Without the file, other commands only give a less precise hint about where to connect.
        if let Err(error) = std::fs::write(&address_file, &url) {
            tracing::debug!(%error, "the address could not be written to the data folder");
        }
        let at = if url == server {
            String::new()
        } else {
            format!(" --server {url}")
        };
        let text = format!(
            "Mainspring runs at {url}\n  console   {url}/\n  docs      {url}/docs/\n  data      {folder}\n  model     {provider}{model}\n\n\
             Next, in another terminal:\n  {program}{at} send --wait \"hello\"\n\
             \x20 {program}{at} chat\n"
        );
        // If nobody reads it, nothing is lost.
        drop(output::raw(&text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_leads_to_no_other_machine() {
        for there in ["http://127.0.0.1:7464", "http://[::1]:80"] {
            assert_eq!(local(there).as_deref(), Some(there));
        }
        for elsewhere in [
            "http://10.0.0.1:7464",
            "http://attacker.example:80",
            "http://localhost:7464",
            "http://127.0.0.1:7464@attacker.example",
            "http://127.0.0.1:7464/x",
            "https://127.0.0.1:7464",
            "",
        ] {
            assert_eq!(local(elsewhere), None, "{elsewhere}");
        }
    }
}
