//! Names of what this crate measures.

/// Counter: requests by `method`, `route` and `status`.
pub(crate) const REQUESTS: &str = "mainspring_http_requests_total";
/// Histogram: seconds from a request's head to its answer's, by `route`.
pub(crate) const REQUEST_SECONDS: &str = "mainspring_http_request_seconds";
/// Gauge: requests that wait or stream.
pub(crate) const WAITERS: &str = "mainspring_http_waiters";
