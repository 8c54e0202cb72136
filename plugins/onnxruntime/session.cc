#include "session.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include "library.h"
#include "model_file.h"
#include "operators.h"

namespace {

using varda_onnxruntime::library;
using varda_onnxruntime::take;

struct Pair {
  std::int32_t varda;
  ONNXTensorElementDataType onnx;
};
constexpr std::array<Pair, 14> kTypes = {{
    {VARDA_DTYPE_BOOL, ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL},
    {VARDA_DTYPE_UINT8, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8},
    {VARDA_DTYPE_UINT16, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16},
    {VARDA_DTYPE_UINT32, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32},
    {VARDA_DTYPE_UINT64, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64},
    {VARDA_DTYPE_INT8, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8},
    {VARDA_DTYPE_INT16, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16},
    {VARDA_DTYPE_INT32, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},
    {VARDA_DTYPE_INT64, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64},
    {VARDA_DTYPE_FP16, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16},
    {VARDA_DTYPE_FP32, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},
    {VARDA_DTYPE_FP64, ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE},
    {VARDA_DTYPE_BYTES, ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING},
    {VARDA_DTYPE_BF16, ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16},
}};

std::int32_t varda_type(ONNXTensorElementDataType type) {
  for (const Pair& pair : kTypes) {
    if (pair.onnx == type) return pair.varda;
  }
  return 0;
}

ONNXTensorElementDataType onnx_type(std::int32_t dtype) {
  for (const Pair& pair : kTypes) {
    if (pair.varda == dtype) return pair.onnx;
  }
  return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
}

std::size_t element_bytes(std::int32_t dtype) {
  static constexpr std::array<std::size_t, 15> kBytes = {0, 1, 1, 2, 4, 8, 1, 2,
                                                         4, 8, 2, 4, 8, 0, 2};
  return kBytes[static_cast<std::size_t>(dtype)];
}

// Owns an ONNX Runtime object within a scope.
template <typename T>
using Owner = std::unique_ptr<T, void (*)(T*)>;
template <typename T>
Owner<T> own(T* raw, void(ORT_API_CALL* release)(T*)) {
  return Owner<T>(raw, release);
}

std::int32_t code_of(OrtErrorCode code) {
  switch (code) {
    case ORT_INVALID_ARGUMENT:
    case ORT_NO_SUCHFILE:
    case ORT_INVALID_PROTOBUF:
    case ORT_INVALID_GRAPH:
    case ORT_NO_MODEL:
      return VARDA_ENGINE_INVALID;
    case ORT_NOT_IMPLEMENTED:
      return VARDA_ENGINE_UNSUPPORTED;
    default:
      return VARDA_ENGINE_INTERNAL;
  }
}

// Returns from the enclosing function on an ONNX Runtime error.
#define ORT_TRY(call)                                                                 \
  do {                                                                                \
    if (OrtStatus* ort_status = (call); ort_status != nullptr) {                      \
      const std::int32_t ort_code = code_of(library().api->GetErrorCode(ort_status)); \
      problem = take(ort_status);                                                     \
      return ort_code;                                                                \
    }                                                                                 \
  } while (false)

std::int32_t add_operators(OrtSessionOptions* session, std::uint32_t threads, varda_operators** out,
                           std::string& problem) {
  const auto& operators = varda_onnxruntime::operators();
  problem = operators.problem;
  if (!problem.empty()) return VARDA_ENGINE_UNAVAILABLE;
  std::array<char, 512> reason{};
  *out = operators.add(library().api, session, threads, reason.data(), reason.size());
  if (*out != nullptr) return VARDA_ENGINE_OK;
  problem = reason.data();
  return VARDA_ENGINE_UNAVAILABLE;
}

std::int32_t apply_options(OrtSessionOptions* session, const varda_engine_load_options& options,
                           varda_operators** operators, std::string& problem) {
  const OrtApi& api = *library().api;
  ORT_TRY(api.SetIntraOpNumThreads(session, static_cast<int>(options.intra_op_threads)));
  ORT_TRY(api.SetInterOpNumThreads(session, 1));
  ORT_TRY(api.SetSessionGraphOptimizationLevel(session, ORT_ENABLE_ALL));
  ORT_TRY(options.memory_arena != 0 ? api.EnableCpuMemArena(session)
                                    : api.DisableCpuMemArena(session));
  // Waiting threads sleep: spinning would take cores from other models and from the server's own
  // threads.
  ORT_TRY(api.AddSessionConfigEntry(session, "session.intra_op.allow_spinning", "0"));
  for (std::uint32_t i = 0; i < options.options_count; ++i) {
    const std::string_view name = options.options[i].name;
    const std::string_view value = options.options[i].value;
    if (name == "optimization") {
      static constexpr std::array<std::pair<std::string_view, GraphOptimizationLevel>, 4> kLevels =
          {{{"none", ORT_DISABLE_ALL},
            {"basic", ORT_ENABLE_BASIC},
            {"extended", ORT_ENABLE_EXTENDED},
            {"all", ORT_ENABLE_ALL}}};
      const auto it = std::find_if(kLevels.begin(), kLevels.end(),
                                   [&](const auto& level) { return level.first == value; });
      if (it == kLevels.end()) {
        problem = "option optimization is none, basic, extended or all, not \"" +
                  std::string(value) + "\"";
        return VARDA_ENGINE_INVALID;
      }
      ORT_TRY(api.SetSessionGraphOptimizationLevel(session, it->second));
    } else if (name == "inter_op_threads") {
      int threads = 0;
      const auto parsed = std::from_chars(value.data(), value.data() + value.size(), threads);
      if (parsed.ec != std::errc() || parsed.ptr != value.data() + value.size() || threads < 1 ||
          threads > 256) {
        problem =
            "option inter_op_threads is a number from 1 to 256, not \"" + std::string(value) + "\"";
        return VARDA_ENGINE_INVALID;
      }
      ORT_TRY(api.SetInterOpNumThreads(session, threads));
      ORT_TRY(api.SetSessionExecutionMode(session, threads > 1 ? ORT_PARALLEL : ORT_SEQUENTIAL));
    } else if (name == "memory_pattern") {
      if (value != "on" && value != "off") {
        problem = "option memory_pattern is on or off, not \"" + std::string(value) + "\"";
        return VARDA_ENGINE_INVALID;
      }
      ORT_TRY(value == "on" ? api.EnableMemPattern(session) : api.DisableMemPattern(session));
    } else if (name == "operators") {
      if (value != "onednn") {
        problem = "option operators is onednn, not \"" + std::string(value) + "\"";
        return VARDA_ENGINE_INVALID;
      }
      if (const auto code = add_operators(session, options.intra_op_threads, operators, problem);
          code != VARDA_ENGINE_OK)
        return code;
    } else {
      problem = "the ONNX Runtime engine has no option \"" + std::string(name) + "\"";
      return VARDA_ENGINE_INVALID;
    }
  }
  return VARDA_ENGINE_OK;
}

enum class Side { kInput, kOutput };

std::int32_t describe_place(OrtSession* session, Side side, std::size_t index,
                            varda_engine_model::Place& place, std::string& problem) {
  const OrtApi& api = *library().api;
  OrtAllocator* allocator = nullptr;
  ORT_TRY(api.GetAllocatorWithDefaultOptions(&allocator));
  char* name = nullptr;
  ORT_TRY(side == Side::kInput ? api.SessionGetInputName(session, index, allocator, &name)
                               : api.SessionGetOutputName(session, index, allocator, &name));
  place.name = name;
  ORT_TRY(api.AllocatorFree(allocator, name));
  OrtTypeInfo* raw = nullptr;
  ORT_TRY(side == Side::kInput ? api.SessionGetInputTypeInfo(session, index, &raw)
                               : api.SessionGetOutputTypeInfo(session, index, &raw));
  const auto type = own(raw, api.ReleaseTypeInfo);
  const OrtTensorTypeAndShapeInfo* tensor = nullptr;
  ORT_TRY(api.CastTypeInfoToTensorInfo(type.get(), &tensor));
  if (tensor == nullptr) return VARDA_ENGINE_OK;  // a sequence or map: dtype stays 0
  ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  ORT_TRY(api.GetTensorElementType(tensor, &element));
  place.dtype = varda_type(element);
  std::size_t rank = 0;
  ORT_TRY(api.GetDimensionsCount(tensor, &rank));
  place.dims.resize(rank);
  ORT_TRY(api.GetDimensions(tensor, place.dims.data(), rank));
  for (std::int64_t& size : place.dims) size = std::max<std::int64_t>(size, -1);
  std::vector<const char*> symbols(rank);
  ORT_TRY(api.GetSymbolicDimensions(tensor, symbols.data(), rank));
  for (const char* symbol : symbols) place.symbols.emplace_back(symbol != nullptr ? symbol : "");
  return VARDA_ENGINE_OK;
}

std::int32_t string_value(const varda_engine_tensor& in, OrtValue** out, std::string& problem) {
  const OrtApi& api = *library().api;
  OrtAllocator* allocator = nullptr;
  ORT_TRY(api.GetAllocatorWithDefaultOptions(&allocator));
  ORT_TRY(api.CreateTensorAsOrtValue(allocator, in.dims, in.rank,
                                     ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING, out));
  // ONNX strings end at a NUL: reject strings with bytes after one, instead of cutting them.
  std::vector<std::string> items;
  const char* at = static_cast<const char*>(in.data);
  const char* const end = at + in.size_bytes;
  while (end - at >= 4) {
    std::uint32_t length = 0;
    std::memcpy(&length, at, 4);
    at += 4;
    if (static_cast<std::uint64_t>(end - at) < length) break;
    items.emplace_back(at, length);
    at += length;
    if (items.back().find('\0') != std::string::npos) {
      problem = std::string("input \"") + in.name + "\": ONNX strings hold no NUL bytes";
      return VARDA_ENGINE_INVALID;
    }
  }
  std::vector<const char*> pointers;
  for (const std::string& item : items) pointers.push_back(item.c_str());
  ORT_TRY(api.FillStringTensor(*out, pointers.data(), pointers.size()));
  return VARDA_ENGINE_OK;
}

std::int32_t input_value(const OrtMemoryInfo* memory, const varda_engine_tensor& in, OrtValue** out,
                         std::string& problem) {
  if (in.dtype == VARDA_DTYPE_BYTES) return string_value(in, out, problem);
  // The input is only read; the API lacks the const.
  ORT_TRY(library().api->CreateTensorWithDataAsOrtValue(memory, const_cast<void*>(in.data),
                                                        in.size_bytes, in.dims, in.rank,
                                                        onnx_type(in.dtype), out));
  return VARDA_ENGINE_OK;
}

std::int32_t encode_strings(OrtValue* value, std::size_t count, std::string& out,
                            std::string& problem) {
  const OrtApi& api = *library().api;
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t length = 0;
    ORT_TRY(api.GetStringTensorElementLength(value, i, &length));
    const auto prefix = static_cast<std::uint32_t>(length);
    const std::size_t at = out.size();
    out.resize(at + 4 + length);
    std::memcpy(out.data() + at, &prefix, 4);
    ORT_TRY(api.GetStringTensorElement(value, length, i, out.data() + at + 4));
  }
  return VARDA_ENGINE_OK;
}

std::int32_t output_tensor(varda_engine_result& result, std::size_t index, varda_engine_tensor& out,
                           std::string& problem) {
  const OrtApi& api = *library().api;
  OrtValue* value = result.values[index];
  int is_tensor = 0;
  ORT_TRY(api.IsTensor(value, &is_tensor));
  if (is_tensor == 0) {
    problem = std::string("output \"") + out.name + "\" is no tensor";
    return VARDA_ENGINE_UNSUPPORTED;
  }
  OrtTensorTypeAndShapeInfo* raw = nullptr;
  ORT_TRY(api.GetTensorTypeAndShape(value, &raw));
  const auto info = own(raw, api.ReleaseTensorTypeAndShapeInfo);
  ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  ORT_TRY(api.GetTensorElementType(info.get(), &element));
  std::size_t rank = 0;
  ORT_TRY(api.GetDimensionsCount(info.get(), &rank));
  result.dims[index].resize(rank);
  ORT_TRY(api.GetDimensions(info.get(), result.dims[index].data(), rank));
  std::size_t count = 0;
  ORT_TRY(api.GetTensorShapeElementCount(info.get(), &count));
  out.dtype = varda_type(element);
  out.rank = static_cast<std::uint32_t>(rank);
  out.dims = result.dims[index].data();
  if (out.dtype == VARDA_DTYPE_BYTES) {
    if (const std::int32_t code = encode_strings(value, count, result.strings[index], problem);
        code != VARDA_ENGINE_OK)
      return code;
    out.data = result.strings[index].data();
    out.size_bytes = result.strings[index].size();
    return VARDA_ENGINE_OK;
  }
  void* data = nullptr;
  ORT_TRY(api.GetTensorMutableData(value, &data));
  out.data = data;
  out.size_bytes = count * element_bytes(out.dtype);
  return VARDA_ENGINE_OK;
}

}  // namespace

varda_engine_model::~varda_engine_model() {
  if (session != nullptr) library().api->ReleaseSession(session);
  if (memory != nullptr) library().api->ReleaseMemoryInfo(memory);
  if (operators != nullptr) varda_onnxruntime::operators().free(operators);
}

varda_engine_result::~varda_engine_result() {
  for (OrtValue* value : values) {
    if (value != nullptr) library().api->ReleaseValue(value);
  }
}

std::int32_t varda_engine_model::load(const varda_engine_load_options& options,
                                      std::string& problem) {
  if (library().api == nullptr) {
    problem = library().problem;
    return VARDA_ENGINE_UNAVAILABLE;
  }
  // A host of an older minor version has no model in memory.
  constexpr std::size_t kWithModel =
      offsetof(varda_engine_load_options, model_bytes) + sizeof options.model_bytes;
  const bool in_memory = options.size_bytes >= kWithModel && options.model != nullptr;
  problem = in_memory ? varda_onnxruntime::why_bytes_refused(
                            {static_cast<const char*>(options.model), options.model_bytes})
                      : varda_onnxruntime::why_refused(options.file);
  if (!problem.empty()) return VARDA_ENGINE_INVALID;
  const OrtApi& api = *library().api;
  OrtSessionOptions* raw = nullptr;
  ORT_TRY(api.CreateSessionOptions(&raw));
  const auto session_options = own(raw, api.ReleaseSessionOptions);
  if (const std::int32_t code = apply_options(session_options.get(), options, &operators, problem);
      code != VARDA_ENGINE_OK)
    return code;
  if (in_memory) {
    ORT_TRY(api.CreateSessionFromArray(library().env, options.model, options.model_bytes,
                                       session_options.get(), &session));
  } else {
    ORT_TRY(api.CreateSession(library().env, options.file, session_options.get(), &session));
  }
  ORT_TRY(api.CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
  return describe(problem);
}

std::int32_t varda_engine_model::describe(std::string& problem) {
  const OrtApi& api = *library().api;
  std::size_t count = 0;
  ORT_TRY(api.SessionGetInputCount(session, &count));
  input_places.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (const auto code = describe_place(session, Side::kInput, i, input_places[i], problem);
        code != VARDA_ENGINE_OK)
      return code;
    if (input_places[i].dtype == 0) {
      problem = "input \"" + input_places[i].name + "\" is no tensor of a type that can be sent";
      return VARDA_ENGINE_UNSUPPORTED;
    }
  }
  ORT_TRY(api.SessionGetOutputCount(session, &count));
  for (std::size_t i = 0; i < count; ++i) {
    Place place;
    if (const auto code = describe_place(session, Side::kOutput, i, place, problem);
        code != VARDA_ENGINE_OK)
      return code;
    // Classifiers from scikit-learn have a map beside their labels: outputs that are no tensors are
    // omitted.
    if (place.dtype != 0) output_places.push_back(std::move(place));
  }
  if (output_places.empty()) {
    problem = "the model has no output that is a tensor";
    return VARDA_ENGINE_UNSUPPORTED;
  }
  const auto spec = [](const Place& place) {
    return varda_engine_spec{place.name.c_str(), place.dtype,
                             static_cast<std::uint32_t>(place.dims.size()), place.dims.data()};
  };
  for (const Place& place : input_places) inputs.push_back(spec(place));
  for (const Place& place : output_places) outputs.push_back(spec(place));
  info = {inputs.data(), static_cast<std::uint32_t>(inputs.size()), outputs.data(),
          static_cast<std::uint32_t>(outputs.size()), 0};
  return VARDA_ENGINE_OK;
}

// "inputs "a" and "b" differ in N: 3 and 2", for the first dimension name with two sizes; else "".
std::string varda_engine_model::differing_dimension(const varda_engine_tensor* in,
                                                    std::uint32_t in_count) const {
  struct Seen {
    const std::string* input;
    std::int64_t size;
  };
  std::map<std::string, Seen> sizes;
  for (const Place& place : input_places) {
    const auto* tensor = std::find_if(
        in, in + in_count, [&](const varda_engine_tensor& one) { return place.name == one.name; });
    if (tensor == in + in_count || tensor->rank != place.symbols.size()) continue;
    for (std::size_t i = 0; i < place.symbols.size(); ++i) {
      if (place.symbols[i].empty()) continue;
      const auto [seen, fresh] =
          sizes.emplace(place.symbols[i], Seen{&place.name, tensor->dims[i]});
      if (fresh || seen->second.size == tensor->dims[i]) continue;
      return "inputs \"" + *seen->second.input + "\" and \"" + place.name + "\" differ in " +
             place.symbols[i] + ": " + std::to_string(seen->second.size) + " and " +
             std::to_string(tensor->dims[i]);
    }
  }
  return "";
}

std::int32_t varda_engine_model::run(const varda_engine_tensor* in, std::uint32_t in_count,
                                     const char* const* names, std::uint32_t names_count,
                                     varda_engine_result& result, std::string& problem) {
  const OrtApi& api = *library().api;
  struct Values {
    std::vector<OrtValue*> all;
    ~Values() {
      for (OrtValue* value : all) {
        if (value != nullptr) library().api->ReleaseValue(value);
      }
    }
  } values;
  std::vector<const char*> in_names(in_count);
  values.all.resize(in_count);
  for (std::uint32_t i = 0; i < in_count; ++i) {
    in_names[i] = in[i].name;
    if (const auto code = input_value(memory, in[i], &values.all[i], problem);
        code != VARDA_ENGINE_OK)
      return code;
  }
  std::vector<const char*> out_names(names, names + names_count);
  if (names_count == 0) {
    for (const Place& place : output_places) out_names.push_back(place.name.c_str());
  }
  const std::size_t count = out_names.size();
  result.values.resize(count);
  result.dims.resize(count);
  result.strings.resize(count);
  result.tensors.resize(count);
  const auto run_session = [&]() -> std::int32_t {
    ORT_TRY(api.Run(session, nullptr, in_names.data(), values.all.data(), in_count,
                    out_names.data(), count, result.values.data()));
    return VARDA_ENGINE_OK;
  };
  if (const std::int32_t code = run_session(); code != VARDA_ENGINE_OK) {
    // Checked only after a failure: in some graphs dimensions with one name may differ, as with
    // broadcasting.
    const std::string differing = differing_dimension(in, in_count);
    if (differing.empty()) return code;
    problem = differing + ": " + problem;
    return VARDA_ENGINE_INVALID;
  }
  for (std::size_t i = 0; i < count; ++i) {
    // The names in output_places outlive the caller's.
    const auto it = std::find_if(output_places.begin(), output_places.end(),
                                 [&](const Place& place) { return place.name == out_names[i]; });
    result.tensors[i].name = it != output_places.end() ? it->name.c_str() : "";
    if (const auto code = output_tensor(result, i, result.tensors[i], problem);
        code != VARDA_ENGINE_OK)
      return code;
  }
  return VARDA_ENGINE_OK;
}
