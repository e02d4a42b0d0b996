//! Webhooks: their secrets, and the messages that endpoints get.

use std::fmt;
use std::sync::Arc;

use mainspring_runtime::Sealer;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::error::Code;
use mainspring_shared::id::{RunKey, TenantId, WebhookId};
use mainspring_shared::provider_key;
use mainspring_shared::send::SendView;
use mainspring_shared::store;
use mainspring_shared::timer::TimerView;
use mainspring_shared::tool::secret;
use mainspring_shared::webhook::{
    DeliveryRecord, Poster, SigningKey, Subject, WebhookRecord, seal_context,
};
use mainspring_shared::workflow::view::RunView;
use serde::Serialize;
use serde_json::Value;

use crate::app::App;
use crate::error::Error;

/// Why secrets cannot be stored, and what to do about it.
const NO_SEALER: &str = "the server has no key to encrypt secrets: set MAINSPRING_SECRETS_KEY, or \
                         MAINSPRING_SECRETS_KEY_FILE, to the output of `openssl rand -base64 32` \
                         on every scheduler and worker";

/// What a scheduler needs to send webhooks. Without a poster nothing is posted. Without a sealer no
/// endpoint can be created, and existing ones get no messages.
#[derive(Clone, Default)]
pub struct WebhookParts {
    /// The client that posts messages.
    pub poster: Option<Arc<dyn Poster>>,
    /// Seals and opens secrets.
    pub sealer: Option<Arc<Sealer>>,
}

impl fmt::Debug for WebhookParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookParts")
            .field("poster", &self.poster)
            .field("sealer", &self.sealer)
            .finish()
    }
}

impl WebhookParts {
    /// The sealer, or the error that explains why secrets cannot be stored.
    fn sealer(&self) -> Result<&Sealer, Error> {
        let sealer = self.sealer.as_deref();
        sealer.ok_or_else(|| Error::new(Code::WebhookNoKey, NO_SEALER))
    }

    /// Seals a tenant's key for a provider. It can be opened only for that tenant and provider.
    pub fn seal_provider_key(
        &self,
        entropy: &dyn Entropy,
        tenant: TenantId,
        provider: &str,
        key: &str,
    ) -> Result<String, Error> {
        let Some(sealer) = self.sealer.as_deref() else {
            return Err(Error::new(Code::ProviderKeyNoSeal, NO_SEALER));
        };
        let context = provider_key::seal_context(tenant, provider);
        Ok(sealer.seal(entropy, &context, key.as_bytes()))
    }

    /// Seals a tenant's secret for its tools. It can be opened only for that tenant and name.
    pub fn seal_secret(
        &self,
        entropy: &dyn Entropy,
        tenant: TenantId,
        name: &str,
        held: &secret::Held,
    ) -> Result<String, Error> {
        let Some(sealer) = self.sealer.as_deref() else {
            return Err(Error::new(Code::SecretNoSeal, NO_SEALER));
        };
        let plain = serde_json::to_vec(held).map_err(|error| {
            Error::new(
                Code::Internal,
                format!("a secret cannot be written: {error}"),
            )
        })?;
        let context = secret::seal_context(tenant, name);
        Ok(sealer.seal(entropy, &context, &plain))
    }

    /// The origins that a tenant's secret may be sent to; none if it cannot be opened here.
    pub fn secret_hosts(&self, tenant: TenantId, name: &str, sealed: &str) -> Vec<String> {
        let context = secret::seal_context(tenant, name);
        let sealer = self.sealer.as_deref();
        let opened = sealer.and_then(|sealer| sealer.open(&context, sealed).ok());
        let held = opened.and_then(|plain| serde_json::from_slice::<secret::Held>(&plain).ok());
        held.map(|held| held.hosts).unwrap_or_default()
    }

    /// Checks whether messages may go to this URL, as far as can be determined now. The error says
    /// why not.
    pub fn check_url(&self, url: &str) -> Result<(), String> {
        match &self.poster {
            Some(poster) => poster.check(url),
            None => Ok(()),
        }
    }

    /// Seals a secret for an endpoint.
    pub fn seal(
        &self,
        entropy: &dyn Entropy,
        tenant: TenantId,
        id: WebhookId,
        secret: &SigningKey,
    ) -> Result<String, Error> {
        let sealer = self.sealer()?;
        Ok(sealer.seal(entropy, &seal_context(tenant, id), secret.bytes()))
    }

    /// The keys that currently sign messages to an endpoint. The error says why they cannot be
    /// read.
    pub(crate) fn keys(
        &self,
        webhook: &WebhookRecord,
        now: mainspring_shared::time::Timestamp,
    ) -> Result<Vec<SigningKey>, String> {
        let sealer = self.sealer.as_deref();
        let sealer = sealer.ok_or("this scheduler has no key to decrypt secrets")?;
        let context = seal_context(webhook.tenant, webhook.id);
        let keys = webhook.signing(now).map(|sealed| {
            let opened = sealer.open(&context, sealed);
            let opened = opened.map_err(|error| format!("its secret cannot be read: {error}"))?;
            SigningKey::new(opened).ok_or_else(|| "its secret cannot be read".to_owned())
        });
        keys.collect()
    }
}

/// A new secret.
pub fn new_secret(entropy: &dyn Entropy) -> SigningKey {
    let random = [entropy.random_id(), entropy.random_id()];
    let bytes = random.map(uuid::Uuid::into_bytes).concat();
    SigningKey::new(bytes).expect("it has 32 bytes")
}

/// A message to an endpoint, as defined by Standard Webhooks.
#[derive(Debug, Serialize)]
struct Message<'m> {
    r#type: &'m str,
    timestamp: mainspring_shared::time::Timestamp,
    data: Value,
}

/// The body of a delivery: the send, the run or the timer as the API shows it now, along with its trace. None
/// if it is gone.
pub(crate) async fn body(
    app: &App,
    delivery: &DeliveryRecord,
) -> Result<Option<(Vec<u8>, Option<String>)>, store::Error> {
    let tenant = delivery.tenant;
    let mut traceparent = None;
    let data = match delivery.subject() {
        Subject::Run(run) => {
            let found = app.store.get_runs(vec![RunKey { tenant, run }]).await?;
            let mut record = found.into_iter().next().flatten();
            if let Some(record) = &mut record {
                traceparent = record.options.traceparent.take();
            }
            record.map(|record| serde_json::to_value(RunView::from(record)))
        }
        Subject::Send(id) => {
            let found = app.store.get_sends(vec![(tenant, id)]).await?;
            let mut record = found.into_iter().next().flatten();
            if let Some(record) = &mut record {
                traceparent = record.options.traceparent.take();
            }
            record.map(|record| serde_json::to_value(SendView::from(record)))
        }
        Subject::Timer(id) => {
            let found = app.store.get_timers(vec![(tenant, id)]).await?;
            let record = found.into_iter().next().flatten();
            record.map(|record| serde_json::to_value(TimerView::from(record)))
        }
    };
    let Some(Ok(data)) = data else {
        return Ok(None);
    };
    let message = Message {
        r#type: &delivery.event_type,
        timestamp: delivery.event_at,
        data,
    };
    let body = serde_json::to_vec(&message).ok();
    Ok(body.map(|body| (body, traceparent)))
}
