/* Inference engine plug-in ABI, version 1. C, self-contained: a plug-in needs only this file.
 *
 * A plug-in is a shared object named varda-engine-NAME.so with one exported symbol, varda_engine.
 * The host calls the symbol once with its ABI version and its services. The plug-in returns a table
 * of functions, or NULL if it does not support the version. The plug-in is never unloaded.
 *
 * Rules
 * - Strings are UTF-8 and NUL-terminated. The side that allocates memory frees it. Each pointer's
 *   lifetime is documented.
 * - No exception, longjmp or signal crosses the ABI.
 * - A failing function returns a code and fills `error->message` with a sentence that a user can
 *   act on.
 * - Later minor versions only append to the tables; `size_bytes` shows which members exist.
 */
#ifndef VARDA_INFER_PLUGIN_ABI_H_
#define VARDA_INFER_PLUGIN_ABI_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VARDA_ENGINE_ABI_VERSION 1u
#define VARDA_ENGINE_SYMBOL "varda_engine"

/* Return codes of functions. */
enum {
  VARDA_ENGINE_OK = 0,
  VARDA_ENGINE_INVALID = 1,     /* the model, the options or the input are wrong */
  VARDA_ENGINE_UNSUPPORTED = 2, /* valid, but not for this engine */
  VARDA_ENGINE_UNAVAILABLE =
      3,                      /* a dependency is missing, such as the library behind the plug-in */
  VARDA_ENGINE_EXHAUSTED = 4, /* memory or another resource */
  VARDA_ENGINE_INTERNAL = 5
};

/* Element types. A BYTES element is a 32-bit little-endian length and that many bytes; elements
 * follow each other. */
enum {
  VARDA_DTYPE_BOOL = 1,
  VARDA_DTYPE_UINT8 = 2,
  VARDA_DTYPE_UINT16 = 3,
  VARDA_DTYPE_UINT32 = 4,
  VARDA_DTYPE_UINT64 = 5,
  VARDA_DTYPE_INT8 = 6,
  VARDA_DTYPE_INT16 = 7,
  VARDA_DTYPE_INT32 = 8,
  VARDA_DTYPE_INT64 = 9,
  VARDA_DTYPE_FP16 = 10,
  VARDA_DTYPE_FP32 = 11,
  VARDA_DTYPE_FP64 = 12,
  VARDA_DTYPE_BYTES = 13,
  VARDA_DTYPE_BF16 = 14
};

enum { VARDA_LOG_DEBUG = 0, VARDA_LOG_INFO = 1, VARDA_LOG_WARN = 2, VARDA_LOG_ERROR = 3 };

typedef struct varda_engine_model varda_engine_model;   /* defined by the plug-in */
typedef struct varda_engine_result varda_engine_result; /* defined by the plug-in */

typedef struct varda_engine_error {
  char message[2048]; /* longer ones are cut */
} varda_engine_error;

/* An input or output of a model. dims[i] is -1 if any size is accepted. */
typedef struct varda_engine_spec {
  const char* name;
  int32_t dtype;
  uint32_t rank;
  const int64_t* dims;
} varda_engine_spec;

/* A tensor: dense, row-major, little-endian. */
typedef struct varda_engine_tensor {
  const char* name;
  int32_t dtype;
  uint32_t rank;
  const int64_t* dims;
  const void* data; /* aligned for the type; not NULL unless size_bytes is 0 */
  uint64_t size_bytes;
} varda_engine_tensor;

typedef struct varda_engine_option {
  const char* name;
  const char* value;
} varda_engine_option;

typedef struct varda_engine_load_options {
  uint64_t size_bytes;   /* of this struct */
  const char* directory; /* of the model's version */
  const char* file;      /* the model's main file, absolute or relative to the working directory */
  uint32_t intra_op_threads; /* threads per run, including the caller's; 0: the engine's choice */
  uint32_t memory_arena;     /* 1: keep freed memory for the next run; 0: return it */
  const varda_engine_option* options; /* engine-specific; an unknown name is VARDA_ENGINE_INVALID */
  uint32_t options_count;
  /* The model's bytes, borrowed for the call; `file` is "" then. NULL: `file` has the model. A model
   * in memory has no directory, so the engine rejects one that refers to other files. */
  const void* model;
  uint64_t model_bytes;
} varda_engine_load_options;

/* Description of a loaded model. Lives as long as the model. */
typedef struct varda_engine_model_info {
  const varda_engine_spec* inputs;
  uint32_t inputs_count;
  const varda_engine_spec* outputs;
  uint32_t outputs_count;
  uint32_t concurrent_runs_max; /* limit of concurrent runs; 0: no limit */
} varda_engine_model_info;

/* Services of the host. Live as long as the process. */
typedef struct varda_engine_host {
  uint64_t size_bytes; /* of this struct */
  /* Thread-safe. `message` is one line. */
  void (*log)(int32_t level, const char* message);
} varda_engine_host;

/* Functions of a plug-in. Live as long as the process. All are thread-safe. */
typedef struct varda_engine_api {
  uint64_t size_bytes;  /* of this struct */
  uint32_t abi_version; /* VARDA_ENGINE_ABI_VERSION */
  const char* name;     /* "onnxruntime" */

  /* Version of the library behind the plug-in, "" if unknown. May load the library. */
  const char* (*library_version)(void);

  /* Loads a model. On success the host passes *model to unload(), after all runs have ended. */
  int32_t (*load)(const varda_engine_load_options* options, varda_engine_model** model,
                  varda_engine_error* error);
  void (*unload)(varda_engine_model* model);
  const varda_engine_model_info* (*info)(const varda_engine_model* model);

  /* Runs the model once. Inputs and names are borrowed for the call. `outputs` names the wanted
   * outputs in order; if outputs_count is 0, all in the model's order. On success the host passes
   * *result to free_result(). */
  int32_t (*run)(varda_engine_model* model, const varda_engine_tensor* inputs,
                 uint32_t inputs_count, const char* const* outputs, uint32_t outputs_count,
                 varda_engine_result** result, varda_engine_error* error);
  /* The outputs, valid until free_result(). */
  const varda_engine_tensor* (*tensors)(const varda_engine_result* result, uint32_t* count);
  /* Called on any thread. */
  void (*free_result)(varda_engine_result* result);
} varda_engine_api;

typedef const varda_engine_api* (*varda_engine_entry)(uint32_t abi_version,
                                                      const varda_engine_host* host);

#ifdef __cplusplus
}
#endif

#endif /* VARDA_INFER_PLUGIN_ABI_H_ */
