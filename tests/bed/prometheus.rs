//! A real Prometheus that scrapes the pods' metrics, and a stub that plays a bad one.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    extract::{RawQuery, State},
    response::Response,
};
use http::StatusCode;
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::{
    process::{self, Service},
    programs::Programs,
};

/// The real one; dropping it kills it.
pub struct Prometheus {
    pub url: String,
    _service: Service,
}

impl Prometheus {
    /// Starts it, scraping `metrics_port` twice a second, and waits until it is ready.
    ///
    /// # Errors
    /// With the end of its log.
    pub async fn start(
        programs: &Programs,
        data: &TempDir,
        metrics_port: u16,
    ) -> Result<Self, String> {
        let [port] = process::free_ports().map_err(|e| e.to_string())?;
        let config = data.path().join("prometheus.json");
        std::fs::write(&config, scraping(metrics_port)).map_err(|e| e.to_string())?;
        let mut command = process::command(&programs.prometheus);
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                data.path().join("prometheus").display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let mut service = Service::start("prometheus", command, data.path()).await?;
        let url = format!("http://127.0.0.1:{port}");
        let ready = format!("{url}/-/ready");
        service
            .ready(async || {
                let answer = reqwest::get(&ready)
                    .await
                    .and_then(reqwest::Response::error_for_status);
                answer.map(drop).map_err(|e| e.to_string())
            })
            .await?;
        Ok(Self {
            url,
            _service: service,
        })
    }

    /// The result of an instant query, as Prometheus words it.
    pub async fn query(&self, expression: &str) -> Result<serde_json::Value, String> {
        let request = reqwest::Client::new()
            .get(format!("{}/api/v1/query", self.url))
            .query(&[("query", expression)]);
        let answer = request.send().await.map_err(|e| e.to_string())?;
        let mut answer: serde_json::Value = answer.json().await.map_err(|e| e.to_string())?;
        Ok(answer["data"]["result"].take())
    }
}

/// A configuration that scrapes this port twice a second (JSON is YAML).
pub fn scraping(metrics_port: u16) -> String {
    json!({
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
        "scrape_configs": [{
            "job_name": "pods", "honor_labels": true, "static_configs": [{"targets": [format!("127.0.0.1:{metrics_port}")]}],
        }],
    })
    .to_string()
}

/// How the stub answers.
#[derive(Clone)]
pub enum Answer {
    /// As the real Prometheus does.
    Real,
    /// With this status and body.
    Status(StatusCode, String),
    /// 200, but the body says `status: error`.
    ErrorInBody,
    /// 200 and something that is no JSON.
    Nonsense,
    /// No series at all.
    Empty,
    /// At once, to every question: one series with this value for each pod in it.
    Value(f64),
    /// After this time, like the other one.
    Slow(Duration, Box<Answer>),
    /// At once, what this says to the expression: one series with the value for each pod in it, or none.
    By(Arc<Judge>),
    /// Never.
    Never,
}

/// Answers an expression.
pub type Judge = dyn Fn(&str) -> Option<f64> + Send + Sync;

struct Script {
    real: String,
    answer: Mutex<Answer>,
    queries: Mutex<Vec<Query>>,
    http: reqwest::Client,
}

/// A request that reached the stub.
#[derive(Clone, Debug)]
pub struct Query {
    pub at: Instant,
    pub path: String,
    /// The PromQL expression, decoded; empty when there was none.
    pub expression: String,
    /// The names of all its parameters.
    pub parameters: Vec<String>,
}

/// The stub: a Prometheus whose answers a test scripts. It counts what it is asked.
pub struct Stub {
    port: u16,
    script: Arc<Script>,
    server: Mutex<Option<JoinHandle<()>>>,
}

impl Stub {
    /// Starts on a free port, answering like the real one until told otherwise.
    pub async fn start(real: &Prometheus) -> Self {
        let script = Arc::new(Script {
            real: real.url.clone(),
            answer: Mutex::new(Answer::Real),
            queries: Mutex::default(),
            http: reqwest::Client::new(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port on loopback");
        let port = listener.local_addr().expect("a bound port").port();
        let router = axum::Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&script));
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Self {
            port,
            script,
            server: Mutex::new(Some(server)),
        }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// From now on.
    pub fn answers(&self, answer: Answer) {
        *self.script.answer.lock().unwrap() = answer;
    }

    /// From now on connections are refused (one that is already open gets a 503 and is closed).
    pub fn refuse(&self) {
        self.answers(Answer::Status(
            StatusCode::SERVICE_UNAVAILABLE,
            "going down".to_owned(),
        ));
        if let Some(server) = self.server.lock().unwrap().take() {
            server.abort();
        }
    }

    /// Everything it was asked so far.
    pub fn queries(&self) -> Vec<Query> {
        self.script.queries.lock().unwrap().clone()
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.refuse();
    }
}

async fn answer(
    State(script): State<Arc<Script>>,
    method: http::Method,
    uri: http::Uri,
    RawQuery(query): RawQuery,
    body: Bytes,
) -> Response {
    let form = if body.is_empty() {
        query.unwrap_or_default().into_bytes()
    } else {
        body.to_vec()
    };
    let pairs: Vec<(String, String)> =
        reqwest::Url::parse(&format!("http://stub/?{}", String::from_utf8_lossy(&form)))
            .map(|url| url.query_pairs().into_owned().collect())
            .unwrap_or_default();
    let expression = pairs
        .iter()
        .find(|(key, _)| key == "query")
        .map(|(_, value)| value.clone())
        .unwrap_or_default();
    script.queries.lock().unwrap().push(Query {
        at: Instant::now(),
        path: uri.path().to_owned(),
        expression: expression.clone(),
        parameters: pairs.into_iter().map(|(key, _)| key).collect(),
    });
    let mut answer = script.answer.lock().unwrap().clone();
    loop {
        return match answer {
            Answer::Slow(delay, then) => {
                sleep(delay).await;
                answer = *then;
                continue;
            }
            Answer::Never => std::future::pending().await,
            Answer::By(judge) => {
                answer = judge(&expression).map_or(Answer::Empty, Answer::Value);
                continue;
            }
            Answer::Status(code, body) => respond(code, body),
            Answer::ErrorInBody => respond(
                StatusCode::OK,
                json!({"status": "error", "errorType": "execution", "error": "query timed out"})
                    .to_string(),
            ),
            Answer::Nonsense => respond(StatusCode::OK, "<html>login</html>".to_owned()),
            Answer::Value(value) => {
                let series = |metric: serde_json::Value| json!({"metric": metric, "value": [1, value.to_string()]});
                let mut result: Vec<_> = pods_named(&expression)
                    .into_iter()
                    .map(|pod| series(json!({"pod": pod})))
                    .collect();
                if result.is_empty() {
                    result.push(series(json!({})));
                }
                respond(
                    StatusCode::OK,
                    json!({"status": "success", "data": {"resultType": "vector", "result": result}})
                        .to_string(),
                )
            }
            Answer::Empty => respond(
                StatusCode::OK,
                json!({"status": "success", "data": {"resultType": "vector", "result": []}})
                    .to_string(),
            ),
            Answer::Real => {
                let target = format!(
                    "{}{}",
                    script.real,
                    uri.path_and_query().map_or("", |p| p.as_str())
                );
                let request = script
                    .http
                    .request(method, target)
                    .header("content-type", "application/x-www-form-urlencoded")
                    .body(body);
                match request.send().await {
                    Ok(real) => {
                        let code = real.status();
                        respond(code, real.text().await.unwrap_or_default())
                    }
                    Err(error) => respond(StatusCode::BAD_GATEWAY, error.to_string()),
                }
            }
        };
    }
}

/// The pods that a query names in `pod="a"` or `pod=~"a|b"`.
pub fn pods_named(query: &str) -> Vec<String> {
    let names = query
        .split_once("pod=")
        .and_then(|(_, rest)| rest.trim_start_matches('~').split('"').nth(1));
    names
        .into_iter()
        .flat_map(|names| names.split('|'))
        .map(|name| name.replace("[.]", "."))
        .collect()
}

fn respond(code: StatusCode, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = code;
    response.headers_mut().insert(
        "content-type",
        http::HeaderValue::from_static("application/json"),
    );
    response
        .headers_mut()
        .insert("connection", http::HeaderValue::from_static("close"));
    response
}
