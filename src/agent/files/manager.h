// Manager: reports digests of files to the operator. Models name these files by a path of the node,
// without sha256. It reads each file once for each item of the work list, below allowed roots only.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/component.h"
#include "artifact/digest_reader.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace varda::agent::files {

class Manager final : public core::NodeComponent {
 public:
  struct Options {
    std::vector<os::Path> roots;  // files must lie below these
    artifact::Limits limits;
    std::chrono::milliseconds poll{500};      // of files that are being read
    std::chrono::milliseconds retry{30'000};  // of files that could not be read
    const Clock* clock = nullptr;             // null: the system clock
  };
  /// All references outlive the manager.
  Manager(Options options, os::FileSystem& fs, net::HttpClient& http);

  void apply(const core::WorkList& list) override EXCLUDES(mutex_);
  std::vector<runtime::Task> tasks() override;
  core::ListId put_report(api::EdgeNodeStatus& status,
                          const api::EdgeNodeStatus& live) const override EXCLUDES(mutex_);

 private:
  void step() EXCLUDES(mutex_);
  std::optional<SteadyTime> due() const EXCLUDES(mutex_);

  struct Entry {
    api::EdgeFile file;
    api::EdgeFileReport report;
    SteadyTime next;  // of the next look; meaningless once the file is read
  };

  const Options options_;
  const Clock& clock_;
  artifact::DigestReader reader_;
  runtime::Wakeup wakeup_;
  mutable Mutex mutex_;
  bool changed_ GUARDED_BY(mutex_) = true;  // since the last publish()
  core::ListId list_ GUARDED_BY(mutex_);
  std::vector<Entry> entries_ GUARDED_BY(mutex_);  // in the order of the work list
};

}  // namespace varda::agent::files
