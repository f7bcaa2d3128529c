//! What happens in a simulation, and when; written by people on the command line.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::config::{display_duration, parse_duration};

/// A simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Everything that is left to chance follows from it.
    pub seed: u64,
    /// R at the beginning.
    pub replicas: u32,
    /// How long a pod takes from its creation to being ready, a tenth more or less.
    pub pod_start: Duration,
    /// How long a pod takes to end.
    pub pod_stop: Duration,
    /// What happens.
    pub deeds: Vec<Deed>,
}

/// Something that happens once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    /// When.
    pub when: When,
    /// What.
    pub what: What,
}

/// A moment of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// So long after the new version was applied.
    After(Duration),
    /// When the rollout has reached this step (from 1).
    Step(u32),
}

/// A version of the simulated worker: the tag of its image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(String);

impl Version {
    /// What runs at the beginning.
    pub fn first() -> Self {
        Self("v1".to_owned())
    }

    /// What is applied at minute 0.
    pub fn second() -> Self {
        Self("v2".to_owned())
    }

    /// The image of this version of a worker.
    pub fn image(&self, worker: &str) -> String {
        format!("{worker}:{}", self.0)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Somebody applies a version.
    Apply(Version),
    /// Somebody scales X.
    Scale(u32),
    /// The daemon is killed, and started again after a while.
    Kill {
        /// How long it is away.
        away: Duration,
    },
    /// Somebody un-pauses X.
    Resume,
    /// The service is removed from the file.
    Remove,
    /// A version goes bad.
    Spoil(Version, Trouble),
    /// A version is good again.
    Heal(Version, Trouble),
    /// Prometheus goes away.
    PrometheusDown,
    /// Prometheus comes back.
    PrometheusUp,
}

/// What is wrong with a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Success expressions are false for its pods.
    Metrics(Which),
    /// Prometheus knows nothing of its pods.
    NoData,
    /// Its containers end with exit code 1 at once, and are started again after 40 s.
    Crash,
    /// Its pods run and never become ready.
    NeverReady,
    /// Its image cannot be pulled.
    ImagePull,
    /// No node has room for its pods.
    Unschedulable,
}

/// Which success expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All of them.
    All,
    /// One, by its place in the file, from 1.
    Only(usize),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metrics(Which::All) => f.write_str("its success expressions are false"),
            Self::Metrics(Which::Only(number)) => {
                write!(f, "its success expression {number} is false")
            }
            Self::NoData => f.write_str("Prometheus has no data of its pods"),
            Self::Crash => f.write_str("its containers crash"),
            Self::NeverReady => f.write_str("its pods do not become ready"),
            Self::ImagePull => f.write_str("its image cannot be pulled"),
            Self::Unschedulable => f.write_str("its pods fit on no node"),
        }
    }
}

/// A text that is no part of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?}: expected {expected}")]
pub struct ScenarioError {
    text: String,
    expected: &'static str,
}

fn not(text: &str, expected: &'static str) -> ScenarioError {
    ScenarioError {
        text: text.to_owned(),
        expected,
    }
}

impl FromStr for When {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<Self, ScenarioError> {
        let error = || {
            not(
                text,
                "a time since the new version was applied (12m, 1h30m) or a step (step3)",
            )
        };
        match text.strip_prefix("step") {
            Some(number) => match number.trim().parse() {
                Ok(number) if number > 0 => Ok(Self::Step(number)),
                Ok(_) | Err(_) => Err(error()),
            },
            None => parse_duration(text).map(Self::After).map_err(|_| error()),
        }
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After(time) => display_duration(*time).fmt(f),
            Self::Step(number) => write!(f, "step{number}"),
        }
    }
}

impl FromStr for Version {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<Self, ScenarioError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        let good = !text.is_empty()
            && text.len() <= 128
            && text.chars().all(allowed)
            && !text.starts_with(['.', '-']);
        if good {
            Ok(Self(text.to_owned()))
        } else {
            Err(not(text, "the tag of an image, such as v3"))
        }
    }
}

impl FromStr for What {
    type Err = ScenarioError;

    /// Reads `image v3`, `scale 14`, `kill`, `kill for 5m`, `resume` or `remove`.
    fn from_str(text: &str) -> Result<Self, ScenarioError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["image", version] => version.parse().map(Self::Apply),
            ["scale", number] => number
                .parse()
                .map(Self::Scale)
                .map_err(|_| not(text, "a number of replicas, such as scale 14")),
            ["kill"] => Ok(Self::Kill {
                away: Duration::from_secs(5),
            }),
            ["kill", "for", time] => parse_duration(time)
                .map(|away| Self::Kill { away })
                .map_err(|_| not(text, "a time for which it is away, such as kill for 5m")),
            ["resume"] => Ok(Self::Resume),
            ["remove"] => Ok(Self::Remove),
            _ => Err(not(
                text,
                "image VERSION, scale NUMBER, kill, kill for DURATION, resume or remove",
            )),
        }
    }
}

impl FromStr for Trouble {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<Self, ScenarioError> {
        const EXPECTED: &str = "metrics, metrics=NUMBER (the expression's place in the file), no-data, crash, \
                                never-ready, image-pull or unschedulable";
        match text {
            "metrics" => Ok(Self::Metrics(Which::All)),
            "no-data" => Ok(Self::NoData),
            "crash" => Ok(Self::Crash),
            "never-ready" => Ok(Self::NeverReady),
            "image-pull" => Ok(Self::ImagePull),
            "unschedulable" => Ok(Self::Unschedulable),
            _ => match text.strip_prefix("metrics=").map(str::parse) {
                Some(Ok(number)) if number > 0 => Ok(Self::Metrics(Which::Only(number))),
                Some(_) | None => Err(not(text, EXPECTED)),
            },
        }
    }
}

/// A version's trouble, as `[VERSION:]WHAT[@FROM[..TO]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    version: Version,
    trouble: Trouble,
    from: When,
    to: Option<When>,
}

impl FromStr for Bad {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<Self, ScenarioError> {
        let (rest, times) = match text.split_once('@') {
            Some((rest, times)) => (rest, Some(times)),
            None => (text, None),
        };
        let (version, trouble) = match rest.split_once(':') {
            Some((version, trouble)) => (version.parse()?, trouble),
            None => (Version::second(), rest),
        };
        let (from, to) = match times.map(|times| times.split_once("..").ok_or(times)) {
            None => (When::After(Duration::ZERO), None),
            Some(Err(from)) => (from.parse()?, None),
            Some(Ok((from, to))) => (from.parse()?, Some(to.parse()?)),
        };
        Ok(Self {
            version,
            trouble: trouble.parse()?,
            from,
            to,
        })
    }
}

impl Bad {
    /// What happens.
    pub fn deeds(self) -> impl Iterator<Item = Deed> {
        let spoil = Deed {
            when: self.from,
            what: What::Spoil(self.version.clone(), self.trouble),
        };
        let heal = self.to.map(|when| Deed {
            when,
            what: What::Heal(self.version, self.trouble),
        });
        std::iter::once(spoil).chain(heal)
    }
}

/// A time without Prometheus, as `FROM..TO` or `FROM`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    from: When,
    to: Option<When>,
}

impl FromStr for Outage {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<Self, ScenarioError> {
        let (from, to) = match text.split_once("..") {
            Some((from, "")) => (from, None),
            Some((from, to)) => (from, Some(to.parse()?)),
            None => (text, None),
        };
        Ok(Self {
            from: from.parse()?,
            to,
        })
    }
}

impl Outage {
    /// What happens.
    pub fn deeds(self) -> impl Iterator<Item = Deed> {
        let down = Deed {
            when: self.from,
            what: What::PrometheusDown,
        };
        let up = self.to.map(|when| Deed {
            when,
            what: What::PrometheusUp,
        });
        std::iter::once(down).chain(up)
    }
}

impl Scenario {
    /// A good version is applied at minute 0, and nothing else happens.
    pub fn good(replicas: u32) -> Self {
        Self {
            seed: 1,
            replicas,
            pod_start: Duration::from_secs(20),
            pod_stop: Duration::from_secs(5),
            deeds: vec![Deed {
                when: When::After(Duration::ZERO),
                what: What::Apply(Version::second()),
            }],
        }
    }

    pub(super) fn start_time(&self) -> Range<Duration> {
        let tenth = self.pod_start / 10;
        let milliseconds = |time: Duration| {
            Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
        };
        milliseconds(self.pod_start.saturating_sub(tenth))..milliseconds(self.pod_start + tenth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minutes(minutes: u64) -> When {
        When::After(Duration::from_secs(60 * minutes))
    }

    #[test]
    fn a_trouble_names_its_version_and_its_times_or_takes_the_usual_ones() {
        let v2 = Version::second();
        let all = Trouble::Metrics(Which::All);
        let bad = |version: &Version, trouble, from, to| Bad {
            version: version.clone(),
            trouble,
            from,
            to,
        };
        let cases = [
            ("metrics", bad(&v2, all, minutes(0), None)),
            (
                "metrics=2@step3",
                bad(&v2, Trouble::Metrics(Which::Only(2)), When::Step(3), None),
            ),
            (
                "v3:crash@10m",
                bad(&Version("v3".to_owned()), Trouble::Crash, minutes(10), None),
            ),
            (
                "no-data@4m..9m",
                bad(&v2, Trouble::NoData, minutes(4), Some(minutes(9))),
            ),
        ];
        for (text, meant) in cases {
            assert_eq!(text.parse(), Ok(meant), "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_with_what_is_expected() {
        let refused = [
            "crsh".parse::<Bad>().map(drop),
            "metrics=0".parse::<Bad>().map(drop),
            "crash@noon".parse::<Bad>().map(drop),
            "4m-9m".parse::<Outage>().map(drop),
            "step0".parse::<When>().map(drop),
            "scale many".parse::<What>().map(drop),
            "image v 3".parse::<What>().map(drop),
            "image a/b".parse::<What>().map(drop),
            "".parse::<What>().map(drop),
        ];
        for error in refused {
            assert!(error.unwrap_err().to_string().contains(": expected "));
        }
    }
}
