//! Seeded randomness: the same seed gives the same cluster, to the last pod's name.

use std::ops::Range;
use std::time::Duration;

/// The letters of generated names, as in Kubernetes: no vowels, nothing that reads like another.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A splitmix64 generator.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

/// One step of splitmix64 as a hash.
pub(super) const fn scramble(state: u64) -> u64 {
    let mut mixed = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Random {
    pub(super) const fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    pub(super) const fn next(&mut self) -> u64 {
        let value = scramble(self.state);
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        value
    }

    /// A number below `bound`; 0 when `bound` is 0.
    pub(super) const fn below(&mut self, bound: u64) -> u64 {
        match self.next().checked_rem(bound) {
            Some(number) => number,
            None => 0,
        }
    }

    /// A duration within a range, in whole milliseconds, which is what tokio's clock tells apart.
    pub(super) fn duration(&mut self, range: &Range<Duration>) -> Duration {
        let span = range.end.saturating_sub(range.start).as_millis();
        let extra = self.below(u64::try_from(span).unwrap_or(u64::MAX));
        range.start + Duration::from_millis(extra)
    }

    /// A random end for a generated name.
    pub(super) fn suffix(&mut self, length: usize) -> String {
        (0..length).map(|_| letter(self.next())).collect()
    }

    /// A uid.
    pub(super) fn uid(&mut self) -> String {
        let (high, low) = (self.next(), self.next());
        format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            low >> 52,
            low & 0xffff_ffff_ffff
        )
    }
}

/// The letter that stands for a number in generated names.
pub(super) fn letter(number: u64) -> char {
    let index = usize::try_from(number % LETTERS.len() as u64).unwrap_or_default();
    LETTERS.get(index).copied().map_or('x', char::from)
}
