use crate::scene::Trials;
pub fn register(_trials: &mut Trials) {}
