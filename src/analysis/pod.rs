//! The names of pods, as they may stand in a query.

use std::fmt;

/// The name of a pod: a DNS-1123 subdomain, as Kubernetes enforces it.
///
/// Its alphabet (`a-z`, `0-9`, `-`, `.`) is why a name can be put between the quotes of a `PromQL` string without
/// escaping; only `.` means something in a regular expression.
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
