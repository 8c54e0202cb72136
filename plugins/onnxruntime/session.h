// One ONNX model: a session, its description, and runs.
#pragma once

#include <cstdint>
#include <onnxruntime_c_api.h>
#include <string>
#include <vector>

#include "infer/plugin_abi.h"
#include "operators_abi.h"

/// A loaded model. Any number of threads may run it.
struct varda_engine_model {
  struct Place {
    std::string name;
    std::int32_t dtype = 0;
    std::vector<std::int64_t> dims;
    std::vector<std::string> symbols;  // names of the open dimensions; "" for fixed ones
  };

  OrtSession* session = nullptr;
  OrtMemoryInfo* memory = nullptr;       // the CPU's, for tensors over the caller's bytes
  varda_operators* operators = nullptr;  // of the session; null: ONNX's own operators only
  std::vector<Place> input_places;
  std::vector<Place> output_places;
  std::vector<varda_engine_spec> inputs;
  std::vector<varda_engine_spec> outputs;
  varda_engine_model_info info{};

  varda_engine_model() = default;
  varda_engine_model(const varda_engine_model&) = delete;
  ~varda_engine_model();

  std::int32_t load(const varda_engine_load_options& options, std::string& problem);
  std::int32_t run(const varda_engine_tensor* in, std::uint32_t in_count, const char* const* names,
                   std::uint32_t names_count, varda_engine_result& result, std::string& problem);

 private:
  std::int32_t describe(std::string& problem);
  std::string differing_dimension(const varda_engine_tensor* in, std::uint32_t in_count) const;
};

/// The outputs of one run; owns ONNX Runtime's values, or the encoded strings.
struct varda_engine_result {
  std::vector<OrtValue*> values;
  std::vector<std::vector<std::int64_t>> dims;
  std::vector<std::string> strings;
  std::vector<varda_engine_tensor> tensors;

  varda_engine_result() = default;
  varda_engine_result(const varda_engine_result&) = delete;
  ~varda_engine_result();
};
