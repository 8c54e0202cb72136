// A small job with clients that send the same updates in each run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "aggregator/coordinator.h"
#include "aggregator/model_file.h"
#include "federated/settings.h"
#include "federated/update.h"
#include "os/file_system.h"

namespace varda::aggregator {

class SampleJob {
 public:
  explicit SampleJob(std::string rule = "FedAvgM", std::int64_t clients = 3,
                     std::int64_t rounds = 2);

  const ModelFile& model() const { return model_; }
  federated::Settings settings;
  Coordinator::Options options() const;
  Result<std::unique_ptr<Coordinator>> open(os::FileSystem& fs,
                                            const os::Path& directory = "/job") const {
    return Coordinator::open(options(), model_, directory, fs);
  }
  std::vector<std::string> clients() const;
  /// The update of a client for a task: a function of client, round and model.
  std::string update(const std::string& client, const federated::Task& task) const;
  /// The same with a factor for the values, or with other metadata.
  std::string update(const federated::UpdateInfo& info, const std::string& client,
                     std::int64_t round, float factor = 1) const;

 private:
  ModelFile model_;
  std::int64_t clients_;
};

}  // namespace varda::aggregator
