//! What a scheduler needs to deliver webhooks.

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use mainspring_runtime::{Sealer, Secret};
use mainspring_scheduler::services::webhooks::WebhookParts;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::time::Clock;
use mainspring_tools::http::WebhookPoster;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::config::Config;
use crate::failure::{Failure, usage, usage_text};

/// The file in which `mainspring dev` keeps the key that it generates.
const KEY_FILE: &str = "secrets.key";

/// Limits on the run time and the output of the command that prints the keys.
const KEY_LIMIT: Duration = Duration::from_secs(30);
const KEY_BYTES_MAX: u64 = 64 << 10;

/// How to generate a key.
const HOW: &str = "`openssl rand -base64 32` generates one";

/// The poster, and the keys that seal secrets, if there are any.
pub(crate) fn webhooks(config: &Config, clock: &Arc<dyn Clock>) -> Result<WebhookParts, Failure> {
    let settings = &config.scheduler;
    // Tenants write these URLs as they write those of tools, but whoever lets a tool's worker reach
    // a network has not let the scheduler reach it.
    let allowed = &settings.webhook_allow_private;
    let poster = WebhookPoster::new(allowed, settings.webhook_timeout, clock.clone());
    Ok(WebhookParts {
        poster: Some(Arc::new(poster.map_err(usage)?)),
        sealer: sealer(config)?.map(Arc::new),
    })
}

/// Opens the secrets in the database, if there are keys for it.
pub(super) fn sealer(config: &Config) -> Result<Option<Sealer>, Failure> {
    let command = &config.secrets_key_command;
    let text = match (&config.secrets_key, &config.secrets_key_file) {
        (None, None) if command.is_empty() => return Ok(None),
        (None, None) => printed(command)?,
        (Some(key), None) if command.is_empty() => key.reveal().to_owned(),
        (None, Some(file)) if command.is_empty() => read(file)?,
        (Some(_) | None, Some(_) | None) => {
            return Err(usage_text(
                "more than one of secrets_key, secrets_key_file and secrets_key_command is set",
                "keep one of them",
            ));
        }
    };
    let sealer = Sealer::parse(text.trim());
    let sealer = sealer.map_err(|error| usage_text(format!("secrets_key: {error}"), HOW))?;
    Ok(Some(sealer))
}

/// Runs the command that prints the keys. Neither its output nor its error output is ever shown.
fn printed(command: &[String]) -> Result<String, Failure> {
    let failed = |why: String| {
        usage_text(
            format!("secrets_key_command {why}"),
            "run the command as the user of this process: it has to print the keys and exit with 0",
        )
    };
    let command = command.to_owned();
    // On a runtime of its own: the caller runs in one that must not be blocked.
    let printing = std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot be run: {error}"))?;
        runtime
            .block_on(async { timeout(KEY_LIMIT, output(&command)).await })
            .unwrap_or_else(|_| Err(format!("gave no answer in {} s", KEY_LIMIT.as_secs())))
    });
    let printed = printing.join();
    printed
        .unwrap_or_else(|_| Err("broke off".to_owned()))
        .map_err(failed)
}

async fn output(command: &[String]) -> Result<String, String> {
    let (program, arguments) = command.split_first().ok_or("is empty")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("cannot be run: {error}"))?;
    let mut bytes = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let read = stdout.take(KEY_BYTES_MAX + 1).read_to_end(&mut bytes).await;
        read.map_err(|error| format!("cannot be read: {error}"))?;
    }
    if bytes.len() as u64 > KEY_BYTES_MAX {
        return Err(format!("prints more than {KEY_BYTES_MAX} bytes"));
    }
    let status = child.wait().await;
    let status = status.map_err(|error| format!("was lost: {error}"))?;
    if !status.success() {
        return Err(format!("failed with {status}"));
    }
    String::from_utf8(bytes).map_err(|_| "prints what is no text".to_owned())
}

fn read(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|error| {
        usage_text(
            format!("{} cannot be read: {error}", file.display()),
            "secrets_key_file names a file with the key that encrypts secrets",
        )
    })
}

/// The configuration with the key command replaced by the key that it prints, so that a process
/// with both roles runs it once, before it serves, and both roles have the same key.
pub(crate) fn with_printed_key(config: &Config) -> Result<Config, Failure> {
    let mut config = config.clone();
    let is_only = config.secrets_key.is_none() && config.secrets_key_file.is_none();
    if is_only && !config.secrets_key_command.is_empty() {
        let text = printed(&config.secrets_key_command)?;
        config.secrets_key = Some(Secret::new(text.trim()));
        config.secrets_key_command.clear();
    }
    Ok(config)
}

/// The same, but if no key is configured, one in the data folder is used, generated on first use.
pub(crate) fn with_own_key(config: &Config, entropy: &dyn Entropy) -> Result<Config, Failure> {
    let mut config = with_printed_key(config)?;
    let has_command = !config.secrets_key_command.is_empty();
    if config.secrets_key.is_some() || config.secrets_key_file.is_some() || has_command {
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
        // Without a key the process still serves, and reports the lack when a secret is to be
        // stored.
        tracing::warn!(
            file = %file.display(),
            %error,
            "could not create a key to encrypt secrets; none can be stored"
        );
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

    /// The sealer for a key command that runs this shell script.
    fn by(script: &str) -> Result<Option<Sealer>, Failure> {
        sealer(&Config {
            secrets_key_command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            ..Config::default()
        })
    }

    #[test]
    fn a_command_prints_the_key_and_nothing_of_it_is_told() {
        let key = Sealer::new_key(&OsEntropy);
        assert!(by(&format!("echo {key}")).expect("a key").is_some());
        for (script, said) in [
            (format!("echo {key}; echo {key} >&2; exit 3"), "status: 3"),
            (
                "head -c 70000 /dev/zero".to_owned(),
                "more than 65536 bytes",
            ),
            ("printf '\\377'".to_owned(), "no text"),
            (format!("echo {key}x"), "key 1"),
        ] {
            let failure = by(&script).expect_err(&script);
            assert!(failure.message.contains(said), "{}", failure.message);
            assert!(!failure.message.contains(&key), "{}", failure.message);
        }
    }

    #[test]
    fn a_key_comes_from_one_place() {
        let config = Config {
            secrets_key: Some(Secret::new("short")),
            secrets_key_command: vec!["true".to_owned()],
            ..Config::default()
        };
        let failure = sealer(&config).expect_err("two places");
        assert!(
            failure.message.contains("more than one"),
            "{}",
            failure.message
        );
        let config = Config {
            secrets_key_command: vec!["/nowhere/at-all".to_owned()],
            ..Config::default()
        };
        let failure = sealer(&config).expect_err("no such program");
        assert!(
            failure.message.contains("cannot be run"),
            "{}",
            failure.message
        );
    }
}
