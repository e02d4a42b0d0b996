//! The headers of requests to a server over HTTP: those of the settings, and those that are read
//! from files, a program or an authorization server, again whenever the server refuses them.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use mainspring_shared::secrets::Secrets;
use mainspring_shared::time::Clock;
use mainspring_worker::llm::Secret;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::oauth::{OAuth, OAuthSettings};
use super::process::inherited;
use super::settings::header;

/// Headers as the HTTP client takes them.
pub(super) type Headers = HashMap<HeaderName, HeaderValue>;

/// Bytes of a file or a program's output with headers.
const BYTES_MAX: u64 = 64 << 10;

/// How long a program may take to print headers.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// The shortest time between two readings: a server that refuses everything must not make the
/// worker read for each request.
const INTERVAL: Duration = Duration::from_secs(1);

/// Where headers come from besides the settings.
#[derive(Debug, Clone, Default)]
pub struct HeaderSources {
    /// Files with one value each, by the name of the header.
    pub files: BTreeMap<String, PathBuf>,
    /// A program and its arguments; it prints lines of the form `name: value`.
    pub command: Vec<String>,
    /// An authorization server, which gives the bearer token.
    pub oauth: Option<OAuthSettings>,
}

impl HeaderSources {
    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.command.is_empty() && self.oauth.is_none()
    }
}

/// Secrets that a server knows and may quote; they may change while it is in use.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownSecrets(Arc<RwLock<Secrets>>);

impl KnownSecrets {
    pub(super) fn new(secrets: Secrets) -> Self {
        Self(Arc::new(RwLock::new(secrets)))
    }

    /// The text with the secrets hidden.
    pub(super) fn hidden(&self, text: &str) -> String {
        self.now().hidden(text)
    }

    /// The secrets known by now.
    pub(super) fn now(&self) -> Secrets {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Adds a secret. The old ones stay: an answer to an earlier request may quote them.
    pub(super) fn add(&self, value: &str) {
        let mut secrets = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *secrets = std::mem::take(&mut *secrets).and(value);
    }
}

/// The headers of one server.
#[derive(Debug)]
pub(super) struct Credentials {
    fixed: Headers,
    sources: HeaderSources,
    oauth: Option<OAuth>,
    secrets: KnownSecrets,
    clock: Arc<dyn Clock>,
    current: Mutex<Current>,
}

#[derive(Debug, Default)]
struct Current {
    read: Headers,
    /// How often they were read; 0 if they never were.
    reading: u64,
    /// When they were read last.
    at: Duration,
    /// When the token among them ends.
    ends: Option<Duration>,
}

impl Credentials {
    pub(super) fn new(
        target: &Url,
        fixed: &[(String, Secret)],
        sources: &HeaderSources,
        secrets: KnownSecrets,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let oauth = sources.oauth.clone();
        Self {
            fixed: fixed
                .iter()
                .filter_map(|(name, value)| header(name, value))
                .collect(),
            sources: sources.clone(),
            oauth: oauth.map(|settings| OAuth::new(target.clone(), settings, secrets.clone())),
            secrets,
            clock,
            current: Mutex::default(),
        }
    }

    /// The headers of the next request, and which reading they are.
    pub(super) async fn headers(&self) -> Result<(Headers, u64), String> {
        if self.sources.is_empty() {
            return Ok((self.fixed.clone(), 0));
        }
        let mut current = self.current.lock().await;
        let now = self.clock.monotonic();
        let is_over = current.ends.is_some_and(|ends| now >= ends);
        // An authorization server is asked only once the server refuses a request, or when its
        // token ends: a server that needs none is not to be bothered with it.
        if is_over || (current.reading == 0 && self.oauth.is_none()) {
            let read = self.read(&mut current, None).await;
            // A token is renewed before it ends: until then, the server takes the old one.
            if current.read.is_empty() {
                read?;
            }
        }
        let mut headers = self.fixed.clone();
        headers.extend(current.read.clone());
        Ok((headers, current.reading))
    }

    /// Reads the headers again because the server refused those of this reading, with this
    /// challenge. Returns whether there are new ones to try.
    pub(super) async fn renew(
        &self,
        refused: u64,
        challenge: Option<&str>,
    ) -> Result<bool, String> {
        if self.sources.is_empty() {
            return Ok(false);
        }
        let mut current = self.current.lock().await;
        if current.reading != refused {
            // Another request has renewed them.
            return Ok(true);
        }
        let since = self.clock.monotonic().saturating_sub(current.at);
        if current.reading > 1 && since < INTERVAL {
            return Ok(false);
        }
        let before = current.read.clone();
        self.read(&mut current, challenge).await?;
        Ok(current.read != before)
    }

    async fn read(&self, current: &mut Current, challenge: Option<&str>) -> Result<(), String> {
        // Counted first: a reading that fails is one, too.
        current.reading += 1;
        current.at = self.clock.monotonic();
        current.ends = None;
        let mut read = Headers::new();
        for (name, path) in &self.sources.files {
            let value = file(path).await;
            let value = value.map_err(|why| format!("the file with the header {name}: {why}"))?;
            self.add(&mut read, name, value.trim())?;
        }
        if !self.sources.command.is_empty() {
            let printed = command(&self.sources.command).await;
            let printed = printed.map_err(|why| format!("the program with the headers: {why}"))?;
            for line in printed.lines().filter(|line| !line.trim().is_empty()) {
                let form = || "the program with the headers prints something else".to_owned();
                let (name, value) = line.split_once(':').ok_or_else(form)?;
                self.add(&mut read, name.trim(), value.trim())?;
            }
        }
        if let Some(oauth) = &self.oauth {
            let token = oauth.token(challenge).await.map_err(|none| none.why)?;
            self.add(
                &mut read,
                AUTHORIZATION.as_str(),
                &format!("Bearer {}", token.access),
            )?;
            current.ends = token.lasts.map(|lasts| current.at.saturating_add(lasts));
        }
        current.read = read;
        Ok(())
    }

    fn add(&self, read: &mut Headers, name: &str, value: &str) -> Result<(), String> {
        self.secrets.add(value);
        let (name, value) = header(name, &Secret::new(value))
            .ok_or_else(|| "a header that was read is not one of HTTP".to_owned())?;
        read.insert(name, value);
        Ok(())
    }
}

async fn file(path: &PathBuf) -> Result<String, String> {
    let file = tokio::fs::File::open(path).await;
    let file = file.map_err(|error| error.kind().to_string())?;
    let mut text = String::new();
    let read = file.take(BYTES_MAX).read_to_string(&mut text).await;
    read.map_err(|error| error.kind().to_string())?;
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    Ok(text)
}

async fn command(argv: &[String]) -> Result<String, String> {
    let (program, args) = argv.split_first().ok_or("it has no name")?;
    let mut child = Command::new(program)
        .args(args)
        .env_clear()
        .envs(inherited())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // It may contain a secret.
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("it does not start: {}", error.kind()))?;
    let stdout = child.stdout.take().ok_or("it has no output")?;
    let printed = async {
        let mut text = String::new();
        let read = stdout.take(BYTES_MAX).read_to_string(&mut text).await;
        read.map_err(|_| "it does not print text".to_owned())?;
        match child.wait().await {
            Ok(status) if status.success() => Ok(text),
            Ok(status) => Err(format!("it failed ({status})")),
            Err(error) => Err(error.kind().to_string()),
        }
    };
    match timeout(COMMAND_TIMEOUT, printed).await {
        Ok(printed) => printed,
        Err(_) => Err(format!("it was not ready within {COMMAND_TIMEOUT:?}")),
    }
}
