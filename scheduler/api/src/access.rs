//! Authentication and authorization: who sends a request, for which tenant, and what its key
//! allows.

mod fleet;
mod issuers;
mod keys;
mod operations;
mod rate;
pub(crate) mod reach;
mod scopes;
mod sign_in;
mod tokens;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method};
use futures::StreamExt;
use mainspring_scheduler::App;
use mainspring_scheduler::error::{Error, Quota};
use mainspring_scheduler::services::agents::Allowed;
use mainspring_scheduler::services::limits::KeySends;
use mainspring_shared::error::Code;
use mainspring_shared::id::{KeyId, TenantId};
use mainspring_shared::tenant::{Binding, KeyRecord, Limits, Right, Scope, Scopes, Token};
use mainspring_shared::time::Timestamp;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use self::fleet::Fleet;
pub use self::issuers::{Identity, Refused, Verifier};
use self::keys::Keys;
use self::rate::{Payer, Rate, Rates};
pub(crate) use self::scopes::Needs;
pub(crate) use self::sign_in::{FORGET, SignIn, is_of_console};
pub(crate) use self::tokens::Grant;
use super::openai;
use super::problem::Problem;

/// The header that names the tenant an operator acts for.
pub(crate) const TENANT: HeaderName = HeaderName::from_static("mainspring-tenant");

/// How long a key that was looked up is cached. After this time a revoked key is refused
/// everywhere.
const CACHE_TTL: Duration = Duration::from_secs(5);

/// How long it is believed that there is no key yet, for requests that do not administer: to ask
/// the database for each took it half as long as a send. Keys are believed for longer.
const KEYLESS_TTL: Duration = Duration::from_secs(1);

/// What proxies say of whom they speak for.
const PROXIES: [&str; 5] = [
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-real-ip",
];

const NO_KEY: &str = "the request carries no API key; send it as Authorization: Bearer KEY";

/// Who may use the API.
#[derive(Debug, Clone, Default)]
pub enum Access {
    /// Everyone who can reach the API. A request without a key acts as the operator for the default
    /// tenant; a key that is sent is still checked.
    #[default]
    Open,
    /// The same until the first key is stored, by whichever scheduler and for whichever tenant; from
    /// then on, for good, everyone who has a key. What a proxy passes on always needs one: the
    /// address is this machine's, but whoever asks is not on it.
    UntilKeys,
    /// Everyone who has a key.
    Keys {
        /// The operator's own key, which is in no database.
        root: Option<RootKey>,
        /// Verifies tokens signed by external issuers; if absent, such tokens are refused.
        issuers: Option<Arc<dyn Verifier>>,
    },
}

/// A key of which only the hash is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootKey([u8; 32]);

impl RootKey {
    /// The key with this text.
    pub fn new(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }
}

/// The sender of a request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// The tenant whose rows the request reads and changes.
    pub(crate) tenant: TenantId,
    /// What it allows.
    pub(crate) scopes: Scopes,
    /// Whether it may read and change the system as a whole: the root key, and keys of the default
    /// tenant that were made for that.
    pub(crate) operates: bool,
    /// Its key, which has to stay valid while a response is streamed.
    key: Option<Arc<KeyRecord>>,
    /// What its token reaches, if it sent one for one session.
    granted: Option<Arc<Binding>>,
    /// The fingerprint of the key's binding, if any, which separates idempotency keys. It is cached
    /// because a batch needs it for each item.
    fingerprint: OnceLock<String>,
    /// The subject of its token, if it sent one.
    subject: Option<Arc<str>>,
    /// The expiry of its token or of its cookie by this machine's clock, if it sent one.
    until: Option<Timestamp>,
    /// The request limits that this request counts towards.
    pub(crate) quotas: Vec<Quota>,
}

impl Caller {
    /// The tenant that a member of a body names. Only an operator may name a tenant other than its
    /// own.
    pub(crate) fn tenant_for(&self, named: Option<&str>) -> Result<TenantId, Error> {
        let Some(named) = named else {
            return Ok(self.tenant);
        };
        let tenant = named.parse().map_err(|_| no_tenant())?;
        if tenant != self.tenant {
            Needs::OPERATOR_ADMIN.check(self)?;
        }
        Ok(tenant)
    }

    /// Refuses a request that needs a right which its key does not have.
    pub(crate) fn require(&self, right: Right) -> Result<(), Error> {
        if self.scopes.allow(right) {
            Ok(())
        } else {
            Err(Error::lacking(right))
        }
    }

    /// Refuses a request that concerns operators' keys, unless an operator makes it: nobody else
    /// makes such a key, or learns the secret of one.
    pub(crate) fn require_operator(&self) -> Result<(), Error> {
        Needs::OPERATOR_ADMIN.check(self)
    }

    /// What it may do with agents.
    pub(crate) fn allowed(&self) -> Allowed<'_> {
        Allowed {
            binding: self.binding(),
            defines: self.scopes.allow(Right::Define),
        }
    }

    /// The id of its key, if it sent one that is in the database.
    pub(crate) fn key_id(&self) -> Option<KeyId> {
        self.key.as_ref().map(|key| key.id)
    }

    /// What its key or token is bound to: the part of its tenant that it can access, or none for the whole
    /// tenant.
    pub(crate) fn binding(&self) -> Option<&Binding> {
        let of_key = || self.key.as_ref()?.binding.as_ref();
        self.granted.as_deref().or_else(of_key)
    }

    /// From when on its token or its cookie is refused, if it sent one.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        self.until
    }

    /// Its key, if that has a limit on open sends.
    pub(crate) fn limited_sends(&self) -> Option<KeySends> {
        let record = self.key.as_deref()?;
        let max = record.limits.sends_open?;
        let key = record.id;
        Some(KeySends { key, max })
    }

    /// The route under which idempotency keys are stored. Keys with the same binding share them,
    /// and no others: a key must not see what one with another binding created.
    pub(crate) fn route(&self, route: &str) -> String {
        match self.binding() {
            Some(binding) => {
                let fingerprint = self.fingerprint.get_or_init(|| binding.fingerprint());
                format!("{route} [{fingerprint}]")
            }
            None => route.to_owned(),
        }
    }

    /// Its name for records: the id of its key, the subject of its token, or the operator.
    pub(crate) fn name(&self) -> String {
        match (&self.key, &self.subject) {
            (Some(key), _) => key.id.to_string(),
            (None, Some(subject)) => subject.to_string(),
            (None, None) => "operator".to_owned(),
        }
    }

    /// Whether it sees the data of all tenants: an operator does, unless it acts for another
    /// tenant.
    pub(crate) fn sees_all(&self) -> bool {
        self.operates && self.tenant == TenantId::DEFAULT
    }

    /// The tenant that the store is queried for; none for an operator, who queries everything.
    pub(crate) fn scope(&self) -> Option<TenantId> {
        (!self.operates).then_some(self.tenant)
    }

    /// Who may do this in this tenant, by no key and no token, and operates nothing.
    fn of(tenant: TenantId, scopes: Scopes) -> Self {
        Self {
            tenant,
            scopes,
            operates: false,
            key: None,
            granted: None,
            fingerprint: OnceLock::new(),
            subject: None,
            until: None,
            quotas: Vec::new(),
        }
    }

    fn operator(tenant: TenantId) -> Self {
        Self {
            operates: true,
            ..Self::of(tenant, Scopes::all())
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // The gate has added one to every request under /v1.
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| Error::internal().into())
    }
}

/// Refuses deletions for a tenant on legal hold. Reads the tenant each time, so that a hold takes
/// effect at once.
pub(crate) async fn refuse_held(app: &App, tenant: TenantId) -> Result<(), Error> {
    let found = app.store.get_tenant(tenant).await?;
    if found.is_some_and(|tenant| tenant.retention.hold) {
        let detail = "the tenant is on legal hold: nothing can be deleted";
        return Err(Error::new(Code::TenantHeld, detail));
    }
    Ok(())
}

/// The checks of one scheduler.
#[derive(Debug)]
pub(crate) struct Gatekeeper {
    access: Access,
    /// Whether there was a key when it was last asked for; then there is no need to ask again.
    had_keys: AtomicBool,
    /// Until when it is believed that there is none, by the monotonic clock.
    keyless_until: Mutex<Duration>,
    keys: Keys,
    rates: Rates,
    fleet: Fleet,
}

impl Gatekeeper {
    pub(crate) fn new(access: Access) -> Self {
        Self {
            access,
            had_keys: AtomicBool::new(false),
            keyless_until: Mutex::default(),
            keys: Keys::new(CACHE_TTL),
            rates: Rates::default(),
            fleet: Fleet::default(),
        }
    }

    /// Whether requests need no key.
    pub(crate) fn is_open(&self) -> bool {
        match self.access {
            Access::Open => true,
            Access::UntilKeys => !self.had_keys.load(Ordering::Relaxed),
            Access::Keys { .. } => false,
        }
    }

    /// The addresses of the issuers whose tokens are accepted.
    pub(crate) fn issuers(&self) -> Vec<String> {
        match &self.access {
            Access::Keys {
                issuers: Some(issuers),
                ..
            } => issuers.issuers(),
            Access::Open | Access::UntilKeys | Access::Keys { .. } => Vec::new(),
        }
    }

    /// The operator, if whoever sends no key is taken for one.
    async fn keyless(&self, app: &App, needs: Needs, headers: &HeaderMap) -> Result<Caller, Error> {
        let missing = |detail| Err(Error::new(Code::AuthMissing, detail));
        match self.access {
            Access::Open => {}
            Access::UntilKeys => {
                if self.is_open() {
                    self.ask_for_keys(app, needs).await?;
                }
                if !self.is_open() {
                    return missing(NO_KEY);
                }
                if PROXIES.iter().any(|name| headers.contains_key(*name)) {
                    return missing(
                        "the request carries no API key, and comes through a proxy; without keys \
                         this server serves only its own machine",
                    );
                }
            }
            Access::Keys { .. } => return missing(NO_KEY),
        }
        Ok(Caller::operator(TenantId::DEFAULT))
    }

    /// Asks whether there is a key by now, unless that was asked a moment ago. Who would administer
    /// is never let in by an old answer.
    async fn ask_for_keys(&self, app: &App, needs: Needs) -> Result<(), Error> {
        let mut until = self.keyless_until.lock().await;
        let now = app.clock.monotonic();
        if needs.administers() || *until <= now {
            if app.store.had_keys().await? {
                self.had_keys.store(true, Ordering::Relaxed);
            }
            *until = now + KEYLESS_TTL;
        }
        Ok(())
    }

    /// Identifies the sender of a request and checks that its key allows the request. What a bound
    /// key can reach is checked by [`reach::enter`].
    pub(crate) async fn admit(
        &self,
        app: &App,
        method: &Method,
        route: &str,
        headers: &HeaderMap,
    ) -> Result<Caller, Error> {
        let needs = Needs::of(method, route);
        let mut caller = self.identify(app, needs, route, headers).await?;
        needs.check(&caller)?;
        if let Some(text) = headers.get(&TENANT) {
            let tenant = text.to_str().ok().and_then(|text| text.parse().ok());
            caller.tenant = self.other_tenant(app, &caller, tenant).await?;
        }
        if matches!(self.access, Access::Keys { .. }) || caller.key.is_some() {
            let limits = self.keys.limits(app, caller.tenant).await?;
            app.known.limits.note(caller.tenant, &limits);
            caller.quotas = self.take(app, &caller, &limits).await?;
        }
        Ok(caller)
    }

    /// Counts a request against the rate limits of its tenant and its key, if any. Returns the
    /// limits that it counts towards.
    async fn take(&self, app: &App, caller: &Caller, limits: &Limits) -> Result<Vec<Quota>, Error> {
        let tenant = Payer::Tenant(caller.tenant);
        if limits.requests_per_second.is_none() {
            self.rates.forget(tenant);
        }
        let of_tenant = limits.requests_per_second.map(|rate| (tenant, rate));
        let key = caller.key.as_deref();
        let of_key =
            key.and_then(|key| Some((Payer::Key(key.id), key.limits.requests_per_second?)));
        let rates = of_tenant.into_iter().chain(of_key);
        let rates: Vec<Rate> = rates.map(|(of, requests)| Rate { of, requests }).collect();
        if rates.is_empty() {
            return Ok(Vec::new());
        }
        let schedulers = self.fleet.schedulers(app).await;
        self.rates.take(&rates, schedulers, app.clock.monotonic())
    }

    async fn identify(
        &self,
        app: &App,
        needs: Needs,
        route: &str,
        headers: &HeaderMap,
    ) -> Result<Caller, Error> {
        if let Some(text) = bearer(headers)? {
            return match self.known(app, text).await? {
                Some(caller) => Ok(caller),
                // OpenAI's clients insist on a key even where there are none.
                None if self.is_open() && openai::is_ours(route) => {
                    self.keyless(app, needs, headers).await
                }
                None => Err(refused()),
            };
        }
        if let Some(cookie) = sign_in::sent(headers) {
            match SignIn::open(app, cookie).await {
                Ok(signed_in) => return self.signed_in(app, &signed_in).await,
                // Where none is needed, it may be of another server on this machine: cookies know no ports.
                Err(_) if self.is_open() => {}
                Err(error) => return Err(error),
            }
        }
        self.keyless(app, needs, headers).await
    }

    /// Checks a key as if a request had sent it.
    pub(crate) async fn verify(&self, app: &App, key: &str) -> Result<(), Error> {
        self.known(app, key).await?.map(drop).ok_or_else(refused)
    }

    /// The caller that a cookie of the console stands for: that of the key in it, until the cookie expires.
    async fn signed_in(&self, app: &App, signed_in: &SignIn) -> Result<Caller, Error> {
        let caller = self.known(app, &signed_in.key).await?.ok_or_else(refused)?;
        let left = signed_in.expires_at.since(app.database_time().await);
        // Streams end by the clock of the machine that they are on.
        let until = app.clock.now().after(left);
        Ok(Caller {
            until: Some(caller.until.map_or(until, |other| other.min(until))),
            ..caller
        })
    }

    /// The caller that a key or a token stands for; none if the text has the form of neither.
    async fn known(&self, app: &App, text: &str) -> Result<Option<Caller>, Error> {
        // Comparing hashes keeps the timing from revealing anything about the key.
        if let Access::Keys {
            root: Some(root), ..
        } = &self.access
            && *root == RootKey::new(text)
        {
            return Ok(Some(Caller::operator(TenantId::DEFAULT)));
        }
        if let Some(grant) = Grant::open(&app.outside.webhooks, text) {
            return self.granted(app, grant?).await.map(Some);
        }
        if let Access::Keys {
            issuers: Some(issuers),
            ..
        } = &self.access
            && issuers::is_signed(text)
        {
            let identity = issuers.verify(text).await?;
            return self.identified(app, identity).await.map(Some);
        }
        let Ok(token) = text.parse::<Token>() else {
            return Ok(None);
        };
        let now = app.database_time().await;
        let mut found = self.keys.find(app, token.id).await?;
        // It may have been rotated since it was cached.
        let is_other =
            |record: &KeyRecord| record.is_live(now) && !record.accepts(&token.secret, now);
        if found.as_deref().is_some_and(is_other) {
            found = self.keys.look_up(app, token.id).await?;
        }
        let found = found.filter(|record| record.accepts(&token.secret, now));
        let record = found.ok_or_else(refused)?;
        self.keys.note(app, record.id).await;
        Ok(Some(Caller {
            operates: record.operates(),
            key: Some(record.clone()),
            ..Caller::of(record.tenant, record.scopes.clone())
        }))
    }

    /// The caller that a token for one session stands for. It has the limits of the key that the token was made with.
    async fn granted(&self, app: &App, grant: Grant) -> Result<Caller, Error> {
        let now = app.database_time().await;
        if now >= grant.expires_at {
            return Err(tokens::refused());
        }
        let mut key = None;
        if let Some(id) = grant.key {
            let found = self.keys.find(app, id).await?;
            let found = found.filter(|key| key.is_live(now));
            key = Some(found.ok_or_else(tokens::refused)?);
        }
        // A tenant's own key dies with it. An operator's, and what is no key, do not.
        if key.as_ref().is_none_or(|key| key.tenant != grant.tenant) {
            let tenant = app.store.get_tenant(grant.tenant).await?;
            if tenant.is_none_or(|tenant| tenant.erasing_at.is_some()) {
                return Err(tokens::refused());
            }
        }
        // Streams end by the clock of the machine that they are on.
        let until = app.clock.now().after(grant.expires_at.since(now));
        Ok(Caller {
            key,
            granted: Some(Arc::new(grant.binding)),
            subject: Some(grant.by.into()),
            until: Some(until),
            ..Caller::of(grant.tenant, grant.scopes)
        })
    }

    /// The caller that an issuer's token stands for. It is never an operator, because others decide
    /// what the token says.
    async fn identified(&self, app: &App, identity: Identity) -> Result<Caller, Error> {
        let tenant = self.keys.named(app, &identity.tenant).await?;
        let unknown = || {
            let detail = "no tenant has the name in the token";
            Error::new(Code::AuthTenantUnknown, detail)
        };
        let Scopes(mut scopes) = identity.scopes;
        scopes.remove(&Scope::Operate);
        Ok(Caller {
            subject: Some(identity.subject.into()),
            until: Some(identity.expires_at),
            ..Caller::of(tenant.ok_or_else(unknown)?, Scopes(scopes))
        })
    }

    /// The tenant that an operator's request names in a header.
    async fn other_tenant(
        &self,
        app: &App,
        caller: &Caller,
        named: Option<TenantId>,
    ) -> Result<TenantId, Error> {
        if named == Some(caller.tenant) {
            return Ok(caller.tenant);
        }
        Needs::OPERATOR_ADMIN.check(caller)?;
        let found = match named {
            Some(id) => app.store.get_tenant(id).await?,
            None => None,
        };
        let found = found.ok_or_else(no_tenant)?;
        if found.erasing_at.is_some() {
            let detail = "the tenant is being erased and accepts no requests";
            return Err(Error::new(Code::TenantErasing, detail));
        }
        Ok(found.id)
    }

    /// Ends a stream at its next piece (an event or a heartbeat) once its key was revoked, deleted
    /// or has expired, or its token or its cookie has expired.
    pub(crate) fn watched(self: Arc<Self>, app: Arc<App>, caller: &Caller, body: Body) -> Body {
        let key = caller.key.as_ref().map(|key| key.id);
        let until = caller.until;
        if key.is_none() && until.is_none() {
            return body;
        }
        let start = (body.into_data_stream(), self, app);
        let pieces = futures::stream::unfold(start, move |(mut pieces, keeper, app)| async move {
            let piece = pieces.next().await?;
            // By the same clock that the token was verified with.
            let mut ended = until.is_some_and(|until| app.clock.now() >= until);
            if let Some(key) = key {
                let now = app.database_time().await;
                // An unavailable database does not end a stream.
                ended |= match keeper.keys.find(&app, key).await {
                    Ok(found) => !found.is_some_and(|record| record.is_live(now)),
                    Err(_) => false,
                };
            }
            (!ended).then_some((piece, (pieces, keeper, app)))
        });
        Body::from_stream(pieces)
    }
}

pub(crate) fn no_tenant() -> Error {
    Error::new(Code::TenantNotFound, "no tenant has this id")
}

fn refused() -> Error {
    Error::new(
        Code::AuthInvalid,
        "the API key is unknown, expired or revoked",
    )
}

/// The bearer token of a request.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Error> {
    let Some(value) = headers.get(AUTHORIZATION) else {
        return Ok(None);
    };
    let text = value.to_str().map_err(|_| refused())?;
    let (scheme, key) = text.split_once(' ').ok_or_else(refused)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(refused());
    }
    Ok(Some(key.trim()))
}
