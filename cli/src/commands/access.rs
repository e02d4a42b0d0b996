//! Who may use a scheduler: everyone who can reach it, or holders of a key.

use std::net::SocketAddr;
use std::sync::Arc;

use mainspring_api::{Access, RootKey, Verifier};
use mainspring_shared::store::Store;

use crate::config::Config;
use crate::failure::{Failure, usage_text};

/// Minimum characters of a root key.
const ROOT_KEY_CHARS_MIN: usize = 16;

/// The operator's key, from the configuration or its file.
fn root_key(config: &Config) -> Result<Option<RootKey>, Failure> {
    let text = match (&config.root_key, &config.root_key_file) {
        (None, None) => return Ok(None),
        (Some(key), None) => key.reveal().to_owned(),
        (None, Some(file)) => std::fs::read_to_string(file).map_err(|error| {
            usage_text(
                format!("{} cannot be read: {error}", file.display()),
                "root_key_file names a file that holds the operator's key",
            )
        })?,
        (Some(_), Some(_)) => {
            return Err(usage_text(
                "root_key and root_key_file are both set",
                "keep one of them",
            ));
        }
    };
    let text = text.trim();
    if text.chars().count() < ROOT_KEY_CHARS_MIN {
        return Err(usage_text(
            format!("the root key has less than {ROOT_KEY_CHARS_MIN} characters"),
            "`openssl rand -hex 32` generates one",
        ));
    }
    Ok(Some(RootKey::new(text)))
}

/// Access to `mainspring dev`: without a root key open on this machine, whatever keys there are, and
/// nowhere else.
pub(super) fn of_dev(
    config: &Config,
    issuers: Option<Arc<dyn Verifier>>,
    address: SocketAddr,
) -> Result<Access, Failure> {
    match (root_key(config)?, issuers) {
        (None, None) if address.ip().is_loopback() => Ok(Access::Open),
        (None, None) => open(config, address),
        (root, issuers) => Ok(Access::Keys { root, issuers }),
    }
}

/// Access to a scheduler: with keys as soon as there are any.
pub(super) async fn of_scheduler(
    config: &Config,
    store: &dyn Store,
    issuers: Option<Arc<dyn Verifier>>,
    address: SocketAddr,
) -> Result<Access, Failure> {
    let root = root_key(config)?;
    if root.is_some() || issuers.is_some() {
        return Ok(Access::Keys { root, issuers });
    }
    if config.insecure {
        return open(config, address);
    }
    let had_keys = store.had_keys().await;
    let had_keys = had_keys.map_err(|error| crate::wiring::store_failure(config, &error))?;
    if had_keys {
        return Ok(Access::Keys {
            root: None,
            issuers: None,
        });
    }
    open(config, address)
}

/// Open access: on this machine and until there are keys, unless the operator takes responsibility
/// with `insecure`.
fn open(config: &Config, address: SocketAddr) -> Result<Access, Failure> {
    if config.insecure {
        return Ok(Access::Open);
    }
    if address.ip().is_loopback() {
        return Ok(Access::UntilKeys);
    }
    Err(usage_text(
        format!("anyone who can reach {address} would have full access: there are no API keys"),
        "set MAINSPRING_ROOT_KEY (or MAINSPRING_ROOT_KEY_FILE), listen on 127.0.0.1, or pass \
         --insecure if only an authenticating proxy can reach it",
    ))
}
