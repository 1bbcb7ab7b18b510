//! Destroys everything in a pool except its root, leaves first.

#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use cenote_engine::Engine;
use cenote_tasks::InUse;

pub async fn everything(engine: &Engine) {
    loop {
        let (mut gone, mut left) = (0, Vec::new());
        for victim in victims(engine).await {
            for tag in &victim.holds {
                cenote_tasks::release_snapshots(engine, std::slice::from_ref(&victim.name), tag)
                    .await
                    .unwrap();
            }
            let done = match victim.name.contains('@') {
                true => cenote_tasks::destroy_snapshots(engine, &[victim.name], InUse::Refuse).await,
                false => cenote_tasks::destroy_dataset(engine, &victim.name).await,
            };
            match done {
                Ok(()) => gone += 1,
                Err(error) => left.push(error.to_string()),
            }
        }
        if gone == 0 {
            // Damage and logs prevent some.
            left.iter().for_each(|why| println!("not destroyed: {why}"));
            engine.frees().finish().await.unwrap();
            return;
        }
    }
}

struct Victim {
    name: String,
    holds: Vec<String>,
}

/// All datasets, listed before any change: the blocks of an older state are soon overwritten.
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
