/* The training loop: steps, gradient accumulation, schedules, saving and continuing. */
#include "parity.h"

static OrtStatus *log_learning_rate(OrtTrainingSession *session, struct parity_log *log, const char *name) {
  float rate = 0;
  OrtStatus *status = parity_training()->GetLearningRate(session, &rate);
  if (status == NULL) parity_float(log, name, rate);
  return status;
}

int parity_train(const struct parity_case *c, struct parity_log *log) {
  int failed = 0;
  struct parity_session s = {0};
  TRY(parity_open(c, NULL, &s));
  TRY(log_learning_rate(s.session, log, "default learning rate"));
  TRY(parity_training()->SetLearningRate(s.session, c->learning_rate));
  TRY(log_learning_rate(s.session, log, "learning rate"));
  for (size_t step = 0; step < c->steps; ++step) TRY(parity_full_step(c, s.session, step, log, "train"));
  for (size_t step = 0; step < 3; ++step) TRY(parity_eval_step(c, s.session, step, log, "eval"));
  TRY(parity_log_parameters(c, s.state, log, "parameter"));
done:
  parity_close(&s);
  return failed;
}

int parity_accumulate(const struct parity_case *c, size_t micro_batches, struct parity_log *log) {
  int failed = 0;
  struct parity_session s = {0};
  TRY(parity_open(c, NULL, &s));
  TRY(parity_training()->SetLearningRate(s.session, c->learning_rate));
  for (size_t step = 0; step < c->steps; ++step) {
    for (size_t micro = 0; micro < micro_batches; ++micro)
      TRY(parity_train_step(c, s.session, step * micro_batches + micro, log, "micro batch"));
    TRY(parity_training()->OptimizerStep(s.session, NULL));
    TRY(parity_training()->LazyResetGrad(s.session));
    TRY(parity_log_parameters(c, s.state, log, "parameter"));
  }
done:
  parity_close(&s);
  return failed;
}

int parity_schedule(const struct parity_case *c, int64_t warmup, int64_t total, struct parity_log *log) {
  int failed = 0;
  struct parity_session s = {0};
  TRY(parity_open(c, NULL, &s));
  /* Before one is registered a scheduler step is an error. */
  parity_status(log, "no schedule", parity_training()->SchedulerStep(s.session));
  TRY(parity_training()->RegisterLinearLRScheduler(s.session, warmup, total, c->learning_rate));
  TRY(log_learning_rate(s.session, log, "registered"));
  for (size_t step = 0; step < c->steps; ++step) {
    TRY(parity_training()->SchedulerStep(s.session));
    TRY(log_learning_rate(s.session, log, "scheduled"));
    TRY(parity_full_step(c, s.session, step, log, "train"));
  }
  TRY(parity_log_parameters(c, s.state, log, "parameter"));
done:
  parity_close(&s);
  return failed;
}

int parity_save_load_continue(const struct parity_case *c, struct parity_log *log) {
  int failed = 0;
  const size_t half = c->steps / 2;
  char *with = parity_path(c->scratch, "with-optimizer");
  char *without = parity_path(c->scratch, "without-optimizer");
  struct parity_session s = {0};
  TRY(parity_open(c, NULL, &s));
  TRY(parity_training()->SetLearningRate(s.session, c->learning_rate));
  for (size_t step = 0; step < half; ++step) TRY(parity_full_step(c, s.session, step, log, "before"));
  TRY(parity_training()->SaveCheckpoint(s.state, with, true));
  TRY(parity_training()->SaveCheckpoint(s.state, without, false));
  for (size_t step = half; step < c->steps; ++step) TRY(parity_full_step(c, s.session, step, log, "uninterrupted"));
  TRY(parity_log_parameters(c, s.state, log, "uninterrupted"));
  parity_close(&s);

  TRY(parity_open(c, with, &s));
  /* A checkpoint keeps the optimizer's step count and moments, not the learning rate last set. */
  TRY(log_learning_rate(s.session, log, "learning rate with optimizer state"));
  TRY(parity_training()->SetLearningRate(s.session, c->learning_rate));
  for (size_t step = half; step < c->steps; ++step) TRY(parity_full_step(c, s.session, step, log, "continued"));
  TRY(parity_log_parameters(c, s.state, log, "continued"));
  parity_close(&s);

  TRY(parity_open(c, without, &s));
  TRY(log_learning_rate(s.session, log, "learning rate without optimizer state"));
  TRY(parity_training()->SetLearningRate(s.session, c->learning_rate));
  for (size_t step = half; step < c->steps; ++step) TRY(parity_full_step(c, s.session, step, log, "restarted"));
  TRY(parity_log_parameters(c, s.state, log, "restarted"));
done:
  parity_close(&s);
  free(with);
  free(without);
  return failed;
}

int parity_seed(const struct parity_case *c, int64_t seed, struct parity_log *log) {
  int failed = 0;
  for (int run = 0; run < 3; ++run) {
    struct parity_session s = {0};
    /* The last run has another seed. */
    TRY(parity_training()->SetSeed(run == 2 ? seed + 1 : seed));
    TRY(parity_open(c, NULL, &s));
    TRY(parity_training()->SetLearningRate(s.session, c->learning_rate));
    for (size_t step = 0; step < c->steps; ++step) TRY(parity_full_step(c, s.session, step, log, "train"));
    TRY(parity_log_parameters(c, s.state, log, "parameter"));
  done:
    parity_close(&s);
    if (failed) break;
  }
  return failed;
}

int parity_release(const struct parity_case *c, size_t times, struct parity_log *log) {
  int failed = 0;
  for (size_t i = 0; i < times && !failed; ++i) {
    struct parity_session s = {0};
    TRY(parity_open(c, NULL, &s));
    TRY(parity_full_step(c, s.session, i, log, "train"));
  done:
    parity_close(&s);
  }
  return failed;
}

int parity_run_options(const struct parity_case *c, struct parity_log *log) {
  int failed = 0;
  OrtRunOptions *options = NULL;
  OrtValue *inputs[PARITY_MAX_IO] = {NULL};
  OrtValue *outputs[PARITY_MAX_IO] = {NULL};
  struct parity_session s = {0};
  TRY(parity_open(c, NULL, &s));
  TRY(parity_ort()->CreateRunOptions(&options));
  TRY(parity_ort()->RunOptionsSetRunTag(options, "parity"));
  TRY(parity_ort()->RunOptionsSetRunLogSeverityLevel(options, ORT_LOGGING_LEVEL_ERROR));
  TRY(parity_batch(c, 0, c->batch_size, inputs));
  TRY(parity_training()->TrainStep(s.session, options, c->column_count, (const OrtValue *const *)inputs, 1, outputs));
  TRY(parity_log_value(log, "train", outputs[0]));
  parity_release_values(outputs, PARITY_MAX_IO);
  TRY(parity_training()->OptimizerStep(s.session, options));
  TRY(parity_training()->EvalStep(s.session, options, c->column_count, (const OrtValue *const *)inputs, 1, outputs));
  TRY(parity_log_value(log, "eval", outputs[0]));
  parity_release_values(outputs, PARITY_MAX_IO);
  /* ONNX Runtime 1.21 takes run options for its training steps and passes them on to nothing. */
  TRY(parity_ort()->RunOptionsSetTerminate(options));
  parity_status(log, "terminated train",
                parity_training()->TrainStep(s.session, options, c->column_count, (const OrtValue *const *)inputs, 1,
                                             outputs));
  parity_release_values(outputs, PARITY_MAX_IO);
done:
  parity_release_values(outputs, PARITY_MAX_IO);
  parity_release_values(inputs, PARITY_MAX_IO);
  if (options != NULL) parity_ort()->ReleaseRunOptions(options);
  parity_close(&s);
  return failed;
}

int parity_digits(const struct parity_case *c, const float *parameters, size_t parameter_count,
                  const size_t *batch_sizes, size_t batch_count, int64_t warmup, int64_t total,
                  struct parity_log *log) {
  int failed = 0;
  OrtValue *buffer = NULL;
  OrtValue *inputs[PARITY_MAX_IO] = {NULL};
  OrtValue *outputs[PARITY_MAX_IO] = {NULL};
  const int64_t shape[1] = {(int64_t)parameter_count};
  struct parity_session s = {0};
  TRY(parity_open(c, NULL, &s));
  TRY(parity_tensor(parameters, shape, 1, &buffer));
  TRY(parity_training()->CopyBufferToParameters(s.session, buffer, false));
  TRY(parity_training()->RegisterLinearLRScheduler(s.session, warmup, total, c->learning_rate));
  size_t first = 0;
  for (size_t i = 0; i < batch_count; ++i) {
    TRY(parity_batch(c, first, batch_sizes[i], inputs));
    TRY(parity_training()->TrainStep(s.session, NULL, c->column_count, (const OrtValue *const *)inputs, 2, outputs));
    TRY(parity_log_value(log, "loss", outputs[0]));
    parity_release_values(outputs, PARITY_MAX_IO);
    parity_release_values(inputs, PARITY_MAX_IO);
    TRY(parity_training()->SchedulerStep(s.session));
    TRY(parity_training()->OptimizerStep(s.session, NULL));
    TRY(parity_training()->LazyResetGrad(s.session));
    first += batch_sizes[i];
  }
  TRY(parity_log_parameters(c, s.state, log, "parameter"));
done:
  parity_release_values(outputs, PARITY_MAX_IO);
  parity_release_values(inputs, PARITY_MAX_IO);
  parity_release_values(&buffer, 1);
  parity_close(&s);
  return failed;
}
