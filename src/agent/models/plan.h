// The agent's actions and reports, as pure functions of its work list and its observed world.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/edgeai/edge_node.h"
#include "artifact/failure.h"
#include "codec/digest.h"

namespace varda::agent::models {

/// An artifact to install. A change of any member is a new job, which is tried at once.
struct JobKey {
  codec::Sha256 digest;
  std::string url;
  std::string framework;
  std::vector<std::string> mirrors;
  std::string credentials;  // NAMESPACE/NAME of a Secret; "": no credentials
  friend auto operator<=>(const JobKey&, const JobKey&) = default;
};

struct JobReport {
  enum class State { kPending, kDownloading, kReady, kFailed };
  State state = State::kPending;
  artifact::Reason reason = artifact::Reason::kDownloadFailed;  // of the last failed attempt
  std::string message;
  std::uint64_t bytes = 0;  // kReady only
  std::uint64_t done = 0;   // kDownloading only, for long downloads: bytes of the archive
  std::uint64_t total = 0;  // 0: unknown, or not reported
  friend bool operator==(const JobReport&, const JobReport&) = default;
};

/// The contents of a model's directory.
struct Shown {
  std::optional<std::string> target;
  std::vector<std::string> versions;
  /// For servers that know only numbers: number -> version of all shown versions
  /// (artifact/numbered_view.h). Empty: not shown yet.
  std::map<std::string, std::string> numbers;
  std::string problem;  // why the target could not be shown; "": shown
  artifact::Reason problem_reason = artifact::Reason::kDiskFull;
};

struct World {
  std::map<JobKey, JobReport> jobs;
  std::map<std::string, Shown> shown;                     // by model key
  std::map<std::string, api::EdgeServingReport> serving;  // by model key
  std::map<std::string, codec::Json> joint_reports;       // tier reports, by model key
  std::map<std::string, api::ModelTrialStatus> trials;    // servers' reports, by model key
  struct Problem {
    std::string reason, message;
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  std::map<std::string, Problem> trial_problems;  // why trial.json is not written, by model key
};

struct Poll {
  std::string key;
  std::string model_name;
  std::string url;
  std::string target;  // the exposed version
  api::EdgeStatusQuery status_query = {};
  std::map<std::string, std::string> numbers =
      {};                  // as Shown::numbers; empty: the server knows names
  bool joint = false;      // poll its tiers as well
  std::string trial = {};  // content of its trial.json, and poll the trial as well; "": no trial
  friend bool operator==(const Poll&, const Poll&) = default;
};

struct Plan {
  struct Expose {
    std::string key;
    std::string version;
    JobKey job;
  };
  std::vector<Expose> expose;                         // and set as the target
  std::vector<Expose> trials;                         // and name in trial.json
  std::vector<std::string> clear;                     // models that lose their target
  std::map<std::string, std::set<std::string>> keep;  // versions to keep besides the target
  std::vector<std::string> remove;                    // models no longer in the work list
  std::vector<Poll> poll;
};

/// The artifacts of the work list, targets first.
std::vector<JobKey> jobs_of(const api::EdgeNodeSpec& spec);

/// The target is exposed once it is installed. Until then, and if the install fails, the previous
/// target stays. A removed version is hidden once the server answers with the target.
Plan plan(const api::EdgeNodeSpec& spec, const World& world);

/// status.models, in the order of the spec.
std::vector<api::EdgeModelReport> report(const api::EdgeNodeSpec& spec, const World& world);

/// The job of a version; nothing if its sha256 is malformed, which the report shows.
std::optional<JobKey> job_of(const api::EdgeModel& model, const api::EdgeModelVersion& version);

/// Reads a server's status of a model. `answer` is the response to poll.status_query. If several
/// versions serve, the target wins. With numbers the greatest wins, because requests without a
/// version get that one.
api::EdgeServingReport read_index(const codec::Json& answer, const Poll& poll);
/// The serving version, as a line of `.last-good` in the model's directory; "" if no version
/// serves, or the server is not varda-serve.
std::string read_last_good(const codec::Json& index, const Poll& poll);

/// Disk figures rounded down to 1 GiB (below 10 GiB to 100 MiB, below 1 GiB to 10 MiB, below 100
/// MiB to 1 MiB). A figure stays until it differs by more than half a step, so that small changes
/// write no status.
api::EdgeDisk round_disk(std::uint64_t capacity_bytes, std::uint64_t available_bytes,
                         const api::EdgeDisk& before);

}  // namespace varda::agent::models
