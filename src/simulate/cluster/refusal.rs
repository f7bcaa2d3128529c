//! What the simulated API server answers when it refuses: the same codes, reasons and messages as the real one.

use serde_json::{Value, json};

use super::object::{Key, Kind};

/// A refused request, as a `Status` of the API server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code} {reason})")]
pub struct Refusal {
    /// HTTP status code
    pub code: u16,
    /// machine-readable reason, for example `Conflict`
    pub reason: &'static str,
    /// text for people
    pub message: String,
}

impl Refusal {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
        }
    }

    /// 404: no such object.
    #[must_use]
    pub fn not_found(kind: Kind, name: &str) -> Self {
        Self::new(
            404,
            "NotFound",
            format!("{} \"{name}\" not found", kind.resource()),
        )
    }

    /// 404: a path that the server does not serve.
    #[must_use]
    pub fn no_such_path() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
    }

    /// 403: the account has no right to it.
    #[must_use]
    pub fn forbidden(kind: Kind, name: &str) -> Self {
        Self::new(
            403,
            "Forbidden",
            format!(
                "{} \"{name}\" is forbidden: no rule allows it",
                kind.resource()
            ),
        )
    }

    /// 409: the name is taken.
    #[must_use]
    pub fn already_exists(kind: Kind, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{} \"{name}\" already exists", kind.resource()),
        )
    }

    /// 409: the write was based on another resourceVersion.
    #[must_use]
    pub fn modified(kind: Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 409 with the given cause, for example a failed precondition.
    #[must_use]
    pub fn conflict(kind: Kind, name: &str, cause: &str) -> Self {
        Self::new(
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {} \"{name}\": {cause}",
                kind.resource()
            ),
        )
    }

    /// 422: the object does not validate.
    #[must_use]
    pub fn invalid(kind: Kind, key: &Key, cause: &str) -> Self {
        let group = match kind.api_version().split_once('/') {
            Some((group, _)) => format!("{}.{group}", kind.name()),
            None => kind.name().to_owned(),
        };
        Self::new(
            422,
            "Invalid",
            format!("{group} \"{}\" is invalid: {cause}", key.name),
        )
    }

    /// 422: a JSON patch that cannot be applied, a failed `test` among them.
    ///
    /// The real server keeps the failed operation to itself, too.
    #[must_use]
    pub fn patch_failed() -> Self {
        Self::new(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
    }

    /// 400: a request that cannot be read.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 405: a verb that is not served here.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    /// 410: a watch from a resourceVersion that is no longer kept.
    #[must_use]
    pub fn expired(asked: u64, oldest: u64) -> Self {
        Self::new(
            410,
            "Expired",
            format!("too old resource version: {asked} ({oldest})"),
        )
    }

    /// 415: a patch type that is not served here.
    #[must_use]
    pub fn unsupported_media_type(media_type: &str) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!("the body of the request was in an unknown format - {media_type}"),
        )
    }

    /// 429: asked to come back later.
    #[must_use]
    pub fn too_many_requests() -> Self {
        Self::new(
            429,
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        )
    }

    /// 500: a fault of the server.
    #[must_use]
    pub fn internal_error() -> Self {
        Self::new(
            500,
            "InternalError",
            "Internal error occurred: etcdserver: leader changed",
        )
    }

    /// 504: no answer in time.
    #[must_use]
    pub fn timeout() -> Self {
        Self::new(
            504,
            "Timeout",
            "Timeout: request did not complete within the allotted timeout",
        )
    }

    /// Whether this says that the object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code == 404
    }

    /// Whether this is a conflict (and not a taken name).
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.reason == "Conflict"
    }

    /// The answer's body.
    pub(super) fn status(&self) -> Value {
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        })
    }
}
