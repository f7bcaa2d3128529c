//! How far the pods of a service may stray from R, by what its file says; its steps are of 20%.

/// `max_surge`, `max_unavailable` and `finish_step` of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limits {
    /// Nothing is said: one step more, none fewer.
    #[default]
    OneStepMore,
    /// The cap: every existing pod counts, one step may be missing.
    Capped,
    /// The same with an `abort` that is shorter than pods take to end.
    CappedImpatient,
    /// The cap, and one pod at a time.
    CappedOneFewer,
    /// Two more and one fewer.
    TwoMoreOneFewer,
    /// One more at a time.
    OneMore,
    /// All the rest at once past the breakpoint.
    RestAtOnce,
}

impl Limits {
    /// Those among which chance chooses.
    pub const ALL: [Self; 6] = [
        Self::OneStepMore,
        Self::Capped,
        Self::CappedOneFewer,
        Self::TwoMoreOneFewer,
        Self::OneMore,
        Self::RestAtOnce,
    ];

    /// The lines of the file.
    pub fn lines(self) -> &'static str {
        match self {
            Self::OneStepMore => "",
            Self::Capped | Self::CappedImpatient => "  max_surge: 0\n",
            Self::CappedOneFewer => "  max_surge: 0\n  max_unavailable: 1\n",
            Self::TwoMoreOneFewer => "  max_surge: 2\n  max_unavailable: 1\n",
            Self::OneMore => "  max_surge: 1\n",
            Self::RestAtOnce => "  finish_step: 100%\n",
        }
    }

    /// `abort`.
    pub fn abort(self) -> &'static str {
        match self {
            Self::CappedImpatient => "20s",
            _ => "60s",
        }
    }

    /// Whether pods count that are terminating.
    pub fn counts_terminating(self) -> bool {
        matches!(
            self,
            Self::Capped | Self::CappedImpatient | Self::CappedOneFewer
        )
    }

    /// The most pods for R; past the breakpoint steps may be larger.
    pub fn most(self, wanted: i64, past_the_breakpoint: bool) -> i64 {
        let step = (wanted + 4) / 5;
        match self {
            Self::OneStepMore => wanted + step,
            Self::RestAtOnce if past_the_breakpoint => 2 * wanted,
            Self::RestAtOnce => wanted + step,
            Self::Capped | Self::CappedImpatient | Self::CappedOneFewer => wanted,
            Self::TwoMoreOneFewer => wanted + 2,
            Self::OneMore => wanted + 1,
        }
    }

    /// The fewest available pods for R.
    pub fn fewest(self, wanted: i64) -> i64 {
        match self {
            Self::OneStepMore | Self::OneMore | Self::RestAtOnce => wanted,
            Self::Capped | Self::CappedImpatient => wanted - (wanted + 4) / 5,
            Self::CappedOneFewer | Self::TwoMoreOneFewer => wanted - 1,
        }
    }
}
