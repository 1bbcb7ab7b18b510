//! `zfs diff`: what its caller needs. The verb itself is a command line as yet.

use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::session::{Session, dataset};

/// To compare a snapshot with a later state.
///
/// # Errors
/// One of them is not there.
pub async fn permissions(session: &Session, from: &str, later: &str) -> Result<Permissions, ControlError> {
    let mut permissions = Permissions::to(format!("diff '{from}'"));
    let mos = session.pool_to_ask(from).await?;
    for name in [from, later] {
        permissions.need(&dataset(&mos, name).await?, &["diff"]);
    }
    Ok(permissions)
}
