//! The quantities a person writes in the file: replica counts, shares of them, durations.
//!
//! Everything is exact integer arithmetic (design section 5, case K23: a float would turn 7% of 100 into 8).

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A number of replicas of one Deployment: what `spec.replicas` and the counts in its status hold.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Replicas(pub u32);

impl Replicas {
    /// No replicas at all.
    pub const ZERO: Self = Self(0);

    /// Exactly `count` replicas.
    pub const fn new(count: u32) -> Self {
        Self(count)
    }

    /// The count as a plain number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Whether there are none.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum, or `None` where it would not fit.
    pub const fn checked_add(self, more: Self) -> Option<Self> {
        match self.0.checked_add(more.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// The sum, or the largest count there is where it would not fit.
    pub const fn saturating_add(self, more: Self) -> Self {
        Self(self.0.saturating_add(more.0))
    }

    /// The difference, or `None` where `fewer` is more than there are.
    pub const fn checked_sub(self, fewer: Self) -> Option<Self> {
        match self.0.checked_sub(fewer.0) {
            Some(rest) => Some(Self(rest)),
            None => None,
        }
    }

    /// The difference, or zero where `fewer` is more than there are.
    pub const fn saturating_sub(self, fewer: Self) -> Self {
        Self(self.0.saturating_sub(fewer.0))
    }
}

impl fmt::Display for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<u32> for Replicas {
    fn from(count: u32) -> Self {
        Self(count)
    }
}

/// Kubernetes writes replica counts as signed numbers and refuses negative ones.
impl TryFrom<i32> for Replicas {
    type Error = std::num::TryFromIntError;

    fn try_from(count: i32) -> Result<Self, Self::Error> {
        u32::try_from(count).map(Self)
    }
}

/// Why a text is no [`Amount`]. Each message says what is expected instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AmountError {
    /// Neither a share nor a number.
    #[error("expected a share such as 10% or 2.5%, or a number of replicas such as 3")]
    Form,
    /// A share or a number of nothing.
    #[error("expected more than zero: at least 1 replica, or a share above 0%")]
    Zero,
    /// Below zero.
    #[error("expected a positive amount, such as 10% or 3")]
    Negative,
    /// A share of more than everything.
    #[error("expected a share of at most 100%")]
    AboveAll,
    /// A share with more digits than are kept.
    #[error("expected at most four digits after the point, such as 0.0625%")]
    TooFine,
    /// A number that no Deployment can have.
    #[error("expected a number of replicas below 2147483648")]
    TooLarge,
}

/// A share of a Deployment's replicas, above 0% and at most 100%, exact to the ten-thousandth of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share {
    millionths: NonZeroU32,
}

impl Share {
    const WHOLE: u32 = 1_000_000;
    const MILLIONTHS_PER_PERCENT: u32 = 10_000;
    const DECIMALS: usize = 4;

    /// A share of whole percents, 1 to 100.
    pub fn from_percent(percent: u32) -> Result<Self, AmountError> {
        percent
            .checked_mul(Self::MILLIONTHS_PER_PERCENT)
            .ok_or(AmountError::AboveAll)
            .and_then(Self::from_millionths)
    }

    fn from_millionths(millionths: u32) -> Result<Self, AmountError> {
        if millionths > Self::WHOLE {
            return Err(AmountError::AboveAll);
        }
        NonZeroU32::new(millionths)
            .map(|millionths| Self { millionths })
            .ok_or(AmountError::Zero)
    }

    /// This share of `total`, rounded up: 0 of 0, else at least 1 and at most `total`.
    pub fn of(self, total: Replicas) -> Replicas {
        let exact = u64::from(total.0) * u64::from(self.millionths.get());
        let rounded_up = exact.div_ceil(u64::from(Self::WHOLE));
        // A share is at most the whole, so the result fits; the fallback is that very bound.
        Replicas(u32::try_from(rounded_up).unwrap_or(total.0))
    }

    /// This share of `total`, rounded down: from 0, where it is less than one replica, to `total`.
    pub fn of_rounded_down(self, total: Replicas) -> Replicas {
        let exact = u64::from(total.0) * u64::from(self.millionths.get());
        let rounded_down = exact / u64::from(Self::WHOLE);
        Replicas(u32::try_from(rounded_down).unwrap_or(total.0))
    }
}

/// Reads `10%` or `2.5%`.
impl FromStr for Share {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with('-') {
            return Err(AmountError::Negative);
        }
        let percent = text.strip_suffix('%').ok_or(AmountError::Form)?;
        let (whole, decimals) = match percent.split_once('.') {
            Some((whole, decimals)) if is_digits(decimals) => (whole, decimals),
            Some(_) => return Err(AmountError::Form),
            None => (percent, ""),
        };
        if !is_decimal(whole) {
            return Err(AmountError::Form);
        }
        let decimals = decimals.trim_end_matches('0');
        if decimals.len() > Self::DECIMALS {
            return Err(AmountError::TooFine);
        }
        let whole: u32 = whole.parse().map_err(|_| AmountError::AboveAll)?;
        let fraction: u32 = format!("{decimals:0<width$}", width = Self::DECIMALS)
            .parse()
            .map_err(|_| AmountError::Form)?;
        whole
            .checked_mul(Self::MILLIONTHS_PER_PERCENT)
            .and_then(|millionths| millionths.checked_add(fraction))
            .ok_or(AmountError::AboveAll)
            .and_then(Self::from_millionths)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.millionths.get() / Self::MILLIONTHS_PER_PERCENT;
        let rest = self.millionths.get() % Self::MILLIONTHS_PER_PERCENT;
        if rest == 0 {
            return write!(f, "{whole}%");
        }
        let decimals = format!("{rest:0width$}", width = Self::DECIMALS);
        write!(f, "{whole}.{}%", decimals.trim_end_matches('0'))
    }
}

/// How many replicas a step or a breakpoint means: a share of all, or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Amount {
    /// A share of the wanted replicas, `10%`.
    Share(Share),
    /// A number of replicas, `3`.
    Number(NonZeroU32),
}

impl Amount {
    /// What this amounts to when `total` replicas are wanted: shares are rounded up, numbers stop at `total`.
    ///
    /// 0 of 0, else at least 1 and at most `total` (case K23).
    pub fn of(&self, total: Replicas) -> Replicas {
        match self {
            Self::Share(share) => share.of(total),
            Self::Number(number) => total.min(Replicas(number.get())),
        }
    }
}

/// Reads `10%`, `2.5%` or `3`.
impl FromStr for Amount {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.ends_with('%') {
            return text.parse().map(Self::Share);
        }
        if text.strip_prefix('-').is_some_and(is_digits) {
            return Err(AmountError::Negative);
        }
        if !is_decimal(text) {
            return Err(AmountError::Form);
        }
        let number: i32 = text.parse().map_err(|_| AmountError::TooLarge)?;
        NonZeroU32::new(number.unsigned_abs())
            .map(Self::Number)
            .ok_or(AmountError::Zero)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => share.fmt(f),
            Self::Number(number) => number.fmt(f),
        }
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Digits that read the same in every YAML version: `010` is eight in YAML 1.1.
pub(super) fn is_decimal(text: &str) -> bool {
    is_digits(text) && (text.len() == 1 || !text.starts_with('0'))
}

/// The longest duration the file may name: a year. Sums of a few of them never overflow.
pub const LONGEST_DURATION: Duration = Duration::from_secs(8760 * 3600);

/// Why a text is no duration. Each message says what is expected instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DurationError {
    /// Not numbers with units.
    #[error("expected a duration such as 90s, 10m, 1h30m or 500ms")]
    Form,
    /// A number without its unit.
    #[error("expected a unit after the number, such as 90s, 10m, 1h30m or 500ms")]
    NoUnit,
    /// Below zero.
    #[error("expected a duration that is not negative, such as 90s, 10m, 1h30m or 500ms")]
    Negative,
    /// Longer than [`LONGEST_DURATION`].
    #[error("expected a duration of at most 8760h")]
    TooLong,
}

const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads a duration as the file writes it: whole numbers with the units `h`, `m`, `s` and `ms`,
/// larger before smaller and each at most once, from `0s` to [`LONGEST_DURATION`].
///
/// # Errors
///
/// Bare numbers, negative ones, fractions, blanks and other units (`5 minutes`).
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    if text.starts_with('-') {
        return Err(DurationError::Negative);
    }
    if is_digits(text) {
        return Err(DurationError::NoUnit);
    }
    let mut rest = text;
    let mut smaller_units = &UNITS[..];
    let mut millis: u64 = 0;
    loop {
        let (number, after_number) = split_where(rest, |byte| !byte.is_ascii_digit());
        let (unit, after_unit) = split_where(after_number, |byte| byte.is_ascii_digit());
        if number.is_empty() {
            return Err(DurationError::Form);
        }
        let place = smaller_units
            .iter()
            .position(|(name, _)| *name == unit)
            .ok_or(DurationError::Form)?;
        let per_unit = smaller_units[place].1;
        smaller_units = &smaller_units[place + 1..];
        millis = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(per_unit))
            .and_then(|part| millis.checked_add(part))
            .ok_or(DurationError::TooLong)?;
        rest = after_unit;
        if rest.is_empty() {
            break;
        }
    }
    let duration = Duration::from_millis(millis);
    if duration > LONGEST_DURATION {
        return Err(DurationError::TooLong);
    }
    Ok(duration)
}

fn split_where(text: &str, ends: impl Fn(u8) -> bool) -> (&str, &str) {
    let at = text.bytes().position(ends).unwrap_or(text.len());
    // The text may hold anything a person typed: no cut inside a character.
    text.split_at_checked(at).unwrap_or((text, ""))
}

/// A duration as the file writes it, in the largest units that fit: `10m`, `1h30m`, `1m30s`, `500ms`, `0s`.
///
/// What is below a millisecond is left out.
pub fn display_duration(duration: Duration) -> impl fmt::Display {
    InUnits(duration)
}

struct InUnits(Duration);

impl fmt::Display for InUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_millis();
        if rest == 0 {
            return f.write_str("0s");
        }
        for (unit, millis) in UNITS {
            let count = rest / u128::from(millis);
            if count > 0 {
                write!(f, "{count}{unit}")?;
                rest %= u128::from(millis);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn amount(text: &str) -> Amount {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn every_whole_percentage_of_up_to_200_replicas_is_the_exact_fraction_rounded_up() {
        for total in 0..=200u32 {
            for percent in 1..=100u32 {
                let share = Share::from_percent(percent).unwrap();
                let got = share.of(Replicas::new(total)).get();
                assert_eq!(
                    got,
                    (total * percent).div_ceil(100),
                    "{percent}% of {total}"
                );
                assert_eq!(amount(&format!("{percent}%")), Amount::Share(share));
                // The exact fraction lies in (got - 1, got].
                assert!(got * 100 >= total * percent);
                assert!(got == 0 || (got - 1) * 100 < total * percent);
            }
        }
    }

    #[test]
    fn the_numbers_where_floats_went_wrong_come_out_right() {
        for (text, total, expected) in [
            ("7%", 100, 7),
            ("14%", 50, 7),
            ("28%", 25, 7),
            ("55%", 200, 110),
            ("10%", 1, 1),
            ("50%", 1, 1),
            ("33%", 3, 1),
            ("34%", 3, 2),
            ("2.5%", 40, 1),
            ("2.5%", 41, 2),
            ("0.0001%", 1_000_000, 1),
            ("0.0001%", 1_000_001, 2),
            ("100%", u32::MAX, u32::MAX),
            ("3", 10, 3),
            ("3", 2, 2),
            ("3", 0, 0),
            ("50%", 0, 0),
        ] {
            let got = amount(text).of(Replicas::new(total));
            assert_eq!(got, Replicas::new(expected), "{text} of {total}");
        }
    }

    #[test]
    fn amounts_that_make_no_sense_say_what_is_expected() {
        for (text, expected) in [
            ("0%", AmountError::Zero),
            ("0.0%", AmountError::Zero),
            ("0", AmountError::Zero),
            ("-1", AmountError::Negative),
            ("-10%", AmountError::Negative),
            ("101%", AmountError::AboveAll),
            ("100.0001%", AmountError::AboveAll),
            ("99999999999%", AmountError::AboveAll),
            ("0.00001%", AmountError::TooFine),
            ("2147483648", AmountError::TooLarge),
            ("", AmountError::Form),
            ("%", AmountError::Form),
            (".5%", AmountError::Form),
            ("5.%", AmountError::Form),
            ("10 %", AmountError::Form),
            ("2.5", AmountError::Form),
            ("1e1", AmountError::Form),
            ("+3", AmountError::Form),
            ("010", AmountError::Form),
            ("010%", AmountError::Form),
            ("１０%", AmountError::Form),
            ("ten", AmountError::Form),
        ] {
            assert_eq!(text.parse::<Amount>(), Err(expected), "{text:?}");
        }
    }

    #[test]
    fn durations_are_read_as_written() {
        for (text, millis) in [
            ("0s", 0),
            ("90s", 90_000),
            ("10m", 600_000),
            ("1h", 3_600_000),
            ("1h30m", 5_400_000),
            ("1h30m5s250ms", 5_405_250),
            ("500ms", 500),
            ("8760h", 31_536_000_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(millis)),
                "{text:?}"
            );
        }
    }

    #[test]
    fn durations_that_make_no_sense_say_what_is_expected() {
        for (text, expected) in [
            ("", DurationError::Form),
            ("5 minutes", DurationError::Form),
            ("5minutes", DurationError::Form),
            ("1.5h", DurationError::Form),
            ("30m1h", DurationError::Form),
            ("1m1m", DurationError::Form),
            ("1h30", DurationError::Form),
            ("s", DurationError::Form),
            ("1d", DurationError::Form),
            ("10é", DurationError::Form),
            ("é10", DurationError::Form),
            ("120", DurationError::NoUnit),
            ("-5s", DurationError::Negative),
            ("8760h1ms", DurationError::TooLong),
            ("99999999999999999999s", DurationError::TooLong),
            ("18446744073709551615h", DurationError::TooLong),
        ] {
            assert_eq!(parse_duration(text), Err(expected), "{text:?}");
        }
    }

    #[test]
    fn durations_are_shown_in_the_largest_units_that_fit() {
        for (millis, shown) in [
            (0, "0s"),
            (500, "500ms"),
            (90_000, "1m30s"),
            (600_000, "10m"),
            (5_400_000, "1h30m"),
            (3_600_001, "1h1ms"),
        ] {
            let duration = Duration::from_millis(millis);
            assert_eq!(display_duration(duration).to_string(), shown);
        }
        assert_eq!(
            display_duration(Duration::from_nanos(999_999)).to_string(),
            "0s"
        );
    }

    #[test]
    fn replica_counts_neither_wrap_nor_go_below_zero() {
        let (two, three) = (Replicas::new(2), Replicas::new(3));
        let most = Replicas::new(u32::MAX);
        assert_eq!(two.saturating_sub(three), Replicas::ZERO);
        assert_eq!(two.checked_sub(three), None);
        assert_eq!(three.checked_sub(two), Some(Replicas::new(1)));
        assert_eq!(most.checked_add(two), None);
        assert_eq!(most.saturating_add(two), most);
        assert!(Replicas::try_from(-1).is_err());
        assert_eq!(
            serde_json::to_string(&three).unwrap(),
            "3",
            "transparent in JSON"
        );
    }

    proptest! {
        #[test]
        fn a_share_is_read_back_as_it_is_shown(millionths in 1..=Share::WHOLE) {
            let share = Share::from_millionths(millionths).unwrap();
            prop_assert_eq!(share.to_string().parse(), Ok(share));
        }

        #[test]
        fn a_duration_is_read_back_as_it_is_shown(millis in 0..=31_536_000_000u64) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse_duration(&display_duration(duration).to_string()), Ok(duration));
        }

        #[test]
        fn no_text_makes_the_readers_panic(text in any::<String>(), near in "[-0-9.hms% ]{0,12}") {
            for text in [text, near] {
                let _ = parse_duration(&text);
                let _ = text.parse::<Amount>();
            }
        }
    }
}
