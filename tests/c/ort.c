#include "parity.h"

const OrtApi *parity_ort(void) { return OrtGetApiBase()->GetApi(ORT_API_VERSION); }

const OrtTrainingApi *parity_training(void) { return parity_ort()->GetTrainingApi(ORT_API_VERSION); }

OrtAllocator *parity_allocator(void) {
  OrtAllocator *allocator = NULL;
  OrtStatus *status = parity_ort()->GetAllocatorWithDefaultOptions(&allocator);
  if (status != NULL) abort();
  return allocator;
}

/* ONNX Runtime counts the references to its one environment, so this shares it with the Rust side. */
OrtStatus *parity_env(OrtEnv **env) { return parity_ort()->CreateEnv(ORT_LOGGING_LEVEL_FATAL, "parity", env); }

OrtStatus *parity_session_options(OrtSessionOptions **options) {
  OrtStatus *status = parity_ort()->CreateSessionOptions(options);
  if (status == NULL) status = parity_ort()->SetIntraOpNumThreads(*options, 1);
  if (status == NULL) status = parity_append_cuda(*options);
  return status;
}

char *parity_path(const char *folder, const char *file) {
  size_t length = strlen(folder) + strlen(file) + 2;
  char *path = malloc(length);
  if (path == NULL) abort();
  snprintf(path, length, "%s/%s", folder, file);
  return path;
}

void *parity_read_file(const char *folder, const char *file, size_t *length) {
  char *path = parity_path(folder, file);
  FILE *stream = fopen(path, "rb");
  free(path);
  if (stream == NULL) return NULL;
  void *bytes = NULL;
  if (fseek(stream, 0, SEEK_END) == 0) {
    long end = ftell(stream);
    rewind(stream);
    bytes = end > 0 ? malloc((size_t)end) : NULL;
    if (bytes != NULL && fread(bytes, 1, (size_t)end, stream) != (size_t)end) {
      free(bytes);
      bytes = NULL;
    }
    if (bytes != NULL) *length = (size_t)end;
  }
  fclose(stream);
  return bytes;
}

static int exists(const char *path) {
  FILE *stream = fopen(path, "rb");
  if (stream == NULL) return 0;
  fclose(stream);
  return 1;
}

OrtStatus *parity_open_session(const struct parity_case *c, struct parity_session *session) {
  OrtSessionOptions *options = NULL;
  char *train = parity_path(c->artifacts, "training_model.onnx");
  char *eval = parity_path(c->artifacts, "eval_model.onnx");
  char *optimizer = parity_path(c->artifacts, "optimizer_model.onnx");
  OrtStatus *status = session->env == NULL ? parity_env(&session->env) : NULL;
  if (status == NULL) status = parity_session_options(&options);
  if (status == NULL) {
    status = parity_training()->CreateTrainingSession(session->env, options, session->state, train,
                                                      exists(eval) ? eval : NULL,
                                                      exists(optimizer) ? optimizer : NULL, &session->session);
  }
  if (options != NULL) parity_ort()->ReleaseSessionOptions(options);
  free(train);
  free(eval);
  free(optimizer);
  return status;
}

OrtStatus *parity_open(const struct parity_case *c, const char *checkpoint, struct parity_session *out) {
  char *own = parity_path(c->artifacts, "checkpoint");
  OrtStatus *status = parity_training()->LoadCheckpoint(checkpoint != NULL ? checkpoint : own, &out->state);
  free(own);
  if (status == NULL) status = parity_open_session(c, out);
  return status;
}

void parity_close(struct parity_session *session) {
  if (session->session != NULL) parity_training()->ReleaseTrainingSession(session->session);
  if (session->state != NULL) parity_training()->ReleaseCheckpointState(session->state);
  if (session->env != NULL) parity_ort()->ReleaseEnv(session->env);
  session->session = NULL;
  session->state = NULL;
  session->env = NULL;
}

static size_t element_size(ONNXTensorElementDataType type) {
  switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
      return sizeof(float);
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64:
      return sizeof(int64_t);
    default:
      abort();
  }
}

static OrtStatus *tensor(const void *data, const int64_t *shape, size_t rank, ONNXTensorElementDataType type,
                         OrtValue **out) {
  OrtMemoryInfo *info = NULL;
  OrtStatus *status = parity_ort()->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &info);
  if (status != NULL) return status;
  size_t count = 1;
  for (size_t i = 0; i < rank; ++i) count *= (size_t)shape[i];
  status = parity_ort()->CreateTensorWithDataAsOrtValue(info, (void *)data, count * element_size(type), shape, rank,
                                                        type, out);
  parity_ort()->ReleaseMemoryInfo(info);
  return status;
}

OrtStatus *parity_tensor(const float *data, const int64_t *shape, size_t rank, OrtValue **out) {
  return tensor(data, shape, rank, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, out);
}

OrtStatus *parity_batch(const struct parity_case *c, size_t first, size_t count, OrtValue **inputs) {
  for (size_t i = 0; i < c->column_count; ++i) inputs[i] = NULL;
  for (size_t i = 0; i < c->column_count; ++i) {
    const struct parity_column *column = &c->columns[i];
    int64_t shape[2] = {(int64_t)count, (int64_t)column->width};
    size_t per_row = column->width == 0 ? 1 : column->width;
    const uint8_t *data = (const uint8_t *)column->data + first * per_row * element_size(column->element_type);
    OrtStatus *status = tensor(data, shape, column->width == 0 ? 1 : 2, column->element_type, &inputs[i]);
    if (status != NULL) return status;
  }
  return NULL;
}

void parity_release_values(OrtValue **values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (values[i] != NULL) parity_ort()->ReleaseValue(values[i]);
    values[i] = NULL;
  }
}

OrtStatus *parity_log_value(struct parity_log *log, const char *name, const OrtValue *value) {
  OrtTensorTypeAndShapeInfo *info = NULL;
  size_t count = 0;
  void *data = NULL;
  OrtStatus *status = parity_ort()->GetTensorTypeAndShape(value, &info);
  if (status == NULL) status = parity_ort()->GetTensorShapeElementCount(info, &count);
  if (info != NULL) parity_ort()->ReleaseTensorTypeAndShapeInfo(info);
  if (status == NULL) status = parity_ort()->GetTensorMutableData((OrtValue *)value, &data);
  if (status == NULL) parity_floats(log, name, data, count);
  return status;
}

/* The rows of batch number `step`: the data again from its start when it is used up; the last batch may be smaller. */
static void batch_rows(const struct parity_case *c, size_t step, size_t *first, size_t *count) {
  size_t batches = (c->rows + c->batch_size - 1) / c->batch_size;
  *first = (step % batches) * c->batch_size;
  *count = c->rows - *first < c->batch_size ? c->rows - *first : c->batch_size;
}

static OrtStatus *run_step(const struct parity_case *c, OrtTrainingSession *session, int eval, size_t step,
                           struct parity_log *log, const char *name) {
  const OrtTrainingApi *training = parity_training();
  OrtValue *inputs[PARITY_MAX_IO] = {NULL};
  OrtValue *outputs[PARITY_MAX_IO] = {NULL};
  size_t first, count, output_count = 0;
  batch_rows(c, step, &first, &count);
  OrtStatus *status = parity_batch(c, first, count, inputs);
  if (status == NULL) {
    status = eval ? training->TrainingSessionGetEvalModelOutputCount(session, &output_count)
                  : training->TrainingSessionGetTrainingModelOutputCount(session, &output_count);
  }
  if (status == NULL) {
    status = eval ? training->EvalStep(session, NULL, c->column_count, (const OrtValue *const *)inputs, output_count,
                                       outputs)
                  : training->TrainStep(session, NULL, c->column_count, (const OrtValue *const *)inputs,
                                        output_count, outputs);
  }
  for (size_t i = 0; status == NULL && i < output_count; ++i) {
    char label[128];
    snprintf(label, sizeof label, "%s %zu", name, i);
    status = parity_log_value(log, label, outputs[i]);
  }
  parity_release_values(outputs, PARITY_MAX_IO);
  parity_release_values(inputs, PARITY_MAX_IO);
  return status;
}

OrtStatus *parity_train_step(const struct parity_case *c, OrtTrainingSession *session, size_t step,
                             struct parity_log *log, const char *name) {
  return run_step(c, session, 0, step, log, name);
}

OrtStatus *parity_eval_step(const struct parity_case *c, OrtTrainingSession *session, size_t step,
                            struct parity_log *log, const char *name) {
  return run_step(c, session, 1, step, log, name);
}

OrtStatus *parity_full_step(const struct parity_case *c, OrtTrainingSession *session, size_t step,
                            struct parity_log *log, const char *name) {
  OrtStatus *status = parity_train_step(c, session, step, log, name);
  if (status == NULL) status = parity_training()->OptimizerStep(session, NULL);
  if (status == NULL) status = parity_training()->LazyResetGrad(session);
  return status;
}

OrtStatus *parity_log_parameters(const struct parity_case *c, const OrtCheckpointState *state,
                                 struct parity_log *log, const char *name) {
  for (size_t i = 0; i < c->parameter_count; ++i) {
    char label[256];
    OrtValue *value = NULL;
    snprintf(label, sizeof label, "%s %s", name, c->parameters[i]);
    OrtStatus *status = parity_training()->GetParameter(state, c->parameters[i], parity_allocator(), &value);
    if (status == NULL) status = parity_log_value(log, label, value);
    parity_release_values(&value, 1);
    if (status != NULL) return status;
  }
  return NULL;
}
