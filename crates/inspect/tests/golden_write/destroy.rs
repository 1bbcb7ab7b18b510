//! Destroys all that a pool holds but its root, leaves first.

use cenote_dataset::dsl::InUse;
use cenote_dataset::engine::Engine;

pub async fn everything(engine: &Engine) {
    loop {
        let (mut gone, mut left) = (0, Vec::new());
        for victim in victims(engine).await {
            for tag in &victim.holds {
                engine.release_snapshots(std::slice::from_ref(&victim.name), tag).await.unwrap();
            }
            let done = match victim.name.contains('@') {
                true => engine.destroy_snapshots(&[victim.name], InUse::Refuse).await,
                false => engine.destroy_dataset(&victim.name).await,
            };
            match done {
                Ok(()) => gone += 1,
                Err(error) => left.push(error.to_string()),
            }
        }
        if gone == 0 {
            // Damage and logs keep some.
            left.iter().for_each(|why| println!("not destroyed: {why}"));
            engine.finish_freeing().await.unwrap();
            return;
        }
    }
}

struct Victim {
    name: String,
    holds: Vec<String>,
}

/// All datasets, noted before anything is changed: what an older state of the pool refers to is soon overwritten.
async fn victims(engine: &Engine) -> Vec<Victim> {
    let mos = engine.mos().await.unwrap();
    let mut victims = Vec::new();
    for dataset in mos.all_datasets().await.unwrap() {
        for snapshot in dataset.snapshots().await.unwrap() {
            let holds = snapshot.holds().await.unwrap().into_iter().map(|(tag, _)| tag).collect();
            victims.push(Victim { name: snapshot.name().into(), holds });
        }
        if dataset.name() != mos.pool().name() {
            victims.push(Victim { name: dataset.name().into(), holds: Vec::new() });
        }
    }
    victims
}
