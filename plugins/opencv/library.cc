#include "library.h"

#include <mutex>
#include <opencv2/core.hpp>
#include <opencv2/core/utils/logger.hpp>
#include <optional>
#include <string>

namespace varda_opencv {
namespace {

const varda_engine_host* g_host = nullptr;

int ignore_error(int, const char*, const char*, const char*, int, void*) { return 0; }

}  // namespace

void set_host(const varda_engine_host* host) {
  g_host = host;
  // Every error reaches the caller as an exception.
  cv::redirectError(ignore_error);
  cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
}

void use_threads(unsigned threads) {
  static std::mutex mutex;
  static std::optional<unsigned> chosen;
  const std::lock_guard lock(mutex);
  if (!chosen) {
    chosen = threads;
    cv::setNumThreads(threads == 0 ? -1 : static_cast<int>(threads));
  } else if (*chosen != threads && g_host != nullptr) {
    const std::string message = "OpenCV keeps " + std::to_string(*chosen) +
                                " threads, set by the first model; a model asks for " +
                                std::to_string(threads);
    g_host->log(VARDA_LOG_WARN, message.c_str());
  }
}

}  // namespace varda_opencv
