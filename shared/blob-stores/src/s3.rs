//! A bucket of any store that speaks S3.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use mainspring_shared::blob::{BlobPlace, Blobs, Error};
use mainspring_shared::secrets::Secrets;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{ClientOptions, GetOptions, ObjectStore, ObjectStoreExt as _, RetryConfig};

/// The region where none is named.
const REGION_DEFAULT: &str = "us-east-1";

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Attempts of one request behind the first: what lasts longer is for the callers to wait for, who know
/// how urgent it is.
const RETRIES_MAX: usize = 2;

/// When no further attempt is begun.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);

/// Which bucket, and how it is reached.
#[derive(Clone)]
pub struct S3Settings {
    /// The bucket.
    pub bucket: String,
    /// What the names of all objects begin with; nothing if empty.
    pub prefix: String,
    /// The region, for which most S3-compatible stores take any value; that of the environment, else
    /// `us-east-1`, when none.
    pub region: Option<String>,
    /// The store's address, such as `https://minio.internal:9000`; that of the environment, else Amazon's
    /// of the region, when none.
    pub endpoint: Option<String>,
    /// The key's id. Without one the environment's credentials are used: of the variables `AWS_…`, a web
    /// identity, the container or the machine.
    pub access_key_id: Option<String>,
    /// The key's secret.
    pub secret_access_key: Option<String>,
    /// How long one request may take: a whole blob over the line there is.
    pub timeout: Duration,
}

impl fmt::Debug for S3Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            bucket,
            prefix,
            region,
            endpoint,
            access_key_id: _,
            secret_access_key: _,
            timeout,
        } = self;
        f.debug_struct("S3Settings")
            .field("bucket", bucket)
            .field("prefix", prefix)
            .field("region", region)
            .field("endpoint", &endpoint.as_deref().map(hidden_login))
            .field("timeout", timeout)
            .finish_non_exhaustive()
    }
}

/// The store `s3`: an object for each blob, `PREFIX/TENANT/SHA256-GENERATION`, put in one request. What
/// an upload acknowledged is durable; a part of one is never seen.
pub struct S3Blobs {
    store: AmazonS3,
    prefix: String,
    described: String,
    /// What the store may quote and nobody else is to know.
    secrets: Secrets,
}

/// The region that the environment names, else the one that object stores of other makers take.
fn region_of_environment() -> String {
    let environment = AmazonS3Builder::from_env();
    let region = environment.get_config_value(&AmazonS3ConfigKey::Region);
    region.unwrap_or_else(|| REGION_DEFAULT.to_owned())
}

impl S3Blobs {
    /// Fails if the settings make no sense. Nothing is asked of the store yet.
    pub fn new(settings: &S3Settings) -> Result<Self, Error> {
        let mut builder = match settings.access_key_id {
            // Its own settings are complete: the environment may be meant for something else.
            Some(_) => AmazonS3Builder::new().with_region(region_of_environment()),
            None => AmazonS3Builder::from_env(),
        };
        let endpoint = settings.endpoint.clone();
        // The name that is for S3 alone wins over the other, also over the one that is set below.
        let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint]
            .iter()
            .fold(endpoint, |known, key| {
                known.or_else(|| builder.get_config_value(key))
            });
        let client = ClientOptions::new()
            .with_allow_http(
                endpoint
                    .as_deref()
                    .is_some_and(|it| it.starts_with("http://")),
            )
            .with_timeout(settings.timeout)
            .with_connect_timeout(CONNECT_TIMEOUT.min(settings.timeout));
        builder = builder
            .with_bucket_name(&settings.bucket)
            .with_client_options(client)
            .with_retry(RetryConfig {
                max_retries: RETRIES_MAX,
                retry_timeout: RETRY_TIMEOUT,
                ..RetryConfig::default()
            });
        if let Some(region) = &settings.region {
            builder = builder.with_region(region);
        }
        if let Some(endpoint) = &endpoint {
            builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
        }
        if let Some(id) = &settings.access_key_id {
            builder = builder.with_access_key_id(id);
        }
        if let Some(secret) = &settings.secret_access_key {
            builder = builder.with_secret_access_key(secret);
        }
        let given = [
            AmazonS3ConfigKey::AccessKeyId,
            AmazonS3ConfigKey::SecretAccessKey,
            AmazonS3ConfigKey::Token,
        ];
        let secrets = given
            .iter()
            .filter_map(|key| builder.get_config_value(key))
            .fold(Secrets::default(), |secrets, value| secrets.and(&value))
            .and_of_url(endpoint.as_deref().unwrap_or_default());
        let place = secrets.hidden(endpoint.as_deref().unwrap_or("Amazon S3"));
        Ok(Self {
            store: builder
                .build()
                .map_err(|error| unavailable(&error, &secrets))?,
            secrets,
            prefix: settings.prefix.trim_matches('/').to_owned(),
            described: format!("bucket {} of {place}", settings.bucket),
        })
    }

    fn path(&self, place: BlobPlace) -> Path {
        if self.prefix.is_empty() {
            Path::from(place.to_string())
        } else {
            Path::from(format!("{}/{place}", self.prefix))
        }
    }

    /// Bytes of an object, where it is there.
    async fn length(&self, place: BlobPlace) -> Result<Option<u64>, Error> {
        match self.store.head(&self.path(place)).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.unavailable(&error)),
        }
    }

    fn unavailable(&self, error: &object_store::Error) -> Error {
        unavailable(error, &self.secrets)
    }
}

/// A URL without what lets someone in.
fn hidden_login(url: &str) -> String {
    Secrets::default().and_of_url(url).hidden(url)
}

/// The error with all that led to it, without what the store quotes of what it was given.
fn unavailable(error: &object_store::Error, secrets: &Secrets) -> Error {
    let mut said = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        let text = inner.to_string();
        // Most of these errors say what their sources say.
        if !said.contains(&text) {
            said = format!("{said}: {text}");
        }
        source = inner.source();
    }
    Error::unavailable(std::io::Error::other(secrets.hidden(&said)))
}

impl fmt::Debug for S3Blobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("S3Blobs").field(&self.described).finish()
    }
}

#[async_trait]
impl Blobs for S3Blobs {
    async fn put(&self, place: BlobPlace, data: Bytes) -> Result<(), Error> {
        let path = self.path(place);
        let put = self.store.put(&path, data.into());
        put.await.map_err(|error| self.unavailable(&error))?;
        Ok(())
    }

    async fn get(
        &self,
        place: BlobPlace,
        range: Option<Range<u64>>,
    ) -> Result<Option<Bytes>, Error> {
        if let Some(range) = &range {
            // Of what is not there the protocol knows no part.
            let Some(length) = self.length(place).await? else {
                return Ok(None);
            };
            if range.start >= range.end.min(length) {
                return Ok(Some(Bytes::new()));
            }
        }
        let options = GetOptions {
            range: range.map(Into::into),
            ..GetOptions::default()
        };
        let got = match self.store.get_opts(&self.path(place), options).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            got => got.map_err(|error| self.unavailable(&error))?,
        };
        let bytes = got.bytes().await;
        bytes.map(Some).map_err(|error| self.unavailable(&error))
    }

    async fn exists(&self, place: BlobPlace) -> Result<bool, Error> {
        Ok(self.length(place).await?.is_some())
    }

    async fn delete(&self, place: BlobPlace) -> Result<(), Error> {
        match self.store.delete(&self.path(place)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.unavailable(&error)),
        }
    }

    async fn check(&self) -> Result<(), Error> {
        crate::write_read_delete(self).await
    }

    fn describe(&self) -> String {
        self.described.clone()
    }
}
