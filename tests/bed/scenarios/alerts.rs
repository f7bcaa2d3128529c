//! Alerts, told to a sink that plays Slack and a webhook (case K55).

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
};
use serde_json::Value;

use super::{
    base::{Base, Since, config},
    promises::{at_rest, step},
};
use crate::{
    namespace::Namespace,
    scene::Trials,
    wait::{ensure, eventually},
    worker::Worker,
};

const X: &str = "orders-worker";

pub fn register(trials: &mut Trials) {
    trials.add(
        "alerts: a rollout that is frozen and then aborted is told to Slack and to a webhook, each transition with one id",
        async |scene| {
            let sink = Sink::start().await;
            let base = alerting(scene.namespace().await, &sink, "on_failure: freeze").await;
            let at = fail_at_the_second_step(&base).await;
            at.log(&base.daemon, "frozen at step 2/3: ").await;
            sink.told("hook", "\"event\":\"frozen\"").await;
            sink.told("slack", "frozen at step 2/3: ").await;
            base.order("abort", "done: back to the accepted version").await;
            sink.told("hook", "\"event\":\"aborted\"").await;
            at_rest(&base.namespace, X, "v1", 10).await;

            let mut ids: Vec<String> = Vec::new();
            for letter in sink.letters("hook") {
                let body: Value = serde_json::from_str(&letter).expect("is JSON");
                assert_eq!(body["deployment"], X, "{body}");
                ids.push(body["id"].as_str().expect("has an id").to_owned());
            }
            let told = ids.len();
            ids.sort();
            ids.dedup();
            assert_eq!(ids.len(), told, "{:?}", sink.letters("hook"));
            let log = base.daemon.log().into_iter().map(|line| line.text);
            let spilt: Vec<String> = log.filter(|line| line.contains("T0P-SECRET")).collect();
            assert!(spilt.is_empty(), "{spilt:?}");
        },
    );

    trials.add(
        "alerts: a channel that answers errors delays no rollout, and is told when it recovers",
        async |scene| {
            let sink = Sink::start().await;
            sink.fails(true);
            let base = alerting(scene.namespace().await, &sink, "").await;
            let at = fail_at_the_second_step(&base).await;
            at.log(&base.daemon, "rejected: ").await;
            at_rest(&base.namespace, X, "v1", 10).await;
            assert!(sink.letters("hook").is_empty());
            sink.fails(false);
            sink.told("hook", "\"event\":\"failed\"").await;
            sink.told("slack", "rolling back to 10 pods").await;
        },
    );
}

/// A registered worker whose file has both channels.
async fn alerting(namespace: Arc<Namespace>, sink: &Sink, more: &str) -> Base {
    let worker = Worker::default();
    namespace.running(&worker).await;
    for tag in ["v1", "v2"] {
        namespace.set_metric(tag, "my_errors", 0.0);
    }
    let channels = format!(
        "notify:\n  - name: on-call\n    slack: {{url-from-env: SLACK_URL}}\n    events: [failed, frozen]\n  - name: hook\n    \
         webhook: {{url: {}}}\n    events: [failed, frozen, aborted]\n",
        sink.url("hook")
    );
    let text = channels + &config(&namespace, &namespace.bed.prometheus.url, more);
    let mut setup = namespace.daemon_setup(&text);
    let slack = sink.url("slack") + "?key=T0P-SECRET";
    setup.env.push(("SLACK_URL".to_owned(), slack));
    let daemon = namespace.daemon(&setup).await;
    daemon.log_contains("orders-worker: at rest").await;
    Base {
        namespace,
        worker,
        setup,
        daemon,
    }
}

async fn fail_at_the_second_step(base: &Base) -> Since {
    let since = Since::now(&base.namespace, &base.daemon).await;
    base.namespace.apply(&base.worker.clone().tag("v2")).await;
    step(&base.namespace, X, since.at, (4, 6)).await;
    base.namespace.set_metric("v2", "my_errors", 7.0);
    since
}

/// Takes letters by POST.
struct Sink {
    port: u16,
    post: Arc<Post>,
}

#[derive(Default)]
struct Post {
    letters: Mutex<Vec<(String, String)>>,
    fails: Mutex<bool>,
}

impl Sink {
    async fn start() -> Self {
        let post = Arc::<Post>::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port on loopback");
        let port = listener.local_addr().expect("a bound port").port();
        let router = Router::new()
            .route("/{box}", axum::routing::post(take))
            .with_state(Arc::clone(&post));
        tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Self { port, post }
    }

    fn url(&self, letterbox: &str) -> String {
        format!("http://127.0.0.1:{}/{letterbox}", self.port)
    }

    fn fails(&self, fails: bool) {
        *self.post.fails.lock().unwrap() = fails;
    }

    fn letters(&self, letterbox: &str) -> Vec<String> {
        let letters = self.post.letters.lock().unwrap();
        letters
            .iter()
            .filter(|(to, _)| to == letterbox)
            .map(|(_, letter)| letter.clone())
            .collect()
    }

    /// Waits for a letter with this in it.
    async fn told(&self, letterbox: &str, text: &str) {
        eventually(&format!("{letterbox} is told {text}"), async || {
            let letters = self.letters(letterbox);
            let found = letters.iter().any(|letter| letter.contains(text));
            ensure(found, || format!("{letters:?}"))
        })
        .await;
    }
}

/// An error asks to be left alone for a second, as Slack does.
async fn take(
    State(post): State<Arc<Post>>,
    Path(letterbox): Path<String>,
    letter: String,
) -> (StatusCode, HeaderMap) {
    let mut headers = HeaderMap::new();
    if *post.fails.lock().unwrap() {
        headers.insert("retry-after", "1".parse().expect("is a header"));
        return (StatusCode::TOO_MANY_REQUESTS, headers);
    }
    post.letters.lock().unwrap().push((letterbox, letter));
    (StatusCode::OK, headers)
}
