//! What differs between two configurations, for people: each part as `step 10% -> 20%`.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt::Display;

use super::channels::Audience;
use super::prometheus::PrometheusSettings;
use super::prometheus_url::PrometheusUrl;
use super::units::display_duration;
use super::{Config, Expression, Service};

/// What an absent optional key is called.
const DEFAULT: &str = "default";

/// The differences that have been found so far.
#[derive(Default)]
struct Changes(Vec<String>);

impl Changes {
    /// `shown` need not tell everything: secrets are left out of it.
    fn note<T: PartialEq, S: Display>(
        &mut self,
        key: &str,
        old: &T,
        new: &T,
        shown: impl Fn(&T) -> S,
    ) {
        if old == new {
            return;
        }
        let (old, new) = (shown(old).to_string(), shown(new).to_string());
        self.0.push(if old == new {
            format!("{key} changed")
        } else {
            format!("{key} {old} -> {new}")
        });
    }

    fn value<T: PartialEq + Display>(&mut self, key: &str, old: &T, new: &T) {
        self.note(key, old, new, T::to_string);
    }

    fn optional<T: PartialEq + Display>(&mut self, key: &str, old: &Option<T>, new: &Option<T>) {
        self.note(key, old, new, |value| match value {
            Some(value) => value.to_string(),
            None => DEFAULT.to_owned(),
        });
    }

    fn duration(&mut self, key: &str, old: std::time::Duration, new: std::time::Duration) {
        self.note(key, &old, &new, |duration| display_duration(*duration));
    }

    fn set(&mut self, key: &str, old: &BTreeSet<String>, new: &BTreeSet<String>) {
        self.note(key, old, new, list);
    }

    /// Expressions are long, so they are told by their places in the file, counted from 1.
    fn expressions(&mut self, old: &[Expression], new: &[Expression]) {
        for (place, (old, new)) in (1..).zip(old.iter().zip(new)) {
            if old != new {
                self.0.push(format!("expression {place} changed"));
            }
        }
        let longer = old.len().max(new.len());
        let verb = if new.len() > old.len() {
            "added"
        } else {
            "removed"
        };
        for place in old.len().min(new.len())..longer {
            self.0
                .push(format!("expression {} {verb}", place.saturating_add(1)));
        }
    }
}

fn list<T: Display>(items: &BTreeSet<T>) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    format!("[{}]", items.join(", "))
}

impl Service {
    /// What another version of this entry says differently, each as `step 10% -> 20%`; empty where there is nothing.
    pub fn changes_to(&self, new: &Self) -> Vec<String> {
        let Self {
            name,
            namespace,
            deployment,
            breakpoint,
            step,
            abort,
            start_delay,
            max_step_duration,
            check_interval,
            check_max_failures,
            inconclusive_timeout,
            no_data_grace,
            success,
            on_failure,
            restore_original,
            canary_on,
            max_surge,
            max_unavailable,
            finish_step,
            known_good,
            max_restarts,
            ignore_containers,
            ignore_completed,
            copy_labels,
            notify,
        } = self;
        let mut changes = Changes::default();
        changes.value("name", name, &new.name);
        changes.value("namespace", namespace, &new.namespace);
        changes.value("deployment", deployment, &new.deployment);
        changes.value("breakpoint", breakpoint, &new.breakpoint);
        changes.value("step", step, &new.step);
        changes.duration("abort", *abort, new.abort);
        changes.duration("start_delay", *start_delay, new.start_delay);
        changes.duration(
            "max_step_duration",
            *max_step_duration,
            new.max_step_duration,
        );
        changes.duration(
            "check_success_step_duration",
            *check_interval,
            new.check_interval,
        );
        changes.value(
            "check_max_failures",
            check_max_failures,
            &new.check_max_failures,
        );
        changes.duration(
            "inconclusive_timeout",
            *inconclusive_timeout,
            new.inconclusive_timeout,
        );
        changes.duration("no_data_grace", *no_data_grace, new.no_data_grace);
        changes.expressions(success, &new.success);
        changes.value("on_failure", on_failure, &new.on_failure);
        changes.value("restore_original", restore_original, &new.restore_original);
        changes.value("canary_on", canary_on, &new.canary_on);
        changes.optional("max_surge", max_surge, &new.max_surge);
        changes.optional("max_unavailable", max_unavailable, &new.max_unavailable);
        changes.optional("finish_step", finish_step, &new.finish_step);
        changes.value("known_good", known_good, &new.known_good);
        changes.value("max_restarts", max_restarts, &new.max_restarts);
        changes.set(
            "ignore_containers",
            ignore_containers,
            &new.ignore_containers,
        );
        changes.value("ignore_completed", ignore_completed, &new.ignore_completed);
        changes.set("copy_labels", copy_labels, &new.copy_labels);
        changes.note("notify", notify, &new.notify, |audience| match audience {
            Audience::Everyone => "all channels".to_owned(),
            Audience::Only(channels) => list(channels),
        });
        changes.0
    }
}

fn address(settings: Option<&PrometheusSettings>) -> Option<&PrometheusUrl> {
    settings.map(|settings| &settings.url)
}

impl Config {
    /// What another version of the global settings says differently, each as `poll-interval 2s -> 5s`. Secrets are not in
    /// it. `namespace` and `defaults` are told with the services that they change.
    pub fn setting_changes_to(&self, new: &Self) -> Vec<String> {
        let Self {
            prometheus,
            namespace: _,
            poll_interval,
            max_concurrent_rollouts,
            channels,
            services: _,
        } = self;
        let mut changes = Changes::default();
        changes.note(
            "prometheus-base-url",
            &address(prometheus.as_ref()),
            &address(new.prometheus.as_ref()),
            |url| match url {
                Some(url) => url.to_string(),
                None => "none".to_owned(),
            },
        );
        if let (Some(old), Some(new)) = (prometheus, &new.prometheus)
            && *new != old.clone().at(new.url.clone())
        {
            changes.0.push("prometheus changed".to_owned());
        }
        changes.duration("poll-interval", *poll_interval, new.poll_interval);
        changes.value(
            "max-concurrent-rollouts",
            max_concurrent_rollouts,
            &new.max_concurrent_rollouts,
        );
        for name in channels.keys() {
            match new.channels.get(name) {
                None => changes.0.push(format!("channel {name} removed")),
                Some(channel) if *channel != channels[name] => {
                    changes.0.push(format!("channel {name} changed"));
                }
                Some(_) => {}
            }
        }
        let added = new
            .channels
            .keys()
            .filter(|name| !channels.contains_key(*name));
        changes
            .0
            .extend(added.map(|name| format!("channel {name} added")));
        changes.0
    }
}
