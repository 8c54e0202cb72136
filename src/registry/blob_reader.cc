#include "registry/blob_reader.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "base/mutex.h"

namespace varda::registry {
namespace {

constexpr std::chrono::seconds kSilenceMax{60};

/// Wakes a thread that waits for a stream or an upload. The callbacks may outlive the wait.
class WakeSignal {
 public:
  void notify() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    notified_ = true;
    changed_.notify_all();
  }
  /// False: no call of notify() since the last wait, for kSilenceMax.
  bool wait() EXCLUDES(mutex_) {
    const auto until = std::chrono::steady_clock::now() + kSilenceMax;
    const MutexLock lock(mutex_);
    while (!notified_)
      if (!changed_.wait_until(mutex_, until)) break;
    return std::exchange(notified_, false);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool notified_ GUARDED_BY(mutex_) = false;
};

Error unreadable() { return {Code::kNotFound, "the bytes of the blob cannot be read"}; }

}  // namespace

Status read_blob(BlobStore& blobs, const codec::Sha256& digest, std::uint64_t first,
                 std::uint64_t length, const std::function<Status(std::string_view)>& sink) {
  if (length == 0) return {};
  net::Request request;
  request.headers.add("Range",
                      "bytes=" + std::to_string(first) + "-" + std::to_string(first + length - 1));
  const auto signal = std::make_shared<WakeSignal>();
  const net::Response response = blobs.serve(digest, request);
  if (response.status != 206) return unreadable();
  std::uint64_t left = length;
  const auto pass = [&](std::string_view bytes) -> Status {
    if (bytes.size() > left) return unreadable();
    left -= bytes.size();
    return sink(bytes);
  };
  if (response.stream == nullptr) {
    TRY_VOID(pass(response.body));
  } else {
    response.stream->on_ready([signal] { signal->notify(); });
    while (left > 0) {
      const auto bytes = response.stream->read();
      if (!bytes) break;
      if (!bytes->empty()) {
        TRY_VOID(pass(*bytes));
      } else if (!signal->wait()) {
        break;
      }
    }
  }
  return left > 0 ? Status(unreadable()) : Status();
}

Status copy_into(BlobUpload& upload, BlobStore& blobs, const codec::Sha256& digest,
                 std::uint64_t first, std::uint64_t length) {
  const auto signal = std::make_shared<WakeSignal>();
  upload.on_ready([signal] { signal->notify(); });
  return read_blob(blobs, digest, first, length, [&](std::string_view bytes) -> Status {
    while (!upload.ready())
      if (!signal->wait()) return Error(Code::kUnavailable, "the store is too slow; try again");
    return upload.write(bytes);
  });
}

}  // namespace varda::registry
