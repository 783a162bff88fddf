#include "parity.h"

static void append(struct parity_log *log, const void *bytes, size_t length) {
  if (log->length + length > log->capacity) {
    size_t capacity = 2 * (log->length + length);
    uint8_t *data = realloc(log->data, capacity);
    if (data == NULL) abort();
    log->data = data;
    log->capacity = capacity;
  }
  if (length != 0) memcpy(log->data + log->length, bytes, length);
  log->length += length;
}

void parity_record(struct parity_log *log, const char *name, enum parity_kind kind, const void *bytes, size_t length) {
  uint64_t name_length = strlen(name);
  uint64_t payload_length = length;
  uint8_t tag = (uint8_t)kind;
  append(log, &tag, 1);
  append(log, &name_length, sizeof name_length);
  append(log, name, name_length);
  append(log, &payload_length, sizeof payload_length);
  append(log, bytes, length);
}

void parity_floats(struct parity_log *log, const char *name, const float *values, size_t count) {
  parity_record(log, name, PARITY_FLOATS, values, count * sizeof *values);
}

void parity_float(struct parity_log *log, const char *name, float value) { parity_floats(log, name, &value, 1); }

void parity_ints(struct parity_log *log, const char *name, const int64_t *values, size_t count) {
  parity_record(log, name, PARITY_INTS, values, count * sizeof *values);
}

void parity_int(struct parity_log *log, const char *name, int64_t value) { parity_ints(log, name, &value, 1); }

void parity_text(struct parity_log *log, const char *name, const char *text) {
  parity_record(log, name, PARITY_TEXT, text, strlen(text));
}

void parity_status(struct parity_log *log, const char *name, OrtStatus *status) {
  int32_t code = ORT_OK;
  const char *message = "";
  if (status != NULL) {
    code = (int32_t)parity_ort()->GetErrorCode(status);
    message = parity_ort()->GetErrorMessage(status);
  }
  size_t length = sizeof code + strlen(message);
  uint8_t *payload = malloc(length);
  if (payload == NULL) abort();
  memcpy(payload, &code, sizeof code);
  memcpy(payload + sizeof code, message, length - sizeof code);
  parity_record(log, name, PARITY_ERROR, payload, length);
  free(payload);
  parity_ort()->ReleaseStatus(status);
}

void parity_log_free(struct parity_log *log) {
  free(log->data);
  log->data = NULL;
  log->length = log->capacity = 0;
}
