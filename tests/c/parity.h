/* The C half of the parity tests: each scenario does through the C API what a Rust test does through the safe layer,
 * and writes what it saw to a log that the Rust test compares with its own, record by record. */
#ifndef PARITY_H
#define PARITY_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnxruntime_training_c_api.h"

/* ---- the log (log.c) ---- */

enum parity_kind {
  PARITY_FLOATS = 'f',
  PARITY_INTS = 'i',
  PARITY_TEXT = 's',
  /* An int32 code followed by ONNX Runtime's message. */
  PARITY_ERROR = 'e',
};

struct parity_log {
  uint8_t *data;
  size_t length;
  size_t capacity;
};

void parity_record(struct parity_log *log, const char *name, enum parity_kind kind, const void *bytes, size_t length);
void parity_floats(struct parity_log *log, const char *name, const float *values, size_t count);
void parity_float(struct parity_log *log, const char *name, float value);
void parity_ints(struct parity_log *log, const char *name, const int64_t *values, size_t count);
void parity_int(struct parity_log *log, const char *name, int64_t value);
void parity_text(struct parity_log *log, const char *name, const char *text);
/* Records what the call answered (the code ORT_OK and an empty message when it went well) and releases the status. */
void parity_status(struct parity_log *log, const char *name, OrtStatus *status);
void parity_log_free(struct parity_log *log);

/* ---- what a scenario works on ---- */

/* One input of the model for all rows. Width 0 makes a tensor of rank 1. */
struct parity_column {
  ONNXTensorElementDataType element_type;
  size_t width;
  const void *data;
};

struct parity_case {
  const char *artifacts; /* the folder with the four files */
  const char *scratch;   /* a folder to write to */
  const struct parity_column *columns;
  size_t column_count;
  size_t rows;
  const char *const *parameters; /* the names of all parameters */
  size_t parameter_count;
  size_t batch_size;
  size_t steps;
  float learning_rate;
  const char *inference_output; /* what an export for inference keeps */
};

/* ---- helpers (ort.c) ---- */

#define PARITY_MAX_IO 8

struct parity_session {
  OrtEnv *env; /* a training session keeps a plain reference to it */
  OrtCheckpointState *state;
  OrtTrainingSession *session;
};

const OrtApi *parity_ort(void);
const OrtTrainingApi *parity_training(void);
OrtAllocator *parity_allocator(void);
OrtStatus *parity_env(OrtEnv **env);
/* One thread, so that no sum depends on how work was split. */
OrtStatus *parity_session_options(OrtSessionOptions **options);
/* Sessions from now on are made on this CUDA device (cuda.c). */
void parity_use_cuda(int number);
OrtStatus *parity_append_cuda(OrtSessionOptions *options);
char *parity_path(const char *folder, const char *file);
/* The whole file; NULL when it can't be read. The caller frees it. */
void *parity_read_file(const char *folder, const char *file, size_t *length);

/* Opens the artifacts with `checkpoint` (a path), or with their own when it is NULL. */
OrtStatus *parity_open(const struct parity_case *c, const char *checkpoint, struct parity_session *out);
/* A session over the checkpoint that `session` holds already. */
OrtStatus *parity_open_session(const struct parity_case *c, struct parity_session *session);
void parity_close(struct parity_session *session);

/* `count` rows from `first`, wrapping at the end of the data only between batches. */
OrtStatus *parity_batch(const struct parity_case *c, size_t first, size_t count, OrtValue **inputs);
void parity_release_values(OrtValue **values, size_t count);
OrtStatus *parity_tensor(const float *data, const int64_t *shape, size_t rank, OrtValue **out);

/* Step number `step` takes the batch of that number; `log` gets all outputs, each named "<name> <output number>". */
OrtStatus *parity_train_step(const struct parity_case *c, OrtTrainingSession *session, size_t step,
                             struct parity_log *log, const char *name);
OrtStatus *parity_eval_step(const struct parity_case *c, OrtTrainingSession *session, size_t step,
                            struct parity_log *log, const char *name);
/* Train, optimizer, reset. */
OrtStatus *parity_full_step(const struct parity_case *c, OrtTrainingSession *session, size_t step,
                            struct parity_log *log, const char *name);
OrtStatus *parity_log_value(struct parity_log *log, const char *name, const OrtValue *value);
/* Every parameter by name, from the checkpoint. */
OrtStatus *parity_log_parameters(const struct parity_case *c, const OrtCheckpointState *state,
                                 struct parity_log *log, const char *name);

/* Leaves the scenario by its `done` label, recording a call that should have gone well. */
#define TRY(call)                                 \
  do {                                            \
    OrtStatus *try_status = (call);               \
    if (try_status != NULL) {                     \
      parity_status(log, "FAILED " #call, try_status); \
      failed = 1;                                 \
      goto done;                                  \
    }                                             \
  } while (0)

/* ---- scenarios: 0 when every call that should go well did ---- */

int parity_train(const struct parity_case *c, struct parity_log *log);
int parity_accumulate(const struct parity_case *c, size_t micro_batches, struct parity_log *log);
int parity_schedule(const struct parity_case *c, int64_t warmup, int64_t total, struct parity_log *log);
int parity_save_load_continue(const struct parity_case *c, struct parity_log *log);
int parity_parameters_buffer(const struct parity_case *c, struct parity_log *log);
int parity_parameters(const struct parity_case *c, struct parity_log *log);
int parity_properties(const struct parity_case *c, struct parity_log *log);
int parity_checkpoint_from_bytes(const struct parity_case *c, struct parity_log *log);
int parity_nominal_checkpoint(const struct parity_case *c, struct parity_log *log);
int parity_session_from_bytes(const struct parity_case *c, struct parity_log *log);
int parity_export(const struct parity_case *c, struct parity_log *log);
int parity_model_io(const struct parity_case *c, struct parity_log *log);
int parity_seed(const struct parity_case *c, int64_t seed, struct parity_log *log);
int parity_release(const struct parity_case *c, size_t times, struct parity_log *log);
int parity_run_options(const struct parity_case *c, struct parity_log *log);

int parity_checkpoint_errors(const struct parity_case *c, struct parity_log *log);
int parity_session_errors(const struct parity_case *c, struct parity_log *log);
int parity_input_errors(const struct parity_case *c, struct parity_log *log);
int parity_missing_models(const struct parity_case *c, struct parity_log *log);
int parity_export_errors(const struct parity_case *c, struct parity_log *log);
/* Asks for a name at an index that isn't there: `which` 0 train output, 1 eval output, 2 train input, 3 eval input.
 * Doesn't come back when ONNX Runtime ends the process. */
int parity_wrong_index(const struct parity_case *c, int which, struct parity_log *log);

/* The run of examples/digits.rs: starts from `parameters`, takes batches of the given sizes one after the other
 * (data already in that order), with the linear schedule. */
int parity_digits(const struct parity_case *c, const float *parameters, size_t parameter_count,
                  const size_t *batch_sizes, size_t batch_count, int64_t warmup, int64_t total,
                  struct parity_log *log);

#endif
