//! The keys that choose one of two ways.
//!
//! Each choice is a type of its own, so that no `true` travels through the code without its meaning.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Why a text is none of the words that a key takes. Each message says what is expected instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChoiceError {
    /// None of the key's own words.
    #[error("expected {} or {}", .0[0], .0[1])]
    Word([&'static str; 2]),
    /// None of the key's own three words.
    #[error("expected {}, {} or {}", .0[0], .0[1], .0[2])]
    OneOfThree([&'static str; 3]),
    /// Neither `true` nor `false`.
    #[error("expected true or false")]
    Truth,
    /// What YAML 1.1 took for true.
    #[error("expected true; YAML 1.1's other words for it, such as yes and on, are not taken")]
    OldTrue,
    /// What YAML 1.1 took for false.
    #[error("expected false; YAML 1.1's other words for it, such as no and off, are not taken")]
    OldFalse,
}

/// `on_failure`: what happens to a rollout whose candidate is bad (design section 2, step 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnFailure {
    /// `rollback`: back to the accepted version at once.
    #[default]
    RollBack,
    /// `freeze`: nothing moves, and the next version replaces the frozen canary in place.
    Freeze,
}

impl OnFailure {
    const WORDS: [&'static str; 2] = ["rollback", "freeze"];
}

impl FromStr for OnFailure {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        word(text, Self::WORDS, [Self::RollBack, Self::Freeze])
    }
}

impl fmt::Display for OnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RollBack => Self::WORDS[0],
            Self::Freeze => Self::WORDS[1],
        })
    }
}

/// `restore_original`: what becomes of X's template when its rollout has been rolled back (design promise 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AfterRollback {
    /// `false`: it stays as the user wrote it.
    #[default]
    KeepTemplate,
    /// `true`: it is set back to the accepted one, as Aviary does.
    RestoreTemplate,
}

impl FromStr for AfterRollback {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        truth(text, Self::RestoreTemplate, Self::KeepTemplate)
    }
}

impl fmt::Display for AfterRollback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KeepTemplate => "false",
            Self::RestoreTemplate => "true",
        })
    }
}

/// `canary_on`: which differences in X's template are tried as a canary (design section 2, step 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CanaryOn {
    /// `template`: every one.
    #[default]
    Template,
    /// `containers`: those in containers and init containers, as in Aviary; any other is taken as a bypass.
    Containers,
}

impl CanaryOn {
    const WORDS: [&'static str; 2] = ["template", "containers"];
}

impl FromStr for CanaryOn {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        word(text, Self::WORDS, [Self::Template, Self::Containers])
    }
}

impl fmt::Display for CanaryOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Template => Self::WORDS[0],
            Self::Containers => Self::WORDS[1],
        })
    }
}

/// `known_good`: how a candidate is tried that equals a formerly accepted template (design section 2, undo).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KnownGood {
    /// `checks`: like any other.
    #[default]
    Checks,
    /// `bypass`: without checks, in the same steps.
    Bypass,
}

impl KnownGood {
    const WORDS: [&'static str; 2] = ["checks", "bypass"];
}

impl FromStr for KnownGood {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        word(text, Self::WORDS, [Self::Checks, Self::Bypass])
    }
}

impl fmt::Display for KnownGood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Checks => Self::WORDS[0],
            Self::Bypass => Self::WORDS[1],
        })
    }
}

/// `ignore_completed`: whether a container's restart counts when it had ended with exit code 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CompletedContainers {
    /// `false`: like any other restart.
    #[default]
    Count,
    /// `true`: it is by design, and says nothing about the version.
    Ignore,
}

impl FromStr for CompletedContainers {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        truth(text, Self::Ignore, Self::Count)
    }
}

impl fmt::Display for CompletedContainers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Count => "false",
            Self::Ignore => "true",
        })
    }
}

/// `on_no_data` of an expression: what it means that a pod has had no series for longer than `no_data_grace` (case K16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnNoData {
    /// `fail`: the check has failed, as in Aviary.
    #[default]
    Fail,
    /// `wait`: nothing is known, so that the step cannot end on it.
    Wait,
    /// `pass`: nothing is wrong.
    Pass,
}

impl OnNoData {
    const WORDS: [&'static str; 3] = ["fail", "wait", "pass"];
}

impl FromStr for OnNoData {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Fail, Self::Wait, Self::Pass]
            .into_iter()
            .find(|choice| choice.to_string() == text)
            .ok_or(ChoiceError::OneOfThree(Self::WORDS))
    }
}

impl fmt::Display for OnNoData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fail => Self::WORDS[0],
            Self::Wait => Self::WORDS[1],
            Self::Pass => Self::WORDS[2],
        })
    }
}

fn word<T>(
    text: &str,
    words: [&'static str; 2],
    [first, second]: [T; 2],
) -> Result<T, ChoiceError> {
    if text == words[0] {
        Ok(first)
    } else if text == words[1] {
        Ok(second)
    } else {
        Err(ChoiceError::Word(words))
    }
}

/// Exactly what YAML 1.2's core schema and every tool agree on, in the one spelling that Kubernetes manifests use.
fn truth<T>(text: &str, yes: T, no: T) -> Result<T, ChoiceError> {
    match text {
        "true" => Ok(yes),
        "false" => Ok(no),
        _ => Err(match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "y" | "on" => ChoiceError::OldTrue,
            "false" | "no" | "n" | "off" => ChoiceError::OldFalse,
            _ => ChoiceError::Truth,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_read_back<T, const N: usize>(choices: [T; N])
    where
        T: FromStr<Err = ChoiceError> + fmt::Display + fmt::Debug + PartialEq,
    {
        for choice in choices {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
    }

    #[test]
    fn a_choice_is_read_back_as_it_is_shown() {
        is_read_back([OnFailure::RollBack, OnFailure::Freeze]);
        is_read_back([AfterRollback::KeepTemplate, AfterRollback::RestoreTemplate]);
        is_read_back([CanaryOn::Template, CanaryOn::Containers]);
        is_read_back([OnNoData::Fail, OnNoData::Wait, OnNoData::Pass]);
        is_read_back([KnownGood::Checks, KnownGood::Bypass]);
        is_read_back([CompletedContainers::Count, CompletedContainers::Ignore]);
    }

    #[test]
    fn only_true_and_false_are_truths_and_older_spellings_are_told_which_they_were() {
        for (text, expected) in [
            ("true", Ok(CompletedContainers::Ignore)),
            ("false", Ok(CompletedContainers::Count)),
            ("yes", Err(ChoiceError::OldTrue)),
            ("On", Err(ChoiceError::OldTrue)),
            ("True", Err(ChoiceError::OldTrue)),
            ("n", Err(ChoiceError::OldFalse)),
            ("OFF", Err(ChoiceError::OldFalse)),
            ("1", Err(ChoiceError::Truth)),
            ("", Err(ChoiceError::Truth)),
            ("true ", Err(ChoiceError::Truth)),
        ] {
            assert_eq!(text.parse::<CompletedContainers>(), expected, "{text:?}");
        }
    }

    #[test]
    fn words_are_taken_as_they_are_written_here_alone() {
        for text in ["", "Freeze", "roll-back", "rollback ", "true"] {
            assert_eq!(
                text.parse::<OnFailure>(),
                Err(ChoiceError::Word(["rollback", "freeze"])),
                "{text:?}"
            );
            assert_eq!(
                text.parse::<OnNoData>(),
                Err(ChoiceError::OneOfThree(["fail", "wait", "pass"])),
                "{text:?}"
            );
        }
    }
}
