//! How long a server asks to be left alone.

use std::time::Duration;

use jiff::Timestamp;

/// Seconds or a date (RFC 9110, section 10.2.3), which needs to know what time it is; what is neither asks for nothing.
pub(crate) fn retry_after(text: &str, now: Option<Timestamp>) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let seconds = date(text)?.as_second().saturating_sub(now?.as_second());
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// A moment as HTTP writes it.
pub(crate) fn date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(text)
        .ok()
}
