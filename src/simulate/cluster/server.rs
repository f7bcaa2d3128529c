//! The API server behind `kube::Client`'s transport: paths, verbs and bodies, without a socket.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{self, Future};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use futures::stream::BoxStream;
use http::header::CONTENT_TYPE;
use http::{Method, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::fault::Fault;
use super::journal::{Request, Verb};
use super::object::{Key, Kind, Object, text_of};
use super::patch::Patch;
use super::refusal::Refusal;
use super::selector::Selector;
use super::shared::{Outcome, Shared, Write};
use super::store::{Deleted, Deletion, Part, Propagation, Sort, scale_of};
use super::watching::{self, Asked};
use super::{ClientOptions, defaults};

/// The connection broke: what a client sees instead of an answer.
#[derive(Debug, thiserror::Error)]
#[error("connection reset by peer")]
pub(super) struct Broken;

/// How long a client lives.
pub(super) struct Life {
    /// Writes left; the last one is carried out and not answered.
    writes_left: AtomicU64,
    ended: AtomicBool,
    bell: Notify,
}

impl Life {
    pub(super) fn of(writes: Option<u64>) -> Self {
        Self {
            writes_left: AtomicU64::new(writes.unwrap_or(u64::MAX)),
            ended: AtomicBool::new(writes == Some(0)),
            bell: Notify::new(),
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.bell.notify_waiters();
    }

    /// Ends when the life does, if that is after this call.
    pub(super) fn ended(&self) -> Notified<'_> {
        self.bell.notified()
    }

    /// Notes a write that was carried out.
    fn note_write(&self) {
        let left = self.writes_left.load(Ordering::Relaxed);
        if left != u64::MAX {
            self.writes_left
                .store(left.saturating_sub(1), Ordering::Relaxed);
            if left <= 1 {
                self.end();
            }
        }
    }
}

/// One client's way to the server.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) shared: Arc<Shared>,
    pub(super) options: Arc<ClientOptions>,
    pub(super) life: Arc<Life>,
}

impl tower_service::Service<http::Request<Body>> for Service {
    type Response = Response<Answer>;
    type Error = Broken;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.clone().answer(request))
    }
}

/// A response's body.
pub(super) enum Answer {
    Whole(Option<Bytes>),
    Parts(BoxStream<'static, Bytes>),
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        let next = match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take()),
            Self::Parts(stream) => Pin::new(stream).poll_next(context),
        };
        next.map(|bytes| bytes.map(|bytes| Ok(http_body::Frame::data(bytes))))
    }
}

/// What a request's path and query name.
struct Target {
    kind: Kind,
    /// Whether an event is asked for as core/v1 shows it.
    form: Form,
    namespace: String,
    name: String,
    part: Part,
    query: BTreeMap<String, String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Stored,
    CoreEvent,
}

impl Form {
    /// An object as this form shows it.
    pub(super) fn show(self, object: &Object) -> Cow<'_, Value> {
        match self {
            Self::Stored => Cow::Borrowed(object.json()),
            Self::CoreEvent => {
                let mut json = object.json().clone();
                defaults::event_to_core(&mut json);
                Cow::Owned(json)
            }
        }
    }
}

impl Target {
    fn read(uri: &http::Uri) -> Option<Self> {
        let mut segments = uri.path().trim_matches('/').split('/').map(decode);
        let api_version = match segments.next()?.as_str() {
            "api" => segments.next()?,
            "apis" => format!("{}/{}", segments.next()?, segments.next()?),
            _ => return None,
        };
        let mut plural = segments.next()?;
        let mut namespace = String::new();
        if plural == "namespaces" {
            namespace = segments.next()?;
            plural = segments.next()?;
        }
        let kind = Kind::served_at(&api_version, &plural)?;
        let name = segments.next().unwrap_or_default();
        let part = match segments.next().as_deref() {
            None => Part::Main,
            Some("status") => Part::Status,
            Some("scale") if matches!(kind, Kind::Deployment | Kind::ReplicaSet) => Part::Scale,
            Some(_) => return None,
        };
        let form = if kind == Kind::Event && api_version == "v1" {
            Form::CoreEvent
        } else {
            Form::Stored
        };
        let query = uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (decode(name), decode(&value.replace('+', " "))))
            .collect();
        Some(Self {
            kind,
            form,
            namespace,
            name,
            part,
            query,
        })
    }

    /// Whether a request only tells something.
    fn sort(method: &Method, uri: &http::Uri) -> Sort {
        let target = Self::read(uri);
        let sort = target.and_then(|target| {
            let verb = target.verb(method)?;
            Some(Sort::of(target.kind, target.part, verb))
        });
        sort.unwrap_or(Sort::Deed)
    }

    fn asked(&self, name: &str) -> &str {
        self.query.get(name).map(String::as_str).unwrap_or_default()
    }

    fn verb(&self, method: &Method) -> Option<Verb> {
        let named = !self.name.is_empty();
        match method.as_str() {
            "GET" if named => Some(Verb::Get),
            "GET" if matches!(self.asked("watch"), "true" | "1") => Some(Verb::Watch),
            "GET" => Some(Verb::List),
            "POST" if !named => Some(Verb::Create),
            "PUT" if named => Some(Verb::Replace),
            "PATCH" if named => Some(Verb::Patch),
            "DELETE" if named => Some(Verb::Delete),
            _ => None,
        }
    }

    fn selector(&self) -> Result<Selector, Refusal> {
        Selector::read(self.asked("labelSelector"), self.asked("fieldSelector"))
    }
}

/// Decodes percent escapes.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let escaped = text.get(at + 1..at + 3).filter(|_| *byte == b'%');
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

impl Service {
    async fn answer(self, request: http::Request<Body>) -> Result<Response<Answer>, Broken> {
        if self.life.has_ended() {
            return future::pending().await;
        }
        let sort = Target::sort(request.method(), request.uri());
        self.shared.travel_with(sort).await;
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.map_err(|_| Broken)?;
        if self.life.has_ended() {
            return future::pending().await;
        }
        if parts.uri.path() == "/version" {
            return Ok(whole(
                200,
                &json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "",
                "gitTreeState": "clean", "buildDate": "", "goVersion": "", "compiler": "gc", "platform": "linux/amd64"}),
            ));
        }
        let Some(target) = Target::read(&parts.uri) else {
            return Ok(refused(&Refusal::no_such_path()));
        };
        let Some(verb) = target.verb(&parts.method) else {
            return Ok(refused(&Refusal::method_not_allowed()));
        };
        let noted = Request {
            at: self.shared.clock.elapsed(),
            agent: self.options.agent.clone(),
            verb,
            kind: target.kind,
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            part: target.part,
        };
        let fault = self.shared.receive(&noted);
        match &fault {
            Fault::None | Fault::ApplyThenHang | Fault::ApplyThenBreak => {}
            Fault::Delay(delay) => tokio::time::sleep(*delay).await,
            Fault::Refuse(refusal) => {
                self.shared.travel_with(sort).await;
                return Ok(refused(refusal));
            }
            Fault::Hang => return future::pending().await,
            Fault::Break => return Err(Broken),
        }
        let content_type = parts
            .headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let response = self.serve(&target, &noted, content_type, &body);
        if verb.writes() && response.is_ok() {
            self.life.note_write();
        }
        if fault == Fault::ApplyThenHang || (self.life.has_ended() && verb.writes()) {
            return future::pending().await;
        }
        if fault == Fault::ApplyThenBreak {
            return Err(Broken);
        }
        self.shared.travel_with(sort).await;
        if self.life.has_ended() {
            return future::pending().await;
        }
        Ok(response.unwrap_or_else(|refusal| refused(&refusal)))
    }

    fn serve(
        &self,
        target: &Target,
        request: &Request,
        content_type: &str,
        body: &[u8],
    ) -> Result<Response<Answer>, Refusal> {
        let read = || -> Result<Value, Refusal> {
            serde_json::from_slice(body)
                .map_err(|error| Refusal::bad_request(format!("cannot read the body: {error}")))
        };
        match request.verb {
            Verb::Get => {
                let key = Key::new(&target.namespace, &target.name);
                let object = self.shared.lock().store.get(target.kind, &key)?;
                Ok(whole(200, &shown(target, &object)))
            }
            Verb::List => self.list(target),
            Verb::Watch => self.watch(target),
            Verb::Create => {
                let write = Write::Create(read()?);
                self.write(target, request, write, 201)
            }
            Verb::Replace => {
                let write = Write::Replace(read()?);
                self.write(target, request, write, 200)
            }
            Verb::Patch => {
                let patch = Patch::read(content_type, body)?;
                let write = match target.form {
                    Form::Stored => Write::Patch(patch),
                    Form::CoreEvent => Write::PatchCoreEvent(patch),
                };
                self.write(target, request, write, 200)
            }
            Verb::Delete => {
                let options = if body.is_empty() {
                    Value::Null
                } else {
                    read()?
                };
                self.write(
                    target,
                    request,
                    Write::Delete(deletion(target, &options)?),
                    200,
                )
            }
        }
    }

    fn write(
        &self,
        target: &Target,
        request: &Request,
        write: Write,
        code: u16,
    ) -> Result<Response<Answer>, Refusal> {
        Ok(match self.shared.carry_out(request, write)? {
            Outcome::Written(object) | Outcome::Deleted(Deleted::Terminating(object)) => {
                whole(code, &shown(target, &object))
            }
            Outcome::Deleted(Deleted::Gone(object)) if target.kind == Kind::Pod => {
                whole(code, &shown(target, &object))
            }
            Outcome::Deleted(Deleted::Gone(object)) => whole(
                code,
                &json!({
                    "kind": "Status",
                    "apiVersion": "v1",
                    "metadata": {},
                    "status": "Success",
                    "details": {"name": object.name(), "kind": target.kind.plural(), "uid": object.uid()},
                }),
            ),
        })
    }

    fn list(&self, target: &Target) -> Result<Response<Answer>, Refusal> {
        let selector = target.selector()?;
        let state = self.shared.lock();
        let items: Vec<Value> = state
            .store
            .all(target.kind)
            .filter(|object| target.namespace.is_empty() || object.namespace() == target.namespace)
            .filter(|object| selector.matches(object))
            .map(|object| {
                let mut item = target.form.show(object).into_owned();
                // Items of a list do not repeat their kind.
                if let Some(map) = item.as_object_mut() {
                    map.remove("kind");
                    map.remove("apiVersion");
                }
                item
            })
            .collect();
        let api_version = if target.form == Form::CoreEvent {
            "v1"
        } else {
            target.kind.api_version()
        };
        Ok(whole(
            200,
            &json!({
                "kind": format!("{}List", target.kind.name()),
                "apiVersion": api_version,
                "metadata": {"resourceVersion": state.store.revision().to_string()},
                "items": items,
            }),
        ))
    }

    fn watch(&self, target: &Target) -> Result<Response<Answer>, Refusal> {
        let asked = Asked {
            kind: target.kind,
            form: target.form,
            namespace: target.namespace.clone(),
            selector: target.selector()?,
            from: target
                .asked("resourceVersion")
                .parse()
                .ok()
                .filter(|revision| *revision > 0),
            initial_events: target.asked("sendInitialEvents") == "true",
            bookmarks: target.asked("allowWatchBookmarks") == "true",
            timeout: target
                .asked("timeoutSeconds")
                .parse()
                .ok()
                .filter(|seconds| *seconds > 0),
        };
        let lag = self.options.lags.of(target.kind);
        let stream = watching::stream(Arc::clone(&self.shared), asked, lag, Arc::clone(&self.life));
        Ok(respond(200, Answer::Parts(stream)))
    }
}

fn shown<'a>(target: &Target, object: &'a Object) -> Cow<'a, Value> {
    if target.part == Part::Scale {
        Cow::Owned(scale_of(object))
    } else {
        target.form.show(object)
    }
}

fn deletion(target: &Target, options: &Value) -> Result<Deletion, Refusal> {
    let policy = match text_of(options, "propagationPolicy") {
        "" => target.asked("propagationPolicy"),
        policy => policy,
    };
    let propagation = match policy {
        "" | "Background" => Propagation::Background,
        "Foreground" => Propagation::Foreground,
        "Orphan" => Propagation::Orphan,
        other => {
            return Err(Refusal::bad_request(format!(
                "unknown propagationPolicy {other}"
            )));
        }
    };
    let precondition = |name: &str| {
        options
            .pointer(&format!("/preconditions/{name}"))
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    Ok(Deletion {
        uid: precondition("uid"),
        resource_version: precondition("resourceVersion"),
        propagation,
        grace: options.get("gracePeriodSeconds").and_then(Value::as_i64),
    })
}

fn refused(refusal: &Refusal) -> Response<Answer> {
    whole(refusal.code, &refusal.status())
}

fn whole(code: u16, body: &Value) -> Response<Answer> {
    respond(code, Answer::Whole(Some(Bytes::from(body.to_string()))))
}

fn respond(code: u16, body: Answer) -> Response<Answer> {
    let mut response = Response::new(body);
    *response.status_mut() =
        http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(
        CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    response
}
