//! Each story with the daemon killed at each of its writes, and with each of its writes applied but never answered: the
//! same end, and the same pods started (promise 5).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use volery::simulate::cluster::Fault;

use super::stories::{STORIES, Story, starts, weathers};
use super::world::{AGENT, Deaths, World, in_virtual_time};

/// How a write goes wrong.
#[derive(Clone, Copy, Debug)]
enum Blow {
    /// It is applied, and the daemon dies before the answer.
    Dies,
    /// It is applied, and the answer never comes.
    Unanswered,
}

async fn struck(story: &Story, weather: usize, blow: Blow, write: u64) -> World {
    let weather = &weathers()[weather].1;
    match blow {
        Blow::Dies => story.tell(weather, vec![write]).await,
        Blow::Unanswered => {
            let world = story.begin(weather, Deaths::new()).await;
            let count = Arc::new(Mutex::new(0));
            world.cluster.intercept(move |request| {
                let mut count = count.lock().unwrap();
                if request.agent == AGENT && request.verb.writes() {
                    *count += 1;
                    if *count == write {
                        return Fault::ApplyThenHang;
                    }
                }
                Fault::None
            });
            story.go_on(&world).await;
            world
        }
    }
}

/// How many writes the daemon makes in a story nobody disturbs, and which pods start.
fn sweep(story: &Story, weather: usize, blow: Blow) {
    let undisturbed = Arc::new(Mutex::new(None));
    in_virtual_time(|| async {
        let world = story.tell(&weathers()[weather].1, Deaths::new()).await;
        *undisturbed.lock().unwrap() = Some((world.writes().0, starts(&world)));
    });
    let (writes, expected) = undisturbed.lock().unwrap().clone().unwrap();
    for write in 1..=u64::try_from(writes).unwrap() {
        in_virtual_time(|| async {
            let world = struck(story, weather, blow, write).await;
            let found = starts(&world);
            if found != expected && !story.starts.is_empty() {
                world.fail(&format!(
                    "{}, {blow:?} at write {write}: pods started {found:?}, undisturbed {expected:?}",
                    story.name
                ));
            }
        });
    }
    println!("{}: {blow:?} at each of {writes} writes", story.name);
}

#[test]
fn killed_at_any_write_a_story_ends_as_if_nothing_had_happened() {
    let only = std::env::var("VOLERY_STORY").ok();
    for story in STORIES {
        if only.as_deref().is_none_or(|only| only == story.name) {
            sweep(story, 0, Blow::Dies);
        }
    }
}

#[test]
fn with_any_write_unanswered_a_story_ends_as_if_nothing_had_happened() {
    let only = std::env::var("VOLERY_STORY").ok();
    for story in STORIES {
        if only.as_deref().is_none_or(|only| only == story.name) {
            sweep(story, 0, Blow::Unanswered);
        }
    }
}
