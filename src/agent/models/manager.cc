#include "agent/models/manager.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "api/edgeai/version_number.h"
#include "artifact/layout.h"
#include "artifact/numbered_view.h"
#include "base/log.h"
#include "spool/folder.h"

namespace varda::agent::models {
namespace {

constexpr std::string_view kFailures = "failures";
constexpr std::uint32_t kServerGroup = 65532;  // of varda-serve's pods (hosting/servers)
// The set-group-id bit: new files belong to the group too.
constexpr std::uint32_t kSampleFolderMode = 02775;
constexpr std::chrono::seconds kSamplesAgain{2};
constexpr std::uint32_t kSampleRootMode = 0700;  // of all models: pods mount folders below

std::optional<artifact::Reason> reason_of(std::string_view text) {
  for (int i = 0; i <= static_cast<int>(artifact::Reason::kCancelled); ++i)
    if (to_string(static_cast<artifact::Reason>(i)) == text)
      return static_cast<artifact::Reason>(i);
  return std::nullopt;
}

template <typename Options>
Options with_clock(Options options, const Clock* clock) {
  options.clock = clock;
  return options;
}

}  // namespace

Manager::Manager(Options options, artifact::Store& store, artifact::ModelTree& tree,
                 os::FileSystem& fs, net::HttpClient& http, core::StateStore& state_store, Rng& rng)
    : options_(options),
      clock_(options.clock != nullptr ? *options.clock : system_clock()),
      store_(store),
      tree_(tree),
      fs_(fs),
      state_store_(state_store),
      rng_(rng),
      tier_counters_(with_clock(options.joint_reports, options.clock), state_store, rng,
                     [this] { wake(); }),
      poller_(
          http, with_clock(options.serving, options.clock), [this] { wake(); },
          [this](const std::string& key, const Result<codec::Json>& answer) {
            tier_counters_.take(key, answer);
          }),
      schedule_(options.retry),
      progress_(options.progress_period) {}

Manager::~Manager() = default;

void Manager::wake() {
  const MutexLock lock(mutex_);
  dirty_ = true;
  wakeup_.notify();
}

void Manager::apply(const core::WorkList& list) {
  const MutexLock lock(mutex_);
  desired_ = list;
  dirty_ = true;
  wakeup_.notify();
}

void Manager::adopt(const api::EdgeNodeStatus& live) {
  std::map<std::string, codec::Json> counters;
  for (const api::EdgeModelReport& model : live.models)
    if (model.joint.is_object()) counters.emplace(model.key, model.joint);
  tier_counters_.reconcile_with_server(std::move(counters));
}

void Manager::load() {
  tier_counters_.load();
  const auto failures = state_store_.get(kFailures);
  if (!failures.ok()) return;
  for (const codec::Json& one : failures->as_array()) {
    const auto digest = codec::Sha256::parse(one["sha256"].as_string());
    const auto reason = reason_of(one["reason"].as_string());
    if (!digest.ok() || !reason) continue;
    std::vector<std::string> mirrors;
    for (const codec::Json& mirror : one["mirrors"].as_array())
      mirrors.push_back(mirror.as_string());
    remembered_[{*digest, one["url"].as_string(), one["framework"].as_string(), std::move(mirrors),
                 one["credentials"].as_string()}] = {.state = JobReport::State::kFailed,
                                                     .reason = *reason,
                                                     .message = one["message"].as_string(),
                                                     .bytes = 0};
  }
}

void Manager::save_failures() {
  std::map<JobKey, JobReport> reports;
  {
    const MutexLock lock(mutex_);
    reports = schedule_.reports();
  }
  codec::Json list = codec::Json::array();
  for (const auto& [key, report] : reports) {
    if (report.state != JobReport::State::kFailed) continue;
    codec::Json mirrors = codec::Json::array();
    for (const std::string& mirror : key.mirrors) mirrors.push_back(mirror);
    list.push_back(codec::Json::object({{"sha256", key.digest.hex()},
                                        {"url", key.url},
                                        {"framework", key.framework},
                                        {"mirrors", std::move(mirrors)},
                                        {"credentials", key.credentials},
                                        {"reason", to_string(report.reason)},
                                        {"message", report.message}}));
  }
  if (Status status = state_store_.put(kFailures, list); !status.ok())
    log::warn("cannot save failures", {{"error", status.error()}});
}

std::vector<runtime::Task> Manager::tasks() {
  std::vector<runtime::Task> out;
  out.push_back({.name = "models",
                 .due = [this] { return due(); },
                 .step = [this](const Context&) { step(); },
                 .wakeup = &wakeup_});
  out.push_back(poller_.task());
  out.push_back(tier_counters_.task());
  for (std::size_t i = 0; i < options_.install_threads; ++i)
    out.push_back({.name = "install",
                   .due = [this] { return install_due(); },
                   .step = [this](const Context& ctx) { install(ctx); },
                   .wakeup = &wakeup_});
  return out;
}

void Manager::finish() {
  poller_.poll_counters(Context::background().with_timeout(options_.last_output));
  tier_counters_.save_all();
}

std::optional<SteadyTime> Manager::due() const {
  const MutexLock lock(mutex_);
  return dirty_ ? SteadyTime::min() : next_check();
}

SteadyTime Manager::next_check() const {
  return std::min({disk_due_, requests_due_, joint_due_, samples_due_,
                   progress_.due().value_or(SteadyTime::max())});
}

std::map<JobKey, JobReport> Manager::jobs() const {
  std::map<JobKey, JobReport> out = schedule_.reports();
  progress_.fill(out);
  return out;
}

std::optional<SteadyTime> Manager::install_due() const {
  const MutexLock lock(mutex_);
  return schedule_.next();
}

void Manager::install(const Context& ctx) {
  std::optional<JobKey> job;
  std::stop_source stop;
  std::vector<api::EdgeReplicaSource> listed;
  std::vector<codec::Sha256> bases;
  {
    const MutexLock lock(mutex_);
    job = schedule_.take(clock_.now());
    if (!job) return;
    running_[*job] = stop;
    if (const auto found = peers_.find(job->digest); found != peers_.end()) listed = found->second;
    if (const auto found = bases_.find(job->digest); found != bases_.end()) bases = found->second;
    progress_.started(*job, clock_.now());
  }
  wake();  // to report Downloading
  const std::stop_callback linked(ctx.stop_token(), [&stop] { stop.request_stop(); });
  // The archive is unpacked while it is downloaded, so the downloaded bytes cover both.
  const auto note = [this, &job](const artifact::Progress& progress) {
    if (progress.phase != artifact::Phase::kDownload) return;
    const MutexLock lock(mutex_);
    progress_.note(*job, progress.done, progress.total);
  };
  std::vector<artifact::Peer> peers;
  for (const api::EdgeReplicaSource& peer : listed) {
    net::HttpClient* const http =
        options_.client_of_node ? options_.client_of_node(peer.node) : nullptr;
    if (http != nullptr) peers.push_back({http, replica::archive_url(peer.url, job->digest)});
  }
  const auto installed = store_.ensure(ctx.with_stop(stop.get_token()),
                                       {.url = job->url,
                                        .mirrors = job->mirrors,
                                        .peers = std::move(peers),
                                        .credentials = job->credentials,
                                        .digest = job->digest,
                                        .framework = job->framework,
                                        .max_bytes = 0,
                                        .bases = std::move(bases)},
                                       note);
  const auto outcome =
      installed.ok() ? artifact::Outcome<std::uint64_t>(installed->bytes) : installed.error();
  if (outcome.ok()) {
    log::info("artifact installed", {{"digest", job->digest.hex()},
                                     {"url", artifact::shown_url(job->url)},
                                     {"bytes", *outcome},
                                     {"received", installed->received}});
  } else if (outcome.error().reason != artifact::Reason::kCancelled) {
    log::warn("artifact not installed",
              {{"reason", to_string(outcome.error().reason)}, {"error", outcome.error().error}});
  }
  if (options_.metrics != nullptr && installed.ok())
    options_.metrics
        ->counter("varda_agent_install_received_bytes_total",
                  "Bytes received over the network for installed artifacts.")
        .add(static_cast<double>(installed->received));
  if (options_.metrics != nullptr)
    options_.metrics
        ->counter("varda_agent_installs_total", "Attempts to install an artifact, by result.",
                  {{"result",
                    outcome.ok() ? "Installed" : std::string(to_string(outcome.error().reason))}})
        .add();
  const MutexLock lock(mutex_);
  running_.erase(*job);
  progress_.ended(*job);
  schedule_.finished(*job, outcome, clock_.now(), rng_.unit());
  dirty_ = true;
  wakeup_.notify();
}

// Installed artifacts become Ready without a worker, so that a restart reports the right state
// before any download.
void Manager::note_ready_artifacts(const std::vector<JobKey>& jobs) {
  const SteadyTime now = clock_.now();
  for (const JobKey& job : jobs) {
    {
      const MutexLock lock(mutex_);
      if (schedule_.known(job)) continue;
    }
    const auto installed = store_.find(job.digest);
    const bool ready =
        installed && !artifact::check_layout(fs_, installed->directory, job.framework);
    const auto failed = remembered_.find(job);
    if (!ready && failed == remembered_.end()) continue;
    const MutexLock lock(mutex_);
    // The job is added and marked under one lock, so that no worker can take it in between.
    std::vector<JobKey> known;
    for (const auto& [key, report] : schedule_.reports()) known.push_back(key);
    known.push_back(job);
    (void)schedule_.set_wanted(known, now);  // drops no job, so there is nothing to stop
    if (ready) {
      schedule_.set_ready(job, installed->bytes);
    } else {
      schedule_.set_failed(job, failed->second.reason, failed->second.message, now);
    }
  }
}

// Sources and recipients of each archive, merged over all models, because archives are keyed by
// digest.
void Manager::note_peers() {
  std::map<codec::Sha256, std::vector<api::EdgeReplicaSource>> peers;
  shared_with_.clear();
  for (const api::EdgeModel& model : list_->spec.models) {
    for (const api::EdgeModelVersion& version : model.versions) {
      const auto digest = codec::Sha256::parse(version.sha256);
      if (!digest.ok()) continue;
      if (!version.peers.empty()) peers.emplace(*digest, version.peers);
      if (!version.share_with.empty() && options_.archives != nullptr)
        shared_with_[*digest].insert(version.share_with.begin(), version.share_with.end());
    }
  }
  std::set<codec::Sha256> keep;
  for (const auto& [digest, nodes] : shared_with_) keep.insert(digest);
  store_.keep_archives(std::move(keep));
  const MutexLock lock(mutex_);
  for (const auto& [digest, sources] : peers)
    if (const auto before = peers_.find(digest);
        before == peers_.end() || before->second != sources)
      schedule_.sources_changed(digest, clock_.now());
  peers_ = std::move(peers);
}

// A new version of a model often shares most of its archive with the version that serves, which the
// work list may no longer name.
void Manager::note_bases() {
  std::map<codec::Sha256, std::vector<codec::Sha256>> bases;
  for (const api::EdgeModel& model : list_->spec.models) {
    std::set<codec::Sha256> all;
    for (const api::EdgeModelVersion& version : model.versions)
      if (const auto job = job_of(model, version)) all.insert(job->digest);
    if (const auto exposed = exposed_.find(model.key); exposed != exposed_.end())
      for (const auto& [version, job] : exposed->second) all.insert(job.digest);
    for (const codec::Sha256& digest : all)
      for (const codec::Sha256& other : all)
        if (other != digest) bases[digest].push_back(other);
  }
  const MutexLock lock(mutex_);
  bases_ = std::move(bases);
}

void Manager::share_archives() {
  if (options_.archives == nullptr) return;
  std::map<codec::Sha256, replica::Archives::Share> shares;
  for (const auto& [digest, nodes] : shared_with_) shares[digest].nodes = nodes;
  {
    const MutexLock lock(mutex_);
    for (const auto& [job, report] : schedule_.reports()) {
      const bool coming = report.state == JobReport::State::kPending ||
                          report.state == JobReport::State::kDownloading;
      if (const auto share = shares.find(job.digest); share != shares.end() && coming)
        share->second.coming = true;
    }
  }
  options_.archives->set(std::move(shares));
}

void Manager::check_tree() {
  std::map<std::string, Shown> seen;
  const auto keys = tree_.keys();
  if (!keys.ok()) {
    log::error("cannot read the model directories", {{"error", keys.error()}});
    return;
  }
  for (const std::string& key : *keys) {
    const auto target = tree_.target(key);
    const auto versions = tree_.versions(key);
    if (!target.ok() || !versions.ok()) continue;
    const auto before = shown_.find(key);
    Shown shown;
    if (before != shown_.end()) shown = before->second;
    shown.target = *target;
    shown.versions = *versions;
    seen.emplace(key, std::move(shown));
  }
  // Keep models without a directory if they have a problem to report.
  for (const auto& [key, shown] : shown_)
    if (!seen.contains(key) && !shown.problem.empty())
      seen.emplace(key, Shown{{}, {}, {}, shown.problem, shown.problem_reason});
  shown_ = std::move(seen);
}

void Manager::write_joint_files() {
  std::map<std::string, Unwritten> unwritten;
  for (const api::EdgeModel& model : list_->spec.models) {
    const codec::Json joint = model.joint.is_object() ? model.joint : codec::Json();
    Status status;
    if (const std::size_t bytes = joint.is_null() ? 0 : codec::write_json(joint).size();
        bytes > kJointBytesMax) {
      const std::string message = "it has " + std::to_string(bytes) + " bytes, and " +
                                  std::to_string(kJointBytesMax) + " are allowed";
      status = Error(Code::kInvalid, message);
    } else {
      status = tree_.set_joint_file(model.key, joint);
    }
    if (status.ok()) continue;
    const bool full = status.error().code() == Code::kExhausted,
               refused = status.error().code() == Code::kInvalid;
    Unwritten one{full      ? artifact::Reason::kDiskFull
                  : refused ? artifact::Reason::kBadLayout
                            : artifact::Reason::kDownloadFailed,
                  full      ? "DiskFull"
                  : refused ? "Refused"
                            : "WriteFailed",
                  "joint.json cannot be written: " + status.error().message()};
    if (const auto before = unwritten_.find(model.key);
        before == unwritten_.end() || before->second != one)
      log::error("joint.json not written", {{"model", model.key}, {"error", status.error()}});
    unwritten.emplace(model.key, std::move(one));
  }
  unwritten_ = std::move(unwritten);
  joint_due_ = unwritten_.empty() ? SteadyTime::max() : clock_.now() + options_.joint_retry;
}

void Manager::write_samples_files() {
  for (const api::EdgeModel& model : list_->spec.models) {
    const bool keeps = model.samples.is_object() && !options_.sample_root.empty();
    if (keeps && !sample_folders_.contains(model.key)) {
      const os::Path folder = options_.sample_root / model.key;
      // Samples may be private, and others may read a data directory that existed before.
      Status made = fs_.make_directories(options_.sample_root, kSampleRootMode);
      if (made.ok()) made = fs_.set_mode(options_.sample_root, kSampleRootMode);
      if (made.ok()) made = spool::make_folder(fs_, folder, kSampleFolderMode);
      // The server's user is in this group. Only root may set it; without root, pods run as the
      // agent's user.
      for (const os::Path& path : {folder, folder / spool::kPending, folder / spool::kLabel}) {
        if (made.ok()) (void)fs_.set_group(path, kServerGroup);
        if (made.ok()) made = fs_.set_mode(path, kSampleFolderMode);
      }
      if (made.ok()) {
        sample_folders_.insert(model.key);
      } else {
        log::error("directory for samples not made",
                   {{"model", model.key}, {"error", made.error()}});
      }
    }
    if (const Status written =
            tree_.set_samples_file(model.key, keeps ? model.samples : codec::Json());
        !written.ok())
      log::error("samples.json not written", {{"model", model.key}, {"error", written.error()}});
  }
}

void Manager::act(const Plan& plan) {
  write_joint_files();
  write_samples_files();
  for (const Plan::Expose& expose : plan.expose) {
    Shown& shown = shown_[expose.key];
    // Without joint.json, a new server would act as the only tier. A running server continues
    // with the old file.
    if (const auto unwritten = unwritten_.find(expose.key);
        unwritten != unwritten_.end() && !shown.target) {
      shown.problem_reason = unwritten->second.reason;
      shown.problem = unwritten->second.message;
      continue;
    }
    auto& held = exposed_[expose.key];
    const auto known = held.find(expose.version);
    if (shown.target == expose.version && known != held.end() &&
        known->second.digest == expose.job.digest)
      continue;
    const auto installed = store_.find(expose.job.digest);
    if (!installed) continue;  // impossible: wanted artifacts are never evicted
    Status status = tree_.expose(expose.key, expose.version, installed->directory);
    const bool moved = shown.target != expose.version;
    if (status.ok()) status = tree_.set_target(expose.key, expose.version);
    if (!status.ok()) {
      const bool full = status.error().code() == Code::kExhausted;
      shown.problem_reason = status.error().code() == Code::kInvalid ? artifact::Reason::kBadLayout
                             : full                                  ? artifact::Reason::kDiskFull
                                    : artifact::Reason::kDownloadFailed;
      shown.problem = "cannot be exposed: " + status.error().message();
      log::error("version not exposed",
                 {{"model", expose.key}, {"version", expose.version}, {"error", status.error()}});
      continue;
    }
    held.insert_or_assign(expose.version, expose.job);
    shown.problem.clear();
    shown.target = expose.version;
    if (std::find(shown.versions.begin(), shown.versions.end(), expose.version) ==
        shown.versions.end())
      shown.versions.push_back(expose.version);
    if (moved) log::info("version exposed", {{"model", expose.key}, {"version", expose.version}});
  }
  follow_trials(plan);
  // A restarted server falls back to this version while the target is loading, or after it failed.
  for (const auto& [key, line] : poller_.last_good()) {
    if (plan.keep.contains(key) && shown_.contains(key))
      if (const Status noted = tree_.note_last_good(key, line); !noted.ok())
        log::warn("cannot record the last good version",
                  {{"model", key}, {"error", noted.error()}});
  }
  const auto complain = [](const std::string& key, const Status& status) {
    if (!status.ok())
      log::warn("cannot clear a model directory", {{"model", key}, {"error", status.error()}});
  };
  for (const std::string& key : plan.clear) complain(key, tree_.clear_target(key));
  for (const auto& kept_versions :
       plan.keep) {  // no structured binding: clang 14 cannot capture one
    const auto& key = kept_versions.first;
    const auto& keep = kept_versions.second;
    const auto shown = shown_.find(key);
    const bool surplus =
        shown != shown_.end() &&
        std::any_of(shown->second.versions.begin(), shown->second.versions.end(),
                    [&](const std::string& version) {
                      return !keep.contains(version) && shown->second.target != version;
                    });
    if (surplus) complain(key, tree_.prune(key, keep));
  }
  for (const std::string& key : plan.remove) {
    complain(key, tree_.remove(key));
    exposed_.erase(key);
    numbered_.erase(key);
    sample_folders_.erase(key);
    log::info("model removed", {{"model", key}});
  }
  if (clock_.now() >= samples_due_) remove_old_samples();
}

void Manager::remove_old_samples() {
  samples_due_ = SteadyTime::max();
  const auto names_in = [this](const os::Path& directory) {
    const auto names = fs_.list(directory);
    return names.ok() ? *names : std::vector<std::string>();
  };
  if (options_.sample_root.empty()) return;
  std::set<std::string> known;
  for (const api::EdgeModel& model : list_->spec.models) known.insert(model.key);
  for (const std::string& ns : names_in(options_.sample_root)) {
    for (const std::string& name : names_in(options_.sample_root / ns)) {
      const std::string key = ns + "/" + name;
      if (known.contains(key)) continue;
      samples_due_ = clock_.now() + kSamplesAgain;
      if (const Status removed = fs_.remove_all(options_.sample_root / key); !removed.ok())
        log::warn("kept samples not removed, trying again",
                  {{"model", key}, {"error", removed.error()}});
    }
  }
}

// The target is written first: a server that has loaded a version on trial and then sees it as the
// target needs no second load.
void Manager::follow_trials(const Plan& plan) {
  std::map<std::string, World::Problem> problems;
  std::set<std::string> named;
  const auto fails = [&](const std::string& key, const Status& status) {
    if (status.ok()) return false;
    const bool full = status.error().code() == Code::kExhausted;
    World::Problem problem{full ? "DiskFull" : "WriteFailed",
                           "trial.json cannot be written: " + status.error().message()};
    if (const auto before = trial_problems_.find(key);
        before == trial_problems_.end() || before->second != problem)
      log::error("trial.json not written", {{"model", key}, {"error", status.error()}});
    problems.emplace(key, std::move(problem));
    return true;
  };
  for (const Plan::Expose& one : plan.trials) {
    const api::EdgeModel* model = list_->spec.find_model(one.key);
    const auto installed = store_.find(one.job.digest);
    if (model == nullptr || !model->trial || !installed) continue;
    auto& held = exposed_[one.key];
    const auto known = held.find(one.version);
    Shown& shown = shown_[one.key];
    const bool present = std::find(shown.versions.begin(), shown.versions.end(), one.version) !=
                         shown.versions.end();
    if (!present || known == held.end() || known->second.digest != one.job.digest) {
      if (fails(one.key, tree_.expose(one.key, one.version, installed->directory))) continue;
      held.insert_or_assign(one.version, one.job);
      if (!present) shown.versions.push_back(one.version);
    }
    named.insert(one.key);
    (void)fails(one.key, tree_.set_trial_file(one.key, model->trial->to_json()));
  }
  for (const api::EdgeModel& model : list_->spec.models)
    if (!named.contains(model.key))
      (void)fails(model.key, tree_.set_trial_file(model.key, codec::Json()));
  trial_problems_ = std::move(problems);
  if (!trial_problems_.empty())
    joint_due_ = std::min(joint_due_, clock_.now() + options_.joint_retry);
}

void Manager::show_numbers() {
  for (const api::EdgeModel& model : list_->spec.models) {
    const auto found = shown_.find(model.key);
    if (found == shown_.end() || !found->second.target) continue;
    Shown& shown = found->second;
    if (model.layout != api::EdgeModel::kNumbered) {
      shown.numbers.clear();
      numbered_.erase(model.key);
      if (const Status removed = artifact::remove_numbered(fs_, tree_, model.key); !removed.ok())
        log::warn("cannot remove the numbered view of a model",
                  {{"model", model.key}, {"error", removed.error()}});
      continue;
    }
    NumberedState state{*shown.target, shown.versions, {}, model.extra_files};
    for (const auto& [version, job] : exposed_[model.key])
      state.digests.emplace(version, job.digest.hex());
    if (!shown.numbers.empty() && numbered_[model.key] == state) continue;
    artifact::NumberedOptions options;
    options.extra_files = model.extra_files;
    for (const std::string& version : shown.versions) {
      // For an archive that another process exposed, the view finds the number on disk.
      const auto listed = std::find_if(
          model.versions.begin(), model.versions.end(),
          [&version](const api::EdgeModelVersion& one) { return one.version == version; });
      const std::string sha256 = listed == model.versions.end() ? "" : listed->sha256;
      options.versions[version] = {api::version_number(version),
                                   api::version_number(version, sha256)};
    }
    const auto view = artifact::show_numbered(fs_, tree_, model.key, options);
    if (!view.ok()) {
      shown.problem_reason = view.error().code() == Code::kExhausted
                                 ? artifact::Reason::kDiskFull
                                 : artifact::Reason::kDownloadFailed;
      shown.problem = "cannot be exposed: " + view.error().message();
      log::error("version not exposed",
                 {{"model", model.key}, {"version", *shown.target}, {"error", view.error()}});
      continue;
    }
    std::map<std::string, std::string> numbers;
    for (const auto& [number, version] : view->names)
      numbers.emplace(std::to_string(number), version);
    shown.numbers = std::move(numbers);
    if (*shown.target == model.target) shown.problem.clear();
    numbered_[model.key] = std::move(state);
  }
}

bool Manager::read_requests() {
  requests_due_ = clock_.now() + options_.requests_period;
  const std::vector<codec::Sha256> damaged = store_.read_requests();
  if (damaged.empty()) return false;
  const MutexLock lock(mutex_);
  for (const codec::Sha256& digest : damaged) {
    schedule_.again(digest, clock_.now());
    // Forget the exposed versions, so that they are exposed again after the install.
    for (auto& [key, versions] : exposed_)
      std::erase_if(versions,
                    [&digest](const auto& version) { return version.second.digest == digest; });
  }
  wakeup_.notify();
  return true;
}

bool Manager::check_disk() {
  const auto space = fs_.space(tree_.root());
  if (!space.ok()) return false;
  const api::EdgeDisk now = round_disk(space->capacity_bytes, space->available_bytes, disk_);
  const api::EdgeDisk before = std::exchange(disk_, now);
  return before.capacity_bytes != now.capacity_bytes ||
         before.available_bytes != now.available_bytes;
}

void Manager::step() {
  // Checked at every step: a disk may fill up within seconds, and a check costs microseconds.
  const bool other_disk = check_disk();
  if (clock_.now() >= requests_due_ && !read_requests() && !other_disk) {
    const MutexLock lock(mutex_);
    if (!dirty_ && clock_.now() < next_check()) return;  // nothing else is due
  }
  if (clock_.now() >= disk_due_) disk_due_ = clock_.now() + options_.disk_period;
  {
    const MutexLock lock(mutex_);
    dirty_ = false;  // later events need another step
    progress_.publish_reports(clock_.now());
    if (desired_) {
      list_ = std::exchange(desired_, std::nullopt);
      samples_due_ = SteadyTime::min();
    }
  }
  if (list_) carry_out();
  publish_models();
}

void Manager::carry_out() {
  note_peers();
  note_bases();
  std::map<std::string, std::string> tiers;  // model -> uid of its service
  for (const api::EdgeModel& model : list_->spec.models)
    if (model.joint.is_object()) tiers.emplace(model.key, model.joint["uid"].as_string());
  tier_counters_.set_wanted(tiers);
  schedule_installs();
  share_archives();
  check_tree();
  act(plan(list_->spec, world()));
  // The second plan is for the polls: they expect the versions that act() has exposed, and the
  // numbers of those versions.
  check_tree();
  show_numbers();
  poller_.set(plan(list_->spec, world()).poll);
  save_failures();
}

void Manager::schedule_installs() {
  const std::vector<JobKey> wanted = jobs_of(list_->spec);
  note_ready_artifacts(wanted);
  std::set<codec::Sha256> keep;
  for (const JobKey& job : wanted) keep.insert(job.digest);
  store_.keep(std::move(keep));
  const MutexLock lock(mutex_);
  for (const JobKey& job : schedule_.set_wanted(wanted, clock_.now()))
    if (const auto running = running_.find(job); running != running_.end())
      running->second.request_stop();
  wakeup_.notify();
}

World Manager::world() const {
  World out;
  out.shown = shown_;
  out.serving = poller_.reports();
  out.trials = poller_.trials();
  out.trial_problems = trial_problems_;
  out.samples = poller_.samples();
  const MutexLock lock(mutex_);
  out.jobs = jobs();
  return out;
}

// ---- reporting

std::vector<api::EdgeModelReport> Manager::model_reports() const {
  World now = world();
  std::size_t bytes = 0;
  for (auto& [key, report] : tier_counters_.reports()) {
    bytes += codec::write_json(report).size();
    const bool fits = bytes <= kJointReportBytesMax;
    const char* const message = "the tier reports of this node's servers exceed the size limit";
    now.joint_reports[key] =
        fits ? report
             : codec::Json::object({{"problem", codec::Json::object({{"reason", "TooMuch"},
                                                                     {"message", message}})}});
  }
  for (const auto& [key, unwritten] : unwritten_)
    now.joint_reports[key].set("problem", codec::Json::object({{"reason", unwritten.reason_name},
                                                               {"message", unwritten.message}}));
  std::vector<api::EdgeModelReport> out = report(list_->spec, now);
  for (api::EdgeModelReport& model : out) {
    const api::EdgeModel* work = list_->spec.find_model(model.key);
    for (api::EdgeVersionReport& version : model.versions) {
      const auto digest = codec::Sha256::parse(version.sha256);
      if (version.state != api::EdgeVersionReport::kReady || !digest.ok()) continue;
      version.shared = store_.has_archive(*digest);
      // Only one framework has several formats; the others cost no look at the disk.
      if (work == nullptr || work->framework != "tensorflow") continue;
      if (const auto installed = store_.find(*digest))
        version.format = artifact::format_of(fs_, installed->directory, work->framework);
    }
  }
  return out;
}

void Manager::publish_models() {
  if (options_.metrics != nullptr) {
    options_.metrics->gauge("varda_agent_artifact_bytes", "Bytes of all installed artifacts.")
        .set(static_cast<double>(store_.bytes()));
    options_.metrics->gauge("varda_agent_models", "Models of the work list.")
        .set(list_ ? static_cast<double>(list_->spec.models.size()) : 0);
  }
  // The servers' first answers arrive soon; until then the previous report stays.
  if (list_ && !poller_.complete()) return;
  Published now;
  now.status.disk = disk_;
  if (list_) {
    now.list = list_->id;
    now.status.models = model_reports();
  }
  now.text = now.status.to_json();
  {
    const MutexLock lock(mutex_);
    if (published_ && published_->list == now.list && published_->text == now.text) return;
    published_ = std::move(now);
  }
  publish();
}

core::ListId Manager::put_report(api::EdgeNodeStatus& status,
                                 const api::EdgeNodeStatus& live) const {
  status.model_root = tree_.root().string();
  status.file_roots = options_.file_roots;
  status.sample_root = options_.sample_root.string();
  const MutexLock lock(mutex_);
  if (!published_) return {};
  status.disk = published_->status.disk;
  status.models = published_->status.models;
  for (api::EdgeModelReport& model : status.models)
    if (const auto* live_model = live.find_model(model.key); live_model != nullptr)
      keep_ahead(model.joint, live_model->joint);
  return published_->list;
}

}  // namespace varda::agent::models
