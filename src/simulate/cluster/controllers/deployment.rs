//! The Deployment controller (`pkg/controller/deployment` of Kubernetes 1.36): one active ReplicaSet for a paused
//! Deployment, rolling updates and recreations for the others.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::super::clock::{Clock, seconds_of};
use super::super::object::{Key, Kind, Object, remove, set, text_of};
use super::super::random::{letter, scramble};
use super::super::refusal::Refusal;
use super::super::shared::Api;
use super::super::store::{Change, Deletion, Occurrence};
use super::cache::Caches;
use super::queue::Queue;
use super::replica_set::{adoption_patch, may_adopt, release_patch};
use super::rollout::{self, ReplicaSet};

/// How often a Deployment is tried again after a failure, before it waits for the next change.
const MOST_RETRIES: u32 = 15;

const PROGRESSING: &str = "Progressing";
const PAUSED: &str = "DeploymentPaused";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const NEW_AVAILABLE: &str = "NewReplicaSetAvailable";

pub(super) struct DeploymentController {
    api: Api,
    caches: Arc<Caches>,
    clock: Clock,
    queue: Queue<Key>,
}

/// Whether a missing current ReplicaSet is created.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfMissing {
    Create,
    Leave,
}

/// Whether a ReplicaSet is written when only its annotations about numbers are wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Annotations {
    Always,
    WithNumber,
}

/// The ReplicaSets of a Deployment, told apart.
struct Sets {
    new: Option<ReplicaSet>,
    old: Vec<ReplicaSet>,
}

impl Sets {
    fn all(&self) -> Vec<ReplicaSet> {
        self.old.iter().chain(self.new.as_ref()).cloned().collect()
    }
}

impl DeploymentController {
    pub(super) fn new(api: Api, caches: Arc<Caches>, clock: Clock) -> Self {
        Self {
            api,
            caches,
            clock,
            queue: Queue::new(clock),
        }
    }

    pub(super) fn on_change(&self, kind: Kind, change: &Change) {
        match kind {
            Kind::Deployment => self.queue.add(change.object.key()),
            Kind::ReplicaSet => self.on_replica_set(change),
            Kind::Pod if change.occurrence == Occurrence::Deleted => {
                self.on_pod_gone(&change.object)
            }
            Kind::Pod | Kind::PodTemplate | Kind::Event | Kind::Lease | Kind::Autoscaler => {}
        }
    }

    fn on_replica_set(&self, change: &Change) {
        let replica_set = &change.object;
        let owner = replica_set.controlled_by();
        if change.occurrence == Occurrence::Deleted || replica_set.is_terminating() {
            self.wake(replica_set);
            return;
        }
        let before = change.before.as_deref();
        let moved = before.is_some_and(|before| before.controlled_by() != owner);
        if moved && let Some(before) = before {
            self.wake(before);
        }
        if owner.is_some() {
            self.wake(replica_set);
            return;
        }
        let relabelled = before.is_some_and(|before| before.labels() != replica_set.labels());
        if change.occurrence == Occurrence::Added || moved || relabelled {
            let all = self.caches.deployments().within(replica_set.namespace());
            for deployment in all {
                if deployment.selects(replica_set) {
                    self.queue.add(deployment.key());
                }
            }
        }
    }

    /// Wakes the Deployment that owns an object, if the cache knows it.
    fn wake(&self, replica_set: &Object) {
        if let Some(owner) = self.owner_of(replica_set) {
            self.queue.add(owner.key());
        }
    }

    fn owner_of(&self, replica_set: &Object) -> Option<Arc<Object>> {
        let owner = replica_set
            .controlled_by()
            .filter(|owner| owner.kind == Kind::Deployment.name())?;
        let key = Key::new(replica_set.namespace(), &owner.name);
        self.caches
            .deployments()
            .objects
            .get(&key)
            .filter(|known| known.uid() == owner.uid)
            .cloned()
    }

    /// Wakes a Deployment that recreates, once its last pod is gone.
    fn on_pod_gone(&self, pod: &Object) {
        let Some(owner) = pod.controlled_by() else {
            return;
        };
        let key = Key::new(pod.namespace(), &owner.name);
        let known = self
            .caches
            .replica_sets()
            .objects
            .get(&key)
            .filter(|known| known.uid() == owner.uid)
            .cloned();
        if let Some(deployment) = known.and_then(|replica_set| self.owner_of(&replica_set))
            && deployment.text("/spec/strategy/type") == "Recreate"
        {
            self.queue.add(deployment.key());
        }
    }

    pub(super) async fn work(self: Arc<Self>) {
        loop {
            let key = self.queue.next().await;
            match self.sync(&key).await {
                Ok(()) => self.queue.forget(&key),
                Err(_) if self.queue.failures(&key) < MOST_RETRIES => self.queue.retry(key.clone()),
                Err(_) => self.queue.forget(&key),
            }
            self.queue.done(&key);
        }
    }

    /// `syncDeployment`
    async fn sync(&self, key: &Key) -> Result<(), Refusal> {
        let cached = self.caches.deployments().objects.get(key).cloned();
        let Some(mut deployment) = cached.map(Arc::unwrap_or_clone) else {
            return Ok(());
        };
        let replica_sets = self.claim(&deployment).await?;
        // As the real controller, from here on with the pods as they are now; only a recreation asks for them.
        let rolls = rollout::is_rolling_update(&deployment);
        let pods = if rolls {
            Vec::new()
        } else {
            self.pods_of(&replica_sets)
        };
        if deployment.is_terminating() {
            let sets = self
                .sets(&mut deployment, &replica_sets, IfMissing::Leave)
                .await?;
            return self.sync_status(&mut deployment, &sets).await;
        }
        self.check_paused_condition(&mut deployment).await?;
        if deployment.is_set("/spec/paused") {
            return self.scale_and_tidy(&mut deployment, &replica_sets).await;
        }
        if self.is_scaling(&mut deployment, &replica_sets).await? {
            return self.scale_and_tidy(&mut deployment, &replica_sets).await;
        }
        if rolls {
            self.roll(&mut deployment, &replica_sets).await
        } else {
            self.recreate(&mut deployment, &replica_sets, &pods).await
        }
    }

    /// The Deployment's ReplicaSets, after adopting matching orphans and letting go of those that match no more.
    async fn claim(&self, deployment: &Object) -> Result<Vec<ReplicaSet>, Refusal> {
        let all = self.caches.replica_sets().within(deployment.namespace());
        let mut claimed = Vec::new();
        let mut failure = None;
        for replica_set in all {
            let matches = deployment.selects(&replica_set);
            let outcome = match replica_set.controlled_by() {
                Some(owner) if owner.uid != deployment.uid() => continue,
                Some(_) if matches => Ok(true),
                Some(_) if deployment.is_terminating() => continue,
                Some(_) => {
                    let patch = release_patch(&replica_set, deployment);
                    self.api
                        .patch(Kind::ReplicaSet, &replica_set.key(), patch)
                        .await
                        .map(|_| false)
                }
                None if !matches || deployment.is_terminating() || replica_set.is_terminating() => {
                    continue;
                }
                None => match may_adopt(&self.api, Kind::Deployment, deployment).await {
                    Ok(()) => {
                        let patch = adoption_patch(&replica_set, deployment, Kind::Deployment);
                        self.api
                            .patch(Kind::ReplicaSet, &replica_set.key(), patch)
                            .await
                            .map(|_| true)
                    }
                    Err(refusal) => Err(refusal),
                },
            };
            match outcome {
                Ok(true) => claimed.push(replica_set),
                Ok(false) => {}
                Err(refusal) if refusal.is_not_found() => {}
                Err(refusal) => failure = Some(refusal),
            }
        }
        failure.map_or(Ok(claimed), Err)
    }

    fn pods_of(&self, replica_sets: &[ReplicaSet]) -> Vec<Arc<Object>> {
        let owners: BTreeSet<&str> = replica_sets
            .iter()
            .map(|replica_set| replica_set.uid())
            .collect();
        let cache = self.caches.pods();
        let is_ours = |pod: &Object| {
            pod.controller_uid()
                .is_some_and(|owner| owners.contains(owner))
        };
        cache
            .objects
            .values()
            .filter(|pod| is_ours(pod))
            .cloned()
            .collect()
    }

    /// `checkPausedConditions`
    async fn check_paused_condition(&self, deployment: &mut Object) -> Result<(), Refusal> {
        if !rollout::has_progress_deadline(deployment) {
            return Ok(());
        }
        let reason = deployment
            .condition(PROGRESSING)
            .map(|condition| text_of(condition, "reason").to_owned());
        if reason.as_deref() == Some(TIMED_OUT) {
            return Ok(());
        }
        let says_paused = reason.as_deref() == Some(PAUSED);
        let (reason, message) = match (deployment.is_set("/spec/paused"), says_paused) {
            (true, false) => (PAUSED, "Deployment is paused"),
            (false, true) => ("DeploymentResumed", "Deployment is resumed"),
            (true, true) | (false, false) => return Ok(()),
        };
        self.set_condition(deployment, "Unknown", reason, message);
        self.api
            .update_status(Kind::Deployment, deployment)
            .await
            .map(drop)
    }

    /// Sets the Progressing condition in the object at hand.
    fn set_condition(&self, deployment: &mut Object, status: &str, reason: &str, message: &str) {
        let condition = rollout::new_condition(
            &self.clock.timestamp(),
            PROGRESSING,
            status,
            reason,
            message,
        );
        let mut changed = deployment
            .at("/status")
            .cloned()
            .unwrap_or_else(|| json!({}));
        rollout::set_condition(&mut changed, condition);
        set(deployment.json_mut(), &["status"], changed);
    }

    /// `getAllReplicaSetsAndSyncRevision`
    async fn sets(
        &self,
        deployment: &mut Object,
        replica_sets: &[ReplicaSet],
        if_missing: IfMissing,
    ) -> Result<Sets, Refusal> {
        let current = rollout::find_new(deployment, replica_sets);
        let old = rollout::find_old(current.as_ref(), replica_sets);
        let revision = rollout::max_revision(&old) + 1;
        let new = match (current, if_missing) {
            (Some(current), _) => Some(self.sync_new(deployment, &current, revision).await?),
            (None, IfMissing::Create) => Some(self.create_new(deployment, &old, revision).await?),
            (None, IfMissing::Leave) => None,
        };
        Ok(Sets { new, old })
    }

    /// Brings the annotations of the current ReplicaSet, and with them the Deployment's revision, up to date.
    async fn sync_new(
        &self,
        deployment: &mut Object,
        current: &ReplicaSet,
        revision: i64,
    ) -> Result<ReplicaSet, Refusal> {
        let mut copy = (**current).clone();
        let patience = deployment.number("/spec/minReadySeconds");
        let annotated = rollout::annotate_new(deployment, &mut copy, revision);
        if annotated || copy.number("/spec/minReadySeconds") != patience {
            if patience > 0 {
                set(
                    copy.json_mut(),
                    &["spec", "minReadySeconds"],
                    json!(patience),
                );
            } else {
                remove(copy.json_mut(), &["spec", "minReadySeconds"]);
            }
            return self.api.update(Kind::ReplicaSet, &copy).await;
        }
        let mut changed = set_revision(
            deployment,
            copy.annotation(rollout::REVISION).unwrap_or_default(),
        );
        if rollout::has_progress_deadline(deployment) && deployment.condition(PROGRESSING).is_none()
        {
            let message = format!("Found new replica set \"{}\"", copy.name());
            self.set_condition(deployment, "True", "FoundNewReplicaSet", &message);
            changed = true;
        }
        if changed {
            self.api.update_status(Kind::Deployment, deployment).await?;
        }
        Ok(Arc::new(copy))
    }

    async fn create_new(
        &self,
        deployment: &mut Object,
        old: &[ReplicaSet],
        revision: i64,
    ) -> Result<ReplicaSet, Refusal> {
        let mut new = blank_replica_set(deployment);
        let replicas = rollout::new_replicas(deployment, old, 0);
        set(new.json_mut(), &["spec", "replicas"], json!(replicas));
        rollout::annotate_new(deployment, &mut new, revision);
        rollout::set_sizes(
            &mut new,
            deployment.replicas(),
            deployment.replicas() + rollout::max_surge(deployment),
        );
        let namespace = deployment.namespace().to_owned();
        let (created, existed) = match self
            .api
            .create(Kind::ReplicaSet, &namespace, new.json().clone())
            .await
        {
            Ok(created) => (created, false),
            Err(refusal) if refusal.reason == "AlreadyExists" => {
                (self.take_existing(deployment, &new, refusal).await?, true)
            }
            Err(refusal) => {
                if rollout::has_progress_deadline(deployment) {
                    let message = format!(
                        "Failed to create new replica set \"{}\": {}",
                        new.name(),
                        refusal.message
                    );
                    self.set_condition(deployment, "False", "ReplicaSetCreateError", &message);
                    // The refusal is the bigger issue, as in the real controller.
                    let _ = self.api.update_status(Kind::Deployment, deployment).await;
                }
                return Err(refusal);
            }
        };
        let mut changed = set_revision(deployment, &revision.to_string());
        if !existed && rollout::has_progress_deadline(deployment) {
            let message = format!("Created new replica set \"{}\"", created.name());
            self.set_condition(deployment, "True", "NewReplicaSetCreated", &message);
            changed = true;
        }
        if changed {
            self.api.update_status(Kind::Deployment, deployment).await?;
        }
        Ok(created)
    }

    /// A ReplicaSet with the wanted name is there: ours, seen late, or somebody else's, which counts as a collision.
    async fn take_existing(
        &self,
        deployment: &mut Object,
        new: &Object,
        refusal: Refusal,
    ) -> Result<ReplicaSet, Refusal> {
        let key = Key::new(deployment.namespace(), new.name());
        let known = self.caches.replica_sets().objects.get(&key).cloned();
        let known = known.ok_or_else(|| Refusal::not_found(Kind::ReplicaSet, new.name()))?;
        if known.is_controlled_by(deployment) && rollout::has_same_template(&known, deployment) {
            return Ok(known);
        }
        let collisions = deployment.status("collisionCount") + 1;
        set(
            deployment.json_mut(),
            &["status", "collisionCount"],
            json!(collisions),
        );
        // Either way the collision is what is reported, and the next pass tries another name.
        let _ = self.api.update_status(Kind::Deployment, deployment).await;
        Err(refusal)
    }

    /// `sync`: a paused Deployment, and a scaling one.
    async fn scale_and_tidy(
        &self,
        deployment: &mut Object,
        replica_sets: &[ReplicaSet],
    ) -> Result<(), Refusal> {
        let sets = self
            .sets(deployment, replica_sets, IfMissing::Leave)
            .await?;
        self.scale(deployment, &sets).await?;
        if deployment.is_set("/spec/paused") {
            self.clean_up(deployment, &sets.old).await?;
        }
        self.sync_status(deployment, &sets).await
    }

    async fn scale(&self, deployment: &Object, sets: &Sets) -> Result<(), Refusal> {
        let total = deployment.replicas();
        if let Some(only) = rollout::active_or_latest(sets.new.as_ref(), &sets.old) {
            if only.replicas() != total {
                self.resize(&only, total, deployment, Annotations::WithNumber)
                    .await?;
            }
            return Ok(());
        }
        if rollout::is_saturated(deployment, sets.new.as_ref()) {
            for old in rollout::active(&sets.old) {
                self.resize(&old, 0, deployment, Annotations::WithNumber)
                    .await?;
            }
            return Ok(());
        }
        if !rollout::is_rolling_update(deployment) {
            return Ok(());
        }
        let mut active = rollout::active(&sets.all());
        let allowed = if total > 0 {
            total + rollout::max_surge(deployment)
        } else {
            0
        };
        let to_add = allowed - rollout::wanted(&active);
        if to_add > 0 {
            active.sort_by(|one, other| {
                other
                    .replicas()
                    .cmp(&one.replicas())
                    .then_with(|| rollout::by_creation(other, one))
            });
        } else if to_add < 0 {
            active.sort_by(|one, other| {
                other
                    .replicas()
                    .cmp(&one.replicas())
                    .then_with(|| rollout::by_creation(one, other))
            });
        }
        let mut added = 0;
        let mut sizes = Vec::new();
        for replica_set in &active {
            let share = rollout::proportion(replica_set, deployment, to_add, added);
            added += share;
            sizes.push(replica_set.replicas() + share);
        }
        for (index, (replica_set, size)) in active.iter().zip(sizes).enumerate() {
            let size = if index == 0 && to_add != 0 {
                (size + to_add - added).max(0)
            } else {
                size
            };
            self.resize(replica_set, size, deployment, Annotations::Always)
                .await?;
        }
        Ok(())
    }

    /// `scaleReplicaSet`; the ReplicaSet as written, if it was.
    async fn resize(
        &self,
        replica_set: &ReplicaSet,
        size: i64,
        deployment: &Object,
        annotations: Annotations,
    ) -> Result<Option<ReplicaSet>, Refusal> {
        let resizes = replica_set.replicas() != size;
        let (desired, most) = (
            deployment.replicas(),
            deployment.replicas() + rollout::max_surge(deployment),
        );
        let writes = match annotations {
            Annotations::WithNumber => resizes,
            Annotations::Always => resizes || rollout::sizes_differ(replica_set, desired, most),
        };
        if !writes {
            return Ok(None);
        }
        let mut copy = (**replica_set).clone();
        set(copy.json_mut(), &["spec", "replicas"], json!(size));
        rollout::set_sizes(&mut copy, desired, most);
        self.api.update(Kind::ReplicaSet, &copy).await.map(Some)
    }

    /// `cleanupDeployment`: also of a paused Deployment (design, fact 18).
    async fn clean_up(&self, deployment: &Object, old: &[ReplicaSet]) -> Result<(), Refusal> {
        let Some(limit) = rollout::history_limit(deployment) else {
            return Ok(());
        };
        let mut candidates: Vec<ReplicaSet> = old
            .iter()
            .filter(|replica_set| !replica_set.is_terminating())
            .cloned()
            .collect();
        candidates.sort_by(|one, other| rollout::by_revision(one, other));
        candidates.truncate(candidates.len().saturating_sub(limit));
        for replica_set in candidates {
            let empty = replica_set.status("replicas") == 0 && replica_set.replicas() == 0;
            if !empty || !replica_set.is_observed() {
                continue;
            }
            match self
                .api
                .delete(Kind::ReplicaSet, &replica_set.key(), Deletion::default())
                .await
            {
                Ok(_) => {}
                Err(refusal) if refusal.is_not_found() => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(())
    }

    /// `isScalingEvent`
    async fn is_scaling(
        &self,
        deployment: &mut Object,
        replica_sets: &[ReplicaSet],
    ) -> Result<bool, Refusal> {
        let sets = self
            .sets(deployment, replica_sets, IfMissing::Leave)
            .await?;
        Ok(rollout::active(&sets.all()).iter().any(|replica_set| {
            replica_set
                .annotation(rollout::DESIRED_REPLICAS)
                .and_then(|text| text.parse::<i64>().ok())
                .is_some_and(|desired| desired != deployment.replicas())
        }))
    }

    /// `rolloutRolling`
    async fn roll(
        &self,
        deployment: &mut Object,
        replica_sets: &[ReplicaSet],
    ) -> Result<(), Refusal> {
        let sets = self
            .sets(deployment, replica_sets, IfMissing::Create)
            .await?;
        let Some(new) = sets.new.clone() else {
            return Ok(());
        };
        if self.grow_new(deployment, &sets, &new).await?
            || self.shrink_old(deployment, &sets, &new).await
        {
            return self.sync_rollout_status(deployment, &sets).await;
        }
        self.clean_up_when_complete(deployment, &sets).await?;
        self.sync_rollout_status(deployment, &sets).await
    }

    async fn clean_up_when_complete(
        &self,
        deployment: &Object,
        sets: &Sets,
    ) -> Result<(), Refusal> {
        let status = deployment.at("/status").cloned().unwrap_or_default();
        if rollout::is_complete(deployment, &status) {
            self.clean_up(deployment, &sets.old).await?;
        }
        Ok(())
    }

    async fn grow_new(
        &self,
        deployment: &Object,
        sets: &Sets,
        new: &ReplicaSet,
    ) -> Result<bool, Refusal> {
        let size = if new.replicas() > deployment.replicas() {
            deployment.replicas()
        } else {
            rollout::new_replicas(deployment, &sets.all(), new.replicas())
        };
        Ok(self
            .resize(new, size, deployment, Annotations::WithNumber)
            .await?
            .is_some())
    }

    /// `reconcileOldReplicaSets`; a refusal counts as nothing done, as it does there.
    async fn shrink_old(&self, deployment: &Object, sets: &Sets, new: &ReplicaSet) -> bool {
        let mut old = rollout::active(&sets.old);
        if rollout::wanted(&old) == 0 {
            return false;
        }
        let least = deployment.replicas() - rollout::max_unavailable(deployment);
        let unavailable = new.replicas() - new.status("availableReplicas");
        let most = rollout::wanted(&sets.all()) - least - unavailable;
        if most <= 0 {
            return false;
        }
        old.sort_by(|one, other| rollout::by_creation(one, other));
        let Ok(unhealthy) = self.drop_unhealthy(deployment, &mut old, most).await else {
            return false;
        };
        let available =
            rollout::reported(&old, "availableReplicas") + new.status("availableReplicas");
        let mut room = available - least;
        let mut healthy = 0;
        for replica_set in &old {
            let count = replica_set.replicas().min(room);
            if count <= 0 {
                continue;
            }
            let size = replica_set.replicas() - count;
            if self
                .resize(replica_set, size, deployment, Annotations::WithNumber)
                .await
                .is_err()
            {
                return false;
            }
            room -= count;
            healthy += count;
        }
        unhealthy + healthy > 0
    }

    /// `cleanupUnhealthyReplicas`
    async fn drop_unhealthy(
        &self,
        deployment: &Object,
        old: &mut [ReplicaSet],
        most: i64,
    ) -> Result<i64, Refusal> {
        let mut dropped = 0;
        for replica_set in old.iter_mut() {
            let unhealthy = replica_set.replicas() - replica_set.status("availableReplicas");
            let count = unhealthy.min(most - dropped);
            if count == 0 || replica_set.replicas() == 0 || dropped >= most {
                continue;
            }
            let size = replica_set.replicas() - count;
            if size > replica_set.replicas() {
                return Err(Refusal::bad_request("invalid request to scale down"));
            }
            if let Some(written) = self
                .resize(replica_set, size, deployment, Annotations::WithNumber)
                .await?
            {
                *replica_set = written;
            }
            dropped += count;
        }
        Ok(dropped)
    }

    /// `rolloutRecreate`
    async fn recreate(
        &self,
        deployment: &mut Object,
        replica_sets: &[ReplicaSet],
        pods: &[Arc<Object>],
    ) -> Result<(), Refusal> {
        let mut sets = self
            .sets(deployment, replica_sets, IfMissing::Leave)
            .await?;
        let active = rollout::active(&sets.old);
        for old in &active {
            self.resize(old, 0, deployment, Annotations::WithNumber)
                .await?;
        }
        let is_old = |pod: &Object| {
            let new = sets.new.as_ref().map(|new| new.uid());
            pod.controller().map(|owner| owner.uid).as_deref() != new
                && !matches!(pod.text("/status/phase"), "Succeeded" | "Failed")
        };
        let old_runs =
            rollout::reported(&sets.old, "replicas") > 0 || pods.iter().any(|pod| is_old(pod));
        if !active.is_empty() || old_runs {
            return self.sync_rollout_status(deployment, &sets).await;
        }
        if sets.new.is_none() {
            sets = self
                .sets(deployment, replica_sets, IfMissing::Create)
                .await?;
        }
        if let Some(new) = &sets.new {
            self.resize(
                new,
                deployment.replicas(),
                deployment,
                Annotations::WithNumber,
            )
            .await?;
        }
        self.clean_up_when_complete(deployment, &sets).await?;
        self.sync_rollout_status(deployment, &sets).await
    }

    /// `syncDeploymentStatus`
    async fn sync_status(&self, deployment: &mut Object, sets: &Sets) -> Result<(), Refusal> {
        let status = self.status(deployment, sets);
        self.write_status(deployment, status).await.map(drop)
    }

    /// Writes a status that differs; whether it did.
    async fn write_status(&self, deployment: &mut Object, status: Value) -> Result<bool, Refusal> {
        if deployment
            .at("/status")
            .cloned()
            .unwrap_or_else(|| json!({}))
            == status
        {
            return Ok(false);
        }
        set(deployment.json_mut(), &["status"], status);
        self.api
            .update_status(Kind::Deployment, deployment)
            .await
            .map(|_| true)
    }

    /// `calculateStatus`
    fn status(&self, deployment: &Object, sets: &Sets) -> Value {
        let all = sets.all();
        let available = rollout::reported(&all, "availableReplicas");
        let updated = sets.new.as_ref().map_or(0, |new| new.status("replicas"));
        let mut fields = Map::new();
        for (name, count) in [
            ("observedGeneration", deployment.generation()),
            ("replicas", rollout::reported(&all, "replicas")),
            ("updatedReplicas", updated),
            ("readyReplicas", rollout::reported(&all, "readyReplicas")),
            ("availableReplicas", available),
            (
                "unavailableReplicas",
                (rollout::wanted(&all) - available).max(0),
            ),
        ] {
            if count != 0 {
                fields.insert(name.to_owned(), json!(count));
            }
        }
        if let Some(collisions) = deployment.at("/status/collisionCount") {
            fields.insert("collisionCount".to_owned(), collisions.clone());
        }
        if let Some(terminating) = terminating(&all) {
            fields.insert("terminatingReplicas".to_owned(), json!(terminating));
        }
        if let Some(conditions) = deployment.at("/status/conditions") {
            fields.insert("conditions".to_owned(), conditions.clone());
        }
        let mut status = Value::Object(fields);
        let enough = available >= deployment.replicas() - rollout::max_unavailable(deployment);
        let (value, reason, message) = if enough {
            (
                "True",
                "MinimumReplicasAvailable",
                "Deployment has minimum availability.",
            )
        } else {
            (
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
            )
        };
        let now = self.clock.timestamp();
        rollout::set_condition(
            &mut status,
            rollout::new_condition(&now, "Available", value, reason, message),
        );
        status
    }

    /// `syncRolloutStatus`
    async fn sync_rollout_status(
        &self,
        deployment: &mut Object,
        sets: &Sets,
    ) -> Result<(), Refusal> {
        let mut status = self.status(deployment, sets);
        let with_deadline = rollout::has_progress_deadline(deployment);
        if !with_deadline {
            rollout::remove_condition(&mut status, PROGRESSING);
        }
        let current = deployment.condition(PROGRESSING).cloned();
        let number = |field: &str| {
            status
                .get(field)
                .and_then(Value::as_i64)
                .unwrap_or_default()
        };
        let was_complete = number("replicas") == number("updatedReplicas")
            && current
                .as_ref()
                .is_some_and(|current| text_of(current, "reason") == NEW_AVAILABLE);
        if with_deadline && !was_complete {
            self.judge_progress(deployment, sets, current.as_ref(), &mut status);
        }
        match failure(sets) {
            Some(condition) => rollout::set_condition(&mut status, condition),
            None => rollout::remove_condition(&mut status, "ReplicaFailure"),
        }
        if !self.write_status(deployment, status.clone()).await? {
            self.look_again_at_deadline(deployment, &status);
        }
        Ok(())
    }

    fn judge_progress(
        &self,
        deployment: &Object,
        sets: &Sets,
        current: Option<&Value>,
        status: &mut Value,
    ) {
        let who = sets.new.as_ref().map_or_else(
            || format!("Deployment \"{}\"", deployment.name()),
            |new| format!("ReplicaSet \"{}\"", new.name()),
        );
        let now = self.clock.timestamp();
        let condition = |value: &str, reason: &str, what: &str| {
            rollout::new_condition(&now, PROGRESSING, value, reason, &format!("{who} {what}."))
        };
        if rollout::is_complete(deployment, status) {
            rollout::set_condition(
                status,
                condition("True", NEW_AVAILABLE, "has successfully progressed"),
            );
        } else if rollout::is_progressing(deployment, status) {
            let mut condition = condition("True", "ReplicaSetUpdated", "is progressing");
            if let Some(current) = current {
                if text_of(current, "status") == "True" {
                    let since = json!(text_of(current, "lastTransitionTime"));
                    condition.insert("lastTransitionTime".to_owned(), since);
                }
                rollout::remove_condition(status, PROGRESSING);
            }
            rollout::set_condition(status, condition);
        } else if self.has_timed_out(deployment, status) {
            rollout::set_condition(
                status,
                condition("False", TIMED_OUT, "has timed out progressing"),
            );
        }
    }

    fn has_timed_out(&self, deployment: &Object, status: &Value) -> bool {
        let Some(condition) = rollout::condition(status, PROGRESSING) else {
            return false;
        };
        match text_of(condition, "reason") {
            NEW_AVAILABLE => false,
            TIMED_OUT => true,
            _ => seconds_of(text_of(condition, "lastUpdateTime")).is_some_and(|since| {
                since + deployment.number("/spec/progressDeadlineSeconds") < self.clock.seconds()
            }),
        }
    }

    /// `requeueStuckDeployment`
    fn look_again_at_deadline(&self, deployment: &Object, status: &Value) {
        let Some(condition) = deployment.condition(PROGRESSING) else {
            return;
        };
        if !rollout::has_progress_deadline(deployment)
            || rollout::is_complete(deployment, status)
            || text_of(condition, "reason") == TIMED_OUT
        {
            return;
        }
        let Some(since) = seconds_of(text_of(condition, "lastUpdateTime")) else {
            return;
        };
        let left =
            since + deployment.number("/spec/progressDeadlineSeconds") - self.clock.seconds();
        match u64::try_from(left) {
            Ok(left @ 1..) => self
                .queue
                .add_after(deployment.key(), Duration::from_secs(left + 1)),
            Ok(0) | Err(_) => self.queue.retry(deployment.key()),
        }
    }
}

/// Terminating pods of all ReplicaSets; nothing when one that has been seen does not say.
fn terminating(all: &[ReplicaSet]) -> Option<i64> {
    let mut sum = 0;
    for replica_set in all {
        match replica_set
            .at("/status/terminatingReplicas")
            .and_then(Value::as_i64)
        {
            Some(count) => sum += count,
            None if replica_set.observed_generation() == 0 => {}
            None => return None,
        }
    }
    Some(sum)
}

/// The failure that a ReplicaSet reports, the current one's first.
fn failure(sets: &Sets) -> Option<Map<String, Value>> {
    let first = sets
        .new
        .iter()
        .chain(sets.all().iter())
        .find_map(|set| set.condition("ReplicaFailure").cloned())?;
    let mut condition = first.as_object().cloned()?;
    if let Some(since) = condition.get("lastTransitionTime").cloned() {
        condition.insert("lastUpdateTime".to_owned(), since);
    }
    Some(condition)
}

fn set_revision(deployment: &mut Object, revision: &str) -> bool {
    let differs = deployment.annotation(rollout::REVISION).unwrap_or_default() != revision;
    if differs {
        rollout::annotate(deployment, rollout::REVISION, revision);
    }
    differs
}

/// The ReplicaSet that the controller would create, without replicas and annotations.
fn blank_replica_set(deployment: &Object) -> Object {
    let mut template = deployment.at("/spec/template").cloned().unwrap_or_default();
    let hash = template_hash(
        &template,
        deployment
            .at("/status/collisionCount")
            .and_then(Value::as_u64),
    );
    set(
        &mut template,
        &["metadata", "labels", "pod-template-hash"],
        json!(hash),
    );
    let mut selector = deployment.at("/spec/selector").cloned().unwrap_or_default();
    set(
        &mut selector,
        &["matchLabels", "pod-template-hash"],
        json!(hash),
    );
    let labels = template
        .pointer("/metadata/labels")
        .cloned()
        .unwrap_or_default();
    let mut object = json!({
        "metadata": {
            "name": format!("{}-{hash}", deployment.name()),
            "namespace": deployment.namespace(),
            "labels": labels,
            "ownerReferences": [{
                "apiVersion": Kind::Deployment.api_version(),
                "kind": Kind::Deployment.name(),
                "name": deployment.name(),
                "uid": deployment.uid(),
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": {"replicas": 0, "selector": selector, "template": template},
    });
    if let Some(patience) = deployment.at("/spec/minReadySeconds") {
        set(&mut object, &["spec", "minReadySeconds"], patience.clone());
    }
    Object::new(object)
}

/// A hash of a template as it stands in names; the real one's value is not promised by anybody.
fn template_hash(template: &Value, collisions: Option<u64>) -> String {
    let text = template.to_string();
    let start = collisions.map_or(0, |count| count.wrapping_add(1));
    let mut hash = text
        .bytes()
        .fold(start, |hash, byte| scramble(hash ^ u64::from(byte)));
    (0..10)
        .map(|_| {
            hash = scramble(hash);
            letter(hash)
        })
        .collect()
}
