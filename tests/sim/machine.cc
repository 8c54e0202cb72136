#include "machine.h"

#include <algorithm>

#include "base/check.h"

namespace varda::sim {

using codec::Json;
using std::chrono::milliseconds, std::chrono::seconds;

namespace {

const os::Path kData = "/data";
const os::Path kTokens = kData / "workers";

Status write_file(os::FileSystem& fs, const os::Path& path, std::string_view text) {
  TRY(const auto file, fs.open(path, os::Open::kCreate, 0644));
  return file->write(text);
}

}  // namespace

/// Archives: a download takes time and may fail; an archive is a tree of one file.
class Artifacts final : public artifact::Store {
 public:
  explicit Artifacts(Machine& machine) : machine_(machine) {}

  artifact::Outcome<artifact::Installed> ensure(const Context& ctx,
                                                const artifact::Request& request,
                                                const artifact::ProgressSink&) override {
    if (const auto existing = find(request.digest)) return *existing;
    const auto failed = [](artifact::Reason reason, Code code, std::string text) {
      return artifact::Failure{reason, Error(code, std::move(text))};
    };
    Scheduler& scheduler = machine_.scheduler_;
    if (machine_.mutations_.half_exposed)
      put(request.digest, request.url.substr(0, request.url.size() / 2));
    {
      const SteadyTime done =
          scheduler.clock().now() +
          milliseconds(scheduler.rng().below(
              static_cast<std::uint64_t>(machine_.origin_.slowest.count()) + 1));
      const Status waited = scheduler.wait([done, &ctx]() -> std::optional<SteadyTime> {
        return ctx.stopped() ? SteadyTime::min() : done;
      });
      if (!waited.ok() || ctx.stopped())
        return failed(artifact::Reason::kCancelled, Code::kCancelled, "stop requested");
    }
    if (machine_.origin_.broken.contains(request.url))
      return failed(artifact::Reason::kDownloadFailed, Code::kNotFound, "HTTP 404");
    if (!machine_.link_up_ || scheduler.rng().chance(machine_.origin_.failures))
      return failed(artifact::Reason::kDownloadFailed, Code::kUnavailable, "connection reset");
    scheduler.note("installed", request.url);
    machine_.verified_.insert(request.url);
    put(request.digest, request.url);
    return *find(request.digest);
  }
  std::optional<artifact::Installed> find(const codec::Sha256& digest) override {
    const auto found = machine_.artifacts_.find(digest);
    if (found == machine_.artifacts_.end()) return std::nullopt;
    return artifact::Installed{directory_of(digest), found->second};
  }
  std::vector<codec::Sha256> list() const override {
    std::vector<codec::Sha256> out;
    for (const auto& [digest, bytes] : machine_.artifacts_) out.push_back(digest);
    return out;
  }
  std::uint64_t bytes() const override { return 0; }
  void keep(std::set<codec::Sha256>) override {}
  Result<std::uint64_t> evict(std::uint64_t) override { return std::uint64_t{0}; }
  Status remove(const codec::Sha256&) override { return {}; }

 private:
  void put(const codec::Sha256& digest, const std::string& bytes) {
    const os::Path directory = directory_of(digest);
    CHECK(machine_.fs_.make_directories(directory, 0755).ok());
    CHECK(write_file(machine_.fs_, directory / "model.onnx", bytes).ok());
    machine_.artifacts_[digest] = bytes.size();
  }
  static os::Path directory_of(const codec::Sha256& digest) {
    return kData / "artifacts" / digest.hex();
  }
  Machine& machine_;
};

/// A file without its last row.
class ShortFile final : public os::ReadableFile {
 public:
  explicit ShortFile(std::unique_ptr<os::ReadableFile> file) : file_(std::move(file)) {}
  Result<std::size_t> read(std::uint64_t offset, std::span<char> bytes) override {
    TRY(const os::FileFacts now, facts());
    if (offset >= now.size_bytes) return std::size_t{0};
    return file_->read(offset,
                       bytes.first(std::min<std::size_t>(bytes.size(), now.size_bytes - offset)));
  }
  Result<os::FileFacts> facts() override { return shorter(file_->facts()); }
  static Result<os::FileFacts> shorter(Result<os::FileFacts> facts) {
    if (facts.ok() && facts->size_bytes > 0) facts->size_bytes -= kRowBytes;
    return facts;
  }

 private:
  static constexpr std::uint64_t kRowBytes = 4;
  const std::unique_ptr<os::ReadableFile> file_;
};

/// Users' files, which outlive the agent that reads them.
class Datasets final : public os::ReadableTree {
 public:
  Datasets(os::ReadableTree& tree, const Mutations& mutations)
      : tree_(tree), mutations_(mutations) {}
  Result<os::FileFacts> facts(const os::Path& path) override {
    return mutations_.rows_are_lost ? ShortFile::shorter(tree_.facts(path)) : tree_.facts(path);
  }
  Result<std::unique_ptr<os::ReadableFile>> open(const os::Path& path) override {
    if (!mutations_.rows_are_lost) return tree_.open(path);
    TRY(auto file, tree_.open(path));
    return std::make_unique<ShortFile>(std::move(file));
  }
  Result<std::unique_ptr<os::ReadableDirectory>> list(const os::Path& path) override {
    return tree_.list(path);
  }

 private:
  os::ReadableTree& tree_;
  const Mutations& mutations_;
};

/// Polls the model servers of this machine.
class ServerClient final : public net::HttpClient {
 public:
  explicit ServerClient(Machine& machine) : machine_(machine) {}

  Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override {
    if (ctx.stopped()) return Error(Code::kCancelled, "stop requested");
    TRY_VOID(machine_.scheduler_.pause());
    Json index = Json::array();
    std::optional<Json> tiers;
    bool answers = machine_.mutations_.server_lies;
    for (const auto& [uid, container] : machine_.containers_) {
      const std::string url =
          "http://" + container->address + ":" + std::to_string(container->port);
      if (!container->model_key.empty() &&
          request.url == url + "/v2/models/" + container->model_name + "/joint")
        tiers = tiers_of(*container);
      if (container->model_key.empty() || request.url != url + "/v2/repository/index") continue;
      if (machine_.mutations_.server_lies) {
        if (auto target = target_of(container->model_key))
          index.push_back(entry(container->model_name, *target));
        continue;
      }
      // A server listens a moment after its start.
      if (machine_.scheduler_.clock().now() < container->started + milliseconds(100)) continue;
      answers = true;
      if (container->serving.empty()) continue;
      index.push_back(entry(container->model_name, container->serving));
      machine_.answered_.emplace(container->model_key, url, container->serving);
    }
    if (!answers && !tiers) return Error(Code::kUnavailable, "connection refused");
    machine_.scheduler_.note("asked", request.url);
    net::ClientResponse out;
    out.status = 200;
    out.body = std::make_unique<Text>(codec::write_json(tiers ? *tiers : index));
    return out;
  }

 private:
  class Text final : public net::BodyReader {
   public:
    explicit Text(std::string text) : text_(std::move(text)) {}
    Result<std::optional<std::string>> read() override {
      if (text_.empty()) return std::optional<std::string>();
      return std::optional<std::string>(std::exchange(text_, {}));
    }

   private:
    std::string text_;
  };
  static Json entry(const std::string& name, const std::string& version) {
    return Json::object({{"name", name}, {"version", version}, {"state", "READY"}});
  }
  /// The counters of a first tier. No request is hard, so the edge answers all.
  Json tiers_of(const Container& container) {
    std::string instance = container.pod_uid + "-" + std::to_string(container.restarts);
    if (machine_.mutations_.counts_twice) instance += "-" + std::to_string(++calls_);
    const Json counters =
        Json::object({{"inferences", container.answered},
                      {"samples", container.answered},
                      {"answered", Json::object({{"edge", container.answered}})}});
    // Every tier with an address answers.
    Json tiers = Json::array();
    const auto file =
        codec::parse_json(machine_.model_file(container.model_key, "joint.json").value_or("{}"));
    for (const Json& tier : file.ok() ? (*file)["tiers"].as_array() : Json::Array()) {
      const bool called = tiers.empty() || !tier["url"].as_string().empty();
      tiers.push_back(
          Json::object({{"name", tier["name"]}, {"state", called ? "Ready" : "Unknown"}}));
    }
    return Json::object(
        {{"instance", instance}, {"counters", counters}, {"tiers", std::move(tiers)}});
  }
  std::optional<std::string> target_of(const std::string& key) {
    auto tree = artifact::ModelTree::open(machine_.fs_, kData / "models");
    auto target = tree.value().target(key);
    return target.ok() ? *target : std::nullopt;
  }
  Machine& machine_;
  std::uint64_t calls_ = 0;
};

/// Runs pods like a real runner, with containers instead of processes.
class Runner final : public node::PodRunner {
 public:
  Runner(Machine& machine, node::Host& host) : machine_(machine), host_(host) {}

  void set_desired(std::vector<Json> pods) override {
    std::set<std::string> seen;
    for (Json& pod : pods) {
      const std::string uid = std::as_const(pod).at("metadata/uid").as_string();
      seen.insert(uid);
      machine_.pods_.insert_or_assign(uid, std::move(pod));
    }
    for (auto& [uid, pod] : machine_.pods_)
      if (!seen.contains(uid)) ended_.insert(uid);
    dirty_ = true;
  }
  Status run(const Context&) override { return {}; }
  std::vector<Json> desired() const override { return {}; }
  bool idle() const override { return machine_.pods_.empty(); }

  std::optional<SteadyTime> due() const { return dirty_ ? SteadyTime::min() : next_; }

  std::optional<SteadyTime> step() override {
    dirty_ = false;
    const SteadyTime now = machine_.scheduler_.clock().now();
    next_ = now + seconds(2);  // polls its containers
    for (auto at = machine_.pods_.begin(); at != machine_.pods_.end();) {
      const std::string uid = at->first;
      const Json& pod = at->second;
      const node::PodName name{pod.at("metadata/namespace").as_string(),
                               pod.at("metadata/name").as_string(), uid};
      if (ended_.contains(uid) || !pod.at("metadata/deletionTimestamp").is_null()) {
        if (!stop(uid, now)) {
          ++at;
          continue;
        }
        host_.finished(name);
        reported_.erase(uid);
        ended_.erase(uid);
        at = machine_.pods_.erase(at);
        continue;
      }
      // The model directory is a mount, so nothing starts without it.
      const auto running = machine_.containers_.find(uid);
      if (running == machine_.containers_.end() && !started_.contains(uid)) start(uid, pod);
      started_.insert(uid);
      notify_program(name, pod);
      ++at;
    }
    return next_;
  }

 private:
  void start(const std::string& uid, const Json& pod) {
    auto container = std::make_unique<Container>();
    container->pod_uid = uid;
    container->ns = pod.at("metadata/namespace").as_string();
    container->name = pod.at("metadata/name").as_string();
    const Json& spec = pod["spec"];
    const Json& server = spec["containers"].as_array().at(0);
    // At the edge, the model directory is a mount; in the cloud, an init container fetches a
    // version.
    const std::string models = (kData / "models/").string();
    for (const Json& volume : spec["volumes"].as_array())
      if (const std::string& path = volume.at("hostPath/path").as_string();
          path.starts_with(models))
        container->model_key = path.substr(models.size());
    const std::string workers = kTokens.string() + "/";
    for (const Json& volume : spec["volumes"].as_array())
      if (const std::string& path = volume.at("hostPath/path").as_string();
          path.starts_with(workers))
        container->worker_key = path.substr(workers.size());
    if (!container->model_key.empty())
      container->model_name =
          os::Path(server["volumeMounts"].as_array().at(0)["mountPath"].as_string())
              .filename()
              .string();
    const Json* label = pod["metadata"]["labels"].find("edgeai.io/inference-model");
    if (label != nullptr && spec["initContainers"].is_array()) {
      container->cloud_key = container->ns + "/" + label->as_string();
      const auto& args = spec["initContainers"].as_array().at(0)["args"].as_array();
      for (std::size_t i = 0; i + 1 < args.size(); ++i) {
        if (args[i].as_string() == "--url") container->fetch_url = args[i + 1].as_string();
        if (args[i].as_string() == "--to")
          container->fetch_version = os::Path(args[i + 1].as_string()).filename().string();
      }
    }
    if (!server["ports"].empty())
      container->port =
          static_cast<int>(server["ports"].as_array()[0]["containerPort"].as_integer());
    container->address = spec["hostNetwork"].as_bool()
                             ? machine_.address_
                             : "127.9." + std::to_string(machine_.number_) + "." +
                                   std::to_string(2 + machine_.addresses_++ % 250);
    container->started = machine_.scheduler_.clock().now();
    machine_.scheduler_.note("container starts", container->name);
    machine_.add_container(std::move(container));
  }
  /// False: it is still stopping.
  bool stop(const std::string& uid, SteadyTime now) {
    if (!machine_.containers_.contains(uid) || machine_.mutations_.containers_stay) return true;
    const auto [when, fresh] =
        ending_.emplace(uid, now + milliseconds(machine_.scheduler_.rng().below(3000)));
    if (when->second > now) {
      next_ = std::min(*next_, when->second);
      return false;
    }
    ending_.erase(uid);
    machine_.scheduler_.note("container ends", machine_.containers_.at(uid)->name);
    machine_.remove_container(uid);
    return true;
  }
  void notify_program(const node::PodName& name, const Json& pod) {
    const auto found = machine_.containers_.find(name.uid);
    if (found == machine_.containers_.end()) {
      start(name.uid, pod);
      dirty_ = true;
      return;
    }
    const Container& container = *found->second;
    const bool ready = !container.has_server() || !container.serving.empty() ||
                       (machine_.mutations_.pods_are_ready_at_once && !container.cloud_key.empty());
    const std::string key =
        std::to_string(container.restarts) + (ready                    ? "ready"
                                              : container.fetch_failed ? "failed"
                                                                       : "");
    std::string& reported = reported_[name.uid];
    if (reported == key) return;
    reported = key;
    const char* truth = ready ? "True" : "False";
    const std::string since = meta::format_time(WallTime(
        std::chrono::duration_cast<WallTime::duration>(container.started.time_since_epoch())));
    const Json times = Json::object({{"startedAt", since}});
    Json status = Json::object(
        {{"phase", "Running"},
         {"hostIP", machine_.address_},
         {"podIP", container.address},
         {"startTime", since},
         {"conditions",
          Json::array(
              {Json::object({{"type", "Ready"}, {"status", truth}, {"lastTransitionTime", since}}),
               Json::object({{"type", "ContainersReady"},
                             {"status", truth},
                             {"lastTransitionTime", since}})})},
         {"containerStatuses",
          Json::array({Json::object({{"name", pod["spec"]["containers"].as_array().at(0)["name"]},
                                     {"ready", ready},
                                     {"restartCount", container.restarts},
                                     {"image", ""},
                                     {"imageID", ""},
                                     {"state", Json::object({{"running", times}})}})})}});
    if (container.fetch_failed && !ready) {
      const Json ended = Json::object({{"exitCode", 1}, {"message", "DownloadFailed: HTTP 404"}});
      status.set("phase", "Pending");
      status.set("initContainerStatuses",
                 Json::array({Json::object(
                     {{"name", "fetch"},
                      {"ready", false},
                      {"restartCount", 1},
                      {"image", ""},
                      {"imageID", ""},
                      {"state",
                       Json::object({{"waiting", Json::object({{"reason", "CrashLoopBackOff"}})}})},
                      {"lastState", Json::object({{"terminated", ended}})}})}));
    }
    host_.status_changed(name, std::move(status));
  }

  Machine& machine_;
  node::Host& host_;
  bool dirty_ = true;
  std::optional<SteadyTime> next_;
  std::set<std::string> ended_, started_;
  std::map<std::string, SteadyTime> ending_;
  std::map<std::string, std::string> reported_;
};

struct Machine::Life {
  explicit Life(Machine& m)
      : process("agent " + m.name_),
        link(m.network_, process, {"system:node:" + m.name_, {"system:nodes"}}),
        client(link, {}),
        http(m),
        artifacts(m),
        tree(artifact::ModelTree::open(m.fs_, kData / "models").value()),
        pods({.facts = {.name = m.name_, .layer = m.layer_, .address = m.address_}}, client,
             m.scheduler_.clock(), m.product_rng_),
        runner(m, pods.host()),
        models({.install_threads = 1,
                .requests_period = std::chrono::hours(24),  // unused here; a check would be a step
                .clock = &m.scheduler_.clock()},
               artifacts, tree, m.fs_, http, *m.state_store_, m.product_rng_),
        datasets(
            {.roots = {Machine::kDatasets},
             .directory = kData / "datasets",
             .clock = &m.scheduler_.clock()},
            m.fs_,
            [&m]() -> Result<std::unique_ptr<os::ReadableTree>> {
              return std::make_unique<Datasets>(m.datasets_, m.mutations_);
            },
            watch),
        workers({.directory = kTokens, .clock = &m.scheduler_.clock()}, m.fs_, *m.state_store_,
                m.product_rng_),
        core(
            client,
            {.link = {.node_name = m.name_, .clock = &m.scheduler_.clock(), .rng = &m.product_rng_},
             .address = m.address_},
            *m.state_store_, {&models, &datasets, &workers}) {
    link.set_up(m.link_up_);
    pods.start(runner);
    core.load();
  }
  std::vector<runtime::Task> tasks() {
    std::vector<runtime::Task> out = core.tasks();
    for (runtime::Task& task : pods.tasks()) out.push_back(std::move(task));
    return out;
  }

  Process process;
  Network::Link link;
  kube::Client client;
  ServerClient http;
  Artifacts artifacts;
  artifact::ModelTree tree;
  os::testing::MemoryFileWatch watch;
  agent::pods::Pods pods;
  Runner runner;
  agent::models::Manager models;
  agent::datasets::Manager datasets;
  agent::workers::Manager workers;
  agent::core::Core core;
};

Machine::Machine(std::string name, std::string layer, int number, const Origin& origin,
                 const Mutations& mutations, Network& network, Scheduler& scheduler,
                 Rng& product_rng)
    : name_(std::move(name)),
      layer_(std::move(layer)),
      number_(number),
      address_("127.9." + std::to_string(number) + ".1"),
      origin_(origin),
      mutations_(mutations),
      network_(network),
      scheduler_(scheduler),
      product_rng_(product_rng),
      state_store_(agent::core::StateStore::in_memory()) {}

Machine::~Machine() {
  stop_agent();
  lose_containers();
}

void Machine::start_agent() {
  life_ = std::make_unique<Life>(*this);
  for (runtime::Task& task : life_->tasks()) {
    if (mutations_.files_stay && task.name == "models") {
      // Runs the step, then restores what it hid.
      task.step = [this, step = task.step](const Context& ctx) {
        const std::map<std::string, std::string> before = exposed();
        step(ctx);
        const std::map<std::string, std::string> after = exposed();
        for (const auto& [key, content] : before)
          if (!after.contains(key)) {
            CHECK(fs_.make_directories(kData / "models" / key / "left", 0755).ok());
            CHECK(write_file(fs_, kData / "models" / key / "target", "left\n").ok());
          }
      };
    }
    scheduler_.add(life_->process, std::move(task));
  }
  if (mutations_.heartbeats) {
    const auto due = std::make_shared<SteadyTime>(scheduler_.clock().now());
    scheduler_.add(
        life_->process,
        {"heartbeat", [due] { return std::optional(*due); },
         [this, due](const Context& ctx) {
           *due = scheduler_.clock().now() + seconds(25);
           const Json status = Json::object(
               {{"agentVersion", "at " + std::to_string(due->time_since_epoch().count())}});
           (void)life_->client.patch(ctx, api::EdgeNode::resource(), {"", name_},
                                     kube::PatchType::kMerge, Json::object({{"status", status}}),
                                     "status");
         }});
  }
  scheduler_.add(life_->process,
                 {"runner", [life = life_.get()] { return life->runner.due(); },
                  [life = life_.get()](const Context&) { (void)life->runner.step(); }});
  for (const auto& [uid, program] : programs_) program->agent_started();
}

void Machine::stop_agent() {
  if (!life_) return;
  scheduler_.kill(life_->process);
  life_.reset();
  for (const auto& [uid, program] : programs_) program->agent_stopped();
}

void Machine::forget_old_answers() {
  answered_.clear();
  for (const auto& [uid, container] : containers_) {
    if (container->serving.empty()) continue;
    if (!container->cloud_key.empty())
      answered_.emplace(container->cloud_key, "", container->serving);
    if (!container->model_key.empty())
      answered_.emplace(container->model_key,
                        "http://" + container->address + ":" + std::to_string(container->port),
                        container->serving);
  }
}

bool Machine::send_request(const std::string& model_key) {
  for (const auto& [uid, container] : containers_) {
    if (container->model_key != model_key || container->serving.empty()) continue;
    ++container->answered;
    if (const auto program = programs_.find(uid); program != programs_.end())
      program->second->count(container->answered);
    return true;
  }
  return false;
}

bool Machine::evaluate(const std::string& model_key, int accuracy) {
  for (const auto& [uid, program] : programs_) {
    if (containers_.at(uid)->model_key != model_key) continue;
    program->evaluate(accuracy);
    return true;
  }
  return false;
}

Json Machine::assignment(const std::string& worker_key) const {
  for (const auto& [uid, program] : programs_)
    if (containers_.at(uid)->worker_key == worker_key) return program->assignment();
  return {};
}

void Machine::expects_workers(const std::set<std::string>& keys) {
  for (auto& [worker, reported] : reported_)
    reported.unassigned = reported.unassigned || !keys.contains(worker.first);
}

std::set<std::string> Machine::tokens() {
  std::set<std::string> out;
  const os::Path root = kTokens;
  const auto spaces = fs_.list(root);
  if (!spaces.ok()) return out;
  for (const std::string& ns : *spaces)
    for (const std::string& name : fs_.list(root / ns).value())
      if (first_line(root / ns / name / "token")) out.insert(ns + "/" + name);
  return out;
}

std::optional<std::string> Machine::model_file(const std::string& model_key,
                                               const std::string& name) {
  const auto file = fs_.open(kData / "models" / model_key / name, os::Open::kRead, 0);
  if (!file.ok()) return std::nullopt;
  const auto text = (*file)->read(64 << 10);
  return text.ok() ? std::optional(*text) : std::nullopt;
}

void Machine::dataset_changed(const os::Path& path) {
  if (life_) life_->watch.change(path);
}

void Machine::set_link(bool up) {
  link_up_ = up;
  if (life_) life_->link.set_up(up);
}

void Machine::add_container(std::unique_ptr<Container> container) {
  // A second container of one pod exists only if the runner forgot the first.
  std::string uid = container->pod_uid;
  while (containers_.contains(uid)) uid += "'";
  Container& added = *containers_.emplace(uid, std::move(container)).first->second;
  if (!added.has_server()) return;
  auto& process = servers_[uid] = std::make_unique<Process>("server " + name_ + " " + added.name);
  const auto due =
      std::make_shared<SteadyTime>(added.started + milliseconds(scheduler_.rng().below(1500)));
  scheduler_.add(*process, {"follow", [due] { return std::optional(*due); },
                            [this, &added, due](const Context&) {
                              added.cloud_key.empty() ? serve_step(added) : fetch_step(added);
                              *due = scheduler_.clock().now() + seconds(2);
                            }});
  if (added.worker_key.empty()) return;
  start_program(uid, added);
  scheduler_.add(*process,
                 {"worker", [this, uid] { return life_ ? programs_.at(uid)->due() : std::nullopt; },
                  [this, uid, key = added.worker_key](const Context&) {
                    programs_.at(uid)->step(scheduler_.clock().now(), life_->workers,
                                            first_line(kTokens / key / "token"));
                  }});
}

void Machine::start_program(const std::string& uid, const Container& container) {
  programs_[uid] = std::make_unique<WorkerProgram>(
      uid + "-" + std::to_string(container.restarts),
      [this, key = container.worker_key](const std::string& of) -> Reported& {
        return reported_[{key, of}];
      },
      mutations_);
}

void Machine::remove_container(const std::string& uid) {
  if (const auto server = servers_.find(uid); server != servers_.end()) {
    scheduler_.kill(*server->second);
    servers_.erase(server);
  }
  programs_.erase(uid);
  containers_.erase(uid);
}

void Machine::lose_containers() {
  while (!containers_.empty()) remove_container(std::string(containers_.begin()->first));
}

void Machine::crash_container(std::uint64_t which) {
  if (containers_.empty()) return;
  auto at = containers_.begin();
  std::advance(at, static_cast<std::ptrdiff_t>(which % containers_.size()));
  Container& container = *at->second;
  container.serving.clear();
  container.answered = 0;
  container.started = scheduler_.clock().now();
  ++container.restarts;
  if (programs_.contains(at->first)) start_program(at->first, container);
  scheduler_.note("container crashes", container.name);
}

std::optional<std::string> Machine::first_line(const os::Path& path) {
  const auto file = fs_.open(path, os::Open::kRead, 0);
  if (!file.ok()) return std::nullopt;
  const auto text = (*file)->read(256);
  if (!text.ok() || text->empty()) return std::nullopt;
  return text->substr(0, text->find('\n'));
}

/// A model server reads `target` and serves that version, if it exists.
void Machine::serve_step(Container& container) {
  const os::Path directory = kData / "models" / container.model_key;
  const std::optional<std::string> target = first_line(directory / "target");
  if (!target || *target == container.serving) return;
  const auto weights = fs_.stat(directory / *target / "model.onnx");
  if (!weights.ok() || !*weights) return;
  container.serving = *target;
  scheduler_.note("serves", container.name + " " + container.serving);
}

/// An init container fetches a version, and a server serves it. An unavailable archive is retried
/// forever.
void Machine::fetch_step(Container& container) {
  if (!container.serving.empty()) return;
  container.fetch_failed = origin_.broken.contains(container.fetch_url);
  if (container.fetch_failed || !link_up_ || scheduler_.rng().chance(origin_.failures)) return;
  container.serving = container.fetch_version;
  answered_.emplace(container.cloud_key, "", container.serving);
  scheduler_.note("serves", container.name + " " + container.serving);
}

const std::map<std::string, std::string>& Machine::exposed() {
  if (fs_.calls() != exposed_at_) {
    exposed_ = read_exposed();
    exposed_at_ = fs_.calls();
  }
  return exposed_;
}

std::map<std::string, std::string> Machine::read_exposed() {
  std::map<std::string, std::string> out;
  const auto spaces = fs_.list(kData / "models");
  if (!spaces.ok()) return out;
  for (const std::string& ns : *spaces) {
    if (ns.starts_with(".")) continue;
    for (const std::string& name : fs_.list(kData / "models" / ns).value()) {
      const os::Path directory = kData / "models" / ns / name;
      const std::optional<std::string> target = first_line(directory / "target");
      if (target)
        out.emplace(ns + "/" + name, first_line(directory / *target / "model.onnx").value_or(""));
    }
  }
  return out;
}

}  // namespace varda::sim
