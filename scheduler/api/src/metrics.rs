//! Names of this crate's metrics.

/// Counter: requests by `method`, `route` and `status`.
pub(crate) const REQUESTS: &str = "mainspring_http_requests_total";
/// Histogram: seconds from receiving a request's head to sending the response's head, by `route`.
pub(crate) const REQUEST_SECONDS: &str = "mainspring_http_request_seconds";
/// Gauge: requests that wait or stream.
pub(crate) const WAITERS: &str = "mainspring_http_waiters";
