//! Each story with the daemon killed at each of its writes, and with each of its writes applied but never answered: the
//! same end, and the same pods started (promise 5).

use std::sync::{Arc, Mutex};

use volery::simulate::cluster::Fault;

use super::stories::{Story, for_every_story, starts, weathers};
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
        *undisturbed.lock().unwrap() = Some((world.writes().0, starts(&world), world.tellings()));
    });
    let (writes, expected, tellings) = undisturbed.lock().unwrap().clone().unwrap();
    let one_in = match std::env::var("VOLERY_SWEEP").as_deref() {
        Ok("all") => 1,
        _ if weather == 0
            && matches!(
                story.name,
                "promoted"
                    | "fails at the second step"
                    | "frozen at the second step and fixed"
                    | "a fix overtaken by another"
            ) =>
        {
            1
        }
        _ => ONE_IN,
    };
    for write in 1..=u64::try_from(writes).unwrap() {
        if write % one_in != u64::try_from(story.name.len()).unwrap() % one_in {
            continue;
        }
        in_virtual_time(|| async {
            let world = struck(story, weather, blow, write).await;
            let found = starts(&world);
            if found != expected && !story.starts.is_empty() {
                world.fail(&format!(
                    "{}, {blow:?} at write {write}: pods started {found:?}, undisturbed {expected:?}",
                    story.name
                ));
            }
            // A blow may cost an Event, but nothing is told a second time as if it were something else: there are no more
            // different things than were told without it. Where a blow may change what happens, it may change what is told.
            if story.starts.is_empty() {
                return;
            }
            for (reason, count) in world.told() {
                if count > tellings.get(&reason).copied().unwrap_or_default() {
                    world.fail(&format!(
                        "{}, {blow:?} at write {write}: {reason} was told {count} times: {:#?}",
                        story.name,
                        world.events()
                    ));
                }
            }
        });
    }
    println!(
        "{}: {blow:?} at one in {one_in} of {writes} writes",
        story.name
    );
}

/// The sweep takes every write of the stories that go through everything, and of the others one in
/// this many; every one with `VOLERY_SWEEP=all`.
const ONE_IN: u64 = 8;

macro_rules! sweeps {
    ($($test:ident: $story:literal,)*) => {
        $(
            mod $test {
                use super::{Blow, Story, sweep};

                #[test]
                fn killed_at_any_write() {
                    sweep(Story::by_name($story), 0, Blow::Dies);
                }

                #[test]
                fn killed_at_any_write_while_the_watches_are_late() {
                    sweep(Story::by_name($story), 3, Blow::Dies);
                }

                #[test]
                fn any_write_unanswered() {
                    sweep(Story::by_name($story), 0, Blow::Unanswered);
                }
            }
        )*
    };
}

for_every_story!(sweeps);
