// Two hundred nodes at one gateway, over sockets with TLS, on the real API server.
#include <algorithm>
#include <atomic>
#include <deque>
#include <gtest/gtest.h>
#include <set>
#include <thread>

#include "gateway/gateway.h"
#include "gateway/testing/cloud.h"
#include "net/certificates.h"
#include "net/client.h"
#include "net/server.h"
#include "runtime/informer.h"

namespace varda::gateway {
namespace fleet_test {

using codec::Json;
using testing::Cloud;

constexpr int kNodes = 200;
const meta::Resource kEdgeNode{"edgeai.io", "v1alpha1", "EdgeNode", "edgenodes", false};

/// Sends reports of all agents on few threads, and repeats each until it is accepted.
class Reporters {
 public:
  Reporters() {
    for (int i = 0; i < 8; ++i)
      threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
  }
  /// Drops waiting reports. Their nodes may be destroyed after it returns.
  void end() {
    for (std::jthread& thread : threads_) thread.request_stop();
    threads_.clear();
  }
  void add(std::function<bool(const Context&)> report) {
    MutexLock lock(mutex_);
    queue_.push_back(std::move(report));
    changed_.notify_one();
  }

 private:
  void run(const std::stop_token& stop) {
    const std::stop_callback wake(stop, [this] {
      { MutexLock lock(mutex_); }
      changed_.notify_all();
    });
    while (!stop.stop_requested()) {
      std::function<bool(const Context&)> report;
      {
        MutexLock lock(mutex_);
        while (queue_.empty() && !stop.stop_requested()) changed_.wait(mutex_);
        if (stop.stop_requested()) return;
        report = std::move(queue_.front());
        queue_.pop_front();
      }
      if (report(Context(stop))) continue;
      (void)Context(stop).sleep_for(std::chrono::milliseconds(5));
      add(std::move(report));
    }
  }
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<bool(const Context&)>> queue_ GUARDED_BY(mutex_);
  std::vector<std::jthread> threads_;
};

/// A node: it makes its EdgeNode, watches it, and copies the wanted target into its status.
class Node {
 public:
  Node(std::string name, net::ClientOptions transport, const std::string& url, Reporters& reporters)
      : name_(std::move(name)),
        client_(net::make_client(std::move(transport)), {.base_url = url}),
        reporters_(reporters),
        informer_(client_, options()) {
    informer_.on_change([this](const runtime::Change& change) {
      if (change.key.name != name_) anonymous_ = true;
      if (change.now) report(change.now->json().at("spec/models"));
    });
  }
  void start() {
    thread_ = std::jthread([this](const std::stop_token& stop) {
      create(Context(stop));
      informer_.run(Context(stop));
    });
  }
  bool saw_anonymous() const { return anonymous_; }

 private:
  runtime::Informer::Options options() const {
    runtime::Informer::Options out;
    out.resource = kEdgeNode;
    out.filter.field_selector = "metadata.name=" + name_;
    out.watch_timeout = std::chrono::seconds(5);
    out.backoff_min = std::chrono::milliseconds(20);
    out.backoff_max = std::chrono::milliseconds(200);
    return out;
  }
  void create(const Context& ctx) {
    const Json object = Json::object({{"apiVersion", kEdgeNode.api_version()},
                                      {"kind", kEdgeNode.kind},
                                      {"metadata", Json::object({{"name", name_}})},
                                      {"spec", Json::object()}});
    while (!ctx.stopped()) {
      const auto created = client_.create(ctx, kEdgeNode, object);
      if (created.ok() || created.error().code() == Code::kAlreadyExists) return;
      (void)ctx.sleep_for(std::chrono::milliseconds(20));
    }
  }
  void report(const Json& models) {
    if (models.empty()) return;
    const std::string target = models.as_array()[0]["target"].as_string();
    reporters_.add([this, target](const Context& ctx) {
      const Json patch =
          Json::object({{"status", Json::object({{"agentVersion", name_ + " " + target}})}});
      return client_.patch(ctx, kEdgeNode, {"", name_}, kube::PatchType::kMerge, patch, "status")
          .ok();
    });
  }

  const std::string name_;
  const kube::Client client_;
  Reporters& reporters_;
  std::atomic<bool> anonymous_{false};
  runtime::Informer informer_;
  std::jthread thread_;
};

class Fleet : public ::testing::Test {
 protected:
  Fleet() {
    ca_ = net::make_ca("edge", std::chrono::hours(24)).value();
    const auto server = net::make_certificate(
                            ca_, {.common_name = "gateway", .hosts = {"127.0.0.1"}, .server = true})
                            .value();
    listen_ = server_options();
    listen_.listen = "127.0.0.1:0";
    listen_.tls = net::TlsServer{server.certificate_pem, server.key_pem, ca_.certificate_pem};
  }
  ~Fleet() override {
    reporters_.end();
    nodes_.clear();
    stop();
  }

  void start() {
    cloud_.start_gateway();
    server_ = net::Server::create(listen_, cloud_.gateway().handler()).value();
    listen_.listen = server_->address();  // a restart keeps the address
  }
  void stop() {
    if (server_) server_->stop(std::chrono::milliseconds(0));
    server_.reset();
    cloud_.stop_gateway();
  }
  void add_node(const std::string& name) {
    const auto certificate =
        net::make_certificate(ca_, {.common_name = name, .organizations = {"system:nodes"}})
            .value();
    net::ClientOptions transport;
    transport.tls.ca_pem = ca_.certificate_pem;
    transport.tls.certificate_pem = certificate.certificate_pem;
    transport.tls.key_pem = certificate.key_pem;
    nodes_.push_back(
        std::make_unique<Node>(name, transport, "https://" + listen_.listen, reporters_));
    nodes_.back()->start();
  }
  static std::string name(int i) { return "node-" + std::to_string(i); }
  void want(int i, const std::string& target) {
    const Json model = Json::object({{"key", "default/digits"},
                                     {"modelName", "digits"},
                                     {"framework", "onnx"},
                                     {"target", target}});
    const auto answer = cloud_.api().merge_patch(
        "/apis/edgeai.io/v1alpha1/edgenodes/" + name(i),
        Json::object({{"spec", Json::object({{"models", Json::array({model})}})}}));
    ASSERT_EQ(answer.status, 200) << answer.text;
  }
  /// Names of nodes without the wanted target in their status.
  std::vector<std::string> behind(const std::string& target) {
    std::vector<std::string> out;
    const Json list = cloud_.api().get("/apis/edgeai.io/v1alpha1/edgenodes").body;
    std::set<std::string> good;
    for (const Json& node : list["items"].as_array()) {
      const std::string& own = node.at("metadata/name").as_string();
      if (node.at("status/agentVersion").as_string() == (target.empty() ? "" : own + " " + target))
        good.insert(own);
    }
    for (int i = 0; i < kNodes; ++i) {
      if (!good.contains(name(i))) out.push_back(name(i));
    }
    return out;
  }
  void wait(const std::string& target) {
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::seconds(120);  // reached only by a hang
    while (!behind(target).empty() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_EQ(behind(target), std::vector<std::string>());
  }

  Cloud cloud_;
  net::KeyPair ca_;
  net::Server::Options listen_;
  std::unique_ptr<net::Server> server_;
  Reporters reporters_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

TEST_F(Fleet, TwoHundredNodesGetWorkAndRecoverAfterGatewayRestart) {
  start();
  for (int i = 0; i < kNodes; ++i) add_node(name(i));
  wait("");  // each has made its EdgeNode
  for (int i = 0; i < kNodes; ++i) want(i, "1");
  wait("1");

  stop();
  for (int i = 0; i < kNodes; ++i) want(i, "2");
  EXPECT_EQ(behind("1"), std::vector<std::string>());
  start();
  wait("2");
  for (const auto& node : nodes_) EXPECT_FALSE(node->saw_anonymous());
}

}  // namespace fleet_test
}  // namespace varda::gateway
