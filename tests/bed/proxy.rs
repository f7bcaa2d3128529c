//! The fault proxy: plain HTTP in front of the API server, which it reaches over TLS. Credentials of the client are passed on.
//!
//! One stands before the controller-manager for the whole run, and one before each namespace's daemon. Both can delay watches, by kind
//! of object and by namespace; a hook sees every request and can delay, answer, or swallow it.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    extract::State,
    response::Response,
};
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::BodyExt as _;
use kube::Client;
use serde::Deserialize;
use tokio::{
    sync::{Notify, mpsc},
    task::JoinHandle,
    time::{Instant, sleep, sleep_until},
};

/// Kinds whose watches can be delayed, by the name in the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Deployments,
    ReplicaSets,
    Pods,
    PodTemplates,
}

impl Kind {
    const ALL: [Self; 4] = [
        Self::Deployments,
        Self::ReplicaSets,
        Self::Pods,
        Self::PodTemplates,
    ];

    const fn plural(self) -> &'static str {
        match self {
            Self::Deployments => "deployments",
            Self::ReplicaSets => "replicasets",
            Self::Pods => "pods",
            Self::PodTemplates => "podtemplates",
        }
    }

    fn of_path(path: &str) -> Option<Self> {
        let last = path.rsplit('/').next()?;
        Self::ALL.into_iter().find(|kind| kind.plural() == last)
    }
}

/// How much later than they happened watch events arrive, by kind and namespace. May be changed at any time.
///
/// Events of one namespace keep their order; a delayed namespace does not hold up another. In a cluster without namespaces of
/// different lag a watch keeps the order over all of them, and since 1.36 the ReplicaSet controller leans on that to notice that it has
/// not yet seen its own write: here it may not notice, as no version before it does. So lag here is never milder than in reality.
#[derive(Default)]
pub struct Lag(Mutex<HashMap<(Kind, String), Duration>>);

impl Lag {
    pub fn set(&self, kind: Kind, namespace: &str, delay: Duration) {
        self.0
            .lock()
            .unwrap()
            .insert((kind, namespace.to_owned()), delay);
    }

    fn of(&self, kind: Kind, namespace: &str) -> Duration {
        self.0
            .lock()
            .unwrap()
            .get(&(kind, namespace.to_owned()))
            .copied()
            .unwrap_or_default()
    }

    fn is_unused(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }
}

/// A request as the hook sees it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub at: Instant,
    pub method: Method,
    pub path: String,
    pub query: String,
    pub body: Bytes,
}

impl Seen {
    pub fn is_watch(&self) -> bool {
        self.query
            .split('&')
            .any(|part| part == "watch=true" || part == "watch=1")
    }

    /// Whether it changes something. Access reviews are created but change nothing.
    pub fn is_write(&self) -> bool {
        self.method != Method::GET && !self.path.ends_with("accessreviews")
    }

    /// Whether it only tells something: an Event or a condition.
    pub fn only_tells(&self) -> bool {
        self.path.contains("/events") || self.path.ends_with("/status")
    }
}

/// What becomes of a request.
#[derive(Clone, Debug)]
pub enum Verdict {
    Pass,
    /// Passed on after this time.
    Delay(Duration),
    /// Answered by the proxy; the API server never sees it.
    Answer(StatusCode, String),
    /// Never answered, and the API server never sees it.
    Hang,
    /// Carried out, but the client never learns of it.
    PassThenHang,
    /// Carried out, but the client learns of it only when the gate is opened: what the test does meanwhile happens between this request
    /// and the client's next.
    PassThenGate(Arc<Gate>),
}

/// Holds the answer to one request back.
#[derive(Debug, Default)]
pub struct Gate {
    carried_out: Notify,
    open: Notify,
}

impl Gate {
    /// Waits until the request has been carried out.
    pub async fn reached(&self) {
        self.carried_out.notified().await;
    }

    /// Lets the client have its answer.
    pub fn open(&self) {
        self.open.notify_one();
    }
}

type Hook = Arc<dyn Fn(&Seen) -> Verdict + Send + Sync>;

struct Shared {
    upstream: Client,
    lag: Arc<Lag>,
    hook: Mutex<Option<Hook>>,
    broken: Notify,
    requests: Mutex<Option<Vec<Seen>>>,
}

/// A running proxy; once dropped it takes no new connections.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl Proxy {
    /// Starts on a free port of loopback. Credentials of `upstream`, where it has any, stand in for the clients'.
    pub async fn start(upstream: Client) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            upstream,
            lag: Arc::default(),
            hook: Mutex::default(),
            broken: Notify::new(),
            requests: Mutex::default(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let router = axum::Router::new()
            .fallback(handle)
            .with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self {
            port,
            shared,
            server,
        })
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn lag(&self) -> Arc<Lag> {
        Arc::clone(&self.shared.lag)
    }

    /// From now on `hook` decides about every request. It may be called from several threads at once.
    pub fn on_request(&self, hook: impl Fn(&Seen) -> Verdict + Send + Sync + 'static) {
        *self.shared.hook.lock().unwrap() = Some(Arc::new(hook));
    }

    /// From now on `writes` writes pass, of which the client never learns that the last one was carried out; then nothing passes any more. To
    /// the API server this is a client that was killed right after that write.
    pub fn cut_after(&self, writes: usize) {
        let passed = AtomicUsize::new(0);
        self.on_request(move |request| {
            let before = if request.is_write() {
                passed.fetch_add(1, Ordering::SeqCst)
            } else {
                passed.load(Ordering::SeqCst)
            };
            match (request.is_write(), before + 1) {
                _ if before >= writes => Verdict::Hang,
                (true, number) if number == writes => Verdict::PassThenHang,
                _ => Verdict::Pass,
            }
        });
    }

    /// Every watch that is open now ends; those opened after it live.
    pub fn break_watches(&self) {
        self.shared.broken.notify_waiters();
    }

    /// Requests pass again.
    pub fn pass_all(&self) {
        *self.shared.hook.lock().unwrap() = None;
    }

    /// From now on (or anew) every request is kept.
    pub fn record(&self) {
        *self.shared.requests.lock().unwrap() = Some(Vec::new());
    }

    /// The requests since [`Self::record`], oldest first.
    pub fn requests(&self) -> Vec<Seen> {
        self.shared
            .requests
            .lock()
            .unwrap()
            .clone()
            .unwrap_or_default()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn handle(State(shared): State<Arc<Shared>>, request: Request<Body>) -> Response {
    let (mut parts, body) = request.into_parts();
    let Ok(body) = body.collect().await else {
        return status(StatusCode::BAD_REQUEST, "the request broke off");
    };
    let body = body.to_bytes();
    let seen = Seen {
        at: Instant::now(),
        method: parts.method.clone(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        body: body.clone(),
    };
    if let Some(requests) = &mut *shared.requests.lock().unwrap() {
        requests.push(seen.clone());
    }
    let hook = shared.hook.lock().unwrap().clone();
    let verdict = hook.map_or(Verdict::Pass, |hook| hook(&seen));
    match &verdict {
        Verdict::Pass | Verdict::PassThenHang | Verdict::PassThenGate(_) => {}
        Verdict::Delay(delay) => sleep(*delay).await,
        Verdict::Answer(code, body) => return status(*code, body),
        Verdict::Hang => std::future::pending().await,
    }

    let Some(target) = parts.uri.path_and_query().cloned() else {
        return status(StatusCode::BAD_REQUEST, "no path");
    };
    parts.uri = Uri::from(target);
    parts.headers.remove(header::HOST);
    let answer = match shared
        .upstream
        .send(Request::from_parts(parts, body.into()))
        .await
    {
        Ok(answer) => answer,
        Err(error) => {
            eprintln!("test bed: the fault proxy cannot reach the API server: {error:?}");
            return status(
                StatusCode::BAD_GATEWAY,
                &format!("the API server cannot be reached: {error}"),
            );
        }
    };
    match &verdict {
        Verdict::PassThenHang => std::future::pending::<()>().await,
        Verdict::PassThenGate(gate) => {
            gate.carried_out.notify_one();
            gate.open.notified().await;
        }
        _ => {}
    }
    let is_json = answer
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|t| t.as_bytes().starts_with(b"application/json"));
    match Kind::of_path(&seen.path) {
        Some(kind) if seen.is_watch() && is_json && answer.status().is_success() => {
            let (parts, body) = answer.into_parts();
            let (sender, receiver) = mpsc::unbounded_channel();
            tokio::spawn(relay(kind, body, Arc::clone(&shared), sender));
            Response::from_parts(parts, Body::from_stream(lines(receiver)))
        }
        _ => answer.map(Body::new),
    }
}

/// An answer in the API's own form when the text is not JSON already.
fn status(code: StatusCode, text: &str) -> Response {
    let body = if text.starts_with('{') {
        text.to_owned()
    } else {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code.as_u16(), "message": text,
            "reason": code.canonical_reason().unwrap_or_default().replace(' ', ""),
        })
        .to_string()
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = code;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    response
}

fn lines(
    receiver: mpsc::UnboundedReceiver<Bytes>,
) -> impl futures::Stream<Item = Result<Bytes, Infallible>> {
    futures::stream::unfold(receiver, async |mut receiver| {
        receiver.recv().await.map(|line| (Ok(line), receiver))
    })
}

/// Of a watch event, what says whose it is. Bookmarks carry no namespace.
#[derive(Deserialize)]
struct WatchLine {
    object: WatchObject,
}

#[derive(Deserialize)]
struct WatchObject {
    #[serde(default)]
    metadata: WatchMetadata,
}

#[derive(Default, Deserialize)]
struct WatchMetadata {
    #[serde(default)]
    namespace: String,
}

/// Passes watch events on, one line at a time, each namespace's through a queue of its own once it has been delayed.
async fn relay(
    kind: Kind,
    mut body: kube::client::Body,
    shared: Arc<Shared>,
    client: mpsc::UnboundedSender<Bytes>,
) {
    let lag = &shared.lag;
    let mut broken = std::pin::pin!(shared.broken.notified());
    let mut queues: HashMap<String, Queue> = HashMap::new();
    let mut rest = Vec::new();
    loop {
        let frame = tokio::select! {
            () = client.closed() => return,
            () = &mut broken => return,
            frame = body.frame() => frame,
        };
        let Some(Ok(frame)) = frame else { return };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        rest.extend_from_slice(&data);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let namespace = if lag.is_unused() && queues.is_empty() {
                String::new()
            } else {
                serde_json::from_slice::<WatchLine>(&line)
                    .map(|line| line.object.metadata.namespace)
                    .unwrap_or_default()
            };
            let delay = lag.of(kind, &namespace);
            if let Some(queue) = queues.get_mut(&namespace) {
                queue.push(line.into(), delay);
            } else if delay.is_zero() {
                let _ = client.send(line.into());
            } else {
                queues
                    .entry(namespace)
                    .or_insert_with(|| Queue::new(client.clone()))
                    .push(line.into(), delay);
            }
        }
    }
}

/// Delayed events of one namespace in one watch, in order.
struct Queue {
    sender: mpsc::UnboundedSender<(Instant, Bytes)>,
    last_due: Instant,
}

impl Queue {
    fn new(client: mpsc::UnboundedSender<Bytes>) -> Self {
        let (sender, mut receiver) = mpsc::unbounded_channel::<(Instant, Bytes)>();
        tokio::spawn(async move {
            while let Some((due, line)) = receiver.recv().await {
                sleep_until(due).await;
                if client.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            sender,
            last_due: Instant::now(),
        }
    }

    fn push(&mut self, line: Bytes, delay: Duration) {
        self.last_due = self.last_due.max(Instant::now() + delay);
        let _ = self.sender.send((self.last_due, line));
    }
}
