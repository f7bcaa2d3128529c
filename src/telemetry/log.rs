//! The log: one line per thing that a person cares about, `TIME LEVEL service: what happened`.
//!
//! The same lines on a terminal, in a file, as JSON, and from `volery simulate`: only the clock differs.

use std::fmt;
use std::io::IsTerminal as _;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use thiserror::Error;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// How lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people; with colours on a terminal, unless NO_COLOR is set.
    #[default]
    Text,
    /// For machines: one JSON object per line, with `timestamp`, `level`, `service` and `message`.
    Json,
}

/// Where the time of a line comes from.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Why there is no log.
#[derive(Debug, Error)]
pub enum LogError {
    /// The level is neither one nor a filter.
    #[error(
        "{filter:?} is no log level; expected error, warn, info, debug, trace, or a filter such as info,volery=debug"
    )]
    Filter {
        /// As given.
        filter: String,
        /// What is wrong with it.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// This process has a log already.
    #[error("the log is set up already")]
    Again,
}

/// Writes the log to stdout from now on.
///
/// # Errors
///
/// See [`LogError`].
pub fn install(format: Format, filter: &str, clock: Clock) -> Result<(), LogError> {
    let filter = EnvFilter::try_new(filter).map_err(|source| LogError::Filter {
        filter: filter.to_owned(),
        source,
    })?;
    tracing_subscriber::fmt()
        .with_ansi(format == Format::Text && colours())
        .event_format(Lines { format, clock })
        .with_env_filter(filter)
        .try_init()
        .map_err(|_| LogError::Again)
}

/// The time of day.
pub fn wall_clock() -> Clock {
    Arc::new(Timestamp::now)
}

/// Whether stdout is a terminal that wants colours (<https://no-color.org>).
pub fn colours() -> bool {
    std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

struct Lines {
    format: Format,
    clock: Clock,
}

/// The field of an event that names the service it is about.
const SERVICE: &str = "service";

/// The field of an event that `tracing` keeps the text in.
const MESSAGE: &str = "message";

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let time = format!("{:.3}", (self.clock)());
        let meta = event.metadata();
        match self.format {
            Format::Text => fields.write_text(writer, &time, *meta.level()),
            Format::Json => fields.write_json(writer, &time, *meta.level(), meta.target()),
        }
    }
}

/// What an event holds.
#[derive(Default)]
struct Fields {
    service: String,
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    fn take(&mut self, field: &Field, value: Value) {
        let text = |value: Value| {
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        };
        match field.name() {
            SERVICE => self.service = text(value),
            MESSAGE => self.message = text(value),
            // What a log record of the `log` crate says of its origin.
            name if name.starts_with("log.") => {}
            name => self.others.push((name, value)),
        }
    }

    /// A text of several lines becomes as many lines of the log, so that each can be found by the service's name.
    fn write_text(&self, mut writer: Writer<'_>, time: &str, level: Level) -> fmt::Result {
        let paint = Paint(writer.has_ansi_escapes());
        for (number, line) in self.message.lines().enumerate() {
            write!(
                writer,
                "{} {} ",
                paint.dim(time),
                paint.level(level, &format!("{level:>5}"))
            )?;
            if !self.service.is_empty() {
                write!(writer, "{}: ", paint.bold(&self.service))?;
            }
            if level == Level::WARN || level == Level::ERROR {
                write!(writer, "{}", paint.level(level, line))?;
            } else {
                writer.write_str(line)?;
            }
            if number == 0 {
                for (name, value) in &self.others {
                    write!(writer, " {name}={value}")?;
                }
            }
            writer.write_char('\n')?;
        }
        Ok(())
    }

    fn write_json(
        self,
        mut writer: Writer<'_>,
        time: &str,
        level: Level,
        target: &str,
    ) -> fmt::Result {
        let mut line = Map::new();
        line.insert("timestamp".to_owned(), json!(time));
        line.insert("level".to_owned(), json!(level.as_str()));
        line.insert("target".to_owned(), json!(target));
        if !self.service.is_empty() {
            line.insert(SERVICE.to_owned(), json!(self.service));
        }
        line.insert(MESSAGE.to_owned(), json!(self.message));
        for (name, value) in self.others {
            line.insert(name.to_owned(), value);
        }
        writeln!(writer, "{}", Value::Object(line))
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.take(field, json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, json!(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.take(field, json!(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field, json!(format!("{value:?}")));
    }
}

/// Colours, where they are wanted.
#[derive(Clone, Copy)]
pub struct Paint(
    /// Whether they are.
    pub bool,
);

impl Paint {
    fn escape(self, code: &str, text: &str) -> String {
        if self.0 {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// Of less interest.
    pub fn dim(self, text: &str) -> String {
        self.escape("2", text)
    }

    /// Of more interest.
    pub fn bold(self, text: &str) -> String {
        self.escape("1", text)
    }

    fn level(self, level: Level, text: &str) -> String {
        let code = match level {
            Level::ERROR => "31",
            Level::WARN => "33",
            Level::INFO => "32",
            _ => "2",
        };
        self.escape(code, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(format: Format, event: impl FnOnce()) -> String {
        let written = Arc::new(std::sync::Mutex::new(Vec::new()));
        let sink = Arc::clone(&written);
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .event_format(Lines {
                format,
                clock: Arc::new(|| Timestamp::UNIX_EPOCH),
            })
            .with_writer(move || Sink(Arc::clone(&sink)))
            .finish();
        tracing::subscriber::with_default(subscriber, event);
        let bytes = written.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    struct Sink(Arc<std::sync::Mutex<Vec<u8>>>);

    impl std::io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_line_of_a_text_starts_with_time_level_and_service() {
        let text = said(Format::Text, || {
            tracing::warn!(service = "orders", "rollout 1: new template\n- a\n+ b");
            tracing::info!(count = 3, "watching");
        });
        assert_eq!(
            text,
            "1970-01-01T00:00:00.000Z  WARN orders: rollout 1: new template\n\
             1970-01-01T00:00:00.000Z  WARN orders: - a\n\
             1970-01-01T00:00:00.000Z  WARN orders: + b\n\
             1970-01-01T00:00:00.000Z  INFO watching count=3\n"
        );
    }

    #[test]
    fn json_is_one_object_per_event_with_the_service_as_a_field() {
        let text = said(Format::Json, || {
            tracing::warn!(service = "orders", "said \"no\"\ntwice");
        });
        assert_eq!(text.lines().count(), 1);
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            line,
            json!({
                "timestamp": "1970-01-01T00:00:00.000Z", "level": "WARN", "target": "volery::telemetry::log::tests",
                "service": "orders", "message": "said \"no\"\ntwice",
            })
        );
    }

    #[test]
    fn a_filter_that_is_none_is_refused_with_what_is_expected() {
        let refused = install(Format::Text, "volery=loud", wall_clock());
        let Err(error) = refused else { panic!("taken") };
        assert!(error.to_string().contains("info,volery=debug"), "{error}");
    }
}
