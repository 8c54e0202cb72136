#include "registry/bucket_stream.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"

namespace varda::registry {
namespace {

constexpr std::uint64_t kStreamBytes = 64 << 10;  // for one write to a connection

/// Reads an object by ranges while it is sent, one range ahead.
class BucketStream final : public net::BodyStream {
 public:
  BucketStream(ObjectSource source, std::string begin, std::uint64_t next, std::uint64_t end)
      : state_(std::make_shared<Shared>(std::move(source), std::move(begin), next, end)) {}

  ~BucketStream() override {
    const MutexLock lock(state_->mutex);
    state_->wake = nullptr;
  }

  std::optional<std::string> read() override {
    const MutexLock lock(state_->mutex);
    if (state_->used == state_->bytes.size()) {
      state_->bytes = std::exchange(state_->ahead, {});
      state_->used = 0;
    }
    std::string out = state_->bytes.substr(state_->used, kStreamBytes);
    state_->used += out.size();
    const bool more = !state_->failed && state_->next < state_->end;
    if (!state_->loading && state_->ahead.empty() && more) {
      state_->loading = true;
      load(state_);
    }
    if (out.empty() && !state_->loading) return std::nullopt;
    return out;
  }
  void on_ready(std::function<void()> wake) override {
    const MutexLock lock(state_->mutex);
    state_->wake = std::move(wake);
  }

 private:
  struct Shared {
    Shared(ObjectSource from, std::string first, std::uint64_t next_byte, std::uint64_t end_byte)
        : source(std::move(from)), end(end_byte), bytes(std::move(first)), next(next_byte) {}
    const ObjectSource source;
    const std::uint64_t end;
    Mutex mutex;
    std::string bytes GUARDED_BY(mutex);
    std::size_t used GUARDED_BY(mutex) = 0;  // of `bytes`
    std::string ahead GUARDED_BY(mutex);
    std::uint64_t next GUARDED_BY(mutex);  // the first byte that is not requested
    bool loading GUARDED_BY(mutex) = false;
    bool failed GUARDED_BY(mutex) = false;
    std::function<void()> wake GUARDED_BY(mutex);
  };

  static void load(const std::shared_ptr<Shared>& state) REQUIRES(state->mutex) {
    const std::uint64_t first = state->next;
    const std::uint64_t length = std::min(kRangeBytes, state->end - first);
    state->next += length;
    run_on(state->source.readers, [state, first, length] {
      const ObjectSource& source = state->source;
      auto bytes = source.bucket.get(source.ctx, source.key, first, length);
      const bool good = bytes.ok() && bytes->size() == length;
      if (!good) log::warn("download from the bucket broke", {{"key", source.key}});
      loaded(*state, good ? std::move(*bytes) : std::string());
    });
  }
  /// Empty: the request failed. The stream then ends before its length, and the client continues.
  static void loaded(Shared& state, const std::string& bytes) EXCLUDES(state.mutex) {
    const MutexLock lock(state.mutex);
    state.loading = false;
    state.failed = bytes.empty();
    state.ahead = bytes;
    if (state.wake) state.wake();
  }

  const std::shared_ptr<Shared> state_;
};

}  // namespace

void run_on(net::HandlerPool& pool, std::function<void()> work) {
  pool.wrap([work = std::move(work)](const net::Request&) {
    work();
    return net::Response{};
  })(net::Request(), net::Responder([](const net::Response&) {}));
}

std::unique_ptr<net::BodyStream> stream_object(ObjectSource source, std::string begin,
                                               std::uint64_t next, std::uint64_t end) {
  return std::make_unique<BucketStream>(std::move(source), std::move(begin), next, end);
}

}  // namespace varda::registry
