//! The agent with its rules.

use std::time::Duration;

use cenote_world::client::agent;
use cenote_world::less::AGENT;
use cenote_world::machine::POOL;

use super::on_a_stage;

#[test]
fn the_agent_scrubs_and_trims() {
    on_a_stage(1, async |stage| {
        let clients = async {
            stage.runtime.sleep(Duration::from_secs(30)).await;
            stage.scene.rest(true);
        };
        let look = Duration::from_millis(200);
        futures::future::join(agent::run(stage, look), clients).await;
        let pool = stage.daemon.pools.get(POOL).unwrap();
        let scan = pool.engine.mos().await.unwrap().scan_status().await.unwrap().unwrap();
        assert!(scan.end_time_s > 0 && scan.errors == 0, "{scan:?}");
        let record = stage.scene.record();
        let of_agent: Vec<_> = record.lives[0].calls.values().filter(|made| made.client == AGENT).collect();
        for verb in ["scrub", "trim"] {
            let is_done = |made: &&&cenote_world::record::Made| {
                made.verb == verb && made.end.as_ref().is_some_and(|(_, how)| how == "Done")
            };
            assert!(of_agent.iter().find(is_done).is_some(), "{verb}: {of_agent:?}");
        }
    });
}
