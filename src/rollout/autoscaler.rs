//! Autoscalers that stand in a rollout's way (cases K19, K36). One on X is welcome: R is its to say.

use super::action::CloneRole;
use super::plan::Event;

/// A HorizontalPodAutoscaler of a Deployment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Autoscaler {
    /// Its name.
    pub name: String,
    /// The name of the Deployment that it scales.
    pub target: String,
}

/// What is to be told about the autoscalers of X's namespace.
///
/// One on a clone is set back for as long as the rollout is open. Two that count the same pods stand still, both: X and the
/// clones have one selector, and Kubernetes calls it ambiguous (kubernetes#112011).
pub fn conflicts(deployment: &str, autoscalers: &[Autoscaler]) -> Vec<Event> {
    let clones = [CloneRole::Primary, CloneRole::Canary].map(|clone| clone.name(deployment));
    let is_clone = |autoscaler: &&Autoscaler| clones.contains(&autoscaler.target);
    let mut ours: Vec<&Autoscaler> = autoscalers
        .iter()
        .filter(|autoscaler| autoscaler.target == deployment || is_clone(autoscaler))
        .collect();
    ours.sort();
    let on_clones = ours
        .iter()
        .filter(|autoscaler| is_clone(autoscaler))
        .map(|autoscaler| Event::AutoscalerOfClone {
            autoscaler: autoscaler.name.clone(),
            clone: autoscaler.target.clone(),
            deployment: deployment.to_owned(),
        });
    let same_pods = (ours.len() > 1).then(|| Event::AutoscalersOfSamePods {
        autoscalers: ours
            .iter()
            .map(|autoscaler| autoscaler.name.clone())
            .collect(),
        deployment: deployment.to_owned(),
    });
    on_clones.chain(same_pods).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(targets: &[(&str, &str)]) -> Vec<String> {
        let autoscalers: Vec<Autoscaler> = targets
            .iter()
            .map(|(name, target)| Autoscaler {
                name: (*name).to_owned(),
                target: (*target).to_owned(),
            })
            .collect();
        conflicts("orders", &autoscalers)
            .iter()
            .map(Event::to_string)
            .collect()
    }

    #[test]
    fn one_autoscaler_of_the_deployment_and_those_of_others_are_welcome() {
        assert_eq!(told(&[]), Vec::<String>::new());
        assert_eq!(
            told(&[
                ("a", "orders"),
                ("b", "invoices"),
                ("c", "invoices-canary"),
                ("d", "orders-canary-2"),
            ]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn an_autoscaler_of_a_clone_and_two_of_the_same_pods_are_told() {
        assert_eq!(
            told(&[("a", "orders-canary")]),
            [
                "HorizontalPodAutoscaler a targets orders-canary, which exists only while a rollout is open, with the number \
                 that its steps say; let it target deploy/orders, whose number both clones follow"
            ]
        );
        assert_eq!(
            told(&[("b", "orders"), ("a", "orders")]),
            [
                "HorizontalPodAutoscalers a and b count the same pods, those of orders, and Kubernetes follows none of them \
                 (AmbiguousSelector); keep one, on deploy/orders"
            ]
        );
        assert_eq!(told(&[("a", "orders"), ("b", "orders-primary")]).len(), 2);
    }
}
