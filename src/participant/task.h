// A task of the aggregator: train, evaluate, or end. docs/design/028-federated-learning.md has the
// members of the JSON.
//
//   TRY(const Task task, parse_task(answer.body));
//   if (task.kind == Task::Kind::kTrain) worker.train(...);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/digest.h"
#include "codec/json.h"
#include "federated/update.h"
#include "tensor/tensor.h"

namespace varda::participant {

inline constexpr std::uint64_t kTaskBytesMax = 1 << 20;

/// A file at GET /v1/models/sha256:HEX.
struct TaskFile {
  codec::Sha256 digest;
  std::uint64_t bytes = 0;
};

/// The ONNX file, for clients without a copy.
struct TaskModelFile : TaskFile {
  std::vector<std::string> labels;
  std::string yaml;  // content of model.yaml; "": none
};

struct Task {
  enum class Kind : std::uint8_t { kTrain, kEvaluate, kEnd };

  using File = TaskFile;
  using ModelFile = TaskModelFile;
  struct Train {
    std::int64_t local_epochs = 1;
    std::int64_t local_steps = 0;  // 0: epochs
    std::uint64_t seed = 1;
    double proximal = 0;
    bool loss_before = false;
    bool use_control = false;                     // SCAFFOLD
    std::optional<File> control;                  // the server's variate; absent: zeros
    codec::Json trainer = codec::Json::object();  // members of training::parse_settings()
  };
  struct Update {
    federated::Encoding encoding = federated::Encoding::kDense;
    tensor::DType dtype = tensor::DType::kFp32;
    double keep = 0.01;           // kTopK
    std::uint64_t bytes_max = 0;  // 0: no limit
    /// Local differential privacy: the update is cut to the length `clip`, and gets noise.
    struct Noise {
      double clip = 0, deviation = 0;  // above 0
    };
    std::optional<Noise> noise;
  };

  /// Secure aggregation: the update travels with masks.
  struct Secure {
    std::string sum;                   // name of the sum
    std::string client;                // name of this client in it
    std::size_t length = 0;            // values of the masked vector
    double limit = 0;                  // of each value
    std::optional<double> weight_max;  // samples that count; absent: all clients weigh the same
    std::optional<double> clip;        // L2 norm of the update
  };

  Kind kind = Kind::kTrain;
  std::string id;
  std::int64_t round = 0, rounds = 0;
  std::optional<double> seconds_left;
  File model;                     // kTrain, kEvaluate
  std::optional<ModelFile> file;  // kTrain, kEvaluate
  Train train;                    // kTrain; kEvaluate: `trainer` and `seed`
  Update update;                  // kTrain
  std::optional<Secure> secure;   // kTrain
  bool failed = false;            // kEnd: the job failed
  std::string message;            // kEnd
};

std::string_view to_string(Task::Kind kind);

/// Unknown members are ignored, so that an older client works with a newer aggregator. kInvalid:
/// not a task; the message names the member.
Result<Task> parse_task(std::string_view json);

}  // namespace varda::participant
