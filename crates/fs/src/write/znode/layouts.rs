//! The file system's attribute registry and layout table, as they grow.
//!
//! Idea: nearly all files use one of a few layouts. A new layout is written once, under the next number, and
//! known from then on. If the tables of an older file system lack attributes, these are registered with the
//! first new layout.
//!
//! Source: OpenZFS `sa.c` (`sa_add_layout_entry`, `sa_attr_register_sync`).

use bytes::Bytes;
use cenote_format::dnode::ObjectType;
use cenote_format::units::ObjectId;
use cenote_object::{Edit, NewZap, ZapEdit, ZapValue};

use super::Znodes;
use crate::error::{FsError, Result};

impl Znodes {
    /// The number of the layout with exactly these attributes, in this order.
    pub(super) async fn layout(&self, edit: &Edit, attributes: &[u16]) -> Result<u16> {
        if let Some(number) = self.registry().find_layout(attributes) {
            return Ok(number);
        }
        let mut unregistered = self.unregistered.lock().await;
        let mut registry = (*self.registry()).clone();
        if let Some(number) = registry.find_layout(attributes) {
            return Ok(number);
        }
        let table = self.sa_table(edit, "REGISTRY", ObjectType::SA_ATTR_REGISTRATION).await?;
        for attr in unregistered.drain(..) {
            if let Some(number) = registry.number_of(attr) {
                ZapEdit::new(edit, table).update(attr.name(), attr.registration(number)).await?;
            }
        }
        let number = registry.next_layout();
        let words: Vec<u64> = attributes.iter().map(|&number| number.into()).collect();
        registry
            .add_layout(number, &words)
            .map_err(|source| FsError::Format { object: self.master.root, source })?;
        let table = self.sa_table(edit, "LAYOUTS", ObjectType::SA_ATTR_LAYOUTS).await?;
        let raw: Bytes = attributes.iter().flat_map(|number| number.to_be_bytes()).collect();
        ZapEdit::new(edit, table).update(&number.to_string(), ZapValue::new(2, raw)).await?;
        *self.registry.write() = registry.into();
        Ok(number)
    }

    /// One of the two tables, created on first use.
    async fn sa_table(&self, edit: &Edit, name: &str, object_type: ObjectType) -> Result<ObjectId> {
        let master = self.master.sa_attrs.ok_or(FsError::MasterNode { name: "SA_ATTRS" })?;
        let tables = ZapEdit::new(edit, master);
        if let Some(id) = tables.get(name).await?.and_then(|value| value.as_u64()) {
            return Ok(ObjectId(id));
        }
        let id = NewZap::of(object_type).create(edit).await?;
        tables.add(name, id.0).await?;
        Ok(id)
    }
}
