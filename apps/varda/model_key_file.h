// --model-keys: the file with the keys that sign models.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "hosting/model_keys.h"

namespace varda::app {

/// Reads the file again after five seconds at the earliest. A file that became unreadable or wrong
/// is logged, and the last keys stay. Thread-safe.
class ModelKeyFile final : public hosting::ModelKeySource {
 public:
  /// The error names the file, and for kInvalid the wrong line. `clock` outlives the result.
  static Result<std::shared_ptr<ModelKeyFile>> open(const std::filesystem::path& path,
                                                    const Clock& clock = system_clock());
  std::shared_ptr<const hosting::ModelKeys> keys() override;

 private:
  ModelKeyFile(std::filesystem::path path, const Clock& clock)
      : path_(std::move(path)), clock_(clock) {}
  Status read() REQUIRES(mutex_);

  const std::filesystem::path path_;
  const Clock& clock_;
  Mutex mutex_;
  SteadyTime read_at_ GUARDED_BY(mutex_);
  std::string text_ GUARDED_BY(mutex_);   // of keys_
  std::string error_ GUARDED_BY(mutex_);  // of the last attempt; "": it succeeded
  std::shared_ptr<const hosting::ModelKeys> keys_ GUARDED_BY(mutex_);
};

}  // namespace varda::app
