//! Batches: blocks in disk order, cut into lists of about equal work.

/// Batches have at most `most_bytes` and `most` items; a larger item gets its own.
pub(crate) fn cut<T>(
    items: impl IntoIterator<Item = T>,
    most: usize,
    most_bytes: u64,
    bytes_of: impl Fn(&T) -> u64,
) -> Vec<Vec<T>> {
    let mut batches: Vec<Vec<T>> = Vec::new();
    let mut room = 0;
    for item in items {
        let bytes = bytes_of(&item);
        match batches.last_mut().filter(|batch| room >= bytes && batch.len() < most) {
            Some(batch) => batch.push(item),
            None => {
                room = most_bytes;
                batches.push(vec![item]);
            }
        }
        room = room.saturating_sub(bytes);
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn batches_are_bounded_by_bytes_and_by_number() {
        let cut = |sizes: &[u64]| cut(sizes.to_vec(), 3, 10, |&size| size);
        assert_eq!(cut(&[4, 6, 1, 30, 1, 1, 1, 1]), [vec![4, 6], vec![1], vec![30], vec![1, 1, 1], vec![1]]);
        assert_eq!(cut(&[]), Vec::<Vec<u64>>::new());
    }
}
