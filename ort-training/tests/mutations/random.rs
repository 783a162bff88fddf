//! A small generator of random numbers (SplitMix64): the same numbers each time.

pub struct Random(u64);

impl Random {
    /// The generator of input `index` of the suite `name`.
    pub fn new(name: &str, index: u64) -> Self {
        let mut random = Self(index);
        for byte in name.bytes() {
            random.0 = random.next() ^ u64::from(byte);
        }
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn pick<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.below(among.len())]
    }

    /// One of the elements, none of an empty slice.
    pub fn any<'a, T>(&mut self, among: &'a mut [T]) -> Option<&'a mut T> {
        match among.len() {
            0 => None,
            len => Some(&mut among[self.below(len)]),
        }
    }

    /// Where to insert into, or look at, something of this length.
    pub fn place(&mut self, len: usize) -> usize {
        self.below(len + 1)
    }
}
