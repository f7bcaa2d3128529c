//! `notify`: the channels, and which of them a service names.

use std::collections::{BTreeMap, BTreeSet};

use super::super::channels::{Address, Audience, Channel, ChannelName, Medium, Occasion};
use super::super::document::{Content, Node};
use super::super::problem::{Fault, Found, Position};
use super::super::reader::{Absent, Fields, Reader};
use super::{NOTIFY, found_url};

const CHANNEL_KEYS: &[&str] = &["name", "slack", "webhook", "events"];
const SLACK_KEYS: &[&str] = &[URL_FROM_ENV, URL_FROM_FILE];
const WEBHOOK_KEYS: &[&str] = &[
    URL,
    URL_FROM_ENV,
    URL_FROM_FILE,
    HEADER_FROM_ENV,
    HEADER_FROM_FILE,
];

const URL: &str = "url";
const URL_FROM_ENV: &str = "url-from-env";
const URL_FROM_FILE: &str = "url-from-file";
const HEADER_FROM_ENV: &str = "header-from-env";
const HEADER_FROM_FILE: &str = "header-from-file";

const CHANNELS: &str = "expected a list of channels, each with a name and either slack or webhook";
const A_CHANNEL: &str = "expected the keys of a channel: name, slack or webhook, events";
const A_CHANNEL_NAME: &str = "a name for the channel, such as on-call";
const A_MEDIUM: &str = "expected either slack or webhook in a channel, with its address";
const OCCASIONS: &str = "a list of events, such as [failed, frozen]";
const NAMES: &str = "a list of names of channels, such as [on-call], or [] for none";
const A_SLACK_URL: &str = "expected one of url-from-env and url-from-file: a URL of Slack is a secret, and this file is no place for it";
const A_WEBHOOK_URL: &str = "expected one of url, url-from-env and url-from-file";
const ONE_HEADER: &str = "expected at most one of header-from-env and header-from-file";

/// What can be said of `notify`.
pub(super) struct Notify {
    pub channels: BTreeMap<ChannelName, Channel>,
    /// What services may name; `None` where there is no telling.
    pub known: Option<BTreeSet<ChannelName>>,
}

impl Notify {
    /// Whether any channel is missing that the file means to have.
    pub fn is_wrong(&self) -> bool {
        self.known
            .as_ref()
            .is_none_or(|known| known.len() != self.channels.len())
    }
}

impl Reader<'_> {
    /// Reads the channels. One that is wrong is left out and known all the same: services that name it are not wrong.
    pub(super) fn notify(&mut self, globals: &Fields<'_>) -> Notify {
        let unknown = Notify {
            channels: BTreeMap::new(),
            known: None,
        };
        let Some(node) = globals.mapping.get(NOTIFY) else {
            let is_misspelt = globals.misspelt.contains(&NOTIFY);
            return Notify {
                known: (!is_misspelt).then(BTreeSet::new),
                ..unknown
            };
        };
        let path = globals.path_to(NOTIFY);
        let Content::List(items) = &node.content else {
            self.hidden(node, path, CHANNELS);
            return unknown;
        };
        let mut places: BTreeMap<ChannelName, Position> = BTreeMap::new();
        let mut channels = BTreeMap::new();
        let mut all_named = !globals.mapping.repeats(NOTIFY);
        for (index, item) in items.iter().enumerate() {
            let path = format!("{path}[{index}]");
            let (name, channel) = self.channel(path.clone(), item);
            let Some(name) = name else {
                all_named = false;
                continue;
            };
            if let Some(first) = places.get(&name) {
                let fault = Fault::Unexpected {
                    found: Found::Text(name.to_string()),
                    expected: format!(
                        "expected a name of its own, the channel on line {} has this one",
                        first.line
                    ),
                };
                self.problem(item.at, format!("{path}.name"), fault);
                continue;
            }
            places.insert(name.clone(), item.at);
            if let Some(channel) = channel {
                channels.insert(name, channel);
            }
        }
        Notify {
            channels,
            known: all_named.then(|| places.into_keys().collect()),
        }
    }

    fn channel(&mut self, path: String, item: &Node) -> (Option<ChannelName>, Option<Channel>) {
        let Content::Mapping(mapping) = &item.content else {
            self.hidden(item, path, A_CHANNEL);
            return (None, None);
        };
        let before = self.problems.len();
        let fields = self.fields(path, item.at, mapping, CHANNEL_KEYS, Absent::Builtin);
        let name = self.required(&fields, "name", A_CHANNEL_NAME, str::parse::<ChannelName>);
        let medium = self.medium(&fields);
        let events = self.take(
            &fields,
            "events",
            |reader, path, node| {
                let read = |reader: &mut Self, path, item: &Node| {
                    reader.value(path, item, str::parse::<Occasion>)
                };
                let events: BTreeSet<Occasion> = reader.list(path.clone(), node, OCCASIONS, read)?;
                if events.is_empty() {
                    reader.unexpected(node, path, &format!("expected {OCCASIONS}, at least one: for a service without alerts say notify: [] there"));
                    return None;
                }
                Some(events)
            },
            |_| Some(Occasion::by_default()),
        );
        let is_right = self.problems.len() == before;
        let channel = || {
            Some(Channel {
                name: name.clone()?,
                medium: medium?,
                events: events?,
            })
        };
        let channel = channel().filter(|_| is_right);
        (name, channel)
    }

    fn medium(&mut self, fields: &Fields<'_>) -> Option<Medium> {
        let told = ["slack", "webhook"].map(|key| fields.misspelt.contains(&key));
        match (fields.mapping.get("slack"), fields.mapping.get("webhook")) {
            (Some(slack), None) => self.slack(fields.path_to("slack"), slack),
            (None, Some(webhook)) => self.webhook(fields.path_to("webhook"), webhook),
            (Some(_), Some(webhook)) => {
                self.hidden(webhook, fields.path_to("webhook"), A_MEDIUM);
                None
            }
            (None, None) if told.contains(&true) => None,
            (None, None) => {
                let fault = Fault::Unexpected {
                    found: Found::Nothing,
                    expected: A_MEDIUM.to_owned(),
                };
                self.problem(fields.at, fields.path.clone(), fault);
                None
            }
        }
    }

    fn slack(&mut self, path: String, node: &Node) -> Option<Medium> {
        let Content::Mapping(mapping) = &node.content else {
            self.hidden(node, path, A_SLACK_URL);
            return None;
        };
        let fields = self.fields(path, node.at, mapping, SLACK_KEYS, Absent::Builtin);
        let [variable, file] = self.secrets(&fields, [URL_FROM_ENV, URL_FROM_FILE]);
        match self.at_most_one(&fields, SLACK_KEYS, A_SLACK_URL)? {
            Some(_) => Some(Medium::Slack {
                url: variable.or(file)?,
            }),
            None => {
                self.hidden(node, fields.path.clone(), A_SLACK_URL);
                None
            }
        }
    }

    fn webhook(&mut self, path: String, node: &Node) -> Option<Medium> {
        let Content::Mapping(mapping) = &node.content else {
            self.hidden(node, path, A_WEBHOOK_URL);
            return None;
        };
        let fields = self.fields(path, node.at, mapping, WEBHOOK_KEYS, Absent::Builtin);
        let open = mapping
            .get(URL)
            .and_then(|node| self.value_shown(fields.path_to(URL), node, found_url, Address::open));
        let [variable, file] = self.secrets(&fields, [URL_FROM_ENV, URL_FROM_FILE]);
        let secret = variable.or(file).map(Address::Secret);
        let [variable, file] = self.secrets(&fields, [HEADER_FROM_ENV, HEADER_FROM_FILE]);
        let header = variable.or(file);
        let keys = &[HEADER_FROM_ENV, HEADER_FROM_FILE];
        let has_header = self.at_most_one(&fields, keys, ONE_HEADER);
        let keys = &[URL, URL_FROM_ENV, URL_FROM_FILE];
        if self.at_most_one(&fields, keys, A_WEBHOOK_URL)?.is_none() {
            self.hidden(node, fields.path.clone(), A_WEBHOOK_URL);
            return None;
        }
        if has_header?.is_some() && header.is_none() {
            return None;
        }
        Some(Medium::Webhook {
            url: open.or(secret)?,
            header,
        })
    }

    /// Which channels are told of a service.
    pub(super) fn audience(
        &mut self,
        fields: &Fields<'_>,
        known: Option<&BTreeSet<ChannelName>>,
    ) -> Option<Audience> {
        let read = |text: &str| match text.parse::<ChannelName>() {
            Ok(name) if known.is_none_or(|known| known.contains(&name)) => Ok(name),
            Ok(_) | Err(_) => Err(match known {
                Some(known) if !known.is_empty() => {
                    let names: Vec<String> = known.iter().map(ToString::to_string).collect();
                    format!(
                        "expected the name of a channel, one of {}",
                        names.join(", ")
                    )
                }
                Some(_) | None => {
                    "expected the name of a channel under the global setting notify".to_owned()
                }
            }),
        };
        self.take(
            fields,
            NOTIFY,
            |reader, path, node| {
                let item = |reader: &mut Self, path, item: &Node| reader.value(path, item, read);
                reader.list(path, node, NAMES, item).map(Audience::Only)
            },
            |_| Some(Audience::Everyone),
        )
    }
}
