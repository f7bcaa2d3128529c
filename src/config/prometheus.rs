//! How Prometheus is asked: where it is, as whom, whom to believe that it is it, and for how long.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use thiserror::Error;

use super::prometheus_url::PrometheusUrl;
use super::secret::Secret;

/// How long one query may take where the file does not say.
pub const DEFAULT_QUERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a text is no value of `prometheus`. Each message says what is expected instead, and none repeats what may be a
/// secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PrometheusSettingError {
    /// Not a name that basic authentication can send.
    #[error("expected a user's name without ':' and control characters")]
    Username,
    /// Not the name of a header.
    #[error("expected the name of a header, such as X-Scope-OrgID")]
    HeaderName,
    /// A header that has to agree with the request.
    #[error("expected a header that is free: Volery or HTTP itself sets this one")]
    OwnHeader,
    /// Not the value of a header.
    #[error(
        "expected the header's value in visible ASCII, or from-env or from-file below it where it is a secret"
    )]
    HeaderValue,
    /// A header that always holds a secret.
    #[error(
        "expected from-env or from-file below this header: it is a secret, and this file is no place for it"
    )]
    SecretHeader,
}

/// `prometheus-base-url`, and all that `prometheus` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrometheusSettings {
    /// `prometheus-base-url`.
    pub url: PrometheusUrl,
    /// `bearer-token-from-env`, `bearer-token-from-file`, `username` with `password-from-env` or
    /// `password-from-file`: as whom it is asked. [`Login::None`] wherever [`url`](Self::url) holds a user itself.
    pub login: Login,
    /// `ca-file`: who may vouch for it.
    pub authorities: Authorities,
    /// `headers`: what else is sent along, in the order of their names, each once.
    pub headers: Vec<Header>,
    /// `timeout`: the longest that one query may take, however long the check interval is. Above zero.
    pub timeout: Duration,
}

impl PrometheusSettings {
    /// One that is asked without any formality.
    pub fn new(url: PrometheusUrl) -> Self {
        Self {
            url,
            login: Login::None,
            authorities: Authorities::System,
            headers: Vec::new(),
            timeout: DEFAULT_QUERY_TIMEOUT,
        }
    }

    /// The same behind another address, such as a forwarded port: who asks there by the address itself does not use the
    /// login of the file.
    #[must_use]
    pub fn at(self, url: PrometheusUrl) -> Self {
        let login = if url.names_a_user() {
            Login::None
        } else {
            self.login
        };
        Self { url, login, ..self }
    }

    /// Whether somebody who listens on the way learns a secret: one is sent, and not by https.
    pub fn exposes_secrets(&self) -> bool {
        let sends_header = |header: &Header| matches!(header.text, HeaderText::Secret(_));
        let sends_any = self.login != Login::None
            || self.url.names_a_user()
            || self.headers.iter().any(sends_header);
        sends_any && !self.url.is_encrypted()
    }
}

/// As whom Prometheus is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// As nobody, or as whom its address names.
    None,
    /// By a token.
    Bearer(Secret),
    /// By name and password.
    Basic {
        /// Not empty, without `:` (RFC 7617).
        username: String,
        /// Where it is.
        password: Secret,
    },
}

/// Whose certificates are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authorities {
    /// Those that the system trusts.
    System,
    /// Those in this file, in PEM, and no other. It is read anew when it changes.
    File(PathBuf),
}

/// A header that is sent with each query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its name.
    pub name: HeaderName,
    /// What it says.
    pub text: HeaderText,
}

/// What a header says. Not shown, whatever it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderText {
    /// What the file itself says, marked as sensitive.
    Open(HeaderValue),
    /// What somebody else keeps.
    Secret(Secret),
}

/// What the body and the connection decide, not a file.
const OWN_HEADERS: [&str; 10] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Whatever these say is a secret.
const SECRET_HEADERS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

pub(super) fn header_name(text: &str) -> Result<HeaderName, PrometheusSettingError> {
    let name = text
        .parse::<HeaderName>()
        .map_err(|_| PrometheusSettingError::HeaderName)?;
    if OWN_HEADERS.contains(&name.as_str()) {
        return Err(PrometheusSettingError::OwnHeader);
    }
    Ok(name)
}

pub(super) fn open_header(
    name: &HeaderName,
    text: &str,
) -> Result<HeaderText, PrometheusSettingError> {
    if SECRET_HEADERS.contains(&name.as_str()) {
        return Err(PrometheusSettingError::SecretHeader);
    }
    let is_visible = !text.is_empty() && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let value = HeaderValue::from_str(text).ok().filter(|_| is_visible);
    let mut value = value.ok_or(PrometheusSettingError::HeaderValue)?;
    value.set_sensitive(true);
    Ok(HeaderText::Open(value))
}

pub(super) fn username(text: &str) -> Result<String, PrometheusSettingError> {
    if text.is_empty() || text.contains(|c: char| c == ':' || c.is_control()) {
        return Err(PrometheusSettingError::Username);
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str) -> PrometheusSettings {
        PrometheusSettings::new(url.parse().unwrap())
    }

    fn secret() -> Secret {
        Secret::File(PathBuf::from("/etc/token"))
    }

    #[test]
    fn secrets_over_http_are_exposed_and_over_https_are_not() {
        for (scheme, exposed) in [("http", true), ("HTTP", true), ("https", false)] {
            let plain = settings(&format!("{scheme}://p/"));
            assert!(!plain.exposes_secrets());
            let bearer = PrometheusSettings {
                login: Login::Bearer(secret()),
                ..plain.clone()
            };
            let header = PrometheusSettings {
                headers: vec![Header {
                    name: HeaderName::from_static("x-api-key"),
                    text: HeaderText::Secret(secret()),
                }],
                ..plain
            };
            let user = settings(&format!("{scheme}://me:hunter2@p/"));
            for settings in [bearer, header, user] {
                assert_eq!(settings.exposes_secrets(), exposed, "{settings:?}");
            }
        }
    }

    #[test]
    fn another_address_keeps_the_login_unless_it_names_a_user() {
        let bearer = PrometheusSettings {
            login: Login::Bearer(secret()),
            ..settings("https://p/")
        };
        let at = |url: &str| bearer.clone().at(url.parse().unwrap()).login;
        assert_eq!(at("http://localhost:9090"), bearer.login);
        assert_eq!(at("http://me:hunter2@localhost:9090"), Login::None);
    }

    #[test]
    fn headers_that_hold_secrets_or_belong_to_http_are_not_for_the_file() {
        let read = |name: &str, text: &str| {
            header_name(name).and_then(|name| open_header(&name, text).map(|_| ()))
        };
        for (name, text, expected) in [
            ("X-Scope-OrgID", "team-a|team b", Ok(())),
            (
                "Authorization",
                "Bearer x",
                Err(PrometheusSettingError::SecretHeader),
            ),
            ("cookie", "a=b", Err(PrometheusSettingError::SecretHeader)),
            (
                "Content-Type",
                "text/plain",
                Err(PrometheusSettingError::OwnHeader),
            ),
            ("Host", "p", Err(PrometheusSettingError::OwnHeader)),
            ("X Y", "a", Err(PrometheusSettingError::HeaderName)),
            ("", "a", Err(PrometheusSettingError::HeaderName)),
            ("X-A", "", Err(PrometheusSettingError::HeaderValue)),
            ("X-A", "a\nb", Err(PrometheusSettingError::HeaderValue)),
            ("X-A", "ä", Err(PrometheusSettingError::HeaderValue)),
        ] {
            assert_eq!(read(name, text), expected, "{name}: {text}");
        }
    }

    #[test]
    fn nothing_that_a_header_says_is_shown() {
        let text = open_header(&HeaderName::from_static("x-api-key"), "hunter2").unwrap();
        assert_eq!(format!("{text:?}"), "Open(Sensitive)");
    }
}
