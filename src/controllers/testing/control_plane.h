// A control plane in memory, for tests: the real API server with the rules of our kinds, and the
// controllers of all kinds. The test writes what agents, runners and schedulers would report.
//
// Controllers see changes of different kinds in any order. After a write, wait for a visible effect
// before the next write that depends on the first one.
#pragma once

#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "api/kind.h"
#include "apiserver/testing/in_memory.h"
#include "base/testing/eventually.h"
#include "codec/yaml.h"
#include "controllers/controllers.h"
#include "kube/client.h"
#include "runtime/manager.h"
#include "runtime/testing/at_rest.h"

namespace varda::controllers::testing {

using codec::Json;

inline const std::string kServices =
    "/apis/sedna.io/v1alpha1/namespaces/default/jointinferenceservices";
inline const std::string kModels = "/apis/sedna.io/v1alpha1/namespaces/default/models";
inline const std::string kInferenceModels =
    "/apis/ai.kubeedge.io/v1alpha1/namespaces/default/inferencemodels";
inline const std::string kTrainingModels =
    "/apis/ai.kubeedge.io/v1alpha1/namespaces/default/trainingmodels";
inline const std::string kFederatedJobs =
    "/apis/sedna.io/v1alpha1/namespaces/default/federatedlearningjobs";
inline const std::string kEdgeNodes = "/apis/edgeai.io/v1alpha1/edgenodes";
inline const std::string kNodes = "/api/v1/nodes";
inline const std::string kPods = "/api/v1/namespaces/default/pods";
inline const std::string kDeployments = "/apis/apps/v1/namespaces/default/deployments";
inline const std::string kCoreServices = "/api/v1/namespaces/default/services";
inline const std::string kSlices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

inline Json yaml(std::string_view text) {
  auto parsed = codec::parse_yaml(text);
  EXPECT_TRUE(parsed.ok()) << text << (parsed.ok() ? "" : parsed.error().message());
  return parsed.ok() ? std::move(parsed).value() : Json();
}

class ControlPlane : public ::testing::Test {
 protected:
  ControlPlane() : api_(with_rules()), client_(api_.transport(), {}) { start(); }
  ~ControlPlane() override { stop(); }

  /// Starts an operator without earlier state.
  void start() {
    manager_ = std::make_unique<runtime::Manager>(
        operator_client_ != nullptr ? *operator_client_ : client_, runtime::Manager::Options{});
    hosting::Options options;
    options.node_port_host = "127.0.0.1";
    options.registry_url = "http://registry:8092";
    options.file_digests = file_digests_;
    options.jobs = jobs_;
    controllers_ = add_all(*manager_, options);
    thread_ = std::jthread(
        [this](const std::stop_token& stop) { EXPECT_TRUE(manager_->run(Context(stop)).ok()); });
  }
  void stop() {
    thread_ = {};
    manager_.reset();
    controllers_.reset();
  }

  void post(const std::string& collection, std::string_view object) {
    const auto reply = api_.post(collection, yaml(object));
    ASSERT_EQ(reply.status, 201) << reply.text;
  }
  void patch(const std::string& path, std::string_view change) {
    const auto reply = api_.merge_patch(path, yaml(change));
    ASSERT_EQ(reply.status, 200) << reply.text;
  }
  void patch_status(const std::string& path, std::string_view status) {
    patch(path + "/status", "{status: " + std::string(status) + "}");
  }
  /// The EndpointSlice of a Service with one ready pod.
  void add_slice(const std::string& service, const std::string& address, int port) {
    post(kSlices,
         "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: " + service +
             "-x7k2p, labels: {kubernetes.io/service-name: " + service +
             "}}, addressType: IPv4, endpoints: [{addresses: [" + address +
             "], conditions: {ready: true}}], ports: [{port: " + std::to_string(port) + "}]}");
  }
  Json get(const std::string& path) { return api_.get(path).body; }
  bool exists(const std::string& path) { return api_.get(path).status == 200; }

  /// `labels` and `status` are YAML; the node is Ready.
  void add_node(const std::string& name, std::string_view labels) {
    post(kNodes, "{apiVersion: v1, kind: Node, metadata: {name: " + name +
                     ", labels: " + std::string(labels) + "}}");
    patch_status(kNodes + "/" + name,
                 "{conditions: [{type: Ready, status: 'True'}], addresses: [{type: InternalIP, "
                 "address: 127.9.1.1}]}");
  }
  void add_agent(const std::string& name) {
    post(kEdgeNodes, "{apiVersion: edgeai.io/v1alpha1, kind: EdgeNode, metadata: {name: " + name +
                         "}, spec: {}}");
    patch_status(kEdgeNodes + "/" + name,
                 "{modelRoot: /data/models, workerRoot: /data/workers, workerSocketDirectory: "
                 "/data/worker, address: 127.9.1.1}");
  }

  std::string revision() {
    return get("/api/v1/namespaces").at("metadata/resourceVersion").as_string();
  }
  bool becomes_idle() {
    return runtime::testing::becomes_idle(*manager_, client_, [this] { return revision(); });
  }
  /// True if a restarted operator without earlier state writes nothing. Stop the operator before
  /// only when it is idle: a restart finishes pending work.
  ::testing::AssertionResult restart_writes_nothing() {
    api_.settle();  // the API server makes ServiceAccounts by itself
    const std::string before = revision();
    start();
    if (!becomes_idle()) return ::testing::AssertionFailure() << "the operator stays busy";
    stop();
    if (revision() == before) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure()
           << "writes from revision " << before << " to " << revision() << changed_since(before);
  }
  /// For the message of a failed test: the keys of all changes after `revision`.
  std::string changed_since(const std::string& revision) {
    std::string out;
    const auto watch = api_.store().watch("", std::stoull(revision));
    if (!watch.ok()) return out;
    for (auto events = (*watch)->poll(); events.ok() && !events->empty(); events = (*watch)->poll())
      for (const store::Event& event : *events) out += "\n" + event.entry.key;
    return out;
  }

  apiserver::InMemoryApiServer api_;
  kube::Client client_;
  hosting::FileDigestReader file_digests_;    // of the next start()
  std::optional<hosting::ClusterJobs> jobs_;  // likewise
  kube::Client* operator_client_ = nullptr;   // likewise; null: client_
  std::unique_ptr<Controllers> controllers_;
  std::unique_ptr<runtime::Manager> manager_;
  std::jthread thread_;

 private:
  static apiserver::InMemoryApiServer::Options with_rules() {
    apiserver::InMemoryApiServer::Options options;
    for (const api::NativeRule& rule : api::native_rules())
      options.server.rules[{rule.group, rule.kind}] = rule.check;
    options.crds = api::crds();
    return options;
  }
};

}  // namespace varda::controllers::testing
