//! Every request has a deadline, and passes the fence: a connection that died without closing must not leave a watch
//! blind for ever.
//!
//! kube itself sets no read timeout. It ends a watch that was answered and then fell silent, but waits without end for
//! the answer to begin, and for the rest of a list.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use thiserror::Error;
use tower_service::Service;

use super::fence::{self, Fence};

/// How long a whole answer may take, or, of a watch, its beginning. A page of a list is at most 500 objects.
const ANSWER: Duration = Duration::from_secs(30);

/// An answer that did not come.
#[derive(Debug, Error)]
#[error("no answer within {0:?}")]
struct NoAnswer(Duration);

/// A client whose requests end, and which writes only while it may.
struct Deadlines {
    client: Client,
    fence: Arc<dyn Fence>,
}

/// The same client, with a deadline on every request, behind a fence.
pub(super) fn with_deadlines(client: Client, fence: Arc<dyn Fence>) -> Client {
    let namespace = client.default_namespace().to_owned();
    Client::new(Deadlines { client, fence }, namespace)
}

impl Service<Request<Body>> for Deadlines {
    type Response = Response<Body>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client = self.client.clone();
        let query = request.uri().query().unwrap_or_default();
        let watches = query.split('&').any(|parameter| parameter == "watch=true");
        let allowed = fence::check(self.fence.as_ref(), request.method(), request.uri().path());
        Box::pin(async move {
            let limit = allowed?.min(ANSWER);
            let answer = async {
                let response = client.send(request).await?;
                if watches {
                    return Ok(response);
                }
                let (head, body) = response.into_parts();
                let body = body.collect_bytes().await?;
                Ok(Response::from_parts(head, Body::from(body)))
            };
            match tokio::time::timeout(limit, answer).await {
                Ok(Ok(response)) => Ok(response),
                Ok(Err(error)) => Err(Box::<kube::Error>::new(error).into()),
                Err(_) => Err(NoAnswer(limit).into()),
            }
        })
    }
}
