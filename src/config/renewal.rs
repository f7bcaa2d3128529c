//! What becomes of a configuration when its file is read anew: what is right applies, what is wrong stays as it was
//! (design section 4, promise 8; case K49).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::channels::{Audience, Channel, ChannelName};
use super::load::{Loaded, Setting};
use super::names::{CLONE_SUFFIXES, ServiceName};
use super::{Config, Service};

/// A configuration that takes the place of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// What applies from now on.
    pub config: Config,
    /// The entries that are not as the file has them.
    pub kept: BTreeMap<ServiceName, Kept>,
}

/// Why an entry is not as the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is wrong there, and says what it said before.
    Wrong,
    /// It is not there, but other things there are wrong, so that this may be a mistake too: it says what it said before.
    Missed,
    /// It is right there, but its Deployment, or a clone of it, is that of this other entry, which is wrong there: it has to
    /// wait.
    HeldBackBy(ServiceName),
}

impl Config {
    /// What becomes of this configuration now that its file reads so.
    #[must_use]
    pub fn renewed(&self, loaded: &Loaded) -> Renewal {
        let mut config = self.with_settings_of(loaded);
        let mut kept = BTreeMap::new();
        for (name, old) in &self.services {
            if config.services.contains_key(name) {
                continue;
            }
            let why = if loaded.refused.contains(name) {
                Kept::Wrong
            } else if loaded.is_valid() || config.services.values().any(|new| collide(old, new)) {
                // Left out on purpose, or found under another name.
                continue;
            } else {
                Kept::Missed
            };
            let in_the_way: Vec<ServiceName> = config
                .services
                .values()
                .filter(|new| !kept.contains_key(&new.name) && collide(old, new))
                .map(|new| new.name.clone())
                .collect();
            for new in in_the_way {
                config.services.remove(&new);
                kept.insert(new, Kept::HeldBackBy(name.clone()));
            }
            config.services.insert(name.clone(), old.clone());
            kept.insert(name.clone(), why);
        }
        self.keep_what_is_needed(&mut config, &kept);
        Renewal { config, kept }
    }

    /// An entry that says what it said before needs what it needed before, though nothing else in the file does any more:
    /// without it an open rollout would fail for a mistake in the file.
    fn keep_what_is_needed(&self, config: &mut Self, kept: &BTreeMap<ServiceName, Kept>) {
        let kept = kept.keys().filter_map(|name| config.services.get(name));
        let kept: Vec<&Service> = kept.collect();
        let asks = kept.iter().any(|service| !service.success.is_empty());
        let prometheus = config.prometheus.clone();
        let prometheus = prometheus.or_else(|| self.prometheus.clone().filter(|_| asks));
        let names = |channel: &ChannelName| {
            let named = |service: &&Service| match &service.notify {
                Audience::Everyone => false,
                Audience::Only(channels) => channels.contains(channel),
            };
            kept.iter().any(named)
        };
        let channels: Vec<(ChannelName, Channel)> = self
            .channels
            .iter()
            .filter(|(name, _)| !config.channels.contains_key(*name) && names(name))
            .map(|(name, channel)| (name.clone(), channel.clone()))
            .collect();
        config.prometheus = prometheus;
        config.channels.extend(channels);
    }

    fn with_settings_of(&self, loaded: &Loaded) -> Self {
        let mut config = loaded.config.clone();
        for setting in &loaded.wrong {
            match setting {
                Setting::Prometheus => config.prometheus.clone_from(&self.prometheus),
                Setting::Namespace => config.namespace.clone_from(&self.namespace),
                Setting::PollInterval => config.poll_interval = self.poll_interval,
                Setting::MaxConcurrentRollouts => {
                    config.max_concurrent_rollouts = self.max_concurrent_rollouts;
                }
                Setting::Notify => {
                    let right = std::mem::replace(&mut config.channels, self.channels.clone());
                    config.channels.extend(right);
                }
            }
        }
        config
    }
}

/// Whether two entries cannot both be looked after: one Deployment, or one that is the other's clone.
fn collide(one: &Service, other: &Service) -> bool {
    let is_clone = |clone: &Service, of: &Service| {
        let suffix = clone.deployment.strip_prefix(of.deployment.as_str());
        suffix.is_some_and(|suffix| CLONE_SUFFIXES.contains(&suffix))
    };
    one.namespace == other.namespace
        && (one.deployment == other.deployment || is_clone(one, other) || is_clone(other, one))
}
