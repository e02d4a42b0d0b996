//! `mainspring signing-key`

use mainspring_shared::id::TenantId;
use mainspring_tools::http::{Kind, signing_keys};
use mainspring_worker::llm::Secret;

use crate::args::SigningKeyArgs;
use crate::config::Config;
use crate::failure::{Failure, usage, usage_text};
use crate::output;

/// Prints the keys that a recipient verifies requests with, one for each configured secret.
pub(crate) fn run(args: &SigningKeyArgs, config: &Config) -> Result<(), Failure> {
    let Some(secrets) = &config.tools.signing_secret else {
        let message = "tools.signing_secret is not set: requests are not signed";
        return Err(usage_text(message, "use the configuration of your workers"));
    };
    let secrets: Vec<Secret> = secrets
        .reveal()
        .split_whitespace()
        .map(Secret::new)
        .collect();
    let tenant: Option<TenantId> = match &config.tenant {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| {
            usage_text(
                format!("{text:?} is not a tenant's id"),
                "give one like ten_2",
            )
        })?),
    };
    let keys = signing_keys(&secrets, Kind::from(args.kind), &args.url, tenant).map_err(usage)?;
    keys.iter().try_for_each(|key| output::line(key))
}
