//! Requests with misplaced or wrong secrets.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use mainspring_benches::servers::find_program;
use mainspring_tests::faults::now;
use serde_json::{Value, json};

use super::api::Api;
use super::planted::{Planted, base64, random};

/// An identity provider's key, in a folder that is not searched.
pub(super) struct Signer {
    key: std::path::PathBuf,
    /// What the identity provider publishes.
    pub(super) public: Value,
}

fn url_safe(bytes: &[u8]) -> String {
    base64(bytes).replace('+', "-").replace('/', "_")
}

fn openssl(arguments: &[&str], input: &[u8]) -> Result<Vec<u8>> {
    use std::io::Write as _;

    let mut child = Command::new(find_program("openssl")?)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    child.stdin.take().context("a pipe")?.write_all(input)?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "openssl {arguments:?}");
    Ok(output.stdout)
}

impl Signer {
    pub(super) fn new(folder: &Path) -> Result<Self> {
        let key = folder.join("identity.pem");
        let path = key.to_str().context("a path")?;
        openssl(&["genrsa", "-out", path, "2048"], b"")?;
        let modulus = openssl(&["rsa", "-in", path, "-noout", "-modulus"], b"")?;
        let modulus = String::from_utf8(modulus)?;
        let digits = modulus.trim().split_once('=').context("a modulus")?.1;
        let bytes: Result<Vec<u8>, _> = (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16))
            .collect();
        let public = json!({ "keys": [{
            "kty": "RSA", "use": "sig", "alg": "RS256", "kid": "one", "e": "AQAB",
            "n": url_safe(&bytes?),
        }] });
        Ok(Self { key, public })
    }

    /// A token with these claims; its signature is added as a secret under this name.
    fn token(&self, planted: &mut Planted, name: &'static str, claims: &Value) -> Result<String> {
        let head = json!({ "alg": "RS256", "kid": "one", "typ": "JWT" });
        let said = [head, claims.clone()].map(|part| url_safe(part.to_string().as_bytes()));
        let said = said.join(".");
        let path = self.key.to_str().context("a path")?;
        let signature = openssl(&["dgst", "-sha256", "-sign", path], said.as_bytes())?;
        let signature = url_safe(&signature);
        // The search takes a fixed-length base64 text, so use the beginning of the signature.
        planted.note(name, &signature[..64], &[]);
        Ok(format!("{said}.{signature}"))
    }
}

/// Uses tokens of an identity provider: a good one, and ones that are refused.
pub(super) async fn tokens(
    api: &Api,
    planted: &mut Planted,
    signer: &Signer,
    outside: &str,
) -> Result<()> {
    let hour = now().0 / 1_000 + 3_600;
    let claims = |expires: i64, audience: &str| {
        json!({
            "iss": format!("{outside}/oidc"), "aud": audience, "exp": expires,
            "sub": "somebody", "tenant": "acme",
        })
    };
    let good = claims(hour, "mainspring");
    let cases = [
        ("a token of an identity provider", good.clone(), 200),
        (
            "a token that has expired",
            claims(hour - 7_200, "mainspring"),
            401,
        ),
        ("a token for someone else", claims(hour, "another"), 401),
    ];
    for (name, claims, status) in cases {
        let token = signer.token(planted, name, &claims)?;
        let told = api.with_key(&token).admitted().await?;
        ensure!(told == status, "{name}: {told}");
    }
    let mut forged = signer.token(planted, "a token that was changed", &good)?;
    forged.insert(forged.len() - 4, 'A');
    let broken = planted.secret("a token that is none", &[]);
    let parts = url_safe(good.to_string().as_bytes());
    for token in [
        forged,
        format!("eyJ.{parts}.{broken}"),
        format!("{broken}.x.y"),
    ] {
        ensure!(api.with_key(&token).admitted().await? == 401, "a bad token");
    }
    Ok(())
}

/// Sends secrets where none belongs.
pub(super) async fn misplaced(api: &Api, planted: &mut Planted) -> Result<()> {
    let unknown = planted.secret("an API key that nobody has", &[]);
    let password = planted.secret("a password of basic authentication", &[]);
    let cookie = planted.secret("a cookie", &[]);
    let header = planted.secret("a header that is not asked for", &[]);
    let proxy = planted.secret("a password for a proxy", &[]);
    let basic = format!(
        "Basic {}",
        base64(format!("somebody:{password}").as_bytes())
    );
    for (name, value) in [
        ("authorization", format!("Bearer msk_{unknown}_{unknown}")),
        ("authorization", format!("Bearer msk_{unknown}")),
        ("authorization", format!("msk_{unknown}")),
        ("authorization", basic.clone()),
        ("proxy-authorization", format!("Bearer {proxy}")),
        ("cookie", format!("session={cookie}")),
        ("x-api-key", header),
    ] {
        let answer = api.raw("GET", "/v1/sends", &[(name, &value)], None).await?;
        ensure!(answer.status == 401, "{name}: {answer:?}");
    }
    let query = planted.secret("a key in a query", &[]);
    let path = planted.secret("a key in a path", &[]);
    let cursor = planted.secret("a key as a cursor", &[]);
    for place in [
        format!("/v1/sends?api_key={query}"),
        format!("/v1/sends?access_token={query}&limit=1"),
        format!("/v1/sends?cursor={cursor}"),
        format!("/v1/keys/msk_{path}"),
        format!("/v1/sends/msk_{path}"),
        format!("/msk_{path}"),
    ] {
        for method in ["GET", "DELETE"] {
            let answer = api.ask(method, &place, &Value::Null).await?;
            ensure!((400..500).contains(&answer.status), "{method}: {answer:?}");
        }
    }
    bodies(api, planted).await
}

async fn bodies(api: &Api, planted: &mut Planted) -> Result<()> {
    let secret = planted.secret("a key in the wrong member of a body", &[]);
    let broken = planted.secret("a key in a body that is no JSON", &[]);
    let idempotency = planted.secret("a key as a key of idempotency", &[]);
    // The answer to a wrong enum value quotes it.
    let word = planted.secret("a key where one of a few words belongs", &["answers"]);
    for (path, body) in [
        ("/v1/sends", json!({ "inputt": secret })),
        ("/v1/sends", json!({ "input": { "key": secret } })),
        ("/v1/sends", json!({ "input": "x", "session_id": secret })),
        (
            "/v1/sends",
            json!({ "input": "x", "options": { "priority": secret } }),
        ),
        (
            "/v1/sends",
            json!({ "input": "x", "options": { "deadline": secret } }),
        ),
        ("/v1/keys", json!({ "name": "x", "scopes": [word] })),
        (
            "/v1/keys",
            json!({ "name": "x", "scopes": ["read"], "expires_at": secret }),
        ),
        ("/v1/timers", json!({ "cron": secret, "input": "x" })),
        (
            "/v1/webhooks",
            json!({ "url": "https://a.example", "events": [secret] }),
        ),
        ("/v1/webhooks", json!({ "url": secret, "events": ["*"] })),
    ] {
        let answer = api.ask("POST", path, &body).await?;
        ensure!((400..500).contains(&answer.status), "{path}: {answer:?}");
    }
    let key = format!("Bearer {}", api.key());
    let headers = [
        ("authorization", key.as_str()),
        ("idempotency-key", &idempotency),
    ];
    for body in [
        format!("{{\"input\": {broken}"),
        format!("{{\"input\": \"{broken}"),
    ] {
        let answer = api.raw("POST", "/v1/sends", &headers, Some(body)).await?;
        ensure!(answer.status == 400, "{answer:?}");
    }
    Ok(())
}

/// Stores a blob in a bucket that quotes what it refuses.
pub(super) async fn blob(api: &Api) -> Result<()> {
    let key = format!("Bearer {}", api.key());
    let headers = [("authorization", key.as_str())];
    let answer = api
        .raw("POST", "/v1/blobs", &headers, Some(random()))
        .await?;
    ensure!(answer.status == 503, "a bucket that refuses: {answer:?}");
    Ok(())
}
