//! Tools behind a URL.
//!
//! A call is one `POST` of `{kind, tenant, url, call_id, name, arguments, session_id, send_id}`, with
//! the call's id as `Idempotency-Key`, signed as in Standard Webhooks. It goes only to addresses of the public
//! internet and to those that the operator allows: each name is resolved once per connection, and
//! the connection is made to an address that passed the check. Redirects are not followed and no
//! proxy is used.
//!
//! A tool with a `request` asks an API that knows nothing of tools instead: its arguments are placed in
//! the path, the query, headers and the body, and secrets of its tenant let it in.

mod address;
mod answer;
mod call;
mod direct;
mod dns;
pub(crate) mod fault;
mod post;
mod sign;
mod tokens;
mod vault;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use mainspring_runtime::{OsEntropy, SystemClock};
use mainspring_shared::entropy::Entropy;
use mainspring_shared::id::TenantId;
use mainspring_shared::time::Clock;
use mainspring_shared::tool::{DeclaredTool, HttpTool};
use reqwest::Client;

use self::address::Addresses;
use self::call::HttpCall;
use self::dns::{Lookup, System};
pub use self::post::WebhookPoster;
pub(crate) use self::sign::Keys;
pub use self::sign::Kind;
use self::sign::{Secrets, Signer};
use self::tokens::Tokens;
pub use self::vault::Vault;
use mainspring_worker::llm::Secret;
use mainspring_worker::tool::{Away, Tool, ToolSource};

/// Covers everything from the first packet to the end of the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an idle connection is kept; below the minute after which proxies commonly close theirs.
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(50);

/// Settings of calls over HTTP.
#[derive(Debug, Clone)]
pub struct CallerSettings {
    /// The secrets that the signing keys are derived from: `whsec_` and base64, or any text, used as
    /// it is. With several, a key of each one signs, so that a secret can be rotated. With none,
    /// requests carry no signature.
    pub signing_secrets: Vec<Secret>,
    /// Hosts of declared tools, as written in their URLs, whose requests are also signed with the
    /// key that is the same for all tenants; those to others are not signed. If empty, requests to
    /// all hosts are signed with the tenant's own key alone.
    pub signing_hosts: Vec<String>,
    /// Non-public addresses that may be called: CIDRs or single addresses.
    pub allow_private: Vec<String>,
    /// The name of the setting that they come from, for the error that refuses an address.
    pub private_setting: &'static str,
    /// How long one attempt may take unless the tool sets its own limit.
    pub timeout: Duration,
    /// Bytes of a response that are read; the rest is cut off.
    pub answer_bytes_max: usize,
    /// The secrets that declared tools may name.
    pub vault: Vault,
}

impl Default for CallerSettings {
    fn default() -> Self {
        Self {
            signing_secrets: Vec::new(),
            signing_hosts: Vec::new(),
            allow_private: Vec::new(),
            private_setting: "tools.allow_private",
            timeout: Duration::from_mins(1),
            // As many as the kernel keeps characters of an output.
            answer_bytes_max: 2_000_000,
            vault: Vault::default(),
        }
    }
}

/// Settings that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// A secret that starts with `whsec_` but does not continue with base64.
    #[error("signing secret {place} is not `whsec_` and base64")]
    Secret {
        /// Its position, from 1.
        place: usize,
    },
    /// The recipient of signed requests is not a URL of http or https.
    #[error("the recipient is not a URL like https://tools.example")]
    Recipient,
    /// An entry of the private addresses is neither an address nor a CIDR.
    #[error("{entry:?} is neither an address nor a CIDR like 10.0.0.0/8")]
    AllowPrivate {
        /// The entry.
        entry: String,
    },
}

/// Makes the calls of all tools behind URLs, over one client.
#[derive(Debug, Clone)]
pub struct Caller {
    shared: Arc<Shared>,
}

impl Default for Caller {
    /// Signs nothing and reaches public addresses only.
    fn default() -> Self {
        let settings = CallerSettings::default();
        Self::new(&settings, Arc::new(SystemClock::new()), Arc::new(OsEntropy))
            .expect("the default settings are usable")
    }
}

impl Caller {
    /// A caller with these settings.
    pub fn new(
        settings: &CallerSettings,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, SetupError> {
        Self::with_lookup(settings, clock, entropy, Arc::new(System::new()))
    }

    /// A key that no other call uses.
    pub(crate) fn fresh_key(&self) -> String {
        self.shared.entropy.random_id().as_simple().to_string()
    }

    fn with_lookup(
        settings: &CallerSettings,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        lookup: Arc<dyn Lookup>,
    ) -> Result<Self, SetupError> {
        let signer = Signer::Deriving {
            secrets: Secrets::new(&settings.signing_secrets)?,
            hosts: settings.signing_hosts.clone(),
        };
        Self::signing_by(signer, settings, (clock, entropy), lookup)
    }

    /// A caller that only signs with these keys, by recipient.
    pub(crate) fn given(
        keys: BTreeMap<String, Keys>,
        settings: &CallerSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SetupError> {
        let around = (clock, Arc::new(OsEntropy) as Arc<dyn Entropy>);
        Self::signing_by(
            Signer::Given(keys),
            settings,
            around,
            Arc::new(System::new()),
        )
    }

    fn signing_by(
        signer: Signer,
        settings: &CallerSettings,
        (clock, entropy): (Arc<dyn Clock>, Arc<dyn Entropy>),
        lookup: Arc<dyn Lookup>,
    ) -> Result<Self, SetupError> {
        let shared = Shared {
            signer,
            addresses: Addresses::allowing(&settings.allow_private, settings.private_setting)?,
            timeout: settings.timeout,
            answer_bytes_max: settings.answer_bytes_max,
            vault: settings.vault.clone(),
            tokens: Tokens::default(),
            client: OnceLock::new(),
            lookup,
            clock,
            entropy,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// The tool that an agent declared. If its URL is unusable, its calls fail with that error.
    pub fn tool(&self, declared: &HttpTool) -> Arc<dyn Tool> {
        self.asking(Kind::Tool, declared)
    }

    /// A recipient that is asked for something of this kind, in the form of a tool call.
    pub(crate) fn asking(&self, kind: Kind, declared: &HttpTool) -> Arc<dyn Tool> {
        Arc::new(HttpCall::new(kind, declared, self.shared.clone()))
    }
}

#[async_trait]
impl ToolSource for Caller {
    async fn tools(&self, declared: &DeclaredTool) -> Option<Result<Vec<Arc<dyn Tool>>, Away>> {
        match declared {
            DeclaredTool::Http(tool) => Some(Ok(vec![self.tool(tool)])),
            DeclaredTool::Mcp(_) | DeclaredTool::External(_) | DeclaredTool::Worker(_) => None,
        }
    }
}

/// The rule of which addresses may be called, for requests of other parts of this crate whose
/// addresses somebody else chose.
#[derive(Debug)]
pub(crate) struct Guard {
    addresses: Addresses,
}

impl Guard {
    /// Public addresses, and the private ones in `entries`, which come from `setting`.
    pub(crate) fn allowing(entries: &[String], setting: &'static str) -> Result<Self, SetupError> {
        let addresses = Addresses::allowing(entries, setting)?;
        Ok(Self { addresses })
    }

    /// Whether an address may be called; why not.
    pub(crate) fn check(&self, address: std::net::IpAddr) -> Result<(), String> {
        self.addresses.check(address).map_err(|why| why.to_string())
    }

    /// The address that a URL leads to, if it may be called as far as can be told from the URL; why not.
    pub(crate) fn target(&self, url: &str) -> Result<reqwest::Url, String> {
        call::target(url, &self.addresses)
    }

    /// A client that connects to names only at addresses that may be called, follows no redirects,
    /// and gives up after `timeout`. Addresses that stand in a URL themselves must be checked.
    pub(crate) fn client(&self, timeout: Duration) -> Option<Client> {
        let lookup: Arc<dyn Lookup> = Arc::new(System::new());
        let resolver = dns::Guarded::new(lookup, self.addresses.clone());
        Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .no_proxy()
            .user_agent(concat!("mainspring/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(timeout)
            .dns_resolver(Arc::new(resolver))
            .build()
            .ok()
    }
}

/// The keys, as `whsec_` and base64, that requests of this kind to the recipient at `url` are signed
/// with: of one tenant, or the ones that are the same for all. One for each of the secrets.
pub fn signing_keys(
    secrets: &[Secret],
    kind: Kind,
    url: &str,
    tenant: Option<TenantId>,
) -> Result<Vec<String>, SetupError> {
    let refused = |_| SetupError::Recipient;
    let url: reqwest::Url = url.parse().map_err(refused)?;
    if !url.has_host() {
        return Err(SetupError::Recipient);
    }
    Ok(Secrets::new(secrets)?.keys(kind, &url, tenant).reveal())
}

/// The keys of the declared tools at these URLs, by recipient.
pub(crate) fn keys_of_tools<'a>(
    settings: &CallerSettings,
    urls: impl Iterator<Item = &'a str>,
    tenant: TenantId,
) -> BTreeMap<String, Keys> {
    let secrets = Secrets::new(&settings.signing_secrets).unwrap_or_default();
    let hosts = settings.signing_hosts.clone();
    let signer = Signer::Deriving { secrets, hosts };
    let urls = urls.filter_map(|url| url.parse::<reqwest::Url>().ok());
    urls.map(|url| (sign::origin(&url), signer.keys(Kind::Tool, &url, tenant)))
        .collect()
}

/// State that all calls share.
#[derive(Debug)]
struct Shared {
    signer: Signer,
    addresses: Addresses,
    timeout: Duration,
    answer_bytes_max: usize,
    vault: Vault,
    tokens: Tokens,
    /// Built by the first call, because building it reads the system's certificates and needs a TLS
    /// provider, which a process without such tools may lack.
    client: OnceLock<Result<Client, reqwest::Error>>,
    lookup: Arc<dyn Lookup>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl Shared {
    fn client(&self) -> Result<&Client, &reqwest::Error> {
        let build = || {
            let resolver = dns::Guarded::new(self.lookup.clone(), self.addresses.clone());
            Client::builder()
                .http1_only()
                .redirect(reqwest::redirect::Policy::none())
                .retry(reqwest::retry::never())
                .referer(false)
                // A proxy would resolve names itself, bypassing the check.
                .no_proxy()
                .user_agent(concat!("mainspring/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(CONNECT_TIMEOUT)
                .pool_idle_timeout(IDLE_CONNECTION_TIMEOUT)
                .dns_resolver(Arc::new(resolver))
                .build()
        };
        self.client.get_or_init(build).as_ref()
    }
}
