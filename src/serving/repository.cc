#include "serving/repository.h"

#include <atomic>
#include <utility>

#include "base/log.h"

namespace varda::serving {
namespace {

// No name of a directory has a slash.
constexpr std::string_view kTrialSuffix = "/trial";

// Engines hold a file and its prepared weights at the same time.
constexpr std::uint64_t kMemoryFactor = 2;

bool same_files(const std::shared_ptr<ModelVersion>& version, const std::string& fingerprint,
                const std::string& wanted, const std::string& wanted_fingerprint) {
  return version != nullptr && version->version() == wanted && fingerprint == wanted_fingerprint;
}

}  // namespace

struct Repository::Load {
  std::string model;
  Candidate candidate;
  std::unique_ptr<ModelVersion> loaded;  // null: see `failure`
  LoadFailure failure;
  std::atomic<bool> done{false};
  std::jthread thread;
};

struct Repository::Retired {
  Mutex mutex;
  CondVar returned;
  std::vector<std::unique_ptr<ModelVersion>> versions GUARDED_BY(mutex);
  std::size_t shared GUARDED_BY(mutex) = 0;  // handed out by share(), not yet returned
  internal::DirectoryWatch* watch GUARDED_BY(mutex) = nullptr;  // null once the repository ends

  void add(std::unique_ptr<ModelVersion> version) {
    MutexLock lock(mutex);
    versions.push_back(std::move(version));
    if (watch != nullptr) watch->wake();
  }
  void give_back(std::unique_ptr<ModelVersion> version) {
    add(std::move(version));
    MutexLock lock(mutex);
    --shared;
    returned.notify_all();
  }
  // Waits for all versions from share(), at most until `until`. True if all were returned.
  bool complete(SteadyTime until) {
    MutexLock lock(mutex);
    while (shared > 0 && system_clock().now() < until) returned.wait_until(mutex, until);
    return shared == 0;
  }
  std::vector<std::unique_ptr<ModelVersion>> take() {
    MutexLock lock(mutex);
    return std::exchange(versions, {});
  }
};

Repository::Repository(Options options, os::FileSystem& fs, infer::Engines& engines,
                       metrics::Registry& registry)
    : options_(std::move(options)),
      fs_(fs),
      engines_(engines),
      registry_(registry),
      retired_(std::make_shared<Retired>()) {
  MutexLock lock(retired_->mutex);
  retired_->watch = &watch_;
}

Result<std::unique_ptr<Repository>> Repository::open(Options options, os::FileSystem& fs,
                                                     infer::Engines& engines,
                                                     metrics::Registry& registry) {
  if (auto first = scan(fs, options.directory); !first.ok())
    return std::move(first).error().context("model repository");
  std::unique_ptr<Repository> made(
      new Repository(std::move(options), fs, engines, registry));  // NOLINT: private constructor
  made->thread_ = std::jthread(
      [repository = made.get()](const std::stop_token& stop) { repository->follow(stop); });
  return made;
}

Repository::~Repository() {
  thread_.request_stop();
  watch_.wake();
  if (thread_.joinable()) thread_.join();
  shadows_.stop();
  {
    MutexLock lock(mutex_);
    entries_.clear();
  }
  std::map<std::string, std::unique_ptr<Load>> loads;
  {
    MutexLock lock(mutex_);
    loads.swap(loads_);
  }
  loads.clear();  // joins their threads
  // A run that outlasted its request still uses members of this object.
  while (!retired_->complete(system_clock().now() + std::chrono::hours(1))) {
  }
  {
    MutexLock lock(retired_->mutex);
    retired_->watch = nullptr;
  }
  retired_->take();
}

bool Repository::release(std::chrono::milliseconds patience) {
  thread_.request_stop();
  watch_.wake();
  if (thread_.joinable()) thread_.join();
  shadows_.stop();
  std::vector<std::shared_ptr<ModelVersion>> dropped;
  {
    MutexLock lock(mutex_);
    for (auto& [name, entry] : entries_) {
      entry.trial.reset();
      dropped.push_back(std::move(entry.second));
      dropped.push_back(std::move(entry.active));
    }
    entries_.clear();
  }
  dropped.clear();
  return retired_->complete(system_clock().now() + patience);
}

std::shared_ptr<ModelVersion> Repository::share(std::unique_ptr<ModelVersion> version) {
  {
    MutexLock lock(retired_->mutex);
    ++retired_->shared;
  }
  return std::shared_ptr<ModelVersion>(version.release(), [retired = retired_](ModelVersion* raw) {
    retired->give_back(std::unique_ptr<ModelVersion>(raw));
  });
}

Result<std::shared_ptr<ModelVersion>> Repository::find(std::string_view model,
                                                       std::string_view version) const {
  MutexLock lock(mutex_);
  return find_locked(model, version);
}

Repository::Serving Repository::serving(std::string_view model) const {
  MutexLock lock(mutex_);
  const auto it = entries_.find(model);
  if (it == entries_.end()) return {find_locked(model, ""), nullptr, nullptr, nullptr};
  return {find_locked(model, ""), it->second.plan, it->second.trial, it->second.samples};
}

Result<codec::Json> Repository::describe_samples(std::string_view model) const {
  const sampling::Model* found = nullptr;
  {
    MutexLock lock(mutex_);
    const auto it = entries_.find(model);
    if (it == entries_.end())
      return Error(Code::kNotFound, "there is no model \"" + std::string(model) + "\"");
    found = it->second.sampling;
  }
  if (found == nullptr)
    return Error(Code::kNotFound,
                 "model \"" + std::string(model) + "\" has no samples.json: no request is kept");
  return found->describe();
}

Result<codec::Json> Repository::describe_tiers(std::string_view model) const {
  const joint::Model* joint = nullptr;
  std::string version;
  {
    MutexLock lock(mutex_);
    const auto it = entries_.find(model);
    if (it == entries_.end())
      return Error(Code::kNotFound, "there is no model \"" + std::string(model) + "\"");
    joint = it->second.joint;
    if (it->second.active != nullptr) version = it->second.active->version();
  }
  if (joint == nullptr)
    return Error(Code::kNotFound,
                 "model \"" + std::string(model) + "\" has no joint.json: the model has one tier");
  return joint->describe(options_.joint->instance(), version, system_clock().now(),
                         system_clock().wall());
}

Result<std::shared_ptr<ModelVersion>> Repository::find_locked(std::string_view model,
                                                              std::string_view version) const {
  const auto it = entries_.find(model);
  if (it == entries_.end())
    return Error(Code::kNotFound, "there is no model \"" + std::string(model) + "\"");
  const Entry& entry = it->second;
  if (entry.active != nullptr) {
    if (version.empty() || version == entry.active->version()) return entry.active;
    if (entry.second != nullptr && version == entry.second->version()) return entry.second;
    return Error(Code::kNotFound, "version " + std::string(version) + " of model \"" +
                                      std::string(model) + "\" is not loaded; " +
                                      entry.active->version() + " is");
  }
  const std::string why = entry.failure ? "version " + entry.failure->version +
                                              " does not load: " + entry.failure->why.message
                          : !entry.loading.empty() ? "version " + entry.loading + " is loading"
                          : !entry.wanted.problem.empty() ? entry.wanted.problem
                                                          : "it is about to load";
  return Error(Code::kUnavailable, "model \"" + std::string(model) + "\" is not ready: " + why);
}

std::vector<oip::IndexEntry> Repository::index() const {
  MutexLock lock(mutex_);
  std::vector<oip::IndexEntry> out;
  for (const auto& [name, entry] : entries_) {
    if (entry.active != nullptr)
      out.push_back({.name = name,
                     .version = entry.active->version(),
                     .state = "READY",
                     .files = files_name(entry.active_fingerprint)});
    if (!entry.wanted.problem.empty()) {
      out.push_back({name, entry.wanted.version, "UNAVAILABLE", entry.wanted.problem});
    } else if (!serves_wanted(entry)) {
      if (entry.failure && entry.failure->version == entry.wanted.version &&
          entry.failure->fingerprint == entry.wanted.fingerprint && entry.loading.empty()) {
        out.push_back({name, entry.failure->version, "UNAVAILABLE", entry.failure->why.message,
                       entry.failure->why.code});
      } else {
        out.push_back({name, entry.wanted.version, "LOADING", ""});
      }
    }
  }
  return out;
}

bool Repository::settled() const {
  MutexLock lock(mutex_);
  return settled_;
}

Status Repository::wait_settled(const Context& ctx) {
  MutexLock lock(mutex_);
  // A scan that began before this call may have missed the caller's last change: wait for the next
  // one.
  const std::uint64_t needed = scans_ + 1;
  watch_.wake();
  while (scans_done_ < needed || !quiet()) {
    TRY_VOID(ctx.check());
    changed_.wait_until(mutex_, system_clock().now() + std::chrono::milliseconds(50));
  }
  settled_ = true;  // the following thread sets it only after it has dropped replaced versions
  return {};
}

// Replaced files under the same name count as another version.
bool Repository::serves_wanted(const Entry& entry) const {
  return entry.active != nullptr && entry.active->version() == entry.wanted.version &&
         entry.active_fingerprint == entry.wanted.fingerprint;
}

std::optional<Repository::Candidate> Repository::next_load(const Entry& entry) const {
  const Wanted& wanted = entry.wanted;
  if (!entry.loading.empty() || serves_wanted(entry)) return std::nullopt;
  // The load for the trial becomes the load of the new target.
  if (!entry.trial_loading.empty() && entry.trial_loading == wanted.version) return std::nullopt;
  // A server that starts while a new version loads, or has failed, first serves the last good
  // version.
  if (entry.active == nullptr && !wanted.version.empty() && !wanted.last_good.empty() &&
      wanted.last_good != wanted.version && wanted.last_good_fingerprint != entry.fallback_failed) {
    return Candidate{wanted.last_good, wanted.last_good_fingerprint, wanted.last_good_unchanged,
                     true};
  }
  if (!wanted.problem.empty()) return std::nullopt;
  const bool failed = entry.failure && entry.failure->version == wanted.version &&
                      entry.failure->fingerprint == wanted.fingerprint;
  if (failed && !(entry.failure->retry_at && system_clock().now() >= *entry.failure->retry_at))
    return std::nullopt;
  return Candidate{wanted.version, wanted.fingerprint,
                   wanted.last_good == wanted.version && wanted.last_good_unchanged, false};
}

bool Repository::quiet() const {
  if (!loads_.empty()) return false;
  for (const auto& [name, entry] : entries_) {
    if (next_load(entry) || next_trial(entry)) return false;
  }
  return true;
}

void Repository::follow(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    look();
    collect();
    start_loads();
    retired_->take();  // the temporary destroys them
    {
      MutexLock lock(mutex_);
      scans_done_ = scans_;
      settled_ = settled_ || quiet();
    }
    changed_.notify_all();
    watch_.wait(options_.check_interval);
  }
}

void Repository::look() {
  {
    MutexLock lock(mutex_);
    ++scans_;
  }
  std::set<std::filesystem::path> watched;
  std::map<std::string, Wanted> wanted;
  do {
    // Watch first, then scan: changes in between cause an event. New models require another round.
    watched_ = watched;
    auto scanned = scan(fs_, options_.directory);
    if (!scanned.ok()) {
      // An unreadable directory is not an empty one: keep all models.
      if (!std::exchange(complained_, true))
        log::error("model repository not readable", {{"error", scanned.error()}});
      return;
    }
    complained_ = false;
    wanted = std::move(scanned).value();
    watched = {options_.directory};
    for (const auto& [name, ignored] : wanted) watched.insert(options_.directory / name);
    watch_.watch(watched);
  } while (watched != watched_);

  std::vector<std::shared_ptr<ModelVersion>> dropped;  // destroyed without the lock
  MutexLock lock(mutex_);
  for (auto it = entries_.begin(); it != entries_.end();) {
    if (wanted.count(it->first) > 0) {
      ++it;
      continue;
    }
    log::info("model removed", {{"model", it->first}});
    if (it->second.active != nullptr) it->second.active->stats().ready.set(0);
    dropped.push_back(std::move(it->second.active));
    if (it->second.joint != nullptr) it->second.joint->forget();
    dropped.push_back(std::move(it->second.second));
    if (it->second.sampling != nullptr) it->second.sampling->forget();
    it = entries_.erase(it);
  }
  for (auto& [name, now] : wanted) {
    Entry& entry = entries_[name];
    if (entry.stats == nullptr) entry.stats = std::make_unique<ModelStats>(registry_, name);
    if (now.version.empty() && entry.active != nullptr) {
      // The last version was removed.
      log::info("model unloaded",
                {{"model", name}, {"version", entry.active->version()}, {"reason", now.problem}});
      entry.active->stats().ready.set(0);
      entry.trial.reset();
      dropped.push_back(std::move(entry.active));
      if (entry.joint != nullptr) put_in_force(entry, entry.joint->fit_none());
      entry.samples.reset();
    }
    if (options_.joint != nullptr && entry.wanted.joint != now.joint)
      follow_tiers(name, entry, now.joint);
    if (options_.samples != nullptr && entry.wanted.samples != now.samples)
      follow_samples(name, entry, now.samples);
    if (entry.wanted.version != now.version) entry.failure.reset();
    entry.wanted = std::move(now);
    follow_trial(name, entry);
  }
}

void Repository::follow_tiers(const std::string& model, Entry& entry,
                              const std::optional<std::string>& file) {
  if (!file) {
    log::info("joint.json removed, model has one tier", {{"model", model}});
    entry.joint->forget();
    entry.joint = nullptr;
    entry.plan.reset();
    return;
  }
  entry.joint = &options_.joint->model(model);
  if (!entry.joint->want(*file).ok()) return;
  // A version that did not fit the old file may fit the new one.
  if (entry.failure && entry.failure->why.code == joint::kPolicyMismatch) entry.failure.reset();
  entry.fallback_failed.clear();
  if (entry.active == nullptr) {
    put_in_force(entry, entry.joint->fit_none());
  } else if (auto plan = entry.joint->fit(*entry.active); plan.ok()) {
    put_in_force(entry, std::move(plan).value());
  } else {
    entry.joint->refuse(plan.error());
  }
}

void Repository::follow_samples(const std::string& model, Entry& entry,
                                const std::optional<std::string>& file) {
  entry.trial.reset();  // the next one counts by the new policy
  if (!file) {
    log::info("samples.json removed, no request is kept", {{"model", model}});
    entry.sampling->forget();
    entry.sampling = nullptr;
    entry.samples.reset();
    return;
  }
  entry.sampling = &options_.samples->model(model);
  if (entry.sampling->want(*file).ok()) fit_samples(entry);
}

void Repository::fit_samples(Entry& entry) {
  if (entry.sampling == nullptr || entry.active == nullptr) return;
  entry.samples = entry.sampling->fit(
      *entry.active, entry.plan != nullptr ? entry.plan->config.tiers.front().name : "");
}

void Repository::put_in_force(Entry& entry, std::shared_ptr<const joint::Plan> plan) {
  entry.plan = plan;
  entry.joint->adopt(std::move(plan));
  options_.joint->watch(*entry.joint);
}

void Repository::collect() {
  std::vector<std::unique_ptr<Load>> finished;
  MutexLock lock(mutex_);
  for (auto it = loads_.begin(); it != loads_.end();) {
    if (!it->second->done) {
      ++it;
      continue;
    }
    if (it->second->candidate.trial) {
      apply_trial(it->second->model, *it->second);
    } else {
      apply(it->second->model, *it->second);
    }
    finished.push_back(std::move(it->second));  // its thread is about to end
    it = loads_.erase(it);
  }
}

void Repository::apply(const std::string& model, Load& load) {
  const auto it = entries_.find(model);
  const Candidate& candidate = load.candidate;
  if (it == entries_.end()) {
    if (load.loaded != nullptr) retired_->add(std::move(load.loaded));
    return;
  }
  Entry& entry = it->second;
  entry.loading.clear();
  if (load.loaded == nullptr) return fail(model, entry, load, std::move(load.failure));
  const bool wanted = candidate.version == entry.wanted.version &&
                      candidate.fingerprint == entry.wanted.fingerprint;
  const bool good = candidate.version == entry.wanted.last_good &&
                    candidate.fingerprint == entry.wanted.last_good_fingerprint;
  if (!wanted && !(candidate.fallback && good && entry.active == nullptr)) {
    // The target or its files changed during the load.
    retired_->add(std::move(load.loaded));
    return;
  }
  std::shared_ptr<const joint::Plan> plan;
  if (entry.joint != nullptr) {
    auto fitted = entry.joint->fit(*load.loaded);
    if (!fitted.ok()) {
      retired_->add(std::move(load.loaded));
      return fail(model, entry, load,
                  {std::string(joint::kPolicyMismatch), fitted.error().message(), std::nullopt});
    }
    plan = std::move(fitted).value();
  }
  activate(model, entry, share(std::move(load.loaded)), candidate.fingerprint);
  if (entry.joint != nullptr) put_in_force(entry, std::move(plan));
  fit_samples(entry);
  if (wanted) entry.failure.reset();
  follow_trial(model, entry);
}

// The old version ends here, or with its last running request.
void Repository::activate(const std::string& model, Entry& entry,
                          std::shared_ptr<ModelVersion> version, std::string fingerprint) {
  const std::string before = entry.active != nullptr ? entry.active->version() : "";
  if (entry.active != nullptr) {
    entry.active->stats().ready.set(0);
    entry.stats->switches.add();
  }
  version->stats().ready.set(1);
  log::info("model version serves", {{"model", model},
                                     {"version", version->version()},
                                     {"before", before},
                                     {"load_seconds", version->stats().load_seconds.value()}});
  entry.active_fingerprint = std::move(fingerprint);
  entry.active.swap(version);
}

void Repository::apply_trial(const std::string& model, Load& load) {
  const auto it = entries_.find(model);
  if (it == entries_.end()) {
    if (load.loaded != nullptr) retired_->add(std::move(load.loaded));
    return;
  }
  Entry& entry = it->second;
  const Candidate& candidate = load.candidate;
  entry.trial_loading.clear();
  if (load.loaded == nullptr) {
    entry.stats->load_failures.add();
    log::warn("version on trial failed to load", {{"model", model},
                                                  {"version", candidate.version},
                                                  {"reason", load.failure.code},
                                                  {"error", load.failure.message}});
    entry.trial_failure =
        Failure{candidate.version, candidate.fingerprint, std::move(load.failure), std::nullopt};
    if (entry.trial_failure->why.retry_after)
      entry.trial_failure->retry_at = system_clock().now() + *entry.trial_failure->why.retry_after;
    return;
  }
  log::info("version on trial loaded", {{"model", model}, {"version", candidate.version}});
  entry.trial_failure.reset();
  entry.second = share(std::move(load.loaded));
  entry.second_fingerprint = candidate.fingerprint;
  follow_trial(model, entry);
}

void Repository::follow_trial(const std::string& model, Entry& entry) {
  const Wanted& wanted = entry.wanted;
  // The tiers of a joint.json belong to the outputs of one version.
  const bool possible = entry.joint == nullptr && !wanted.joint;
  if (possible && wanted.problem.empty() && !serves_wanted(entry) &&
      same_files(entry.second, entry.second_fingerprint, wanted.version, wanted.fingerprint)) {
    if (entry.trial != nullptr) entry.ended_trial = entry.trial->json();
    entry.trial.reset();
    activate(model, entry, std::move(entry.second), std::move(entry.second_fingerprint));
    entry.second.reset();
    fit_samples(entry);
    entry.failure.reset();
  }
  const bool asked =
      possible && wanted.trial && wanted.trial->problem.empty() &&
      (entry.active == nullptr || wanted.trial->file.version != entry.active->version());
  if (!asked || !same_files(entry.second, entry.second_fingerprint, wanted.trial->file.version,
                            wanted.trial->fingerprint)) {
    if (entry.second != nullptr)
      log::info("trial ended", {{"model", model}, {"version", entry.second->version()}});
    entry.trial.reset();
    entry.second.reset();
  }
  if (!wanted.trial) {
    entry.trial_failure.reset();
    entry.ended_trial = nullptr;
  }
  if (entry.second == nullptr || entry.active == nullptr) return entry.trial.reset();
  const trial::File& file = wanted.trial->file;
  if (entry.trial != nullptr && entry.trial->serving() == entry.active &&
      entry.trial->version() == entry.second && entry.trial->mode() == file.mode)
    return entry.trial->set_share(file.share);
  trial::Trial::Policies policies;
  if (entry.sampling != nullptr)
    policies = {entry.sampling->bind_policy(*entry.active),
                entry.sampling->bind_policy(*entry.second)};
  entry.trial = std::make_shared<trial::Trial>(file, entry.active, entry.second,
                                               std::move(policies), registry_, shadows_);
  entry.ended_trial = nullptr;
  log::info("trial began", {{"model", model},
                            {"version", file.version},
                            {"serving", entry.active->version()},
                            {"mode", to_string(file.mode)},
                            {"share", file.share}});
}

std::optional<Repository::Candidate> Repository::next_trial(const Entry& entry) const {
  const Wanted& wanted = entry.wanted;
  if (!wanted.trial || !wanted.trial->problem.empty() || wanted.joint || entry.joint != nullptr ||
      entry.active == nullptr || !entry.trial_loading.empty())
    return std::nullopt;
  const std::string &version = wanted.trial->file.version, &fingerprint = wanted.trial->fingerprint;
  if (version == wanted.version || version == entry.active->version() ||
      same_files(entry.second, entry.second_fingerprint, version, fingerprint))
    return std::nullopt;
  const auto& failure = entry.trial_failure;
  const bool failed = failure && failure->version == version && failure->fingerprint == fingerprint;
  if (failed && !(failure->retry_at && system_clock().now() >= *failure->retry_at))
    return std::nullopt;
  Candidate out{version, fingerprint};
  out.tried = wanted.last_good == version && wanted.last_good_unchanged;
  out.trial = true;
  return out;
}

std::optional<LoadFailure> Repository::lacks_memory(const std::filesystem::path& directory) const {
  const auto available = options_.available_memory ? options_.available_memory() : std::nullopt;
  const auto names = fs_.list(directory / ".");
  if (!available || !names.ok()) return std::nullopt;
  std::uint64_t bytes = 0;
  for (const std::string& name : *names) {
    const auto info = fs_.stat(directory / name);
    if (info.ok() && info->has_value()) bytes += (*info)->size_bytes;
  }
  if (bytes <= *available / kMemoryFactor) return std::nullopt;
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  return LoadFailure{"MemoryShort",
                     "a second loaded version needs " +
                         std::to_string(bytes * kMemoryFactor / kMiB + 1) + " MiB, and " +
                         std::to_string(*available / kMiB) + " MiB are available",
                     options_.retry_interval};
}

Result<codec::Json> Repository::describe_trial(std::string_view model) const {
  using codec::Json;
  MutexLock lock(mutex_);
  const auto it = entries_.find(model);
  if (it == entries_.end())
    return Error(Code::kNotFound, "there is no model \"" + std::string(model) + "\"");
  const Entry& entry = it->second;
  const auto& wanted = entry.wanted.trial;
  Json out = entry.trial != nullptr ? entry.trial->json() : Json::object();
  const auto set_state = [&](std::string_view state, std::string_view reason,
                             std::string_view message) {
    out.set("state", state);
    if (!reason.empty()) out.set("reason", reason);
    if (!message.empty()) out.set("message", message);
  };
  if (wanted && entry.trial == nullptr) {
    if (entry.ended_trial.is_object()) out = entry.ended_trial;
    out.set("version", wanted->file.version);
    out.set("mode", to_string(wanted->file.mode));
    if (wanted->file.mode == trial::Mode::kCanary) out.set("share", wanted->file.share);
  }
  if (!out.contains("serving") && entry.active != nullptr) {
    out.set("serving", entry.active->live().json());
    out["serving"].set("version", entry.active->version());
  }
  if (!wanted) return out;
  const auto& failure = entry.trial_failure;
  if (!wanted->problem.empty()) {
    set_state("Failed", wanted->reason, wanted->problem);
  } else if (entry.joint != nullptr || entry.wanted.joint) {
    set_state("Failed", "TiersUnsupported", "a model with a joint.json has no trial");
  } else if (entry.active != nullptr && entry.active->version() == wanted->file.version) {
    set_state("Ended", "Serves", "the version on trial serves all requests");
  } else if (entry.trial != nullptr) {
    set_state("Ready", "", "");
  } else if (failure && failure->version == wanted->file.version &&
             failure->fingerprint == wanted->fingerprint && entry.trial_loading.empty()) {
    set_state("Failed", failure->why.code, failure->why.message);
  } else {
    set_state("Loading", "", "");
  }
  return out;
}

void Repository::fail(const std::string& model, Entry& entry, const Load& load, LoadFailure why) {
  const Candidate& candidate = load.candidate;
  entry.stats->load_failures.add();
  log::error("model version failed to load", {{"model", model},
                                              {"version", candidate.version},
                                              {"reason", why.code},
                                              {"error", why.message}});
  if (candidate.fallback) {
    entry.fallback_failed = candidate.fingerprint;
    return;
  }
  entry.failure = Failure{candidate.version, candidate.fingerprint, std::move(why), std::nullopt};
  if (entry.failure->why.retry_after)
    entry.failure->retry_at = system_clock().now() + *entry.failure->why.retry_after;
}

void Repository::start_loads() {
  MutexLock lock(mutex_);
  for (auto& [name, entry] : entries_) {
    if (loads_.size() >= options_.loads_max) return;
    // A model may be removed and return during its load: wait until that load ends.
    if (loads_.count(name) > 0) continue;
    if (auto candidate = next_load(entry)) start_load(name, entry, std::move(*candidate));
  }
  for (auto& [name, entry] : entries_) {
    if (loads_.size() >= options_.loads_max) return;
    if (loads_.count(name + std::string(kTrialSuffix)) > 0) continue;
    if (auto candidate = next_trial(entry)) start_load(name, entry, std::move(*candidate));
  }
}

void Repository::start_load(const std::string& model, Entry& entry, Candidate candidate) {
  auto load = std::make_unique<Load>();
  const std::string version = candidate.version;
  (candidate.trial ? entry.trial_loading : entry.loading) = version;
  load->model = model;
  load->candidate = std::move(candidate);
  log::info("loading model version", {{"model", model}, {"version", version}});
  const std::string key = load->candidate.trial ? model + std::string(kTrialSuffix) : model;
  Load& slot = *(loads_[key] = std::move(load));
  const ModelVersion::Source source{model, version, options_.directory / model / version};
  slot.thread = std::jthread([this, &slot, source](const std::stop_token& stop) {
    std::optional<LoadFailure> refused;
    if (slot.candidate.trial) refused = lacks_memory(source.directory);
    if (!refused && options_.probe != nullptr && !slot.candidate.tried)
      refused = options_.probe->probe(Context(stop), source);
    if (refused) {
      slot.failure = std::move(*refused);
    } else if (auto loaded =
                   ModelVersion::load(source, options_.defaults, fs_, engines_, registry_);
               loaded.ok()) {
      slot.loaded = std::move(loaded).value();
    } else {
      slot.failure = {"LoadFailed", loaded.error().message(), std::nullopt};
      if (!loaded.error().terminal()) slot.failure.retry_after = options_.retry_interval;
    }
    slot.done = true;
    watch_.wake();
  });
}

}  // namespace varda::serving
