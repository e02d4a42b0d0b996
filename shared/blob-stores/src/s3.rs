//! Blobs in a bucket of any S3-compatible store.

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

/// The region if none is configured.
const REGION_DEFAULT: &str = "us-east-1";

/// Time limit for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of retries of a request. Longer outages are left to the callers, who know how urgent the
/// request is.
const RETRIES_MAX: usize = 2;

/// Time after which no retry is started.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);

/// The bucket and how to reach it.
#[derive(Clone)]
pub struct S3Settings {
    /// The bucket.
    pub bucket: String,
    /// The prefix of all object names; none if empty.
    pub prefix: String,
    /// The region. If none, the environment's, else `us-east-1`. Most S3-compatible stores accept
    /// any value.
    pub region: Option<String>,
    /// The store's address, such as `https://minio.internal:9000`. If none, the environment's, else
    /// that of Amazon in the region.
    pub endpoint: Option<String>,
    /// The key's id. If none, the environment's credentials are used: the variables `AWS_…`, a web
    /// identity, the container's or the machine's.
    pub access_key_id: Option<String>,
    /// The key's secret.
    pub secret_access_key: Option<String>,
    /// Time limit of one request, which may transfer a whole blob.
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

/// The store `s3`: one object per blob, `PREFIX/TENANT/SHA256-GENERATION`, written in one request.
/// An acknowledged upload is durable, and a partial one is never visible.
pub struct S3Blobs {
    store: AmazonS3,
    prefix: String,
    described: String,
    /// Secrets that the store's errors may quote, and that must not be shown.
    secrets: Secrets,
}

/// The environment's region, else the one that other vendors' stores accept.
fn region_of_environment() -> String {
    let environment = AmazonS3Builder::from_env();
    let region = environment.get_config_value(&AmazonS3ConfigKey::Region);
    region.unwrap_or_else(|| REGION_DEFAULT.to_owned())
}

impl S3Blobs {
    /// Fails if the settings are invalid. Does not contact the store.
    pub fn new(settings: &S3Settings) -> Result<Self, Error> {
        let mut builder = match settings.access_key_id {
            // Settings with a key are complete: the environment may be meant for something else.
            Some(_) => AmazonS3Builder::new().with_region(region_of_environment()),
            None => AmazonS3Builder::from_env(),
        };
        let endpoint = settings.endpoint.clone();
        // In the builder `S3Endpoint` takes precedence over `Endpoint`, so it is read first here,
        // and the result is set as `S3Endpoint` below.
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

    /// The size of an object in bytes; none if it does not exist.
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

/// A URL without its credentials.
fn hidden_login(url: &str) -> String {
    Secrets::default().and_of_url(url).hidden(url)
}

/// The error with all its causes, without secrets that the store may have quoted.
fn unavailable(error: &object_store::Error, secrets: &Secrets) -> Error {
    let mut said = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        let text = inner.to_string();
        // Most of these errors already include the text of their sources.
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
            // S3 refuses an empty range, or one past the end of the object. Answer those here.
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
