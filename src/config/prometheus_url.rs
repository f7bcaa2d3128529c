//! Where Prometheus is.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Why a text is no [`PrometheusUrl`]. Each message says what is expected instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PrometheusUrlError {
    /// Another scheme, or none.
    #[error(
        "expected a URL that begins with http:// or https://, such as http://prometheus.monitoring:9090/"
    )]
    Scheme,
    /// Not a URL that names a host.
    #[error(
        "expected a URL with a host and, if need be, a port and a path, such as http://prometheus.monitoring:9090/"
    )]
    Form,
    /// A query or a fragment, which would swallow the path of the API.
    #[error("expected a URL without '?' and '#': the API's path is appended to it")]
    Query,
}

/// The base URL of a Prometheus: `http` or `https`, a host, perhaps a path prefix, which is kept.
///
/// Shown without the credentials, should it hold any.
#[derive(Clone, PartialEq, Eq)]
pub struct PrometheusUrl {
    text: String,
    url: reqwest::Url,
}

impl PrometheusUrl {
    /// The URL as written, credentials included and without slashes at its end.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Where the API answers at `path`, credentials included.
    pub(crate) fn endpoint(&self, path: &str) -> reqwest::Url {
        let mut url = self.url.clone();
        url.set_path(&format!("{}{path}", url.path().trim_end_matches('/')));
        url
    }

    /// Whether nobody on the way can listen.
    pub fn is_encrypted(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Whether it holds a user, by whom Prometheus is asked then.
    pub fn names_a_user(&self) -> bool {
        !self.url.username().is_empty() || self.url.password().is_some()
    }
}

impl FromStr for PrometheusUrl {
    type Err = PrometheusUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let after_scheme = ["http://", "https://"]
            .iter()
            .find_map(|scheme| strip_prefix_ignoring_case(text, scheme))
            .ok_or(PrometheusUrlError::Scheme)?;
        if text.contains(['?', '#']) {
            return Err(PrometheusUrlError::Query);
        }
        // What a URL parser would silently repair is a typing error here.
        let repaired = |c: char| c.is_whitespace() || c.is_control() || c == '\\';
        if text.contains(repaired) || after_scheme.starts_with('/') {
            return Err(PrometheusUrlError::Form);
        }
        let url = reqwest::Url::parse(text).map_err(|_| PrometheusUrlError::Form)?;
        if !url.has_host() {
            return Err(PrometheusUrlError::Form);
        }
        Ok(Self {
            text: text.trim_end_matches('/').to_owned(),
            url,
        })
    }
}

impl fmt::Display for PrometheusUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_credentials(&self.text))
    }
}

impl fmt::Debug for PrometheusUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PrometheusUrl")
            .field(&without_credentials(&self.text))
            .finish()
    }
}

fn strip_prefix_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (head, tail) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(tail)
}

/// The text with whatever may be credentials in it replaced, also where it is no URL yet.
pub(super) fn without_credentials(text: &str) -> String {
    let start = text.find("://").map_or(0, |at| at + "://".len());
    let (scheme, rest) = text.split_at(start);
    // A password may hold an unescaped '@' or '/', so the last '@' counts.
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}***@{host}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_kept_as_written_but_for_the_slashes_at_the_end() {
        for (text, kept) in [
            ("http://myprometheus:9090/", "http://myprometheus:9090"),
            ("http://myprometheus:9090", "http://myprometheus:9090"),
            (
                "HTTPS://metrics.example/prom/x/",
                "HTTPS://metrics.example/prom/x",
            ),
            ("http://[::1]:9090", "http://[::1]:9090"),
            ("http://10.0.0.1", "http://10.0.0.1"),
        ] {
            assert_eq!(text.parse::<PrometheusUrl>().unwrap().as_str(), kept);
        }
    }

    #[test]
    fn what_is_no_url_of_a_prometheus_says_what_is_expected() {
        for (text, expected) in [
            ("", PrometheusUrlError::Scheme),
            ("myprometheus:9090", PrometheusUrlError::Scheme),
            ("ftp://myprometheus", PrometheusUrlError::Scheme),
            ("http:/myprometheus", PrometheusUrlError::Scheme),
            ("http://", PrometheusUrlError::Form),
            ("http:///prom", PrometheusUrlError::Form),
            ("http://:9090", PrometheusUrlError::Form),
            ("http://my prometheus", PrometheusUrlError::Form),
            ("http://prometheus:port", PrometheusUrlError::Form),
            ("http://prometheus:99999", PrometheusUrlError::Form),
            ("http://prometheus/?tenant=a", PrometheusUrlError::Query),
            ("http://prometheus/#graph", PrometheusUrlError::Query),
        ] {
            assert_eq!(text.parse::<PrometheusUrl>(), Err(expected), "{text:?}");
        }
    }

    #[test]
    fn credentials_are_used_but_never_shown() {
        let url: PrometheusUrl = "http://volery:s3cret@prometheus:9090/".parse().unwrap();
        assert_eq!(url.as_str(), "http://volery:s3cret@prometheus:9090");
        assert_eq!(url.to_string(), "http://***@prometheus:9090");
        assert!(!format!("{url:?}").contains("s3cret"));
    }
}
