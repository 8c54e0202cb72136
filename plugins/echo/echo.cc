// The engine for tests: output i is input i times a factor plus a number. A model can be slow or
// fail on demand.
//
// A model is a text file with one keyword and its arguments per line:
//
//   tensor FP32 -1 4      input "x" and output "y" (then x1/y1, …), with dimensions; once or more
//   scale 2               y = scale * x + add, for FP32 and INT64; other types stay unchanged
//   add 0.5
//   fail_load MESSAGE     load() fails with this message
//   fail_run MESSAGE      run() fails with this message
//   crash_load SIGNAL     load() ends the process with that signal: 11, 6, 9
//   exit_load CODE        load() ends the process with that exit code
//   read FILE             load() fails unless it can read FILE
//   write FILE            load() fails unless it can write FILE
//   hold_load FILE        load() waits while FILE exists
//   hold_run FILE         run() waits while FILE exists
//   concurrent N          concurrent_runs_max
//   count_runs FILE       every run appends a line to FILE
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "infer/plugin_abi.h"

struct varda_engine_model {
  struct Place {
    std::string input;
    std::string output;
    std::int32_t dtype = 0;
    std::vector<std::int64_t> dims;
  };
  std::vector<Place> places;
  std::vector<varda_engine_spec> inputs;
  std::vector<varda_engine_spec> outputs;
  varda_engine_model_info info{};
  double scale = 1;
  double add = 0;
  std::string fail_run;
  std::string hold_run;
  std::string count_runs;
};

struct varda_engine_result {
  struct Output {
    std::string name;
    std::vector<std::int64_t> dims;
    std::vector<std::uint64_t> data;  // uint64 for the alignment
  };
  std::vector<Output> outputs;
  std::vector<varda_engine_tensor> tensors;
};

namespace {

std::int32_t fail(varda_engine_error* error, std::int32_t code, const std::string& message) {
  std::snprintf(error->message, sizeof error->message, "%s", message.c_str());
  return code;
}

std::int32_t dtype_of(const std::string& name) {
  static constexpr std::array<const char*, 14> kNames = {
      "BOOL",  "UINT8", "UINT16", "UINT32", "UINT64", "INT8",  "INT16",
      "INT32", "INT64", "FP16",   "FP32",   "FP64",   "BYTES", "BF16"};
  const auto it = std::find(kNames.begin(), kNames.end(), name);
  return it == kNames.end() ? 0 : static_cast<std::int32_t>(it - kNames.begin()) + 1;
}

void wait_while_exists(const std::string& file) {
  while (!file.empty() && ::access(file.c_str(), F_OK) == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

std::string rest_of(std::istringstream& words) {
  std::string rest;
  std::getline(words >> std::ws, rest);
  return rest;
}

const char* library_version() { return "1"; }

std::int32_t load(const varda_engine_load_options* options, varda_engine_model** out,
                  varda_engine_error* error) {
  if (options->options_count > 0) {
    return fail(error, VARDA_ENGINE_INVALID,
                std::string("the echo engine has no option \"") + options->options[0].name + "\"");
  }
  std::ifstream file(options->file);
  if (!file) return fail(error, VARDA_ENGINE_INVALID, std::string("cannot read ") + options->file);
  auto model = std::make_unique<varda_engine_model>();
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line);
    std::string word;
    if (!(words >> word)) continue;
    if (word == "tensor") {
      const std::string index = model->places.empty() ? "" : std::to_string(model->places.size());
      varda_engine_model::Place place{"x" + index, "y" + index, 0, {}};
      std::string dtype;
      words >> dtype;
      place.dtype = dtype_of(dtype);
      for (std::int64_t size = 0; words >> size;) place.dims.push_back(size);
      if (place.dtype == 0)
        return fail(error, VARDA_ENGINE_INVALID,
                    "line " + std::to_string(number) + ": no type " + dtype);
      model->places.push_back(std::move(place));
    } else if (word == "scale") {
      words >> model->scale;
    } else if (word == "add") {
      words >> model->add;
    } else if (word == "concurrent") {
      words >> model->info.concurrent_runs_max;
    } else if (word == "fail_load") {
      return fail(error, VARDA_ENGINE_INVALID, rest_of(words));
    } else if (word == "fail_run") {
      model->fail_run = rest_of(words);
    } else if (word == "crash_load") {
      int signal = 0;
      words >> signal;
      std::fprintf(stderr, "echo: crashes as requested\n");
      (void)std::signal(signal, SIG_DFL);  // sanitizers would turn the signal into an exit
      (void)std::raise(signal);
    } else if (word == "exit_load") {
      int code = 0;
      words >> code;
      std::_Exit(code);
    } else if (word == "read") {
      const std::string path = rest_of(words);
      if (!std::ifstream(path)) return fail(error, VARDA_ENGINE_INVALID, "cannot read " + path);
    } else if (word == "write") {
      const std::string path = rest_of(words);
      if (!std::ofstream(path, std::ios::app))
        return fail(error, VARDA_ENGINE_INVALID, "cannot write " + path);
    } else if (word == "hold_load") {
      wait_while_exists(rest_of(words));
    } else if (word == "hold_run") {
      model->hold_run = rest_of(words);
    } else if (word == "count_runs") {
      model->count_runs = rest_of(words);
    } else {
      return fail(error, VARDA_ENGINE_INVALID,
                  "line " + std::to_string(number) + ": no word " + word);
    }
  }
  if (model->places.empty()) return fail(error, VARDA_ENGINE_INVALID, "the model has no tensor");
  for (const auto& place : model->places) {
    const auto rank = static_cast<std::uint32_t>(place.dims.size());
    model->inputs.push_back({place.input.c_str(), place.dtype, rank, place.dims.data()});
    model->outputs.push_back({place.output.c_str(), place.dtype, rank, place.dims.data()});
  }
  model->info.inputs = model->inputs.data();
  model->info.inputs_count = static_cast<std::uint32_t>(model->inputs.size());
  model->info.outputs = model->outputs.data();
  model->info.outputs_count = static_cast<std::uint32_t>(model->outputs.size());
  *out = model.release();
  return VARDA_ENGINE_OK;
}

void unload(varda_engine_model* model) { std::unique_ptr<varda_engine_model> owner(model); }

const varda_engine_model_info* info(const varda_engine_model* model) { return &model->info; }

template <typename T>
void apply(const varda_engine_model& model, void* data, std::uint64_t bytes) {
  T* values = static_cast<T*>(data);
  for (std::uint64_t i = 0; i < bytes / sizeof(T); ++i)
    values[i] = static_cast<T>(model.scale * static_cast<double>(values[i]) + model.add);
}

std::int32_t run(varda_engine_model* model, const varda_engine_tensor* inputs,
                 std::uint32_t inputs_count, const char* const* names, std::uint32_t names_count,
                 varda_engine_result** out, varda_engine_error* error) {
  if (!model->count_runs.empty()) std::ofstream(model->count_runs, std::ios::app) << "run\n";
  wait_while_exists(model->hold_run);
  if (!model->fail_run.empty()) return fail(error, VARDA_ENGINE_INTERNAL, model->fail_run);
  auto result = std::make_unique<varda_engine_result>();
  const std::size_t wanted = names_count > 0 ? names_count : model->places.size();
  for (std::size_t i = 0; i < wanted; ++i) {
    const auto& place = names_count > 0
                            ? *std::find_if(model->places.begin(), model->places.end(),
                                            [&](const auto& p) { return p.output == names[i]; })
                            : model->places[i];
    const varda_engine_tensor& input =
        *std::find_if(inputs, inputs + inputs_count,
                      [&](const varda_engine_tensor& t) { return place.input == t.name; });
    varda_engine_result::Output output{place.output,
                                       {input.dims, input.dims + input.rank},
                                       std::vector<std::uint64_t>(input.size_bytes / 8 + 1)};
    if (input.size_bytes > 0) std::memcpy(output.data.data(), input.data, input.size_bytes);
    if (place.dtype == VARDA_DTYPE_FP32) apply<float>(*model, output.data.data(), input.size_bytes);
    if (place.dtype == VARDA_DTYPE_INT64)
      apply<std::int64_t>(*model, output.data.data(), input.size_bytes);
    result->outputs.push_back(std::move(output));
    result->tensors.push_back(
        {nullptr, place.dtype, input.rank, nullptr, nullptr, input.size_bytes});
  }
  // Set last: the vectors no longer move.
  for (std::size_t i = 0; i < wanted; ++i) {
    result->tensors[i].name = result->outputs[i].name.c_str();
    result->tensors[i].dims = result->outputs[i].dims.data();
    result->tensors[i].data = result->outputs[i].data.data();
  }
  *out = result.release();
  return VARDA_ENGINE_OK;
}

const varda_engine_tensor* tensors(const varda_engine_result* result, std::uint32_t* count) {
  *count = static_cast<std::uint32_t>(result->tensors.size());
  return result->tensors.data();
}

void free_result(varda_engine_result* result) {
  std::unique_ptr<varda_engine_result> owner(result);
}

constexpr varda_engine_api kApi = {sizeof(varda_engine_api),
                                   VARDA_ENGINE_ABI_VERSION,
                                   "echo",
                                   library_version,
                                   load,
                                   unload,
                                   info,
                                   run,
                                   tensors,
                                   free_result};

}  // namespace

extern "C" __attribute__((visibility("default"))) const varda_engine_api* varda_engine(
    std::uint32_t abi_version, const varda_engine_host*) {
  return abi_version == VARDA_ENGINE_ABI_VERSION ? &kApi : nullptr;
}
