//! Where alerts go, and which of them.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::names;
use super::secret::Secret;

/// Why a text is no value of a channel. Each message says what is expected instead, and none repeats what may be a
/// secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChannelError {
    /// Not a name.
    #[error(
        "expected a name for the channel: at most 63 lower-case letters, digits and '-', beginning and ending with a \
         letter or digit"
    )]
    Name,
    /// No URL that can be posted to.
    #[error(
        "expected a URL that begins with http:// or https://, such as http://alerts.ops/volery"
    )]
    Url,
    /// A URL with user and password.
    #[error(
        "expected a URL without user and password: this file is no place for secrets, use url-from-env or url-from-file"
    )]
    Credentials,
    /// None of the words for what happens.
    #[error("expected one of {}", Occasion::WORDS.map(|(word, _)| word).join(", "))]
    Occasion,
}

/// The name of a channel: an RFC 1123 label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelName(String);

impl FromStr for ChannelName {
    type Err = ChannelError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match names::namespace(text) {
            Ok(name) => Ok(Self(name)),
            Err(_) => Err(ChannelError::Name),
        }
    }
}

impl fmt::Display for ChannelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Something that happens to a service and that people may want to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Occasion {
    /// `started`: a rollout opens, or a new template replaces a frozen canary.
    Started,
    /// `promoted`: the candidate is the accepted version.
    Promoted,
    /// `failed`: the candidate failed and is rolled back.
    Failed,
    /// `frozen`: the candidate failed and everything stands still.
    Frozen,
    /// `aborted`: a person ended the rollout.
    Aborted,
    /// `cancelled`: the accepted template is wanted again, or the service leaves the configuration.
    Cancelled,
    /// `superseded`: a newer template came.
    Superseded,
    /// `interrupted`: something the rollout needs was taken away; it starts again.
    Interrupted,
    /// `held`: a person has ordered that nothing moves.
    Held,
    /// `waiting`: for replicas, for its turn, or to be registered.
    Waiting,
    /// `blocked`: nothing moves until a person does something.
    Blocked,
}

impl Occasion {
    const WORDS: [(&'static str, Self); 11] = [
        ("started", Self::Started),
        ("promoted", Self::Promoted),
        ("failed", Self::Failed),
        ("frozen", Self::Frozen),
        ("aborted", Self::Aborted),
        ("cancelled", Self::Cancelled),
        ("superseded", Self::Superseded),
        ("interrupted", Self::Interrupted),
        ("held", Self::Held),
        ("waiting", Self::Waiting),
        ("blocked", Self::Blocked),
    ];

    /// What a channel is told of that does not say otherwise: where a person has to do something.
    pub fn by_default() -> BTreeSet<Self> {
        BTreeSet::from([Self::Failed, Self::Frozen, Self::Blocked])
    }

    /// As the file spells it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Promoted => "promoted",
            Self::Failed => "failed",
            Self::Frozen => "frozen",
            Self::Aborted => "aborted",
            Self::Cancelled => "cancelled",
            Self::Superseded => "superseded",
            Self::Interrupted => "interrupted",
            Self::Held => "held",
            Self::Waiting => "waiting",
            Self::Blocked => "blocked",
        }
    }
}

impl FromStr for Occasion {
    type Err = ChannelError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::WORDS
            .iter()
            .find_map(|(word, occasion)| (*word == text).then_some(*occasion))
            .ok_or(ChannelError::Occasion)
    }
}

/// Where a webhook is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `url`: in the file itself, without credentials.
    Open(reqwest::Url),
    /// `url-from-env` or `url-from-file`.
    Secret(Secret),
}

impl Address {
    pub(super) fn open(text: &str) -> Result<Self, ChannelError> {
        let url = post_url(text).ok_or(ChannelError::Url)?;
        if url.username().is_empty() && url.password().is_none() {
            Ok(Self::Open(url))
        } else {
            Err(ChannelError::Credentials)
        }
    }
}

/// A text as a URL that can be posted to.
pub(crate) fn post_url(text: &str) -> Option<reqwest::Url> {
    let url = reqwest::Url::parse(text).ok()?;
    let is_whole = !text.contains(|c: char| c.is_whitespace() || c.is_control());
    (is_whole && matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(url)
}

/// What a channel leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Medium {
    /// `slack`: an incoming webhook of Slack, or of what understands the same. Its URL is all it takes to post, so it is
    /// a secret.
    Slack {
        /// `url-from-env` or `url-from-file`.
        url: Secret,
    },
    /// `webhook`: anything that takes JSON by POST.
    Webhook {
        /// `url`, `url-from-env` or `url-from-file`.
        url: Address,
        /// `header-from-env` or `header-from-file`: a header to be sent along, such as `Authorization: Bearer TOKEN`.
        header: Option<Secret>,
    },
}

/// One entry of `notify`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// `name`: for services and for the log.
    pub name: ChannelName,
    /// `slack` or `webhook`.
    pub medium: Medium,
    /// `events`: what it is told of. Never empty.
    pub events: BTreeSet<Occasion>,
}

/// A service's `notify`: which channels are told of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Audience {
    /// Not in the file: all of them.
    #[default]
    Everyone,
    /// These, perhaps none.
    Only(BTreeSet<ChannelName>),
}

impl Audience {
    /// Whether this channel is told.
    pub fn includes(&self, channel: &ChannelName) -> bool {
        match self {
            Self::Everyone => true,
            Self::Only(names) => names.contains(channel),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_occasion_has_one_word() {
        for (word, occasion) in Occasion::WORDS {
            assert_eq!(occasion.word(), word);
            assert_eq!(word.parse(), Ok(occasion));
        }
        assert_eq!(
            "rolled-back".parse::<Occasion>(),
            Err(ChannelError::Occasion)
        );
    }

    #[test]
    fn addresses_in_the_file_hold_no_password() {
        for (text, expected) in [
            ("http://alerts.ops/volery", None),
            ("https://[::1]:8443/a?b=c", None),
            ("alerts.ops/volery", Some(ChannelError::Url)),
            ("ftp://alerts.ops/", Some(ChannelError::Url)),
            ("http://alerts ops/", Some(ChannelError::Url)),
            ("", Some(ChannelError::Url)),
            (
                "http://me:secret@alerts.ops/",
                Some(ChannelError::Credentials),
            ),
            ("http://me@alerts.ops/", Some(ChannelError::Credentials)),
        ] {
            assert_eq!(Address::open(text).err(), expected, "{text:?}");
        }
    }
}
