// Between the ONNX Runtime engine and varda-operators-onednn.so, which the engine opens when a
// model asks for it. Both come from one build, so the interface has no version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <onnxruntime_c_api.h>

extern "C" {

/// The custom operators of one session.
struct varda_operators;

/// Adds the operators of the domain "varda" to the options of one session. `threads` work on each
/// operator; 0: as many as the processors. Null on failure; `problem` has the reason then. The
/// operators outlive the session.
using varda_operators_add_function = varda_operators* (*)(const OrtApi* api,
                                                          OrtSessionOptions* options,
                                                          std::uint32_t threads, char* problem,
                                                          std::size_t problem_bytes);
using varda_operators_free_function = void (*)(varda_operators* operators);

}  // extern "C"

#define VARDA_OPERATORS_ADD "varda_operators_add"
#define VARDA_OPERATORS_FREE "varda_operators_free"
