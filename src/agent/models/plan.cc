#include "agent/models/plan.h"

#include <algorithm>

namespace varda::agent::models {
namespace {

using api::EdgeServingReport;
using api::EdgeVersionReport;

const JobReport* find_job(const World& world, const std::optional<JobKey>& key) {
  if (!key) return nullptr;
  const auto found = world.jobs.find(*key);
  return found == world.jobs.end() ? nullptr : &found->second;
}

const Shown* find_shown(const World& world, const std::string& key) {
  const auto found = world.shown.find(key);
  return found == world.shown.end() ? nullptr : &found->second;
}

EdgeVersionReport report_version(const api::EdgeModel& model, const api::EdgeModelVersion& version,
                                 const World& world) {
  EdgeVersionReport out;
  out.version = version.version;
  out.sha256 = version.sha256;
  out.state = EdgeVersionReport::kPending;
  const auto key = job_of(model, version);
  if (!key) {
    out.state = EdgeVersionReport::kFailed;
    out.reason = to_string(artifact::Reason::kDigestMismatch);
    out.message = "sha256 \"" + version.sha256 + "\" is not 64 lower-case hex digits";
    return out;
  }
  const JobReport* job = find_job(world, key);
  if (job == nullptr) return out;
  switch (job->state) {
    case JobReport::State::kPending:
      break;
    case JobReport::State::kDownloading:
      out.state = EdgeVersionReport::kDownloading;
      out.bytes_done = static_cast<std::int64_t>(job->done);
      out.bytes_total = static_cast<std::int64_t>(job->total);
      if (job->message.empty()) break;
      out.reason = to_string(job->reason);
      out.message = job->message;
      break;
    case JobReport::State::kReady:
      out.state = EdgeVersionReport::kReady;
      out.bytes = static_cast<std::int64_t>(job->bytes);
      break;
    case JobReport::State::kFailed:
      out.state = EdgeVersionReport::kFailed;
      out.reason = to_string(job->reason);
      out.message = job->message;
      break;
  }
  return out;
}

// Servers of the other layout know no trial.json.
bool has_trial(const api::EdgeModel& model) {
  return model.trial && model.layout != api::EdgeModel::kNumbered;
}

api::ModelTrialStatus report_trial(const api::EdgeModel& model, const api::EdgeModelReport& report,
                                   const World& world) {
  using Status = api::ModelTrialStatus;
  Status out;
  out.version = model.trial->version;
  out.mode = model.trial->mode;
  out.state = Status::kPending;
  const auto failed = [&out](std::string reason, std::string message) {
    out.state = Status::kFailed;
    out.reason = std::move(reason);
    out.message = std::move(message);
    return out;
  };
  if (!has_trial(model))
    return failed("TrialUnsupported", "the model's server cannot load a second version");
  const auto problem = world.trial_problems.find(model.key);
  if (problem != world.trial_problems.end())
    return failed(problem->second.reason, problem->second.message);
  const EdgeVersionReport* version = report.find_version(out.version);
  if (version == nullptr)
    return failed("VersionMissing", "the work list has no archive of version " + out.version);
  if (version->state == EdgeVersionReport::kFailed)
    return failed(version->reason, version->message);
  const auto answer = world.trials.find(model.key);
  if (answer != world.trials.end() && answer->second.version == out.version &&
      (answer->second.mode == out.mode || answer->second.mode.empty()))
    out = answer->second;
  return out;
}

}  // namespace

std::optional<JobKey> job_of(const api::EdgeModel& model, const api::EdgeModelVersion& version) {
  const auto digest = codec::Sha256::parse(version.sha256);
  if (!digest.ok()) return std::nullopt;
  return JobKey{*digest, version.url, model.framework, version.mirrors, version.credentials};
}

std::vector<JobKey> jobs_of(const api::EdgeNodeSpec& spec) {
  std::vector<JobKey> targets, others;
  std::set<JobKey> known;
  for (const api::EdgeModel& model : spec.models) {
    for (const api::EdgeModelVersion& version : model.versions) {
      const auto job = job_of(model, version);
      if (job && known.insert(*job).second)
        (version.version == model.target ? targets : others).push_back(*job);
    }
  }
  targets.insert(targets.end(), others.begin(), others.end());
  return targets;
}

Plan plan(const api::EdgeNodeSpec& spec, const World& world) {
  Plan out;
  std::set<std::string> wanted;
  for (const api::EdgeModel& model : spec.models) {
    wanted.insert(model.key);
    const Shown* shown = find_shown(world, model.key);
    std::optional<std::string> active = shown != nullptr ? shown->target : std::nullopt;
    std::set<std::string>& keep = out.keep[model.key];
    for (const api::EdgeModelVersion& version : model.versions) {
      keep.insert(version.version);
      const auto job = job_of(model, version);
      if (!job) continue;
      const JobReport* state = find_job(world, job);
      if (state == nullptr || state->state != JobReport::State::kReady) continue;
      if (has_trial(model) && version.version == model.trial->version)
        out.trials.push_back({model.key, version.version, *job});
      if (version.version != model.target) continue;
      out.expose.push_back({model.key, version.version, *job});
      active = version.version;
    }
    if (model.target.empty() && active) {
      out.clear.push_back(model.key);
      active.reset();
    }
    const auto serving = world.serving.find(model.key);
    const bool settled = !model.serving || (serving != world.serving.end() &&
                                            serving->second.state == EdgeServingReport::kReady &&
                                            serving->second.version == active);
    // Until the server has moved on, it may open files of any earlier version.
    if (!settled && shown != nullptr) keep.insert(shown->versions.begin(), shown->versions.end());
    const bool numbered = model.layout == api::EdgeModel::kNumbered;
    if (!model.serving || !active || (numbered && (shown == nullptr || shown->numbers.empty())))
      continue;
    Poll poll{model.key, model.model_name, model.serving->url, *active};
    if (model.serving->status_query) poll.status_query = *model.serving->status_query;
    if (numbered) poll.numbers = shown->numbers;
    poll.joint = model.joint.is_object();
    if (has_trial(model)) poll.trial = codec::write_json(model.trial->to_json());
    out.poll.push_back(std::move(poll));
  }
  for (const auto& [key, shown] : world.shown)
    if (!wanted.contains(key)) out.remove.push_back(key);
  return out;
}

std::vector<api::EdgeModelReport> report(const api::EdgeNodeSpec& spec, const World& world) {
  std::vector<api::EdgeModelReport> out;
  for (const api::EdgeModel& model : spec.models) {
    api::EdgeModelReport one;
    one.key = model.key;
    const Shown* shown = find_shown(world, model.key);
    // Pods are created for what their server can see.
    const bool seen =
        shown != nullptr && (model.layout != api::EdgeModel::kNumbered || !shown->numbers.empty());
    if (seen) one.exposed = shown->target.value_or("");
    for (const api::EdgeModelVersion& version : model.versions) {
      one.versions.push_back(report_version(model, version, world));
      EdgeVersionReport& last = one.versions.back();
      if (shown == nullptr || shown->problem.empty() || version.version != model.target ||
          last.state != EdgeVersionReport::kReady)
        continue;
      // Installed, but not exposable.
      last.state = EdgeVersionReport::kFailed;
      last.reason = to_string(shown->problem_reason);
      last.message = shown->problem;
    }
    if (const auto serving = world.serving.find(model.key);
        model.serving && !one.exposed.empty() && serving != world.serving.end())
      one.serving = serving->second;
    if (model.trial) one.trial = report_trial(model, one, world);
    if (const auto joint = world.joint_reports.find(model.key);
        model.joint.is_object() && joint != world.joint_reports.end())
      one.joint = joint->second;
    out.push_back(std::move(one));
  }
  return out;
}

namespace {

const codec::Json& at_pointer(const codec::Json& value, const std::string& pointer) {
  static const codec::Json none;
  const codec::Json* at = &value;
  std::size_t start = 0;
  while (start < pointer.size() && at != nullptr) {
    const std::size_t end = std::min(pointer.find('/', start + 1), pointer.size());
    std::string name = pointer.substr(start + 1, end - start - 1);
    for (const auto& [escape, plain] : {std::pair("~1", "/"), std::pair("~0", "~")}) {
      for (std::size_t i = name.find(escape); i != std::string::npos; i = name.find(escape, i + 1))
        name.replace(i, 2, plain);
    }
    if (at->is_array()) {
      const bool index = !name.empty() && name.size() < 9 &&
                         name.find_first_not_of("0123456789") == std::string::npos;
      at = index && std::stoul(name) < at->size() ? &at->as_array()[std::stoul(name)] : nullptr;
    } else {
      at = at->find(name);
    }
    start = end;
  }
  return at == nullptr ? none : *at;
}

// Versions are strings in some protocols, numbers in others.
std::string text_at(const codec::Json& value, const std::string& pointer) {
  const codec::Json& at = at_pointer(value, pointer);
  return at.is_integer() ? std::to_string(at.as_integer()) : at.as_string();
}

bool has(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// Selects the serving version if several serve.
class Answering {
 public:
  explicit Answering(const Poll& poll) : poll_(poll) {}
  void add(const std::string& published, const std::string& version) {
    const bool greater = published.size() != published_.size()
                             ? published.size() > published_.size()
                             : published > published_;
    if (version_.empty() || (poll_.numbers.empty() ? version == poll_.target : greater)) {
      published_ = published;
      version_ = version;
    }
  }
  const std::string& version() const { return version_; }

 private:
  const Poll& poll_;
  std::string published_, version_;
};

}  // namespace

api::EdgeServingReport read_index(const codec::Json& answer, const Poll& poll) {
  EdgeServingReport out;
  const api::EdgeStatusQuery& reading = poll.status_query;
  bool loading = false;
  Answering answering(poll);
  const codec::Json& list = at_pointer(answer, reading.list);
  const codec::Json one = list.is_object() ? codec::Json::array({list}) : codec::Json();
  for (const codec::Json& entry : (list.is_object() ? one : list).as_array()) {
    if (!reading.name.empty() && text_at(entry, reading.name) != poll.model_name) continue;
    const std::string published = text_at(entry, reading.version);
    std::string version = published;
    if (!poll.numbers.empty()) {
      const auto named = poll.numbers.find(published);
      if (named == poll.numbers.end()) continue;  // hidden meanwhile, but still known to the server
      version = named->second;
    }
    const std::string state = reading.state.empty() ? "" : text_at(entry, reading.state);
    if (reading.state.empty() ? !version.empty() : has(reading.ready, state)) {
      answering.add(published, version);
    } else if (has(reading.loading, state)) {
      loading = true;
    } else if (const std::string message =
                   reading.message.empty() ? "" : text_at(entry, reading.message);
               version == poll.target && !message.empty() &&
               !has(reading.ignored_messages, message)) {
      // Servers also list untried and unloaded versions as unavailable; only real failures have a
      // message.
      out.failed_version = version;
      const std::string code = reading.code.empty() ? "" : text_at(entry, reading.code);
      out.reason = code.empty() ? "LoadFailed" : code.substr(0, 128);
      out.message = message.substr(0, 1024);
    }
  }
  out.version = answering.version();
  if (!out.version.empty()) {
    out.state = EdgeServingReport::kReady;
  } else if (!out.failed_version.empty() && !loading) {
    out.state = EdgeServingReport::kFailed;
  } else {
    out.state = EdgeServingReport::kLoading;
  }
  return out;
}

std::string read_last_good(const codec::Json& index, const Poll& poll) {
  std::string line;
  for (const codec::Json& entry : index.as_array()) {
    const std::string& version = entry["version"].as_string();
    const std::string& files = entry["files"].as_string();
    if (entry["name"].as_string() != poll.model_name || entry["state"].as_string() != "READY" ||
        files.empty())
      continue;
    if (line.empty() || version == poll.target) line = version + " " + files.substr(0, 64);
  }
  return line;
}

api::EdgeDisk round_disk(std::uint64_t capacity_bytes, std::uint64_t available_bytes,
                         const api::EdgeDisk& before) {
  constexpr std::int64_t kMiB = 1 << 20;
  const auto round = [](std::uint64_t now, std::int64_t old) {
    const auto value = static_cast<std::int64_t>(std::min<std::uint64_t>(now, INT64_MAX));
    // Smaller disks get finer steps.
    const std::int64_t step = value >= 10240 * kMiB  ? 1024 * kMiB
                              : value >= 1024 * kMiB ? 100 * kMiB
                              : value >= 100 * kMiB  ? 10 * kMiB
                                                     : kMiB;
    const std::int64_t rounded = value / step * step;
    // `old` stands for [old, old + step); values up to half a step outside count as unchanged.
    const bool same = old != 0 && value >= old - step / 2 && value < old + step + step / 2;
    return same ? old : rounded;
  };
  api::EdgeDisk out = before;
  out.capacity_bytes = round(capacity_bytes, before.capacity_bytes);
  out.available_bytes = round(available_bytes, before.available_bytes);
  return out;
}

}  // namespace varda::agent::models
