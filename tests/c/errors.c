/* Every way a call can be refused. A scenario goes on after each refusal: it must leave what there was in order. */
#include "parity.h"

int parity_checkpoint_errors(const struct parity_case *c, struct parity_log *log) {
  int failed = 0;
  size_t length = 0;
  const float zero = 0;
  char *missing = parity_path(c->scratch, "no-such-checkpoint");
  char *no_folder = parity_path(c->scratch, "no-such-folder/checkpoint");
  char *model = parity_path(c->artifacts, "training_model.onnx");
  void *model_bytes = parity_read_file(c->artifacts, "training_model.onnx", &length);
  struct parity_session s = {0};
  OrtCheckpointState *state = NULL;
  parity_status(log, "missing file", parity_training()->LoadCheckpoint(missing, &state));
  parity_status(log, "a model", parity_training()->LoadCheckpoint(model, &state));
  parity_status(log, "a model's bytes", parity_training()->LoadCheckpointFromBuffer(model_bytes, length, &state));
  TRY(parity_open(c, NULL, &s));
  parity_status(log, "save into no folder", parity_training()->SaveCheckpoint(s.state, no_folder, true));
  parity_status(log, "unknown property type",
                parity_training()->AddProperty(s.state, "name", (enum OrtPropertyType)7, (void *)&zero));
  TRY(parity_full_step(c, s.session, 0, log, "train"));
done:
  parity_close(&s);
  free(missing);
  free(no_folder);
  free(model);
  free(model_bytes);
  return failed;
}

struct paths {
  const char *train, *eval, *optimizer;
};

static OrtStatus *create(const struct parity_case *c, const struct paths *paths) {
  OrtSessionOptions *options = NULL;
  struct parity_session s = {0};
  char *checkpoint = parity_path(c->artifacts, "checkpoint");
  OrtStatus *status = parity_env(&s.env);
  if (status == NULL) status = parity_session_options(&options);
  if (status == NULL) status = parity_training()->LoadCheckpoint(checkpoint, &s.state);
  if (status == NULL) {
    status = parity_training()->CreateTrainingSession(s.env, options, s.state, paths->train, paths->eval,
                                                      paths->optimizer, &s.session);
  }
  parity_close(&s);
  if (options != NULL) parity_ort()->ReleaseSessionOptions(options);
  free(checkpoint);
  return status;
}

int parity_session_errors(const struct parity_case *c, struct parity_log *log) {
  char *train = parity_path(c->artifacts, "training_model.onnx");
  char *eval = parity_path(c->artifacts, "eval_model.onnx");
  char *optimizer = parity_path(c->artifacts, "optimizer_model.onnx");
  char *checkpoint = parity_path(c->artifacts, "checkpoint");
  char *missing = parity_path(c->scratch, "no-such-model.onnx");
  parity_status(log, "missing training model", create(c, &(struct paths){missing, eval, optimizer}));
  parity_status(log, "missing eval model", create(c, &(struct paths){train, missing, optimizer}));
  parity_status(log, "missing optimizer model", create(c, &(struct paths){train, eval, missing}));
  parity_status(log, "a checkpoint for a model", create(c, &(struct paths){checkpoint, eval, optimizer}));
  parity_status(log, "an eval model for a training model", create(c, &(struct paths){eval, eval, optimizer}));
  parity_status(log, "a training model for an optimizer", create(c, &(struct paths){train, eval, train}));
  parity_status(log, "all in order", create(c, &(struct paths){train, eval, optimizer}));
  free(train);
  free(eval);
  free(optimizer);
  free(checkpoint);
  free(missing);
  return 0;
}

static void try_inputs(const struct parity_case *c, const struct parity_session *s, OrtValue *const *inputs,
                       size_t count, struct parity_log *log, const char *name) {
  OrtValue *outputs[PARITY_MAX_IO] = {NULL};
  (void)c;
  parity_status(log, name,
                parity_training()->TrainStep(s->session, NULL, count, (const OrtValue *const *)inputs, 1, outputs));
  parity_release_values(outputs, PARITY_MAX_IO);
}

int parity_input_errors(const struct parity_case *c, struct parity_log *log) {
  int failed = 0;
  OrtValue *inputs[PARITY_MAX_IO] = {NULL};
  OrtValue *wrong[3] = {NULL};
  const float *images = c->columns[0].data;
  const int64_t narrow[2] = {2, 3}, deep[3] = {2, (int64_t)c->columns[0].width, 1};
  struct parity_session s = {0};
  TRY(parity_open(c, NULL, &s));
  TRY(parity_batch(c, 0, 2, inputs));
  TRY(parity_tensor(images, narrow, 2, &wrong[0]));
  TRY(parity_tensor(images, deep, 3, &wrong[1]));
  TRY(parity_tensor(images, narrow, 1, &wrong[2]));
  try_inputs(c, &s, (OrtValue *[]){wrong[0], inputs[1]}, 2, log, "wrong dimension");
  try_inputs(c, &s, (OrtValue *[]){wrong[1], inputs[1]}, 2, log, "wrong rank");
  try_inputs(c, &s, (OrtValue *[]){inputs[0], wrong[2]}, 2, log, "wrong element type");
  try_inputs(c, &s, (OrtValue *[]){inputs[0]}, 1, log, "too few");
  TRY(parity_full_step(c, s.session, 0, log, "train"));
done:
  parity_release_values(wrong, 3);
  parity_release_values(inputs, PARITY_MAX_IO);
  parity_close(&s);
  return failed;
}

int parity_missing_models(const struct parity_case *c, struct parity_log *log) {
  int failed = 0;
  float rate = 0;
  char *path = parity_path(c->scratch, "never.onnx");
  OrtValue *inputs[PARITY_MAX_IO] = {NULL};
  OrtValue *outputs[PARITY_MAX_IO] = {NULL};
  struct parity_session s = {0};
  TRY(parity_open(c, NULL, &s));
  TRY(parity_train_step(c, s.session, 0, log, "train"));
  TRY(parity_batch(c, 0, c->batch_size, inputs));
  parity_status(log, "eval",
                parity_training()->EvalStep(s.session, NULL, c->column_count, (const OrtValue *const *)inputs, 1,
                                            outputs));
  parity_status(log, "optimizer", parity_training()->OptimizerStep(s.session, NULL));
  parity_status(log, "set learning rate", parity_training()->SetLearningRate(s.session, 0.5f));
  parity_status(log, "get learning rate", parity_training()->GetLearningRate(s.session, &rate));
  parity_status(log, "schedule", parity_training()->RegisterLinearLRScheduler(s.session, 1, 2, 0.5f));
  parity_status(log, "scheduler step", parity_training()->SchedulerStep(s.session));
  parity_status(log, "export",
                parity_training()->ExportModelForInferencing(s.session, path, 1, &c->inference_output));
  TRY(parity_training()->LazyResetGrad(s.session));
  TRY(parity_train_step(c, s.session, 1, log, "train"));
done:
  parity_release_values(outputs, PARITY_MAX_IO);
  parity_release_values(inputs, PARITY_MAX_IO);
  parity_close(&s);
  free(path);
  return failed;
}

int parity_export_errors(const struct parity_case *c, struct parity_log *log) {
  int failed = 0;
  const char *unknown = "nobody", *empty = "";
  char *path = parity_path(c->scratch, "never.onnx");
  char *no_folder = parity_path(c->scratch, "no-such-folder/model.onnx");
  struct parity_session s = {0};
  TRY(parity_open(c, NULL, &s));
  parity_status(log, "no outputs", parity_training()->ExportModelForInferencing(s.session, path, 0, NULL));
  parity_status(log, "unknown output", parity_training()->ExportModelForInferencing(s.session, path, 1, &unknown));
  parity_status(log, "empty output", parity_training()->ExportModelForInferencing(s.session, path, 1, &empty));
  parity_status(log, "no folder",
                parity_training()->ExportModelForInferencing(s.session, no_folder, 1, &c->inference_output));
  TRY(parity_full_step(c, s.session, 0, log, "train"));
done:
  parity_close(&s);
  free(path);
  free(no_folder);
  return failed;
}

int parity_wrong_index(const struct parity_case *c, int which, struct parity_log *log) {
  int failed = 0;
  char *name = NULL;
  const OrtTrainingApi *t = parity_training();
  OrtStatus *(*const name_of[])(const OrtTrainingSession *, size_t, OrtAllocator *, char **) = {
      t->TrainingSessionGetTrainingModelOutputName, t->TrainingSessionGetEvalModelOutputName,
      t->TrainingSessionGetTrainingModelInputName, t->TrainingSessionGetEvalModelInputName};
  struct parity_session s = {0};
  TRY(parity_open(c, NULL, &s));
  parity_status(log, "wrong index", name_of[which](s.session, 99, parity_allocator(), &name));
done:
  parity_close(&s);
  return failed;
}
