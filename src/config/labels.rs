//! Label keys that may be copied from X to its clones (design section 6: a clone carries nothing by which another
//! tool would claim, prune or patch it).

use thiserror::Error;

use super::names;

/// The longest part of a label key behind its prefix, as the API server checks it.
const LONGEST_NAME: usize = 63;

/// Why a label cannot be copied. Each message says what is expected instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LabelError {
    /// Not a label key.
    #[error(
        "expected the key of a label, such as team or example.com/team: a domain and '/' if need be, then at most \
         63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
    )]
    Form,
    /// A label by which Volery tells its own objects.
    #[error("expected a label of your own: Volery marks the clones by this one itself")]
    OfVolery,
    /// A label by which another tool tells what is its own.
    #[error(
        "expected a label that no tool goes by: {0} would take the clones for its own by this one"
    )]
    Claims(&'static str),
}

/// What a label's key is compared with.
enum Pattern {
    Prefix(&'static str),
    Key(&'static str),
}

impl Pattern {
    fn matches(&self, prefix: &str, key: &str) -> bool {
        match self {
            Self::Prefix(domain) => prefix == *domain,
            Self::Key(claimed) => key == *claimed,
        }
    }
}

/// The labels by which tools find objects that they update, prune or delete.
const CLAIMS: [(Pattern, &str); 7] = [
    (Pattern::Key("app.kubernetes.io/managed-by"), "Helm"),
    (Pattern::Prefix("helm.sh"), "Helm"),
    (Pattern::Prefix("argocd.argoproj.io"), "Argo CD"),
    (Pattern::Prefix("kustomize.toolkit.fluxcd.io"), "Flux"),
    (Pattern::Prefix("helm.toolkit.fluxcd.io"), "Flux"),
    (
        Pattern::Prefix("applyset.kubernetes.io"),
        "kubectl apply --prune",
    ),
    (Pattern::Prefix("kapp.k14s.io"), "kapp"),
];

const OF_VOLERY: Pattern = Pattern::Prefix("volery.dev");

/// Reads the key of a label that clones may carry.
pub(super) fn copied_label(text: &str) -> Result<String, LabelError> {
    let (prefix, name) = text.split_once('/').unwrap_or(("", text));
    let has_prefix = name.len() < text.len();
    if !is_name(name) || (has_prefix && !names::is_subdomain(prefix)) {
        return Err(LabelError::Form);
    }
    if OF_VOLERY.matches(prefix, text) {
        return Err(LabelError::OfVolery);
    }
    match CLAIMS
        .iter()
        .find(|(pattern, _)| pattern.matches(prefix, text))
    {
        Some((_, tool)) => Err(LabelError::Claims(tool)),
        None => Ok(text.to_owned()),
    }
}

fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let outer = |end: Option<u8>| end.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.len() <= LONGEST_NAME
        && text.bytes().all(inner)
        && outer(text.bytes().next())
        && outer(text.bytes().next_back())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_the_api_server_takes_are_taken() {
        for key in [
            "team".to_owned(),
            "Team_1.a-b".to_owned(),
            "0".to_owned(),
            "example.com/team".to_owned(),
            "app.kubernetes.io/name".to_owned(),
            "volery.dev.example.com/team".to_owned(),
            "n".repeat(63),
            format!("{}/{}", "p".repeat(253), "n".repeat(63)),
        ] {
            assert_eq!(copied_label(&key), Ok(key.clone()), "{key}");
        }
    }

    #[test]
    fn keys_that_the_api_server_refuses_are_refused() {
        for key in [
            "",
            "/",
            "/team",
            "team/",
            "a/b/c",
            "-team",
            "team.",
            "a b",
            "té",
            "Example.com/team",
            "example..com/team",
            "team: a",
            &"n".repeat(64),
            &format!("{}/team", "p".repeat(254)),
        ] {
            assert_eq!(copied_label(key), Err(LabelError::Form), "{key:?}");
        }
    }

    #[test]
    fn keys_by_which_a_clone_would_be_claimed_are_refused_with_the_claimant() {
        for (key, expected) in [
            ("volery.dev/role", LabelError::OfVolery),
            ("app.kubernetes.io/managed-by", LabelError::Claims("Helm")),
            ("helm.sh/chart", LabelError::Claims("Helm")),
            ("argocd.argoproj.io/instance", LabelError::Claims("Argo CD")),
            (
                "kustomize.toolkit.fluxcd.io/name",
                LabelError::Claims("Flux"),
            ),
            ("helm.toolkit.fluxcd.io/name", LabelError::Claims("Flux")),
            (
                "applyset.kubernetes.io/part-of",
                LabelError::Claims("kubectl apply --prune"),
            ),
            ("kapp.k14s.io/app", LabelError::Claims("kapp")),
        ] {
            assert_eq!(copied_label(key), Err(expected), "{key}");
        }
    }
}
