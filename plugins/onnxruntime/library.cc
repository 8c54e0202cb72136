#include "library.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <vector>

namespace varda_onnxruntime {
namespace {

// The first API version with every function used here. Newer libraries have it too.
constexpr std::uint32_t kApiVersion = 14;
// The first release in which no tensor reads files outside the model's directory, or memory by
// address (https://github.com/microsoft/onnxruntime/pull/26776, 28709, 29011, 32135).
constexpr int kMinor = 30;

/// Whether a version such as "1.30.0" is at least that release.
bool is_closed(const std::string& version) {
  int major = 0, minor = 0;
  return std::sscanf(version.c_str(), "%d.%d", &major, &minor) == 2 &&
         (major > 1 || (major == 1 && minor >= kMinor));
}

std::atomic<const varda_engine_host*> host_services{nullptr};

void ORT_API_CALL log_line(void*, OrtLoggingLevel severity, const char*, const char*, const char*,
                           const char* message) {
  const varda_engine_host* host = host_services.load();
  if (host == nullptr || host->log == nullptr) return;
  const std::int32_t level = severity <= ORT_LOGGING_LEVEL_VERBOSE   ? VARDA_LOG_DEBUG
                             : severity == ORT_LOGGING_LEVEL_INFO    ? VARDA_LOG_INFO
                             : severity == ORT_LOGGING_LEVEL_WARNING ? VARDA_LOG_WARN
                                                                     : VARDA_LOG_ERROR;
  host->log(level, message);
}

std::vector<std::string> places() {
  // The variable names the only library to try.
  if (const char* named = std::getenv("VARDA_ONNXRUNTIME"); named != nullptr && *named != '\0')
    return {named};
  std::vector<std::string> out;
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&places), &self) != 0 && self.dli_fname != nullptr) {
    out.push_back(
        (std::filesystem::path(self.dli_fname).parent_path() / "libonnxruntime.so.1").string());
  }
  out.emplace_back("libonnxruntime.so.1");
  return out;
}

Library open_library() {
  Library out;
  void* handle = nullptr;
  std::string path;
  for (const std::string& place : places()) {
    std::error_code ignored;
    const bool is_path = place.find('/') != std::string::npos;
    if (is_path && !std::filesystem::exists(place, ignored)) {
      out.problem += (out.problem.empty() ? "" : "; ") + place + " does not exist";
      continue;
    }
    handle = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) {
      path = place;
      break;
    }
    out.problem += (out.problem.empty() ? "" : "; ") + std::string(::dlerror());
  }
  if (handle == nullptr) {
    out.problem =
        "ONNX Runtime's library does not load (set VARDA_ONNXRUNTIME to libonnxruntime.so.1, or "
        "run `make deps`): " +
        out.problem;
    return out;
  }
  out.problem.clear();
  using GetApiBase = const OrtApiBase* (*)();
  const auto get_api_base = reinterpret_cast<GetApiBase>(::dlsym(handle, "OrtGetApiBase"));
  if (get_api_base == nullptr) {
    out.problem = path + " is not ONNX Runtime: it has no OrtGetApiBase";
    return out;
  }
  out.version = get_api_base()->GetVersionString();
  out.api = get_api_base()->GetApi(kApiVersion);
  if (out.api == nullptr) {
    out.problem = path + " is ONNX Runtime " + out.version + "; 1." + std::to_string(kApiVersion) +
                  " or newer is needed";
    return out;
  }
  const char* const any = std::getenv("VARDA_ONNXRUNTIME_ANY");
  if (!is_closed(out.version) && (any == nullptr || *any == '\0')) {
    out.problem = path + " is ONNX Runtime " + out.version +
                  ", with which a model can read any file; 1." + std::to_string(kMinor) +
                  " or newer is needed, or VARDA_ONNXRUNTIME_ANY=1 where every model is trusted";
    out.api = nullptr;
    return out;
  }
  OrtStatus* status = out.api->CreateEnvWithCustomLogger(log_line, nullptr, ORT_LOGGING_LEVEL_ERROR,
                                                         "varda", &out.env);
  if (status != nullptr) {
    out.problem = "ONNX Runtime does not start: " + std::string(out.api->GetErrorMessage(status));
    out.api->ReleaseStatus(status);
    out.api = nullptr;
  }
  return out;
}

}  // namespace

const Library& library() {
  // Never destroyed: the library's threads may outlive main().
  static const Library* const instance = new Library(open_library());
  return *instance;
}

void set_host(const varda_engine_host* host) { host_services = host; }

std::string take(OrtStatus* status) {
  if (status == nullptr) return "";
  std::string message = library().api->GetErrorMessage(status);
  library().api->ReleaseStatus(status);
  return message.empty() ? "ONNX Runtime gave no reason" : message;
}

}  // namespace varda_onnxruntime
