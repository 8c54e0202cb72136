// The plug-in's function table, over network.h.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <opencv2/core.hpp>

#include "library.h"
#include "network.h"

namespace {

std::int32_t fail(varda_engine_error* error, std::int32_t code, const std::string& problem) {
  std::snprintf(error->message, sizeof error->message, "%s", problem.c_str());
  return code;
}

// "OpenCV: Assertion failed: …", as one line
std::string message_of(const cv::Exception& e) {
  std::string out = "OpenCV: " + (e.err.empty() ? std::string(e.what()) : e.err);
  std::replace(out.begin(), out.end(), '\n', ' ');
  return out;
}

std::int32_t code_of(const cv::Exception& e, std::int32_t otherwise) {
  if (e.code == cv::Error::StsNoMem) return VARDA_ENGINE_EXHAUSTED;
  const bool unknown_layer = e.err.find("Can't create layer") != std::string::npos ||
                             e.err.find("Unknown layer type") != std::string::npos;
  return e.code == cv::Error::StsNotImplemented || unknown_layer ? VARDA_ENGINE_UNSUPPORTED
                                                                 : otherwise;
}

// Exceptions must not cross the ABI. `otherwise` is the code of OpenCV's own errors.
template <typename F>
std::int32_t guarded(varda_engine_error* error, std::int32_t otherwise, F&& body) {
  try {
    std::string problem;
    const std::int32_t code = body(problem);
    return code == VARDA_ENGINE_OK ? code : fail(error, code, problem);
  } catch (const cv::Exception& e) {
    return fail(error, code_of(e, otherwise), message_of(e));
  } catch (const std::bad_alloc&) {
    return fail(error, VARDA_ENGINE_EXHAUSTED, "out of memory");
  } catch (const std::exception& e) {
    return fail(error, VARDA_ENGINE_INTERNAL, e.what());
  }
}

const char* library_version() { return CV_VERSION; }

std::int32_t load(const varda_engine_load_options* options, varda_engine_model** out,
                  varda_engine_error* error) {
  return guarded(error, VARDA_ENGINE_INVALID, [&](std::string& problem) {
    auto model = std::make_unique<varda_engine_model>();
    const std::int32_t code = model->load(*options, problem);
    if (code == VARDA_ENGINE_OK) *out = model.release();
    return code;
  });
}

void unload(varda_engine_model* model) { std::unique_ptr<varda_engine_model> owner(model); }

const varda_engine_model_info* info(const varda_engine_model* model) { return &model->info; }

std::int32_t run(varda_engine_model* model, const varda_engine_tensor* inputs,
                 std::uint32_t inputs_count, const char* const* outputs,
                 std::uint32_t outputs_count, varda_engine_result** out,
                 varda_engine_error* error) {
  return guarded(error, VARDA_ENGINE_INTERNAL, [&](std::string& problem) {
    auto result = std::make_unique<varda_engine_result>();
    const std::int32_t code =
        model->run(inputs, inputs_count, outputs, outputs_count, *result, problem);
    if (code == VARDA_ENGINE_OK) *out = result.release();
    return code;
  });
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
                                   "opencv",
                                   library_version,
                                   load,
                                   unload,
                                   info,
                                   run,
                                   tensors,
                                   free_result};

}  // namespace

extern "C" __attribute__((visibility("default"))) const varda_engine_api* varda_engine(
    std::uint32_t abi_version, const varda_engine_host* host) {
  if (abi_version != VARDA_ENGINE_ABI_VERSION) return nullptr;
  varda_opencv::set_host(host);
  return &kApi;
}
