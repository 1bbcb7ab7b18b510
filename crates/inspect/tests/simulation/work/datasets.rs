//! Changes of datasets: each is on disk when it returns.

use super::*;

const MAX_HEADS: usize = 6;
const MAX_SNAPSHOTS: usize = 8;
const VOLUME_BYTES: u64 = 256 << 10;
const VOLUME_BLOCK_BYTES: u32 = 8 << 10;

impl Worker {
    pub(super) async fn change_datasets(&mut self) {
        let (earliest, before) = (self.open_group().await, self.world.clone());
        let pick = self.rng.below(self.world.heads.len() as u64) as usize;
        let head = self.world.heads.keys().nth(pick).unwrap().clone();
        let snapshot = self.any_snapshot();
        let has_room = self.world.heads.len() < MAX_HEADS;
        match (self.rng.below(8), snapshot) {
            (0, _) if has_room => self.make_files().await,
            (1, _) if has_room => self.make_volume().await,
            (2, Some(snapshot)) if has_room => self.clone_snapshot(&snapshot).await,
            (3, Some(snapshot)) => self.destroy_snapshot(&snapshot).await,
            (4, _) => self.destroy(&head).await,
            (5, _) => self.rename_head(&head).await,
            (6, _) => self.roll_back(&head).await,
            _ => self.take_snapshots().await,
        }
        if self.world != before {
            let latest = Txg(self.open_group().await.0 - 1);
            self.history.note(earliest, latest, &self.world);
            acknowledge(&self.disks, &self.acks, self.history.last());
        }
    }

    fn any_snapshot(&mut self) -> Option<String> {
        let pick = self.rng.below(self.world.snapshots.len() as u64) as usize;
        self.world.snapshots.keys().nth(pick).cloned()
    }

    fn new_name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{:08}", self.names)
    }

    async fn make_files(&mut self) {
        let name = self.new_name(&format!("{POOL}/f"));
        let now = now(&self.rt);
        let fill = Box::new(move |live| -> futures::future::BoxFuture<'static, _> {
            Box::pin(fill(live, now, FsOptions::default()))
        });
        cenote_tasks::create_filesystem(&self.engine, &name, Vec::new(), fill).await.unwrap();
        let Writer::Files(fs) = ({
            self.world.heads.insert(name.clone(), Content::Files(Arc::default()));
            self.writer(&name).await
        }) else {
            unreachable!("it is a file system")
        };
        self.world.heads.insert(name, empty_files(fs.root()));
    }

    async fn make_volume(&mut self) {
        let name = self.new_name(&format!("{POOL}/v"));
        let fill = Box::new(move |live: cenote_object::LiveObjset| {
            let filling: futures::future::BoxFuture<'static, Result<()>> = Box::pin(async move {
                let edit = live.edit();
                VolumeWriter::create(live.clone(), &edit, VOLUME_BYTES, VOLUME_BLOCK_BYTES).await.unwrap();
                Ok(())
            });
            filling
        });
        cenote_tasks::create_volume(&self.engine, &name, Vec::new(), fill).await.unwrap();
        self.world.heads.insert(name, Content::Volume(Arc::new(vec![0; VOLUME_BYTES as usize])));
    }

    async fn take_snapshots(&mut self) {
        if self.world.snapshots.len() >= MAX_SNAPSHOTS {
            return;
        }
        let own = self.new_name("s");
        let heads: Vec<String> =
            self.world.heads.keys().filter(|_| self.rng.below(2) == 0).cloned().collect();
        let names: Vec<String> = heads.iter().map(|head| format!("{head}@{own}")).collect();
        cenote_tasks::snapshot(&self.engine, &names).await.unwrap();
        for (head, name) in heads.into_iter().zip(names) {
            self.world.snapshots.insert(name, self.world.heads[&head].clone());
        }
    }

    async fn clone_snapshot(&mut self, origin: &str) {
        let name = self.new_name(&format!("{POOL}/c"));
        cenote_tasks::clone_snapshot(&self.engine, origin, &name, Vec::new()).await.unwrap();
        self.world.heads.insert(name.clone(), self.world.snapshots[origin].clone());
        self.world.origins.insert(name, origin.to_owned());
    }

    fn is_origin(&self, snapshot: &str) -> bool {
        self.world.origins.values().any(|origin| origin == snapshot)
    }

    async fn destroy_snapshot(&mut self, name: &str) {
        if self.is_origin(name) {
            return;
        }
        cenote_tasks::destroy_snapshots(&self.engine, &[name.to_owned()], InUse::Refuse).await.unwrap();
        self.world.snapshots.remove(name);
    }

    fn snapshots_of(&self, head: &str) -> Vec<String> {
        let prefix = format!("{head}@");
        self.world.snapshots.keys().filter(|name| name.starts_with(&prefix)).cloned().collect()
    }

    async fn close(&mut self, head: &str) {
        self.unlinked.retain(|(of, _)| of != head);
        self.writers.remove(head);
    }

    async fn destroy(&mut self, head: &str) {
        if head == POOL || !self.snapshots_of(head).is_empty() {
            return;
        }
        self.close(head).await;
        cenote_tasks::destroy_dataset(&self.engine, head).await.unwrap();
        self.world.heads.remove(head);
        self.world.origins.remove(head);
    }

    async fn rename_head(&mut self, head: &str) {
        if head == POOL {
            return;
        }
        let to = self.new_name(&format!("{POOL}/r"));
        cenote_tasks::rename(&self.engine, head, &to).await.unwrap();
        let content = self.world.heads.remove(head).unwrap();
        self.world.heads.insert(to.clone(), content);
        for name in self.snapshots_of(head) {
            let content = self.world.snapshots.remove(&name).unwrap();
            let renamed = name.replacen(head, &to, 1);
            self.world.origins.values_mut().filter(|origin| **origin == name).for_each(|origin| {
                origin.clone_from(&renamed);
            });
            self.world.snapshots.insert(renamed, content);
        }
        if let Some(origin) = self.world.origins.remove(head) {
            self.world.origins.insert(to.clone(), origin);
        }
        if let Some(writer) = self.writers.remove(head) {
            self.writers.insert(to.clone(), writer);
        }
        self.unlinked.iter_mut().filter(|(of, _)| of == head).for_each(|(of, _)| of.clone_from(&to));
    }

    /// Rolls back to the last snapshot: names of snapshots sort by age.
    async fn roll_back(&mut self, head: &str) {
        let Some(snapshot) = self.snapshots_of(head).pop() else { return };
        self.close(head).await;
        cenote_tasks::rollback(&self.engine, &snapshot).await.unwrap();
        self.world.heads.insert(head.to_owned(), self.world.snapshots[&snapshot].clone());
    }
}
