//! Writes checkpoint files field by field, so that tests can leave a field out, or put something wrong into it.
//!
//! The field numbers are those of ONNX Runtime's `ort_training_checkpoint.fbs` and `ort.fbs`; slot `4 + 2 * number`.

#![allow(dead_code, reason = "each test binary uses a part")]

use flatbuffers::{FlatBufferBuilder, TableFinishedWIPOffset, WIPOffset};

pub const FLOAT32: i32 = 1;
pub const STRING: i32 = 8;
pub const FLOAT16: i32 = 10;

const fn slot(field: u16) -> u16 {
    4 + 2 * field
}

#[derive(Clone)]
pub struct TensorSpec {
    pub name: Option<String>,
    pub dims: Option<Vec<i64>>,
    pub data_type: i32,
    pub inline: Option<Vec<u8>>,
    /// Where the data lies in the external file; -1 for nowhere.
    pub offset: i64,
}

impl TensorSpec {
    pub fn floats(name: &str, dims: &[i64], data: &[f32]) -> Self {
        Self {
            name: Some(name.into()),
            dims: Some(dims.to_vec()),
            data_type: FLOAT32,
            inline: Some(data.iter().flat_map(|value| value.to_le_bytes()).collect()),
            offset: -1,
        }
    }

    /// Moves the data from the checkpoint to the end of the external file.
    pub fn move_out(&mut self, external: &mut Vec<u8>) {
        if let Some(data) = self.inline.take() {
            self.offset = external.len() as i64;
            external.extend(data);
        }
    }
}

#[derive(Clone)]
pub struct StateSpec {
    pub parameter: Option<String>,
    pub moments: Option<Vec<TensorSpec>>,
}

#[derive(Clone)]
pub struct GroupSpec {
    pub name: Option<String>,
    pub step: i64,
    pub states: Option<Vec<StateSpec>>,
}

#[derive(Clone)]
pub struct CheckpointSpec {
    pub identifier: &'static str,
    pub version: i32,
    pub trainable: Option<Vec<TensorSpec>>,
    pub frozen: Option<Vec<TensorSpec>>,
    pub nominal: bool,
    pub external: bool,
    pub groups: Vec<GroupSpec>,
    pub ints: Vec<(Option<String>, i64)>,
    pub floats: Vec<(Option<String>, f32)>,
    pub strings: Vec<(Option<String>, Option<String>)>,
    /// Store equal data once, which no checkpoint's writer does.
    pub share: bool,
}

type Table = WIPOffset<TableFinishedWIPOffset>;
type Bytes<'a> = WIPOffset<flatbuffers::Vector<'a, u8>>;

impl CheckpointSpec {
    pub fn new(trainable: Vec<TensorSpec>, frozen: Vec<TensorSpec>) -> Self {
        Self {
            identifier: "ODTC",
            version: 2,
            trainable: Some(trainable),
            frozen: Some(frozen),
            nominal: false,
            external: false,
            groups: Vec::new(),
            ints: Vec::new(),
            floats: Vec::new(),
            strings: Vec::new(),
            share: false,
        }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let builder = &mut FlatBufferBuilder::new();
        let mut shared = self.share.then(Vec::new);
        let trainable = self
            .trainable
            .as_ref()
            .map(|all| tensors(builder, all, &mut shared));
        let frozen = self
            .frozen
            .as_ref()
            .map(|all| tensors(builder, all, &mut shared));
        let start = builder.start_table();
        put(builder, 0, trainable);
        put(builder, 1, frozen);
        builder.push_slot(slot(2), self.nominal, false);
        builder.push_slot(slot(3), self.external, false);
        let module = builder.end_table(start);

        let groups: Vec<Table> = self
            .groups
            .iter()
            .map(|group| write_group(builder, group))
            .collect();
        let groups = builder.create_vector(&groups);
        let bag = self.write_properties(builder);
        let start = builder.start_table();
        builder.push_slot(slot(0), self.version, 0);
        put(builder, 1, Some(module));
        put(builder, 2, Some(groups));
        put(builder, 3, Some(bag));
        let root = builder.end_table(start);
        builder.finish(root, Some(self.identifier));
        builder.finished_data().to_vec()
    }

    fn write_properties(&self, builder: &mut FlatBufferBuilder<'_>) -> Table {
        let mut ints: Vec<Table> = Vec::new();
        for (name, value) in &self.ints {
            let name = string(builder, name);
            let start = builder.start_table();
            put(builder, 0, name);
            builder.push_slot(slot(1), *value, 0);
            ints.push(builder.end_table(start));
        }
        let mut floats: Vec<Table> = Vec::new();
        for (name, value) in &self.floats {
            let name = string(builder, name);
            let start = builder.start_table();
            put(builder, 0, name);
            builder.push_slot(slot(1), *value, 0.0);
            floats.push(builder.end_table(start));
        }
        let mut strings: Vec<Table> = Vec::new();
        for (name, value) in &self.strings {
            let (name, value) = (string(builder, name), string(builder, value));
            let start = builder.start_table();
            put(builder, 0, name);
            put(builder, 1, value);
            strings.push(builder.end_table(start));
        }
        let all = [
            builder.create_vector(&ints),
            builder.create_vector(&floats),
            builder.create_vector(&strings),
        ];
        let start = builder.start_table();
        for (field, vector) in (0..).zip(all) {
            put(builder, field, Some(vector));
        }
        builder.end_table(start)
    }
}

fn put<T>(builder: &mut FlatBufferBuilder<'_>, field: u16, offset: Option<WIPOffset<T>>) {
    if let Some(offset) = offset {
        builder.push_slot_always(slot(field), offset);
    }
}

fn string<'a>(
    builder: &mut FlatBufferBuilder<'a>,
    text: &Option<String>,
) -> Option<WIPOffset<&'a str>> {
    text.as_ref().map(|text| builder.create_string(text))
}

fn tensors<'a>(
    builder: &mut FlatBufferBuilder<'a>,
    all: &[TensorSpec],
    shared: &mut Option<Vec<(Vec<u8>, Bytes<'a>)>>,
) -> WIPOffset<flatbuffers::Vector<'a, flatbuffers::ForwardsUOffset<TableFinishedWIPOffset>>> {
    let tables: Vec<Table> = all
        .iter()
        .map(|tensor| write_tensor(builder, tensor, shared))
        .collect();
    builder.create_vector(&tables)
}

fn write_tensor<'a>(
    builder: &mut FlatBufferBuilder<'a>,
    tensor: &TensorSpec,
    shared: &mut Option<Vec<(Vec<u8>, Bytes<'a>)>>,
) -> Table {
    let name = string(builder, &tensor.name);
    let dims = tensor.dims.as_ref().map(|dims| builder.create_vector(dims));
    let data = tensor.inline.as_ref().map(|data| {
        let known = shared.iter().flatten().find(|(written, _)| written == data);
        known.map(|(_, offset)| *offset).unwrap_or_else(|| {
            let offset = builder.create_vector(data);
            shared
                .iter_mut()
                .for_each(|written| written.push((data.clone(), offset)));
            offset
        })
    });
    let start = builder.start_table();
    put(builder, 0, name);
    put(builder, 2, dims);
    builder.push_slot(slot(3), tensor.data_type, 0);
    put(builder, 4, data);
    builder.push_slot(slot(6), tensor.offset, -1);
    builder.end_table(start)
}

fn write_group(builder: &mut FlatBufferBuilder<'_>, group: &GroupSpec) -> Table {
    let mut states: Vec<Table> = Vec::new();
    for state in group.states.iter().flatten() {
        let name = string(builder, &state.parameter);
        let moments = state
            .moments
            .as_ref()
            .map(|moments| tensors(builder, moments, &mut None));
        let start = builder.start_table();
        put(builder, 0, name);
        put(builder, 1, moments);
        states.push(builder.end_table(start));
    }
    let states = group
        .states
        .is_some()
        .then(|| builder.create_vector(&states));
    let name = string(builder, &group.name);
    let start = builder.start_table();
    put(builder, 0, name);
    builder.push_slot(slot(1), group.step, 0);
    builder.push_slot(slot(2), 0.001f32, 0.0);
    put(builder, 3, states);
    builder.end_table(start)
}
