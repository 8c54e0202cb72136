// The work of a client: what happens between a download and an upload.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "codec/json.h"
#include "federated/weights.h"
#include "os/file_system.h"
#include "participant/task.h"

namespace varda::participant {

/// A task with the files that it names.
struct Assignment {
  const Task& task;
  const federated::Weights& model;
  const federated::Weights* control = nullptr;  // the server's variate; null: zeros
  std::optional<os::Path> model_file;           // the ONNX file, if the task has one
  os::Path checkpoint;                          // a path for the worker; survives a kill
  std::string carry;                            // of the last update that was accepted; "": none
};

struct TrainedUpdate {
  std::vector<float> delta;    // as long as the layout of Assignment::model
  std::vector<float> control;  // the change of the client's control variate; empty: none
  std::uint64_t samples = 0;
  std::uint64_t steps = 0;
  codec::Json metrics = codec::Json::object();  // of numbers
  std::string carry;  // for the next assignment, if the aggregator accepts this update
};

struct Evaluated {
  std::uint64_t samples = 0;                    // 0: no data for an evaluation
  codec::Json metrics = codec::Json::object();  // of numbers
};

/// Called by one thread. Both calls block.
class Worker {
 public:
  virtual ~Worker() = default;
  /// kCancelled: `ctx` is done; the call is repeated after a restart. kInvalid, kUnsupported: the
  /// task does not fit this client. The same assignment gives the same update.
  virtual Result<TrainedUpdate> train(const Context& ctx, const Assignment& assignment) = 0;
  virtual Result<Evaluated> evaluate(const Context& ctx, const Assignment& assignment) = 0;
};

}  // namespace varda::participant
