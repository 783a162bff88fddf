/* What a checkpoint holds: properties, parameters, and the parameters as one buffer. */
#include "parity.h"

static OrtStatus *log_property(struct parity_log *log, const OrtCheckpointState *state, const char *name) {
  enum OrtPropertyType type;
  void *value = NULL;
  OrtStatus *status = parity_training()->GetProperty(state, name, parity_allocator(), &type, &value);
  if (status != NULL) return status;
  switch (type) {
    case OrtIntProperty:
      parity_int(log, name, *(int64_t *)value);
      break;
    case OrtFloatProperty:
      parity_float(log, name, *(float *)value);
      break;
    case OrtStringProperty:
      parity_text(log, name, value);
      break;
  }
  return parity_ort()->AllocatorFree(parity_allocator(), value);
}

static OrtStatus *log_properties(struct parity_log *log, const OrtCheckpointState *state) {
  const char *names[] = {"epoch", "best loss", "comment", "changes type"};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    OrtStatus *status = log_property(log, state, names[i]);
    if (status != NULL) return status;
  }
  return NULL;
}

int parity_properties(const struct parity_case *c, struct parity_log *log) {
  int failed = 0;
  int64_t epoch = -9007199254740993, first = 1;
  float best = 0.1f;
  char *path = parity_path(c->scratch, "properties");
  struct parity_session s = {0};
  TRY(parity_open(c, NULL, &s));
  TRY(parity_training()->AddProperty(s.state, "epoch", OrtIntProperty, &first));
  TRY(parity_training()->AddProperty(s.state, "epoch", OrtIntProperty, &epoch));
  TRY(parity_training()->AddProperty(s.state, "best loss", OrtFloatProperty, &best));
  TRY(parity_training()->AddProperty(s.state, "comment", OrtStringProperty, "größer als — naïve\n"));
  TRY(parity_training()->AddProperty(s.state, "changes type", OrtIntProperty, &first));
  TRY(parity_training()->AddProperty(s.state, "changes type", OrtStringProperty, ""));
  TRY(log_properties(log, s.state));
  parity_status(log, "no such property", log_property(log, s.state, "absent"));
  TRY(parity_training()->SaveCheckpoint(s.state, path, false));
  parity_close(&s);
  TRY(parity_open(c, path, &s));
  TRY(log_properties(log, s.state));
done:
  parity_close(&s);
  free(path);
  return failed;
}

static OrtStatus *log_type_and_shape(struct parity_log *log, const OrtCheckpointState *state, const char *name) {
  OrtTensorTypeAndShapeInfo *info = NULL;
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  size_t rank = 0;
  int64_t shape[8];
  OrtStatus *status = parity_training()->GetParameterTypeAndShape(state, name, &info);
  if (status == NULL) status = parity_ort()->GetTensorElementType(info, &type);
  if (status == NULL) status = parity_ort()->GetDimensionsCount(info, &rank);
  if (status == NULL) status = parity_ort()->GetDimensions(info, shape, rank);
  if (status == NULL) {
    parity_int(log, name, type);
    parity_ints(log, name, shape, rank);
  }
  if (info != NULL) parity_ort()->ReleaseTensorTypeAndShapeInfo(info);
  return status;
}

int parity_parameters(const struct parity_case *c, struct parity_log *log) {
  int failed = 0;
  OrtValue *value = NULL;
  float *data = NULL;
  size_t count = 0;
  OrtTensorTypeAndShapeInfo *info = NULL;
  const char *first = c->parameters[0];
  const int64_t wrong_shape[1] = {3};
  const float wrong[3] = {1, 2, 3};
  char *checkpoint = parity_path(c->artifacts, "checkpoint");
  struct parity_session s = {0};
  TRY(parity_training()->LoadCheckpoint(checkpoint, &s.state));
  for (size_t i = 0; i < c->parameter_count; ++i) TRY(log_type_and_shape(log, s.state, c->parameters[i]));
  /* ONNX Runtime copies parameters with the means of a session, so without one there is no reading them. */
  parity_status(log, "get without session",
                parity_training()->GetParameter(s.state, first, parity_allocator(), &value));
  /* ONNX Runtime 1.21 has made the value before it fails to fill it, and leaves it to the caller. */
  parity_release_values(&value, 1);
  TRY(parity_open_session(c, &s));

  TRY(parity_log_parameters(c, s.state, log, "as loaded"));
  TRY(parity_training()->GetParameter(s.state, first, parity_allocator(), &value));
  TRY(parity_ort()->GetTensorMutableData(value, (void **)&data));
  TRY(parity_ort()->GetTensorTypeAndShape(value, &info));
  TRY(parity_ort()->GetTensorShapeElementCount(info, &count));
  for (size_t i = 0; i < count; ++i) data[i] = data[i] * 0.5f + 0.25f;
  /* What was got is a copy: changing it changes nothing until it is put back. */
  TRY(parity_log_parameters(c, s.state, log, "copy changed"));
  TRY(parity_training()->UpdateParameter(s.state, first, value));
  TRY(parity_log_parameters(c, s.state, log, "updated"));
  TRY(parity_eval_step(c, s.session, 0, log, "eval"));

  parity_status(log, "update unknown", parity_training()->UpdateParameter(s.state, "nobody", value));
  parity_release_values(&value, 1);
  TRY(parity_tensor(wrong, wrong_shape, 1, &value));
  parity_status(log, "update with wrong shape", parity_training()->UpdateParameter(s.state, first, value));
  parity_release_values(&value, 1);
  parity_status(log, "get unknown",
                parity_training()->GetParameter(s.state, "nobody", parity_allocator(), &value));
  parity_status(log, "type of unknown", log_type_and_shape(log, s.state, "nobody"));
done:
  if (info != NULL) parity_ort()->ReleaseTensorTypeAndShapeInfo(info);
  parity_release_values(&value, 1);
  parity_close(&s);
  free(checkpoint);
  return failed;
}

int parity_parameters_buffer(const struct parity_case *c, struct parity_log *log) {
  int failed = 0;
  float *data = NULL;
  OrtValue *buffer = NULL;
  struct parity_session s = {0};
  TRY(parity_open(c, NULL, &s));
  TRY(parity_training()->SetLearningRate(s.session, c->learning_rate));
  TRY(parity_full_step(c, s.session, 0, log, "train"));
  for (int trainable_only = 0; trainable_only < 2; ++trainable_only) {
    size_t size = 0;
    TRY(parity_training()->GetParametersSize(s.session, &size, trainable_only != 0));
    parity_int(log, "size", (int64_t)size);
    data = calloc(size + 1, sizeof *data);
    const int64_t shape[1] = {(int64_t)size};
    TRY(parity_tensor(data, shape, 1, &buffer));
    TRY(parity_training()->CopyParametersToBuffer(s.session, buffer, trainable_only != 0));
    parity_floats(log, "to buffer", data, size);
    for (size_t i = 0; i < size; ++i) data[i] *= 0.75f;
    TRY(parity_training()->CopyBufferToParameters(s.session, buffer, trainable_only != 0));
    TRY(parity_log_parameters(c, s.state, log, "from buffer"));
    TRY(parity_eval_step(c, s.session, 0, log, "eval"));
    parity_release_values(&buffer, 1);

    const int64_t wrong_shape[1] = {(int64_t)size + 1};
    TRY(parity_tensor(data, wrong_shape, 1, &buffer));
    parity_status(log, "buffer too long",
                  parity_training()->CopyBufferToParameters(s.session, buffer, trainable_only != 0));
    parity_status(log, "buffer too long for parameters",
                  parity_training()->CopyParametersToBuffer(s.session, buffer, trainable_only != 0));
    parity_release_values(&buffer, 1);
    free(data);
    data = NULL;
  }
  /* The optimizer goes on from what was copied in. */
  TRY(parity_full_step(c, s.session, 1, log, "train"));
  TRY(parity_log_parameters(c, s.state, log, "trained on"));
done:
  parity_release_values(&buffer, 1);
  free(data);
  parity_close(&s);
  return failed;
}

int parity_checkpoint_from_bytes(const struct parity_case *c, struct parity_log *log) {
  int failed = 0;
  size_t length = 0;
  void *bytes = parity_read_file(c->artifacts, "checkpoint", &length);
  struct parity_session s = {0};
  TRY(parity_training()->LoadCheckpointFromBuffer(bytes, length, &s.state));
  free(bytes); /* nothing of it is needed once it is loaded */
  bytes = NULL;
  TRY(parity_open_session(c, &s));
  TRY(parity_training()->SetLearningRate(s.session, c->learning_rate));
  for (size_t step = 0; step < c->steps; ++step) TRY(parity_full_step(c, s.session, step, log, "train"));
  TRY(parity_log_parameters(c, s.state, log, "parameter"));
done:
  free(bytes);
  parity_close(&s);
  return failed;
}

int parity_nominal_checkpoint(const struct parity_case *c, struct parity_log *log) {
  int failed = 0;
  size_t size = 0;
  float *data = NULL;
  OrtValue *buffer = NULL, *parameter = NULL;
  OrtTensorTypeAndShapeInfo *info = NULL;
  char *nominal = parity_path(c->artifacts, "nominal_checkpoint");
  struct parity_session complete = {0}, s = {0};
  TRY(parity_open(c, NULL, &complete));
  TRY(parity_open(c, nominal, &s));
  parity_status(log, "nominal train", parity_train_step(c, s.session, 0, log, "nominal train"));
  parity_status(log, "nominal eval", parity_eval_step(c, s.session, 0, log, "nominal eval"));
  parity_status(log, "nominal get",
                parity_training()->GetParameter(s.state, c->parameters[0], parity_allocator(), &parameter));
  parity_status(log, "nominal shape", parity_training()->GetParameterTypeAndShape(s.state, c->parameters[0], &info));
  TRY(parity_training()->GetParametersSize(s.session, &size, false));
  parity_int(log, "size", (int64_t)size);
  data = calloc(size, sizeof *data);
  const int64_t shape[1] = {(int64_t)size};
  TRY(parity_tensor(data, shape, 1, &buffer));
  parity_status(log, "nominal to buffer", parity_training()->CopyParametersToBuffer(s.session, buffer, false));
  parity_status(log, "nominal trainable only", parity_training()->CopyBufferToParameters(s.session, buffer, true));
  TRY(parity_training()->CopyParametersToBuffer(complete.session, buffer, false));
  TRY(parity_training()->CopyBufferToParameters(s.session, buffer, false));
  TRY(parity_training()->SetLearningRate(s.session, c->learning_rate));
  for (size_t step = 0; step < c->steps; ++step) TRY(parity_full_step(c, s.session, step, log, "train"));
  TRY(parity_log_parameters(c, s.state, log, "parameter"));
done:
  if (info != NULL) parity_ort()->ReleaseTensorTypeAndShapeInfo(info);
  parity_release_values(&parameter, 1);
  parity_release_values(&buffer, 1);
  free(data);
  free(nominal);
  parity_close(&s);
  parity_close(&complete);
  return failed;
}
