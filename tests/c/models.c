/* The models: their inputs and outputs, sessions from bytes, export for inference. */
#include "parity.h"

static OrtStatus *log_names(struct parity_log *log, const char *label, const OrtTrainingSession *session,
                            OrtStatus *(*count_of)(const OrtTrainingSession *, size_t *),
                            OrtStatus *(*name_of)(const OrtTrainingSession *, size_t, OrtAllocator *, char **)) {
  size_t count = 0;
  OrtStatus *status = count_of(session, &count);
  if (status == NULL) parity_int(log, label, (int64_t)count);
  for (size_t i = 0; status == NULL && i < count; ++i) {
    char *name = NULL;
    status = name_of(session, i, parity_allocator(), &name);
    if (status == NULL) {
      parity_text(log, label, name);
      status = parity_ort()->AllocatorFree(parity_allocator(), name);
    }
  }
  return status;
}

int parity_model_io(const struct parity_case *c, struct parity_log *log) {
  int failed = 0;
  const OrtTrainingApi *t = parity_training();
  struct parity_session s = {0};
  TRY(parity_open(c, NULL, &s));
  TRY(log_names(log, "train input", s.session, t->TrainingSessionGetTrainingModelInputCount,
                t->TrainingSessionGetTrainingModelInputName));
  TRY(log_names(log, "train output", s.session, t->TrainingSessionGetTrainingModelOutputCount,
                t->TrainingSessionGetTrainingModelOutputName));
  TRY(log_names(log, "eval input", s.session, t->TrainingSessionGetEvalModelInputCount,
                t->TrainingSessionGetEvalModelInputName));
  TRY(log_names(log, "eval output", s.session, t->TrainingSessionGetEvalModelOutputCount,
                t->TrainingSessionGetEvalModelOutputName));
done:
  parity_close(&s);
  return failed;
}

/* Runs an exported model on the columns it wants: the first ones, as many as it has inputs. */
static OrtStatus *log_inference(const struct parity_case *c, const char *path, struct parity_log *log) {
  const OrtApi *ort = parity_ort();
  OrtEnv *env = NULL;
  OrtSessionOptions *options = NULL;
  OrtSession *session = NULL;
  OrtValue *inputs[PARITY_MAX_IO] = {NULL};
  OrtValue *output = NULL;
  char *names[PARITY_MAX_IO] = {NULL};
  size_t count = 0;
  OrtStatus *status = parity_env(&env);
  if (status == NULL) status = parity_session_options(&options);
  if (status == NULL) status = ort->CreateSession(env, path, options, &session);
  if (status == NULL) status = ort->SessionGetInputCount(session, &count);
  for (size_t i = 0; status == NULL && i < count; ++i) {
    status = ort->SessionGetInputName(session, i, parity_allocator(), &names[i]);
    if (status == NULL) parity_text(log, "inference input", names[i]);
  }
  if (status == NULL) status = parity_batch(c, 0, c->batch_size, inputs);
  if (status == NULL) {
    status = ort->Run(session, NULL, (const char *const *)names, (const OrtValue *const *)inputs, count,
                      &c->inference_output, 1, &output);
  }
  if (status == NULL) status = parity_log_value(log, "inference", output);
  parity_release_values(&output, 1);
  parity_release_values(inputs, PARITY_MAX_IO);
  for (size_t i = 0; i < PARITY_MAX_IO; ++i) {
    if (names[i] != NULL) ort->ReleaseStatus(ort->AllocatorFree(parity_allocator(), names[i]));
  }
  if (session != NULL) ort->ReleaseSession(session);
  if (options != NULL) ort->ReleaseSessionOptions(options);
  if (env != NULL) ort->ReleaseEnv(env);
  return status;
}

int parity_export(const struct parity_case *c, struct parity_log *log) {
  int failed = 0;
  char *path = parity_path(c->scratch, "exported.onnx");
  struct parity_session s = {0};
  TRY(parity_open(c, NULL, &s));
  TRY(parity_training()->SetLearningRate(s.session, c->learning_rate));
  for (size_t step = 0; step < c->steps; ++step) TRY(parity_full_step(c, s.session, step, log, "train"));
  TRY(parity_eval_step(c, s.session, 0, log, "eval"));
  TRY(parity_training()->ExportModelForInferencing(s.session, path, 1, &c->inference_output));
  /* Exporting takes nothing away from the session. */
  TRY(parity_full_step(c, s.session, c->steps, log, "train on"));
  TRY(log_inference(c, path, log));
done:
  parity_close(&s);
  free(path);
  return failed;
}

int parity_session_from_bytes(const struct parity_case *c, struct parity_log *log) {
  int failed = 0;
  size_t train_length = 0, eval_length = 0, optimizer_length = 0;
  void *train = parity_read_file(c->artifacts, "training_model.onnx", &train_length);
  void *eval = parity_read_file(c->artifacts, "eval_model.onnx", &eval_length);
  void *optimizer = parity_read_file(c->artifacts, "optimizer_model.onnx", &optimizer_length);
  char *checkpoint = parity_path(c->artifacts, "checkpoint");
  char *path = parity_path(c->scratch, "exported-from-bytes.onnx");
  OrtSessionOptions *options = NULL;
  struct parity_session s = {0};
  TRY(parity_env(&s.env));
  TRY(parity_session_options(&options));
  TRY(parity_training()->LoadCheckpoint(checkpoint, &s.state));
  TRY(parity_training()->CreateTrainingSessionFromBuffer(s.env, options, s.state, train, train_length, eval,
                                                         eval_length, optimizer, optimizer_length, &s.session));
  TRY(parity_training()->SetLearningRate(s.session, c->learning_rate));
  for (size_t step = 0; step < c->steps; ++step) TRY(parity_full_step(c, s.session, step, log, "train"));
  TRY(parity_eval_step(c, s.session, 0, log, "eval"));
  TRY(parity_log_parameters(c, s.state, log, "parameter"));
  /* The session reads the eval model's bytes again here, so they must still be there. */
  TRY(parity_training()->ExportModelForInferencing(s.session, path, 1, &c->inference_output));
  TRY(log_inference(c, path, log));
done:
  parity_close(&s);
  if (options != NULL) parity_ort()->ReleaseSessionOptions(options);
  free(train);
  free(eval);
  free(optimizer);
  free(checkpoint);
  free(path);
  return failed;
}
