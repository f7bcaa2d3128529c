//! `prometheus`: how it is asked, beside where it is.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::document::{Content, Entry, Node};
use super::super::problem::{Fault, Found, Position};
use super::super::prometheus::{
    Authorities, DEFAULT_QUERY_TIMEOUT, Header, HeaderText, Login, PrometheusSettings, header_name,
    open_header, username,
};
use super::super::prometheus_url::PrometheusUrl;
use super::super::reader::{Absent, Fields, Reader, printable};
use super::super::secret::absolute_path;
use super::secret::hidden;
use super::{A_URL, Global, PROMETHEUS, PROMETHEUS_BASE_URL, duration_above_zero, found_url};

const TOKEN_FROM_ENV: &str = "bearer-token-from-env";
const TOKEN_FROM_FILE: &str = "bearer-token-from-file";
const USERNAME: &str = "username";
const PASSWORD_FROM_ENV: &str = "password-from-env";
const PASSWORD_FROM_FILE: &str = "password-from-file";
const CA_FILE: &str = "ca-file";
const HEADERS: &str = "headers";
const TIMEOUT: &str = "timeout";

const KEYS: &[&str] = &[
    TOKEN_FROM_ENV,
    TOKEN_FROM_FILE,
    USERNAME,
    PASSWORD_FROM_ENV,
    PASSWORD_FROM_FILE,
    CA_FILE,
    HEADERS,
    TIMEOUT,
];

const FROM_ENV: &str = "from-env";
const FROM_FILE: &str = "from-file";
const HEADER_KEYS: &[&str] = &[FROM_ENV, FROM_FILE];

const HOW_IT_IS_ASKED: &str = "expected keys that say how Prometheus is asked, such as bearer-token-from-file or ca-file; its address is \
     prometheus-base-url";
const THE_HEADERS: &str = "expected headers and what they say, such as X-Scope-OrgID: team-a";
const A_HEADER: &str = "expected the header's value, or one of from-env and from-file below it";
const ONE_LOGIN: &str = "expected one login: a bearer token from one place, or a username with its password from one place";
const THE_OTHER_HALF: &str =
    "expected a username together with one of password-from-env and password-from-file";
const ONE_USER: &str = "expected either this login or a user in prometheus-base-url";
const ONE_AUTHORIZATION: &str = "expected either this header or a login";
const EACH_ONCE: &str = "expected each header once, in whatever case";

/// What the mapping says.
struct Access {
    login: Login,
    authorities: Authorities,
    headers: Vec<Header>,
    timeout: Duration,
    /// Where something stands that a user in the address contradicts.
    login_at: Option<(String, Position)>,
}

impl Reader<'_> {
    /// Where Prometheus is and how it is asked. Asked in another way than was meant it would only refuse, so a mistake in
    /// the one is a mistake in both.
    pub(super) fn prometheus(&mut self, globals: &Fields<'_>) -> Global<PrometheusSettings> {
        let url = self.global(
            globals,
            PROMETHEUS_BASE_URL,
            found_url,
            str::parse::<PrometheusUrl>,
        );
        let node = match globals.mapping.get(PROMETHEUS) {
            None if !globals.misspelt.contains(&PROMETHEUS) => {
                return match url {
                    Global::Given(url) => Global::Given(PrometheusSettings::new(url)),
                    Global::Absent => Global::Absent,
                    Global::Wrong => Global::Wrong,
                };
            }
            None => return Global::Wrong,
            Some(node) => node,
        };
        let access = self.access(globals.path_to(PROMETHEUS), node);
        let access = access.filter(|_| !globals.mapping.repeats(PROMETHEUS));
        match (url, access) {
            (Global::Given(url), Some(access)) => self.settings(url, access),
            (Global::Absent, _) => {
                self.missing(globals, PROMETHEUS_BASE_URL, A_URL);
                Global::Wrong
            }
            (Global::Given(_) | Global::Wrong, _) => Global::Wrong,
        }
    }

    fn settings(&mut self, url: PrometheusUrl, access: Access) -> Global<PrometheusSettings> {
        if let Some((path, at)) = access.login_at.filter(|_| url.names_a_user()) {
            let fault = Fault::Unexpected {
                found: Found::Text("***".to_owned()),
                expected: ONE_USER.to_owned(),
            };
            self.problem(at, path, fault);
            return Global::Wrong;
        }
        Global::Given(PrometheusSettings {
            url,
            login: access.login,
            authorities: access.authorities,
            headers: access.headers,
            timeout: access.timeout,
        })
    }

    fn access(&mut self, path: String, node: &Node) -> Option<Access> {
        let Content::Mapping(mapping) = &node.content else {
            self.hidden(node, path, HOW_IT_IS_ASKED);
            return None;
        };
        let before = self.problems.len();
        let fields = self.fields(path, node.at, mapping, KEYS, Absent::Builtin);
        let login = self.login(&fields);
        let authorities = self.optional(&fields, CA_FILE, Authorities::System, |text| {
            absolute_path(text).map(Authorities::File)
        });
        let timeout = self.optional(&fields, TIMEOUT, DEFAULT_QUERY_TIMEOUT, duration_above_zero);
        let headers = self.headers(&fields);
        let access = Access {
            login: login?,
            authorities: authorities?,
            headers: headers?,
            timeout: timeout?,
            login_at: login_at(&fields),
        };
        (self.problems.len() == before).then_some(access)
    }

    fn login(&mut self, fields: &Fields<'_>) -> Option<Login> {
        let [variable, file] = self.secrets(fields, [TOKEN_FROM_ENV, TOKEN_FROM_FILE]);
        let token = variable.or(file);
        let [variable, file] = self.secrets(fields, [PASSWORD_FROM_ENV, PASSWORD_FROM_FILE]);
        let password = variable.or(file);
        let keys = [TOKEN_FROM_ENV, TOKEN_FROM_FILE, USERNAME];
        let first = self.at_most_one(fields, &keys, ONE_LOGIN)?;
        let keys = [
            TOKEN_FROM_ENV,
            TOKEN_FROM_FILE,
            PASSWORD_FROM_ENV,
            PASSWORD_FROM_FILE,
        ];
        let second = self.at_most_one(fields, &keys, ONE_LOGIN)?;
        match (first, second) {
            (None, None) => Some(Login::None),
            (Some(USERNAME), Some(_)) => {
                let node = fields.mapping.get(USERNAME)?;
                let username = self.value_shown(fields.path_to(USERNAME), node, hidden, username);
                Some(Login::Basic {
                    username: username?,
                    password: password?,
                })
            }
            (Some(key), None) | (None, Some(key)) => {
                if let Some(node) = fields.mapping.get(key) {
                    self.hidden(node, fields.path_to(key), THE_OTHER_HALF);
                }
                None
            }
            (Some(_), Some(_)) => Some(Login::Bearer(token?)),
        }
    }

    fn headers(&mut self, fields: &Fields<'_>) -> Option<Vec<Header>> {
        let Some(node) = fields.mapping.get(HEADERS) else {
            return Some(Vec::new());
        };
        let path = fields.path_to(HEADERS);
        let Content::Mapping(mapping) = &node.content else {
            self.hidden(node, path, THE_HEADERS);
            return None;
        };
        for repeated in &mapping.repeated {
            let first = repeated.first;
            let path = format!("{path}.{}", printable(&repeated.key));
            self.problem(repeated.at, path, Fault::Repeated { first });
        }
        let is_taken = login_at(fields).is_some();
        let mut headers = BTreeMap::new();
        for entry in &mapping.entries {
            let path = format!("{path}.{}", printable(&entry.key));
            let Some(header) = self.header(path.clone(), entry) else {
                continue;
            };
            if is_taken && header.name == http::header::AUTHORIZATION {
                self.hidden(&entry.value, path, ONE_AUTHORIZATION);
                continue;
            }
            let name = header.name.as_str().to_owned();
            if headers.insert(name, header).is_some() {
                self.hidden(&entry.value, path, EACH_ONCE);
            }
        }
        Some(headers.into_values().collect())
    }

    fn header(&mut self, path: String, entry: &Entry) -> Option<Header> {
        let name = match header_name(&entry.key) {
            Ok(name) => name,
            Err(error) => {
                let fault = Fault::Unexpected {
                    found: Found::Text(entry.key.clone()),
                    expected: error.to_string(),
                };
                self.problem(entry.at, path, fault);
                return None;
            }
        };
        let text = match &entry.value.content {
            Content::Text(_) => {
                self.value_shown(path, &entry.value, hidden, |text| open_header(&name, text))
            }
            Content::Mapping(mapping) => {
                let at = entry.value.at;
                let fields = self.fields(path, at, mapping, HEADER_KEYS, Absent::Builtin);
                let [variable, file] = self.secrets(&fields, [FROM_ENV, FROM_FILE]);
                if self.at_most_one(&fields, HEADER_KEYS, A_HEADER)?.is_none() {
                    self.hidden(&entry.value, fields.path.clone(), A_HEADER);
                    return None;
                }
                variable.or(file).map(HeaderText::Secret)
            }
            Content::Nothing | Content::List(_) | Content::Faulty => {
                self.hidden(&entry.value, path, A_HEADER);
                None
            }
        };
        Some(Header { name, text: text? })
    }
}

/// Where a login stands, if any does.
fn login_at(fields: &Fields<'_>) -> Option<(String, Position)> {
    [TOKEN_FROM_ENV, TOKEN_FROM_FILE, USERNAME]
        .into_iter()
        .find_map(|key| {
            let node = fields.mapping.get(key)?;
            Some((fields.path_to(key), node.at))
        })
}
