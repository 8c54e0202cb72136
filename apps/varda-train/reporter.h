// Reports of a run to the node's agent, beside the training.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/context.h"
#include "base/mutex.h"
#include "base/result.h"
#include "codec/json.h"
#include "training/run.h"
#include "worker_api.h"

namespace varda::trainapp {

/// The body of PUT /v1/progress. `history` gets at most 32 epochs.
codec::Json progress_body(const training::Progress& progress,
                          const std::vector<training::EpochRecord>& history);
/// The files of a result, by their names at the agent.
struct ResultFiles {
  std::string artifact, report;
  std::string file;                          // name of the artifact for servers; "": an archive
  codec::Json more = codec::Json::object();  // further members of `data`
};
/// The body of the result `final`, of at most 28 KiB: without room, class names and then the
/// history are left out.
codec::Json final_body(const training::Outcome& outcome, const ResultFiles& files);

/// One thread registers and reports progress, so a slow or absent agent never delays a step. The
/// last values count. Thread-safe.
class Reporter final : public training::Observer {
 public:
  struct Options {
    std::string instance;  // random; distinguishes this start from others
    std::chrono::milliseconds every{1000};
    std::chrono::milliseconds retry{1000};       // doubles up to 30 s
    std::chrono::milliseconds last_report{500};  // after a stop
  };
  Reporter(Options options, WorkerApi& api);
  ~Reporter() override;

  void progress(const training::Progress& progress) override;
  void epoch(const training::EpochRecord& record) override;
  /// Reports a phase after the training, such as Uploading.
  void phase(const std::string& name);
  /// Reports another body of PUT /v1/progress.
  void body(codec::Json body);
  /// Sends the last progress, for at most `last_report`, and ends the thread. Idempotent.
  void stop();

 private:
  void work(const std::stop_token& stop);
  Status report(const Context& ctx);

  const Options options_;
  WorkerApi& api_;
  Mutex mutex_;
  CondVar changed_;
  std::optional<codec::Json> next_ GUARDED_BY(mutex_);  // not sent yet
  std::optional<training::Progress> progress_ GUARDED_BY(mutex_);
  std::vector<training::EpochRecord> history_ GUARDED_BY(mutex_);
  bool registered_ = false;  // only the thread uses it
  std::jthread thread_;      // the last member: it uses the others
};

}  // namespace varda::trainapp
