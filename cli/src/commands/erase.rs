//! `mainspring erase`

use std::time::Duration;

use mainspring_shared::time::Clock as _;
use serde_json::{Value, json};

use crate::args::Format;
use crate::client::{Client, Request};
use crate::config::Config;
use crate::failure::{Failure, usage_text};
use crate::output;

/// How often the server is polled for progress.
const LOOK: Duration = Duration::from_secs(2);

/// Erases the tenant given by `--tenant`, whose name must be this one, and reports progress until
/// nothing is left.
pub(crate) async fn run(
    name: &str,
    waits: bool,
    format: Format,
    config: &Config,
) -> Result<(), Failure> {
    let Some(id) = &config.tenant else {
        return Err(usage_text(
            "no tenant is said",
            "say --tenant ID: mainspring tenants list has them",
        ));
    };
    // The request is made as the operator, because no request can act for a tenant that is being
    // erased.
    let client = Client::new(&Config {
        tenant: None,
        ..config.clone()
    })?;
    let request = Request::post(format!("/v1/tenants/{id}/erase"));
    let mut erasure = client.ask(request.body(json!({ "name": name }))).await?;
    let mut said = None;
    while waits && erasure["status"] != "erased" {
        let now = progress(&erasure);
        if said.as_ref() != Some(&now) {
            output::note(&now);
            said = Some(now);
        }
        client.clock.sleep(LOOK).await;
        let request = Request::get(format!("/v1/tenants/{id}/erasure"));
        erasure = client.ask(request).await?;
    }
    output::object(format, &erasure)
}

fn progress(erasure: &Value) -> String {
    let removed = erasure["removed"].as_object().into_iter().flatten();
    let rows: u64 = removed.filter_map(|(_, count)| count.as_u64()).sum();
    let blobs = match erasure["blobs_left"].as_u64() {
        None | Some(0) => String::new(),
        Some(blobs) => format!(", {blobs} blobs left"),
    };
    let failed = match erasure["failed"].as_str() {
        None => String::new(),
        Some(failed) => format!("; cannot be removed at present: {failed}"),
    };
    format!("{rows} rows removed{blobs}{failed}")
}
