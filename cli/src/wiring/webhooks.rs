//! What a scheduler tells endpoints with.

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use mainspring_runtime::{Sealer, Secret};
use mainspring_scheduler::services::webhooks::WebhookParts;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::time::Clock;
use mainspring_tools::http::WebhookPoster;

use crate::config::Config;
use crate::failure::{Failure, usage, usage_text};

/// Where `mainspring dev` keeps the key that it makes.
const KEY_FILE: &str = "secrets.key";

/// How to make a key.
const HOW: &str = "`openssl rand -base64 32` generates one";

/// The poster, and the keys that secrets are sealed under if there are any.
pub(crate) fn webhooks(config: &Config, clock: &Arc<dyn Clock>) -> Result<WebhookParts, Failure> {
    let settings = &config.scheduler;
    // What tools may reach, messages may.
    let tools = config.tools.allow_private.iter();
    let allowed: Vec<String> = tools
        .chain(&settings.webhook_allow_private)
        .cloned()
        .collect();
    let poster = WebhookPoster::new(&allowed, settings.webhook_timeout, clock.clone());
    Ok(WebhookParts {
        poster: Some(Arc::new(poster.map_err(usage)?)),
        sealer: sealer(config)?.map(Arc::new),
    })
}

/// What opens secrets of the database, if there are keys for it.
pub(super) fn sealer(config: &Config) -> Result<Option<Sealer>, Failure> {
    let text = match (&config.secrets_key, &config.secrets_key_file) {
        (None, None) => return Ok(None),
        (Some(key), None) => key.reveal().to_owned(),
        (None, Some(file)) => read(file)?,
        (Some(_), Some(_)) => {
            return Err(usage_text(
                "secrets_key and secrets_key_file are both set",
                "keep one of them",
            ));
        }
    };
    let sealer = Sealer::parse(&text);
    let sealer = sealer.map_err(|error| usage_text(format!("secrets_key: {error}"), HOW))?;
    Ok(Some(sealer))
}

fn read(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|error| {
        usage_text(
            format!("{} cannot be read: {error}", file.display()),
            "secrets_key_file names a file with the key that encrypts secrets",
        )
    })
}

/// The same with a key in the data folder, which is made there the first time, unless one is configured.
pub(crate) fn with_own_key(config: &Config, entropy: &dyn Entropy) -> Result<Config, Failure> {
    let mut config = config.clone();
    if config.secrets_key.is_some() || config.secrets_key_file.is_some() {
        return Ok(config);
    }
    let file = config.data_dir.join(KEY_FILE);
    let made = std::fs::create_dir_all(&config.data_dir).and_then(|()| {
        let opened = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&file);
        match opened {
            Ok(mut opened) => writeln!(opened, "{}", Sealer::new_key(entropy)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    });
    if let Err(error) = made {
        // Without one it serves all the same, and says so where a secret is to be kept.
        tracing::warn!(file = %file.display(), %error, "no key for secrets could be created");
        return Ok(config);
    }
    config.secrets_key = Some(Secret::new(read(&file)?.trim()));
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use mainspring_runtime::OsEntropy;

    use super::*;

    #[test]
    fn dev_makes_a_key_once_that_nobody_else_reads() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = Config {
            data_dir: folder.path().join("data"),
            ..Config::default()
        };
        let key = |config: &Config| {
            let made = with_own_key(config, &OsEntropy).expect("a key");
            made.secrets_key.expect("a key").reveal().to_owned()
        };
        let first = key(&config);
        assert_eq!(key(&config), first);
        assert!(Sealer::parse(&first).is_ok());
        let file = std::fs::metadata(config.data_dir.join(KEY_FILE)).expect("it is there");
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_key_that_is_none_is_refused_with_how_to_make_one() {
        let config = Config {
            secrets_key: Some(Secret::new("short")),
            ..Config::default()
        };
        let failure = sealer(&config).expect_err("it is no key");
        assert!(failure.message.contains("key 1"), "{}", failure.message);
        assert!(sealer(&Config::default()).expect("none").is_none());
    }
}
