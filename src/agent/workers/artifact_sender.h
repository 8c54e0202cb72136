// ArtifactSender: sends accepted artifacts to the registry, through the node's API server or
// gateway, or to the worker's bucket. Waits out lost links, and continues where the upload stopped.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "agent/workers/artifact_store.h"
#include "agent/workers/bucket_upload.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "kube/client.h"
#include "runtime/task.h"

namespace varda::agent::workers {

class ArtifactSender {
 public:
  struct Options {
    std::uint64_t piece_bytes = 512 << 10;  // in memory; repeated at most once after a lost link
    std::chrono::milliseconds retry_first{1000}, retry_max{60'000};
    std::chrono::milliseconds progress_period{5000};  // between reports of an upload
    const Clock* clock = nullptr;                     // null: the system clock
    metrics::Registry* metrics = nullptr;             // outlives the sender
    BucketUpload::Options buckets = {};
  };
  /// All references outlive the sender.
  ArtifactSender(Options options, ArtifactStore& store, os::FileSystem& fs,
                 const kube::Client& api);

  std::vector<runtime::Task> tasks();

 private:
  void step(const Context& ctx);
  void load_store();
  Status send(const Context& ctx, const ArtifactStore::Pending& pending, bool& progressed);
  Status send_to_registry(const Context& ctx, const ArtifactStore::Pending& pending,
                          const BucketUpload::Progress& progress);
  /// True: the file on the disk has other bytes than the worker sent.
  bool is_damaged(const ArtifactStore::Pending& pending);

  const Options options_;
  const Clock& clock_;
  ArtifactStore& store_;
  os::FileSystem& fs_;
  const kube::Client& api_;
  BucketUpload bucket_upload_;
  std::chrono::milliseconds retry_;  // the task's thread only
  SteadyTime load_at_{};             // the same
  metrics::Counter* sent_bytes_ = nullptr;
  metrics::Counter* uploaded_ = nullptr;
};

}  // namespace varda::agent::workers
