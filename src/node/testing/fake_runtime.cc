// Field numbers and behaviour: k8s.io/cri-api, pkg/apis/runtime/v1/api.proto.
#include "node/testing/fake_runtime.h"

#include <algorithm>

#include "codec/protobuf.h"
#include "node/containerd_driver.h"

namespace varda::node::testing {
namespace {

using codec::ProtoReader;
using codec::ProtoWriter;
using Labels = std::map<std::string, std::string>;

constexpr int kRunning = 1, kExited = 2;  // ContainerState

/// The bytes of a nested field: path {2, 1} is field 1 of the message in field 2.
std::string nested(std::string_view message, std::initializer_list<std::uint32_t> path) {
  std::string bytes(message);
  for (const std::uint32_t field : path) {
    ProtoReader in(bytes);
    std::string found;
    while (in.next()) {
      if (in.field() == field) found = in.text();
    }
    bytes = std::move(found);
  }
  return bytes;
}

std::int64_t number(std::string_view message, std::uint32_t field) {
  std::int64_t out = 0;
  ProtoReader in(message);
  while (in.next()) {
    if (in.field() == field) out = in.number();
  }
  return out;
}

Labels map_field(std::string_view message, std::uint32_t field) {
  Labels out;
  ProtoReader in(message);
  while (in.next()) {
    if (in.field() == field) out.insert(in.entry());
  }
  return out;
}

std::vector<std::string> list_field(std::string_view message, std::uint32_t field) {
  std::vector<std::string> out;
  ProtoReader in(message);
  while (in.next()) {
    if (in.field() == field) out.push_back(in.text());
  }
  return out;
}

bool matches(const Labels& labels, const Labels& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& pair) {
    const auto found = labels.find(pair.first);
    return found != labels.end() && found->second == pair.second;
  });
}

std::string id_answer(const std::string& id) { return ProtoWriter().text(1, id).bytes(); }

class Client final : public net::GrpcClient {
 public:
  explicit Client(FakeRuntime& runtime) : runtime_(runtime) {}
  Result<std::string> call(const Context& ctx, std::string_view method,
                           std::string_view message) override {
    return runtime_.call(ctx, method, message);
  }

 private:
  FakeRuntime& runtime_;
};

}  // namespace

std::unique_ptr<net::GrpcClient> FakeRuntime::client() { return std::make_unique<Client>(*this); }

Result<std::string> FakeRuntime::call(const Context& ctx, std::string_view method,
                                      std::string_view message) {
  const std::string name(method.substr(method.rfind('/') + 1));
  MutexLock lock(mutex_);
  if (down_) return Error(Code::kUnavailable, "nobody listens");
  std::optional<std::pair<Fault, Error>> fault;
  if (const auto found = faults_.find(name); found != faults_.end()) {
    fault = found->second;
    faults_.erase(found);
  }
  if (fault && fault->first == Fault::kNotDone) {
    const auto failed = containers_.find(nested(message, {1}));
    if (name == "StartContainer" && fault->second.code() == Code::kInternal &&
        failed != containers_.end()) {
      failed->second.state = kExited;
      failed->second.exit_code = 128;
      failed->second.reason = "StartError";
    }
    return fault->second;
  }
  const bool looks = name.starts_with("List") || name.ends_with("Status") || name == "Version" ||
                     name == "RuntimeConfig";
  if (!looks) changes_.push_back(name);
  Result<std::string> answer = run(ctx, name, message);
  changed_.notify_all();
  if (fault) return fault->second;
  return answer;
}

Result<std::string> FakeRuntime::run(const Context& ctx, const std::string& method,
                                     std::string_view message) {
  const std::string id = nested(message, {1});
  if (method == "Version") return ProtoWriter().text(2, "fake").text(3, "1.0").bytes();
  if (method == "Status") {
    ProtoWriter out;
    if (number(message, 1) == 1 && !status_config_.empty()) out.entry(2, "config", status_config_);
    return std::move(out).bytes();
  }
  if (method == "RuntimeConfig" && runtime_config_) return *runtime_config_;
  if (method == "RunPodSandbox") return run_sandbox(id);
  if (method == "ListPodSandbox") return list_sandboxes(message);
  if (method == "ListContainers") return list_containers(message);
  if (method == "CreateContainer") return create_container(message);
  if (method == "ContainerStatus") return container_status(id);
  if (method == "ImageStatus") return image_status(message);
  if (method == "StopContainer") return stop_container(ctx, id, number(message, 2));
  if (method == "RemoveContainer") {
    containers_.erase(id);
    return std::string();
  }
  if (method == "ExecSync") return ProtoWriter().number(3, exec_code_).bytes();
  if (method == "StartContainer") {
    const auto found = containers_.find(id);
    if (found == containers_.end()) return Error(Code::kNotFound, "no such container");
    if (!sandboxes_[found->second.sandbox].ready)
      return Error(Code::kInternal, "sandbox container is not running");
    found->second.state = kRunning;
    found->second.ever_ran = true;
    return std::string();
  }
  const auto sandbox = sandboxes_.find(id);
  if (method == "PodSandboxStatus") {
    if (sandbox == sandboxes_.end()) return Error(Code::kNotFound, "no such sandbox");
    ProtoWriter out;
    out.message(1, [&](ProtoWriter& status) {
      status.text(1, id);
      status.message(5, [&](ProtoWriter& network) {
        if (sandbox->second.network == 0) network.text(1, "10.1.0." + id.substr(id.find('-') + 1));
      });
    });
    return std::move(out).bytes();
  }
  if (method == "StopPodSandbox") {
    if (sandbox == sandboxes_.end()) return Error(Code::kNotFound, "no such sandbox");
    sandbox->second.ready = false;
    end_containers_of(id);
    return std::string();
  }
  if (method == "RemovePodSandbox") {
    end_containers_of(id);
    std::erase_if(containers_, [&](const auto& pair) { return pair.second.sandbox == id; });
    sandboxes_.erase(id);
    return std::string();
  }
  return Error(Code::kUnsupported, "unknown method " + method);
}

Result<std::string> FakeRuntime::run_sandbox(std::string_view config) {
  Sandbox sandbox;
  sandbox.config = config;
  sandbox.labels = map_field(config, 6);
  sandbox.name = nested(config, {1, 1});
  sandbox.attempt = static_cast<int>(number(nested(config, {1}), 4));
  sandbox.hostname = nested(config, {2});
  sandbox.log_directory = nested(config, {3});
  sandbox.network = static_cast<int>(number(nested(config, {8, 2, 1}), 1));
  const std::string uid = nested(config, {1, 2});
  for (const auto& [id, other] : sandboxes_) {
    if (nested(other.config, {1, 2}) == uid && other.attempt == sandbox.attempt)
      return Error(Code::kInternal, "failed to reserve sandbox name: it is reserved for " + id);
  }
  const std::string id = "sandbox-" + std::to_string(++last_);
  sandboxes_[id] = std::move(sandbox);
  return id_answer(id);
}

Result<std::string> FakeRuntime::create_container(std::string_view message) {
  const std::string config = nested(message, {2});
  Container c;
  c.config = config;
  c.sandbox = nested(message, {1});
  c.name = nested(config, {1, 1});
  c.attempt = static_cast<int>(number(nested(config, {1}), 2));
  c.image = nested(config, {2, 1});
  c.command = list_field(config, 3);
  c.arguments = list_field(config, 4);
  c.environment = map_field(config, 6);
  c.mounts = map_field(config, 7);
  c.labels = map_field(config, 9);
  c.log_path = nested(config, {11});
  c.obeys_terminate = obeys_terminate_;
  const auto sandbox = sandboxes_.find(c.sandbox);
  if (sandbox == sandboxes_.end()) return Error(Code::kNotFound, "no such sandbox");
  if (nested(message, {3, 1}) != nested(sandbox->second.config, {1})) {
    // The sandbox's attempt may differ; the other names must match.
    if (nested(message, {3, 1, 2}) != nested(sandbox->second.config, {1, 2}))
      return Error(Code::kInvalid, "another sandbox's config");
  }
  if (!images_.contains(c.image)) return Error(Code::kNotFound, "no such image");
  for (const auto& [id, other] : containers_) {
    if (other.sandbox == c.sandbox && other.name == c.name && other.attempt == c.attempt)
      return Error(Code::kInternal, "failed to reserve container name: it is reserved for " + id);
  }
  const std::string id = "container-" + std::to_string(++last_);
  containers_[id] = std::move(c);
  return id_answer(id);
}

Result<std::string> FakeRuntime::stop_container(const Context& ctx, const std::string& id,
                                                std::int64_t grace) {
  const auto found = containers_.find(id);
  if (found == containers_.end()) return Error(Code::kNotFound, "no such container");
  Container& c = found->second;
  if (c.state != kRunning) return std::string();
  if (grace == 0 || c.obeys_terminate) {
    c.state = kExited;
    c.exit_code = grace == 0 ? 137 : 143;
    return std::string();
  }
  // The container keeps running. The call waits for its exit, or gives up.
  const SteadyTime end = ctx.deadline().value_or(SteadyTime::max());
  changed_.notify_all();
  while (!ctx.stopped() && containers_.contains(id) && containers_.at(id).state == kRunning) {
    const SteadyTime recheck_at = system_clock().now() + std::chrono::milliseconds(5);
    (void)changed_.wait_until(mutex_, std::min(end, recheck_at));
    if (system_clock().now() >= end) return Error(Code::kTimeout, "deadline");
  }
  if (ctx.stopped()) return Error(Code::kCancelled, "stop requested");
  return std::string();
}

std::string FakeRuntime::list_sandboxes(std::string_view message) const {
  const Labels wanted = map_field(nested(message, {1}), 3);
  ProtoWriter out;
  for (const auto& [id, sandbox] : sandboxes_) {
    if (!matches(sandbox.labels, wanted)) continue;
    out.message(1, [&, id = id, &s = sandbox](ProtoWriter& item) {
      item.text(1, id).message(
          2, [&](ProtoWriter& metadata) { metadata.text(1, s.name).number(4, s.attempt); });
      item.number(3, s.ready ? 0 : 1);
      for (const auto& [key, value] : s.labels) item.entry(5, key, value);
    });
  }
  return std::move(out).bytes();
}

std::string FakeRuntime::list_containers(std::string_view message) const {
  const Labels wanted = map_field(nested(message, {1}), 4);
  ProtoWriter out;
  for (const auto& [id, container] : containers_) {
    if (!matches(container.labels, wanted)) continue;
    out.message(1, [&, id = id, &c = container](ProtoWriter& item) {
      item.text(1, id).text(2, c.sandbox);
      item.message(3,
                   [&](ProtoWriter& metadata) { metadata.text(1, c.name).number(2, c.attempt); });
      item.number(6, c.state);
      for (const auto& [key, value] : c.labels) item.entry(8, key, value);
    });
  }
  return std::move(out).bytes();
}

Result<std::string> FakeRuntime::container_status(const std::string& id) const {
  const auto found = containers_.find(id);
  if (found == containers_.end()) return Error(Code::kNotFound, "no such container");
  const Container& c = found->second;
  ProtoWriter out;
  out.message(1, [&](ProtoWriter& status) {
    status.text(1, id)
        .number(3, c.state)
        .number(5, c.ever_ran ? 1 : 0)
        .number(7, c.exit_code)
        .text(10, c.reason);
  });
  return std::move(out).bytes();
}

std::string FakeRuntime::image_status(std::string_view message) const {
  const std::string requested = nested(message, {1, 1});
  const std::string name = images_.contains(requested) ? requested : cri_image_name(requested);
  if (!images_.contains(name)) return "";
  const std::string user = image_user_;
  const std::optional<int> uid = image_uid_;
  ProtoWriter out;
  out.message(1, [&](ProtoWriter& image) {
    image.text(1, name).text(6, user);
    if (uid) image.message(5, [&](ProtoWriter& value) { value.number(1, *uid); });
  });
  return std::move(out).bytes();
}

void FakeRuntime::end_containers_of(const std::string& sandbox) {
  for (auto& [id, c] : containers_) {
    if (c.sandbox != sandbox || c.state != kRunning) continue;
    c.state = kExited;
    c.exit_code = 137;
  }
}

void FakeRuntime::fail_next(const std::string& method, Fault fault, Error error) {
  MutexLock lock(mutex_);
  faults_.insert_or_assign(method, std::pair(fault, std::move(error)));
}
void FakeRuntime::set_down(bool down) {
  MutexLock lock(mutex_);
  down_ = down;
}
void FakeRuntime::set_images(std::set<std::string> names) {
  MutexLock lock(mutex_);
  images_ = std::move(names);
}
void FakeRuntime::set_image_user(std::optional<int> uid, std::string name) {
  MutexLock lock(mutex_);
  image_uid_ = uid;
  image_user_ = std::move(name);
}
void FakeRuntime::end(const std::string& id, int code, const std::string& reason) {
  MutexLock lock(mutex_);
  Container& c = containers_.at(id);
  c.state = kExited;
  c.exit_code = code;
  c.reason = reason;
  changed_.notify_all();
}
void FakeRuntime::end_sandbox(const std::string& id) {
  MutexLock lock(mutex_);
  sandboxes_.at(id).ready = false;
}
void FakeRuntime::set_obeys_terminate(bool obeys) {
  MutexLock lock(mutex_);
  obeys_terminate_ = obeys;
}
void FakeRuntime::set_config(std::string status_config, std::optional<std::string> runtime_config) {
  MutexLock lock(mutex_);
  status_config_ = std::move(status_config);
  runtime_config_ = std::move(runtime_config);
}
void FakeRuntime::set_exec(int code) {
  MutexLock lock(mutex_);
  exec_code_ = code;
}

std::map<std::string, FakeRuntime::Sandbox> FakeRuntime::sandboxes() const {
  MutexLock lock(mutex_);
  return sandboxes_;
}
std::map<std::string, FakeRuntime::Container> FakeRuntime::containers() const {
  MutexLock lock(mutex_);
  return containers_;
}
std::vector<std::string> FakeRuntime::running() const {
  MutexLock lock(mutex_);
  std::vector<std::string> ids;
  for (const auto& [id, c] : containers_) {
    if (c.state == kRunning) ids.push_back(id);
  }
  return ids;
}
std::vector<std::string> FakeRuntime::changes() const {
  MutexLock lock(mutex_);
  return changes_;
}
bool FakeRuntime::wait_for(const std::function<bool(const FakeRuntime&)>& holds) const {
  const SteadyTime end = system_clock().now() + std::chrono::seconds(60);
  while (!holds(*this)) {
    MutexLock lock(mutex_);
    if (!changed_.wait_until(mutex_,
                             std::min(end, system_clock().now() + std::chrono::milliseconds(5))) &&
        system_clock().now() >= end)
      return false;
  }
  return true;
}

}  // namespace varda::node::testing
