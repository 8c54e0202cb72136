// What an agent has to do and what it has to say, as pure functions of its work list and its world.
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

namespace varda::agent {

/// One thing to have on disk. A change of any member is a new job: what failed before is tried again at once.
struct JobKey {
  codec::Sha256 digest;
  std::string url;
  std::string framework;
  std::vector<std::string> mirrors;
  std::string credentials;  // NAMESPACE/NAME of a Secret; "" none
  friend auto operator<=>(const JobKey&, const JobKey&) = default;
};

struct JobReport {
  enum class State { kPending, kDownloading, kReady, kFailed };
  State state = State::kPending;
  artifact::Reason reason = artifact::Reason::kDownloadFailed;  // of kFailed, and of the attempt before kDownloading
  std::string message;
  std::uint64_t bytes = 0;  // of kReady
  std::uint64_t done = 0;   // of kDownloading, once it takes long: bytes of the archive
  std::uint64_t total = 0;  // 0: not known, or nothing to tell
  friend bool operator==(const JobReport&, const JobReport&) = default;
};

/// What a model's directory shows.
struct Shown {
  std::optional<std::string> target;
  std::vector<std::string> versions;
  /// Where the server knows numbers only: of all it is shown, and what they stand for (artifact/numbered_view.h). Empty: not shown
  /// yet.
  std::map<std::string, std::string> numbers;
  std::string problem;  // why the target could not be shown; "" it could
  artifact::Reason problem_reason = artifact::Reason::kDiskFull;
};

struct World {
  std::map<JobKey, JobReport> jobs;
  std::map<std::string, Shown> shown;                     // by model key
  std::map<std::string, api::EdgeServingReport> serving;  // by model key
  std::map<std::string, codec::Json> cascades;            // what is said of tiers, by model key
};

struct Poll {
  std::string key;
  std::string model_name;
  std::string url;
  std::string target;  // what is exposed
  api::EdgeStatusReading reading = {};
  std::map<std::string, std::string> numbers = {};  // as Shown::numbers; empty: the server speaks of names
  bool cascade = false;                             // its tiers are asked about too
  friend bool operator==(const Poll&, const Poll&) = default;
};

struct Plan {
  struct Expose {
    std::string key;
    std::string version;
    JobKey job;
  };
  std::vector<JobKey> install;                        // targets first
  std::vector<Expose> expose;                         // and make it the target
  std::vector<std::string> clear;                     // models whose target goes away
  std::map<std::string, std::set<std::string>> keep;  // versions a model goes on showing, besides its target
  std::vector<std::string> remove;                    // models nobody wants here any more
  std::vector<Poll> poll;
};

/// The target is exposed once it is installed; until then, and when it fails, what was exposed stays. A version that the spec no
/// longer holds is hidden once the server answers with the target.
Plan plan(const api::EdgeNodeSpec& spec, const World& world);

/// status.models: in the order of the spec.
std::vector<api::EdgeModelReport> report(const api::EdgeNodeSpec& spec, const World& world);

/// The job of a version; nothing if its sha256 is none (the report then says so).
std::optional<JobKey> job_of(const api::EdgeModel& model, const api::EdgeModelVersion& version);

/// What a server says about a model: `answer` is that to poll.reading. Of several versions that serve, the target counts, and of
/// numbers the greatest, since that is what requests without a version get.
api::EdgeServingReport read_index(const codec::Json& answer, const Poll& poll);
/// What serves, as `.last-good` of the model's directory has it; "" if nothing does, or the server is not one of ours.
std::string read_last_good(const codec::Json& index, const Poll& poll);

/// Disk figures rounded down to 1 GiB (below 10 GiB to 100 MiB, below 1 GiB to 10 MiB, below 100 MiB to 1 MiB), and kept as they
/// were until they differ by more than half a step, so that a disk that breathes does not write statuses.
api::EdgeDisk round_disk(std::uint64_t capacity_bytes, std::uint64_t available_bytes, const api::EdgeDisk& before);

}  // namespace varda::agent
