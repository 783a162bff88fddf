//! Reading FlatBuffers with every access checked: just what the checkpoint format needs.
//!
//! ONNX Runtime verifies a checkpoint's offsets itself but then trusts what its schema leaves optional; this reader is
//! used to look before it does. It has no `unsafe` and holds no more than the bytes.

/// Why bytes are not the format: what is wrong and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) String);

pub(crate) type Read<T> = Result<T, Malformed>;

fn malformed<T>(what: impl Into<String>) -> Read<T> {
    Err(Malformed(what.into()))
}

#[derive(Clone, Copy)]
pub(crate) struct Buffer<'a>(&'a [u8]);

impl<'a> Buffer<'a> {
    /// The root table of bytes that carry `identifier`.
    pub(crate) fn root(bytes: &'a [u8], identifier: &[u8; 4]) -> Read<Table<'a>> {
        if bytes.len() < 8 {
            return malformed(format!("expected at least 8 bytes, found {}", bytes.len()));
        }
        if bytes[4..8] != identifier[..] {
            return malformed(format!(
                "expected the identifier {:?} at byte 4, found {:?}",
                String::from_utf8_lossy(identifier),
                String::from_utf8_lossy(&bytes[4..8])
            ));
        }
        // Writers align the end as well, so a file that lost no more than its last padding is noticed, too.
        if bytes.len() % 4 != 0 {
            return malformed(format!(
                "expected a multiple of 4 bytes, found {}; the end is missing or something follows it",
                bytes.len()
            ));
        }
        let buffer = Self(bytes);
        let position = buffer.offset(0)?;
        Table::at(buffer, position)
    }

    fn bytes<const N: usize>(self, position: usize) -> Read<[u8; N]> {
        let end = position.checked_add(N);
        match end.and_then(|end| self.0.get(position..end)) {
            Some(bytes) => Ok(bytes.try_into().unwrap_or([0; N])),
            None => malformed(format!(
                "expected {N} bytes at byte {position}, found the end at byte {}",
                self.0.len()
            )),
        }
    }

    fn u16(self, position: usize) -> Read<usize> {
        Ok(u16::from_le_bytes(self.bytes(position)?).into())
    }

    fn u32(self, position: usize) -> Read<usize> {
        Ok(u32::from_le_bytes(self.bytes(position)?) as usize)
    }

    /// Follows the forward offset at `position`.
    fn offset(self, position: usize) -> Read<usize> {
        let offset = self.u32(position)?;
        match position.checked_add(offset) {
            Some(target) if offset != 0 && target < self.0.len() => Ok(target),
            _ => malformed(format!(
                "offset {offset} at byte {position} points outside of {} bytes",
                self.0.len()
            )),
        }
    }

    /// Position and number of the elements of a vector whose elements take `size` bytes.
    fn vector(self, position: usize, size: usize) -> Read<(usize, usize)> {
        let len = self.u32(position)?;
        let start = position + 4;
        let fits = len
            .checked_mul(size)
            .and_then(|bytes| bytes.checked_add(start));
        match fits {
            Some(end) if end <= self.0.len() => Ok((start, len)),
            _ => malformed(format!(
                "vector of {len} elements at byte {position} does not fit {} bytes",
                self.0.len()
            )),
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Table<'a> {
    buffer: Buffer<'a>,
    position: usize,
    vtable: usize,
    vtable_size: usize,
    table_size: usize,
}

impl<'a> Table<'a> {
    fn at(buffer: Buffer<'a>, position: usize) -> Read<Self> {
        let back = i64::from(i32::from_le_bytes(buffer.bytes(position)?));
        let vtable = usize::try_from(position as i64 - back)
            .map_err(|_| Malformed(format!("table at byte {position}: its vtable lies outside")))?;
        let vtable_size = buffer.u16(vtable)?;
        let table_size = buffer.u16(vtable + 2)?;
        let vtable_end = vtable.checked_add(vtable_size);
        let table_end = position.checked_add(table_size);
        let inside = |end: Option<usize>| end.is_some_and(|end| end <= buffer.0.len());
        if vtable_size < 4 || vtable_size % 2 != 0 || !inside(vtable_end) || !inside(table_end) {
            return malformed(format!("table at byte {position}: its vtable does not fit"));
        }
        Ok(Self {
            buffer,
            position,
            vtable,
            vtable_size,
            table_size,
        })
    }

    /// Where field number `index` of `size` bytes lies, if it is set.
    fn field(&self, index: usize, size: usize) -> Read<Option<usize>> {
        let slot = 4 + 2 * index;
        if slot + 2 > self.vtable_size {
            return Ok(None);
        }
        match self.buffer.u16(self.vtable + slot)? {
            0 => Ok(None),
            offset if offset + size <= self.table_size => Ok(Some(self.position + offset)),
            offset => malformed(format!(
                "table at byte {}: field {index} at {offset} lies outside its {} bytes",
                self.position, self.table_size
            )),
        }
    }

    pub(crate) fn i32(&self, index: usize) -> Read<i32> {
        self.field(index, 4)?
            .map_or(Ok(0), |at| Ok(i32::from_le_bytes(self.buffer.bytes(at)?)))
    }

    pub(crate) fn f32(&self, index: usize) -> Read<f32> {
        self.field(index, 4)?
            .map_or(Ok(0.0), |at| Ok(f32::from_le_bytes(self.buffer.bytes(at)?)))
    }

    pub(crate) fn i64(&self, index: usize, default: i64) -> Read<i64> {
        self.field(index, 8)?.map_or(Ok(default), |at| {
            Ok(i64::from_le_bytes(self.buffer.bytes(at)?))
        })
    }

    pub(crate) fn bool(&self, index: usize) -> Read<bool> {
        self.field(index, 1)?
            .map_or(Ok(false), |at| Ok(self.buffer.bytes::<1>(at)?[0] != 0))
    }

    pub(crate) fn table(&self, index: usize) -> Read<Option<Table<'a>>> {
        self.field(index, 4)?
            .map(|at| Table::at(self.buffer, self.buffer.offset(at)?))
            .transpose()
    }

    pub(crate) fn bytes(&self, index: usize) -> Read<Option<&'a [u8]>> {
        self.field(index, 4)?
            .map(|at| {
                let (start, len) = self.buffer.vector(self.buffer.offset(at)?, 1)?;
                Ok(&self.buffer.0[start..start + len])
            })
            .transpose()
    }

    /// A string; FlatBuffers puts a NUL behind it.
    pub(crate) fn string(&self, index: usize) -> Read<Option<&'a str>> {
        let Some(bytes) = self.bytes(index)? else {
            return Ok(None);
        };
        let end = bytes.as_ptr() as usize - self.buffer.0.as_ptr() as usize + bytes.len();
        if self.buffer.bytes::<1>(end)?[0] != 0 {
            return malformed(format!("string that ends at byte {end} has no terminator"));
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => malformed(format!(
                "string that ends at byte {end}: expected UTF-8, found {:?}",
                String::from_utf8_lossy(bytes)
            )),
        }
    }

    pub(crate) fn i64s(&self, index: usize) -> Read<Option<Vec<i64>>> {
        self.field(index, 4)?
            .map(|at| {
                let (start, len) = self.buffer.vector(self.buffer.offset(at)?, 8)?;
                (0..len)
                    .map(|i| Ok(i64::from_le_bytes(self.buffer.bytes(start + 8 * i)?)))
                    .collect()
            })
            .transpose()
    }

    pub(crate) fn tables(&self, index: usize) -> Read<Option<Tables<'a>>> {
        self.field(index, 4)?
            .map(|at| {
                let (start, len) = self.buffer.vector(self.buffer.offset(at)?, 4)?;
                Ok(Tables {
                    buffer: self.buffer,
                    start,
                    len,
                    next: 0,
                })
            })
            .transpose()
    }
}

/// The tables of a vector, one after the other.
pub(crate) struct Tables<'a> {
    buffer: Buffer<'a>,
    start: usize,
    len: usize,
    next: usize,
}

impl<'a> Iterator for Tables<'a> {
    type Item = Read<Table<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.len {
            return None;
        }
        let position = self.start + 4 * self.next;
        self.next += 1;
        Some(
            self.buffer
                .offset(position)
                .and_then(|at| Table::at(self.buffer, at)),
        )
    }
}
