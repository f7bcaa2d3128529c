//! How far a rollout may stray from the wanted number of replicas: `max_surge` and `max_unavailable`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::units::{Amount, AmountError, Replicas, Share};

/// Why a text is no [`Bound`]. Each message says what is expected instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BoundError {
    /// Neither a share nor a number.
    #[error("expected a share such as 25%, a number of replicas such as 2, or 0")]
    Form,
    /// Below zero.
    #[error("expected an amount that is not negative, such as 25%, 2 or 0")]
    Negative,
    /// A share or a number that no [`Amount`] can be either.
    #[error(transparent)]
    Amount(AmountError),
}

/// A share of a Deployment's replicas, at most 100%, or a number of them. Unlike an [`Amount`] it may be zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// None at all, `0` or `0%`.
    Zero,
    /// More than none.
    AtMost(Amount),
}

impl Bound {
    /// What this amounts to when `wanted` replicas are wanted, as Kubernetes takes a `maxSurge`: shares are rounded
    /// up. A number stays itself, also where it is more than `wanted`.
    pub fn rounded_up(&self, wanted: Replicas) -> Replicas {
        self.of(wanted, Share::of)
    }

    /// What this amounts to when `wanted` replicas are wanted, as Kubernetes takes a `maxUnavailable`: shares are
    /// rounded down, to 0 where they are less than one replica. A number stays itself, also where it is more than
    /// `wanted`.
    pub fn rounded_down(&self, wanted: Replicas) -> Replicas {
        self.of(wanted, Share::of_rounded_down)
    }

    fn of(self, wanted: Replicas, share_of: impl Fn(Share, Replicas) -> Replicas) -> Replicas {
        match self {
            Self::Zero => Replicas::ZERO,
            Self::AtMost(Amount::Share(share)) => share_of(share, wanted),
            Self::AtMost(Amount::Number(number)) => Replicas(number.get()),
        }
    }
}

/// Reads `25%`, `2`, `0` or `0%`.
impl FromStr for Bound {
    type Err = BoundError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse::<Amount>() {
            Ok(amount) => Ok(Self::AtMost(amount)),
            Err(AmountError::Zero) => Ok(Self::Zero),
            Err(AmountError::Form) => Err(BoundError::Form),
            Err(AmountError::Negative) => Err(BoundError::Negative),
            Err(other @ (AmountError::AboveAll | AmountError::TooFine | AmountError::TooLarge)) => {
                Err(BoundError::Amount(other))
            }
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => f.write_str("0"),
            Self::AtMost(amount) => amount.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bound(text: &str) -> Bound {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn shares_are_rounded_as_kubernetes_rounds_surge_and_unavailable() {
        for (text, wanted, up, down) in [
            ("0", 10, 0, 0),
            ("0%", 10, 0, 0),
            ("0.0%", 10, 0, 0),
            ("25%", 10, 3, 2),
            ("25%", 3, 1, 0),
            ("25%", 0, 0, 0),
            ("7%", 100, 7, 7),
            ("100%", 7, 7, 7),
            ("2.5%", 40, 1, 1),
            ("2.5%", 79, 2, 1),
            ("100%", u32::MAX, u32::MAX, u32::MAX),
            ("2", 10, 2, 2),
            ("12", 10, 12, 12),
            ("2", 0, 2, 2),
        ] {
            let wanted = Replicas(wanted);
            assert_eq!(
                bound(text).rounded_up(wanted),
                Replicas(up),
                "{text} of {wanted}, up"
            );
            assert_eq!(
                bound(text).rounded_down(wanted),
                Replicas(down),
                "{text} of {wanted}, down"
            );
        }
    }

    #[test]
    fn bounds_that_make_no_sense_say_what_is_expected() {
        for (text, expected) in [
            ("", BoundError::Form),
            ("none", BoundError::Form),
            ("00", BoundError::Form),
            ("2.5", BoundError::Form),
            ("-1", BoundError::Negative),
            ("-25%", BoundError::Negative),
            ("101%", BoundError::Amount(AmountError::AboveAll)),
            ("0.00001%", BoundError::Amount(AmountError::TooFine)),
            ("2147483648", BoundError::Amount(AmountError::TooLarge)),
        ] {
            assert_eq!(text.parse::<Bound>(), Err(expected), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn both_roundings_enclose_the_exact_share(percent in 1..=100u32, wanted in 0..=200u32) {
            let share = bound(&format!("{percent}%"));
            let (up, down) = (share.rounded_up(Replicas(wanted)).0, share.rounded_down(Replicas(wanted)).0);
            prop_assert!(down * 100 <= wanted * percent && wanted * percent <= up * 100);
            prop_assert!(up - down <= 1);
        }

        #[test]
        fn a_bound_is_read_back_as_it_is_shown(number in 0..=i32::MAX, percent in 0..=100u32) {
            for text in [number.to_string(), format!("{percent}%")] {
                let bound = bound(&text);
                prop_assert_eq!(bound.to_string().parse(), Ok(bound));
            }
        }
    }
}
