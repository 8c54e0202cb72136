// 1,000 InferenceModels created at once, until every one is Ready and the operator is idle.
//
// The API server (in memory), the operator and the nodes run in this process. The nodes are two
// reconcilers that report at once what real agents and runners would report: archives installed,
// target exposed, pod bound and running, server ready.
//
// Memory is attributed by removing parts: RSS as it is; after malloc_trim, which returns the
// allocator's reserves; without the simulated nodes; without the operator; without the store's
// history. Each part is the difference to the previous step. The rest is the API server's copy of
// the objects. Pages shared with smaller parts count for the remaining part.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <malloc.h>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>

#include "api/ai/inference_model.h"
#include "api/core/pod.h"
#include "api/edgeai/edge_node.h"
#include "api/kind.h"
#include "apiserver/testing/in_memory.h"
#include "base/log.h"
#include "codec/digest.h"
#include "codec/yaml.h"
#include "controllers/controllers.h"
#include "kube/client.h"
#include "runtime/manager.h"
#include "store/store.h"

namespace varda::bench {
namespace {

using codec::Json;

constexpr int kModels = 1000, kNodes = 10;
const std::string kModelsPath = "/apis/ai.kubeedge.io/v1alpha1/namespaces/default/inferencemodels";

double rss_kib() {
  std::ifstream file("/proc/self/statm");
  long size = 0, resident = 0;
  file >> size >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1024;
}

/// RSS without the allocator's reserves.
double trimmed_rss_kib() {
  ::malloc_trim(0);
  return rss_kib();
}

/// Allocated bytes, without the gaps between.
double allocated_kib() {
  const struct mallinfo2 info = ::mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd) / 1024;
}

void print_memory(const char* what, double kib, const char* aim = "") {
  std::printf("| RSS an object: %s | %.1f KiB | %s |\n", what, kib / kModels, aim);
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// An agent that has every archive immediately.
class Agents {
 public:
  void watches(runtime::Watches<api::EdgeNode>& w) const { w.workers(2).name("agents"); }
  Result<runtime::Action> reconcile(const Context& ctx, const api::EdgeNode& node,
                                    runtime::Writer& writer) {
    api::EdgeNodeStatus status;
    status.observed_generation = node.metadata.generation;
    status.agent_version = "0.1.0";
    status.model_root = "/data/models";
    status.address = "127.9.1.1";
    for (const api::EdgeModel& model : node.spec.models) {
      api::EdgeModelReport report;
      report.key = model.key;
      report.exposed = model.target;
      for (const api::EdgeModelVersion& version : model.versions) {
        api::EdgeVersionReport one;
        one.version = version.version;
        one.state = api::EdgeVersionReport::kReady;
        one.sha256 = version.sha256;
        one.bytes = 7340;
        report.versions.push_back(std::move(one));
      }
      if (model.serving) {
        report.serving.emplace();
        report.serving->version = model.target;
        report.serving->state = api::EdgeServingReport::kReady;
      }
      status.models.push_back(std::move(report));
    }
    TRY_VOID(writer.status(ctx, node, status.to_json()));
    return runtime::Action::await_change();
  }
};

/// Binds a pod according to its affinity, and runs it.
class Runner {
 public:
  explicit Runner(apiserver::InMemoryApiServer& api) : api_(api) {}
  void watches(runtime::Watches<api::Pod>& w) const { w.workers(2).name("runners"); }
  Result<runtime::Action> reconcile(const Context& ctx, const api::Pod& pod,
                                    runtime::Writer& writer) {
    const std::string path = "/api/v1/namespaces/default/pods/" + pod.metadata.name;
    if (pod.spec.node_name.empty()) {
      const int number =
          std::atoi(pod.metadata.name.substr(pod.metadata.name.find('-') + 1).c_str());
      const Json target = Json::object({{"apiVersion", "v1"},
                                        {"kind", "Node"},
                                        {"name", "edge" + std::to_string(number % kNodes)}});
      const auto bound =
          api_.post(path + "/binding",
                    Json::object({{"apiVersion", "v1"},
                                  {"kind", "Binding"},
                                  {"metadata", Json::object({{"name", pod.metadata.name}})},
                                  {"target", target}}));
      if (bound.status >= 300 && bound.status != 409) return Error(Code::kUnavailable, bound.text);
      return runtime::Action::await_change();
    }
    TRY_VOID(writer.edit(ctx, runtime::ObjectRef::of(pod), runtime::Part::kStatus, [](Json& live) {
      if (live["status"]["phase"].as_string() == "Running") return;
      live.set(
          "status",
          Json::object({{"phase", "Running"},
                        {"podIP", "127.9.2.2"},
                        {"conditions",
                         Json::array({Json::object({{"type", "Ready"}, {"status", "True"}})})}}));
    }));
    return runtime::Action::await_change();
  }

 private:
  apiserver::InMemoryApiServer& api_;
};

Json model(int number) {
  const std::string n = std::to_string(number);
  const auto version = [&](const char* name) {
    return Json::object({{"version", name},
                         {"downloadURL", "http://files.example/" + n + "-" + name + ".tar.gz"},
                         {"sha256sum", codec::Sha256::of(n + name).hex()}});
  };
  return Json::object(
      {{"apiVersion", "ai.kubeedge.io/v1alpha1"},
       {"kind", "InferenceModel"},
       {"metadata", Json::object({{"name", "model-" + n}})},
       {"spec", Json::object({{"modelName", "model-" + n},
                              {"deployToLayer", "edge"},
                              {"frameworkType", "onnx"},
                              {"nodeName", "edge" + std::to_string(number % kNodes)},
                              {"servingPort", 8000 + number / kNodes},
                              {"manifest", Json::array({version("3"), version("4")})},
                              {"targetVersion", "4"}})}});
}

bool settled(const runtime::Manager& manager) {
  const auto models = manager.caches().of<api::InferenceModel>().list();
  if (models.size() != kModels) return false;
  for (const auto& one : models) {
    if (one->status.serving_version != "4" ||
        one->status.observed_generation != one->metadata.generation)
      return false;
    const meta::Condition* ready = meta::find_condition(one->status.conditions, "Ready");
    if (ready == nullptr || ready->status != "True") return false;
  }
  return manager.idle();
}

int run() {
  log::configure(log::Format::kText, log::Level::kWarn);
  apiserver::InMemoryApiServer::Options options;
  for (const api::NativeRule& rule : api::native_rules())
    options.server.rules[{rule.group, rule.kind}] = rule.check;
  apiserver::InMemoryApiServer api(options);
  for (const Json& crd : api::crds()) api.install_crds(codec::write_yaml(crd));
  for (int i = 0; i < kNodes; ++i) {
    const std::string name = "edge" + std::to_string(i);
    const Json labels =
        Json::object({{"kubernetes.io/hostname", name}, {"node-role.kubernetes.io/edge", ""}});
    api.post("/api/v1/nodes",
             Json::object({{"apiVersion", "v1"},
                           {"kind", "Node"},
                           {"metadata", Json::object({{"name", name}, {"labels", labels}})}}));
    api.merge_patch(
        "/api/v1/nodes/" + name + "/status",
        Json::object(
            {{"status",
              Json::object({{"conditions", Json::array({Json::object(
                                               {{"type", "Ready"}, {"status", "True"}})})}})}}));
    api.post("/apis/edgeai.io/v1alpha1/edgenodes",
             Json::object({{"apiVersion", "edgeai.io/v1alpha1"},
                           {"kind", "EdgeNode"},
                           {"metadata", Json::object({{"name", name}})},
                           {"spec", Json::object({})}}));
  }
  const kube::Client client(api.transport(), {});
  std::optional<runtime::Manager> operator_side(std::in_place, client, runtime::Manager::Options{});
  std::optional<runtime::Manager> nodes_side(std::in_place, client, runtime::Manager::Options{});
  runtime::Manager &manager = *operator_side, &nodes = *nodes_side;
  const auto controllers = controllers::add_all(manager, {});
  Agents agents;
  Runner runner(api);
  nodes.add<api::EdgeNode>(agents);
  nodes.add<api::Pod>(runner);
  std::jthread operating([&](const std::stop_token& stop) { (void)manager.run(Context(stop)); });
  std::jthread playing([&](const std::stop_token& stop) { (void)nodes.run(Context(stop)); });
  const Context limit = Context::background().with_timeout(std::chrono::minutes(5));
  while (!(manager.ready() && nodes.ready() && manager.idle() && nodes.idle())) {
    if (!limit.sleep_for(std::chrono::milliseconds(10)).ok()) return 1;
  }
  const auto revision = [&] {
    return std::atol(api.get("/api/v1/namespaces?limit=1")
                         .body.at("metadata/resourceVersion")
                         .as_string()
                         .c_str());
  };
  const double rss = rss_kib(), allocated = allocated_kib(), cpu = cpu_seconds();
  const long writes = revision();
  const SteadyTime begin = system_clock().now();
  for (int i = 0; i < kModels; ++i) {
    if (const auto reply = api.post(kModelsPath, model(i)); reply.status != 201) {
      std::fprintf(stderr, "create: %d %s\n", reply.status, reply.text.c_str());
      return 1;
    }
  }
  const double created = std::chrono::duration<double>(system_clock().now() - begin).count();
  while (!settled(manager)) {
    if (!limit.sleep_for(std::chrono::milliseconds(20)).ok()) {
      std::fprintf(stderr, "not settled within 5 minutes\n%s\n",
                   api.get(kModelsPath + "/model-0").text.c_str());
      return 1;
    }
  }
  const double seconds = std::chrono::duration<double>(system_clock().now() - begin).count();
  std::printf("| what | measured | aim |\n|---|---|---|\n");
  std::printf("| %d InferenceModels on %d nodes, created to all settled | %.2f s | < 10 s |\n",
              kModels, kNodes, seconds);
  std::printf("| of that, until the last was created | %.2f s | |\n", created);
  std::printf("| CPU of it all | %.2f s | |\n", cpu_seconds() - cpu);
  std::printf("| writes an object | %.1f | |\n",
              static_cast<double>(revision() - writes) / kModels);
  const double whole = rss_kib(), trimmed = trimmed_rss_kib();
  playing.request_stop();
  playing.join();
  nodes_side.reset();
  const double without_nodes = trimmed_rss_kib();
  operating.request_stop();
  operating.join();
  operator_side.reset();
  const double without_operator = trimmed_rss_kib();
  if (!api.store().compact(api.store().revision()).ok()) return 1;
  const double without_history = trimmed_rss_kib();
  print_memory("everything, in one process", whole - rss, "≤ 6 KiB");
  print_memory("kept by the allocator after the peak", whole - trimmed);
  print_memory("the simulated nodes", trimmed - without_nodes);
  print_memory("the operator", without_nodes - without_operator);
  print_memory("the API server's history", without_operator - without_history);
  print_memory("the API server's current objects: model, pod, events", without_history - rss);
  print_memory("of those, allocated; the rest are holes between", allocated_kib() - allocated);
  const auto now =
      api.store().list({.prefix = "/registry/", .start_after = "", .limit = 0, .at = 0});
  if (!now.ok()) return 1;
  std::size_t bytes = 0;
  for (const store::Entry& entry : now->entries) bytes += entry.value->size();
  print_memory("of those, the bytes of the objects themselves", static_cast<double>(bytes) / 1024);
  return 0;
}

}  // namespace
}  // namespace varda::bench

int main() { return varda::bench::run(); }
