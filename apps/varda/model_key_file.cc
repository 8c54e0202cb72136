#include "model_key_file.h"

#include <utility>

#include "base/log.h"
#include "os/file_system.h"
#include "resolved_file.h"

namespace varda::app {

namespace {

constexpr std::chrono::seconds kReadAgain{5};
constexpr std::uint64_t kBytesMax = 1u << 20;

}  // namespace

Result<std::shared_ptr<ModelKeyFile>> ModelKeyFile::open(const std::filesystem::path& path,
                                                         const Clock& clock) {
  std::shared_ptr<ModelKeyFile> out(new ModelKeyFile(std::filesystem::absolute(path), clock));
  const MutexLock lock(out->mutex_);
  TRY_VOID(out->read());
  return out;
}

Status ModelKeyFile::read() {
  read_at_ = clock_.now();
  TRY(std::string text, os::read_file(os::real_file_system(), followed(path_), kBytesMax));
  // Equal keys keep their object, which remembers checked signatures.
  if (keys_ != nullptr && text == text_) return {};
  TRY(keys_, hosting::ModelKeys::parse(text).context(path_.string()));
  text_ = std::move(text);
  log::info("model keys read", {{"file", path_.string()}, {"keys", keys_->size()}});
  return {};
}

std::shared_ptr<const hosting::ModelKeys> ModelKeyFile::keys() {
  const MutexLock lock(mutex_);
  if (clock_.now() - read_at_ >= kReadAgain) {
    const Status status = read();
    std::string error = status.ok() ? "" : status.error().message();
    if (!error.empty() && error != error_)
      log::warn("file of model keys not usable, keeping its last keys", {{"error", error}});
    error_ = std::move(error);
  }
  return keys_;
}

}  // namespace varda::app
