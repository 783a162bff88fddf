//! Changes of bytes, whatever they mean.

use crate::random::Random;

pub fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(3) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len());
        match random.below(8) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes[at] = *random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            3 => bytes.truncate(at),
            4 => drop(bytes.remove(at)),
            5 => {
                let end = bytes.len().min(at + 1 + random.below(16));
                let part = bytes[at..end].to_vec();
                let to = random.place(bytes.len());
                drop(bytes.splice(to..to, part));
            }
            6 => {
                let end = bytes.len().min(at + 1 + random.below(16));
                drop(bytes.drain(at..end));
            }
            _ => drop(bytes.splice(at..at, [random.next() as u8])),
        }
    }
}
