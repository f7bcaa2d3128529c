//! The API server's audit log: who asked for what.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::Value;

use crate::wait::eventually;

/// One answered request.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    pub stage: String,
    pub verb: String,
    #[serde(rename = "requestURI")]
    pub uri: String,
    user: User,
    #[serde(default)]
    object_ref: Object,
    #[serde(default)]
    response_status: Code,
    /// The body, of writes by service accounts.
    #[serde(default)]
    pub request_object: Value,
    /// When the API server got it, in RFC 3339 with microseconds.
    #[serde(rename = "requestReceivedTimestamp")]
    pub received: String,
}

#[derive(Clone, Debug, Deserialize)]
struct User {
    username: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Object {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Code {
    #[serde(default)]
    code: u16,
}

impl Request {
    pub fn user(&self) -> &str {
        &self.user.username
    }

    /// The resource with its subresource: `deployments`, `deployments/status`.
    pub fn resource(&self) -> String {
        match self.object_ref.subresource.as_str() {
            "" => self.object_ref.resource.clone(),
            sub => format!("{}/{sub}", self.object_ref.resource),
        }
    }

    pub fn namespace(&self) -> &str {
        &self.object_ref.namespace
    }

    /// The object's name; empty for lists, and for creates until they are answered.
    pub fn name(&self) -> &str {
        &self.object_ref.name
    }

    /// The HTTP status of the answer.
    pub const fn code(&self) -> u16 {
        self.response_status.code
    }

    pub fn is_write(&self) -> bool {
        matches!(
            self.verb.as_str(),
            "create" | "update" | "patch" | "delete" | "deletecollection"
        ) && !self.object_ref.resource.ends_with("accessreviews")
    }

    /// Whether it only tells something, from which nothing follows: an Event or a condition.
    pub fn only_tells(&self) -> bool {
        self.object_ref.resource == "events" || self.object_ref.subresource == "status"
    }
}

/// Reads the log as it grows.
pub struct Audit {
    path: PathBuf,
    client: Client,
    read: Mutex<Read>,
    markers: AtomicU64,
}

#[derive(Default)]
struct Read {
    offset: u64,
    rest: String,
    requests: Vec<Request>,
}

impl Audit {
    pub fn new(path: PathBuf, client: Client) -> Self {
        Self {
            path,
            client,
            read: Mutex::default(),
            markers: AtomicU64::new(0),
        }
    }

    /// All requests by `user` in `namespace` so far, oldest first; watches appear when they end. Everything answered before the call is in
    /// it: a marker request has gone through the log.
    pub async fn requests(&self, user: &str, namespace: &str) -> Vec<Request> {
        let marker = format!(
            "audit-marker-{}",
            self.markers.fetch_add(1, Ordering::Relaxed)
        );
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), "default");
        api.get_opt(&marker).await.expect("the API server answers");
        eventually("the audit log to hold the marker request", async || {
            let mut read = self.read.lock().unwrap();
            self.catch_up(&mut read)
                .map_err(|e| format!("{}: {e}", self.path.display()))?;
            if !read
                .requests
                .iter()
                .rev()
                .any(|r| r.object_ref.name == marker)
            {
                return Err("it does not".to_owned());
            }
            Ok(read
                .requests
                .iter()
                .filter(|r| r.user() == user && r.namespace() == namespace)
                .cloned()
                .collect())
        })
        .await
    }

    /// Of [`Self::requests`] those that would change something, whether they succeeded or not.
    pub async fn writes(&self, user: &str, namespace: &str) -> Vec<Request> {
        self.requests(user, namespace)
            .await
            .into_iter()
            .filter(Request::is_write)
            .collect()
    }

    fn catch_up(&self, read: &mut Read) -> std::io::Result<()> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(read.offset))?;
        let mut new = Vec::new();
        read.offset += file.read_to_end(&mut new)? as u64;
        read.rest.push_str(&String::from_utf8_lossy(&new));
        let complete = read.rest.rfind('\n').map_or(0, |end| end + 1);
        let lines: String = read.rest.drain(..complete).collect();
        for line in lines.lines() {
            let request: Request = serde_json::from_str(line).map_err(std::io::Error::other)?;
            if request.stage == "ResponseComplete" {
                read.requests.push(request);
            }
        }
        Ok(())
    }
}
