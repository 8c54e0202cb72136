// Reads a source ahead on a separate thread, so that downloading and hashing overlap with unpacking
// and writing.
#pragma once

#include <deque>
#include <optional>
#include <stop_token>
#include <thread>

#include "artifact/internal/source.h"
#include "base/mutex.h"

namespace varda::artifact {

/// Small archives end before a thread would pay, so the first bytes are read on the caller's
/// thread. Used by one thread; the inner thread is hidden.
class AheadSource final : public Source {
 public:
  struct Options {
    std::uint64_t begin_after_bytes = 4 << 20;
    std::size_t queue_bytes_max = 1 << 20;  // limit of bytes read ahead; one piece may be larger
  };
  /// `stop` ends the waits of `source`; the context of `source` must listen to it.
  AheadSource(std::unique_ptr<Source> source, std::stop_source stop, Options options)
      : source_(std::move(source)), stop_(std::move(stop)), options_(options) {}
  ~AheadSource() override { end(); }

  Outcome<std::string> next() override;
  /// Stops reading ahead if it still runs. The members below describe the bytes read until then.
  void end();

  bool stale() const override { return source_->stale(); }
  bool resumed() const override { return source_->resumed(); }
  bool other_origin() const override { return source_->other_origin(); }
  std::string remark() const override { return source_->remark(); }
  bool looks_like_page() const override { return source_->looks_like_page(); }
  /// Bytes returned by next().
  std::uint64_t bytes() const override { return delivered_; }
  std::uint64_t received() const override { return source_->received(); }
  codec::Sha256 digest() override { return source_->digest(); }

 private:
  void read_ahead();

  const std::unique_ptr<Source> source_;  // used by the other thread while it runs
  std::stop_source stop_;
  const Options options_;
  std::uint64_t delivered_ = 0;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Outcome<std::string>> queue_
      GUARDED_BY(mutex_);  // ends with an empty piece or a failure
  std::size_t queue_bytes_ GUARDED_BY(mutex_) = 0;
  bool ending_ GUARDED_BY(mutex_) = false;
  std::optional<Outcome<std::string>> last_;  // the final result, once returned
  std::thread thread_;
};

}  // namespace varda::artifact
