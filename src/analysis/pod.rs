//! The names of pods, as they may stand in a query.

use std::fmt;

/// The name of a pod: a DNS-1123 subdomain, as Kubernetes enforces it.
///
/// Its alphabet (`a-z`, `0-9`, `-`, `.`) is why a name can be put between the quotes of a `PromQL` string without
/// escaping; only `.` means something in a regular expression (see [`alternatives`]).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodName(String);

/// A text that no pod can be called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a pod's name: 1 to 253 of a-z, 0-9, '-' and '.', starting and ending with a letter or a digit"
)]
pub struct PodNameError(String);

impl PodName {
    /// Takes `name` if Kubernetes would.
    ///
    /// # Errors
    /// When `name` is not a DNS-1123 subdomain of at most 253 characters.
    pub fn new(name: &str) -> Result<Self, PodNameError> {
        let letter_or_digit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let allowed = |byte: u8| letter_or_digit(byte) || byte == b'-' || byte == b'.';
        let bytes = name.as_bytes();
        let ends_well = |byte: Option<&u8>| byte.is_some_and(|&byte| letter_or_digit(byte));
        if bytes.len() <= 253
            && ends_well(bytes.first())
            && ends_well(bytes.last())
            && bytes.iter().all(|&byte| allowed(byte))
        {
            Ok(Self(name.to_owned()))
        } else {
            Err(PodNameError(name.chars().take(300).collect()))
        }
    }

    /// The name as Kubernetes writes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a placeholder for the pods of a role stands for while there are none: no pod can be called that.
pub const NO_POD: &str = "-no-pod-";

/// Which of a rollout's pods a placeholder stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `<<canary>>`: those of the candidate.
    Canary,
    /// `<<primary>>`: those of the accepted version.
    Primary,
}

impl Role {
    /// The placeholder for the role's pods.
    #[must_use]
    pub const fn placeholder(self) -> &'static str {
        match self {
            Self::Canary => "<<canary>>",
            Self::Primary => "<<primary>>",
        }
    }
}

/// The live pods of a rollout at one moment (case K59).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pods {
    /// The candidate's. Each is judged.
    pub canary: Vec<PodName>,
    /// The accepted version's. None are left where the candidate has all replicas.
    pub primary: Vec<PodName>,
}

impl Pods {
    /// Those of a role.
    #[must_use]
    pub fn of(&self, role: Role) -> &[PodName] {
        match role {
            Role::Canary => &self.canary,
            Role::Primary => &self.primary,
        }
    }
}

/// A regular expression that matches just these names, for any kind of quotes: a name's dots mean dots. They are written
/// `[.]`, which needs no escape.
pub(super) fn alternatives<'a>(names: impl IntoIterator<Item = &'a PodName>) -> String {
    let names: Vec<String> = names
        .into_iter()
        .map(|name| name.as_str().replace('.', "[.]"))
        .collect();
    if names.is_empty() {
        NO_POD.to_owned()
    } else {
        names.join("|")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_kubernetes_gives_are_taken() {
        for good in ["a", "orders-worker-5d9f8c7b6-abcde", "web-0", "a.b-c.9"] {
            assert_eq!(PodName::new(good).unwrap().as_str(), good);
        }
        let long = "a".repeat(254);
        for bad in [
            "",
            "-a",
            "a-",
            ".a",
            "A",
            "a_b",
            "a\"} or vector(1) #",
            "a b",
            "ä",
            &long,
        ] {
            assert!(PodName::new(bad).is_err(), "{bad:?}");
        }
    }
}
