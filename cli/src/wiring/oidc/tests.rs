//! Tokens of an issuer that is a local HTTP server.

mod keys;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{EncodingKey, Header, encode};
use mainspring_runtime::SystemClock;
use serde_json::json;

use super::*;

const ONE: &[u8] = include_bytes!("test_keys/rsa-one.der");
const TWO: &[u8] = include_bytes!("test_keys/rsa-two.der");
const CURVE: &[u8] = include_bytes!("test_keys/p256.der");

/// A clock that the test advances by hand. Token times are checked against the system clock.
#[derive(Debug, Default)]
struct Hand(AtomicU64);

impl Hand {
    fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_millis() as u64, Ordering::SeqCst);
    }
}

#[async_trait]
impl Clock for Hand {
    fn now(&self) -> Timestamp {
        SystemClock::new().now()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }

    async fn sleep(&self, duration: Duration) {
        SystemClock::new().sleep(duration).await;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Answers,
    Fails,
    Hangs,
    /// Answers late: one request fits into the timeout of an attempt, two do not.
    Dawdles,
}

impl Mood {
    const LATE: Duration = Duration::from_secs(2);
}

/// What the server publishes, and how it behaves.
#[derive(Debug)]
struct Published {
    keys: Mutex<Vec<Value>>,
    mood: Mutex<Mood>,
    asked: AtomicUsize,
}

struct World {
    url: String,
    published: Arc<Published>,
    clock: Arc<Hand>,
    verifier: Arc<dyn Verifier>,
}

/// A signing key with its issuer's name for it.
struct Signer {
    kid: &'static str,
    algorithm: Algorithm,
    key: EncodingKey,
}

impl Signer {
    fn rsa(kid: &'static str, der: &[u8]) -> Self {
        let (algorithm, key) = (Algorithm::RS256, EncodingKey::from_rsa_der(der));
        Self {
            kid,
            algorithm,
            key,
        }
    }

    fn curve(kid: &'static str) -> Self {
        let (algorithm, key) = (Algorithm::ES256, EncodingKey::from_ec_der(CURVE));
        Self {
            kid,
            algorithm,
            key,
        }
    }

    /// The public key, as published.
    fn public(&self) -> Value {
        let jwk = Jwk::from_encoding_key(&self.key, self.algorithm).expect("a public key");
        let mut jwk = serde_json::to_value(jwk).expect("is JSON");
        jwk["kid"] = json!(self.kid);
        jwk["use"] = json!("sig");
        jwk
    }

    fn sign(&self, claims: &Value) -> String {
        let mut header = Header::new(self.algorithm);
        header.kid = Some(self.kid.to_owned());
        encode(&header, claims, &self.key).expect("signs")
    }
}

fn now() -> i64 {
    SystemClock::new().now().0 / 1_000
}

impl World {
    async fn new(signers: &[&Signer], change: impl FnOnce(&mut OidcIssuer)) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let published = Arc::new(Published {
            keys: Mutex::new(signers.iter().map(|signer| signer.public()).collect()),
            mood: Mutex::new(Mood::Answers),
            asked: AtomicUsize::new(0),
        });
        let (state, issuer) = (published.clone(), url.clone());
        let describing = published.clone();
        let describe = move || async move {
            let mood = *describing.mood.lock().expect("a mood");
            if mood == Mood::Dawdles {
                SystemClock::new().sleep(Mood::LATE).await;
            }
            let keys = format!("{issuer}/keys");
            json!({ "issuer": issuer, "jwks_uri": keys, "other": 1 }).to_string()
        };
        let keys = move || {
            let state = state.clone();
            async move {
                state.asked.fetch_add(1, Ordering::SeqCst);
                let mood = *state.mood.lock().unwrap_or_else(PoisonError::into_inner);
                match mood {
                    Mood::Answers => {}
                    Mood::Fails => return StatusCode::BAD_GATEWAY.into_response(),
                    Mood::Hangs => SystemClock::new().sleep(Duration::from_mins(1)).await,
                    Mood::Dawdles => SystemClock::new().sleep(Mood::LATE).await,
                }
                let keys = state
                    .keys
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone();
                json!({ "keys": keys }).to_string().into_response()
            }
        };
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(describe))
            .route("/keys", get(keys));
        drop(tokio::spawn(
            async move { axum::serve(listener, router).await },
        ));
        let mut settings = OidcIssuer {
            issuer: Some(url.clone()),
            audience: vec!["mainspring".to_owned()],
            scope_claim: Some("scope".to_owned()),
            ..OidcIssuer::default()
        };
        change(&mut settings);
        let config = Config {
            oidc: [("login".to_owned(), settings)].into(),
            ..Config::default()
        };
        let clock = Arc::new(Hand::default());
        let shared: Arc<dyn Clock> = clock.clone();
        let verifier = verifier(&config, &shared)
            .expect("a verifier")
            .expect("one");
        Self {
            url,
            published,
            clock,
            verifier,
        }
    }

    fn claims(&self) -> Value {
        json!({
            "iss": self.url, "aud": ["other", "mainspring"], "sub": "ann", "tenant": "blue",
            "scope": "openid read send", "iat": now(), "nbf": now(), "exp": now() + 600,
        })
    }

    fn with(&self, member: &str, value: Value) -> Value {
        let mut claims = self.claims();
        claims[member] = value;
        claims
    }

    fn set(&self, mood: Mood) {
        *self.published.mood.lock().expect("a mood") = mood;
    }

    fn publish(&self, signers: &[&Signer]) {
        let keys = signers.iter().map(|signer| signer.public()).collect();
        *self.published.keys.lock().expect("keys") = keys;
    }

    fn asked(&self) -> usize {
        self.published.asked.load(Ordering::SeqCst)
    }

    async fn accepts(&self, token: &str) -> Identity {
        self.verifier.verify(token).await.expect("is accepted")
    }

    async fn refuses(&self, token: &str, why: &str) {
        match self.verifier.verify(token).await {
            Err(Refused::Invalid(said)) => assert_eq!(said, why),
            other => panic!("{why}: {other:?}"),
        }
    }

    async fn cannot_tell(&self, token: &str) {
        let verified = self.verifier.verify(token).await;
        assert!(
            matches!(verified, Err(Refused::Unavailable(_))),
            "{verified:?}"
        );
    }
}

#[tokio::test]
async fn a_signed_token_says_who_it_is_and_what_it_may() {
    let (rsa, curve) = (Signer::rsa("one", ONE), Signer::curve("curve"));
    let world = World::new(&[&rsa, &curve], |_| {}).await;
    for signer in [&rsa, &curve] {
        let identity = world.accepts(&signer.sign(&world.claims())).await;
        assert_eq!(identity.tenant, "blue");
        assert_eq!(identity.subject, "login#ann");
        assert_eq!(identity.scopes, Scopes([Scope::Read, Scope::Send].into()));
        let left = identity.expires_at.0 / 1_000 - now();
        assert!((500..=640).contains(&left), "{left}");
    }
    let long = world.with("sub", json!("ü".repeat(1_000)));
    let identity = world.accepts(&rsa.sign(&long)).await;
    assert_eq!(identity.subject.chars().count(), SUBJECT_CHARS_MAX);
    // The keys were fetched once for all of these.
    assert_eq!(world.asked(), 1);
}

#[tokio::test]
async fn claims_may_be_nested_and_scopes_may_be_fixed() {
    let rsa = Signer::rsa("one", ONE);
    let world = World::new(&[&rsa], |settings| {
        settings.tenant_claim = Some("/org/name".to_owned());
        settings.scope_claim = None;
        settings.scopes = vec!["read".to_owned()];
    })
    .await;
    let token = rsa.sign(&world.with("org", json!({ "name": "green" })));
    let identity = world.accepts(&token).await;
    assert_eq!(identity.tenant, "green");
    assert_eq!(identity.scopes, Scopes([Scope::Read].into()));
    world
        .refuses(&rsa.sign(&world.claims()), "it names no tenant")
        .await;
}

#[test]
fn a_claim_is_named_or_pointed_at() {
    let claims = json!({ "a": { "b": "deep", "": "nameless" }, "c/d": "plain", "e~f": ["x"] });
    for (claim, found) in [
        ("/a/b", Some("deep")),
        ("/a/", Some("nameless")),
        ("/a", None),
        ("c/d", Some("plain")),
        ("/c~1d", Some("plain")),
        ("/e~0f/0", Some("x")),
        ("a/b", None),
        ("/none/b", None),
    ] {
        assert_eq!(text(&claims, claim), found, "{claim}");
    }
}

#[tokio::test]
async fn a_token_that_is_not_for_here_and_now_is_refused() {
    let rsa = Signer::rsa("one", ONE);
    let world = World::new(&[&rsa], |_| {}).await;
    for (member, value, why) in [
        ("aud", json!("other"), "it is for another audience"),
        ("aud", json!([]), "it is for another audience"),
        ("aud", Value::Null, "it lacks exp, iss or aud"),
        ("exp", json!(now() - 60), "it has expired"),
        ("exp", Value::Null, "it lacks exp, iss or aud"),
        ("nbf", json!(now() + 120), "it is not valid yet"),
        (
            "iss",
            json!("https://evil.example"),
            "its issuer is unknown",
        ),
        (
            "iss",
            json!(format!("{}/", world.url)),
            "its issuer is unknown",
        ),
        ("tenant", json!(""), "it names no tenant"),
        ("tenant", json!(["blue"]), "it names no tenant"),
        ("sub", Value::Null, "it has no sub"),
        ("sub", json!(""), "it has no sub"),
        ("sub", json!(7), "it has no sub"),
    ] {
        let token = rsa.sign(&world.with(member, value));
        world.refuses(&token, why).await;
    }
    // Small clock differences are tolerated.
    world
        .accepts(&rsa.sign(&world.with("exp", json!(now() - 5))))
        .await;
    world
        .accepts(&rsa.sign(&world.with("nbf", json!(now() + 5))))
        .await;
    for text in ["", "a.b", "a.b.c", "e30.e30.e30", &"x".repeat(20_000)] {
        let verified = world.verifier.verify(text).await;
        assert!(matches!(verified, Err(Refused::Invalid(_))), "{verified:?}");
    }
}

#[tokio::test]
async fn only_the_issuers_private_keys_sign() {
    let (rsa, other) = (Signer::rsa("one", ONE), Signer::rsa("one", TWO));
    let curve = Signer::curve("curve");
    let world = World::new(&[&rsa, &curve], |_| {}).await;
    let claims = world.claims();
    world
        .refuses(&other.sign(&claims), "its signature is wrong")
        .await;
    // A key is only used with its own algorithms, whatever the header says.
    let swapped = Signer::curve("one");
    world
        .refuses(&swapped.sign(&claims), "its issuer has no such key")
        .await;
    // Unsigned tokens.
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    for header in [
        json!({ "alg": "none", "kid": "one" }),
        json!({ "alg": "None" }),
    ] {
        let token = format!("{}.{}.", part(&header), part(&claims));
        world.refuses(&token, "it cannot be read").await;
    }
    // The public key used as an HMAC secret, in each form an attacker might try.
    let public = rsa.public();
    let modulus = public["n"].as_str().expect("a modulus");
    let decoded = URL_SAFE_NO_PAD.decode(modulus).expect("base64");
    for secret in [modulus.as_bytes(), &decoded, public.to_string().as_bytes()] {
        let mut header = Header::new(Algorithm::HS256);
        header.kid = Some("one".to_owned());
        let token = encode(&header, &claims, &EncodingKey::from_secret(secret)).expect("signs");
        world
            .refuses(&token, "it is not signed with a private key")
            .await;
    }
    // A tampered payload.
    let token = rsa.sign(&claims);
    let mut parts: Vec<&str> = token.split('.').collect();
    let richer = part(&world.with("tenant", json!("red")));
    parts[1] = &richer;
    world
        .refuses(&parts.join("."), "its signature is wrong")
        .await;
    // A critical extension that is not supported.
    let mut header = Header::new(Algorithm::RS256);
    header.kid = Some("one".to_owned());
    header.crit = Some(vec!["b64".to_owned()]);
    let token = encode(&header, &claims, &rsa.key).expect("signs");
    world
        .refuses(&token, "it requires an unsupported extension")
        .await;
}

#[tokio::test]
async fn a_published_secret_is_no_key() {
    let rsa = Signer::rsa("one", ONE);
    let world = World::new(&[&rsa], |_| {}).await;
    let shared = json!({ "kty": "oct", "kid": "shared", "k": "c2VjcmV0", "alg": "HS256" });
    let strange = json!({ "kty": "strange", "kid": "x" });
    let encryption = {
        let mut key = Signer::rsa("enc", TWO).public();
        key["use"] = json!("enc");
        key
    };
    let keys = vec![shared, strange, encryption, rsa.public(), json!(7)];
    *world.published.keys.lock().expect("keys") = keys;
    world.accepts(&rsa.sign(&world.claims())).await;
    let token = Signer::rsa("enc", TWO).sign(&world.claims());
    world.refuses(&token, "its issuer has no such key").await;
}

#[tokio::test]
async fn a_token_without_a_key_id_means_the_only_key_that_fits() {
    let (one, two) = (Signer::rsa("one", ONE), Signer::rsa("two", TWO));
    let world = World::new(&[&one], |_| {}).await;
    let nameless = |world: &World| {
        let header = Header::new(Algorithm::RS256);
        encode(&header, &world.claims(), &one.key).expect("signs")
    };
    world.accepts(&nameless(&world)).await;
    let world = World::new(&[&one, &two], |_| {}).await;
    world
        .refuses(&nameless(&world), "its issuer has no such key")
        .await;
}

#[test]
fn settings_that_make_no_sense_are_said() {
    let good = OidcIssuer {
        issuer: Some("https://login.example".to_owned()),
        audience: vec!["x".to_owned()],
        scopes: vec!["read".to_owned()],
        ..OidcIssuer::default()
    };
    let faults = [
        (
            OidcIssuer {
                issuer: None,
                ..good.clone()
            },
            "who signs",
        ),
        (
            OidcIssuer {
                audience: Vec::new(),
                ..good.clone()
            },
            "intended audience of tokens",
        ),
        (
            OidcIssuer {
                scopes: Vec::new(),
                ..good.clone()
            },
            "exactly one of scope_claim and scopes",
        ),
        (
            OidcIssuer {
                scope_claim: Some("scope".to_owned()),
                ..good.clone()
            },
            "exactly one of scope_claim and scopes",
        ),
        (
            OidcIssuer {
                scopes: vec!["all".to_owned()],
                ..good.clone()
            },
            "an unknown scope",
        ),
        (
            OidcIssuer {
                issuer: Some("http://login.example".to_owned()),
                ..good.clone()
            },
            "not https",
        ),
        (
            OidcIssuer {
                jwks_url: Some("http://10.0.0.1/keys".to_owned()),
                ..good.clone()
            },
            "not https",
        ),
    ];
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    for (settings, expected) in faults {
        let config = Config {
            oidc: [("login".to_owned(), settings)].into(),
            ..Config::default()
        };
        let failure = verifier(&config, &clock).expect_err("it makes no sense");
        assert!(failure.message.contains(expected), "{}", failure.message);
        assert!(
            failure.message.contains("[oidc.login]"),
            "{}",
            failure.message
        );
    }
}

#[test]
fn two_sections_with_one_issuer_are_refused() {
    let section = |issuer: &str| OidcIssuer {
        issuer: Some(issuer.to_owned()),
        audience: vec!["x".to_owned()],
        scopes: vec!["read".to_owned()],
        ..OidcIssuer::default()
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let with = |second: &str| {
        let first = section("https://login.example");
        let oidc = [("a".to_owned(), first), ("b".to_owned(), section(second))];
        let config = Config {
            oidc: oidc.into(),
            ..Config::default()
        };
        verifier(&config, &clock)
    };
    assert!(with("https://login.example/b").is_ok());
    let failure = with("https://login.example").expect_err("one is dead");
    let message = &failure.message;
    assert_eq!(message, "[oidc.b] has the issuer of [oidc.a]");
    let next = failure.next.expect("says what to do");
    assert!(next.contains("merge the two"), "{next}");
}
