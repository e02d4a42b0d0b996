//! Requests of this program's own client, which never leave the process.

use axum::Router;
use axum::body::Body as Sent;
use futures::TryStreamExt as _;
use futures::future::BoxFuture;
use mainspring_client::{Arrival, Body, Request, Response, Transport, TransportError};
use mainspring_runtime::Lifecycle;
use tower::ServiceExt as _;

/// The address that the client believes it speaks to. Nothing listens there.
pub(crate) const HERE: &str = "http://localhost";

/// The API of this process.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) router: Router,
    pub(crate) lifecycle: Lifecycle,
}

fn broken(message: &str, arrival: Arrival) -> TransportError {
    TransportError {
        message: message.to_owned(),
        arrival,
    }
}

impl Transport for Door {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, TransportError>> {
        Box::pin(async move {
            if self.lifecycle.is_stopping() {
                return Err(broken("it is shut down", Arrival::Closed));
            }
            let mut made = axum::extract::Request::new(Sent::from(request.body));
            *made.method_mut() = request.method;
            let uri = request.path.parse();
            *made.uri_mut() =
                uri.map_err(|_| broken("the path is none of the API", Arrival::Closed))?;
            *made.headers_mut() = request.headers;
            let host = axum::http::HeaderValue::from_static("localhost");
            made.headers_mut().insert(axum::http::header::HOST, host);
            let Ok(answer) = self.router.clone().oneshot(made).await;
            let (head, body) = answer.into_parts();
            let chunks = body.into_data_stream();
            Ok(Response {
                status: head.status,
                headers: head.headers,
                body: Body::new(
                    chunks.map_err(|error| broken(&error.to_string(), Arrival::Unknown)),
                ),
            })
        })
    }
}
