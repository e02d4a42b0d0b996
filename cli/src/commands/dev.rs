//! `mainspring dev`: both roles in one process, on an embedded database.

use std::net::SocketAddr;
use std::time::Duration;

use mainspring_runtime::{Backend, Config, Migrate};

use super::serve::{Base, bind};
use crate::failure::Failure;
use crate::{output, wiring};

/// What a stop may take beyond the answers under way.
const MARGIN: Duration = Duration::from_secs(5);

pub(crate) async fn run(config: &Config) -> Result<(), Failure> {
    let config = &embedded(config);
    let base = Base::prepare()?;
    let store = wiring::store(config, Migrate::Create).await?;
    let listener = bind(&config.listen, "--listen").await?;
    let wires = wiring::local();
    let worker = base.worker(config, store.clone(), &wires)?;
    let welcome = welcome(config);
    let scheduler = base.scheduler(config, store, &wires, listener, welcome);
    base.run(
        vec![scheduler, worker],
        config.worker.drain_timeout.0 + MARGIN,
    )
    .await
}

/// The same without a database that takes a server: a variable that is there for other programs
/// must not decide where a first try leaves its data.
pub(super) fn embedded(config: &Config) -> Config {
    let mut config = config.clone();
    if config.backend() != Backend::Sqlite {
        let url = wiring::database(&config);
        let folder = config.data_dir.display();
        output::note(&format!(
            "note: its data is {folder}, and {url} is left alone"
        ));
        config.database_url = None;
    }
    config
}

fn welcome(config: &Config) -> impl FnOnce(SocketAddr) + Send + 'static {
    let folder = wiring::database(config);
    let provider = config.llm.provider.as_str();
    let model = config.llm.model.clone().unwrap_or_default();
    let program = std::env::args()
        .next()
        .unwrap_or_else(|| "mainspring".to_owned());
    let server = config.server.clone();
    move |address| {
        let url = format!("http://{address}");
        let at = if url == server {
            String::new()
        } else {
            format!(" --server {url}")
        };
        let model = if provider == model {
            String::new()
        } else {
            format!("/{model}")
        };
        let text = format!(
            "Mainspring runs at {url}\n  data      {folder}\n  model     {provider}{model}\n\n\
             Next, in another terminal:\n  {program}{at} send --wait \"hello\"\n\
             \x20 {program}{at} chat\n"
        );
        // Whoever does not read it knows the address already.
        drop(output::raw(&text));
    }
}
