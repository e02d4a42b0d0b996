//! The proxy that requests to a server go through, for messages about it.

use mainspring_runtime::{Environment, Secret};
use reqwest::Url;

/// The variable that names the proxy for this server, and the proxy without secrets.
pub(crate) fn in_effect(environment: &Environment, server: &str) -> Option<(String, String)> {
    let url = Url::parse(server).ok()?;
    let host = url.host_str()?;
    let names: [&str; 4] = match url.scheme() {
        "https" => ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"],
        _ => ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"],
    };
    let mut set = names
        .into_iter()
        .filter_map(|name| Some((name, environment.get(name)?)));
    let (name, proxy) = set.next()?;
    let excepted = ["NO_PROXY", "no_proxy"]
        .into_iter()
        .find_map(|name| environment.get(name))
        .unwrap_or_default();
    let is_excepted = excepted.split(',').map(str::trim).any(|pattern| {
        let suffix = pattern.trim_start_matches('.');
        pattern == "*"
            || (!suffix.is_empty()
                && host
                    .strip_suffix(suffix)
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
    });
    (!is_excepted).then(|| (name.to_owned(), shown(proxy)))
}

/// A proxy's address without its password. It may lack a scheme.
fn shown(proxy: &str) -> String {
    if proxy.contains("://") {
        Secret::new(proxy).redacted_url()
    } else {
        let http = Secret::new(format!("http://{proxy}")).redacted_url();
        http.strip_prefix("http://").unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pairs: &[(&str, &str)], server: &str) -> Option<(String, String)> {
        let pairs = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        in_effect(&Environment::from_pairs(pairs), server)
    }

    #[test]
    fn the_variable_that_counts_is_named_without_its_password() {
        let pairs = [
            ("http_proxy", "http://u:secret@proxy.example:8080"),
            ("ALL_PROXY", "p:1"),
        ];
        let (name, proxy) = found(&pairs, "http://scheduler.example").expect("one is set");
        assert_eq!(
            (name.as_str(), proxy.as_str()),
            ("http_proxy", "http://u:[hidden]@proxy.example:8080")
        );
        let (name, proxy) = found(&pairs, "https://scheduler.example").expect("one is set");
        assert_eq!((name.as_str(), proxy.as_str()), ("ALL_PROXY", "p:1"));
        assert_eq!(found(&[], "http://scheduler.example"), None);
    }

    #[test]
    fn hosts_that_are_reached_directly_have_none() {
        let with =
            |no: &str, server: &str| found(&[("ALL_PROXY", "p:1"), ("no_proxy", no)], server);
        for (no, server) in [
            ("*", "http://a.example"),
            ("b.example, example", "http://a.example"),
            (".a.example", "https://x.a.example:1"),
        ] {
            assert_eq!(with(no, server), None, "{no} {server}");
        }
        assert!(with("ample", "http://a.example").is_some());
    }
}
