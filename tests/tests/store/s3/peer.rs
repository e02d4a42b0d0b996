//! An S3 server over a folder of files that can be told to misbehave.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpError};
use s3s_fs::FileSystem;
use tokio::net::TcpListener;

use mainspring_blob_stores::{S3Blobs, S3Settings};

pub(crate) const KEY: &str = "AKIAEXAMPLE";
pub(crate) const SECRET: &str = "very-secret-and-never-shown";
const BUCKET: &str = "bucket";

/// How the server misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misbehaviour {
    None,
    /// It fails this many requests, then recovers.
    Failing(u32),
    /// It accepts requests and carries them out, but never replies.
    Silent,
    /// It returns wrong bytes, of the right length.
    WrongBytes,
    /// It closes the connection before all bytes are sent.
    Short,
}

#[derive(Debug)]
struct State {
    misbehaviour: Misbehaviour,
    requests: Vec<Method>,
}

/// The server.
#[derive(Debug)]
pub(crate) struct Peer {
    address: SocketAddr,
    folder: tempfile::TempDir,
    state: Arc<Mutex<State>>,
}

impl Peer {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join(BUCKET)).expect("a bucket");
        let files = FileSystem::new(folder.path()).expect("a store");
        let mut service = S3ServiceBuilder::new(files);
        service.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let service = service.build();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(Mutex::new(State {
            misbehaviour: Misbehaviour::None,
            requests: Vec::new(),
        }));
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (service, state) = (service.clone(), shared.clone());
                tokio::spawn(async move {
                    let answer =
                        service_fn(move |request| answer(service.clone(), state.clone(), request));
                    let connection = Builder::new(TokioExecutor::new());
                    // Ends with an error when the client goes away.
                    let _ = connection
                        .serve_connection(TokioIo::new(socket), answer)
                        .await;
                });
            }
        });
        Self {
            address,
            folder,
            state,
        }
    }

    pub(crate) fn settings(&self) -> S3Settings {
        let _ = rustls::crypto::ring::default_provider().install_default();
        S3Settings {
            bucket: BUCKET.to_owned(),
            prefix: "a/b/".to_owned(),
            region: None,
            endpoint: Some(format!("http://{}", self.address)),
            access_key_id: Some(KEY.to_owned()),
            secret_access_key: Some(SECRET.to_owned()),
            timeout: Duration::from_secs(20),
        }
    }

    pub(crate) fn blobs(&self) -> S3Blobs {
        S3Blobs::new(&self.settings()).expect("good settings")
    }

    pub(crate) fn set(&self, misbehaviour: Misbehaviour) {
        self.state.lock().expect("no panic").misbehaviour = misbehaviour;
    }

    /// Number of requests with this method so far.
    pub(crate) fn asked(&self, method: &Method) -> usize {
        let state = self.state.lock().expect("no panic");
        state.requests.iter().filter(|it| *it == method).count()
    }

    /// The names of all objects.
    pub(crate) fn objects(&self) -> Vec<String> {
        let bucket = self.folder.path().join(BUCKET);
        let mut found = Vec::new();
        let mut folders: Vec<PathBuf> = vec![bucket.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(&bucket).expect("is inside");
                    found.push(name.to_string_lossy().into_owned());
                }
            }
        }
        found.sort();
        found
    }
}

async fn answer(
    service: S3Service,
    state: Arc<Mutex<State>>,
    request: Request<Incoming>,
) -> Result<Response<Body>, HttpError> {
    let method = request.method().clone();
    let misbehaviour = {
        let mut state = state.lock().expect("no panic");
        state.requests.push(method.clone());
        if let Misbehaviour::Failing(left) = state.misbehaviour {
            state.misbehaviour = match left {
                0 => Misbehaviour::None,
                left => Misbehaviour::Failing(left - 1),
            };
        }
        state.misbehaviour
    };
    if let Misbehaviour::Failing(_) = misbehaviour {
        let mut response = Response::new(Body::from("busy".to_owned()));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        return Ok(response);
    }
    let response = service.call(request.map(Body::from)).await?;
    if misbehaviour == Misbehaviour::Silent {
        std::future::pending::<()>().await;
    }
    if method != Method::GET || response.status() != StatusCode::OK {
        return Ok(response);
    }
    let length = response.headers().get("content-length");
    let length = length.and_then(|it| it.to_str().ok()?.parse::<usize>().ok());
    let length = length.expect("objects have a length");
    let (head, body) = response.into_parts();
    let body = match misbehaviour {
        Misbehaviour::WrongBytes => Body::from(vec![b'x'; length]),
        // The header still promises the full length.
        Misbehaviour::Short => Body::from(vec![b'x'; length / 2]),
        Misbehaviour::None | Misbehaviour::Failing(_) | Misbehaviour::Silent => body,
    };
    Ok(Response::from_parts(head, body))
}
